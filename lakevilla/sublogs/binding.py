"""Operations tied to the fields of their tables (docs/design/0020-bound-to-fields.md).

The names that a verb is given mean columns of the table's schema at that time. ``tie`` notes once
which fields those are. ``locate`` returns the same operation with the names that the fields have in
the schema on which it is performed again. ``renumber`` replaces ids of fields that were not final
when they were noted, as only a decided commit had them. All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lakevilla.engines.base import MergeClause
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import (
    REMOVED,
    Ids,
    Layout,
    Path,
    fields,
    ids_of,
    lacks,
    located,
    path_named,
    path_of,
    renumbered,
    tied,
)
from lakevilla.sql.expressions.bind import Scope, bind, exact
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Column, Expr, columns
from lakevilla.sublogs.operations import (
    Alter,
    AlteredFields,
    Append,
    Delete,
    Insert,
    Merge,
    Named,
    Operation,
    Overwrite,
    QuerySource,
    ReadRecord,
    Source,
    Update,
)

#: Per table, the present ids of columns, by the ids with which they were tied.
Moves = dict[str, dict[Ids, Ids]]


def tie_predicate(where: Expr, layout: Layout) -> Expr:
    """Return the predicate over a table, checked against its columns and tied to their fields.

    Raises ``InvalidOperation``.
    """
    return tied(exact(where, layout.schema), layout)


def tie(operation: Operation, layout: Layout, sources: Mapping[str, Layout]) -> Operation:
    """Return the operation with its names tied to the fields that they mean on ``layout``.

    ``sources`` are the layouts of the tables that the operation's query reads. A name that means no
    field stays unchanged: the client that performs the operation refuses it.
    """
    match operation:
        case Update(assignments=assignments, where=where):
            return msgspec.structs.replace(
                operation,
                assignments={name: tied(value, layout) for name, value in assignments.items()},
                where=tied(where, layout),
                fields=_named(assignments, layout),
            )
        case Delete(where=where) | Overwrite(where=where) if where is not None:
            return msgspec.structs.replace(operation, where=tied(where, layout))
        case Merge(on=on, target_alias=alias, clauses=clauses, source=source, within=within):
            return msgspec.structs.replace(
                operation,
                on=tied(on, layout, table=alias),
                within=None if within is None else tied(within, layout),
                clauses=tuple(_tied_clause(clause, layout, alias) for clause in clauses),
                sources=_tied_sources(source, sources),
            )
        case Insert(columns=names, source=source):
            return msgspec.structs.replace(
                operation, fields=_named(names, layout), sources=_tied_sources(source, sources)
            )
        case Alter(request=request):
            named = AlteredFields(_altered(_columns_of(request), layout))
            return msgspec.structs.replace(operation, tied=named)
    return operation


def _tied_clause(clause: MergeClause, layout: Layout, alias: str) -> MergeClause:
    predicate = clause.predicate
    return msgspec.structs.replace(
        clause,
        predicate=None if predicate is None else tied(predicate, layout, table=alias),
        assignments={
            name: tied(value, layout, table=alias) for name, value in clause.assignments.items()
        },
        fields=_named(clause.assignments, layout),
    )


def _tied_sources(source: Source, layouts: Mapping[str, Layout]) -> dict[str, Named]:
    if not isinstance(source, QuerySource):
        return {}
    text = source.sql.lower()
    found = {}
    for table in dict.fromkeys(source.tables.values()):
        known = fields(layouts[table]) if table in layouts else ()
        found[table] = tuple((path, ids) for path, ids in known if _may_name(text, path))
    return {table: names for table, names in found.items() if names}


def _may_name(text: str, path: Path) -> bool:
    """Return whether a query may mean the column: by its name, or by selecting all columns."""
    if "*" in text or "natural" in text:
        return True
    spelled = {name.lower().replace(quote, quote * 2) for name in path for quote in "\"`'"}
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in spelled)


def _named(names: Iterable[str], layout: Layout) -> dict[str, Ids]:
    found, scope = {}, Scope(layout.schema)
    for name in names:
        path = _spelled(scope, name)
        ids = None if path is None else ids_of(layout, path)
        if ids is not None:
            found[name] = ids
    return found


def _altered(names: Iterable[str], layout: Layout) -> dict[str, Ids]:
    """Return the ids of the columns that an ``alter`` names, also within lists and maps."""
    found = {}
    for name in names:
        path = path_named(layout, name)
        ids = None if path is None else ids_of(layout, path)
        if ids is not None:
            found[name] = ids
    return found


def _spelled(scope: Scope, name: str) -> Path | None:
    """Return the exact path of a column, or of a field within one by its dotted path."""
    try:
        return scope.column(Column((name,)))[0].path
    except InvalidOperation:
        try:
            return scope.column(Column(tuple(name.split("."))))[0].path
        except InvalidOperation:
            return None


def _columns_of(request: Mapping[str, Any]) -> list[str]:
    """Return the columns that an ``alter`` names."""
    return [
        *request.get("drop_columns", ()),
        *request.get("rename_columns", {}),
        *request.get("change_types", {}),
        *request.get("drop_not_null", ()),
        *request.get("set_comments", {}),
        *request.get("set_defaults", {}),
    ]


# ------------------------------------------------------------------ performed again


def locate(operation: Operation, layout: Layout) -> Operation:
    """Return the operation with the present names of its table's fields, no longer tied to ids.

    Raises
    ------
    InvalidOperation
        The table has no longer a column that the operation names; or the operation changes the
        schema, and a column that it names has another name by now.
    """
    match operation:
        case Update(assignments=assignments, where=where, fields=known):
            return msgspec.structs.replace(
                operation,
                assignments={
                    _now(name, known, layout): located(value, layout)
                    for name, value in assignments.items()
                },
                where=located(where, layout),
                fields={},
            )
        case Delete(where=where) | Overwrite(where=where) if where is not None:
            return msgspec.structs.replace(operation, where=located(where, layout))
        case Merge(on=on, clauses=clauses, within=within):
            return msgspec.structs.replace(
                operation,
                on=located(on, layout),
                within=None if within is None else located(within, layout),
                clauses=tuple(_located_clause(clause, layout) for clause in clauses),
            )
        case Insert(columns=names, fields=known):
            return msgspec.structs.replace(
                operation, columns=tuple(_now(name, known, layout) for name in names), fields={}
            )
        case Alter(fields=known):
            _refuse_overtaken(known.named, layout)
    return operation


def _located_clause(clause: MergeClause, layout: Layout) -> MergeClause:
    predicate = clause.predicate
    return msgspec.structs.replace(
        clause,
        predicate=None if predicate is None else located(predicate, layout),
        assignments={
            _now(name, clause.fields, layout): located(value, layout)
            for name, value in clause.assignments.items()
        },
        fields={},
    )


def _refuse_overtaken(known: Mapping[str, Ids], layout: Layout) -> None:
    """Refuse an ``alter`` of columns that another commit has renamed: it might undo the renaming.

    An ``alter`` has read the names that it changes, so it is not applied to renamed columns.
    """
    for name, ids in known.items():
        now = _now(name, known, layout)
        path = path_named(layout, name)
        if path is None or ids_of(layout, path) != ids:
            raise InvalidOperation(
                f"column {name} of table {layout.table} was renamed to {now} by another commit: "
                "change the present schema",
                table=layout.table,
            )


def _now(name: str, known: Mapping[str, Ids], layout: Layout) -> str:
    ids = known.get(name)
    if ids is None:
        return name
    path = path_of(layout, ids)
    if path is None:
        raise lacks(layout, (name,))
    return ".".join(path)


def refuse_renamed(operation: Operation, table: str, layout: Layout) -> None:
    """Refuse to run a query over a table if some of its names mean other fields by now.

    The text of the query can't follow them. Added columns do not matter.

    Raises ``InvalidOperation``.
    """
    if isinstance(operation, Insert | Merge):
        _refuse_renamed(operation.sources.get(table, ()), layout, "the query")


def _refuse_renamed(names: Named, layout: Layout, what: str) -> None:
    for path, ids in names:
        if ids_of(layout, path) != ids:
            raise InvalidOperation(
                f"column {'.'.join(path)} of table {layout.table} was dropped, renamed or created "
                f"again since {what} was given: run it again on its present columns",
                table=layout.table,
            )


# ------------------------------------------------------- ids that were not settled


def evolves(operation: Operation) -> bool:
    """Return whether the operation may change its table's columns."""
    if isinstance(operation, Append | Overwrite | Merge):
        return operation.columns is not None
    return isinstance(operation, Alter)


