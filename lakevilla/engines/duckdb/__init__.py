"""The embedded engine: DuckDB over Parquet files, streaming, in bounded memory.

``engine`` is the entrance; below it ``database`` holds connections, ``relation`` makes SQL of a
table's files, ``writer`` makes files of rows, ``rewrite`` and ``merge`` change them, and ``query``
runs a user's SELECT where it can see nothing else.
"""

from lakevilla.engines.duckdb.engine import DuckDBEngine

__all__ = ["DuckDBEngine"]
