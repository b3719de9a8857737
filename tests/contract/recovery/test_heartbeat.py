"""The heartbeat renews records of long transactions alone, and never keeps a process alive."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.store.codec import decode
from lakevilla.sublogs.own_record import change_record
from lakevilla.sublogs.record import TxnRecord, record_key
from tests.fixtures.servers import Server
from tests.support.inside import executor, inside
from tests.support.places import Place, make_place

QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I
LEASE = 0.15
SOON = 20.0


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place("local", request)
    with place.connect() as lake, lake.transaction() as txn:
        txn.create_table("orders", pa.table({"id": [1, 2], "qty": [10, 20]}))
    return place


class Watched(WrappedStore):
    """A store that counts replacements of transactions' records; ``failing`` replaces answers."""

    def __init__(self, lake: lv.Lake) -> None:
        super().__init__(inside(lake).store)
        self.changed = threading.Condition()
        self.writes: dict[str, int] = {}
        self.failing: Callable[[], Failure | None] = lambda: None
        inside(lake).store = self

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if not key.startswith("_lakevilla/txns/"):
            return super().put(key, body, condition)
        failure = self.failing()
        outcome = failure or super().put(key, body, condition)
        if isinstance(outcome, Refused):
            return outcome  # the client writes it again
        with self.changed:
            self.writes[key] = self.writes.get(key, 0) + 1
            self.changed.notify_all()
        return outcome

    def until_written(self, txn: str, more: int = 1) -> None:
        """Wait until the record has been written ``more`` times from now on."""
        key = record_key(txn)
        with self.changed:
            wanted = self.writes.get(key, 0) + more
            assert self.changed.wait_for(lambda: self.writes.get(key, 0) >= wanted, SOON)


def until(true: Callable[[], bool]) -> None:
    """Wait until ``true`` returns True."""
    give_up = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


@contextmanager
def leased(place: Place, lease_seconds: float = LEASE) -> Iterator[tuple[lv.Lake, Watched]]:
    with place.connect(settings=lv.Settings(lease_seconds=lease_seconds)) as lake:
        inside(lake).client.ensure_safe_store()
        yield lake, Watched(lake)


def begin(lake: lv.Lake) -> lv.Transaction:
    txn = lake.transaction(QUEUED)
    txn.update("orders", {"qty": "qty + 1"}, "id = 1")
    return txn


def record(place: Place, txn: str) -> TxnRecord:
    key = record_key(txn)
    return decode(key, (Path(place.root) / key).read_bytes(), TxnRecord)


def is_beating(lake: lv.Lake) -> bool:
    """Return whether this lake's heartbeat renews a record, or will."""
    return inside(lake).client._heartbeat.is_at_work


def threads() -> list[threading.Thread]:
    """Return the threads of this process that work for lakes, whichever lakes are open."""
    names = ("lakevilla-clock", "lakevilla-crew", "lakevilla-heartbeat")
    return [thread for thread in threading.enumerate() if thread.name in names]


def test_a_record_is_renewed_as_long_as_its_transaction_is_open(place: Place) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        before = record(place, txn.id)
        watched.until_written(txn.id, 3)
        after = record(place, txn.id)
        # `before` may include the first of the three writes, if that was counted later.
        assert after.heartbeat >= before.heartbeat + 2
        assert (after.claim, after.tickets, after.tables) == (
            before.claim,
            executor(txn).state.claims.queue.tickets,
            ("orders",),
        )
        # No such thread keeps the process alive.
        assert threads()
        assert all(thread.daemon for thread in threads())
        txn.commit()
        assert lake.snapshot().read("orders", where="id = 1")["qty"].to_pylist() == [11]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_heartbeat_ends_with_the_last_transaction(place: Place, end: str) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        watched.until_written(txn.id)
        getattr(txn, end)()
        until(lambda: not is_beating(lake))
        assert not (Path(place.root) / record_key(txn.id)).exists()
        # A later transaction starts it again.
        txn = begin(lake)
        watched.until_written(txn.id)
        txn.abort()


def test_a_garbage_collected_transaction_is_not_renewed_any_more(place: Place) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        dropped = txn.id
        watched.until_written(dropped)
        with pytest.warns(lv.LakeVillaWarning, match="was dropped and neither"):
            del txn
        gc.collect()
        until(lambda: not is_beating(lake))
        assert (Path(place.root) / record_key(dropped)).exists()
        # The next transaction in the queue removes the place after a lease, and goes on.
        with lake.transaction(QUEUED, wait_timeout_seconds=SOON) as other:
            other.update("orders", {"qty": "0"}, "id = 1")
        assert not list((Path(place.root) / "orders/_lakevilla/markers").glob("*.json"))


