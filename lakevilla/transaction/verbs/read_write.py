"""Read and write rows, also of past states and changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.engines.base import KeptRows, TableInput
from lakevilla.errors import (
    InvalidOperation,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Change, FormatName, TableSnapshot
from lakevilla.formats.files import DataFile
from lakevilla.formats.layout import Constraint, Layout
from lakevilla.formats.views import refuse_view
from lakevilla.global_log.head import CommitSummary
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake import own_versions
from lakevilla.lake.frozen import frozen as refs
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.lake.frozen.states import with_clones
from lakevilla.lake.integrity import with_hashes, with_tags
from lakevilla.lake.operations.changes import (
    Reading,
    Walk,
    changes,
    changes_to_read,
    refuse_missing,
    sources_of,
    walk_through,
)
from lakevilla.lake.operations.perform import (
    Performed,
    check_append_only,
    perform,
    performed_as,
    replaced_definition,
)
from lakevilla.lake.operations.refresh import (
    check_replaceable,
    refresh_key,
    reusable,
    rows_replaced,
)
from lakevilla.lake.operations.sources import may_have_many_files
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.past import Past, not_kept, past_at
from lakevilla.phases import during
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.render import render_sql
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program
from lakevilla.sublogs.binding import tie, tie_predicate
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Create,
    Detach,
    Drop,
    Guard,
    Operation,
    Overwrite,
    ReadRecord,
    Refresh,
    Rename,
    Replace,
    Transplant,
    is_append,
    is_direct,
    tables_read,
)
from lakevilla.sublogs.record import Access
from lakevilla.transaction.queue.places import perform_late
from lakevilla.transaction.redo.deferred import NOT_PERFORMED, can_wait, is_deferred
from lakevilla.transaction.redo.replay import perform_on_own
from lakevilla.transaction.state.files import (
    held_files,
    hold_written,
    holds_files,
    keep_files,
    keep_rows,
    make_promised,
    note_stored,
    store_files,
)
from lakevilla.transaction.state.parts import Done, laid_over
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.checks import refuse_direct, refuse_unfit
from lakevilla.transaction.verbs.bind import bind_to_head, join_head, take_places, touch
from lakevilla.transaction.verbs.create_table import create_change, detaching
from lakevilla.transaction.verbs.replaced_tables import (
    READING_FAILED,
    raise_if_replaced,
    read_again_if_replaced,
)

# -------------------- read write
#
# The verbs of a transaction: reads, writes, and other operations.
#
# A verb that raises an error has had no effect (design, section 12).


def layout_of(
    txn: TransactionState, location: str, *, reading: bool = False, probing: bool = False
) -> Program[Layout]:
    """Return the layout of a table, with the transaction's own changes of its schema.

    ``probing``: check for changes of the layout by other clients. Without it, the result is the
    layout that this process has read last, which is enough to find a few columns.
    """
    access: Access | None = "read" if reading else None
    yield from touch(txn, [location], probing=reading or probing, access=access)
    return txn.work.tables[location].snapshot.layout


def lookup(txn: TransactionState, location: str) -> Program[TableSnapshot]:
    """Return a table's state in the transaction, with its own changes, whose files are stored."""
    yield from touch(txn, [location], probing=True, access="read")
    _check_there(txn, location, "read")
    return (yield from own_state(txn, location))


def own_state(txn: TransactionState, location: str) -> Program[TableSnapshot]:
    """Return an open table's state, with own changes performed and their files stored."""
    yield from perform_late(txn, [location])
    yield from store_files(txn, location)
    return txn.work.tables[location].snapshot


