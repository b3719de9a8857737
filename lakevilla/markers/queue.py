"""The states of a ticket in a table's queue, as a table, and the order of transactions in it.

The rules:

1. A transaction with Feature.CT is ``placing`` until its marker is in the store.
   If another transaction has taken the number that it tries, it tries the next number.
2. It is ``first`` when no transaction is ahead: each lower ticket of another transaction has an
   access that may be concurrent with its own. Else it is ``waiting``. A marker that is created
   late may be lower than that of the transaction that is first: then this one waits again. A
   transaction that took number 1 before it saw other transactions wait steps back: it takes a
   ticket behind them and frees number 1.
3. In a cycle of waits the youngest is ``shifted``: it takes a new ticket at the
   end, then deletes the old one. A time-out never shifts.
4. When it commits, waiting or first (after a time-out of its wait it commits
   optimistically), its marker is ``freed``. A rerun after a conflict is no event: the ticket
   keeps its place.
5. If it has given no sign of life for a lease, a transaction that waits for it deletes its
   marker: it is ``stale``. An owner that wakes takes a new ticket; an owner that does not wake
   has ended, and other clients publish what it has decided.
6. Until it is freed it can be ``aborted``. Freed and aborted are final.

Nothing here does I/O. The picture in ``docs/images/ticket-states.svg`` shows the table; a test
compares the picture's arrows with the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from lakevilla.markers.marker import Present, Unreadable
from lakevilla.sublogs.record import Access, Ticket


class State(StrEnum):
    """The state of a ticket."""

    PLACING = "placing"
    WAITING = "waiting"
    FIRST = "first"
    SHIFTED = "shifted"
    STALE = "stale"
    FREED = "freed"
    ABORTED = "aborted"


class Happening(StrEnum):
    """An event of a ticket; the values are the diagram's labels."""

    TAKEN = "number taken, try the next"
    PLACED_BEHIND = "placed behind other tickets"
    PLACED_FIRST = "placed ahead of all"
    REACHED = "no ticket is ahead"
    OVERTAKEN = "overtaken by a late create"
    GAVE_WAY = "in a cycle, youngest of it"
    STEPPED_BACK = "earlier tickets exist"
    COMMITTED = "committed"
    SWEPT = "no sign of life for a lease"
    WOKE = "owner woke"
    ENDED = "owner ended, finished by another client"
    ABORTED = "aborted"


INITIAL = State.PLACING

#: All transitions: the next state by state and event.
TRANSITIONS: Mapping[State, Mapping[Happening, State]] = {
    State.PLACING: {
        Happening.TAKEN: State.PLACING,
        Happening.PLACED_BEHIND: State.WAITING,
        Happening.PLACED_FIRST: State.FIRST,
        Happening.ABORTED: State.ABORTED,
    },
    State.WAITING: {
        Happening.REACHED: State.FIRST,
        Happening.GAVE_WAY: State.SHIFTED,
        Happening.COMMITTED: State.FREED,
        Happening.SWEPT: State.STALE,
        Happening.ABORTED: State.ABORTED,
    },
    State.FIRST: {
        Happening.OVERTAKEN: State.WAITING,
        Happening.STEPPED_BACK: State.FREED,
        Happening.GAVE_WAY: State.SHIFTED,
        Happening.COMMITTED: State.FREED,
        Happening.SWEPT: State.STALE,
        Happening.ABORTED: State.ABORTED,
    },
    State.SHIFTED: {
        Happening.TAKEN: State.SHIFTED,
        Happening.PLACED_BEHIND: State.WAITING,
        Happening.PLACED_FIRST: State.FIRST,
        Happening.ABORTED: State.ABORTED,
    },
    State.STALE: {
        Happening.WOKE: State.PLACING,
        Happening.ENDED: State.FREED,
        Happening.ABORTED: State.ABORTED,
    },
    State.FREED: {},
    State.ABORTED: {},
}

TERMINAL = frozenset(state for state, row in TRANSITIONS.items() if not row)


class InvalidTransition(AssertionError):
    """The error of an event that a ticket's state does not allow.

    It shows a bug in the library: no user's input and no content of a store leads to it.
    """

    def __init__(self, state: State, event: Happening) -> None:
        allowed = ", ".join(e.name for e in TRANSITIONS[state]) or "nothing"
        super().__init__(f"a ticket that is {state} allows {allowed}, not {event.name}")
        self.state = state
        self.event = event

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.state, self.event))


def advance(state: State, event: Happening) -> State:
    """Return the state after ``event``.

    Raises
    ------
    InvalidTransition
        The event does not fit this state, which stays unchanged.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise InvalidTransition(state, event) from None


# ------------------------------------------------------- who goes before whom


def passes(ours: Access, theirs: Access) -> bool:
    """Return whether two accesses may be concurrent: reads pass reads, appends pass appends.

    An append does not pass a read: when the reader commits, the table must still have exactly the
    rows that it has read.
    """
    return ours == theirs and ours != "write"


def covers(held: Access, wanted: Access) -> bool:
    """Return whether a ticket for ``held`` is sufficient for ``wanted`` as well.

    A write lets no other access pass, so it covers everything. A read lets reads pass and an append
    lets appends pass, so neither covers the other.
    """
    return held in ("write", wanted)


def ahead(mine: Ticket, others: Iterable[Present], txn: str) -> list[Present]:
    """Return the markers of one table that ``txn`` waits for with ticket ``mine``, lowest first.

    An unreadable marker counts as a writer's: to wait for it in vain costs a lease, to pass a
    writer costs a redo.
    """
    before = [present for present in others if present[0].number < mine.number]
    found = [present for present in before if _is_before(mine, present, txn)]
    return sorted(found, key=lambda present: present[0].number)


def _is_before(mine: Ticket, present: Present, txn: str) -> bool:
    marker = present[1]
    if isinstance(marker, Unreadable):
        return True  # counts as a writer, which no access passes
    return marker.txn != txn and not passes(mine.access, marker.access)
