"""The catalog tables and EXPLAIN, as a transaction sees them (docs/design/0035, 0040)."""
