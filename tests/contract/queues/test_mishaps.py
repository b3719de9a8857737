"""Clients in queues that sleep, die, are interrupted, or deadlock with a reservation."""

from __future__ import annotations

import dataclasses
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.errors import StoreError
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.store.effects import Effect, Sleep
from tests.support.inside import inside
from tests.support.places import Place, fill, make_place
from tests.support.queues import (
    CT,
    PATIENCE_SECONDS,
    QUEUED,
    QUICK,
    I,
    R,
    Told,
    beside,
    head_of,
    in_another_thread,
    left_over,
    tickets,
)
from tests.support.tables import accounts

#: A lease short enough for tests to wait for its end.
SHORT = lv.Settings(
    lease_seconds=0.5,
    wait_poll_seconds=0.02,
    wait_poll_cap_seconds=0.05,
    retry_base_seconds=0.005,
    escalate_after=1,
)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place("memory", request)
    fill(place, {table: accounts(3) for table in ("x", "y", "z")})
    return place


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def lake(place: Place, told: Told) -> Iterator[lv.Lake]:
    with place.connect(settings=SHORT, on_event=told) as lake:
        yield lake


def add(txn: lv.Transaction, table: str, amount: int = 1) -> lv.OperationResult:
    return txn.update(table, {"balance": f"balance + {amount}"}, "id = 0")


def read(txn: lv.Transaction, table: str) -> int:
    (found,) = txn.read(table, where="id = 0")["balance"].to_pylist()
    assert isinstance(found, int)
    return found


def balance(lake: lv.Lake, table: str) -> int:
    with lake.transaction(read_only=True) as txn:
        return read(txn, table)


def test_a_client_that_sleeps_past_its_lease_loses_its_place_and_still_commits(
    place: Place, lake: lv.Lake, told: Told
) -> None:
    with place.connect(settings=SHORT) as sleeper:
        asleep = sleeper.transaction(R | CT | I)
        in_another_thread(lambda: add(asleep, "x"))
        sleeper.close()  # the client's heartbeat stops
        with lake.transaction(R | CT | I) as txn:
            add(txn, "x", 10)
        assert told.of("stale")[0].detail["holder"] == asleep.id
        assert tickets(lake, "x") == []
        asleep.commit()
        assert balance(lake, "x") == 111
        assert left_over(lake, "x") == []


def test_a_client_that_wakes_behind_other_transactions_waits_for_them(
    place: Place, lake: lv.Lake, told: Told
) -> None:
    woken = Told()
    with place.connect(settings=SHORT, on_event=woken) as sleeper:
        asleep = sleeper.transaction(R | CT)
        in_another_thread(lambda: add(asleep, "x"))
        sleeper.close()
        later = lake.transaction(R | CT)
        with lake.transaction(R | CT) as txn:
            add(txn, "x", 10)
            in_another_thread(lambda: add(later, "x", 100))
        assert tickets(lake, "x") == [3]
        with beside(asleep.commit) as end:
            assert woken.wait("waiting").detail["holders"] == [later.id]
            assert not end.done()
            later.commit()
        assert balance(lake, "x") == 211
        assert left_over(lake, "x") == []


def test_a_client_that_wakes_after_its_ticket_number_was_reused_keeps_the_new_holders_place(
    place: Place, lake: lv.Lake, told: Told
) -> None:
    """The queue was empty meanwhile, so its tickets began at 1 again."""
    with place.connect(settings=SHORT) as sleeper:
        asleep = sleeper.transaction(R | CT)
        in_another_thread(lambda: add(asleep, "x"))
        sleeper.close()
        with lake.transaction(R | CT) as txn:
            add(txn, "x", 10)
        later = lake.transaction(R | CT)
        in_another_thread(lambda: add(later, "x", 100))
        assert tickets(lake, "x") == [1]
        asleep.commit()
        later.commit()
        assert balance(lake, "x") == 211
        assert left_over(lake, "x") == []


