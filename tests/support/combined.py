"""Combined commits on purpose: transactions of threads that share one global version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.transaction.commit.together.combine import _group_of
from lakevilla.transaction.commit.together.crowd import commits_of
from tests.support.inside import inside

Work = Callable[[lv.Transaction], object]
SECONDS = 20


class Held(WrappedStore):
    """A store whose next replacement of HEAD waits until ``go_on`` is set.

    Before the one after it, ``meanwhile`` is called.
    """

    def __init__(self, store: Any, meanwhile: Callable[[], object]) -> None:
        super().__init__(store)
        self.is_there = threading.Event()
        self.go_on = threading.Event()
        self.meanwhile = [meanwhile]

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.endswith("HEAD.json"):
            if not self.is_there.is_set():
                self.is_there.set()
                assert self.go_on.wait(SECONDS)
            elif self.meanwhile:
                self.meanwhile.pop()()
        return super().put(key, body, condition)


def until(there: Callable[[], bool]) -> None:
    """Wait until something holds, for as long as a test may."""
    deadline = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def waiting(lake: lv.Lake) -> int:
    """Return how many commits wait for HEAD, their leader included."""
    return len(commits_of(inside(lake).context).present(1000))


def in_group(lake: lv.Lake) -> int:
    """Return how many transactions wait to be performed together, their leader included."""
    return len(_group_of(inside(lake).context).present(1000))


class Group:
    """Threads that commit transactions, the first of which is held at its replacement of HEAD."""

    def __init__(self, lake: lv.Lake, options: dict[str, Any]) -> None:
        self.lake, self.options = lake, options
        self.begun: list[lv.Transaction] = []
        self.threads: list[threading.Thread] = []

    def start(self, work: Work) -> None:
        """Start a thread that commits a transaction, and wait until it waits for the others."""
        self.threads.append(threading.Thread(target=self._commit, args=(work,)))
        self.threads[-1].start()
        until(lambda: in_group(self.lake) == len(self.threads))

    def _commit(self, work: Work) -> None:
        options = {"defer": True, **self.options}
        with suppress(lv.LakeVillaError), self.lake.transaction(**options) as txn:
            self.begun.append(txn)
            work(txn)


@contextmanager
def held(
    lake: lv.Lake, first: Work, *, meanwhile: Callable[[], object] = list, **options: Any
) -> Iterator[Group]:
    """Hold the first transaction of a group until the block ends; then wait for all of them.

    ``meanwhile`` is called before the others replace HEAD.
    """
    store = inside(lake).store
    inside(lake).store = holding = Held(store, meanwhile)
    group = Group(lake, options)
    try:
        group.start(first)
        assert holding.is_there.wait(SECONDS)
        yield group
    finally:
        holding.go_on.set()
        for thread in group.threads:
            thread.join(SECONDS)
        inside(lake).store = store
    assert not any(thread.is_alive() for thread in group.threads)


def combine(lake: lv.Lake, first: Work, *works: Work, **options: Any) -> list[lv.Transaction]:
    """Commit ``first`` alone, and the others in one commit, in their order; return all.

    ``options`` are those of ``held`` and of ``lake.transaction``. An error of one of them is its
    own: ``state`` of its transaction shows it.
    """
    with held(lake, first, **options) as group:
        for work in works:
            group.start(work)
    return group.begun


def adds(number: int, where: str = "id = 1", table: str = "a") -> Work:
    """Return a function that adds a number to ``n`` of some rows."""
    return lambda txn: txn.update(table, {"n": f"n + {number}"}, where=where)
