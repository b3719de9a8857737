"""The changes of a table by global version: a range of them, told in a worker.

A stream's offset is the global version up to which changes were told. The version of
a HEAD is for ever what it was, so the same range is the same rows after each restart.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakevilla.api.spark.source.access import Access, access_to, goes_on, lake_at
from lakevilla.api.spark.source.options import ReadOptions
from lakevilla.api.spark.source.tables import Bound, bound_to, declared
from lakevilla.engines.base import projection
from lakevilla.engines.spark.rows import spark_schema
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.operations.changed_rows import CHANGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["columns_of", "first_offset", "newest_offset", "ranges", "rows", "scan", "stream"]


#: As the library tells them, but for the milliseconds, which Spark does not take.
_CHANGE_COLUMNS = CHANGE_COLUMNS.set(
    2, pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), False)
)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a reader asks for; ``until`` is None for a stream, which goes on.

    ``columns`` are the table's own among those that Spark expects, ``expected`` all that it
    had when the reader was made; None if the reader's user named them.
    """

    access: Access
    options: ReadOptions
    columns: tuple[str, ...]
    schema: pa.Schema
    expected: pa.Schema | None
    until: int | None

    @property
    def first(self) -> int:
        """The version after which changes are told."""
        assert self.options.starting_version is not None
        return max(self.options.starting_version - 1, 0)


def columns_of(state: Bound) -> pa.Schema:
    """A table's columns and those that tell of the change."""
    return pa.schema([*state.schema, *_CHANGE_COLUMNS])


def scan(state: bytes, schema: StructType) -> bytes:
    """The changes up to the version that the reader is bound to."""
    held: Bound = pickle.loads(state)
    return pickle.dumps(_changes(held, schema, held.version))


def stream(lakes: bytes, options: Mapping[str, str], schema: StructType) -> bytes:
    """The changes of a table from ``startingVersion`` on, without an end.

    Raises
    ------
    InvalidOperation
        There is no ``startingVersion``, or there is an end.
    """
    asked = ReadOptions.of(options)
    if asked.starting_version is None:
        raise InvalidOperation(
            f"a stream of the changes of table {asked.table} needs the global version that it "
            "begins with: .option('startingVersion', n), with 1 for all that is kept"
        )
    if asked.version is not None or asked.timestamp is not None:
        raise InvalidOperation("a stream has no version or timestamp: leave the option out")
    if not goes_on(access_to(lakes, asked.lake), asked.ref):
        raise InvalidOperation(
            f"a stream follows the lake itself, or a branch, and {asked.ref!r} is a state: leave "
            "option ref out, or read the changes up to it as a batch, by spark.read"
        )
    held = bound_to(lakes, asked)
    return pickle.dumps(_changes(held, schema, None))


def _changes(held: Bound, schema: StructType, until: int | None) -> Changes:
    there = columns_of(held)
    names = declared(held.options.table, schema, there)
    schema = pa.schema([there.field(name) for name in names])
    own = tuple(name for name in names if name in held.schema.names)
    expected = held.schema if names == tuple(there.names) else None
    return Changes(held.access, held.options, own, schema, expected, until)


def first_offset(state: bytes) -> int:
    """Where a stream begins that has no checkpoint."""
    changes: Changes = pickle.loads(state)
    return changes.first


def newest_offset(state: bytes) -> int:
    """The lake's version now.

    Raises
    ------
    InvalidOperation
        The table has other columns by now than the stream: changes would be told without.
    """
    changes: Changes = pickle.loads(state)
    with lake_at(changes.access, ref=changes.options.ref) as executor:
        head = executor.state_of_lake()
        version = 0 if head is None else head.sequence
        table = changes.options.table
        if changes.expected is not None:
            layout = executor.look(table).snapshot.layout
            now = projection(layout, changes.options.columns)
            if spark_schema(now) != spark_schema(changes.expected):
                raise InvalidOperation(
                    f"the columns of table {table} were changed since the stream began, which is "
                    f"seen at global version {version}: start the query again, and it continues "
                    "from its checkpoint with the new columns",
                    table=table,
                )
    return max(version, changes.first)


def ranges(state: bytes, since: int | None = None, until: int | None = None) -> list[bytes]:
    """The range of versions as one task's; none if nothing is in it.

    Raises
    ------
    VersionNotFound
        The lake's history does not go back so far, or the lake is younger than the checkpoint.
    """
    changes: Changes = pickle.loads(state)
    since = changes.first if since is None else since
    until = changes.until if until is None else until
    assert until is not None
    if since > until:
        raise VersionNotFound(
            f"changes of table {changes.options.table} were read up to global version {since}, "
            f"and the lake is at version {until}: it is another lake, or an older copy of it; "
            "begin with a new checkpoint",
            table=changes.options.table,
        )
    if since == until:
        return []
    ref = changes.options.ref if goes_on(changes.access, changes.options.ref) else None
    with lake_at(changes.access, since, ref=ref):
        pass  # raises here, and not in a task, where history does not go back so far
    return [pickle.dumps((since, until))]


def rows(state: bytes, versions: bytes) -> Iterator[pa.RecordBatch]:
    """The changes after one global version up to another, in the columns that Spark expects."""
    changes: Changes = pickle.loads(state)
    since, until = pickle.loads(versions)
    table = changes.options.table
    with lake_at(changes.access, until, ref=changes.options.ref) as executor:
        there = executor.look(table).snapshot.layout.schema.names
        # One that came later than this range is NULL in it.
        columns = [name for name in changes.columns if name in there]
        changes_read = executor.changes(
            table, since, columns or there[:1], changes.options.where, None
        )
    for batch in changes_read.to_batches():
        yield _as_expected(batch, changes.schema)


def _as_expected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with these columns, in their order."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)
