"""``optimize(features=)``: by the API, SQL, the command line and maintain, on both formats."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.traces import cost

QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I
FORMATS = pytest.mark.parametrize("format", ["delta", "iceberg"])


@pytest.fixture
def place(quick_place: Place) -> Place:
    return quick_place


def small_files(lake: lv.Lake, format: str, **options: object) -> None:
    lake.create_table("t", [{"id": 0}], format=format, **options)  # type: ignore[arg-type]
    for number in range(1, 4):
        lake.run(lambda txn, number: txn.append("t", [{"id": number}]), number)


def by_method(lake: lv.Lake) -> None:
    assert lake.table("t").optimize(features=QUEUED).files_removed == 4


def by_sql(lake: lv.Lake) -> None:
    with lake.session(features=QUEUED) as session:
        session.sql("OPTIMIZE t")


def by_maintain(lake: lv.Lake) -> None:
    properties = {"lakevilla.optimize.small_files": 3, "lakevilla.optimize.queued": True}
    lake.run(lambda txn: txn.alter("t", set_properties=properties))
    assert lake.maintain(["optimize"]).ok


@FORMATS
@pytest.mark.parametrize("work", [by_method, by_sql, by_maintain])
def test_an_optimize_in_a_queue_waits_for_the_transaction_ahead_and_gives_up_no_file(
    place: Place, format: str, work: Callable[[lv.Lake], None]
) -> None:
    waits: list[str] = []
    with place.connect() as lake, place.connect() as other:
        small_files(lake, format)
        ahead = other.transaction(QUEUED)
        ahead.update("t", {"id": "id + 10"}, where="id = 3")

        def ends(event: lv.Event) -> None:
            if event.kind == "waiting" and not waits:
                waits.append(event.message)
                ahead.commit()

        with place.connect(on_event=ends) as queued:
            work(queued)
        assert len(waits) == 1
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1, 2, 13]
        assert lake.table("t").optimize().files_removed == 0
        assert not lake.transactions()
        assert lake.doctor().ok


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R, 7, "CT"])
def test_features_with_which_an_optimize_cannot_commit_are_refused(
    place: Place, features: object
) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        with pytest.raises(lv.InvalidOperation, match="with I or CT"):
            lake.table("t").optimize(features=features)  # type: ignore[arg-type]


def test_an_optimize_in_a_queue_is_refused_on_a_branch(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        lake.branch("etl")
        with pytest.raises(lv.InvalidOperation, match="has no queues"):
            lake.on("etl").table("t").optimize(features=QUEUED)


@pytest.mark.parametrize(
    ("format", "requests"),
    [("delta", Requests(get=5, put=4)), ("iceberg", Requests(get=11, put=11))],
)
def test_a_plain_optimize_takes_no_place_and_saves_nothing(
    local_place: Place, format: str, requests: Requests
) -> None:
    with local_place.connect() as lake:
        small_files(lake, format)
        assert cost(lake, lambda: lake.table("t").optimize()) == requests


_DIES = """
import os, sys
import lakevilla as lv
from lakevilla.transaction.verbs import optimize

saves = optimize.save

def save(txn):
    yield from saves(txn)
    os._exit(9)

optimize.save = save
lake = lv.connect(sys.argv[1], settings=lv.Settings(lease_seconds=0.5))
lake.table("t").optimize(features=lv.Feature.R | lv.Feature.CT | lv.Feature.I)
"""


@FORMATS
@pytest.mark.cases(1)
@pytest.mark.parametrize("way", ["optimize", "maintain", "resume"])
def test_a_saved_optimize_of_a_killed_process_is_committed_by_another_one(
    tmp_path: Path, format: str, way: str
) -> None:
    root = str(tmp_path)
    properties = {"lakevilla.optimize.small_files": 3, "lakevilla.optimize.queued": True}
    with lv.connect(root, settings=lv.Settings(lease_seconds=0.5)) as lake:
        small_files(lake, format, properties=properties)
        died = subprocess.run([sys.executable, "-c", _DIES, root], check=False)
        assert died.returncode == 9
        (saved,) = lake.transactions()
        made = set(tmp_path.rglob("*.parquet"))
        if way == "optimize":
            done = lake.table("t").optimize(features=QUEUED)
            assert (done.files_removed, done.files_added) == (4, 1)
        elif way == "maintain":
            assert lake.maintain(["optimize"]).ok
        else:
            lake.resume(saved.id).commit()
        assert lake.outcome(saved.id).state == "committed"
        assert {one for one in tmp_path.rglob("*.parquet") if "checkpoint" not in one.name} <= made
        assert sorted(lake.read("t")["id"].to_pylist()) == [0, 1, 2, 3]
        assert lake.table("t").optimize().files_removed == 0
        assert not lake.transactions()
        assert lake.doctor().ok
