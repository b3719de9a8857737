"""Locks and objects for forked children, which have none of their parent's threads.

A lock that another thread held at the fork is held in the child for ever. To close an object that
threads of the parent work for waits for these threads in the child. So locks that outlive a
transaction are made here, and the child finds them free. The child keeps the objects that it must
not close, unused, including those that were garbage already and would be collected there.
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
    """Return a lock that is free in a forked child.

    The data that it guards may be half changed there: use it only where that does no harm.
    """
    made = threading.Lock()
    _LOCKS.add(made)
    return made


def not_closed_in_child(thing: T) -> T:
    """Keep ``thing`` alive as long as any forked child is."""
    _NOT_CLOSED.add(thing)
    return thing


def _after_fork() -> None:
    for one in list(_LOCKS):
        one._at_fork_reinit()
    # Garbage that waits for the collector is still in the set: now it is never collected.
    _kept.extend(_NOT_CLOSED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
