"""Perform a logical operation on a table: the first time, in a redo, and in a reconcile.

One function serves all three, so that an operation always means the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from lakevilla.arrow.cast import has_default, missing
from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.engines.base import (
    FileNamer,
    KeptRows,
    MergeClause,
    MergeSpec,
    Rewrite,
    StagedRows,
    TableInput,
    Written,
)
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.files import (
    ChangeFile,
    DataFile,
    data_files,
    files_from_structs,
    removal,
    rows_deleted_in,
)
from lakevilla.formats.layout import Layout, NewDefinition, TableAlteration
from lakevilla.formats.views import VIEW_PROPERTY
from lakevilla.global_log.refs import BaseRef
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import file_by_uri, is_named_by, source_of_clone
from lakevilla.lake.operations.changes import in_one_entry
from lakevilla.lake.operations.comparing.computed import Beneath
from lakevilla.lake.operations.inserted import inserted_rows
from lakevilla.lake.operations.matching import may_be_matched
from lakevilla.lake.operations.refresh import moved, moving_metrics, refreshed
from lakevilla.lake.operations.sources import Lookup, read_source, staged_rows
from lakevilla.lake.operations.transplant import Transplanted, transplanted
from lakevilla.lake.row_changes import compose
from lakevilla.phases import during
from lakevilla.results import Counts
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Expr, Literal
from lakevilla.sql.expressions.values import literal
from lakevilla.store.effects import Program
from lakevilla.sublogs.binding import evolves, locate, outcome, refuse_renamed
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Create,
    Delete,
    Detach,
    Drop,
    Given,
    Guard,
    InlineSource,
    Insert,
    Merge,
    Operation,
    Optimize,
    Overwrite,
    Refresh,
    Rename,
    Replace,
    StagedSource,
    Transplant,
    Update,
)

TRUE = Literal("boolean", "true")


@dataclass(frozen=True, slots=True)
class Performed:
    """The result of an operation on a state.

    ``bodies`` are the contents of files, by key, that must still be stored; ``promised`` are the
    keys of files that must still be made.
    """

    change: Change
    counts: Counts
    bodies: dict[str, bytes]
    metrics: dict[str, str]
    promised: frozenset[str] = frozenset()


def perform(
    context: Context,
    operation: Operation,
    snapshot: TableSnapshot,
    name: FileNamer,
    lookup: Lookup,
    beneath: Beneath | None = None,
) -> Program[Performed]:
    """Apply ``operation`` to ``snapshot``; ``beneath`` has the commits of which it consists.

    Raises
    ------
    InvalidOperation
        The operation does not fit the state (any more): a column was dropped, a constraint is
        violated, or two source rows match one target row.
    """
    layout = snapshot.layout
    operation = locate(operation, layout)
    match operation:
        case Append(files=files, columns=columns):
            wider = _widened(context, snapshot, columns)
            return _performed(msgspec.structs.replace(wider, adds=files), _inserted(files))
        case Detach():
            return (yield from _detached(context, operation, snapshot, name))
        case Create(change=change):
            return _performed(change, Counts())
        case Drop() | Rename():
            return _performed(Change(), Counts())
        case Given(change=change):
            refuse_other_version(operation, snapshot)
            return _performed(change, _inserted(change.adds, removed_files=len(change.removes)))
        case Guard(on=on):
            format_ = context.formats.of(snapshot)
            change = format_.guard_change(snapshot) if on else format_.unguard_change(snapshot)
            return _performed(change, Counts())
        case Alter():
            return (yield from _alter(context, operation, snapshot))
        case Update(assignments=assignments, where=where):
            bound = bind(where, layout.schema)
            values = bind_assignments(assignments, layout.schema)
            files = yield from _files(snapshot, bound)
            rewrite = yield from context.engine.update(
                TableInput(layout, files), values, bound, name
            )
            return _rewritten(layout.location, rewrite)
        case Delete(where=where):
            bound = bind(where, layout.schema)
            files = yield from _files(snapshot, bound)
            rewrite = yield from context.engine.delete(TableInput(layout, files), bound, name)
            return _rewritten(layout.location, rewrite)
        case Refresh():
            return (yield from _refresh(context, operation, snapshot, name))
        case Overwrite():
            return (yield from _overwrite(context, operation, snapshot, name))
        case Merge():
            return (yield from _merge(context, operation, snapshot, name, lookup))
        case Insert():
            return (yield from _insert(context, operation, snapshot, name, lookup))
        case Optimize():
            change = yield from moved(operation, snapshot)
            counts = Counts(files_added=len(change.adds), files_removed=len(change.removes))
            return Performed(change, counts, {}, moving_metrics(operation, change))
        case Transplant():
            done = yield from transplanted(context, operation, snapshot, name, beneath)
            return _transplanted(layout.location, done)


def refuse_other_version(operation: Given, snapshot: TableSnapshot) -> None:
    """Refuse an Iceberg client's commit on another version than the one that the client knew."""
    if snapshot.version != operation.given.base:
        raise InvalidOperation(
            f"what an Iceberg client has committed to table {operation.table} fits version "
            f"{operation.given.base} alone, and others have made version {snapshot.version} since: "
            "commit again on the newest one",
            table=operation.table,
        )