def see_files(
    txn: TransactionState,
    location: str,
    where: Expr | None,
    within: Expr | None = None,
    *,
    held: bool = False,
    kept: KeptRows | None = None,
) -> Program[TableInput]:
    """Return the files for a read, which becomes an observed read of the transaction.

    Files without rows for which ``within`` is true may be left out; the caller needs no such rows.
    All rows for which ``where`` is true count as seen. The transaction's own files are stored
    unless they are ``held``: the caller passes them to the engine. Files that are current in
    ``kept`` may be promised still.
    """
    txn.check_open("read")
    yield from touch(txn, [location], probing=True, access="read")
    _check_there(txn, location, "read")
    yield from perform_late(txn, [location])
    if not held:
        yield from store_files(txn, location)
    yield from make_promised(txn, location, kept=kept)
    snapshot = txn.work.tables[location].snapshot
    looked_at = where if within is None else within
    predicate = None if looked_at is None else bind(looked_at, snapshot.layout.schema)
    with during("metadata", location):
        files = yield from snapshot.files(predicate)
        if txn.options.verify:
            files = yield from with_hashes(txn.context, location, snapshot.format, files)
    observe(txn, location, None if where is None else tie_predicate(where, snapshot.layout))
    return TableInput(snapshot.layout, files, txn.options.verify)


def observe(txn: TransactionState, location: str, where: Expr | None) -> None:
    """Note that the caller sees the rows for which ``where``, tied to fields, is true."""
    record = ReadRecord(location, where, after=len(txn.work.done))
    # A repeated query counts as one read, the later one, which has seen more of the transaction's
    # own operations: validation compares its predicate with all changes since the bound state.
    txn.work.reads[(location, where)] = record


def scan(
    txn: TransactionState, location: str, columns: Sequence[str] | None, where: Expr | None
) -> Program[pa.RecordBatchReader]:
    """Return the rows for which ``where`` is true, streamed."""

    def see() -> Program[pa.RecordBatchReader]:
        kept, loads = txn.work.kept.get(location), txn.work.keeps_first
        table = yield from see_files(txn, location, where, held=True, kept=kept)
        predicate = None if where is None else bind(where, table.layout.schema)
        if kept is None and loads:
            kept = keep_rows(txn, location)
        if kept is not None:
            held = yield from held_files(txn, location, kept)
            with held, during("data", location):
                found = yield from kept.scan(table, columns, predicate, loads=loads)
            if found is not None:
                return found.to_reader()
            if txn.work.promised:  # the engine reads files that are made
                table = yield from see_files(txn, location, where, held=True)
        # Rows that are read from the transaction's memory are all read now: the files may be
        # dropped before a caller has read a stream to its end.
        limit = txn.context.settings.in_memory_file_limit_bytes
        if (pc.sum(table.files["size"]).as_py() or 0) > limit:
            yield from store_files(txn, location)
        held = yield from held_files(txn, location)
        with held, during("data", location):
            rows = yield from txn.context.engine.scan(table, columns, predicate)
            return rows.read_all().to_reader() if holds_files(txn, location) else rows

    return (yield from read_again_if_replaced(txn, [location], see))


def query(
    txn: TransactionState,
    sql: str,
    tables: Mapping[str, str],
    views: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
    pasts: Mapping[str, TableInput],
) -> Program[pa.Table]:
    """Run one SELECT; ``tables`` maps its names to locations. All rows of these count as seen.

    ``pasts`` has tables in past states, by the SELECT's names for them.
    """
    txn.check_open("sql")

    def see() -> Program[pa.Table]:
        if tables:
            yield from touch(txn, tables.values(), probing=True, access="read")
        states = {}
        for name, location in tables.items():
            _check_there(txn, location, "read")
            yield from perform_late(txn, [location])
            yield from make_promised(txn, location)
            states[name] = txn.work.tables[location].snapshot
        within: Mapping[str, Expr] = {}
        if any(map(may_have_many_files, states.values())):
            schemas = {name: one.layout.schema for name, one in states.items()}
            schemas.update({name: one.layout.schema for name, one in pasts.items()})
            within = txn.context.engine.rows_within(sql, params, schemas)
        inputs = dict(pasts)
        with ExitStack() as held:
            for name, location in tables.items():
                inputs[name] = yield from see_files(
                    txn, location, None, within.get(name), held=True
                )
                held.enter_context((yield from held_files(txn, location)))
            with during("data"):
                return (yield from txn.context.engine.query(sql, inputs, views, params))

    return (yield from read_again_if_replaced(txn, list(dict.fromkeys(tables.values())), see))


