"""``take_turn`` before a read; and several queued transactions that one thread has open."""

from __future__ import annotations

import threading

import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place, fill
from tests.support.queues import QUEUED, QUICK, I, R, Told, beside, left_over, tickets
from tests.support.tables import accounts


@pytest.fixture(autouse=True)
def filled(local_place: Place) -> None:
    fill(local_place, {table: accounts(3) for table in ("x", "y")})
    with local_place.connect() as lake, lake.transaction() as txn:
        for table in ("x", "y"):
            txn.update(table, {"balance": "balance"}, "id = 0")


def balance(lake: lv.Lake, table: str) -> int:
    (found,) = lake.snapshot().read(table, where="id = 0")["balance"].to_pylist()
    assert isinstance(found, int)
    return found


def read_and_add(txn: lv.Transaction, *tables: str) -> None:
    """Read balances, and write values that Python has computed from them."""
    for table in tables:
        (now,) = txn.read(table, where="id = 0")["balance"].to_pylist()
        txn.update(table, {"balance": now + 1}, "id = 0")


@pytest.mark.parametrize("features", QUEUED)
@pytest.mark.night
def test_clients_that_take_turns_read_and_write_without_conflicts(
    local_place: Place, features: str
) -> None:
    with local_place.connect() as lake:
        before = balance(lake, "x"), balance(lake, "y")
    problems: list[Exception] = []
    start = threading.Barrier(4, timeout=60)

    def client(tables: tuple[str, str]) -> None:
        with local_place.connect(settings=QUICK) as mine:
            start.wait()
            try:
                for _ in range(5):
                    with mine.transaction(QUEUED[features]) as txn:
                        txn.take_turn(*tables)
                        read_and_add(txn, *tables)
            except lv.LakeVillaError as error:
                problems.append(error)

    crossing = [("x", "y"), ("y", "x"), ("x", "y"), ("y", "x")]
    threads = [threading.Thread(target=client, args=(tables,)) for tables in crossing]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with local_place.connect() as lake:
        assert (balance(lake, "x"), balance(lake, "y")) == (before[0] + 20, before[1] + 20)
        assert left_over(lake, "x", "y") == []


@pytest.mark.parametrize("features", QUEUED)
def test_a_read_after_taking_the_turn_sees_the_commits_of_earlier_transactions(
    local_place: Place, features: str
) -> None:
    told = Told()
    with (
        local_place.connect(settings=QUICK) as lake,
        local_place.connect(settings=QUICK, on_event=told) as other,
    ):
        before = balance(lake, "x")
        first = lake.transaction(QUEUED[features])
        first.update("x", {"balance": "balance + 10"}, "id = 0")

        def second() -> int:
            with other.transaction(QUEUED[features]) as txn:
                txn.take_turn("x")
                (seen,) = txn.read("x", where="id = 0")["balance"].to_pylist()
                txn.update("x", {"balance": seen + 1}, "id = 0")
                assert isinstance(seen, int)
                return seen

        with beside(second) as ended:
            told.wait("waiting")
            first.commit()
        assert ended.result() == before + 10
        assert balance(lake, "x") == before + 11


def test_a_turn_raises_a_conflict_if_rows_read_before_it_were_changed_meanwhile(
    local_place: Place,
) -> None:
    told = Told()
    with (
        local_place.connect(settings=QUICK) as lake,
        local_place.connect(settings=QUICK, on_event=told) as other,
    ):
        first = lake.transaction(QUEUED["R|CT|I"])
        first.update("x", {"balance": "balance + 10"}, "id = 0")
        txn = other.transaction(QUEUED["R|CT|I"])
        txn.read("x", where="id = 0")

        def turn() -> None:
            with pytest.raises(lv.ConflictError):
                txn.take_turn("x")

        with beside(turn):
            told.wait("waiting")
            first.commit()
        txn.abort()
        assert left_over(lake, "x") == []


def test_a_turn_on_several_tables_takes_one_place_in_each_queue(local_place: Place) -> None:
    with local_place.connect() as lake:
        with lake.transaction(QUEUED["R|CT|I"]) as txn:
            txn.take_turn("x", "y", "x")
            assert (tickets(lake, "x"), tickets(lake, "y")) == ([1], [1])
            read_and_add(txn, "x", "y")
            assert (tickets(lake, "x"), tickets(lake, "y")) == ([1], [1])
        assert left_over(lake, "x", "y") == []