def perform_kept(
    context: Context,
    operation: Update | Delete,
    snapshot: TableSnapshot,
    name: FileNamer,
    kept: KeptRows,
) -> Program[Performed | None]:
    """Apply ``operation`` to ``snapshot``, in the engine's memory if that is possible.

    None if files must be read that are not made yet: ``perform`` it when they are.
    """
    layout = snapshot.layout
    located = locate(operation, layout)
    assert isinstance(located, Update | Delete)
    where = bind(located.where, layout.schema)
    values = None
    if isinstance(located, Update):
        values = bind_assignments(located.assignments, layout.schema)
    files = yield from _files(snapshot, where)
    table = TableInput(layout, files)
    rewrite = yield from kept.change(table, values, where, name)
    if rewrite is None:
        if kept.current(files["path"].to_pylist()):
            return None
        if values is None:
            rewrite = yield from context.engine.delete(table, where, name)
        else:
            rewrite = yield from context.engine.update(table, values, where, name)
    return _rewritten(layout.location, rewrite)


def _detached(
    context: Context, operation: Detach, blank: TableSnapshot, name: FileNamer
) -> Program[Performed]:
    """Create the table that a clone shows, with the files of the clone's source.

    An Iceberg file with deletes is rewritten: with a new sequence number, its deletes would no
    longer apply to it. But vectors are added with the file that they name.

    Raises
    ------
    VersionNotFound
        The clone was deleted, or its base can't be read any more.
    """
    snapshot = yield from source_of_clone(context, BaseRef(*operation.base), operation.source)
    files = data_files((yield from snapshot.files()))
    layout = blank.apply(operation.change).layout
    adds: list[DataFile] = []
    parts = []
    for file in files:
        one = file_by_uri(context.root, snapshot, file)
        if is_named_by(one, snapshot, file):
            adds.append(one)
        else:
            parts.append(TableInput(layout, files_from_structs([one])))
    made = (yield from context.engine.compact(parts, (), name)) if parts else ()
    written = tuple(item for some in made for item in some)
    adds += [item.file for item in written]
    change = msgspec.structs.replace(operation.change, adds=tuple(adds))
    return Performed(change, Counts(), _bodies(layout.location, written), {})


def _files(snapshot: TableSnapshot, where: Expr | None = None) -> Program[pa.Table]:
    with during("metadata", snapshot.layout.location):
        return (yield from snapshot.files(where))


