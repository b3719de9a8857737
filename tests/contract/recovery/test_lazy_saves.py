"""A thread of the lake saves long transactions; short transactions cost no request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.store.codec import decode
from lakevilla.sublogs.record import TxnRecord, record_key
from lakevilla.transaction.state import late_reads as due
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.tables import accounts, contents
from tests.support.traces import cost

SOON = 20.0
QUICKLY = lv.Settings(save_interval_seconds=0.05)


class Watched(WrappedStore):
    """A store that notes which threads save transactions; ``failing`` replaces answers."""

    def __init__(self, lake: lv.Lake) -> None:
        super().__init__(inside(lake).store)
        self.changed = threading.Condition()
        self.threads: dict[str, list[str]] = {}
        self.failing: Callable[[str], Failure | None] = lambda key: None
        inside(lake).store = self

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        outcome = self.failing(key) or super().put(key, body, condition)
        if key.startswith("_lakevilla/txns/") and key.count("/") == 2:
            record = decode(key, body, TxnRecord)
            with self.changed:
                if isinstance(outcome, Stored) and record.sublog:
                    name = threading.current_thread().name
                    self.threads.setdefault(record.txn, []).append(name)
                self.changed.notify_all()
        return outcome

    def until_saved(self, txn: str) -> list[str]:
        """Wait until a thread has saved the transaction; return the names of all that have."""
        with self.changed:
            assert self.changed.wait_for(lambda: txn in self.threads, SOON)
            return self.threads[txn]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place("local", request)
    with place.connect() as lake:
        lake.create_table("orders", accounts(2))
    return place


def test_an_idle_transaction_is_saved_by_the_lakes_thread(place: Place) -> None:
    with place.connect(settings=QUICKLY) as lake, place.connect() as heir:
        store = Watched(lake)
        txn = lake.transaction()
        txn.append("orders", accounts(3))
        assert store.until_saved(txn.id) == ["lakevilla-saver"]
        # As after a crash of the first client.
        heir.resume(txn.id).commit()
        with pytest.raises(lv.LakeVillaError):
            txn.commit()
        assert len(place.seen("orders")) == 5


def test_a_lazily_saved_transaction_commits_its_work_from_before_and_after_the_save(
    place: Place,
) -> None:
    with place.connect(settings=QUICKLY) as lake:
        store = Watched(lake)
        with lake.transaction() as txn:
            txn.append("orders", accounts(1))
            store.until_saved(txn.id)
            txn.append("orders", accounts(1))
        assert len(place.seen("orders")) == 4
        assert not [name for name in contents(place.root) if name.startswith("_lakevilla/txns/")]


def test_a_short_transaction_with_many_operations_is_not_saved(place: Place) -> None:
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("orders", accounts(1))

        def append(times: int) -> Any:
            with lake.transaction() as txn:
                for _ in range(times):
                    txn.append("orders", accounts(1))

        one, many = cost(lake, lambda: append(1)), cost(lake, lambda: append(100))
        assert many.put == one.put + 99
        assert (many.get, many.list, many.delete) == (one.get, one.list, one.delete)


def test_a_failed_save_does_not_fail_the_transaction(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="lakevilla")
    failed = threading.Event()

    def failing(key: str) -> Failure | None:
        if not key.startswith("_lakevilla/txns/"):
            return None
        failed.set()
        return Failure("no route", ambiguous=False, permanent=True)

    with place.connect(settings=QUICKLY) as lake:
        store = Watched(lake)
        store.failing = failing
        with lake.transaction() as txn:
            txn.append("orders", accounts(1))
            assert failed.wait(SOON)
        assert len(place.seen("orders")) == 3
    assert "could not save transaction" in caplog.text


def test_each_verb_saves_the_transaction_if_the_save_interval_is_zero(place: Place) -> None:
    with place.connect(settings=lv.Settings(save_interval_seconds=0.0)) as lake:
        store = Watched(lake)
        with lake.transaction() as txn:
            txn.append("orders", accounts(1))
            assert store.until_saved(txn.id) == [threading.current_thread().name]
            assert record_key(txn.id) in contents(place.root)


def test_a_verb_that_fills_the_memory_for_files_saves_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due, "MOST_HELD_BYTES", 1)
    with place.connect() as lake:
        store = Watched(lake)
        with lake.transaction() as txn:
            txn.append("orders", accounts(1))
            assert store.until_saved(txn.id) == [threading.current_thread().name]
