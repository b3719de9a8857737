"""Eight processes that write two tables on a server at once, of whom one is killed each second.

No reader sees a transaction in one of the tables alone, and nothing acknowledged is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakevilla as lv
from tests.fixtures.servers import Server
from tests.integration.processes.crowds import OTHER, TABLE, Crowd
from tests.support.places import Place
from tests.support.search import SOAK, how_many

SECONDS = how_many(5, whole=60, soak=600)
PROCESSES = 8

pytestmark = [pytest.mark.night, pytest.mark.timeout(0 if SOAK else 400)]


def rows_of(lake: lv.Lake) -> set[int]:
    """Return the rows of a snapshot, which both of its tables have."""
    with lake.snapshot() as now:
        one, other = (set(now.read(table)["id"].to_pylist()) for table in (TABLE, OTHER))
    assert one == other, "the snapshot is torn"
    return one


@contextmanager
def reading(place: Place) -> Iterator[None]:
    """Read snapshots all the while, each of which has all that the one before it has."""
    stop = threading.Event()

    def read() -> int:
        looks, seen = 0, set[int]()
        with place.connect() as lake:
            while not stop.is_set() or looks < 3:
                found = rows_of(lake)
                assert seen <= found, "a row that was seen is gone"
                looks, seen = looks + 1, found
        return looks

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield
        finally:
            stop.set()
        assert reader.result() >= 3


def test_killed_processes_tear_no_snapshot_and_lose_no_acknowledged_row(
    server: Server, tmp_path: Path
) -> None:
    place = Place(server.new_root(), server.storage_options)
    with place.connect() as lake:
        lake.create_table(TABLE, {"id": [0], "n": [0]})
        lake.create_table(OTHER, {"id": [0], "n": [0]}, format="iceberg")
    crowd = Crowd(place, tmp_path)
    with reading(place):
        crowd.run([None] * PROCESSES, SECONDS, works=["pair"])
    with place.connect() as lake:
        crowd.check(lake)
        assert rows_of(lake) >= set(crowd.numbers("committed"))
    assert len(crowd.everyone) > PROCESSES, "some were killed"
    assert crowd.numbers("committed")
