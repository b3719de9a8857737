"""The metadata file of an Iceberg table, and the values in it."""
