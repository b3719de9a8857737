"""Files as DuckDB reads them: relations, casts, what is damaged or not supported."""
