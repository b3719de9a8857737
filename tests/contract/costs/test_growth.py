"""Numbers of requests that do not grow with a lake's history."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.effects import Program
from lakevilla.store.runner import Requests
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost


def append(lake: lv.Lake, features: lv.Feature, times: int) -> None:
    for _ in range(times):
        lake.run(lambda txn: txn.append("t", accounts(1)), features=features)


def cold_read(place: Place) -> Requests:
    with place.connect() as lake:
        return cost(lake, lambda: lake.table("t").version)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R], ids=["NONE", "R"])
def test_opening_a_table_costs_no_more_requests_after_many_commits_by_log_entry(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        append(lake, features, 30)
        few = cold_read(local_place)
        append(lake, features, 100)
    many = cold_read(local_place)
    assert many.get <= few.get + 3  # a checkpoint and the pointer to it
    assert (many.put, many.list) == (few.put, few.list)


def test_a_background_thread_that_is_late_writes_only_the_newest_checkpoint(
    local_place: Place,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Program[object]:
        yield from ()
        begun.set()
        go_on.wait()
        return None

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        inside(lake).client._soon(slow)
        begun.wait()
        append(lake, lv.Feature.NONE, 310)
        go_on.set()
    log = Path(local_place.root) / "t" / "_delta_log"
    assert [path.name for path in log.glob("*.checkpoint.parquet")] == [
        f"{310:020}.checkpoint.parquet"
    ]
