"""The changes of a table by global version, read by workers.

A stream's offset is the global version up to which changes were read, see ``batches``. The commits
of a version never change, so a range has the same rows after each restart.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.batches import (
    ChangePart,
    Offset,
    Room,
    StoredOffset,
    before,
    end_of_batch,
    end_within,
    in_history,
    parts_of,
    refuse_other_history,
    spans_between,
    together,
    walk,
)
from lakevilla.api.spark.source.options import Limits, ReadOptions
from lakevilla.api.spark.source.tables import (
    Access,
    Bound,
    access_to,
    bound_to,
    declared,
    goes_on,
    lake_at,
    opened_on,
    roots_of,
)
from lakevilla.engines.base import TableInput, projection
from lakevilla.engines.spark.rows import arrow_types, as_declared, spark_schema
from lakevilla.engines.spark.tasks import only_bin, rows_of
from lakevilla.engines.spark.upkeep.changes import ChangeStep, Comparing, change_tasks
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.files import files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.changes import (
    ADDED,
    CHANGE_COLUMNS,
    DIFFERENCE,
    REMOVED,
    refuse_missing,
)
from lakevilla.sql.expressions.bind import bind
from lakevilla.store.effects import Program

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "columns_of",
    "first_offset",
    "newest_version",
    "next_offset",
    "ranges",
    "rows",
    "scan",
    "stream",
]


#: The change columns of ``Transaction.changes``, with microseconds: Spark has no milliseconds.
_CHANGE_COLUMNS = CHANGE_COLUMNS.set(
    2, pa.field("_commit_timestamp", pa.timestamp("us", "UTC"), False)
)


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a reader requests; ``until`` is None for a stream, which has no end.

    ``columns`` are the table's own columns among those that Spark expects. ``expected`` are all
    columns of the table when the reader was made, or None if the user has named columns. ``first``
    is the version after which changes are returned.
    """

    access: Access
    options: ReadOptions
    columns: tuple[str, ...]
    schema: pa.Schema
    expected: pa.Schema | None
    until: int | None
    first: int


def columns_of(state: Bound) -> pa.Schema:
    """Return a table's columns and the columns that describe a change."""
    return pa.schema([*state.schema, *_CHANGE_COLUMNS])


def scan(state: bytes, schema: StructType) -> bytes:
    """Return the pickled read of the changes up to the version to which the reader is bound."""
    source: Bound = pickle.loads(state)
    return pickle.dumps(_changes(source, schema, source.version))


def stream(lakes: bytes, options: Mapping[str, str], schema: StructType) -> bytes:
    """Return the pickled read of a table's changes from ``startingVersion`` on, without an end.

    Raises
    ------
    InvalidOperation
        ``startingVersion`` is missing, or an end is given.
    """
    read_options = ReadOptions.of(options, roots_of(lakes))
    if read_options.starting_version is None:
        raise InvalidOperation(
            f"a stream of the changes of table {read_options.table} needs the global version that "
            "it begins with: .option('startingVersion', n), with 1 for all that is kept"
        )
    if read_options.version is not None or read_options.timestamp is not None:
        raise InvalidOperation("a stream has no version or timestamp: leave the option out")
    if not goes_on(access_to(lakes, read_options.lake), read_options.ref):
        raise InvalidOperation(
            f"a stream follows the lake itself, or a branch, and {read_options.ref!r} is a state: "
            "leave option ref out, or read the changes up to it as a batch, by spark.read"
        )
    source = bound_to(lakes, read_options)
    return pickle.dumps(_changes(source, schema, None))


def _changes(source: Bound, schema: StructType, until: int | None) -> Changes:
    columns = columns_of(source)
    names = declared(source.options.table, schema, columns)
    known = set(source.schema.names)
    own = tuple(name for name in names if name in known)
    expected = source.schema if names == tuple(columns.names) else None
    shown = arrow_types(schema, source.options.table)
    assert source.options.starting_version is not None
    client = opened_on(source.access, source.options.ref)
    first = client.run(before(client.head(), source.options.starting_version))
    return Changes(source.access, source.options, own, shown, expected, until, first)


def first_offset(state: bytes) -> StoredOffset:
    """Return the offset at which a stream without a checkpoint begins."""
    changes: Changes = pickle.loads(state)
    return Offset(changes.first).as_dict()


def newest_version(state: bytes) -> int:
    """Return the lake's present version, but at least the version before ``startingVersion``.

    Raises
    ------
    InvalidOperation
        The table's columns have changed since the stream began, so changes would lack some.
    """
    changes: Changes = pickle.loads(state)
    with lake_at(changes.access, ref=changes.options.ref) as executor:
        return max(_version_of(changes, executor), changes.first)


