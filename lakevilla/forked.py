"""What a forked child must not wait for, and must not end: it has none of its parent's threads.

A lock that another thread held at the fork is held in the child for ever, and to close what
threads of the parent work for waits for them there. So locks that outlive a transaction are made
here, and the child finds them free; and what it must not close it keeps, unused, also what was
already garbage and is collected there.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, TypeVar

T = TypeVar("T")

_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
_NOT_CLOSED: weakref.WeakSet[Any] = weakref.WeakSet()
_kept: list[Any] = []


def lock() -> threading.Lock:
    """A lock that is free in a forked child.

    What it guards may be half changed there: only where that does no harm.
    """
    made = threading.Lock()
    _LOCKS.add(made)
    return made


def not_closed_in_child(thing: T) -> T:
    """Have ``thing`` live as long as any forked child does."""
    _NOT_CLOSED.add(thing)
    return thing


def _after_fork() -> None:
    for one in list(_LOCKS):
        one._at_fork_reinit()
    # Garbage that waits for the collector is still in the set: now nobody collects it.
    _kept.extend(_NOT_CLOSED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
