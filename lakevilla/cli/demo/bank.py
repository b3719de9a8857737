"""The demo's clients: processes that move money between two tables; one of them will be killed.

Each client function runs in a process of its own, which reports to the demo through a pipe.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing.connection import Connection
from typing import Any

from lakevilla.api.client.client import LakeClient
from lakevilla.api.connecting import connect
from lakevilla.api.lake import Lake
from lakevilla.api.transaction import Transaction
from lakevilla.cli.demo.tables import ACCOUNTS, BANKS
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import (
    Absent,
    Condition,
    Failure,
    Refused,
    Store,
    Stored,
    WrappedStore,
)
from lakevilla.store.location import root_location

#: The amount that the killed client moves in its last transfer.
LAST_AMOUNT = Decimal("77.77")


@dataclass(frozen=True, slots=True)
class Transferred:
    """A transfer that succeeded, with the number of its attempts."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """A report that the client stops before it stores ``key``, after it has stored ``stored``."""

    key: str
    stored: str


def transfer(
    txn: Transaction, source: str, target: str, payer: int, payee: int, amount: Decimal
) -> None:
    """Move money from an account in one table to an account in another."""
    paid = txn.update(
        source,
        {"balance": "balance - :amount"},
        where="id = :payer AND balance >= :amount",
        params={"payer": payer, "amount": amount},
    )
    if paid.rows_updated == 0:
        return  # the account has too little money
    txn.update(
        target,
        {"balance": "balance + :amount"},
        where="id = :payee",
        params={"payee": payee, "amount": amount},
    )


def transfer_many(
    root: str, options: Mapping[str, str], number: int, transfers: int, pipe: Connection
) -> None:
    """Make transfers between random accounts, concurrently with other processes."""
    with connect(root, storage_options=dict(options) or None) as lake:
        _compete(lake, number, transfers, pipe)


def transfer_until_killed(
    root: str, options: Mapping[str, str], number: int, transfers: int, pipe: Connection
) -> None:
    """Make transfers like ``transfer_many``, and one that blocks in the middle of its commit."""
    with connect(root, storage_options=dict(options) or None) as lake:
        _compete(lake, number, transfers, pipe)
    pipe.recv()
    store = StopBeforeSecondEntry(open_store(root, options or None), pipe)
    with Lake(LakeClient(root_location(root).uri, store, settings=Settings())) as lake:
        lake.run(transfer, *BANKS, 0, 0, LAST_AMOUNT)
        raise AssertionError("the commit came to its end")


def recover(root: str, options: Mapping[str, str], pipe: Connection) -> None:
    """Recover the lake, and report what was finished."""
    with connect(root, storage_options=dict(options) or None) as lake:
        pipe.send(lake.recover())


class StopBeforeSecondEntry(WrappedStore):
    """A store that writes the first log entry of a commit and blocks at the second one.

    At that time the transaction is decided, but readers of the logs see it in only one of its two
    tables: the worst time for a client to die.
    """

    def __init__(self, inner: Store, pipe: Connection) -> None:
        super().__init__(inner)
        self._pipe = pipe
        self._lock = threading.Lock()
        self._stored: str | None = None

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        """Write an object; block if it is the second log entry."""
        if not isinstance(condition, Absent) or "/_delta_log/" not in key:
            return self.inner.put(key, body, condition)
        with self._lock:
            if self._stored is not None:
                self._pipe.send(Stopped(key, self._stored))
                threading.Event().wait()
            outcome = self.inner.put(key, body, condition)
            if isinstance(outcome, Stored):
                self._stored = key
            return outcome


def _compete(lake: Lake, number: int, transfers: int, pipe: Connection) -> None:
    choice = random.Random(number)
    for _ in range(transfers):
        source, target = choice.sample(BANKS, 2)
        payer, payee = choice.randrange(ACCOUNTS), choice.randrange(ACCOUNTS)
        amount = Decimal(choice.randrange(100, 10_000)).scaleb(-2)
        attempts = itertools.count()
        lake.run(_attempt, attempts, source, target, payer, payee, amount)
        pipe.send(Transferred(next(attempts)))


def _attempt(txn: Transaction, attempts: Iterator[int], *arguments: Any) -> None:
    next(attempts)
    transfer(txn, *arguments)
