"""One cache per process: clients of a lake don't read objects that another has read."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.cached import Budget
from lakevilla_testing.histories.plan import small_limits
from tests.contract.integrity.damage import Objects
from tests.support.inside import inside
from tests.support.places import Place, make_place

pytestmark = pytest.mark.one_process


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """Return an empty cache, as of a new process."""
    budget = Budget()
    monkeypatch.setattr("lakevilla.store.runner.OF_PROCESS", budget)
    return budget


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def gets(lake: lv.Lake, work: object) -> int:
    assert callable(work)
    with inside(lake).requests.counting() as made:
        work()
    return made.get


def with_history(place: Place, commits: int = 20) -> lv.Lake:
    lake = place.connect()
    with small_limits(True):
        lake.create_table("t", [{"id": 0}])
        for number in range(commits):
            lake.run(lambda txn, n=number: txn.append("t", [{"id": n}]))
    return lake


def test_pages_and_commit_objects_are_read_once_for_all_clients(place: Place) -> None:
    with_history(place)
    first, second = place.connect(), place.connect()
    cold = gets(first, lambda: list(first.changes(0)))
    warm = gets(second, lambda: list(second.changes(0)))
    assert cold - warm > 4, "pages, at least"
    assert gets(first, first.history) == 1, "HEAD alone"
    for entry, other in zip(first.history(), second.history(), strict=True):
        assert entry == other


def test_lakes_at_different_roots_share_no_cached_object(place: Place, tmp_path: Path) -> None:
    with_history(place)
    other = with_history(Place(str(tmp_path / "other")))
    fresh = lv.connect(other.root)
    mine, theirs = place.connect().history(), fresh.history()
    assert {entry.txn_id for entry in mine}.isdisjoint(entry.txn_id for entry in theirs)
    assert len(mine) == len(theirs)


def test_lakes_in_memory_share_no_cached_object() -> None:
    for number in range(3):
        lake = lv.connect("memory://")
        with small_limits(True):
            lake.create_table("t", [{"id": number}])
            for _ in range(12):
                lake.run(lambda txn, n=number: txn.append("t", [{"id": n}]))
        assert len(lake.history()) == 13
        assert set(lake.read("t")["id"].to_pylist()) == {number}


def test_the_doctor_and_verify_query_the_store_whatever_is_cached(place: Place) -> None:
    lake = with_history(place)
    assert len(lake.history()) == 21
    objects = Objects(place)
    for key in objects.keys("_lakevilla/pages", ".json")[:2]:
        with objects.holding(key, objects.body(key)[:-9]):
            assert len(lake.history()) == 21, "it is at hand"
            assert not lake.doctor().ok
            assert not lake.verify().ok


def test_a_damaged_object_is_not_cached(place: Place, budget: Budget) -> None:
    with_history(place)
    objects = Objects(place)
    key = objects.keys("_lakevilla/pages", ".json")[1]
    budget._forget()
    reader = place.connect()
    with objects.holding(key, objects.body(key)[:-9]), pytest.raises(lv.CorruptObject):
        reader.history()
    assert len(reader.history()) == 21


def test_an_absent_object_is_requested_again(place: Place, budget: Budget) -> None:
    with_history(place)
    objects = Objects(place)
    key = objects.keys("_lakevilla/pages", ".json")[1]
    body = objects.body(key)
    budget._forget()
    reader = place.connect()
    objects.store.delete(key)
    with pytest.raises(lv.CorruptObject):
        reader.history()
    objects.write(key, body)
    assert len(reader.history()) == 21


def test_the_cache_stays_within_its_budget(place: Place, budget: Budget) -> None:
    """Read 40 commit objects of 300 KB with a budget of 4 MB (memory: tests/unit/lake)."""
    limit = 4_000_000
    lake = place.connect(settings=lv.Settings(cache_bytes=limit))
    lake.create_table("t", [{"id": 0}])
    for number in range(40):
        large = {"note": f"{number:06}" * 50_000}
        lake.run(lambda txn: txn.append("t", [{"id": 1}]), metadata=large)
    lake.close()
    budget._forget()
    reader = place.connect(settings=lv.Settings(cache_bytes=limit))
    for _ in reader.changes(0):
        assert budget.bytes <= limit
    assert budget.bytes > limit / 2, "it is used"
