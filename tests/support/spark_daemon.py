"""Start Spark's Python workers from a process that has imported the library.

Spark forks each worker from a daemon, ``spark.python.daemon.module``. With PySpark's own daemon,
each worker of a data source imports the library again, which takes longer than most tests.
"""

from __future__ import annotations

import duckdb  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import lakevilla.api.spark.source  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