def append(
    txn: TransactionState, location: str, data: pa.RecordBatchReader, columns: bytes | None = None
) -> Program[Done]:
    """Add rows, which already have the table's columns and types."""
    layout = yield from layout_to_append(txn, location, columns)
    files = yield from _write(txn, layout, data)
    with _giving_back(txn, location, files):
        return (yield from append_files(txn, location, files, columns))


def layout_to_append(
    txn: TransactionState, location: str, columns: bytes | None
) -> Program[Layout]:
    """Return the layout that the files for ``append_files`` must have."""
    txn.check_write(location, "append")
    access: Access = "append" if columns is None else "write"
    return (yield from _written_layout(txn, location, columns, access))


def append_files(
    txn: TransactionState, location: str, files: tuple[DataFile, ...], columns: bytes | None
) -> Program[Done]:
    """Add the rows of files that were written for the table."""
    return (yield from execute(txn, Append(location, files, columns), "append"))


def overwrite(
    txn: TransactionState,
    location: str,
    data: pa.RecordBatchReader,
    where: Expr | None = None,
    columns: bytes | None = None,
    *,
    replaces_schema: bool = False,
    by_partition: bool = False,
) -> Program[Done]:
    """Replace rows by ``data``.

    By default all rows are replaced; with ``where``, the rows for which it is true; with
    ``by_partition``, the rows of the partitions that have rows in ``data``.
    """
    layout = yield from layout_to_overwrite(
        txn, location, where, columns, replaces_schema=replaces_schema, by_partition=by_partition
    )
    files = yield from _write(txn, layout, data)
    with _giving_back(txn, location, files):
        if by_partition:
            where = rows_replaced(layout, files)
        return (
            yield from overwrite_by_files(
                txn, location, files, where, columns, replaces_schema=replaces_schema
            )
        )


def layout_to_overwrite(
    txn: TransactionState,
    location: str,
    where: Expr | None,
    columns: bytes | None,
    *,
    replaces_schema: bool,
    by_partition: bool,
) -> Program[Layout]:
    """Return the layout for ``overwrite_by_files``, whose files must satisfy ``where``."""
    txn.check_write(location, "overwrite")
    access: Access | None = None if txn.defers and columns is None else "write"
    layout = yield from _written_layout(
        txn, location, columns, access, replaces_schema=replaces_schema
    )
    if by_partition:
        check_replaceable(layout)
    if where is not None:
        # New rows for which ``where`` is not true are refused: a redo would not replace them.
        condition = bind(where, layout.schema)
        must = Constraint("where of the overwrite", condition, render_sql(where))
        layout = dataclasses.replace(layout, constraints=(*layout.constraints, must))
    return layout


def overwrite_by_files(
    txn: TransactionState,
    location: str,
    files: tuple[DataFile, ...],
    where: Expr | None,
    columns: bytes | None,
    *,
    replaces_schema: bool,
) -> Program[Done]:
    """Replace rows by the rows of files that were written for the table."""
    operation = Overwrite(location, files, where, columns, replaces_schema=replaces_schema)
    return (yield from execute(txn, operation, "overwrite"))


def layout_to_replace(txn: TransactionState, operation: Replace) -> Program[Layout]:
    """Return the layout that the rows for ``replace`` must have.

    Raises
    ------
    TableNotFound
    """
    txn.check_write(operation.table, "create_table")
    yield from touch(txn, [operation.table], probing=True, access="write")
    _check_there(txn, operation.table, "create_table")
    snapshot = txn.work.tables[operation.table].snapshot
    return snapshot.apply(replaced_definition(txn.context, operation, snapshot)).layout


