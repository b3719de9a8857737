"""A gateway: Iceberg's REST catalog protocol, answered for the tables of a lake."""
