"""The places of a transaction in the queues of its tables, as its own process knows them.

The functions of this room and of ``deadlock`` take a ``Claimant``: the parts of a transaction's
state that queues need, and no more.
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

#: The events of queues; users see them.
QueueEvent = Literal["waiting", "shift", "stale", "escalation"]


@dataclass(slots=True)
class HeldTicket:
    """One ticket and the state of its place in the queue."""

    ticket: Ticket
    state: State


@dataclass(slots=True)
class Queue:
    """All places of one transaction.

    ``doubtful`` are markers that may exist, or may yet be created: creates whose answers were lost,
    and places that other clients have swept. At the end those of them that exist and belong to this
    transaction are deleted with the rest.
    """

    places: list[HeldTicket] = field(default_factory=list)
    doubtful: list[tuple[str, int]] = field(default_factory=list)

    @classmethod
    def resumed(cls, tickets: Iterable[Ticket]) -> Queue:
        """Return the places of a transaction that another process has begun."""
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
        """Return whether a place is held that is as good as one with ``wanted`` access."""
        return any(covers(place.ticket.access, wanted) for place in self.at(table))

    def is_behind(self, table: str) -> bool:
        """Return whether other transactions were ahead at the last check.

        Then the transaction works logically there.
        """
        return any(place.state is State.WAITING for place in self.at(table))

    def give_back(self, txn_id: str, *, committed: bool) -> list[Program[None]]:
        """Return the parts of one round that delete the queue's remaining objects."""
        for held in self.places:
            ended = Happening.COMMITTED if committed else Happening.ABORTED
            held.state = advance(held.state, ended)
        parts: list[Program[None]] = [free([ticket]) for ticket in self.tickets]
        return [*parts, withdraw(txn_id, self.doubtful)] if self.doubtful else parts


@dataclass(slots=True)
class PlaceClaims(OwnRecord):
    """The record of a transaction, its places in queues, and its patience there.

    Attributes
    ----------
    queue : Queue or None
        Its places; None while it has none.
    patience_ends : float or None
        The time, by its own clock, until which it waits; None before its first wait.
    impatient : bool
        Whether its caller was informed that it waits no longer.
    beside : set of str
        Transactions of the same thread for which it did not wait.
    """

    queue: Queue | None = None
    patience_ends: float | None = None
    impatient: bool = False
    beside: set[str] = field(default_factory=set)


@dataclass(slots=True)
class GivenUp:
    """Holders and markers that no transaction of this process waits for any more.

    ``holders`` of reservations that were found dead, and ``markers`` that can't be read.
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
        """The function that returns whether the running thread has a transaction open itself."""

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
        """True if it takes places in queues."""

    @property
    def wait_timeout_seconds(self) -> float | None:
        """The time for which it waits; None: as the settings say."""

    @property
    def appended(self) -> list[str]:
        """The tables to which it appends."""

    @property
    def written(self) -> set[str]:
        """The tables that its operations change."""

    @property
    def has_committed(self) -> bool: ...