def performed_as(operation: Operation, snapshot: TableSnapshot, performed: Performed) -> Operation:
    """Return the operation for a redo, which notes the fields that it has added or checked.

    Raises ``InvalidOperation``, see ``binding.outcome``.
    """
    if not evolves(operation):
        return operation
    return outcome(operation, snapshot.layout, snapshot.apply(performed.change).layout)


def check_append_only(snapshot: TableSnapshot, performed: Performed, verb: str = "") -> None:
    """Refuse to remove rows from a table that is append-only."""
    if snapshot.append_only and any(file.data_change for file in performed.change.removes):
        table = snapshot.layout.table
        raise InvalidOperation(
            f"{verb + ': ' if verb else ''}table {table} is append-only (delta.appendOnly): only "
            "append to it, or unset the property first",
            table=table,
        )


def _alter(context: Context, operation: Alter, snapshot: TableSnapshot) -> Program[Performed]:
    """Change the table's metadata; a new constraint must hold for the existing rows."""
    alteration = TableAlteration(add_columns=_schema(operation.add_columns), **operation.request)
    change = context.formats.of(snapshot).alter(snapshot, alteration)
    after = snapshot.apply(change).layout
    known = {constraint.name for constraint in snapshot.layout.constraints}
    for constraint in after.constraints:
        if constraint.name in known:
            continue
        files = yield from _files(snapshot)
        broken = Call("not", (Call("<=>", (constraint.expression, TRUE)),))
        predicate = bind(broken, after.schema)
        first = yield from context.engine.find_one(TableInput(after, files), predicate)
        if first is not None:
            raise InvalidOperation(
                f"constraint {constraint.name!r} ({constraint.sql}) does not hold for rows of "
                f"{after.table}, such as {first.to_pylist()[0]}: correct them first",
                reason="constraint",
                table=after.table,
            )
    return _performed(change, Counts())


def _widened(
    context: Context, snapshot: TableSnapshot, columns: bytes | None, *, replaces: bool = False
) -> Change:
    """Return the schema change of an operation; it replaces the schema or adds to it."""
    schema = _schema(columns)
    if schema is None:
        return Change()
    format_ = context.formats.of(snapshot)
    return (format_.replace_schema if replaces else format_.merge_schema)(snapshot, schema)


def replaced_definition(context: Context, operation: Replace, snapshot: TableSnapshot) -> Change:
    """Return the change that an operation makes to the table's definition."""
    schema = _schema(operation.columns)
    assert schema is not None, "it says all columns"
    makes_view = VIEW_PROPERTY in operation.properties
    if snapshot.is_view != makes_view and not (operation.revives or operation.after_drop):
        now, new = ("view", "table") if snapshot.is_view else ("table", "view")
        raise InvalidOperation(
            f"{snapshot.layout.table} is a {now}, and can't be replaced by a {new}: DROP "
            f"{now.upper()} it first",
            table=snapshot.layout.table,
        )
    wanted = NewDefinition(
        schema, operation.partition_by, operation.properties, operation.constraints
    )
    return context.formats.of(snapshot).replace_definition(snapshot, wanted)


def layout_given(
    context: Context, operation: Append | Overwrite, snapshot: TableSnapshot
) -> Layout:
    """Return the layout in which the operation's files must be written for this state."""
    if isinstance(operation, Replace):
        change = replaced_definition(context, operation, snapshot)
    else:
        replaces = isinstance(operation, Overwrite) and operation.replaces_schema
        change = _widened(context, snapshot, operation.columns, replaces=replaces)
    return snapshot.apply(change).layout


