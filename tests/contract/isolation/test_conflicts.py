"""Two concurrent transactions: which of them commit, and what each sees of the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place, fill
from tests.support.tables import accounts, add, kinds, values


def balances(lake: lv.Lake, table: str = "bank") -> dict[int, int]:
    rows = lake.snapshot().read(table).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a row is there twice"
    return {row["id"]: row["balance"] for row in rows}


def test_the_second_of_two_transactions_that_read_and_update_one_row_conflicts(
    place: Place,
) -> None:
    fill(place, {"bank": accounts(3)})
    with place.connect() as lake, place.connect() as other:
        first, second = lake.transaction(), other.transaction()
        for txn in (first, second):
            (row,) = txn.read("bank", where="id = 1").to_pylist()
            txn.update("bank", {"balance": row["balance"] + 10}, where="id = 1")
        first.commit()
        before = balances(other)
        with pytest.raises(lv.ConflictError) as raised:
            second.commit()
        assert raised.value.table == "bank"
        assert raised.value.txn_id == second.id
        assert before == balances(lake) == balances(place.connect()) == {0: 100, 1: 110, 2: 100}
        with pytest.raises(lv.ConflictError):
            second.read("bank")


def test_a_with_block_raises_a_caught_conflict_again_when_it_is_left(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(3)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        with pytest.raises(lv.ConflictError), lake.transaction() as txn:
            txn.read("bank")
            txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
            with other.transaction() as rival:
                rival.update("bank", {"balance": "balance + 1"}, where="id = 1")
            with pytest.raises(lv.ConflictError):
                txn.commit()
        assert balances(lake)[1] == 101


def test_both_transactions_that_update_one_row_by_run_commit(place: Place) -> None:
    fill(place, {"bank": accounts(3)})
    together = threading.Barrier(2, timeout=60)
    calls: list[int] = []

    def deposit(txn: lv.Transaction, amount: int) -> None:
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        calls.append(amount)
        if len(calls) <= 2:
            together.wait()  # both transactions have read before one commits
        txn.update("bank", {"balance": row["balance"] + amount}, where="id = 1")

    with place.connect() as lake, place.connect() as other:
        with ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(lake.run, deposit, 1), pool.submit(other.run, deposit, 20)]
            for end in ends:
                end.result()
        assert balances(lake) == {0: 100, 1: 121, 2: 100}
    assert len(calls) == 3, "the loser ran once more"


def test_two_updates_of_different_rows_in_one_file_commit_by_redo(place: Place) -> None:
    fill(place, {"bank": accounts(4)})
    events: list[lv.Event] = []
    with place.connect() as lake, place.connect(on_event=events.append) as other:
        first, second = lake.transaction(), other.transaction()
        first.update("bank", {"balance": "balance - 1"}, where="id = 0")
        second.update("bank", {"balance": "balance + 1"}, where="id = 3")
        first.commit()
        result = second.commit()
        assert balances(lake) == balances(other) == {0: 99, 1: 100, 2: 100, 3: 101}
    assert kinds(events).count("redo") == 1
    assert result.retries >= 1


def test_a_read_of_rows_that_stay_equal_in_a_rewritten_file_does_not_conflict(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        (row,) = txn.read("bank", where="id = 3").to_pylist()
        with other.transaction() as rival:
            rival.update("bank", {"balance": "0"}, where="id = 0")
        txn.update("bank", {"balance": row["balance"] * 2}, where="id = 3")
        txn.commit()
        assert balances(other) == {0: 0, 1: 100, 2: 100, 3: 200}


def test_an_update_of_rows_that_another_transaction_updated_is_redone_on_their_new_values(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 10"}, where="id = 1")
        txn.commit()
        assert balances(other)[1] == 220, "nothing was observed, so nothing is lost"


@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.R])
def test_two_blind_appends_commit_without_a_redo(place: Place, features: lv.Feature) -> None:
    fill(place, {"bank": accounts(1)})
    events: list[lv.Event] = []
    with place.connect() as lake, place.connect(on_event=events.append) as other:
        first, second = lake.transaction(features), other.transaction(features)
        first.append("bank", [{"id": 1, "balance": 1}])
        second.append("bank", [{"id": 2, "balance": 2}])
        first.commit()
        result = second.commit()
        assert balances(lake) == {0: 100, 1: 1, 2: 2}
    assert "redo" not in kinds(events)
    assert result.retries <= 1, "a lost race at most, nothing done again"


def test_a_blind_append_writes_its_file_once_though_other_commits_overtake_it(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 8, "balance": 8}])
        txn = lake.transaction()
        txn.append("bank", [{"id": 1, "balance": 1}])
        for number in range(2, 6):
            with other.transaction() as rival:
                rival.append("bank", [{"id": number, "balance": number}])
        with inside(lake).requests.counting() as requests:
            txn.commit()
        # Puts of the file, the commit object, HEAD and the publishing (an entry; or manifest, list,
        # metadata and hint). HEAD is put once: the commit has seen the other commits before.
        published = 4 if quick_place.format == "iceberg" else 1
        assert requests.put == 3 + published, requests
        assert values(other.snapshot().read("bank")) == [0, 1, 2, 3, 4, 5, 8]


def test_write_skew_over_two_tables_is_refused(place: Place) -> None:
    fill(place, {"x": accounts(1), "y": accounts(1)})
    with place.connect() as lake, place.connect() as other:
        first, second = lake.transaction(), other.transaction()
        for txn in (first, second):
            total = sum(txn.read(table)["balance"].to_pylist()[0] for table in ("x", "y"))
            assert total == 200
        first.update("x", {"balance": "balance - 150"}, where="id = 0")
        second.update("y", {"balance": "balance - 150"}, where="id = 0")
        first.commit()
        with pytest.raises(lv.ConflictError):
            second.commit()
        assert (balances(lake, "x"), balances(lake, "y")) == ({0: -50}, {0: 100})


def test_of_two_transactions_that_read_what_the_other_appends_to_one_is_refused(
    place: Place,
) -> None:
    """Scenario 11: T1 reads X and appends to Y; T2 reads Y and appends to X."""
    fill(place, {"x": accounts(1), "y": accounts(1)})
    with place.connect() as lake, place.connect() as other:
        first, second = lake.transaction(), other.transaction()
        seen = len(first.read("x")), len(second.read("y"))
        first.append("y", [{"id": 10, "balance": seen[0]}])
        second.append("x", [{"id": 20, "balance": seen[1]}])
        first.commit()
        with pytest.raises(lv.ConflictError):
            second.commit()
        assert sorted(balances(other, "x")) == [0]
        assert sorted(balances(other, "y")) == [0, 10]


def test_an_insert_from_a_query_over_a_changed_table_is_redone(quick_place: Place) -> None:
    fill(quick_place, {"x": accounts(2), "y": accounts(1)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake, quick_place.connect() as other:
        txn = lake.transaction()
        txn.sql("INSERT INTO y SELECT id + 100, balance FROM x")
        with other.transaction() as rival:
            rival.append("x", [{"id": 7, "balance": 7}])
        txn.commit()
        assert sorted(balances(other, "y")) == [0, 100, 101, 107]
    assert "redo" in kinds(events)


def test_a_row_count_that_the_caller_read_and_a_redo_would_change_is_a_conflict(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        assert txn.update("bank", {"balance": "0"}, where="balance >= 100").rows_updated == 4
        with other.transaction() as rival:
            rival.update("bank", {"balance": "50"}, where="id = 2")
        with pytest.raises(lv.ConflictError, match="counts"):
            txn.commit()
        assert balances(lake) == {0: 100, 1: 100, 2: 50, 3: 100}


def test_a_row_count_that_the_caller_did_not_read_may_change_by_a_redo(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(4)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        updated = txn.update("bank", {"balance": "0"}, where="balance >= 100")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "50"}, where="id = 2")
        txn.commit()
        assert updated.rows_updated == 3
        assert balances(lake) == {0: 0, 1: 0, 2: 50, 3: 0}


def test_a_row_count_that_the_caller_read_and_a_redo_keeps_is_no_conflict(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        assert txn.update("bank", {"balance": "balance + 1"}, where="id = 1").rows_updated == 1
        with other.transaction() as rival:
            rival.update("bank", {"balance": "50"}, where="id = 2")
        txn.commit()
        assert balances(lake) == {0: 100, 1: 101, 2: 50, 3: 100}


def test_an_operation_is_redone_at_most_max_redos_times(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(2)})
    settings = lv.Settings(max_redos=0)
    with quick_place.connect(settings=settings) as lake, quick_place.connect() as other:
        txn = lake.transaction()
        txn.update("bank", {"balance": "0"}, where="id = 0")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "50"}, where="id = 1")
        with pytest.raises(lv.ConflictError, match="redone"):
            txn.commit()
        assert balances(lake) == {0: 100, 1: 50}


def test_an_operation_is_redone_with_the_later_ones_that_use_its_rows(
    quick_place: Place,
) -> None:
    fill(quick_place, {"x": accounts(2), "y": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        txn.update("x", {"balance": "balance + 5"}, where="id = 0")
        txn.append("x", [{"id": 9, "balance": 9}])
        txn.update("x", {"balance": "balance * 2"}, where="true")
        txn.sql("INSERT INTO y SELECT id + 10, balance FROM x")
        with other.transaction() as rival:
            rival.update("x", {"balance": "1000"}, where="id = 0")
        txn.commit()
        assert balances(lake, "x") == {0: 2010, 1: 200, 9: 18}
        assert balances(lake, "y") == {0: 100, 10: 2010, 11: 200, 19: 18}


def test_a_transaction_that_read_its_own_rows_conflicts_if_they_must_be_redone(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance + 5"}, where="id = 0")
        txn.read("bank", where="id = 0")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "0"}, where="id = 0")
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert balances(lake) == {0: 0, 1: 100}


def test_a_read_by_a_value_that_its_own_transaction_wrote_conflicts_if_that_is_redone(
    quick_place: Place,
) -> None:
    """No other transaction ever stored a row for this predicate; only the own update made one."""
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake, quick_place.connect() as rival:
        txn = lake.transaction()
        add(txn, 1, 5)
        (row,) = txn.read("bank", where="balance = 105").to_pylist()
        txn.append("bank", [{"id": 9, "balance": row["balance"]}])
        rival.run(add, 1, 50)
        with pytest.raises(lv.ConflictError, match="read rows of its own that must be redone"):
            txn.commit()
        assert balances(lake) == {0: 100, 1: 150}


def test_a_schema_change_conflicts_with_a_concurrent_update_but_not_with_an_append(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        reader, appender = lake.transaction(), lake.transaction()
        reader.read("bank", where="id = 1")
        reader.append("bank", [{"id": 8, "balance": 8}])
        appender.append("bank", [{"id": 9, "balance": 9}])
        with other.transaction() as rival:
            rival.alter("bank", add_columns=pa.schema([("note", pa.string())]))
        appender.commit()
        with pytest.raises(lv.ConflictError):
            reader.commit()
        assert sorted(balances(lake)) == [0, 1, 9]
        assert lake.table("bank").schema.names == ["id", "balance", "note"]


def test_an_append_that_breaks_a_concurrently_added_constraint_conflicts(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(2)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = lake.transaction()
        txn.append("bank", [{"id": 9, "balance": -9}])
        with other.transaction() as rival:
            rival.alter("bank", add_constraints={"positive": "balance >= 0"})
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert sorted(balances(lake)) == [0, 1]


@pytest.mark.night
def test_many_threads_of_one_lake_lose_no_update(quick_place: Place) -> None:
    fill(quick_place, {"x": accounts(3), "y": accounts(3)})

    def move(txn: lv.Transaction, number: int) -> None:
        source, target = ("x", "y") if number % 2 else ("y", "x")
        row = number % 3
        paid = txn.update(source, {"balance": "balance - 1"}, where=f"id = {row}")
        assert paid.rows_updated == 1
        txn.update(target, {"balance": "balance + 1"}, where=f"id = {(row + 1) % 3}")

    with quick_place.connect() as lake, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: lake.run(move, number, attempts=50), range(24)))
        assert sum(balances(lake, "x").values()) + sum(balances(lake, "y").values()) == 600
        # There are 12 moves each way: odd numbers from x, even ones from y.
        assert sum(balances(lake, "x").values()) == 300


def test_two_transactions_of_one_client_that_commit_by_a_log_entry_lose_no_update(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(3)})
    with quick_place.connect() as lake:
        first, second = lake.transaction(lv.Feature.R), lake.transaction(lv.Feature.R)
        first.update("bank", {"balance": "balance + 10"}, where="id = 1")
        second.update("bank", {"balance": "balance + 100"}, where="id = 1")
        second.commit()
        first.commit()
        rows = lake.snapshot().read("bank").to_pylist()
    assert sorted((row["id"], row["balance"]) for row in rows) == [(0, 100), (1, 210), (2, 100)]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
def test_a_commit_by_a_log_entry_conflicts_if_the_table_was_guarded_meanwhile(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as slow, local_place.connect() as lake:
        lake.create_table("t", [{"id": 1, "balance": 100}])
        txn = slow.transaction(features)
        txn.update("t", {"balance": "balance - 10"}, where="id = 1")
        lake.guard("t")
        reader = lake.transaction()
        (row,) = reader.read("t").to_pylist()
        reader.update("t", {"balance": row["balance"] - 1}, where="id = 1")
        with pytest.raises(lv.ConflictError, match="guarded meanwhile"):
            txn.commit()
        reader.commit()
        # The second run commits through HEAD, as all commits to a guarded table do.
        slow.run(
            lambda txn: txn.update("t", {"balance": "balance - 10"}, where="id = 1"),
            features=features,
        )
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1, "balance": 89}]
