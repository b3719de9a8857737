"""Commits of Iceberg REST clients, by the names of their tables.

A server that answers Iceberg's REST protocol for a lake calls ``give``, and turns the answer into
its status and body. It is no part of the public API.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakevilla.api.arguments import check_text
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.lake import Lake
from lakevilla.api.run import begin_transaction
from lakevilla.api.transaction import Transaction
from lakevilla.errors import AlreadyCommitted, InvalidOperation, TableNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.requested import (
    TableWish,
    checked_definition,
    requested_metadata,
)
from lakevilla.formats.iceberg.metadata.updates import adds_files
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.head import Head
from lakevilla.lake.context import branch_directory
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Program, delete, put
from lakevilla.store.location import root_location
from lakevilla.transaction.commit.asked import Answer, NewName, TableRequest, no_table
from lakevilla.transaction.commit.given import give as program_of
from lakevilla.transaction.commit.given import key_of_others
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.catalog.names import rename as rename_verb
from lakevilla.transaction.verbs.create_table import defined_change
from lakevilla.transaction.verbs.read_write import create_by

__all__ = [
    "Answer",
    "TableChange",
    "TableWish",
    "give",
    "make",
    "make_branch_directory",
    "rename",
    "stage",
]

#: The length of the random end of a new table's directory.
_RANDOM = 8

#: How long a request waits for transactions that have reserved its tables.
_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table's part of a request: its name in the lake, requirements, and updates.

    ``makes``: it makes the table, at the place where that was staged.
    """

    table: str
    requirements: Sequence[Mapping[str, Any]] = ()
    updates: Sequence[Mapping[str, Any]] = ()
    makes: bool = False


def make(lake: Lake[Any], name: str, wish: TableWish) -> None:
    """Make a table that an Iceberg client wants, without rows.

    It lies beside its name, at a place that no table had: a name is free once its table is dropped.

    Raises
    ------
    TableExists
        The name is taken.
    InvalidOperation, UnsupportedTableFeature
        The client's wish is not valid, or LakeVilla could not write the table.
    """
    client = lake._client
    location, table_id = _new_place(client, name), client.context.ids.uuid()

    def definition(blank: IcebergDefinition) -> Mapping[str, Any]:
        parts = requested_metadata(blank, wish, client.uri_of(location), table_id)
        return checked_definition(blank, parts)

    _make(lake, name, location, definition)


def stage(lake: Lake[Any], name: str, wish: TableWish) -> dict[str, Any]:
    """Return the metadata of a table that its client makes with a later commit.

    Nothing is stored, except that a local directory gets the one that the client writes to.

    Errors as ``make``, but for a name that is taken.
    """
    client = lake._client
    location = _new_place(client, name)
    blank = client.context.formats["iceberg"].blank(location, name)
    assert isinstance(blank, IcebergSnapshot)
    uri, table_id = client.uri_of(location), client.context.ids.uuid()
    parts = requested_metadata(blank.definition, wish, uri, table_id)
    checked_definition(blank.definition, parts)
    if root_location(client.root).scheme == "file":
        client.run(_make_directory(location, client.context.ids.uuid()))
    return parts


def make_branch_directory(client: LakeClient, location: str) -> None:
    """Make the directory of the metadata that clients write on a branch, where a store has some."""
    root, place = root_location(client.root), branch_directory(location, client.context.epoch)
    if root.scheme == "file" and not os.path.isdir(f"/{root.path}/{place}/metadata"):
        client.run(put(f"{place}/metadata/.directory", b"", ABSENT))


def _make_directory(location: str, name: str) -> Program[None]:
    """Make the directory of a table's metadata: DuckDB writes there, and makes none."""
    key = f"{location}/metadata/.{name}"
    yield from put(key, b"", ABSENT)
    yield from delete(key)