def test_a_short_transaction_sends_no_request_for_its_heartbeat(place: Place) -> None:
    with leased(place, lease_seconds=30.0) as (lake, watched):
        for _ in range(3):
            begin(lake).commit()
        assert set(watched.writes.values()) == {1}
        assert is_beating(lake)


def test_closing_the_lake_stops_the_heartbeat(place: Place) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        watched.until_written(txn.id)
        assert is_beating(lake)
    assert not is_beating(lake)
    # While the heartbeat of another lake goes on, that of the closed one has written nothing more.
    written = dict(watched.writes)
    with leased(place) as (other, seen):
        another = begin(other)
        seen.until_written(another.id, 3)
        assert watched.writes == written
        another.abort()


def test_the_heartbeat_repeats_its_request_after_errors_of_the_store(place: Place) -> None:
    settings = lv.Settings(lease_seconds=LEASE, retry_limit=1)
    with place.connect(settings=settings) as lake:
        inside(lake).client.ensure_safe_store()
        watched = Watched(lake)
        txn = begin(lake)
        watched.failing = lambda: Failure("503 slow down", ambiguous=False, throttled=True)
        watched.until_written(txn.id, 3)
        watched.failing = lambda: Failure("timeout")  # the outcome of the write is unknown
        watched.until_written(txn.id, 2)

        tried = []

        def broken() -> Failure | None:
            tried.append(1)
            raise OSError("a bug in the store's client")

        watched.failing = broken
        until(lambda: len(tried) >= 2)
        before = record(place, txn.id).heartbeat
        watched.failing = lambda: None
        watched.until_written(txn.id, 2)
        assert record(place, txn.id).heartbeat > before
        txn.commit()


def test_a_transaction_that_run_will_run_again_is_renewed(place: Place) -> None:
    with leased(place) as (lake, watched):
        attempts = []

        def lose_once(txn: lv.Transaction) -> None:
            attempts.append(txn.id)
            txn.read("orders")
            if len(attempts) == 1:
                with place.connect() as other:
                    other.run(lambda theirs: theirs.update("orders", {"qty": "5"}, "id = 2"))
            else:
                watched.until_written(txn.id, 2)
            txn.update("orders", {"qty": "qty + 1"}, "id = 1")

        lake.run(lose_once, features=QUEUED)
        assert len(attempts) == 2
        assert attempts[0] == attempts[1]


def test_a_failed_transaction_that_will_be_run_again_is_renewed(place: Place) -> None:
    with leased(place) as (lake, watched):
        txn = lake.transaction(QUEUED)
        executor(txn).keeps_place = True  # as in ``run``
        txn.read("orders")
        txn.update("orders", {"qty": "qty + 1"}, "id = 1")
        with place.connect() as other:
            other.run(lambda theirs: theirs.update("orders", {"qty": "5"}, "id = 1"))
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert txn.state == "failed"
        watched.until_written(txn.id, 2)
        txn.abort()


def test_the_heartbeat_adds_no_task_to_a_running_event_loop(place: Place) -> None:
    async def work() -> int:
        loop = asyncio.get_running_loop()
        assert loop is not None
        tasks = asyncio.all_tasks()
        with leased(place) as (lake, watched):
            txn = begin(lake)
            # The call blocks the loop; the heartbeat's thread goes on.
            watched.until_written(txn.id, 2)
            assert asyncio.all_tasks() == tasks
            await asyncio.to_thread(watched.until_written, txn.id, 2)
            txn.commit()
        return len(asyncio.all_tasks())

    assert asyncio.run(work()) == 1


def test_a_transaction_and_its_heartbeat_can_replace_the_same_record(place: Place) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        met = []

        def save_first() -> None:
            """Have the transaction replace its record right before the heartbeat does."""
            if threading.current_thread().name == "lakevilla-heartbeat" and len(met) < 3:
                met.append(record(place, txn.id).heartbeat)
                watched.failing = lambda: None
                inside(lake).run(change_record(executor(txn).state))
                watched.failing = save_first

        watched.failing = save_first
        until(lambda: len(met) == 3)
        for _ in range(3):
            watched.until_written(txn.id)
            txn.save()
        txn.commit()
        assert txn.state == "committed"
        assert not (Path(place.root) / record_key(txn.id)).exists()


