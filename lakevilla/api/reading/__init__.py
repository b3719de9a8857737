"""Tables as the frames of pandas and polars, and as DuckDB's: read when they are asked for."""