def _make(
    lake: Lake[Any],
    name: str,
    location: str,
    definition: Callable[[IcebergDefinition], Mapping[str, Any]],
) -> None:
    def defined(blank: TableSnapshot) -> Mapping[str, Any]:
        assert isinstance(blank, IcebergSnapshot)
        return definition(blank.definition)

    def work(txn: Transaction[Any]) -> None:
        executor = txn._executor
        change = defined_change(executor.state, location, defined, "iceberg")
        executor.run(create_by(executor.state, location, change))
        _rename(executor, location, location, name)

    lake.run(work)


def rename(lake: Lake[Any], old: str, location: str, new: str) -> None:
    """Give the table at a location another name, in which a dot is a dot.

    ``Lake.rename_table`` takes a dotted name for a path, as SQL has it.

    Raises
    ------
    TableExists
        The name is taken.
    InvalidOperation
        The new name is not valid, or the table's own.
    """
    lake.run(lambda txn: _rename(txn._executor, old, location, new))


def _rename(executor: Executor[Any], old: str, location: str, new: str) -> None:
    with executor.verb_scope("rename_table", old):
        place = executor.client.place_of_name(old, check_text("new", new))
        executor.client.ensure_safe_store()
        executor.run_verb(rename_verb(executor.state, old, location, new, place))


def _new_place(client: LakeClient, name: str) -> str:
    """Return a place beside the name at which no table was."""
    return client.place(f"{name}-{client.context.ids.uuid().replace('-', '')[-_RANDOM:]}")


def give(
    lake: Lake[Any],
    changes: Sequence[TableChange],
    *,
    key: str | None = None,
    head: Head | None = None,
) -> Answer:
    """Commit what an Iceberg client asks of some tables: all of it, or nothing.

    Parameters
    ----------
    lake : Lake
    changes : Sequence of TableChange
        A change without updates only relies on its table.
    key : str, optional
        The request's idempotency key.
    head : Head, optional
        The newest HEAD of the lake, if the caller has read it for this request.

    Raises
    ------
    StoreError
        The store failed before anything was decided.
    """
    client = lake._client

    def begin(key: str | None = key) -> TransactionState:
        begun: Executor[Any] = begin_transaction(
            client,
            Executor,
            idempotency_key=None if key is None else f"iceberg/{key}",
            wait_timeout_seconds=_WAIT_SECONDS,
            alone=True,
        )
        return begun.state

    head = client.head() if head is None else head
    held = None if client.branch is not None else client.context.held
    requests = []
    for change in changes:
        try:
            requests.append(_request(client, head, change))
        except TableNotFound as error:
            stored = any(adds_files(one.updates) for one in changes)
            return no_table(error.message, adds_files=stored)
        except InvalidOperation as error:
            if not change.makes:
                raise
            return Answer("invalid", error.message)
    client.ensure_safe_store()
    try:
        return client.run(program_of(begin, requests, held))
    except AlreadyCommitted as error:  # on a branch a transaction looks for its key as it begins
        refused = key_of_others(error, requests)
        tables = [TableRequest(one.location) for one in requests]
        return refused or client.run(program_of(partial(begin, None), tables))


def _request(client: LakeClient, head: Head | None, change: TableChange) -> TableRequest:
    """Return a change by its table's location.

    Raises
    ------
    TableNotFound
        There is no such table.
    InvalidOperation
        It makes a table elsewhere than where that was staged.
    """
    name, what = change.table, (tuple(change.requirements), tuple(change.updates))
    if not change.makes:
        location = client.resolve(client.names(head, name), name, head)
        return TableRequest(location, *what, admits=client.reach.holds)
    wanted = [one.get("location") for one in change.updates if one.get("action") == "set-location"]
    uri = str(wanted[-1] if wanted else "")
    location = client.place(uri or "/")
    if re.fullmatch(rf"{re.escape(name)}-[0-9a-f]{{{_RANDOM}}}", location) is None:
        raise InvalidOperation(
            f"table {name} is made where it was staged, and {uri!r} is not there: stage it again",
            table=name,
        )
    place = client.place_of_name(location, name)
    return TableRequest(location, *what, admits=client.reach.holds, makes=NewName(name, place))
