"""Objects that this process caches, since they never change."""

from __future__ import annotations

import dataclasses
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Generator, Hashable
from typing import TypeVar

from blake3 import blake3

from lakevilla.forked import lock
from lakevilla.store.effects import Effect, Get, Parallel, Program, exchanged

# -------------------- objects
#
# The one cache of a process, and each lake's part of it.


#: The ending of the names of immutable objects.
_HASHED = re.compile(
    r"[-/]([0-9a-f]{32})(?:\.(?:json|parquet|puffin)|/deletion_vector_[0-9a-f-]{36}\.bin)$"
)
#: The size of an entry besides its value.
_ENTRY_BYTES = 400
#: Data files up to this size are read whole, by one request, and cached when they are written.
SMALL_FILE_BYTES = 1024 * 1024
#: The limit of a client that shares with no other: in tests and in the simulator.
_ALONE_BYTES = 64 * 1024 * 1024


def names_content(key: str) -> bool:
    """Return whether a key carries a hash, of its body unless that is damaged."""
    return _HASHED.search(key) is not None


def is_content(key: str, body: bytes) -> bool:
    """Return whether a key carries the hash of this body: a damaged body is not cached."""
    found = _HASHED.search(key)
    return found is not None and blake3(body).hexdigest(length=len(found[1]) // 2) == found[1]


class Budget:
    """Values by place and key, the last used ones, up to a number of bytes.

    The number is the largest that any of its sharers has requested, and is determined again each
    time a value is added. Nothing is kept once no sharer is left. Threads share it. A forked child
    begins with an empty one: its parent's may have been half changed at the fork.
    """

    def __init__(self) -> None:
        self._lock = lock()
        self._sharing: weakref.WeakKeyDictionary[CachedObjects, int] = weakref.WeakKeyDictionary()
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._entries: OrderedDict[tuple[Hashable, str], tuple[object, int]] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """The approximate size of all kept values."""
        return self._bytes

    def join(self, member: CachedObjects, limit_bytes: int) -> None:
        with self._lock:
            self._sharing[member] = limit_bytes

    def leave(self, member: CachedObjects) -> None:
        with self._lock:
            self._sharing.pop(member, None)
            self._shrink()

    def get(self, place: Hashable, key: str) -> object | None:
        with self._lock:
            if self._process != os.getpid():
                self._forget()
            found = self._entries.get((place, key))
            if found is None:
                return None
            self._entries.move_to_end((place, key))
            return found[0]

    def keep(self, place: Hashable, key: str, value: object, size: int) -> None:
        with self._lock:
            if self._process != os.getpid():
                self._forget()
            before = self._entries.pop((place, key), None)
            self._bytes += size + _ENTRY_BYTES - (0 if before is None else before[1])
            self._entries[(place, key)] = (value, size + _ENTRY_BYTES)
            self._shrink()

    def _shrink(self) -> None:
        limit = max(self._sharing.values(), default=0)
        while self._entries and self._bytes > limit:
            _, (_, size) = self._entries.popitem(last=False)
            self._bytes -= size


#: The budget of all lakes that this process has open.
OF_PROCESS = Budget()
#: The budget of the small data files that they have written.
FILES_OF_PROCESS = Budget()


class CachedObjects:
    """The cached immutable objects of one lake, by their keys.

    Parameters
    ----------
    place : Hashable, optional
        Distinguishes one store and root from all others. Not given: shared with no other lake.
    limit_bytes : int
        The budget that this lake requests.
    budget : Budget, optional
        The budget that it shares with other lakes. Not given: one of its own.
    """

    def __init__(
        self,
        place: Hashable = None,
        limit_bytes: int = _ALONE_BYTES,
        budget: Budget | None = None,
    ) -> None:
        self._place, self._limit_bytes = place, limit_bytes
        self._budget = budget or Budget()
        self._budget.join(self, limit_bytes)

    def get(self, key: str) -> object | None:
        return self._budget.get(self._place, key)

    def keep(self, key: str, value: object, size: int) -> None:
        """Keep a value of about ``size`` bytes, in place of those that were not used for long."""
        self._budget.join(self, self._limit_bytes)  # a lake can be used after it was closed
        self._budget.keep(self._place, key, value, size)

    def leave(self) -> None:
        """Request no budget any more: the lake is closed."""
        self._budget.leave(self)


# -------------------- fresh
#
# Programs that must know what the store contains, independently of the cache.


T = TypeVar("T")


def fresh(program: Program[T]) -> Program[T]:
    """Return a program that is given no object from the cache."""
    return exchanged(program, _asked)


def _asked(effect: Effect) -> Effect:
    if isinstance(effect, Parallel):
        return Parallel(
            tuple(
                fresh(part) if isinstance(part, Generator) else _asked(part)
                for part in effect.parts
            )
        )
    if isinstance(effect, Get) and effect.immutable:
        return dataclasses.replace(effect, immutable=False)
    return effect