def outcome(operation: Operation, before: Layout, after: Layout) -> Operation:
    """Return the performed operation, with the fields that it has added and that it checks.

    When the operation is performed again, its constraints must mean the same fields as before.

    Raises ``InvalidOperation``.
    """
    match operation:
        case (
            Append(columns=bytes(), added=known)
            | Overwrite(columns=bytes(), added=known)
            | Merge(columns=bytes(), added=known)
        ):
            return msgspec.structs.replace(operation, added=_added(known, before, after))
        case Alter(request=request, fields=known):
            added = _added(known.added, before, after)
            checked = tuple(
                (column.path, ids_of(after, column.path) or ())
                for sql in request.get("add_constraints", {}).values()
                for column in columns(bind(parse_predicate(sql), after.schema))
            )
            if known.checked:
                moved = _between(known.added, added)
                meant = tuple((path, moved.get(ids, ids)) for path, ids in known.checked)
                _refuse_renamed(meant, after, "the constraint on it")
            tied = msgspec.structs.replace(known, added=added, checked=checked)
            return msgspec.structs.replace(operation, tied=tied)
    return operation


def _added(known: Named, before: Layout, after: Layout) -> Named:
    if known:
        # Performed again: another client may have added the same columns by now.
        again = ((path, ids_of(after, path)) for path, _ in known)
        return tuple((path, ids) for path, ids in again if ids is not None)
    old = {ids for _, ids in fields(before)}
    return tuple((path, ids) for path, ids in fields(after) if ids not in old)


