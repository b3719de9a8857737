"""Names after a rename, and reasons to refuse a name (docs/design/0023-renames.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.global_log.head import NOWHERE, Head, NameMap
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tables.dotted_names import twin_in_lake, twin_of
from lakevilla.sql.catalog import refuse_reserved
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external
from lakevilla.sublogs.operations import Create, Operation, Rename


def renames_of(operations: Iterable[Operation]) -> list[Rename]:
    """Return the renames among operations, in their order."""
    return [operation for operation in operations if isinstance(operation, Rename)]


def renamed(names: NameMap, renames: Iterable[Rename]) -> NameMap:
    """Return HEAD's names after these renames, which the caller has checked."""
    for one in renames:
        names = names.updated(_changes(one))
    return names


def _changes(rename: Rename) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    if rename.old != rename.table:
        changes[rename.old] = None
    elif not is_external(rename.table):
        changes[rename.old] = NOWHERE
    return {**changes, rename.new: rename.table}


def known_name(names: NameMap, name: str, location: str) -> str:
    """Return HEAD's spelling of the ``name`` by which a caller wants to rename a table.

    Raises ``InvalidOperation`` if ``name`` is only the table's path, and it has other names.
    """
    known = [key for key, place in names.items() if place == location]
    if name in known:
        return name
    if known:
        raise InvalidOperation(
            f"{name!r} is the path of table {known[0]}, which has the "
            f"name{'' if len(known) == 1 else 's'} {', '.join(map(repr, known))}: rename it by "
            f"that: rename_table({known[0]!r}, ...)",
            table=name,
        )
    return location


def refuse_taken(
    context: Context, head: Head | None, names: NameMap, rename: Rename
) -> Program[None]:
    """Refuse a new name that would mean two tables, by HEAD's names or as a table's path.

    Raises
    ------
    TableExists
    """
    refuse_reserved(rename.new)
    _check_name(names, rename)
    yield from _refuse_twin(head, names, rename)
    if rename.place == rename.table:
        return
    yield from _refuse_shown(head, rename)
    there = yield from open_tail(context, rename.place, missing_ok=True)
    if there.tip >= 0:
        raise _two_tables(rename, head)


def names_after(
    head: Head | None, operations: Collection[Operation]
) -> Program[dict[str, str | None]]:
    """Return the changes that operations make to HEAD's names; None removes a name.

    Raises
    ------
    TableNotFound
        A table does not have the old name any more.
    TableExists
        A new name means another table by now.
    """
    renames = renames_of(operations)
    yield from load_names(
        head, {name for rename in renames for name in (rename.old, rename.new, rename.place)}
    )
    yield from load_tables(head, [rename.place for rename in renames])
    names = NameMap() if head is None else head.names
    made = {rename.table for rename in operations if isinstance(rename, Create)}
    changes: dict[str, str | None] = {}
    for rename in renames:
        stands_for = names.get(rename.old)
        if stands_for != rename.table and not (rename.old == rename.table and stands_for is None):
            raise TableNotFound(
                f"table {rename.old} was renamed or unregistered by another client meanwhile",
                table=rename.table,
            )
        _check_name(names, rename)
        yield from _refuse_twin(head, names, rename, made)
        there = None if head is None else head.tables.get(rename.place)
        if rename.place != rename.table and there is not None and not there.dropped:
            raise _two_tables(rename, head)
        if rename.place != rename.table and there is None:
            yield from _refuse_shown(head, rename)
        names = names.updated(_changes(rename))
        changes |= _changes(rename)
    return changes


def _refuse_twin(
    head: Head | None, names: NameMap, one: Rename, made: Collection[str] = ()
) -> Program[None]:
    """Refuse a name that differs from another table's only by dots instead of slashes.

    ``made``: the tables that are created together with the rename.
    """
    reason = yield from twin_in_lake(head, one.place, own=one.table, names=names)
    twin = twin_of(one.place)
    if twin in made and twin != one.table:
        reason = f"{one.new!r} could also mean table {twin}, which this transaction creates"
    if reason is not None:
        raise TableExists(reason, table=one.table)


def _refuse_shown(head: Head | None, one: Rename) -> Program[None]:
    """Refuse a name that is the path of a table which a clone shows."""
    mount = yield from mount_of(head, one.place)
    if mount is not None:
        raise TableExists(
            f"name {one.new!r} could mean two tables: clone {mount.name!r} shows a table at "
            f"{one.place}; choose another name",
            table=one.table,
        )


def _check_name(names: NameMap, one: Rename) -> None:
    for name in (one.new, one.place):
        known = names.get(name)
        if known == NOWHERE and name != one.table:
            raise TableExists(
                f"{name!r} is the path of a table that was renamed, and holds its data: choose "
                "another name",
                table=one.table,
            )
        if known not in (None, NOWHERE) and (name == one.new or known != name):
            where = "this table" if known == one.table else f"the table at {known}"
            raise TableExists(
                f"name {name!r} is registered for {where}: choose another one, or `unregister` it "
                "first",
                table=one.table,
            )


def _two_tables(one: Rename, head: Head | None) -> TableExists:
    state = None if head is None else head.tables.peek(one.place)
    if state is not None and not state.dropped:
        message = (
            f"there is a table {one.new!r} already: choose another name, or rename that one first"
        )
    else:
        message = (
            f"name {one.new!r} could mean two tables: there is one at {one.place}, which can be "
            "registered; choose another name"
        )
    return TableExists(message, table=one.table)