def test_a_forked_child_renews_its_own_transactions_and_not_those_of_its_parent(
    place: Place,
) -> None:
    with leased(place) as (lake, watched):
        txn = begin(lake)
        watched.until_written(txn.id)

        # The child lacks DuckDB's threads, so it must not free an unused database.
        gc.collect()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                theirs = watched.writes[record_key(txn.id)]
                assert not threads()
                assert not is_beating(lake)
                own = begin(lake)
                watched.until_written(own.id, 2)
                own.abort()
                assert watched.writes[record_key(txn.id)] == theirs
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0
        watched.until_written(txn.id, 2)
        txn.commit()


# -- other processes ------------------------------------------------------------

#: Ignore warnings of transactions with writes that are open at the end of the process.
QUIET = ("-W", "ignore:transaction")

CLIENT = """
import sys, threading
import lakevilla as lv

root, lease, what = sys.argv[1], float(sys.argv[2]), sys.argv[3]
lake = lv.connect(root, settings=lv.Settings(lease_seconds=lease, wait_timeout_seconds=20))
txn = lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I)
if what == "read":
    txn.read("orders", where="id = 1")
txn.update("orders", {"qty": "qty + 1"}, "id = 1")
print(txn.id, flush=True)
if what == "leave":
    sys.exit(0)
sys.stdin.readline()
try:
    txn.commit()
    print("committed", flush=True)
except lv.ConflictError:
    print("conflict", flush=True)
    txn.abort()
"""


def client(place: Place, what: str, lease: float = LEASE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *QUIET, "-c", CLIENT, place.root, str(lease), what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )


def test_a_process_with_an_open_transaction_ends_at_once(place: Place) -> None:
    process = client(place, "leave", lease=30.0)
    assert process.stdout is not None
    assert process.stdout.readline().strip()
    began = time.monotonic()
    _, errors = process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert errors == ""
    assert time.monotonic() - began < 5.0  # a third of the lease is 10 s


BUSY = """
import json, sys, threading
import lakevilla as lv
from tests.support.inside import inside

lake = lv.connect(sys.argv[1], storage_options=json.loads(sys.argv[2]))
txns = [lake.transaction(lv.Feature.R | lv.Feature.CT | lv.Feature.I) for _ in range(3)]
inside(lake).client._heartbeat._third_seconds = 0.0  # a renewal is under way at any moment
for txn in txns:
    txn.update("orders", {"id": "id"}, where="id = 1")  # what is only appended has no record
seen = inside(lake).requests.snapshot().put
while inside(lake).requests.snapshot().put < seen + 10:
    threading.Event().wait(0.01)
"""


@pytest.mark.night
def test_a_process_that_ends_during_renewals_does_not_crash(
    server: Server, server_root: str
) -> None:
    place = Place(server_root, server.storage_options)
    place.write("orders", [{"id": 1}])
    for _ in range(3):
        process = subprocess.run(
            [sys.executable, *QUIET, "-c", BUSY, place.root, json.dumps(place.storage_options)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
            timeout=60,
            check=False,
        )
        assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize(("what", "told"), [("write", "committed"), ("read", "conflict")])
def test_a_client_that_slept_past_its_lease_can_do_no_harm(
    place: Place, what: str, told: str
) -> None:
    process = client(place, what, lease=0.5)
    assert process.stdout is not None
    sleeper = process.stdout.readline().strip()
    assert record(place, sleeper).lease_seconds == 0.5
    process.send_signal(signal.SIGSTOP)
    events: list[lv.Event] = []
    with place.connect(settings=lv.Settings(lease_seconds=0.5), on_event=events.append) as lake:
        with lake.transaction(QUEUED, wait_timeout_seconds=SOON) as txn:
            txn.update("orders", {"qty": "qty + 100"}, "id = 1")
        assert "stale" in [event.kind for event in events]
        process.send_signal(signal.SIGCONT)
        output, errors = process.communicate("go on\n", timeout=SOON)
        assert (output.split(), errors) == ([told], "")
        wanted = 111 if told == "committed" else 110
        assert lake.snapshot().read("orders", where="id = 1")["qty"].to_pylist() == [wanted]
        assert not list((Path(place.root) / "orders/_lakevilla/markers").glob("*.json"))


def test_an_abort_by_another_client_is_raised_at_the_owners_commit_and_not_by_the_heartbeat(
    place: Place,
) -> None:
    """The heartbeat ends; the owner's transaction stays open until its commit fails."""
    with leased(place) as (lake, _):
        txn = begin(lake)
        with place.connect() as other:
            other.abort(txn.id)
        until(lambda: not is_beating(lake))
        assert txn.state == "open"
        with pytest.raises(lv.TransactionAborted):
            txn.commit()