def replace(
    txn: TransactionState, given: Replace, layout: Layout, data: pa.RecordBatchReader | None
) -> Program[Done]:
    """Define a table again, with other rows or with none."""
    files = () if data is None else (yield from _write(txn, layout, data))
    with _giving_back(txn, given.table, files):
        operation = msgspec.structs.replace(given, files=files)
        return (yield from execute(txn, operation, "create_table"))


def refresh(
    txn: TransactionState,
    location: str,
    data: pa.RecordBatchReader,
    reuse_by: Sequence[str],
    columns: bytes | None = None,
    *,
    replaces_schema: bool = False,
) -> Program[Done]:
    """Replace all rows by ``data``, but keep live files whose rows are in ``data`` unchanged.

    The rows are sorted, and divided into files, by the columns ``reuse_by``.
    """
    txn.check_write(location, "overwrite")
    layout = yield from _written_layout(
        txn, location, columns, "write", replaces_schema=replaces_schema, probing=True
    )
    key = refresh_key(layout.schema, reuse_by, layout.table)
    yield from perform_late(txn, [location])
    yield from make_promised(txn, location)
    snapshot = txn.work.tables[location].snapshot
    with during("metadata", location):
        present = yield from snapshot.files()
        live = reusable(present)
        if snapshot.format == "iceberg":
            live = yield from with_tags(txn.context, txn.head, location, live)
    name = txn.file_namer
    # Columns of another schema may have the names of the key, and identify other rows.
    known = None if replaces_schema or not layout.lineage else present
    if known is not None:
        yield from store_files(txn, location)  # the ids of rows are read from them
    with during("data", location):
        done = yield from txn.context.engine.write_by_key(layout, data, key, live, name, known)
    files = hold_written(txn, location, done.written)
    with _giving_back(txn, location, files):
        # The table's log has the statistics of the kept files: do not store them again.
        kept = tuple(msgspec.structs.replace(file, stats=None) for file in done.kept)
        operation = Refresh(
            location, files, None, columns, replaces_schema=replaces_schema, kept=kept
        )
        return (yield from execute(txn, operation, "overwrite"))


@contextmanager
def _giving_back(txn: TransactionState, location: str, files: Iterable[DataFile]) -> Iterator[None]:
    """Drop a verb's new files from memory if the verb raises, so that they are not stored."""
    try:
        yield
    except BaseException:
        for file in files:
            txn.work.bodies.pop(f"{location}/{file.path}", None)
        raise


def layout_with(
    txn: TransactionState, location: str, schema: pa.Schema, *, replaces_schema: bool = False
) -> Program[Layout]:
    """Return the table's layout with the columns of ``schema`` added, or with these alone."""
    columns = schema.serialize().to_pybytes()
    replaces = replaces_schema
    return (yield from _written_layout(txn, location, columns, "write", replaces_schema=replaces))


def _written_layout(
    txn: TransactionState,
    location: str,
    columns: bytes | None,
    access: Access | None,
    *,
    replaces_schema: bool = False,
    probing: bool = False,
) -> Program[Layout]:
    yield from touch(txn, [location], probing=probing, access=access)
    _check_there(txn, location, "write")
    snapshot = txn.work.tables[location].snapshot
    refuse_view(snapshot.layout, "write")
    snapshot.check_writable()
    if columns is None:
        return snapshot.layout
    format_ = txn.context.formats.of(snapshot)
    change = format_.replace_schema if replaces_schema else format_.merge_schema
    schema = pa.ipc.read_schema(pa.py_buffer(columns))
    return snapshot.apply(change(snapshot, schema)).layout


def _write(
    txn: TransactionState, layout: Layout, data: pa.RecordBatchReader
) -> Program[tuple[DataFile, ...]]:
    name = txn.file_namer
    with during("data", layout.location):
        written = yield from txn.context.engine.write(layout, data, name)
    return hold_written(txn, layout.location, written)


