"""The life of a transaction, as a table of states, and the actions that each state allows.

The rules:

1. It is ``open`` until its commit point has decided, or it can't commit any more.
2. After an error on which nothing can be built it has ``failed``, for good. A later error may say
   more exactly what that means: that it may have committed after all.
3. ``committed`` is reported once by HEAD or by the log entry, and once more with the versions that
   its tables have then.
4. Open or failed, it can be ``aborted``. Committed and aborted are for ever.

Whether it may have committed is no state of it: then its commit point was tried and no answer
shows the outcome (``Ending.is_in_doubt``).

Nothing here does I/O. The picture in ``docs/images/transaction-states.svg`` shows the table; a
test compares its arrows with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """The state of a transaction in its life; users see the values."""

    OPEN = "open"
    FAILED = "failed"
    COMMITTED = "committed"
    ABORTED = "aborted"


class StatusEvent(StrEnum):
    """An event in the life of a transaction; the values are the diagram's labels."""

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

#: From these states on nothing that the transaction has written can change.
TERMINAL = frozenset({Status.COMMITTED, Status.ABORTED})


class InvalidTransition(AssertionError):
    """An error of the protocol, never of its input: nothing that is stored leads here."""

    def __init__(self, status: Status, event: StatusEvent) -> None:
        allowed = ", ".join(e.name for e in TRANSITIONS[status]) or "nothing"
        super().__init__(f"a transaction that is {status} allows {allowed}, not {event.name}")


def advance(status: Status, event: StatusEvent) -> Status:
    """Return the state that follows.

    Raises
    ------
    InvalidTransition
        There is no such transition.
    """
    try:
        return TRANSITIONS[status][event]
    except KeyError:
        raise InvalidTransition(status, event) from None
