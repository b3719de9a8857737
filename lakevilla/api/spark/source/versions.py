"""The versions of a lake as rows: one row for each commit, with the tables that it touched.

A stream's offset is the global version up to which versions were read. The commits of a range are
for ever the same, and so are the rows, except for the names of tables, which are the present ones.
The changes in the tables themselves are read by ``lake.changes``.
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
from lakevilla.api.feed.walk import AskedColumns, check_kept, chosen_of, stretch
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

#: The columns of each row; as in ``lakevilla.Version``.
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
    ]
)
#: The same as Spark gets them: no column of a source in Python is NOT NULL.
_SHOWN = may_be_null(COLUMNS)
_ROWS_IN_A_BATCH = 1024


@dataclass(frozen=True, slots=True)
class LakeVersions:
    """The versions that a reader requests, after ``first``.

    ``until`` is None for a stream, which goes on.
    """

    access: Access
    options: VersionOptions
    until: int | None
    first: int


def bound(lakes: bytes, options: Mapping[str, str]) -> LakeVersions:
    """Return the versions up to the present one, or to the one that is requested."""
    asked = VersionOptions.of(options)
    held = _of(lakes, asked)
    newest = _newest(held)
    until = newest if asked.version is None else asked.version
    if until > newest:
        of = "the lake" if asked.ref is None else f"branch {asked.ref!r}"
        raise VersionNotFound(f"{of} has no global version {until}; its newest is {newest}")
    return replace(held, until=max(until, held.first))


def _of(lakes: bytes, asked: VersionOptions) -> LakeVersions:
    access = access_to(lakes, asked.lake)
    if not goes_on(access, asked.ref):
        raise InvalidOperation(
            f"versions are those of the lake itself, or of a branch, and {asked.ref!r} is a state: "
            "leave option ref out"
        )
    client = opened_on(access, asked.ref)
    first = client.run(before(client.head(), asked.starting_version))
    return LakeVersions(access, asked, None, first)


def stream(lakes: bytes, options: Mapping[str, str], schema: StructType) -> LakeVersions:
    """Return the versions from ``startingVersion`` on, without an end.

    Raises
    ------
    InvalidOperation
        There is an end, or the schema is another one.
    """
    asked = VersionOptions.of(options)
    if asked.version is not None:
        raise InvalidOperation("a stream has no version: leave the option out")
    held = _of(lakes, asked)
    check_schema(schema)
    newest_offset(held)
    return held


def check_schema(schema: StructType) -> None:
    """Refuse columns that a version does not have; there is nothing to choose."""
    if not arrow_types(schema, "versions").equals(_SHOWN):
        raise InvalidOperation(
            f"the columns of versions are {', '.join(COLUMNS.names)}: leave the schema out, and "
            "select from the DataFrame"
        )


def newest_offset(held: LakeVersions) -> int:
    """Return the lake's present version; at least the one before ``startingVersion``.

    Raises
    ------
    TableNotFound
        There is no table of a requested name.
    """
    return max(_newest(held), held.first)


def _newest(held: LakeVersions) -> int:
    client = opened_on(held.access, held.options.ref)
    head = client.head()
    chosen_of(client, head, held.options.tables)
    return 0 if head is None else head.sequence


def next_offset(
    held: LakeVersions, start: Mapping[str, int | str], until: int | None
) -> StoredOffset:
    """Return the end of the batch after ``start``, up to ``until`` or the lake's version.

    Spark stores the end before it asks for the rows, and then asks for this very batch until it
    succeeds. So a lake that is younger than the checkpoint is refused here already.

    Raises
    ------
    VersionNotFound
        The lake is another one than that of ``start``, or younger, or has other commits.
    """
    client = opened_on(held.access, held.options.ref)
    head, begin = client.head(), Offset.of(start)
    client.run(refuse_other_history(head, begin, "versions"))
    if until is None:
        chosen_of(client, head, held.options.tables)
        until = max(0 if head is None else head.sequence, held.first)
    _refuse_younger(begin.version, until)
    if begin.lake and begin.version == until:
        return begin.as_dict()
    return client.run(in_history(head, Offset(until))).as_dict()


def ranges(
    held: LakeVersions,
    start: Mapping[str, int | str] | None = None,
    end: Mapping[str, int | str] | None = None,
) -> list[bytes]:
    """Return the range of versions as one task's part; no part if the range is empty.

    Raises
    ------
    VersionNotFound
        The lake's history does not go back so far, or the lake is younger than the checkpoint, or
        another one.
    """
    begin = Offset(held.first) if start is None else Offset.of(start)
    if end is None:
        assert held.until is not None
        end = Offset(held.until).as_dict()
    finish = Offset.of(end)
    since, until = begin.version, finish.version
    _refuse_younger(since, until)
    client = opened_on(held.access, held.options.ref)
    head = client.head()
    for offset in (begin, finish):
        client.run(refuse_other_history(head, offset, "versions"))
    if since == until or head is None:
        return []
    check_kept(head, since)  # raises here, and not in a task
    return [pickle.dumps((since, until))]


def _refuse_younger(reached: int, newest: int) -> None:
    if reached > newest:
        raise VersionNotFound(
            f"versions were read up to {reached}, and the lake is at version {newest}: it is "
            "another lake, or an older copy of it; restore the newer state, or begin with a new "
            "checkpoint"
        )


def rows(held: LakeVersions, part: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the versions after one up to another."""
    since, until = pickle.loads(part)
    client = opened_on(held.access, held.options.ref)
    head = client.head()
    assert head is not None, "a range is of a lake that exists"
    chosen = chosen_of(client, head, held.options.tables)
    found = client.run(stretch(client.context, head, since, until))
    versions = Teller(client, Executor, chosen, AskedColumns()).versions(found)
    while some := [_row(version) for version in islice(versions, _ROWS_IN_A_BATCH)]:
        yield as_declared(pa.RecordBatch.from_pylist(some, COLUMNS), _SHOWN)


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
    }
