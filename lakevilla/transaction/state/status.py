"""The states of a transaction, and the events that each state allows.

The rules:

1. A transaction is ``open`` until its commit point is stored, or it can't commit any more.
2. After an error that leaves it unable to go on, it has ``failed``, for good. A later error may say
   that it may have committed after all.
3. ``committed`` is noted when HEAD or the log entry has the commit, and once more when the versions
   of its tables are known.
4. An open or failed transaction can be ``aborted``. ``committed`` and ``aborted`` are final.

There is no state for a transaction that may have committed, because the store gave no answer at its
commit point: ``Ending.is_in_doubt`` shows that.

Nothing here does I/O. The picture in ``docs/images/transaction-states.svg`` shows the table; a
test compares its arrows with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """The state of a transaction; users see the values."""

    OPEN = "open"
    FAILED = "failed"
    COMMITTED = "committed"
    ABORTED = "aborted"


class StatusEvent(StrEnum):
    """An event that changes a transaction's state; the values are the diagram's labels."""

    FAILS = "a conflict, a fence, or an unknown outcome"
    COMMITS = "its commit point is stored"
    IS_PUBLISHED = "its versions are known"
    ABORTS = "its caller, or the client that runs it again"


#: Every transition that exists.
TRANSITIONS: Mapping[Status, Mapping[StatusEvent, Status]] = {
    Status.OPEN: {
        StatusEvent.FAILS: Status.FAILED,
        StatusEvent.COMMITS: Status.COMMITTED,
        StatusEvent.ABORTS: Status.ABORTED,
    },
    Status.FAILED: {
        StatusEvent.FAILS: Status.FAILED,
        StatusEvent.ABORTS: Status.ABORTED,
    },
    Status.COMMITTED: {
        StatusEvent.IS_PUBLISHED: Status.COMMITTED,
    },
    Status.ABORTED: {},
}

#: The final states: none of them allows a change to another state.
TERMINAL = frozenset({Status.COMMITTED, Status.ABORTED})


class InvalidTransition(AssertionError):
    """An event that the state does not allow: a bug in the code, never caused by stored data."""

    def __init__(self, status: Status, event: StatusEvent) -> None:
        allowed = ", ".join(e.name for e in TRANSITIONS[status]) or "nothing"
        super().__init__(f"a transaction that is {status} allows {allowed}, not {event.name}")


def advance(status: Status, event: StatusEvent) -> Status:
    """Return the state that follows after an event.

    Raises
    ------
    InvalidTransition
        The state does not allow the event.
    """
    try:
        return TRANSITIONS[status][event]
    except KeyError:
        raise InvalidTransition(status, event) from None