def moves(before: Operation, after: Operation) -> dict[Ids, Ids]:
    """Return the new ids of the columns that an operation added and adds again, by the old ids."""
    return _between(_added_by(before), _added_by(after))


def withdrawn(operation: Operation) -> dict[Ids, Ids]:
    """Return the same as ``moves`` for an operation that is never performed again.

    Its columns do not exist, so each of their ids is mapped to ``REMOVED``.
    """
    return _between(_added_by(operation), ())


def _between(before: Named, after: Named) -> dict[Ids, Ids]:
    now = dict(after)
    return {ids: now.get(path, REMOVED) for path, ids in before if now.get(path, REMOVED) != ids}


def _added_by(operation: Operation) -> Named:
    return operation.added if isinstance(operation, Alter | Append | Overwrite | Merge) else ()


def unsettled(published: Layout, seen: Layout, now: Layout) -> dict[Ids, Ids]:
    """Return the ids that only decided commits had, if they are not the same columns any more.

    ``seen`` is ``published`` with the decided commits laid over. If one of them was performed again
    since, its columns have other ids in ``now``, and other clients' columns may have the old ids.
    """
    settled = {ids for _, ids in fields(published)}
    return {
        ids: REMOVED
        for path, ids in fields(seen)
        if ids not in settled and path_of(now, ids) != path
    }


def renamed(published: Layout, seen: Layout, now: Layout) -> Path | None:
    """Return the first column of ``seen`` that has another name in ``now``, or is gone.

    Columns that only decided commits had are left out: they may be other ones by now.
    """
    settled = {ids for _, ids in fields(published)}
    return next(
        (path for path, ids in fields(seen) if ids in settled and path_of(now, ids) != path), None
    )


def renumber(operation: Operation, all_moves: Mapping[str, Mapping[Ids, Ids]]) -> Operation:
    """Return the operation with the present ids of fields in place of those that have changed."""
    if not any(all_moves.values()):
        return operation
    moved = all_moves.get(operation.table, {})
    match operation:
        case Update(assignments=assignments, where=where, fields=known):
            return msgspec.structs.replace(
                operation,
                assignments={name: renumbered(v, moved) for name, v in assignments.items()},
                where=renumbered(where, moved),
                fields=_moved(known, moved),
            )
        case Delete(where=where) | Overwrite(where=where) if where is not None:
            return msgspec.structs.replace(operation, where=renumbered(where, moved))
        case Merge(on=on, clauses=clauses, sources=sources, within=within):
            return msgspec.structs.replace(
                operation,
                on=renumbered(on, moved),
                within=None if within is None else renumbered(within, moved),
                clauses=tuple(_renumbered_clause(clause, moved) for clause in clauses),
                sources=_moved_sources(sources, all_moves),
            )
        case Insert(fields=known, sources=sources):
            return msgspec.structs.replace(
                operation,
                fields=_moved(known, moved),
                sources=_moved_sources(sources, all_moves),
            )
        case Alter(fields=known):
            again = msgspec.structs.replace(
                known,
                named=_moved(known.named, moved),
                checked=tuple((path, moved.get(ids, ids)) for path, ids in known.checked),
            )
            return msgspec.structs.replace(operation, tied=again)
    return operation


def _renumbered_clause(clause: MergeClause, moved: Mapping[Ids, Ids]) -> MergeClause:
    predicate = clause.predicate
    return msgspec.structs.replace(
        clause,
        predicate=None if predicate is None else renumbered(predicate, moved),
        assignments={name: renumbered(v, moved) for name, v in clause.assignments.items()},
        fields=_moved(clause.fields, moved),
    )


def renumber_read(read: ReadRecord, all_moves: Mapping[str, Mapping[Ids, Ids]]) -> ReadRecord:
    """Return the observed read with the present ids, as ``renumber`` does for an operation."""
    moved = all_moves.get(read.table)
    if not moved or read.where is None:
        return read
    return msgspec.structs.replace(read, where=renumbered(read.where, moved))


def _moved(known: Mapping[str, Ids], moved: Mapping[Ids, Ids]) -> dict[str, Ids]:
    return {name: moved.get(ids, ids) for name, ids in known.items()}


def _moved_sources(
    sources: Mapping[str, Named], all_moves: Mapping[str, Mapping[Ids, Ids]]
) -> dict[str, Named]:
    return {
        table: tuple((path, all_moves.get(table, {}).get(ids, ids)) for path, ids in names)
        for table, names in sources.items()
    }
