"""Combined commits on purpose: transactions of threads that share one global version."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside

Work = Callable[[lv.Transaction], object]
SECONDS = 20


class Held(WrappedStore):
    """A store whose next replacement of HEAD waits until ``go_on`` is set."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.is_there = threading.Event()
        self.go_on = threading.Event()

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.endswith("HEAD.json") and not self.is_there.is_set():
            self.is_there.set()
            assert self.go_on.wait(SECONDS)
        return super().put(key, body, condition)


def until(there: Callable[[], bool]) -> None:
    """Wait until something holds, for as long as a test may."""
    deadline = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def in_group(lake: lv.Lake) -> int:
    """Return how many transactions wait to be performed together, their leader included."""
    return len(inside(lake).context.groups.named("combine").present(1000))


def combine(lake: lv.Lake, first: Work, *works: Work, **options: Any) -> list[lv.Transaction]:
    """Commit ``first`` alone, and the others in one commit, in their order; return all.

    The first is held at its replacement of HEAD until all others wait. An error of one of them is
    its own: ``state`` of its transaction shows it.
    """
    store = inside(lake).store
    inside(lake).store = held = Held(store)
    begun: list[lv.Transaction] = []

    def commit(work: Work) -> None:
        with suppress(lv.LakeVillaError), lake.transaction(defer=True, **options) as txn:
            begun.append(txn)
            work(txn)

    threads: list[threading.Thread] = []
    try:
        for number, work in enumerate((first, *works), 1):
            threads.append(threading.Thread(target=commit, args=(work,)))
            threads[-1].start()
            until(lambda number=number: in_group(lake) == number)  # type: ignore[misc]
            if number == 1:
                assert held.is_there.wait(SECONDS)
    finally:
        held.go_on.set()
        for thread in threads:
            thread.join(SECONDS)
        inside(lake).store = store
    assert not any(thread.is_alive() for thread in threads)
    return begun


def adds(number: int, where: str = "id = 1", table: str = "a") -> Work:
    """Return a function that adds a number to ``n`` of some rows."""
    return lambda txn: txn.update(table, {"n": f"n + {number}"}, where=where)
