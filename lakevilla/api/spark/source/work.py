"""Functions that the pickled classes of readers call: reads of rows, changes or versions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.api.spark.source import changes, tables, versions
from lakevilla.api.spark.source.batches import StoredOffset
from lakevilla.api.spark.source.options import asks_for_versions
from lakevilla.api.spark.source.tables import Bound
from lakevilla.api.spark.source.versions import LakeVersions
from lakevilla.api.spark.source.writing.options import NO_OPTIONS
from lakevilla.engines.spark.reused import in_worker
from lakevilla.engines.spark.rows import spark_schema
from lakevilla.errors import InvalidOperation, LakeVillaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "ahead",
    "bound",
    "first_offset",
    "limits",
    "newest_version",
    "next_offset",
    "partitions",
    "push",
    "ranges",
    "reader",
    "rows",
    "schema",
    "stream",
]


@in_worker()
def bound(lakes: bytes, options: Mapping[str, str]) -> bytes:
    """Return the pickled state to which a reader is bound, for all its later calls."""
    # For a table of its own catalog, Spark passes no options, or, on its creation, only "provider"
    # and "owner": see docs/upstream.md, "A table of the catalog passes no options to a Python
    # source".
    if not options or {"provider", "owner"} <= {name.lower() for name in options}:
        raise InvalidOperation(NO_OPTIONS)
    if asks_for_versions(options):
        return pickle.dumps(versions.bound(lakes, options))
    return tables.bound(lakes, options)


@in_worker()
def schema(state: bytes) -> StructType:
    """Return the columns of the state to which a source is bound, as a Spark schema."""
    source: Bound | LakeVersions = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return spark_schema(versions.COLUMNS)
    if source.options.starting_version is None:
        return spark_schema(source.schema)
    return spark_schema(changes.columns_of(source))


@in_worker()
def reader(state: bytes, schema: StructType) -> tuple[str, bytes, bool]:
    """Return a read: its kind, its pickled arguments, and whether it takes filters."""
    source: Bound | LakeVersions = pickle.loads(state)
    if isinstance(source, LakeVersions):
        versions.check_schema(schema)
        return "versions", state, False
    if source.options.starting_version is None:
        return "rows", tables.scan(state, schema), tables.takes_filters(state)
    return "changes", changes.scan(state, schema), False


@in_worker()
def ahead(state: bytes, schema: StructType) -> tuple[str, bytes, bool, list[bytes]] | None:
    """Return ``reader``'s result and the parts of the read; None: the planner must find them."""
    source: Bound | LakeVersions = pickle.loads(state)
    if isinstance(source, LakeVersions) or source.options.starting_version is not None:
        return None
    try:
        found = tables.ahead(state, schema)
    except LakeVillaError:
        return None  # the planner will raise the same error
    return None if found is None else ("rows", found[0], tables.takes_filters(state), found[1])


@in_worker()
def push(kind: str, state: bytes, filters: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """Return the read narrowed by the filters that LakeVilla can apply, and the other filters."""
    assert kind == "rows"
    return tables.push(state, filters)


@in_worker()
def partitions(kind: str, state: bytes) -> list[bytes]:
    """Return the parts of a read, one for each task."""
    return tables.partitions(state) if kind == "rows" else ranges(state)


def rows(kind: str, state: bytes, part: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one part."""
    with in_worker():
        if kind == "rows":
            yield from tables.rows(state, part)
            return
        source = pickle.loads(state)
        if isinstance(source, LakeVersions):
            yield from versions.rows(source, part)
        else:
            yield from changes.rows(state, part)


# -- streams, of a table's changes or of versions ----------------------------------


@in_worker()
def stream(lakes: bytes, options: Mapping[str, str], schema: StructType) -> bytes:
    """Return the pickled read of a stream, which has no end."""
    if asks_for_versions(options):
        return pickle.dumps(versions.stream(lakes, options, schema))
    return changes.stream(lakes, options, schema)


@in_worker()
def first_offset(state: bytes) -> StoredOffset:
    """Return the offset at which a stream without a checkpoint begins."""
    source = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return {"version": source.first}
    return changes.first_offset(state)


@in_worker()
def newest_version(state: bytes) -> int:
    """Return the lake's present version, but at least the version before ``startingVersion``."""
    source = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return versions.newest_offset(source)
    return changes.newest_version(state)


@in_worker()
def next_offset(
    state: bytes,
    start: Mapping[str, int | str],
    *,
    until: int | None = None,
    limited: bool = True,
) -> StoredOffset:
    """Return the end of the batch after ``start``: at most ``until``, or the lake's version."""
    source = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return versions.next_offset(source, start, until)
    return changes.next_offset(state, start, until=until, limited=limited)


@in_worker()
def limits(state: bytes) -> tuple[int | None, int | None]:
    """Return the most files, and the most bytes, that one batch may have."""
    source = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return None, None
    return source.options.limits.files, source.options.limits.bytes


@in_worker()
def ranges(
    state: bytes,
    start: Mapping[str, int | str] | None = None,
    end: Mapping[str, int | str] | None = None,
) -> list[bytes]:
    """Return the parts between two offsets, one for each task."""
    source = pickle.loads(state)
    if isinstance(source, LakeVersions):
        return versions.ranges(source, start, end)
    return changes.ranges(state, start, end)