def create(
    txn: TransactionState,
    location: str,
    schema: pa.Schema,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    format: FormatName = "delta",
) -> Program[Done]:
    """Create a table without rows; ``append`` adds them."""
    change = create_change(txn, location, schema, partition_by, properties, format)
    return (yield from create_by(txn, location, change))


def create_by(txn: TransactionState, location: str, change: Program[Change]) -> Program[Done]:
    """Create a table without rows by a change that is computed when its place is taken."""
    txn.check_write(location, "create_table")
    if not txn.through_head:
        yield from join_head(txn)
    yield from take_places(txn, [location], "write", creating=True)
    return (yield from execute(txn, Create(location, (yield from change)), "create_table"))


def drop(txn: TransactionState, location: str, *, applied: bool = False) -> Program[Done]:
    """Remove a table from the lake: HEAD marks it as dropped, and its log does not change.

    ``applied``: the drop is part of a change that is applied, since the target state lacks the
    table.
    """
    txn.check_write(location, "drop_table")
    if not txn.through_head:
        yield from join_head(txn)
    yield from touch(txn, [location], probing=True, access="write")
    _check_there(txn, location, "drop_table")
    table_id = txn.work.tables[location].snapshot.table_id
    return (yield from execute(txn, Drop(location, table_id, applied), "drop_table"))


#: Operations that a view has, too.
_OF_VIEWS = (Replace, Rename, Transplant)


def execute(txn: TransactionState, operation: Operation, verb: str) -> Program[Done]:
    """Perform an operation on the transaction's state, and note it in the sublog.

    If the transaction is behind others there, the operation is only noted, and performed later.
    """
    location = operation.table
    txn.check_write(location, verb)
    if txn.context.epoch and isinstance(operation, Guard | Rename):
        raise InvalidOperation(
            f"{verb} {location}: a branch changes neither names nor guards: do that on the lake "
            "itself",
            table=location,
            txn_id=txn.id,
        )
    if txn.defers and can_wait(operation):
        noted = yield from _defer(txn, operation, verb)
        if noted is not None:
            return noted
    reading = tables_read(operation)
    blind = is_append(operation)
    access: Access = "append" if blind else "write"
    before = txn.work.tables.get(location)
    yield from touch(txn, [location], probing=location in reading, access=access)
    refuse_unfit(txn, operation, before)
    others = [table for table in reading if table != location]
    yield from touch(txn, others, probing=True, access="read")
    making = yield from detaching(txn, operation)
    if making is not None:
        yield from _make(txn, making)
    if is_direct(operation):
        # The transaction is bound by now, so the context has a HEAD to check.
        yield from refuse_direct(txn, location, verb)
    working = txn.work.tables[location]
    if not isinstance(operation, Create | Drop):
        _check_there(txn, location, verb)
        if not isinstance(operation, _OF_VIEWS):
            refuse_view(working.snapshot.layout, verb)
        if not isinstance(operation, Alter):  # it may upgrade a table, and checks the result
            working.snapshot.check_writable()
        # From here on the operation's names mean these fields, even if columns are renamed.
        sources = {table: txn.work.tables[table].snapshot.layout for table in reading}
        operation = tie(operation, working.snapshot.layout, sources)
    if (yield from is_deferred(txn, operation)):
        return _note(txn, operation, NOT_PERFORMED, deferred=True)
    if not blind:
        yield from perform_late(txn, {location, *reading})
    name = txn.file_namer
    try:
        performed = yield from perform_on_own(txn, operation, name)
    except READING_FAILED as error:
        yield from raise_if_replaced(txn, {location: None, **reading}, error)
        raise
    check_append_only(working.snapshot, performed, verb)
    done = _note(txn, performed_as(operation, working.snapshot, performed), performed)
    yield from note_stored(txn, location)
    return done


