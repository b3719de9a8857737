"""The tables of a lake: list, create, drop, register and guard them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from lakevilla.api.arguments import (
    PropertyValue,
    check_flag,
    check_number,
    check_place,
    check_text,
    tables_to_register,
)
from lakevilla.api.catalog.names import ListedTable, TablePage, last_name, token_of
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.discovering import register_all, register_named, tell_left, tell_missing
from lakevilla.api.client.names import refuse_link
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.history import utc_datetime
from lakevilla.api.run import ATTEMPTS, begin_or_rerun, begin_transaction, run
from lakevilla.api.snapshot import views, views_of
from lakevilla.api.table import Table, table_of
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation, TableExists, TableNotFound
from lakevilla.formats.base import FormatName
from lakevilla.lake.tables import drop_data, registration
from lakevilla.lake.tables.discovery import ListedName, listed
from lakevilla.lake.tables.dropped import is_half_deleted, refuse_to_delete

__all__ = [
    "create_table",
    "drop_table",
    "list_tables",
    "open_table",
    "register",
    "set_guard",
    "unregister",
]

T = TypeVar("T")


def create_table(
    client: LakeClient,
    executor: type[Executor[Frame]],
    name: str,
    data_or_schema: object,
    *,
    format: FormatName | None,
    partition_by: str | Sequence[str],
    properties: Mapping[str, PropertyValue] | None,
    exist_ok: bool,
    or_replace: bool,
) -> Table[Frame]:
    """Create a table in a transaction of its own; see ``Lake.create_table``."""
    if check_flag("exist_ok", exist_ok) and check_flag("or_replace", or_replace):
        raise InvalidOperation("create_table takes exist_ok=True or or_replace=True, not both")
    try:
        with Transaction(begin_transaction(client, executor)) as txn:
            txn.create_table(
                name,
                data_or_schema,
                format=format,
                partition_by=partition_by,
                properties=properties,
                or_replace=or_replace,
            )
    except TableExists as error:
        if not exist_ok:
            raise
        try:
            return open_table(client, executor, name)
        except TableNotFound:
            raise error from None  # the name is taken by something that is not this table
    return open_table(client, executor, name)


def drop_table(
    client: LakeClient, executor: type[Executor[Frame]], name: str, *, delete_data: bool
) -> None:
    """Remove a table from the lake, with its data if ``delete_data``; see ``Lake.drop_table``."""
    delete_data = check_flag("delete_data", delete_data)
    location = client.location_of(name)
    if delete_data:
        client.main("drop_table with delete_data")
        refuse_link(client.root, name, location)
        client.run(refuse_to_delete(client.context, location))
    if not (delete_data and client.run(is_half_deleted(client.context, location))):
        with Transaction(begin_transaction(client, executor)) as txn:
            txn.drop_table(name)
    if delete_data:
        with client.measured("drop_table", name):
            left = client.run(drop_data.delete_data(client.context, location))
        tell_left(client, name, left)


def register(
    client: LakeClient,
    name: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None,
    uri: str | os.PathLike[str] | None,
    *,
    discover: bool,
) -> list[str]:
    """Add existing tables to the lake, and return their names in it; see ``Lake.register``."""
    client.main("register")
    if check_flag("discover", discover):
        if name is not None or uri is not None:
            raise InvalidOperation("register takes discover=True, or tables by name, not both")
        return register_all(client)
    if isinstance(name, os.PathLike):
        # Under the root, the name of a table is its path.
        name = client.place(check_place("name", name))
    return register_named(client, tables_to_register(name, uri))


def unregister(client: LakeClient, name: str) -> None:
    """Remove a table from the lake, so that another lake may register it.

    See ``Lake.unregister``.
    """
    client = client.main("unregister")
    location = client.location_of(name)
    client.run_safely(registration.unregister(client.context, name, location))


def open_table(client: LakeClient, executor: type[Executor[Frame]], name: str) -> Table[Frame]:
    """Return one table of the lake, in its present state."""
    with begin_transaction(client, executor, read_only=True) as reading:
        return table_of(reading, name, reading.look(name))


def set_guard(client: LakeClient, executor: type[Executor[Frame]], table: str, on: bool) -> None:
    """Guard a table against writers without LakeVilla, or end its guard."""

    def change(writing: Executor) -> None:
        writing.set_guard(table, on)

    run(client, partial(begin_or_rerun, client, executor, {}), change, ATTEMPTS)


def list_tables(
    client: LakeClient,
    executor: type[Executor[Frame]],
    prefix: str | None,
    *,
    after: str | None,
    limit: int | None,
    details: bool,
) -> TablePage[Table[Frame]] | TablePage[ListedTable]:
    """Return the tables in HEAD, in the order of their names; see ``Lake.tables``."""
    if prefix is not None:
        prefix = check_text("prefix", prefix)
    if limit is not None and (limit := check_number("limit", limit)) < 1:
        raise InvalidOperation("limit must be 1 or more; leave it out for all tables")
    details = check_flag("details", details)
    tell_missing(client)
    with begin_transaction(client, executor, read_only=True) as reading:
        if prefix is None and after is None and limit is None and details:
            return _page([table_of(reading, *one) for one in views(reading).items()], None)
        found, following = _names(reading, prefix, after, limit)
        if not details:
            return _page(_listed(reading, found), following)
        opened = views_of(reading, {one.name: one.location for one in found})
        return _page([table_of(reading, *one) for one in opened.items()], following)


def names_in(
    reading: Executor, prefix: str | None, after: str | None, limit: int | None
) -> TablePage[ListedTable]:
    """Return the tables of the state that a transaction reads, as ``Lake.tables`` lists them."""
    found, following = _names(reading, prefix, after, limit)
    return _page(_listed(reading, found), following)


def _names(
    reading: Executor, prefix: str | None, after: str | None, limit: int | None
) -> tuple[list[ListedName], str | None]:
    """Return a page of tables, and the token of the next one."""
    head = reading.state_of_lake()
    last = None if after is None else last_name(head, after)
    if head is None:
        return [], None
    with reading.verb_scope():
        found, more = reading.run(listed(head, prefix or "", last, limit))
    return found, token_of(head, found[-1].key) if more else None


def _listed(reading: Executor, found: Sequence[ListedName]) -> Iterator[ListedTable]:
    head = reading.state_of_lake()
    commits = {} if head is None else {one.sequence: one for one in head.commits}
    for one in found:
        state, size = one.state, one.state.size
        commit = commits.get(state.changed)
        yield ListedTable(
            one.name,
            reading.client.uri_of(one.location),
            state.format,
            state.table_id,
            state.guarded,
            *((None, None, None) if size is None else (size.files, size.rows, size.bytes)),
            changed_version=state.changed or None,
            changed=None if commit is None else utc_datetime(commit.timestamp_ms),
            changed_by=None if commit is None else commit.kind,
        )


def _page(tables: Iterable[T], following: str | None) -> TablePage[T]:
    page = TablePage(tables)
    page.next = following
    return page
