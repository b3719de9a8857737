"""Actions and reads of clients, for the checker: list-append histories.

Every appended value is unique, so a list shows which transactions it holds and in which order: the
version order of each key is known, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Key = str
Value = int
#: ``unknown``: the client got no answer; other clients' reads show whether the transaction
#: committed.
Status = Literal["committed", "aborted", "unknown"]


@dataclass(frozen=True, slots=True)
class ListAppend:
    """A value put at the end of a key's list."""

    key: Key
    value: Value


@dataclass(frozen=True, slots=True)
class Read:
    """A key's whole list, as the transaction saw it."""

    key: Key
    values: tuple[Value, ...]


Operation = ListAppend | Read


@dataclass(slots=True)
class Txn:
    """One transaction: its operations in order, its time and its outcome.

    ``completed`` is None while it is not known that the transaction ended.
    """

    name: str
    client: str
    invoked: float
    operations: list[Operation] = field(default_factory=list)
    completed: float | None = None
    status: Status = "unknown"

    def append(self, key: Key, value: Value) -> None:
        self.operations.append(ListAppend(key, value))

    def read(self, key: Key, values: Sequence[Value]) -> None:
        self.operations.append(Read(key, tuple(values)))

    @property
    def appends(self) -> list[ListAppend]:
        return [op for op in self.operations if isinstance(op, ListAppend)]

    @property
    def reads(self) -> list[Read]:
        return [op for op in self.operations if isinstance(op, Read)]


class History:
    """A recorder of transactions; ``now`` gives the one time that all clients share.

    A client that crashes leaves its transaction ``unknown``, as it should.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self._next_value = 0
        self.txns: list[Txn] = []

    def begin(self, client: str) -> Txn:
        """Return a transaction that starts now."""
        txn = Txn(f"T{len(self.txns)}", client, self._now())
        self.txns.append(txn)
        return txn

    def end(self, txn: Txn, status: Status) -> None:
        """Record the outcome that the transaction's client has learnt."""
        txn.status = status
        txn.completed = None if status == "unknown" else self._now()

    def value(self) -> Value:
        """Return a value that is appended once in the history."""
        self._next_value += 1
        return self._next_value


@dataclass(frozen=True, slots=True)
class Recorded:
    """A whole history, with what its clients were promised.

    Attributes
    ----------
    txns : sequence of Txn
        Transactions in any order.
    final : Mapping
        The lists at the end, read when no request was under way any more.
    real_time : bool
        True if a transaction that ended before another began must be first.
    snapshot : frozenset of str
        The names of transactions that were promised snapshot isolation, or less.
    unplaced : Mapping
        By the name of a reader, the transactions that it has seen before they had a place in the
        order of all commits.
    """

    txns: Sequence[Txn]
    final: Mapping[Key, Sequence[Value]]
    real_time: bool = True
    snapshot: frozenset[str] = frozenset()
    unplaced: Mapping[str, frozenset[str]] = field(default_factory=dict)
