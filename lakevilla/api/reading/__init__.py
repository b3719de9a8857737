"""Tables as frames of pandas and polars, and as relations of DuckDB, read when they are used."""