def _make(txn: TransactionState, operation: Detach) -> Program[None]:
    """Perform a ``Detach``: the table that a clone shows becomes a table of the lake."""
    if not txn.through_head:
        yield from join_head(txn)
    name = txn.file_namer
    blank = txn.work.tables[operation.table].view.base
    with during("metadata", operation.table):
        performed = yield from perform(txn.context, operation, blank, name, txn.lookup)
    _note(txn, operation, performed)


def _defer(txn: TransactionState, operation: Operation, verb: str) -> Program[Done | None]:
    """Note an operation as deferred, by its tables' cached state; None if that is not possible.

    It takes no place in a queue. An operation that does not fit the cached columns may fit the
    present ones, so that is no error here.
    """
    reading = tables_read(operation)
    yield from touch(txn, [operation.table, *reading], probing=False)
    yield from refuse_direct(txn, operation.table, verb)  # it changes rows
    _check_there(txn, operation.table, verb)
    if (yield from detaching(txn, operation)) is not None:
        return None  # the detaching must be done first
    snapshot = txn.work.tables[operation.table].snapshot
    sources = {table: txn.work.tables[table].snapshot.layout for table in reading}
    try:
        snapshot.check_writable()
        tied = tie(operation, snapshot.layout, sources)
        if not (yield from is_deferred(txn, tied)):
            return None
    except (InvalidOperation, UnsupportedTableFeature):
        return None
    return _note(txn, tied, NOT_PERFORMED, deferred=True)


def _check_there(txn: TransactionState, location: str, verb: str) -> None:
    # No operation follows the drop of a table, so the last one shows the drop.
    last = next((done for done in reversed(txn.work.done) if done.table == location), None)
    if last is not None and isinstance(last.operation, Drop):
        raise TableNotFound(
            f"{verb}: table {location} does not exist: it was dropped by this transaction",
            table=location,
            txn_id=txn.id,
        )


def _note(
    txn: TransactionState, operation: Operation, performed: Performed, *, deferred: bool = False
) -> Done:
    done = Done(operation, performed.change, performed.counts, performed.metrics, deferred=deferred)
    keep_files(txn, done, performed)
    txn.work.done.append(done)
    working = txn.work.tables[operation.table]
    working.snapshot = laid_over(working.view, working.snapshot, done)
    return done


# -------------------- past
#
# Bind a transaction for good to a past state of the lake, or of one table.


def bind_to_past(
    txn: TransactionState,
    *,
    version: int | None = None,
    timestamp_ms: int | None = None,
    only: Collection[str] | None = None,
) -> Program[None]:
    """Bind a transaction that only reads to a global version, or to the newest one at a time.

    With ``only`` it sees these tables alone.

    Raises
    ------
    VersionNotFound
        The version is not kept; or the transaction is bound to a ref, which has another version.
    """
    if txn.bound.frozen is not None:
        txn.bound.frozen.refuse_other(version, timestamp_ms)
        return
    context = txn.context
    # A transaction that has listed tables has read HEAD.
    held = txn.bound.held or (yield from context.head())
    if held is None:
        raise VersionNotFound(
            "the lake has no global version yet: its first transaction makes one; leave the "
            "version out to read the newest state"
        )
    timeline = Timeline.of(held.head)
    if timestamp_ms is not None:
        version = yield from timeline.by(timestamp_ms)
    assert version is not None
    past = yield from with_clones((yield from past_at(timeline, version, only)))
    txn.bound.past = past
    txn.bound.held = HeldHead(past.head, held.token)
    txn.bound.sequence = txn.bound.began = past.sequence
    txn.bound.is_bound = True


def bind_to_own(txn: TransactionState, own: OwnVersion) -> Program[None]:
    """Bind a transaction that only reads to a version of each table's own log.

    The present HEAD, or the ref to which it is bound, says which tables are meant.
    """
    txn.bound.own = own
    if txn.bound.frozen is not None:
        return
    txn.bound.held = yield from txn.context.head()
    if txn.bound.held is not None:
        txn.bound.sequence = txn.bound.began = txn.bound.held.head.sequence
    txn.bound.is_bound = True


