"""Clean-up by a machine whose clock is days wrong: the store's time decides what is old."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.runner import Requests
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Later, listed
from tests.support.tables import values

DAY = 24 * 3600.0
#: Settings with which files are stored before the commit, as large ones are.
STORED_AT_ONCE = lv.Settings(in_memory_file_limit_bytes=0)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(params=["local", "remote", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    """Return a place that several machines can share."""
    return make_place(request.param, request)


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect(settings=STORED_AT_ONCE) as lake:
        lake.create_table("a", rows(1))
        yield lake


def off_by(place: Place, seconds: float) -> lv.Lake:
    """Return a client whose clock is wrong by so many seconds."""
    lake, clock = place.connect(), Later()
    clock.ahead_seconds = seconds
    inside(lake).clock = clock
    return lake


@pytest.mark.parametrize("days", [8.0, -8.0])
@pytest.mark.parametrize(
    "features", [lv.Feature.NONE, lv.Feature.R, lv.Feature.R | lv.Feature.I], ids=str
)
def test_clean_up_with_a_wrong_clock_deletes_no_file_of_a_running_transaction(
    place: Place, lake: lv.Lake, features: lv.Feature, days: float
) -> None:
    txn = lake.transaction(features)
    txn.append("a", rows(2, 3))
    with off_by(place, days * DAY) as other:
        other.gc()
        other.table("a").vacuum(dry_run=False)
        other.maintain(["gc", "vacuum"])
    txn.commit()
    with place.connect() as fresh:
        assert values(fresh.read("a")) == [1, 2, 3]


def test_clean_up_with_a_wrong_clock_forgets_no_idempotency_key(
    place: Place, lake: lv.Lake
) -> None:
    for _ in range(2):
        with off_by(place, 30 * DAY) as other:
            lake.run(lambda txn: txn.append("a", rows(2)), idempotency_key="load")
            other.gc()
            other.gc()
    assert values(lake.read("a")) == [1, 2]


def requests_of(lake: lv.Lake, dry_run: bool) -> dict[str, Requests]:
    lake.table("a")
    found = {}
    for name in ("gc", "vacuum"):
        with inside(lake).requests.counting() as found[name]:
            if name == "gc":
                lake.gc(dry_run=dry_run)
            else:
                lake.table("a").vacuum(dry_run=dry_run)
    return found


def test_clean_up_writes_one_object_to_get_the_stores_time_and_a_dry_run_writes_none(
    place: Place, lake: lv.Lake
) -> None:
    lake.gc()
    before = {info.key for info in listed(inside(lake).store, "")}
    requests_of(lake, dry_run=True)
    assert {info.key for info in listed(inside(lake).store, "")} == before
    puts = {name: one.put for name, one in requests_of(lake, dry_run=False).items()}
    assert puts == {"gc": 3, "vacuum": 2}, "the time, and HEAD; gc keeps a copy of that"


def test_a_vacuum_of_another_lakes_table_is_refused_and_writes_nothing(
    place: Place, lake: lv.Lake
) -> None:
    other_root = f"{place.root.rstrip('/')}-other"
    with lv.connect(other_root, storage_options=place.storage_options or None) as other:
        before = [info.key for info in listed(inside(lake).store, "a")]
        with pytest.raises(lv.InvalidOperation, match="belongs to the lake at"):
            other.table(lake.table("a").uri).vacuum(dry_run=False)
        assert [info.key for info in listed(inside(lake).store, "a")] == before
