"""Where rows meet: each goes by a hash that all workers have to tell alike."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lakevilla.engines.duckdb.writing.routing import HASH
from lakevilla.engines.spark.tasks import Worker
from lakevilla.errors import InvalidOperation


def duckdb_here() -> str:
    """The version of the driver's DuckDB: another one may hash otherwise."""
    return importlib.metadata.version("duckdb")


def placed(
    worker: Worker, duckdb: str, table: str, batches: Iterator[pa.RecordBatch], places: int
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Rows, each with the place of ``places`` that its hash, the last column, says.

    Raises
    ------
    InvalidOperation
        The worker has another DuckDB than the driver's, ``duckdb``.
    """
    here = worker.engine.version
    if here != duckdb:
        raise InvalidOperation(
            f"table {table}: Spark's workers have duckdb {here}, and this driver {duckdb}: "
            "install the same on all"
        )
    for batch in batches:
        to = batch.column(HASH.name).to_numpy(zero_copy_only=False) % places
        yield batch.drop_columns([HASH.name]), to.astype(np.int32)
