"""Threads of one process that commit at the same time, on real stores."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.transaction.commit.together.crowd import commits_of
from tests.support.inside import executor, inside
from tests.support.places import Place, make_place
from tests.support.stores import is_head
from tests.support.tables import values

THREADS = 8
EACH = 4


@pytest.fixture(params=["local", "remote"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def row(number: int) -> pa.Table:
    return pa.table({"id": [number]})


def lake_of(place: Place, *tables: str) -> lv.Lake:
    lake = place.connect()
    for table in tables:
        lake.create_table(table, pa.schema([("id", pa.int64())]))
    return lake


def in_threads(works: list[Callable[[], None]]) -> list[BaseException]:
    """Run the functions at the same time, and return the errors that they raised."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


def test_threads_commit_exactly_once_in_fewer_replacements_of_head(shared_place: Place) -> None:
    lake = lake_of(shared_place, "a", "b")
    before = inside(lake).held
    assert before is not None
    sequences: list[int] = []

    def writer(first: int) -> None:
        for number in range(first, first + EACH):
            with lake.transaction() as txn:
                txn.append("a", row(number))
                txn.append("b", row(number))
            assert txn.result is not None
            assert txn.result.global_version is not None
            assert txn.result.retries == 0
            sequences.append(txn.result.global_version)

    torn: list[tuple[int, int]] = []
    done = threading.Event()

    def reader() -> None:
        own = shared_place.connect()
        while not done.is_set():
            with own.transaction(read_only=True) as txn:
                counts = (txn.read("a").num_rows, txn.read("b").num_rows)
            if counts[0] != counts[1]:
                torn.append(counts)

    looking = threading.Thread(target=reader)
    looking.start()
    errors = in_threads([lambda n=n: writer(n * EACH) for n in range(THREADS)])  # type: ignore[misc]
    done.set()
    looking.join(60)
    assert errors == []
    assert torn == []
    numbers = list(range(THREADS * EACH))
    for table in ("a", "b"):
        assert sorted(values(shared_place.delta(table).to_pyarrow_table())) == numbers
    assert len(set(sequences)) == THREADS * EACH
    after = executor(shared_place.connect().transaction(read_only=True)).state_of_lake()
    assert after is not None
    assert after.sequence - before.head.sequence == THREADS * EACH
    assert after.replacement - before.head.replacement < THREADS * EACH
    # One log entry has the commits of a group.
    assert shared_place.delta("a").version() < THREADS * EACH


def test_threads_that_update_the_same_row_lose_no_update_and_get_no_conflict(
    shared_place: Place,
) -> None:
    lake = shared_place.connect()
    lake.create_table("a", pa.table({"id": [1], "n": [0]}))

    def writer() -> None:
        for _ in range(2):
            with lake.transaction() as txn:
                txn.update("a", {"n": "n + 1"}, "id = 1")

    assert in_threads([writer] * 4) == []
    assert values(shared_place.delta("a").to_pyarrow_table(), "n") == [8]


class _AtHead(WrappedStore):
    """A store that calls ``act`` once, before or after the next replacement of HEAD."""

    act: Callable[[], None] | None = None
    sent = False

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        act = self.act
        if act is None or not is_head(key):
            return super().put(key, body, condition)
        self.act = None
        if self.sent:
            super().put(key, body, condition)
        act()
        return super().put(key, body, condition)


def watched(lake: lv.Lake, *, sent: bool = False) -> _AtHead:
    store = _AtHead(inside(lake).store)
    store.sent = sent
    inside(lake).store = store
    return store


def until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def waiting(lake: lv.Lake) -> int:
    return len(commits_of(inside(lake).context).present(100))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("sent", [False, True])
def test_ctrl_c_in_the_leader_passes_the_lead_to_a_waiting_thread(
    local_place: Place, sent: bool
) -> None:
    lake = lake_of(local_place, "a")
    store = watched(lake, sent=sent)
    leads = threading.Event()

    def follower(number: int) -> None:
        assert leads.wait(20)
        with lake.transaction() as txn:
            txn.append("a", row(number))

    def interrupt() -> None:
        leads.set()
        until(lambda: waiting(lake) == 4)
        signal.raise_signal(signal.SIGINT)

    threads = [threading.Thread(target=follower, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    txn = lake.transaction()
    with pytest.raises(KeyboardInterrupt):
        with txn:
            txn.append("a", row(0))
            store.act = interrupt
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    # A sent replacement counts; otherwise the leader's transaction is aborted.
    assert lake.outcome(txn.id).state == ("committed" if sent else "aborted")
    lake.recover()
    rows = [0, 1, 2, 3] if sent else [1, 2, 3]
    assert sorted(values(local_place.delta("a").to_pyarrow_table())) == rows


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_waiting_thread_removes_its_transaction_from_the_group(
    local_place: Place,
) -> None:
    lake = lake_of(local_place, "a")
    store = watched(lake)
    leads = threading.Event()

    def interrupt_the_main_thread() -> None:
        leads.set()
        until(lambda: waiting(lake) == 2)
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: waiting(lake) == 1)

    def leader() -> None:
        with lake.transaction() as txn:
            txn.append("a", row(0))
            store.act = interrupt_the_main_thread

    thread = threading.Thread(target=leader)
    txn = lake.transaction()
    txn.append("a", row(1))
    thread.start()
    assert leads.wait(20)
    with pytest.raises(KeyboardInterrupt):
        with txn:
            pass
    thread.join(20)
    assert not thread.is_alive()
    with lake.transaction() as later:
        later.append("a", row(2))
    assert sorted(values(local_place.delta("a").to_pyarrow_table())) == [0, 2]
    assert lake.outcome(txn.id).state == "aborted"


def test_a_forked_child_does_not_wait_for_its_parents_leader(local_place: Place) -> None:
    lake = lake_of(local_place, "a")
    store = watched(lake)
    leads, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        leads.set()
        assert go_on.wait(30)

    def leader() -> None:
        with lake.transaction() as txn:
            txn.append("a", row(0))
            store.act = hold

    thread = threading.Thread(target=leader)
    thread.start()
    assert leads.wait(20)
    child = os.fork()
    if child == 0:
        ended = 1
        try:
            signal.alarm(20)  # if the child waited, the signal would end it
            with lake.transaction() as txn:
                txn.append("a", row(1))
            ended = 0
        finally:
            os._exit(ended)
    status = os.waitpid(child, 0)[1]
    go_on.set()
    thread.join(20)
    assert status == 0
    assert sorted(values(local_place.delta("a").to_pyarrow_table())) == [0, 1]
