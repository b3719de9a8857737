"""What the pickled classes call, in the processes of Spark: by kind, rows or changes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.api.spark.source import changes, tables
from lakevilla.api.spark.source.changes import first_offset, newest_offset, ranges, stream
from lakevilla.api.spark.source.tables import Bound, bound
from lakevilla.engines.spark.rows import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "bound",
    "first_offset",
    "newest_offset",
    "partitions",
    "push",
    "ranges",
    "reader",
    "rows",
    "schema",
    "stream",
]


def schema(state: bytes) -> StructType:
    """The columns of what a source is bound to, as Spark declares them."""
    held: Bound = pickle.loads(state)
    if held.options.starting_version is None:
        return spark_schema(held.schema)
    return spark_schema(changes.columns_of(held))


def reader(state: bytes, schema: StructType) -> tuple[str, bytes, bool]:
    """What is to be read: its kind, all that it takes, and whether it may be less by filters."""
    held: Bound = pickle.loads(state)
    if held.options.starting_version is None:
        return "rows", tables.scan(state, schema), tables.takes_filters(state)
    return "changes", changes.scan(state, schema), False


def push(kind: str, state: bytes, filters: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """The same read, with less to read, and the filters that are left to Spark."""
    assert kind == "rows"
    return tables.push(state, filters)


def partitions(kind: str, state: bytes) -> list[bytes]:
    """The parts of a read, one for each task."""
    return tables.partitions(state) if kind == "rows" else changes.ranges(state)


def rows(kind: str, state: bytes, part: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of one part."""
    return tables.rows(state, part) if kind == "rows" else changes.rows(state, part)