# A warning raised as an error would keep a traceback, and by it the transaction, alive.
@pytest.mark.filterwarnings("ignore::lakevilla.LakeVillaWarning")
def test_a_transaction_without_references_is_waited_for_only_a_lease(
    place: Place, lake: lv.Lake, told: Told
) -> None:
    with place.connect(settings=SHORT) as other:
        dropped: lv.Transaction | None = other.transaction(R | CT)
        # Another thread opens the transaction, as a thread does not wait for its own ones.
        in_another_thread(lambda: add(dropped, "x"))  # type: ignore[arg-type]
        dropped = None
        gc.collect()
        with lake.transaction(R | CT) as txn:
            add(txn, "x")
        assert len(told.of("stale")) == 1
        assert balance(lake, "x") == 101


def test_a_live_holder_is_never_taken_for_dead(place: Place, told: Told) -> None:
    """The holder stays open for longer than a lease, and renews its record meanwhile."""
    settings = dataclasses.replace(SHORT, lease_seconds=1.0)
    with (
        place.connect(settings=settings) as other,
        place.connect(settings=settings, on_event=told) as lake,
    ):
        long = other.transaction(R | CT)
        add(long, "x")
        waiter = lake.transaction(R | CT, wait_timeout_seconds=2.5)
        add(waiter, "x", 10)
        waiter.commit()
        assert told.of("stale") == []
        assert tickets(lake, "x") == [1]
        assert balance(lake, "x") == 110
        long.commit()
        assert balance(lake, "x") == 111


def test_ctrl_c_during_a_wait_gives_the_places_back(place: Place, lake: lv.Lake) -> None:
    with place.connect(settings=QUICK) as other:
        first = other.transaction(R | CT)
        in_another_thread(lambda: add(first, "x"))
        perform = inside(lake).perform

        def interrupted(effect: Effect) -> object:
            if isinstance(effect, Sleep):
                raise KeyboardInterrupt
            return perform(effect)

        with pytest.raises(KeyboardInterrupt):
            with lake.transaction(R | CT | I) as txn:
                add(txn, "x")
                txn.read("y")
                inside(lake).perform = interrupted
        inside(lake).perform = perform
        assert txn.state == "aborted"
        assert (tickets(lake, "x"), tickets(lake, "y")) == ([1], [])
        first.commit()
        assert left_over(lake, "x", "y") == []
        assert balance(lake, "x") == 101