def next_offset(
    state: bytes, start: Mapping[str, int | str], *, until: int | None, limited: bool
) -> StoredOffset:
    """Return the end of the batch after ``start``, up to ``until`` or the lake's present version.

    Errors are those of ``newest_version``, and the following.

    Raises
    ------
    VersionNotFound
        The lake is another one than that of ``start``, or at an older version, or has other
        commits.
    """
    changes: Changes = pickle.loads(state)
    begin, table = Offset.of(start), changes.options.table
    room = Room(changes.options.limits if limited else Limits())
    with lake_at(changes.access, ref=changes.options.ref) as executor:
        head = executor.state_of_lake()
        newest = until
        if newest is None:
            newest = max(_version_of(changes, executor), changes.first)
        _refuse_younger(table, begin.reaches, newest)
        executor.run(refuse_other_history(head, begin, f"changes of table {table}"))
        end = _end(changes, begin, newest, room)
        return (
            end if end == begin and begin.lake else executor.run(in_history(head, end))
        ).as_dict()


def _end(changes: Changes, begin: Offset, newest: int, room: Room) -> Offset:
    """Return the end of the batch after ``begin``, up to ``newest``, within the batch's limits."""
    table, ref = changes.options.table, changes.options.ref
    if newest <= begin.reaches and begin.within is None:
        return begin
    if not room.limits:
        return Offset(newest)
    if begin.within is not None:
        with lake_at(changes.access, begin.within, ref=ref) as executor:
            begin = end_within(executor, table, begin, room)
        if begin.within is not None or newest <= begin.version:
            return begin
    with lake_at(changes.access, newest, ref=ref) as executor:
        return end_of_batch(executor, table, begin, newest, room)


def _version_of(changes: Changes, executor: Executor) -> int:
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
    return version


def ranges(
    state: bytes,
    start: Mapping[str, int | str] | None = None,
    end: Mapping[str, int | str] | None = None,
) -> list[bytes]:
    """Return the changes between two offsets as tasks, each with about equally many bytes.

    Raises
    ------
    VersionNotFound
        The history after ``start`` is not kept any more, or the lake is at an older version than
        the checkpoint, or another lake.
    """
    changes: Changes = pickle.loads(state)
    begin = Offset(changes.first) if start is None else Offset.of(start)
    if end is None:
        assert changes.until is not None
        end = Offset(changes.until).as_dict()
    finish, table = Offset.of(end), changes.options.table
    newest = finish.reaches
    _refuse_younger(table, begin.version, finish.version)
    _refuse_younger(table, begin.reaches, newest)
    if begin.is_at(finish):
        return []
    ref = changes.options.ref if goes_on(changes.access, changes.options.ref) else None
    with lake_at(changes.access, begin.version, ref=ref) as executor:
        # Raise an error here, and not in a task, if the history is not kept so far back.
        held = executor.client.context.held
        head = None if held is None else held.head
        for offset in (begin, finish):
            executor.run(refuse_other_history(head, offset, f"changes of table {table}"))
    with lake_at(changes.access, newest, ref=changes.options.ref) as executor:
        layout = executor.look(table).snapshot.layout
    found: list[ChangePart] = []
    for span in spans_between(begin, finish):
        with lake_at(changes.access, span.until, ref=changes.options.ref) as executor:
            parts = parts_of(executor, walk(executor, table, span.since), layout)
            of_task = parts[span.first : span.after]
            with executor.verb_scope("changes", table):
                executor.run(_refuse_missing(layout, of_task))
        found += of_task
    return _tasks(changes, layout, together(found))


def _refuse_younger(table: str, reached: int, newest: int) -> None:
    if reached > newest:
        raise VersionNotFound(
            f"changes of table {table} were read up to global version {reached}, "
            f"and the lake is at version {newest}: it is another lake, or an older copy of it; "
            "restore the newer state, or begin with a new checkpoint",
            table=table,
        )


def _refuse_missing(layout: Layout, parts: Sequence[ChangePart]) -> Program[None]:
    """Raise ``VersionNotFound`` if files whose rows the changes need are not kept any more."""
    files = [
        file
        for part in parts
        for source in part.sources
        if source.kind != "insert"
        for file in source.files
    ]
    if files:
        yield from refuse_missing(layout.location, files)


def _tasks(changes: Changes, layout: Layout, parts: Sequence[ChangePart]) -> list[bytes]:
    steps = [
        ChangeStep(
            part.commit.sequence,
            part.commit.timestamp_ms,
            tuple(
                (TableInput(one.layout, files_from_structs(one.files)), one.kind)
                for one in part.sources
            ),
        )
        for part in parts
    ]
    present = layout.schema.names
    # A column that was added after these versions is not read; it is NULL in them.
    columns = [name for name in changes.columns if name in present] or present[:1]
    predicate = changes.options.where
    where = None if predicate is None else bind(changes.options.predicate(predicate), layout.schema)
    place, comparing = changes.access.place, Comparing(DIFFERENCE, ADDED, REMOVED)
    count = changes.options.partitions or changes.access.tasks
    tasks = change_tasks(place, count, layout, steps, columns, where, comparing, CHANGE_COLUMNS)
    return [pickle.dumps(task) for task in tasks]


def rows(state: bytes, task: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task, in the columns that Spark expects."""
    changes: Changes = pickle.loads(state)
    for batch in rows_of(task, iter([only_bin()])):
        yield as_declared(batch, changes.schema)
