"""Reads with Feature.CT take places late: with the first write, or after some time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import lakevilla as lv
from lakevilla.api.execution.turns import LatePlaces
from lakevilla.transaction.state import late_reads
from tests.support.inside import executor, inside
from tests.support.places import Place, fill
from tests.support.queues import PATIENCE_SECONDS, QUEUED, left_over, records, tickets
from tests.support.stores import InterruptedStore
from tests.support.tables import accounts

BOTH = ["R|CT", "R|CT|I"]


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time after which reads take places so high that the tests never reach it."""
    monkeypatch.setattr(late_reads, "PLACE_AFTER_SECONDS", 3600.0)


def let_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the placing thread take places for all open transactions at its next check."""
    monkeypatch.setattr(late_reads, "PLACE_AFTER_SECONDS", 0.0)


def bank(place: Place) -> None:
    fill(place, {table: accounts(3) for table in "xy"})
    with place.connect() as lake, lake.transaction() as txn:
        for table in "xy":
            txn.update(table, {"balance": "balance"}, "id = 0")


def wait_for_place(lake: lv.Lake, table: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not tickets(lake, table):
        assert time.monotonic() < deadline, "no place was taken"
        threading.Event().wait(0.01)


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("features", BOTH)
def test_a_read_takes_no_place_and_the_first_write_takes_those_of_all_reads(
    local_place: Place, features: str
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        with lake.transaction(QUEUED[features]) as txn:
            txn.read("x")
            txn.sql("SELECT * FROM y")
            assert left_over(lake, "x", "y") == []
            txn.update("y", {"balance": "balance + 1"}, "id = 0")
            # The place to write covers reads of the same table.
            assert (tickets(lake, "x"), tickets(lake, "y")) == ([1], [1])
            assert records(lake) == [f"_lakevilla/txns/{txn.id}.json"]
        assert left_over(lake, "x", "y") == []


@pytest.mark.usefixtures("never")
def test_an_append_takes_places_for_earlier_reads_and_none_for_its_own_table(
    local_place: Place,
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        with lake.transaction(QUEUED["R|CT|I"]) as txn:
            txn.read("x")
            txn.append("y", accounts(1))
            assert (tickets(lake, "x"), tickets(lake, "y")) == ([1], [])
        assert left_over(lake, "x", "y") == []


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("ends", ["by reading alone", "by a write", "by an abort"])
@pytest.mark.parametrize("features", BOTH)
def test_a_long_reading_transaction_takes_a_place_and_gives_it_back_at_its_end(
    local_place: Place, features: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        txn = lake.transaction(QUEUED[features])
        txn.read("x")
        let_last(monkeypatch)
        wait_for_place(lake, "x")
        if ends == "by an abort":
            txn.abort()
        else:
            if ends == "by a write":
                txn.update("y", {"balance": "balance + 1"}, "id = 0")
            txn.commit()
        assert left_over(lake, "x", "y") == []


@pytest.mark.usefixtures("never")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_commit_or_abort_waits_while_a_late_place_is_taken_and_leaves_no_marker(
    local_place: Place, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank(local_place)
    with local_place.connect() as lake, ThreadPoolExecutor(1) as pool:
        placing, may_go_on = threading.Event(), threading.Event()

        def meanwhile() -> None:
            placing.set()
            assert may_go_on.wait(PATIENCE_SECONDS)

        runner = inside(lake).client.runner
        runner.store = InterruptedStore(runner.store, lambda key: "/markers/" in key, meanwhile)
        txn = lake.transaction(QUEUED["R|CT|I"])
        txn.read("x")
        let_last(monkeypatch)
        assert placing.wait(PATIENCE_SECONDS)
        ended = pool.submit(txn.commit if end == "commit" else txn.abort)
        assert not ended.done()
        may_go_on.set()
        ended.result(PATIENCE_SECONDS)
        assert left_over(lake, "x", "y") == []


@pytest.mark.usefixtures("never")
def test_an_ended_transaction_takes_no_late_place(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        inside(lake).client.placer.close()  # this test does the thread's work
        txn = lake.transaction(QUEUED["R|CT|I"])
        txn.read("x")
        place = LatePlaces(executor(txn))
        txn.commit()
        let_last(monkeypatch)
        assert not inside(lake).run(place.renew())
        assert place.held_at is None
        assert left_over(lake, "x", "y") == []


@pytest.mark.usefixtures("never")
def test_a_resumed_transaction_with_defer_still_defers_its_verbs(local_place: Place) -> None:
    bank(local_place)
    features = lv.Feature.R | lv.Feature.I
    with local_place.connect() as lake, local_place.connect() as other:
        txn = lake.transaction(features, defer=True)
        txn.update("x", {"balance": "balance + 1"}, "id = 0")
        txn.save()
        with other.resume(txn.id) as resumed:
            assert executor(resumed).state.defers
            resumed.update("y", {"balance": "balance + 1"}, "id = 0")
            assert all(done.deferred for done in executor(resumed).state.work.done)
        read = [other.snapshot().read(t, where="id = 0")["balance"].to_pylist() for t in "xy"]
        assert read == [[101], [101]]
