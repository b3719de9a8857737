"""Commits of Iceberg REST clients, by the names of their tables.

A server that answers Iceberg's REST protocol for a lake calls ``give``, and turns the answer into
its status and body. It is no part of the public API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakevilla.api.execution.executor import Executor
from lakevilla.api.lake import Lake
from lakevilla.api.run import begin_transaction
from lakevilla.errors import TableNotFound
from lakevilla.transaction.commit.given import Answer, TableRequest
from lakevilla.transaction.commit.given import give as program_of
from lakevilla.transaction.state.transaction import TransactionState

__all__ = ["Answer", "TableChange", "give"]

#: How long a request waits for transactions that have reserved its tables.
_WAIT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table's part of a request: its name in the lake, requirements, and updates."""

    table: str
    requirements: Sequence[Mapping[str, Any]] = ()
    updates: Sequence[Mapping[str, Any]] = ()


def give(lake: Lake[Any], changes: Sequence[TableChange], *, key: str | None = None) -> Answer:
    """Commit what an Iceberg client asks of some tables: all of it, or nothing.

    Parameters
    ----------
    lake : Lake
    changes : Sequence of TableChange
        A change without updates only relies on its table.
    key : str, optional
        The request's idempotency key.

    Raises
    ------
    StoreError
        The store failed before anything was decided.
    """
    client = lake._client

    def begin() -> TransactionState:
        begun: Executor[Any] = begin_transaction(
            client,
            Executor,
            idempotency_key=None if key is None else f"iceberg/{key}",
            wait_timeout_seconds=_WAIT_SECONDS,
            alone=True,
        )
        return begun.state

    head = client.head()
    requests = []
    for change in changes:
        try:
            location = client.resolve(client.names(head, change.table), change.table, head)
        except TableNotFound as error:
            return Answer("missing", error.message)
        requests.append(TableRequest(location, tuple(change.requirements), tuple(change.updates)))
    return client.run(program_of(begin, requests))
