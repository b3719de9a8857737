"""The Spark engine: the rows of a table as jobs of a Spark session.

Spark distributes, and DuckDB does the work inside each task: a predicate or an assignment has one
meaning on every engine because one engine evaluates it. Tasks read files through the same code as
the embedded engine, so deletion vectors, column mapping and partition values need no second reader.
"""

from lakevilla.engines.spark.engine import SparkEngine
from lakevilla.engines.spark.rows import SparkRows

__all__ = ["SparkEngine", "SparkRows"]