class Refusing(WrappedStore):
    """A store that refuses the markers of one table."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.startswith("y/_lakevilla/markers/"):
            raise StoreError(f"could not store {key}: it is refused")
        return super().put(key, body, condition)


def test_a_verb_has_no_effect_if_its_place_could_not_be_taken(place: Place, lake: lv.Lake) -> None:
    inside(lake).store = Refusing(inside(lake).store)
    with lake.transaction(R | CT | I) as txn:
        add(txn, "x")
        with pytest.raises(StoreError, match="y/_lakevilla/markers"):
            add(txn, "y")
        assert tickets(lake, "x") == [1]
    assert (balance(lake, "x"), balance(lake, "y")) == (101, 100)
    assert left_over(lake, "x", "y") == []


def test_threads_of_one_client_take_places_in_queues_like_separate_clients(place: Place) -> None:
    with place.connect(settings=QUICK) as lake:

        def work(number: int) -> None:
            def once(txn: lv.Transaction) -> None:
                first, second = ("x", "y") if number % 2 else ("y", "x")
                seen = read(txn, first)
                add(txn, second)
                txn.update(first, {"balance": seen + 1}, "id = 0")

            for _ in range(3):
                lake.run(once, features=QUEUED["R|CT|I" if number < 2 else "R|CT"], attempts=50)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert (balance(lake, "x"), balance(lake, "y")) == (112, 112)
        assert left_over(lake, "x", "y") == []


def test_a_table_outside_the_root_has_its_queue_in_its_own_directory(
    tmp_path: Path, told: Told
) -> None:
    place, elsewhere = Place(str(tmp_path / "lake")), Place(str(tmp_path / "else where"))
    fill(place, {"a b/ü": accounts(2)})
    fill(elsewhere, {"t": accounts(2)})
    with (
        place.connect(settings=QUICK) as one,
        place.connect(settings=QUICK, on_event=told) as two,
    ):
        one.register("other", elsewhere.uri("t"))
        first, second = one.transaction(R | CT | I), two.transaction(R | CT | I)
        for txn in (first, second):
            add(txn, "other")
            add(txn, "a b/ü")
        markers = tmp_path / "else where" / "t" / "_lakevilla" / "markers"
        assert len(list(markers.glob("*.json"))) == 2
        with beside(second.commit):
            told.wait("waiting")
            first.commit()
        assert list(markers.glob("*.json")) == []
        assert (balance(one, "other"), balance(one, "a b/ü")) == (102, 102)


# -- reservations -------------------------------------------------------------------


def run_escalated(
    lake: lv.Lake, place: Place, told: Told, then: Callable[[lv.Transaction], object]
) -> None:
    """Run a transaction that reads x, writes y and loses; ``then`` is its second attempt."""

    def losing(txn: lv.Transaction) -> None:
        if told.of("escalation"):
            then(txn)
            return
        read(txn, "x")
        add(txn, "y")
        with place.connect() as faster, faster.transaction() as quick:
            add(quick, "x")

    lake.run(losing, attempts=2)


def test_a_reservation_of_a_dead_holder_holds_for_a_lease(place: Place) -> None:
    holds, others = Told(), Told()
    with (
        place.connect(settings=SHORT, on_event=holds) as holder,
        place.connect(settings=SHORT, on_event=others) as other,
    ):

        def vanish(gone: lv.Transaction) -> None:
            assert [one.txn for one in head_of(place).reserved] == [gone.id]
            holder.close()  # the client's heartbeat stops
            with other.transaction() as txn:
                add(txn, "x", 10)
            assert others.of("waiting")[0].detail["holders"] == [gone.id]
            assert others.of("stale")[0].detail["holder"] == gone.id
            assert head_of(place).reserved == (), "dropped by who found it stale"
            assert balance(other, "x") == 111

        run_escalated(holder, place, holds, vanish)


def test_an_escalated_transaction_that_deadlocks_with_a_queued_one_commits_as_does_the_other(
    place: Place,
) -> None:
    """The escalated one has reserved x and waits on z; the other is first on z and writes x."""
    holds, others = Told(), Told()
    settings = dataclasses.replace(QUICK, escalate_after=1)
    with (
        place.connect(settings=settings, on_event=holds) as one,
        place.connect(settings=settings, on_event=others) as two,
    ):
        queued = two.transaction(R | CT | I)
        add(queued, "z", 10)

        def cross(holder: lv.Transaction) -> None:
            add(holder, "z", 1)
            add(holder, "x", 1)
            add(queued, "x", 10)
            with beside(holder.commit) as end:
                holds.wait("waiting")
                queued.commit()
                assert end.result(PATIENCE_SECONDS)

        run_escalated(one, place, holds, cross)
        assert len(holds.of("shift") + others.of("shift")) == 1
        assert (balance(one, "x"), balance(one, "z")) == (112, 111)
        assert head_of(place).reserved == ()
        assert left_over(one, "x", "y", "z") == []


def test_two_transactions_escalated_at_once_commit_one_after_the_other(place: Place) -> None:
    tolds = Told(), Told()
    started = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def work(told: Told) -> int:
        attempts = 0

        def losing(txn: lv.Transaction) -> None:
            nonlocal attempts
            attempts += 1
            seen = read(txn, "x"), read(txn, "y")
            if attempts == 1:
                with place.connect() as faster, faster.transaction() as quick:
                    add(quick, "x")
                started.wait()
            txn.update("x", {"balance": seen[0] + 1}, "id = 0")
            txn.update("y", {"balance": seen[1] + 1}, "id = 0")

        settings = dataclasses.replace(QUICK, escalate_after=1)
        with place.connect(settings=settings, on_event=told) as lake:
            lake.run(losing)
        return attempts

    with ThreadPoolExecutor(2) as pool:
        attempts = list(pool.map(work, tolds))
    assert max(attempts) <= 4
    assert all(told.of("escalation") for told in tolds)
    with place.connect() as lake:
        assert (balance(lake, "x"), balance(lake, "y")) == (104, 102)
        assert head_of(place).reserved == ()
        assert left_over(lake, "x", "y") == []
