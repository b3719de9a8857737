"""Locks and objects that stay usable in forked children, which lack their parent's threads.

In a forked child, a lock that another thread of the parent held at the fork is never released, and
closing an object that waits for the parent's threads never ends. So locks that outlive a
transaction are made by this module, which frees them in the child. It also keeps the objects that
the child must not close alive there, unused, including garbage that the child's collector would
close.
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

    In the child, the data that the lock guards may be half changed: use it only if that does no
    harm.
    """
    made = threading.Lock()
    _LOCKS.add(made)
    return made


def not_closed_in_child(thing: T) -> T:
    """Keep ``thing`` alive in every forked child, for the child's whole life."""
    _NOT_CLOSED.add(thing)
    return thing


def _after_fork() -> None:
    for one in list(_LOCKS):
        one._at_fork_reinit()
    # The set also has garbage that the collector has not taken yet; from now on it never will.
    _kept.extend(_NOT_CLOSED)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
