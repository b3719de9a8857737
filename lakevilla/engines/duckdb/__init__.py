"""The embedded engine: DuckDB over Parquet files, streaming, in bounded memory.

``engine`` is the entry point; below it ``database`` holds connections, ``relation`` makes SQL of a
table's files, ``writer`` makes files of rows, ``rewrite`` and ``merge`` rewrite files, and
``query`` runs a user's SELECT, which sees only the tables that it names.
"""

from lakevilla.engines.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
