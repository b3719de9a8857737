"""Transactions with Feature.CT take, keep and give back places in the queues of tables."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pyarrow as pa
import pytest

import lakevilla as lv
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
    records,
    tickets,
)
from tests.support.stores import interrupted, is_head
from tests.support.tables import accounts, contents, kinds


@pytest.fixture
def memory_place(request: pytest.FixtureRequest) -> Place:
    place = make_place("memory", request)
    bank(place)
    return place


def bank(place: Place, *tables: str) -> None:
    fill(place, {table: accounts(3) for table in tables or ("x", "y", "z")})
    with place.connect() as lake:  # writes a HEAD that has the tables
        with lake.transaction() as txn:
            for table in tables or ("x", "y", "z"):
                txn.update(table, {"balance": "balance"}, "id = 0")


def add(txn: lv.Transaction, table: str, amount: int = 1, row: int = 0) -> lv.OperationResult:
    return txn.update(table, {"balance": f"balance + {amount}"}, f"id = {row}")


def balance(lake: lv.Lake, table: str, row: int = 0) -> int:
    (found,) = lake.snapshot().read(table, where=f"id = {row}")["balance"].to_pylist()
    assert isinstance(found, int)
    return found


class Oops(Exception):
    pass


# -- taken and given back --------------------------------------------------------


@pytest.mark.parametrize("features", QUEUED)
def test_a_transaction_takes_a_place_at_the_first_write_and_gives_it_back_at_the_commit(
    place: Place, features: str
) -> None:
    bank(place)
    with place.connect() as lake, place.connect() as other:
        with lake.transaction(QUEUED[features]) as txn:
            assert left_over(other, "x", "y", "z") == []
            txn.append("z", accounts(1))
            assert left_over(other, "x", "y", "z") == []
            add(txn, "x")
            assert (tickets(other, "x"), tickets(other, "y")) == ([1], [])
            assert records(other) == [f"_lakevilla/txns/{txn.id}.json"]
            txn.read("y")
            add(txn, "y", row=1)
            assert [tickets(other, table) for table in "xyz"] == [[1], [1, 2], []]
            assert len(records(other)) == 1
        assert left_over(other, "x", "y", "z") == []
        assert txn.result is not None
        assert txn.result.versions is not None
        assert set(txn.result.versions) == {"x", "y", "z"}
        assert balance(other, "x") == 101


@pytest.mark.parametrize("end", ["abort", "exception", "verb", "commit", "interrupt"])
@pytest.mark.parametrize("features", QUEUED)
def test_a_transaction_gives_its_places_back_however_it_ends(
    memory_place: Place, features: str, end: str
) -> None:
    with memory_place.connect() as lake:
        if end == "abort":
            txn = lake.transaction(QUEUED[features])
            add(txn, "x")
            txn.read("y")
            assert len(left_over(lake, "x", "y")) == 3
            txn.abort()
            txn.abort()
        elif end in ("exception", "interrupt"):
            error: type[BaseException] = Oops if end == "exception" else KeyboardInterrupt
            with pytest.raises(error):
                with lake.transaction(QUEUED[features]) as txn:
                    add(txn, "x")
                    txn.read("y")
                    raise error
        elif end == "verb":
            with lake.transaction(QUEUED[features]) as txn:
                with pytest.raises(lv.InvalidOperation):
                    txn.update("x", {"nowhere": "1"}, "true")
                with pytest.raises(lv.InvalidOperation):
                    txn.append("y", [{"nowhere": 1}])
        else:
            with pytest.raises(lv.ConflictError):
                with lake.transaction(QUEUED[features]) as txn:
                    assert txn.read("x", where="id = 0")["balance"].to_pylist() == [100]
                    with lake.transaction() as faster:
                        add(faster, "x", 10)
                    add(txn, "y")
        assert left_over(lake, "x", "y") == []
        assert balance(lake, "y") == 100


@pytest.mark.parametrize("features", QUEUED)
def test_a_transaction_keeps_its_places_after_a_verb_that_raises(
    memory_place: Place, features: str
) -> None:
    with memory_place.connect() as lake:
        with lake.transaction(QUEUED[features]) as txn:
            add(txn, "x")
            with pytest.raises(lv.InvalidOperation):
                txn.update("x", {"nowhere": "1"}, "true")
            assert tickets(lake, "x") == [1]
            add(txn, "x")
        assert balance(lake, "x") == 102
        assert left_over(lake, "x") == []


@pytest.mark.parametrize("features", QUEUED)
def test_a_read_only_transaction_takes_no_place(local_place: Place, features: str) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        before = contents(local_place.root)
        with lake.transaction(QUEUED[features], read_only=True) as txn:
            assert txn.read("x").num_rows == txn.sql("SELECT * FROM y").num_rows == 3  # type: ignore[union-attr]
            assert contents(local_place.root) == before
        assert contents(local_place.root) == before


MISSPELT: dict[str, Callable[[lv.Transaction], object]] = {
    "read": lambda txn: txn.read("oders"),
    "sql": lambda txn: txn.sql("SELECT * FROM oders"),
    "append": lambda txn: txn.append("oders", accounts(1)),
    "update": lambda txn: add(txn, "oders"),
    "delete": lambda txn: txn.delete("oders", "true"),
    "overwrite": lambda txn: txn.overwrite("oders", accounts(1)),
    "upsert": lambda txn: txn.upsert("oders", accounts(1), "id"),
    "drop": lambda txn: txn.drop_table("oders"),
    "alter": lambda txn: txn.alter("oders", set_properties={"a": "b"}),
    "insert": lambda txn: txn.sql("INSERT INTO x SELECT * FROM oders"),
    "merge": lambda txn: txn.sql(
        "MERGE INTO x USING oders o ON x.id = o.id WHEN MATCHED THEN DELETE"
    ),
}


@pytest.mark.parametrize("verb", MISSPELT)
@pytest.mark.parametrize("features", ["R|CT", "R|CT|I"])
def test_a_misspelt_table_name_leaves_no_marker(
    local_place: Place, features: str, verb: str
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        inside(lake).client.ensure_safe_store()
        before = contents(local_place.root)
        with lake.transaction(QUEUED[features]) as txn:
            with pytest.raises(lv.TableNotFound, match="oders"):
                MISSPELT[verb](txn)
            assert not any("oders" in key for key in contents(local_place.root))
        assert contents(local_place.root) == before


def test_a_write_after_a_read_of_the_same_table_takes_a_second_place(memory_place: Place) -> None:
    with memory_place.connect() as lake:
        with lake.transaction(R | CT) as txn:
            add(txn, "y")
            txn.read("x")
            txn.read("x", where="id = 1")
            assert tickets(lake, "x") == [1]
            add(txn, "x")
            assert tickets(lake, "x") == [1, 2]
            txn.append("x", accounts(1))
            txn.delete("x", "id = 2")
            assert tickets(lake, "x") == [1, 2]
        assert left_over(lake, "x", "y") == []
        with lake.transaction(R | CT) as txn:
            txn.append("x", accounts(1))
            txn.append("x", accounts(1))
            assert left_over(lake, "x") == [], "an append needs none while nobody is ahead"
        assert left_over(lake, "x") == []


# -- waiting ----------------------------------------------------------------------

USES: dict[str, Callable[[lv.Transaction, int], object]] = {
    "read": lambda txn, row: txn.read("x", where=f"id = {row}"),
    "append": lambda txn, row: txn.append("x", [{"id": 100 + row, "balance": 0}]),
    "write": lambda txn, row: add(txn, "x", row=row),
}


@pytest.mark.parametrize("behind", USES)
@pytest.mark.parametrize("ahead", USES)
@pytest.mark.parametrize("features", ["R|CT", "R|CT|I"])
def test_reads_do_not_wait_for_reads_nor_appends_for_appends_and_other_uses_wait(
    memory_place: Place, features: str, ahead: str, behind: str
) -> None:
    told = Told()
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=told) as two,
    ):
        first = one.transaction(QUEUED[features])
        USES[ahead](first, 0)
        first.append("y", accounts(1))
        second = two.transaction(QUEUED[features])
        USES[behind](second, 1)
        second.append("z", accounts(1))
        if ahead == behind != "write" or ahead == "append":
            # An append takes a place only when it has to wait itself (note 25).
            second.commit()
            assert told.of("waiting") == []
            assert first.commit().global_version == second.result.global_version + 1  # type: ignore[union-attr, operator]
        else:
            with beside(second.commit) as end:
                event = told.wait("waiting")
                assert event.txn_id == second.id
                assert event.detail["holders"] == [first.id]
                assert event.detail["table"] == "x"
                assert first.id in event.message
                assert not end.done()
                version = first.commit().global_version
                assert version is not None
                assert end.result(PATIENCE_SECONDS).global_version == version + 1
            assert [event.detail["holders"] for event in told.of("waiting")] == [[first.id]]
        assert left_over(one, "x", "y", "z") == []


@pytest.mark.parametrize("features", ["R|CT", "R|CT|I"])
def test_an_append_that_has_to_wait_takes_places_and_others_wait_behind_it(
    memory_place: Place, features: str
) -> None:
    events = [Told(), Told()]
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=events[0]) as two,
        memory_place.connect(settings=QUICK, on_event=events[1]) as three,
    ):
        first, second, third = (lake.transaction(QUEUED[features]) for lake in (one, two, three))
        add(first, "x")
        second.append("x", [{"id": 100, "balance": 0}])
        second.append("y", [{"id": 100, "balance": 0}])
        assert tickets(one, "x") == [1]
        with beside(second.commit) as appended:
            assert events[0].wait("waiting").detail["holders"] == [first.id]
            assert (tickets(one, "x"), tickets(one, "y")) == ([1, 2], [1])
            add(third, "y")
            with beside(third.commit) as written:
                assert events[1].wait("waiting").detail["holders"] == [second.id]
                order = [first.commit(), appended.result(60), written.result(60)]
        versions = [result.global_version for result in order]
        assert versions == sorted(versions)  # type: ignore[type-var]
        assert second.result is not None
        assert (balance(one, "x"), balance(one, "y")) == (101, 101)
        assert second.result.retries == 0
        assert left_over(one, "x", "y") == []


def test_a_waiting_transaction_goes_on_as_soon_as_the_one_ahead_has_ended(place: Place) -> None:
    bank(place)
    for end in ("commit", "abort"):
        told = Told()
        with (
            place.connect(settings=QUICK) as one,
            place.connect(settings=QUICK, on_event=told) as two,
        ):
            first = one.transaction(R | CT | I)
            add(first, "x")
            second = two.transaction(R | CT | I)
            add(second, "x", 10)
            with beside(second.commit) as ended:
                told.wait("waiting")
                getattr(first, end)()
                started = time.monotonic()
                ended.result(PATIENCE_SECONDS)
                # Far below the lease, for which it would wait if the one ahead were dead.
                assert time.monotonic() - started < QUICK.lease_seconds / 3
            assert left_over(one, "x") == []
            assert "stale" not in kinds(told.events)
    with place.connect() as lake:
        assert balance(lake, "x") == 121


def test_a_transaction_behind_another_defers_its_operations_and_redoes_none(
    memory_place: Place,
) -> None:
    told = Told()
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=told) as two,
    ):
        first = one.transaction(R | CT | I)
        add(first, "x")
        second = two.transaction(R | CT | I)
        for _ in range(3):
            result = add(second, "x", 10)
        with beside(second.commit):
            told.wait("waiting")
            first.commit()
        assert balance(one, "x") == 131
        assert result.rows_updated == 1
        assert "redo" not in kinds(told.events)
        assert "retry" not in kinds(told.events)


def test_a_long_queue_is_served_in_the_order_of_its_places(memory_place: Place) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        tolds = [Told() for _ in range(6)]
        lakes = [
            stack.enter_context(memory_place.connect(settings=QUICK, on_event=told))
            for told in tolds
        ]
        txns = [lake.transaction(R | CT) for lake in lakes]
        for txn in txns:
            add(txn, "x")
        assert tickets(lakes[0], "x") == [1, 2, 3, 4, 5, 6]
        ends = [pool.submit(txn.commit) for txn in txns[1:]]
        for told in tolds[1:]:
            told.wait("waiting")
        first = txns[0].commit()
        versions = [end.result(PATIENCE_SECONDS).global_version for end in ends]
        assert versions == [first.global_version + place for place in range(1, 6)]  # type: ignore[operator]
        assert balance(lakes[0], "x") == 106
        assert left_over(lakes[0], "x") == []


@pytest.mark.parametrize("seconds", [0, 0.15])
def test_a_transaction_whose_wait_times_out_commits_and_the_one_ahead_redoes(
    memory_place: Place, seconds: float
) -> None:
    told = Told()
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=told) as two,
    ):
        first = one.transaction(R | CT | I)
        in_another_thread(lambda: add(first, "x"))
        started = time.monotonic()
        with two.transaction(R | CT | I, wait_timeout_seconds=seconds) as second:
            add(second, "x", 10)
        assert time.monotonic() - started >= seconds
        assert "shift" not in kinds(told.events)
        assert tickets(one, "x") == [1]
        assert balance(one, "x") == 110
        first.commit()  # redoes its update
        assert balance(one, "x") == 111
        assert left_over(one, "x") == []


def test_a_wait_timeout_can_also_be_given_as_a_setting(memory_place: Place) -> None:
    impatient = lv.Settings(wait_timeout_seconds=0.05, wait_poll_seconds=0.01)
    with memory_place.connect() as one, memory_place.connect(settings=impatient) as two:
        first = one.transaction(R | CT)
        in_another_thread(lambda: add(first, "x"))
        with two.transaction(R | CT) as second:
            add(second, "x")
        assert balance(one, "x") == 101
        first.abort()


def test_transactions_without_the_feature_neither_wait_nor_are_waited_for(
    memory_place: Place,
) -> None:
    with memory_place.connect(settings=QUICK) as one, memory_place.connect() as two:
        queued = one.transaction(R | CT | I)
        add(queued, "x")
        for features in (lv.Feature.NONE, R, R | I):
            with two.transaction(features) as quick:
                quick.append("x", [{"id": 7, "balance": 0}])
        queued.commit()
        open_one = two.transaction()
        add(open_one, "x")
        with one.transaction(R | CT | I) as queued:
            add(queued, "x")
        open_one.commit()
        assert balance(one, "x") == 103


def test_two_deadlocked_transactions_both_commit_and_the_younger_gives_way(
    memory_place: Place,
) -> None:
    tolds = Told(), Told()
    with (
        memory_place.connect(settings=QUICK, on_event=tolds[0]) as one,
        memory_place.connect(settings=QUICK, on_event=tolds[1]) as two,
    ):
        older = one.transaction(R | CT | I)
        younger = two.transaction(R | CT | I)
        while younger.id < older.id:  # both began within one millisecond
            younger = two.transaction(R | CT | I)
        add(older, "x", 1)
        add(younger, "y", 10)
        add(older, "y", 1)
        add(younger, "x", 10)
        with beside(older.commit) as end:
            tolds[0].wait("waiting")
            younger.commit()
            assert end.done() or end.result(PATIENCE_SECONDS)
        assert "shift" in kinds(tolds[1].events)
        assert "shift" not in kinds(tolds[0].events)
        assert older.result.global_version < younger.result.global_version  # type: ignore[union-attr, operator]
        assert balance(one, "x") == balance(one, "y") == 111
        assert left_over(one, "x", "y") == []


# -- what is read ------------------------------------------------------------------


def move(lake: lv.Lake) -> None:
    """Change both tables by one transaction."""
    with lake.transaction() as txn:
        add(txn, "x", -10)
        add(txn, "y", 10)


def read(txn: lv.Transaction, table: str) -> int:
    (found,) = txn.read(table, where="id = 0")["balance"].to_pylist()
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("features", ["CT", "R|CT"])
@pytest.mark.parametrize("read_only", [True, False])
def test_without_isolation_each_table_is_bound_to_its_newest_state_at_its_first_use(
    place: Place, features: str, read_only: bool
) -> None:
    bank(place)
    with place.connect() as lake, place.connect() as other:
        with lake.transaction(QUEUED[features], read_only=read_only) as txn:
            assert read(txn, "x") == 100
            move(other)
            assert read(txn, "y") == 110, "the newest"
            assert read(txn, "x") == 100, "repeatable"
            move(other)
            assert (read(txn, "x"), read(txn, "y")) == (100, 110)


@pytest.mark.parametrize("read_only", [True, False])
def test_all_tables_are_read_in_one_state_with_isolation(place: Place, read_only: bool) -> None:
    bank(place)
    with place.connect() as lake, place.connect() as other:
        with lake.transaction(R | CT | I, read_only=read_only) as txn:
            assert read(txn, "x") == 100
            move(other)
            assert (read(txn, "x"), read(txn, "y")) == (100, 100)


@pytest.mark.parametrize("features", ["CT", "R|CT"])
def test_a_transaction_that_read_an_outdated_value_can_not_commit_a_write(
    memory_place: Place, features: str
) -> None:
    with memory_place.connect() as lake, memory_place.connect() as other:
        txn = lake.transaction(QUEUED[features])
        seen = read(txn, "x")
        move(other)
        assert read(txn, "y") == 110
        txn.update("z", {"balance": seen}, "id = 0")
        with pytest.raises(lv.ConflictError, match="x"):
            txn.commit()
        txn.abort()
        assert left_over(lake, "x", "y", "z") == []
        assert balance(lake, "z") == 100


@pytest.mark.parametrize("features", QUEUED)
def test_a_transaction_reads_its_own_writes(memory_place: Place, features: str) -> None:
    with memory_place.connect() as lake:
        with lake.transaction(QUEUED[features]) as txn:
            add(txn, "x", 5)
            assert read(txn, "x") == 105
            txn.append("x", [{"id": 9, "balance": 9}])
            assert txn.sql("SELECT count(*) AS n FROM x").to_pylist() == [{"n": 4}]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "mix",
    [
        ("R|CT", "R|CT"),
        ("R|CT|I", "R|CT|I"),
        ("R|CT", "R|I"),
        ("R|CT|I", "R|I"),
        ("R|CT", "R|CT|I"),
    ],
    ids="-".join,
)
@pytest.mark.parametrize("way", ["redone", "run again"])
@pytest.mark.night
def test_no_update_is_lost_for_each_pair_of_features(
    memory_place: Place, mix: tuple[str, str], way: str
) -> None:
    every = {**QUEUED, "R|I": R | I}

    def work(features: str) -> None:
        def once(txn: lv.Transaction) -> None:
            if way == "redone":
                add(txn, "x")
                add(txn, "y", row=1)
            else:
                seen = read(txn, "x"), txn.read("y", where="id = 1")["balance"].to_pylist()[0]
                txn.update("x", {"balance": seen[0] + 1}, "id = 0")
                txn.update("y", {"balance": seen[1] + 1}, "id = 1")

        with memory_place.connect(settings=QUICK) as lake:
            for _ in range(3):
                lake.run(once, features=every[features], attempts=100)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, mix * 2))
    with memory_place.connect() as lake:
        assert (balance(lake, "x"), balance(lake, "y", 1)) == (112, 112)
        assert left_over(lake, "x", "y") == []
        assert head_of(memory_place).reserved == ()


# -- with other features of transactions ---------------------------------------------


@pytest.mark.parametrize("features", QUEUED)
def test_an_idempotency_key_commits_once(memory_place: Place, features: str) -> None:
    ran = []

    def once(txn: lv.Transaction) -> None:
        ran.append(txn.id)
        add(txn, "x")
        add(txn, "y")

    with memory_place.connect() as lake, memory_place.connect() as other:
        lake.run(once, features=QUEUED[features], idempotency_key="k")
        assert other.run(once, features=QUEUED[features], idempotency_key="k") is None
        with pytest.raises(lv.AlreadyCommitted):
            with other.transaction(QUEUED[features], idempotency_key="k"):
                raise AssertionError("the body must not run")
        assert len(ran) == 1
        assert (balance(lake, "x"), balance(lake, "y")) == (101, 101)
        assert left_over(lake, "x", "y") == []


@pytest.mark.parametrize("features", QUEUED)
def test_every_verb_works_in_a_queue(place: Place, features: str) -> None:
    bank(place)
    with place.connect() as lake:
        with lake.transaction(QUEUED[features]) as txn:
            txn.create_table("made", accounts(2))
            txn.alter("x", add_columns=pa.schema([("note", pa.string())]))
            txn.update("x", {"note": "'n'"}, "true")
            txn.merge(
                "y", [{"id": 0, "balance": 7}], "source.id = target.id"
            ).when_matched_update_all().execute()
            txn.upsert("y", [{"id": 50, "balance": 50}], "id")
            txn.sql("INSERT INTO made SELECT id + 10, balance FROM y")
            txn.sql("DELETE FROM made WHERE id = 1")
            txn.overwrite("y", [{"id": 1, "balance": 1}], where="id = 1")
            txn.drop_table("z")
            assert tickets(lake, "made") == [1]
        assert left_over(lake, "made", "x", "y", "z") == []
        state = lake.snapshot()
        assert sorted(state.read("made")["id"].to_pylist()) == [0, 10, 11, 12, 60]
        assert state.read("x")["note"].to_pylist() == ["n"] * 3
        assert sorted(state.read("y")["balance"].to_pylist()) == [1, 7, 50, 100]
        with pytest.raises(lv.TableNotFound):
            state.read("z")


@pytest.mark.parametrize("features", QUEUED)
def test_a_table_created_by_two_transactions_at_once_is_created_once(
    memory_place: Place, features: str
) -> None:
    told = Told()
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=told) as two,
    ):
        first, second = one.transaction(QUEUED[features]), two.transaction(QUEUED[features])
        first.create_table("made", accounts(1))
        second.create_table("made", accounts(2))

        def is_refused() -> bool:
            with pytest.raises(lv.TableExists):
                second.commit()
            return True

        with beside(is_refused) as end:
            told.wait("waiting")
            first.commit()
            assert end.result(PATIENCE_SECONDS)
        second.abort()
        assert left_over(one, "made") == []
        assert one.snapshot().read("made").num_rows == 1


@pytest.mark.parametrize("features", QUEUED)
def test_a_commit_with_wait_decided_gives_the_places_back_before_it_publishes(
    local_place: Place, features: str
) -> None:
    bank(local_place)
    with local_place.connect() as lake:
        with lake.transaction(QUEUED[features], wait="decided") as txn:
            add(txn, "x")
            add(txn, "y")
        assert txn.result is not None
        assert txn.result.versions is None
        assert left_over(lake, "x", "y") == []
        assert balance(lake, "x") == 101
    assert local_place.seen("x")[0]["balance"] == 101


@pytest.mark.parametrize("features", ["R|CT", "R|CT|I"])
def test_a_resumed_transaction_keeps_the_places_of_the_saved_one(
    place: Place, features: str
) -> None:
    bank(place)
    told = Told()
    with (
        place.connect(settings=QUICK) as one,
        place.connect(settings=QUICK) as two,
        place.connect(settings=QUICK, on_event=told) as three,
    ):
        first = one.transaction(QUEUED[features])
        add(first, "x")
        txn_id = first.id
        first.save()
        resumed = two.resume(txn_id)
        assert (tickets(two, "x"), tickets(two, "y")) == ([1], [])
        add(resumed, "y")
        assert (tickets(two, "x"), tickets(two, "y")) == ([1], [1])
        third = three.transaction(QUEUED[features])
        add(third, "x", 10)
        with beside(third.commit) as end:
            assert told.wait("waiting").detail["holders"] == [txn_id]
            with pytest.raises(lv.TransactionAborted, match="resumed"):
                first.save()
            first.abort()
            assert tickets(two, "x") == [1, 2], "the old owner frees nothing that is not its own"
            assert not end.done()
            resumed.commit()
        assert tickets(one, "x") == tickets(one, "y") == []
        assert f"_lakevilla/txns/{txn_id}.json" not in records(one)
        assert (balance(one, "x"), balance(one, "y")) == (111, 101)


def test_a_saved_transaction_leaves_nothing_when_it_commits(memory_place: Place) -> None:
    with memory_place.connect() as lake:
        with lake.transaction(R | CT, durability="every_op") as txn:
            add(txn, "x")
            add(txn, "y")
            assert len(records(lake)) == 3
        assert left_over(lake, "x", "y") == []


# -- run again ------------------------------------------------------------------------


def test_a_transaction_run_again_keeps_its_id_and_its_places(place: Place) -> None:
    bank(place)
    seen = []
    with place.connect(settings=QUICK) as lake, place.connect() as other:

        def losing(txn: lv.Transaction) -> str:
            value = read(txn, "x")
            add(txn, "y")
            seen.append((txn.id, value, tickets(lake, "x"), tickets(lake, "y"), len(records(lake))))
            if len(seen) < 3:
                with other.transaction() as faster:
                    add(faster, "x")
            txn.update("x", {"balance": value * 2}, "id = 0")
            return "done"

        assert lake.run(losing, features=R | CT | I) == "done"
        assert len({txn_id for txn_id, *_ in seen}) == 1
        assert [value for _, value, *_ in seen] == [100, 101, 102]
        # The transaction takes the ticket to write x at its first write of x, and keeps it.
        assert [x for _, _, x, _, _ in seen] == [[1], [1, 2], [1, 2]]
        assert [(y, count) for *_, y, count in seen] == [([1], 1)] * 3
        assert balance(lake, "x") == 204
        assert lake.outcome(seen[0][0]).state == "committed"
        assert left_over(lake, "x", "y") == []


def test_a_transaction_run_again_stays_first_in_the_queue(memory_place: Place) -> None:
    told = Told()
    attempts = []
    with (
        memory_place.connect(settings=QUICK) as one,
        memory_place.connect(settings=QUICK, on_event=told) as two,
        memory_place.connect() as optimistic,
    ):
        second = two.transaction(R | CT | I)

        def losing(txn: lv.Transaction) -> None:
            attempts.append(txn.id)
            value = read(txn, "x")
            txn.update("x", {"balance": value + 1}, "id = 0")
            if len(attempts) == 1:
                add(second, "x", 10)  # takes a place between the two attempts
                with optimistic.transaction() as faster:
                    add(faster, "x", 100)

        one.run(losing, features=R | CT | I)
        assert attempts[0] == attempts[1]
        assert len(attempts) == 2
        second.commit()
        assert balance(one, "x") == 211
        assert left_over(one, "x") == []


def test_a_transaction_gives_its_places_back_when_its_attempts_are_used_up(
    memory_place: Place,
) -> None:
    with memory_place.connect(settings=QUICK) as lake, memory_place.connect() as other:
        ids = []

        def losing(txn: lv.Transaction) -> None:
            value = read(txn, "x")
            with other.transaction() as faster:
                add(faster, "x")
            txn.update("x", {"balance": value}, "id = 0")
            ids.append(txn.id)

        with pytest.raises(lv.ConflictError):
            lake.run(losing, features=R | CT | I, attempts=2)
        assert len(set(ids)) == 1
        assert left_over(lake, "x") == []
        assert lake.outcome(ids[0]).state == "aborted"
        assert balance(lake, "x") == 102


def test_a_transaction_gives_its_places_back_when_its_function_raises_in_a_rerun(
    memory_place: Place,
) -> None:
    with memory_place.connect(settings=QUICK) as lake, memory_place.connect() as other:
        seen = []

        def losing(txn: lv.Transaction) -> None:
            seen.append(read(txn, "x"))
            if len(seen) == 2:
                raise Oops
            with other.transaction() as faster:
                add(faster, "x")
            add(txn, "y")

        with pytest.raises(Oops):
            lake.run(losing, features=R | CT | I)
        assert seen == [100, 101]
        assert left_over(lake, "x", "y") == []


def test_optimistic_transactions_wait_for_an_escalated_transaction_that_has_lost_often(
    place: Place,
) -> None:
    bank(place)
    escalating = lv.Settings(
        escalate_after=2,
        wait_poll_seconds=0.02,
        wait_poll_cap_seconds=0.05,
        retry_base_seconds=0.005,
    )
    tolds = Told(), Told()
    begun = threading.Event()
    reserved, ids = [], []
    with (
        place.connect(settings=escalating, on_event=tolds[0]) as lake,
        place.connect(settings=QUICK, on_event=tolds[1]) as other,
    ):

        def faster() -> lv.CommitResult:
            txn = other.transaction()
            add(txn, "x")
            begun.wait(PATIENCE_SECONDS)
            return txn.commit()

        with ThreadPoolExecutor(1) as pool:

            def long(txn: lv.Transaction) -> None:
                ids.append(txn.id)
                value = read(txn, "x")
                txn.update("y", {"balance": value}, "id = 0")
                if len(ids) < 3:
                    with other.transaction() as quick:
                        add(quick, "x")
                    return
                end = pool.submit(faster)
                begun.set()
                tolds[1].wait("waiting")
                reserved.append(head_of(place).reserved)
                # Writers of other tables and readers do not wait.
                with other.transaction() as elsewhere:
                    add(elsewhere, "z")
                with other.transaction(read_only=True) as reader:
                    read(reader, "x")
                assert not end.done()
                ends.append(end)

            ends: list[object] = []
            lake.run(long)
            (end,) = ends
            assert end.result(PATIENCE_SECONDS).global_version  # type: ignore[attr-defined]
        assert len(ids) == 3
        assert len(set(ids)) == 1
        (event,) = tolds[0].of("escalation")
        assert set(event.detail["tables"]) == {"x", "y"}  # type: ignore[call-overload]
        ((reservation,),) = reserved
        assert (reservation.txn, set(reservation.tables)) == (ids[-1], {"x", "y"})
        assert tolds[1].of("waiting")[0].detail["holders"] == [ids[-1]]
        assert head_of(place).reserved == ()
        assert left_over(lake, "x", "y", "z") == []
        assert balance(lake, "y") == 102
        assert balance(lake, "x") == 103


def test_an_escalated_transaction_commits_among_constant_conflicting_commits(
    memory_place: Place,
) -> None:
    """Until the escalation, each attempt takes longer than three commits of the other client."""
    settings = lv.Settings(
        escalate_after=2,
        wait_poll_seconds=0.01,
        wait_poll_cap_seconds=0.02,
        retry_base_seconds=0.001,
    )
    done = threading.Event()
    committed = threading.Semaphore(0)

    def storm() -> None:
        with memory_place.connect(settings=settings) as lake:
            while not done.is_set():
                lake.run(add, "x", 1, attempts=1000)
                committed.release()

    with ThreadPoolExecutor(1) as pool, memory_place.connect(settings=settings) as lake:
        end = pool.submit(storm)
        escalated = Told()
        with memory_place.connect(settings=settings, on_event=escalated) as long_lake:

            def long(txn: lv.Transaction) -> None:
                value = read(txn, "x")
                if not escalated.of("escalation"):
                    while committed.acquire(blocking=False):
                        pass  # commits before the read are no conflict
                    for _ in range(3):
                        assert committed.acquire(timeout=PATIENCE_SECONDS)
                txn.update("y", {"balance": value}, "id = 0")

            try:
                long_lake.run(long, attempts=6)
            finally:
                done.set()
        end.result(PATIENCE_SECONDS)
        assert len(escalated.of("escalation")) == 1
        assert head_of(memory_place).reserved == ()
        assert left_over(lake, "x", "y") == []


def test_a_reservation_is_dropped_after_its_holder_has_failed_for_good(memory_place: Place) -> None:
    settings = dataclasses.replace(QUICK, escalate_after=1)
    with memory_place.connect(settings=settings) as lake, memory_place.connect() as other:
        seen = []

        def losing(txn: lv.Transaction) -> None:
            seen.append(read(txn, "x"))
            if len(seen) == 2:
                raise Oops
            with other.transaction() as faster:
                add(faster, "x")
            add(txn, "y")

        with pytest.raises(Oops):
            lake.run(losing)
        assert left_over(lake, "x", "y") == []
        # Without its holder's record no one waits for the reservation; the next commit drops it.
        started = time.monotonic()
        with other.transaction() as next_one:
            add(next_one, "x")
        assert time.monotonic() - started < 5
        with other.transaction() as next_one:
            add(next_one, "x")
        assert head_of(memory_place).reserved == ()


def test_the_first_attempt_of_a_default_transaction_takes_no_place(memory_place: Place) -> None:
    with memory_place.connect() as lake:
        seen = lake.run(lambda txn: (read(txn, "x"), add(txn, "y"), left_over(lake, "x", "y"))[2])
        assert seen == []


# -- options ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seconds", [-1, -0.001, float("nan"), float("-inf"), True, "5", b"5", [5]], ids=repr
)
def test_an_invalid_wait_timeout_is_refused(memory_place: Place, seconds: object) -> None:
    with memory_place.connect() as lake:
        for begin in (
            lambda: lake.transaction(R | CT, wait_timeout_seconds=seconds),  # type: ignore[arg-type]
            lambda: lake.run(lambda txn: None, wait_timeout_seconds=seconds),
        ):
            with pytest.raises(lv.InvalidOperation, match="wait_timeout_seconds must be a number"):
                begin()


@pytest.mark.parametrize("seconds", [None, 0, 0.0, 5, 7.5, float("inf")])
def test_a_wait_timeout_may_be_none_or_any_number_of_seconds(
    memory_place: Place, seconds: float | None
) -> None:
    with memory_place.connect() as lake:
        with lake.transaction(R | CT, wait_timeout_seconds=seconds) as txn:
            add(txn, "x")


def test_a_commit_that_loses_the_race_for_head_keeps_its_places_and_commits(
    memory_place: Place,
) -> None:
    """A lost race costs a queued transaction no more attempts than an optimistic one."""
    with memory_place.connect() as lake, memory_place.connect() as other:

        def rival() -> None:
            with other.transaction() as txn:
                add(txn, "x", 10)

        txn = lake.transaction(R | CT | I)
        add(txn, "x")
        with interrupted(lake, is_head, rival):
            assert txn.commit().retries == 2
        assert balance(lake, "x") == 111
        assert left_over(lake, "x") == []
