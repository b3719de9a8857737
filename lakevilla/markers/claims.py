"""The places of a transaction in the queues of its tables, as its own process knows them.

The functions of this room and of ``deadlock`` take a ``Claimant``: only those parts of a
transaction's state that queues need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from lakevilla.global_log.repo import HeldHead
from lakevilla.markers.marker import Marker, Unreadable
from lakevilla.markers.queue import Happening, State, advance, covers
from lakevilla.markers.repo import free, withdraw
from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.sublogs.lease import Leases
from lakevilla.sublogs.own_record import Owner, OwnersLake, OwnRecord
from lakevilla.sublogs.record import Access, Ticket

#: The events of queues that are reported to users.
QueueEvent = Literal["waiting", "shift", "stale", "escalation"]


@dataclass(slots=True)
class HeldTicket:
    """One ticket and the state of its place in the queue."""

    ticket: Ticket
    state: State


@dataclass(slots=True)
class Queue:
    """All places of one transaction.

    ``doubtful`` are markers that may exist, or that the store may still create: creates whose
    answers were lost, and places that other clients have swept. At the end, those of them that
    exist and belong to this transaction are deleted, too.
    """

    places: list[HeldTicket] = field(default_factory=list)
    doubtful: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def resumed(cls, tickets: Iterable[Ticket]) -> Queue:
        """Return the places of a transaction that this process resumes."""
        return cls([HeldTicket(ticket, State.WAITING) for ticket in tickets])

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        return tuple(place.ticket for place in self.places)

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(place.ticket.table for place in self.places))

    def at(self, table: str) -> list[HeldTicket]:
        return [place for place in self.places if place.ticket.table == table]

    def covers(self, table: str, wanted: Access) -> bool:
        """Return whether a place at the table is held whose access covers ``wanted``."""
        return any(covers(place.ticket.access, wanted) for place in self.at(table))

    def is_behind(self, table: str) -> bool:
        """Return whether other transactions were ahead at the table at the last check.

        If so, the transaction defers its operations on the table.
        """
        return any(place.state is State.WAITING for place in self.at(table))

    def give_back(self, txn_id: str, *, committed: bool) -> list[Program[None]]:
        """Return the programs, to be run in one round, that delete the transaction's markers."""
        for held in self.places:
            ended = Happening.COMMITTED if committed else Happening.ABORTED
            held.state = advance(held.state, ended)
        parts: list[Program[None]] = [free([ticket]) for ticket in self.tickets]
        return [*parts, withdraw(txn_id, self.doubtful)] if self.doubtful else parts


@dataclass(slots=True)
class PlaceClaims(OwnRecord):
    """The record of a transaction, its places in queues, and how long it waits there.

    Attributes
    ----------
    queue : Queue or None
        Its places; None while it has none.
    patience_ends : float or None
        The time, by its process's clock, until which it waits; None before its first wait.
    impatient : bool
        Whether it was reported that the transaction has stopped waiting.
    beside : set of str
        Transactions of the same thread for which it did not wait.
    is_guest : bool
        Whether its commit is an Iceberg client's, for which guests' reservations are.
    """

    queue: Queue | None = None
    patience_ends: float | None = None
    impatient: bool = False
    beside: set[str] = field(default_factory=set)
    is_guest: bool = False


@dataclass(slots=True)
class GivenUp:
    """Holders and markers that no transaction of this process waits for any more.

    ``holders`` are transactions with reservations that were found dead; ``markers`` are the tokens
    of markers that can't be read.
    """

    holders: set[str] = field(default_factory=set)
    markers: set[Token] = field(default_factory=set)


class QueuesLake(OwnersLake, Protocol):
    """The parts of a lake in one process that queues use (``Context``)."""

    @property
    def leases(self) -> Leases: ...

    @property
    def given_up(self) -> GivenUp: ...

    @property
    def is_callers(self) -> Callable[[str], bool]:
        """The function that returns whether the running thread itself has a transaction open."""

    def known_markers(self) -> dict[tuple[str, Token], Marker | Unreadable]:
        """Return the markers read so far; they never change."""
        ...

    def head(self) -> Program[HeldHead | None]:
        """Return HEAD as it is now."""
        ...

    def report(
        self, kind: QueueEvent, txn_id: str, message: str, detail: Mapping[str, object]
    ) -> None:
        """Report an event of the queues."""
        ...


class Claimant(Owner, Protocol):
    """The parts of a transaction's state that queues need (``TransactionState``)."""

    @property
    def context(self) -> QueuesLake: ...

    @property
    def claims(self) -> PlaceClaims: ...

    @property
    def queues(self) -> bool:
        """True if the transaction takes places in queues."""

    @property
    def wait_timeout_seconds(self) -> float | None:
        """The time for which the transaction waits; None: as the settings say."""

    @property
    def appended(self) -> list[str]:
        """The tables to which the transaction appends."""

    @property
    def written(self) -> set[str]:
        """The tables that its operations change."""

    @property
    def has_committed(self) -> bool: ...