def _overwrite(
    context: Context, operation: Overwrite, snapshot: TableSnapshot, name: FileNamer
) -> Program[Performed]:
    layout = snapshot.layout
    replaces = operation.replaces_schema
    if isinstance(operation, Replace):
        wider = replaced_definition(context, operation, snapshot)
    else:
        wider = _widened(context, snapshot, operation.columns, replaces=replaces)
    if operation.where is None:
        files = yield from _files(snapshot)
        removed = data_files(files)
        change = msgspec.structs.replace(
            wider, adds=operation.files, removes=tuple(removal(file) for file in removed)
        )
        deleted = sum(_rows(file) for file in removed)
        return _performed(change, _inserted(operation.files, deleted, len(removed)))
    where = bind(operation.where, layout.schema)
    files = yield from _files(snapshot, where)
    rewrite = yield from context.engine.delete(TableInput(layout, files), where, name)
    deleted_part = _rewritten(layout.location, rewrite)
    both = [deleted_part.change, Change(adds=operation.files)]
    change, bodies = yield from in_one_entry(context, snapshot.apply(wider), both, name)
    change = compose([wider, change])
    counts = Counts(
        rows_matched=rewrite.rows_matched,
        rows_deleted=rewrite.rows_deleted,
        rows_inserted=sum(_rows(file) for file in operation.files),
        files_added=len(change.adds),
        files_removed=len(change.removes),
    )
    return Performed(change, counts, {**deleted_part.bodies, **bodies}, _metrics(counts))


def _refresh(
    context: Context, operation: Refresh, snapshot: TableSnapshot, name: FileNamer
) -> Program[Performed]:
    replaces = operation.replaces_schema
    wider = _widened(context, snapshot, operation.columns, replaces=replaces)
    after = snapshot.apply(wider)
    change, written, removed = yield from refreshed(context, operation, after, name)
    change = msgspec.structs.replace(wider, adds=change.adds, removes=change.removes)
    counts = _inserted(change.adds, sum(_rows(file) for file in removed), len(removed))
    bodies = _bodies(snapshot.layout.location, written)
    return Performed(change, counts, bodies, _metrics(counts))


def _merge(
    context: Context, operation: Merge, snapshot: TableSnapshot, name: FileNamer, lookup: Lookup
) -> Program[Performed]:
    wider = _widened(context, snapshot, operation.columns)
    layout = snapshot.apply(wider).layout
    source: StagedRows | pa.RecordBatchReader
    rows: pa.Table | None = None
    if isinstance(operation.source, StagedSource):
        source = staged_rows(operation.source)
    else:
        noting = _telling(operation, lookup)
        own = None if operation.within is None else (operation.table, operation.within)
        rows = yield from read_source(context, operation.source, noting, own)
        source = rows.to_reader()
    spec = merge_spec(operation, layout.schema, source.schema)
    # The rows of a source that the operation has say as much as ``within``, in fewer values.
    within = None if isinstance(operation.source, InlineSource) else operation.within
    may_match = may_be_matched(spec, layout.schema, rows, within)
    # The statistics of existing files do not have the columns that this merge adds.
    files = yield from _files(snapshot, may_match if operation.columns is None else None)
    rewrite = yield from context.engine.merge(TableInput(layout, files), source, spec, name)
    merged = _rewritten(layout.location, rewrite)
    return dataclasses.replace(merged, change=compose([wider, merged.change]))


def merge_spec(operation: Merge, target: pa.Schema, source: pa.Schema) -> MergeSpec:
    """Return the merge, bound to the columns of its target and of its source."""
    schemas = {operation.source_alias: source, operation.target_alias: target}
    clauses = tuple(
        MergeClause(
            clause.kind,
            None if clause.predicate is None else bind(clause.predicate, schemas),
            bind_assignments(_with_defaults(clause, target), target, schemas),
        )
        for clause in operation.clauses
    )
    return MergeSpec(
        bind(operation.on, schemas), operation.source_alias, operation.target_alias, clauses
    )


def _with_defaults(clause: MergeClause, target: pa.Schema) -> dict[str, Expr]:
    """Return a clause's assignments; new rows get the defaults of columns that it leaves out."""
    if clause.kind != "not_matched_insert":
        return clause.assignments
    given = {name.lower() for name in clause.assignments}
    defaults = {
        field.name: literal(missing(field, 1)[0].as_py())
        for field in target
        if has_default(field) and field.name.lower() not in given
    }
    return {**defaults, **clause.assignments}


