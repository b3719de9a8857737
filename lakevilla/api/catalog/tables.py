"""The tables of a lake: list, create, drop, register and guard them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec

from lakevilla.api.arguments import (
    PropertyValue,
    check_flag,
    check_number,
    check_place,
    check_text,
    tables_to_register,
)
from lakevilla.api.catalog.pages import ListedTable, PageToken, TablePage, gone, read_token
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
from lakevilla.errors import InvalidOperation, TableExists, TableNotFound, VersionNotFound
from lakevilla.formats.base import FormatName
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.lake.tables import drop_data, registration
from lakevilla.lake.tables.dropped import is_half_deleted, refuse_to_delete
from lakevilla.lake.tables.listing import (
    ListedName,
    ListedState,
    listed,
    present_state,
    state_again,
)

__all__ = [
    "create_table",
    "drop_table",
    "all_names",
    "list_tables",
    "names_in",
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
            opened = views(reading)
            return _Page(version_of(reading)).of(table_of(reading, *one) for one in opened.items())
        page = _listed_page(reading, prefix, after, limit)
        if not details:
            return page.of(_described(reading, page))
        if page.version != version_of(reading):
            reading.bind_to(page.version, None, only=[one.location for one in page.found])
        opened = views_of(reading, {one.name: one.location for one in page.found})
        # HEAD does not tell that a name, which a table has now, was that of a view then.
        tables = {name: one for name, one in opened.items() if not one.snapshot.is_view}
        return page.of(table_of(reading, *one) for one in tables.items())


def names_in(
    reading: Executor, prefix: str | None, after: str | None, limit: int | None
) -> TablePage[ListedTable]:
    """Return the tables of the state that a transaction reads, as ``Lake.tables`` lists them."""
    page = _listed_page(reading, prefix, after, limit)
    return page.of(_described(reading, page))


def all_names(reading: Executor, again: str | None) -> tuple[list[ListedTable], str]:
    """Return all tables, and the token by which they are listed in the same state again.

    The token is empty for a lake without any commit. ``again``: the token of a call before.
    """
    page = _listed_page(reading, None, again, None)
    return list(_described(reading, page)), page.again


def version_of(reading: Executor) -> int:
    """Return the global version that a transaction reads; 0 in an empty lake."""
    head = reading.state_of_lake()
    return 0 if head is None else head.sequence


@dataclass(frozen=True, slots=True)
class _Page:
    """The tables of a page, which are not opened yet.

    ``again`` is the token of the first page of the same state; empty without any commit.
    """

    version: int
    commits: Sequence[CommitSummary] = ()
    found: Sequence[ListedName] = ()
    following: str | None = None
    again: str = ""

    def of(self, tables: Iterable[T]) -> TablePage[T]:
        """Return the page with the tables as its caller wants them."""
        page = TablePage(tables)
        page.next, page.version = self.following, self.version
        return page


def _listed_page(
    reading: Executor, prefix: str | None, after: str | None, limit: int | None
) -> _Page:
    head = reading.state_of_lake()
    lake_id, line = None if head is None else head.lake_id, _line(reading)
    known = None if after is None else read_token(after, lake_id, line)
    if head is None:
        return _Page(0)
    with reading.verb_scope():
        state = _state(reading, head, known)
        last = None if known is None else known.last
        found, more = reading.run(listed(state, prefix or "", last, limit))
    token = PageToken(head.lake_id, line, state.version, state.marks, "")
    following = msgspec.structs.replace(token, last=found[-1].key).text if more else None
    return _Page(state.version, head.commits, found, following, token.text)


def _state(reading: Executor, head: Head, known: PageToken | None) -> ListedState:
    """Return the state to list: that of the pages before, if there are any."""
    if known is None:
        return reading.run(present_state(head))
    if known.version != head.sequence and reading.state.bound.is_past:
        raise gone(known.version, f"this is a state of version {head.sequence}")
    try:
        return reading.run(state_again(head, known))
    except VersionNotFound as error:
        raise gone(known.version, error.message.partition("; request")[0]) from error


def _line(reading: Executor) -> str:
    """Return the name of the line of versions that a transaction reads; empty for the lake's."""
    frozen = reading.state.bound.frozen
    if frozen is not None:
        return f"{frozen.base.kind} {frozen.name}"
    head = reading.state_of_lake()
    return "" if head is None else head.home


def _described(reading: Executor, page: _Page) -> Iterator[ListedTable]:
    commits = {one.sequence: one for one in page.commits}
    for one in page.found:
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