def bind_to_ref(txn: TransactionState, frozen: Frozen) -> None:
    """Bind a transaction that only reads to the state of the lake that a ref keeps."""
    held = txn.context.held
    assert held is not None, "the ref was found in a HEAD"
    txn.bound.frozen = frozen
    txn.bound.held = HeldHead(frozen.head, held.token)
    txn.bound.sequence = txn.bound.began = frozen.head.sequence
    txn.bound.is_bound = True


def refuse_missing_files(txn: TransactionState) -> Program[None]:
    """Raise an error if VACUUM, or gc, has deleted files of the past state that is read.

    This is checked only after a read has failed, so that a successful read costs no request.
    """
    past, own, frozen = txn.bound.past, txn.bound.own, txn.bound.frozen
    for location, working in txn.work.tables.items():
        if own is not None:
            yield from own_versions.refuse_missing_files(txn.context, working.view, own)
        elif past is not None or frozen is not None:
            missing = yield from own_versions.missing_files(working.view)
            if missing:
                key = next(iter(missing.values()))
                why = f"data file {key} was removed"
                if past is not None:
                    raise not_kept(past, location, why)
                assert frozen is not None
                error = refs.not_kept(frozen.base, location, why)
                raise (yield from refs.not_kept_now(txn.context, frozen, error))


# -------------------- changes
#
# The commits to a table up to the state to which a transaction is bound, as a feed of changes.


def changes_seen(
    txn: TransactionState,
    location: str,
    since: int,
    columns: Sequence[str] | None,
    where: Expr | None,
) -> Program[pa.Table]:
    """Return the changes up to the state to which the transaction is bound, without its own.

    No later commit adds to this range of versions, so the read needs no validation.
    """
    past = yield from _past_seen(txn, location)
    with during("data", location):
        return (yield from changes(txn.context, past, location, since, columns, where))


def changes_to_see(
    txn: TransactionState,
    location: str,
    since: int,
    columns: Sequence[str] | None,
    where: Expr | None,
) -> Program[tuple[Reading, list[tuple[CommitSummary, Change]]]]:
    """Return the changes that ``changes_seen`` reads; first check that the removed files exist."""
    past = yield from _past_seen(txn, location)
    with during("metadata", location):
        reading, found = yield from changes_to_read(
            txn.context, past, location, since, columns, where
        )
        for _, change in found:
            for source in sources_of(reading.layout, change):
                if source.kind != "insert":
                    yield from refuse_missing(location, source.files)
    return reading, found


def steps_to_see(txn: TransactionState, location: str, since: int) -> Program[Walk]:
    """Return a table's changes after a global version, commit by commit, up to the bound state."""
    past = yield from _past_seen(txn, location)
    with during("metadata", location):
        return (yield from walk_through(txn.context, past, location, since))


def _past_seen(txn: TransactionState, location: str) -> Program[Past]:
    if not txn.through_head:
        raise InvalidOperation(
            f"changes of {location}: transaction {txn.id} is not bound to a global version: "
            "begin it with Feature.I",
            table=location,
            txn_id=txn.id,
        )
    frozen = txn.bound.frozen
    if frozen is not None and frozen.base.origin:
        raise InvalidOperation(
            f"changes of {location}: {frozen.base.kind} {frozen.name!r} is a state of a branch, "
            "and has no history: read them by `lake.on` of that branch",
            table=location,
            txn_id=txn.id,
        )
    yield from bind_to_head(txn)
    past = txn.bound.past
    if past is None:
        head = txn.head
        if head is None:
            raise TableNotFound(f"table {location} is not in the lake yet", table=location)
        sequence = head.sequence
        with during("version"):
            if frozen is not None:
                # The newest HEAD has the history up to the ref.
                now = yield from txn.context.head()
                head = head if now is None else now.head
            past = yield from past_at(Timeline.of(head), sequence)
    return past
