"""Ctrl-C while a commit is under way, in a process of its own, and ``commit()`` again (note 19)."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Literal, NamedTuple

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place, fill, make_place
from tests.support.stores import is_entry, is_head
from tests.support.tables import accounts


class Case(NamedTuple):
    """The interrupted request, and whether the store has performed it."""

    features: lv.Feature
    at: Literal["head", "entry"]
    landed: bool

    def is_point(self, table: str) -> Callable[[str], bool]:
        return is_head if self.at == "head" else is_entry(table)


CASES = [
    Case(features, at, landed)
    for features, at in (
        (lv.Feature.R, "entry"),
        (lv.Feature.R | lv.Feature.I, "head"),
        (lv.Feature.R | lv.Feature.I, "entry"),  # the commit is decided by then
    )
    for landed in (False, True)
]


class Hanging(WrappedStore):
    """A store that does not answer the first PUT of a key before Ctrl-C, and reports that.

    A request in the main thread is cut off by Ctrl-C; one in a thread of the pool ends first.
    """

    def __init__(
        self, lake: lv.Lake, is_point: Callable[[str], bool], landed: bool, pipe: Connection
    ) -> None:
        super().__init__(inside(lake).store)
        self._is_point, self._landed, self._pipe = is_point, landed, pipe
        self._first = itertools.count()
        self._pressed = threading.Event()

        def press(number: int, frame: FrameType | None) -> None:
            self._pressed.set()
            signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, press)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if not self._is_point(key) or next(self._first):
            return self.inner.put(key, body, condition)
        answer = self.inner.put(key, body, condition) if self._landed else None
        self._pipe.send("hangs")
        self._pressed.wait(60)
        return answer or self.inner.put(key, body, condition)


def commit_twice(place: Place, cases: list[tuple[str, Case]], pipe: Connection) -> None:
    """Commit in a process that is interrupted, read the table, then commit again."""
    for table, case in cases:
        with place.connect() as lake:
            txn = lake.transaction(case.features)
            txn.update(table, {"balance": "balance + 5"}, where="id = 1")
            inside(lake).store = Hanging(lake, case.is_point(table), case.landed, pipe)
            told = ""
            try:
                txn.commit()
            except KeyboardInterrupt:
                told = "interrupted"
            pipe.send(told)
            pipe.recv()
            lake.snapshot().read(table)
            txn.commit()
            pipe.send(txn.state)


@pytest.mark.night
@pytest.mark.parametrize("kind", ["local", "iceberg"])
@pytest.mark.parametrize("between", [False, True], ids=["alone", "beside another"])
def test_a_commit_that_ctrl_c_has_interrupted_takes_effect_once_when_called_again(
    request: pytest.FixtureRequest, kind: str, between: bool
) -> None:
    place = make_place(kind, request)
    cases = [(f"t{number}", case) for number, case in enumerate(CASES)]
    with place.connect() as lake:
        for table, _ in cases:
            lake.create_table(table, [{"id": 1, "balance": 100}])
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=commit_twice, args=(place, cases, there))
    process.start()
    there.close()
    try:
        with place.connect() as other:
            for table, case in cases:
                assert here.recv() == "hangs", case
                assert process.pid is not None
                os.kill(process.pid, signal.SIGINT)
                assert here.recv() == "interrupted", case
                if between:
                    other.run(
                        lambda txn, t=table: txn.update(t, {"balance": "balance + 1"}, "true")
                    )
                here.send("go on")
                assert here.recv() == "committed", case
                rows = other.snapshot().read(table).to_pylist()
                assert rows == [{"id": 1, "balance": 106 if between else 105}], case
                assert place.seen(table) == rows, case
        process.join(30)
        assert process.exitcode == 0
    finally:
        process.kill()
    assert place.connect().recover().ok  # a version hint may be old, as its writer was interrupted
    assert place.connect().doctor().ok


@pytest.mark.parametrize("operation", [0, 1])
def test_a_transaction_interrupted_in_its_redo_commits_nothing(
    quick_place: Place, monkeypatch: pytest.MonkeyPatch, operation: int
) -> None:
    fill(quick_place, {"bank": accounts(3), "shop": accounts(3)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        for table in ("bank", "shop"):
            txn.update(table, {"balance": "balance + 1"}, where="id = 1")
        with other.transaction() as rival:
            for table in ("bank", "shop"):
                rival.update(table, {"balance": "0"}, where="id = 2")

        engine = inside(lake).engine
        update, calls = engine.update, itertools.count()

        def interrupted_update(*arguments: Any) -> Any:
            if next(calls) == operation:
                raise KeyboardInterrupt
            return update(*arguments)

        monkeypatch.setattr(engine, "update", interrupted_update)
        with pytest.raises(KeyboardInterrupt):
            txn.commit()
        with pytest.raises(lv.TransactionAborted):
            txn.commit()
        for table in ("bank", "shop"):
            assert other.snapshot().read(table, where="id = 1")["balance"].to_pylist() == [100]
