"""The metadata of a Delta table: schema, column mapping, properties, protocol."""