def _insert(
    context: Context, operation: Insert, snapshot: TableSnapshot, name: FileNamer, lookup: Lookup
) -> Program[Performed]:
    layout = snapshot.layout
    rows = yield from read_source(context, operation.source, _telling(operation, lookup))
    reader = inserted_rows(operation, layout, rows)
    written = yield from context.engine.write(layout, reader, name)
    files = tuple(item.file for item in written)
    counts = _inserted(files)
    return Performed(
        Change(adds=files), counts, _bodies(layout.location, written), _metrics(counts)
    )


def _telling(operation: Operation, lookup: Lookup) -> Lookup:
    """Return ``lookup`` with a check that the query's names still mean the same fields."""

    def noting(location: str) -> Program[TableSnapshot]:
        snapshot = yield from lookup(location)
        refuse_renamed(operation, location, snapshot.layout)
        return snapshot

    return noting


def _rewritten(location: str, rewrite: Rewrite) -> Performed:
    change_files: list[ChangeFile] = []
    bodies = _bodies(location, rewrite.written)
    for file, body in rewrite.change_files:
        change_files.append(file)
        if body is not None:
            bodies[f"{location}/{file.path}"] = body
    change = Change(
        adds=tuple(item.file for item in rewrite.written),
        removes=rewrite.removed,
        change_files=tuple(change_files),
    )
    counts = Counts(
        rewrite.rows_matched,
        rewrite.rows_inserted,
        rewrite.rows_updated,
        rewrite.rows_deleted,
        len(change.adds),
        len(change.removes),
    )
    promised = (f"{location}/{item.file.path}" for item in rewrite.written if item.promised)
    return Performed(change, counts, bodies, _metrics(counts), frozenset(promised))


def _transplanted(location: str, done: Transplanted) -> Performed:
    bodies = _bodies(location, done.written)
    for file, body in done.change_files:
        if body is not None:
            bodies[f"{location}/{file.path}"] = body
    counts = dataclasses.replace(
        done.rows, files_added=len(done.change.adds), files_removed=len(done.change.removes)
    )
    return Performed(done.change, counts, bodies, _metrics(counts))


def _bodies(location: str, written: tuple[Written, ...]) -> dict[str, bytes]:
    contents = [pair for item in written for pair in item.bodies.items()]
    return {f"{location}/{path}": body for path, body in contents}


def _performed(change: Change, counts: Counts) -> Performed:
    return Performed(change, counts, {}, _metrics(counts))


def _inserted(files: tuple[DataFile, ...], deleted: int = 0, removed_files: int = 0) -> Counts:
    return Counts(
        rows_inserted=sum(_rows(file) for file in files),
        rows_deleted=deleted,
        files_added=len(files),
        files_removed=removed_files,
    )


class _Stats(msgspec.Struct):
    numRecords: int = 0


_stats = JsonDecoder(_Stats)


def _rows(file: DataFile) -> int:
    """Return a file's number of rows by its statistics, deleted rows left out; 0 if unknown."""
    if file.stats is None:
        return 0
    try:
        rows = _stats.decode(file.stats).numRecords
    except ValueError:
        return 0  # another client's malformed statistics: the number is only shown to users
    return rows - (rows_deleted_in(file) or 0)


def _metrics(counts: Counts) -> dict[str, str]:
    """Return ``operationMetrics`` with the names that Delta's own tools show."""
    metrics = {
        "num_added_files": counts.files_added,
        "num_removed_files": counts.files_removed,
        "num_inserted_rows": counts.rows_inserted,
        "num_updated_rows": counts.rows_updated,
        "num_deleted_rows": counts.rows_deleted,
    }
    return {name: str(value) for name, value in metrics.items() if value}


def _schema(message: bytes | None) -> pa.Schema | None:
    return None if message is None else pa.ipc.read_schema(pa.py_buffer(message))
