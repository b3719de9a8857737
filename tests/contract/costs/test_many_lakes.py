"""A process with fifty open lakes has a few threads for them, and one client of their store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.fixtures.servers import SERVERS, Server, Servers
from tests.support.inside import inside
from tests.support.places import Place

QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I
LIMIT_SECONDS = 30.0

#: Opens fifty lakes, commits to each in each way, and leaves a transaction of each open.
FIFTY = """
import json, os, sys, threading
import lakevilla as lv

root, options = sys.argv[1], json.loads(sys.argv[2])
settings = lv.Settings(lease_seconds=30.0)
lakes = [
    lv.connect(f"{root}/lake{n}", storage_options=options or None, settings=settings)
    for n in range(50)
]
most = 0
for lake in lakes:
    lake.create_table("orders", [{"id": 1}])
    with lake.transaction(wait="decided") as txn:
        txn.append("orders", [{"id": 2}])
    txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
    txn.overwrite("orders", [{"id": 3}])
    lake.kept = txn
    most = max(most, threading.active_count())
descriptors = [os.path.join("/proc/self/fd", one) for one in os.listdir("/proc/self/fd")]
links = [os.readlink(one) for one in descriptors if os.path.lexists(one)]
print(json.dumps([most, sum(one.startswith("socket") for one in links)]))
for lake in lakes:
    lake.kept.abort()
    lake.close()
"""


def run(script: str, place: Place) -> str:
    process = subprocess.run(
        [sys.executable, "-c", script, place.root, json.dumps(place.storage_options)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


@pytest.fixture
def quickest(servers: Servers) -> Server:
    return servers[SERVERS[0]]


def test_fifty_lakes_of_a_directory_have_a_few_threads(tmp_path: Path) -> None:
    most, sockets = json.loads(run(FIFTY, Place(str(tmp_path))))
    assert most <= 8, "the clock's thread and those that work; there were three for each lake"
    assert sockets == 0


@pytest.mark.skipif(sys.platform != "linux", reason="counts the sockets in /proc")
def test_fifty_lakes_of_an_endpoint_have_a_few_threads_and_connections(quickest: Server) -> None:
    most, sockets = json.loads(run(FIFTY, Place(quickest.new_root(), quickest.storage_options)))
    assert most <= 8
    assert sockets <= 32, "there were five for each lake"


class Hanging(WrappedStore):
    """A store whose replacements of records are not answered until ``answers`` is set."""

    def __init__(self, lake: lv.Lake) -> None:
        super().__init__(inside(lake).store)
        self.answers = threading.Event()
        self.hangs = threading.Event()
        inside(lake).store = self

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.startswith("_lakevilla/txns/") and self.hangs.is_set():
            assert self.answers.wait(LIMIT_SECONDS)
        return super().put(key, body, condition)


class Counting(WrappedStore):
    """A store that counts replacements of records."""

    def __init__(self, lake: lv.Lake) -> None:
        super().__init__(inside(lake).store)
        self._written = threading.Semaphore(0)
        inside(lake).store = self

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        outcome = super().put(key, body, condition)
        if key.startswith("_lakevilla/txns/"):
            self._written.release()
        return outcome

    def until_written(self, times: int) -> None:
        for _ in range(times):
            assert self._written.acquire(timeout=LIMIT_SECONDS)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str], lv.Lake]]:
    """Return a function that opens a lake with a table and a short lease."""
    lakes: list[lv.Lake] = []

    def open_lake(name: str) -> lv.Lake:
        lake = lv.connect(tmp_path / name, settings=lv.Settings(lease_seconds=0.3))
        lake.create_table("orders", [{"id": 1}])
        lakes.append(lake)
        return lake

    yield open_lake
    for lake in lakes:
        lake.close()


def begin(lake: lv.Lake) -> lv.Transaction:
    txn = lake.transaction(QUEUED)
    txn.overwrite("orders", [{"id": 2}])
    return txn


def test_a_lake_whose_store_hangs_delays_no_renewal_of_other_lakes(
    opened: Callable[[str], lv.Lake],
) -> None:
    hanging = []
    for number in range(5):
        lake = opened(f"hangs{number}")
        store = Hanging(lake)
        hanging.append((store, begin(lake)))
        store.hangs.set()
    lake = opened("works")
    counting = Counting(lake)
    txn = begin(lake)
    counting.until_written(4)  # the first when it began, and three renewals
    txn.commit()
    for store, other in hanging:
        store.answers.set()
        store.hangs.clear()
        other.abort()


def test_closing_a_lake_disturbs_no_transaction_of_another_lake(quickest: Server) -> None:
    """Both lakes have one client of their store, and are renewed by the same threads."""
    place, other = (Place(quickest.new_root(), quickest.storage_options) for _ in range(2))
    settings = lv.Settings(lease_seconds=3.0)
    with place.connect(settings=settings) as lake:
        lake.create_table("orders", [{"id": 1}])
        closed = other.connect(settings=settings)
        closed.create_table("orders", [{"id": 1}])
        left = begin(closed)
        txn = begin(lake)
        counting = Counting(lake)
        closed.close()
        del closed
        counting.until_written(2)
        assert txn.read("orders")["id"].to_pylist() == [2]
        txn.commit()
        assert lake.snapshot().read("orders")["id"].to_pylist() == [2]
        assert left.state == "open"


#: Leaves a lake open whose last commit was to be published in the background.
LEAVING = """
import sys
import lakevilla as lv

lake = lv.connect(sys.argv[1])
for number in range(3):
    with lake.transaction(wait="decided") as txn:
        txn.append("orders", [{"id": number}])
"""

#: Commits in a thread that goes on when the main thread has ended.
IN_A_THREAD = """
import sys, threading
import lakevilla as lv

lake = lv.connect(sys.argv[1], settings=lv.Settings(lease_seconds=0.3))

def work():
    threading.main_thread().join()
    for number in range(3):
        with lake.transaction(wait="decided") as txn:
            txn.append("orders", [{"id": number}])

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("script", [LEAVING, IN_A_THREAD], ids=["main thread", "another thread"])
def test_a_process_that_leaves_its_lake_open_publishes_what_it_has_decided(
    tmp_path: Path, script: str
) -> None:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        lake.create_table("orders", [{"id": 9}])
    assert run(script, place) == ""
    # Commits that are pending together may share an entry.
    assert sorted(place.delta("orders").to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 9]
