"""Views for tests of queues: markers and records in the store, and the events of waiters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import lakevilla as lv
from lakevilla.global_log.head import Head
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.markers.repo import list_markers
from lakevilla.store.effects import list_objects
from lakevilla.sublogs.record import TXNS_PREFIX
from tests.support.inside import inside
from tests.support.places import Place

T = TypeVar("T")

R, CT, I = lv.Feature.R, lv.Feature.CT, lv.Feature.I  # noqa: E741
QUEUED = {"CT": CT, "R|CT": R | CT, "R|CT|I": R | CT | I}

#: Poll often; the lease is long enough that a live client renews it in any test.
QUICK = lv.Settings(
    lease_seconds=30.0,
    wait_poll_seconds=0.02,
    wait_poll_cap_seconds=0.05,
    retry_base_seconds=0.005,
    retry_cap_seconds=0.05,
)

#: The time that a test waits for a waiter before it fails as stuck.
PATIENCE_SECONDS = 60.0


def tickets(lake: lv.Lake, table: str) -> list[int]:
    """Return the numbers of a table's markers."""
    return [one.number for one in inside(lake).run(list_markers(table))]


def records(lake: lv.Lake) -> list[str]:
    """Return the records and saved sublogs, without the objects that only show the store's time."""
    keys = [info.key for info in inside(lake).run(list_objects(TXNS_PREFIX))]
    return [key for key in keys if not key.endswith(f"/{TIME_NAME}")]


def left_over(lake: lv.Lake, *tables: str) -> list[str]:
    """Return the markers and records that are left in the store."""
    markers = [f"{table}: {number}" for table in tables for number in tickets(lake, table)]
    return markers + records(lake)


def head_of(place: Place) -> Head:
    with place.connect() as lake:
        held = inside(lake).run(inside(lake).context.head())
    assert held is not None
    return held.head


class Told:
    """An ``on_event`` that stores events, and on which another thread can wait."""

    def __init__(self) -> None:
        self.events: list[lv.Event] = []
        self._more = threading.Condition()

    def __call__(self, event: lv.Event) -> None:
        with self._more:
            self.events.append(event)
            self._more.notify_all()

    def of(self, kind: str) -> list[lv.Event]:
        with self._more:
            return [event for event in self.events if event.kind == kind]

    def wait(self, kind: str, is_it: Callable[[lv.Event], bool] = lambda event: True) -> lv.Event:
        """Return the first event of a kind; wait until it occurs."""
        found: list[lv.Event] = []

        def told() -> bool:
            found[:] = [event for event in self.events if event.kind == kind and is_it(event)]
            return bool(found)

        with self._more:
            assert self._more.wait_for(told, PATIENCE_SECONDS), f"nobody was told of {kind}"
        return found[0]


@contextmanager
def beside(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Run ``work`` in another thread, which has ended when the block is left."""
    pool = ThreadPoolExecutor(1)
    try:
        future = pool.submit(work)
        yield future
        future.result(PATIENCE_SECONDS)
    finally:
        pool.shutdown(wait=False)


def in_another_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in another thread, as another client would: no thread waits for itself."""
    with beside(work) as ended:
        return ended.result(PATIENCE_SECONDS)
