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
test compares its arrows with the output of ``diagram``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Life(StrEnum):
    """The state of a transaction in its life; users see the values."""

    OPEN = "open"
    FAILED = "failed"
    COMMITTED = "committed"
    ABORTED = "aborted"


class LifeEvent(StrEnum):
    """An event in the life of a transaction; the values are the diagram's labels."""

    FAILS = "a conflict, a fence, or an unknown outcome"
    COMMITS = "its commit point is stored"
    IS_PUBLISHED = "its versions are known"
    ABORTS = "its caller, or the client that runs it again"


#: Every transition that exists.
TRANSITIONS: Mapping[Life, Mapping[LifeEvent, Life]] = {
    Life.OPEN: {
        LifeEvent.FAILS: Life.FAILED,
        LifeEvent.COMMITS: Life.COMMITTED,
        LifeEvent.ABORTS: Life.ABORTED,
    },
    Life.FAILED: {
        LifeEvent.FAILS: Life.FAILED,
        LifeEvent.ABORTS: Life.ABORTED,
    },
    Life.COMMITTED: {
        LifeEvent.IS_PUBLISHED: Life.COMMITTED,
    },
    Life.ABORTED: {},
}

#: From these states on nothing that the transaction has written can change.
TERMINAL = frozenset({Life.COMMITTED, Life.ABORTED})


class InvalidLife(AssertionError):
    """An error of the protocol, never of its input: nothing that is stored leads here."""

    def __init__(self, life: Life, event: LifeEvent) -> None:
        allowed = ", ".join(e.name for e in TRANSITIONS[life]) or "nothing"
        super().__init__(f"a transaction that is {life} allows {allowed}, not {event.name}")


def advance(life: Life, event: LifeEvent) -> Life:
    """Return the state that follows.

    Raises
    ------
    InvalidLife
        There is no such transition.
    """
    try:
        return TRANSITIONS[life][event]
    except KeyError:
        raise InvalidLife(life, event) from None


def diagram() -> str:
    """Return the table as a mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {Life.OPEN}"]
    for life, row in TRANSITIONS.items():
        lines += [f"    {life} --> {target}: {event}" for event, target in row.items()]
    lines += [f"    {life} --> [*]" for life in TRANSITIONS if life in TERMINAL]
    return "\n".join(lines) + "\n"
