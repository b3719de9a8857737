"""The versions of a lake as rows: one row for each commit, with the tables that it has changed.

A stream's offset is the global version up to which versions were read. The commits of a range never
change, nor do its rows, except for the tables' names, which are the present ones. To read the
changed rows of the tables, use ``lake.changes``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from lakevilla.api.execution.executor import Executor
from lakevilla.api.feed.versions import Teller
from lakevilla.api.feed.walk import RequestedColumns, check_kept, chosen_of, stretch
from lakevilla.api.spark.source.batches import (
    Offset,
    StoredOffset,
    before,
    in_history,
    refuse_other_history,
)
from lakevilla.api.spark.source.options import VersionOptions
from lakevilla.api.spark.source.tables import Access, access_to, goes_on, opened_on
from lakevilla.engines.spark.rows import arrow_types, as_declared, may_be_null
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.results import Version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "COLUMNS",
    "LakeVersions",
    "bound",
    "newest_offset",
    "next_offset",
    "ranges",
    "rows",
    "stream",
]

#: The columns of each row, named as the fields of ``lakevilla.Version``.
COLUMNS = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("since", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("txn_id", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("metadata", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("tables", pa.list_(pa.string()), nullable=False),
        pa.field("entered", pa.list_(pa.string()), nullable=False),
        pa.field("left", pa.list_(pa.string()), nullable=False),
        pa.field("members", pa.list_(pa.string()), nullable=False),
    ]
)
#: The columns for Spark, all nullable: a Python data source can't have NOT NULL columns.
_SHOWN = may_be_null(COLUMNS)
_ROWS_IN_A_BATCH = 1024


@dataclass(frozen=True, slots=True)
class LakeVersions:
    """The versions after ``first`` that a reader requests.

    ``until`` is None for a stream, which has no end.
    """

    access: Access
    options: VersionOptions
    until: int | None
    first: int


def bound(lakes: bytes, options: Mapping[str, str]) -> LakeVersions:
    """Return the requested versions up to the present one, or to the one that the options name."""
    version_options = VersionOptions.of(options)
    lake_versions = _of(lakes, version_options)
    newest = _newest(lake_versions)
    until = newest if version_options.version is None else version_options.version
    if until > newest:
        history = "the lake" if version_options.ref is None else f"branch {version_options.ref!r}"
        raise VersionNotFound(f"{history} has no global version {until}; its newest is {newest}")
    return replace(lake_versions, until=max(until, lake_versions.first))


def _of(lakes: bytes, version_options: VersionOptions) -> LakeVersions:
    access = access_to(lakes, version_options.lake)
    if not goes_on(access, version_options.ref):
        raise InvalidOperation(
            f"versions are those of the lake itself, or of a branch, and {version_options.ref!r} "
            "is a state: leave option ref out"
        )
    client = opened_on(access, version_options.ref)
    first = client.run(before(client.head(), version_options.starting_version))
    return LakeVersions(access, version_options, None, first)


def stream(lakes: bytes, options: Mapping[str, str], schema: StructType) -> LakeVersions:
    """Return the versions from ``startingVersion`` on, without an end.

    Raises
    ------
    InvalidOperation
        An end is given, or the schema is not that of versions.
    """
    version_options = VersionOptions.of(options)
    if version_options.version is not None:
        raise InvalidOperation("a stream has no version: leave the option out")
    lake_versions = _of(lakes, version_options)
    check_schema(schema)
    newest_offset(lake_versions)
    return lake_versions


def check_schema(schema: StructType) -> None:
    """Refuse a schema other than that of versions, which has no optional columns."""
    if not arrow_types(schema, "versions").equals(_SHOWN):
        raise InvalidOperation(
            f"the columns of versions are {', '.join(COLUMNS.names)}: leave the schema out, and "
            "select from the DataFrame"
        )


def newest_offset(lake_versions: LakeVersions) -> int:
    """Return the lake's present version, but at least the version before ``startingVersion``.

    Raises
    ------
    TableNotFound
        There is no table with one of the requested names.
    """
    return max(_newest(lake_versions), lake_versions.first)


def _newest(lake_versions: LakeVersions) -> int:
    client = opened_on(lake_versions.access, lake_versions.options.ref)
    head = client.head()
    chosen_of(client, head, lake_versions.options.tables)
    return 0 if head is None else head.sequence


def next_offset(
    lake_versions: LakeVersions, start: Mapping[str, int | str], until: int | None
) -> StoredOffset:
    """Return the end of the batch after ``start``: ``until``, or the lake's present version.

    Spark stores the end before it requests the rows, and then requests this batch until it
    succeeds. So a lake at an older version than the checkpoint's is refused here.

    Raises
    ------
    VersionNotFound
        The lake is another one than that of ``start``, or at an older version, or has other
        commits.
    """
    client = opened_on(lake_versions.access, lake_versions.options.ref)
    head, begin = client.head(), Offset.of(start)
    client.run(refuse_other_history(head, begin, "versions"))
    if until is None:
        chosen_of(client, head, lake_versions.options.tables)
        until = max(0 if head is None else head.sequence, lake_versions.first)
    _refuse_younger(begin.version, until)
    if begin.lake and begin.version == until:
        return begin.as_dict()
    return client.run(in_history(head, Offset(until))).as_dict()


def ranges(
    lake_versions: LakeVersions,
    start: Mapping[str, int | str] | None = None,
    end: Mapping[str, int | str] | None = None,
) -> list[bytes]:
    """Return the range of versions as one task's part; no part if the range is empty.

    Raises
    ------
    VersionNotFound
        The history after ``start`` is not kept any more, or the lake is at an older version than
        the checkpoint, or another lake.
    """
    begin = Offset(lake_versions.first) if start is None else Offset.of(start)
    if end is None:
        assert lake_versions.until is not None
        end = Offset(lake_versions.until).as_dict()
    finish = Offset.of(end)
    since, until = begin.version, finish.version
    _refuse_younger(since, until)
    client = opened_on(lake_versions.access, lake_versions.options.ref)
    head = client.head()
    for offset in (begin, finish):
        client.run(refuse_other_history(head, offset, "versions"))
    if since == until or head is None:
        return []
    check_kept(head, since)  # raises an error here, and not in a task
    return [pickle.dumps((since, until))]


def _refuse_younger(reached: int, newest: int) -> None:
    if reached > newest:
        raise VersionNotFound(
            f"versions were read up to {reached}, and the lake is at version {newest}: it is "
            "another lake, or an older copy of it; restore the newer state, or begin with a new "
            "checkpoint"
        )


def rows(lake_versions: LakeVersions, part: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the versions of a part, as rows."""
    since, until = pickle.loads(part)
    client = opened_on(lake_versions.access, lake_versions.options.ref)
    head = client.head()
    assert head is not None, "a range is of a lake that exists"
    chosen = chosen_of(client, head, lake_versions.options.tables)
    found = client.run(stretch(client.context, head, since, until))
    versions = Teller(client, Executor, chosen, RequestedColumns()).versions(found)
    while rows_of_batch := [_row(version) for version in islice(versions, _ROWS_IN_A_BATCH)]:
        yield as_declared(pa.RecordBatch.from_pylist(rows_of_batch, COLUMNS), _SHOWN)


def _row(version: Version[pa.Table]) -> dict[str, object]:
    return {
        "version": version.version,
        "since": version.since,
        "timestamp": version.timestamp,
        "txn_id": version.txn_id,
        "kind": version.kind,
        "metadata": list(version.metadata.items()),
        "tables": list(version.tables),
        "entered": list(version.entered),
        "left": list(version.left),
        "members": list(version.members),
    }