def test_a_turn_without_feature_ct_does_nothing(local_place: Place) -> None:
    with local_place.connect() as lake, lake.transaction(R | I) as txn:
        txn.read("y")
        with inside(lake).requests.counting() as requests:
            txn.take_turn("x")
        assert requests.total == 0
        assert left_over(lake, "x") == []


def test_invalid_calls_of_take_turn_are_refused(local_place: Place) -> None:
    with local_place.connect() as lake:
        txn = lake.transaction(QUEUED["R|CT|I"])
        with pytest.raises(lv.InvalidOperation, match="names tables"):
            txn.take_turn()
        with pytest.raises(lv.InvalidOperation, match="named by a string"):
            txn.take_turn(["x", "y"])  # type: ignore[arg-type]
        with pytest.raises(lv.TableNotFound, match="nope"):
            txn.take_turn("nope")
        txn.abort()
        with pytest.raises(lv.InvalidOperation, match="has aborted"):
            txn.take_turn("x")
        reading = lake.transaction(QUEUED["R|CT|I"], read_only=True)
        with pytest.raises(lv.InvalidOperation, match="read-only"):
            reading.take_turn("x")
        assert left_over(lake, "x", "y") == []


# -- one thread ----------------------------------------------------------------------


@pytest.mark.parametrize("outer", QUEUED)
@pytest.mark.parametrize("inner", QUEUED)
def test_a_thread_does_not_wait_for_its_own_open_transaction(
    local_place: Place, outer: str, inner: str
) -> None:
    told = Told()
    # If it waited, the test would hang for a day.
    settings = lv.Settings(wait_timeout_seconds=24 * 3600.0)
    with (
        local_place.connect(settings=settings, on_event=told) as lake,
        local_place.connect(settings=settings, on_event=told) as other,
    ):
        before = balance(lake, "x")
        with lake.transaction(QUEUED[outer]) as first:
            first.update("x", {"balance": "balance + 1"}, "id = 0")
            with other.transaction(QUEUED[inner]) as second:
                second.update("x", {"balance": "balance + 10"}, "id = 0")
        assert balance(lake, "x") == before + 11
        assert left_over(lake, "x") == []
    (event,) = told.of("waiting")
    assert event.detail["beside"]
    assert event.detail["holders"] == [first.id]


def test_a_transaction_run_inside_the_function_of_another_does_not_hang(
    local_place: Place,
) -> None:
    with local_place.connect(settings=lv.Settings(wait_timeout_seconds=24 * 3600.0)) as lake:
        before = balance(lake, "x")

        def helper(txn: lv.Transaction) -> None:
            txn.update("x", {"balance": "balance + 10"}, "id = 0")

        def work(txn: lv.Transaction) -> None:
            txn.update("x", {"balance": "balance + 1"}, "id = 0")
            lake.run(helper, features=QUEUED["R|CT|I"])

        lake.run(work, features=QUEUED["R|CT|I"])
        assert balance(lake, "x") == before + 11


def test_a_transaction_waits_for_one_of_another_thread(local_place: Place) -> None:
    told = Told()
    with local_place.connect(settings=QUICK, on_event=told) as lake:
        first = lake.transaction(QUEUED["R|CT|I"])
        first.update("x", {"balance": "balance + 1"}, "id = 0")

        def second() -> None:
            with lake.transaction(QUEUED["R|CT|I"]) as txn:
                txn.update("x", {"balance": "balance + 10"}, "id = 0")

        with beside(second):
            assert not told.wait("waiting").detail.get("beside")
            first.commit()


# -- what is printed -----------------------------------------------------------------


def test_printing_a_result_neither_performs_nor_observes_a_deferred_verb(
    local_place: Place,
) -> None:
    with local_place.connect(settings=QUICK) as lake, local_place.connect() as other:
        first = other.transaction(QUEUED["R|CT|I"])
        first.update("x", {"balance": "balance + 10"}, "id = 0")
        with lake.transaction(QUEUED["R|CT|I"]) as txn:
            result = txn.update("x", {"balance": "balance + 1"}, "id = 0")
            assert "not counted yet" in repr(result)
            with inside(lake).requests.counting() as requests:
                repr(result)
            assert requests.total == 0
        assert "rows_updated=1" in repr(result)
        first.abort()
