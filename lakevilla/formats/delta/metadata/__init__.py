"""What a Delta table says of itself: schema, column mapping, properties, protocol."""
