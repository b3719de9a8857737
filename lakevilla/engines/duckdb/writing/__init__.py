"""Files as DuckDB writes them: rewrites, merges, order, constraints."""
