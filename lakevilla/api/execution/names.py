"""Resolve tables' names in a transaction, and name tables in its errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from lakevilla.api.client.catalogs import catalog_names, name_in_error
from lakevilla.api.client.client import LakeClient
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.global_log.head import Head, NameMap
from lakevilla.lake.missing_tables import catalog_hint
from lakevilla.lake.table_log import known_tail
from lakevilla.lake.tables.dotted_names import path_of
from lakevilla.lake.tables.renaming import renamed
from lakevilla.phases import during
from lakevilla.store.location import is_external
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.checks import moved_name
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.catalog.names import bind_where_it_is

__all__ = ["naming_errors", "resolve", "shown_id"]


def shown_id(state: TransactionState) -> str:
    """Return the transaction's id; note that the caller has seen it, so it must not change."""
    state.ending.id_was_seen = True
    return state.id


@contextmanager
def naming_errors(
    client: LakeClient, state: TransactionState, verb: str, table: str | None
) -> Generator[None]:
    """Name, in errors raised inside, the transaction and the verb and table that failed."""
    try:
        yield
    except LakeVillaError as error:
        error.txn_id = error.txn_id or shown_id(state)
        held = client.context.held
        names = {} if held is None else held.head.names.cached()
        if isinstance(error, TableNotFound) and isinstance(table, str):
            hint = catalog_hint(client.context, table)
            if hint is not None and "catalog" not in error.message:
                error.message += f"; {hint}"
                error.args = (error.message,)
        if isinstance(table, str) and error.table in (None, names.get(table)):
            names_table = error.table is not None
            if error.table is not None:
                name_in_error(error, {error.table: table})
            error.table = table  # the name by which the caller named the table
            if isinstance(error, InvalidOperation) and not names_table:
                message = error.message.removeprefix(f"{verb}: ")
                error.message = f"{f'{verb} {table}'.rstrip()}: {message}"
                error.args = (error.message,)
        name_in_error(error, catalog_names(client.context))
        raise


def resolve(
    client: LakeClient, state: TransactionState, table: str, *, also_renamed: bool = False
) -> str:
    """Return the table's location by the names of the HEAD that the transaction is bound to.

    A name by which the transaction has used a table means that table to its end (note 23).
    ``also_renamed``: accept a path although its table has another name by now.
    """
    location = _meant_before(state, table)
    if location is not None:
        return location
    search = _by_head if state.through_head else _by_log
    location, head, names = search(client, state, table, also_renamed=also_renamed)
    if head is not None:
        moved = client.run(moved_name(state, head))
        if moved is not None:
            raise state.fail(moved)
    if not also_renamed:
        state.bound.meant[table] = location, _called(names, table, location)
    return location


def _called(names: NameMap, table: str, location: str) -> str:
    """Return the registered name by which a table was found; ``""`` if it was found by its path."""
    known = (name for name in (table, path_of(table)) if name is not None)
    return next((name for name in known if names.get(name) == location), "")


def _meant_before(state: TransactionState, table: object) -> str | None:
    """Return the table that the transaction has already used by this name, and has not renamed."""
    if not isinstance(table, str) or table not in state.bound.meant:
        return None
    location, called = state.bound.meant[table]
    if location not in state.work.tables:
        return None
    if any({table, called or location} & {one.old, one.new} for one in state.work.renames):
        return None
    return location


#: A table's location, with the HEAD and the names by which it was found.
_Found = tuple[str, Head | None, NameMap]


def _by_head(
    client: LakeClient, state: TransactionState, table: str, *, also_renamed: bool
) -> _Found:
    bound = state.bound
    held = bound.held or client.context.held
    if held is None:
        if not also_renamed:
            location = client.resolve(client.names(None, table), table, None)
            client.run(bind_where_it_is(state, location))
        if not bound.is_bound:
            if not state.options.read_only:
                # Binding creates HEAD if there is none, which first requires a probe of the store.
                client.ensure_safe_store()
            client.run(bind_to_head(state))
        held = bound.held
    head = None if held is None else held.head
    names = _names(client, state, head, table)
    location = client.resolve(names, table, head, also_renamed=True)
    may_move = (
        path_of(table) is not None or _knows(names, table, location) or _is_new(client, location)
    )
    if not bound.is_bound and may_move:
        # By now, a registered or dotted name may mean another table, and a path no table.
        client.run(bind_to_head(state))
        head = state.head
        names = _names(client, state, head, table)
    elif not bound.is_bound and not (also_renamed or is_external(table)):
        bound.paths.add(location)
    return client.resolve(names, table, head, also_renamed=also_renamed), head, names


def _names(client: LakeClient, state: TransactionState, head: Head | None, table: str) -> NameMap:
    """Return HEAD's registered names, changed by the transaction's own renames."""
    return renamed(client.names(head, table), state.work.renames)


def _is_new(client: LakeClient, location: str) -> bool:
    """Return whether the cached HEAD lacks the table: then a newer HEAD may have the name."""
    held = client.context.held
    return held is not None and held.head.tables.peek(location) is None


def _knows(names: NameMap, table: str, location: str) -> bool:
    """Return whether HEAD's names have an entry for a caller's table name or for its location."""
    return any(not names.missing([name]) and name in names for name in (table, location))


def _by_log(
    client: LakeClient, state: TransactionState, table: str, *, also_renamed: bool
) -> _Found:
    """Find a table's location for a transaction that commits by an entry in the table's own log.

    HEAD is read to resolve the name, unless the name is a path whose log is cached.
    """
    context = client.context
    head = None if context.held is None else context.held.head
    names = client.names(head, table)
    location = client.resolve(names, table, head, also_renamed=True)
    may_move = path_of(table) is not None or _knows(names, table, location)
    if may_move or known_tail(context, location) is None:
        with during("version"):
            held = client.run(context.head())
        head = None if held is None else held.head
        names = client.names(head, table)
        location = client.resolve(names, table, head)
    return location, head, names
