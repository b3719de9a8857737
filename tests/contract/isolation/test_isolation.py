"""Isolation levels and the paper's validation rules, through the public API."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import lakevilla as lv
from tests.support.places import Place, fill
from tests.support.tables import accounts, kinds

ON_CALL = [{"id": 1, "on": 1}, {"id": 2, "on": 1}]


def balances(lake: lv.Lake, table: str = "bank") -> dict[int, int]:
    return {row["id"]: row["balance"] for row in lake.snapshot().read(table).to_pylist()}


def leave(txn: lv.Transaction, doctor: int) -> None:
    """Take a doctor off call if another doctor is on call."""
    others = txn.read("doctors", where=f"id <> {doctor}")["on"].to_pylist()
    assert sum(others) > 0
    txn.update("doctors", {"on": 0}, where=f"id = {doctor}")


def both_leave(place: Place, **options: Any) -> list[int]:
    """Have two doctors go off call concurrently; return the ids on call afterwards."""
    fill(place, {"doctors": ON_CALL})
    with place.connect() as lake, place.connect() as other:
        first, second = lake.transaction(**options), other.transaction(**options)
        leave(first, 1)
        leave(second, 2)
        first.commit()
        with suppress(lv.ConflictError):
            second.commit()
        return lake.snapshot().read("doctors", where='"on" = 1')["id"].to_pylist()


@pytest.mark.parametrize("options", [{"isolation": "snapshot"}, {"slack": 1}])
def test_snapshot_isolation_and_slack_admit_write_skew(
    quick_place: Place, options: dict[str, Any]
) -> None:
    assert both_leave(quick_place, **options) == []


@pytest.mark.parametrize(
    "options", [{}, {"isolation": "write-serializable"}, {"validation": "rules"}], ids=str
)
def test_serializable_levels_admit_no_write_skew(
    quick_place: Place, options: dict[str, Any]
) -> None:
    assert both_leave(quick_place, **options) == [2]


def test_without_isolation_reads_of_several_tables_are_validated_at_any_level(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(1), "till": accounts(1), "log": accounts(1)})
    queued = lv.Feature.R | lv.Feature.CT
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction(queued, isolation="snapshot", wait_timeout_seconds=0)
        txn.read("bank")
        with other.transaction() as rival:
            rival.update("bank", {"balance": 1}, where="id = 0")
            rival.update("till", {"balance": 1}, where="id = 0")
        assert txn.read("till")["balance"].to_pylist() == [1]
        txn.append("log", accounts(1))
        with pytest.raises(lv.ConflictError):
            txn.commit()


@pytest.mark.parametrize("options", [{"isolation": "snapshot"}, {"slack": 9}])
def test_an_update_computed_from_a_read_row_conflicts_if_the_row_was_changed(
    place: Place, options: dict[str, Any]
) -> None:
    fill(place, {"bank": accounts(2)})
    with place.connect() as lake, place.connect() as other:
        txn = lake.transaction(**options)
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        txn.update("bank", {"balance": row["balance"] + 1}, where="id = 1")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 10"}, where="id = 1")
        with pytest.raises(lv.ConflictError, match="has read were changed"):
            txn.commit()
        assert balances(lake)[1] == 110


def test_snapshot_isolation_redoes_an_operation_whose_rows_changed_if_no_read_row_did(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(3)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake, quick_place.connect() as other:
        txn = lake.transaction(isolation="snapshot")
        assert txn.read("bank", where="id = 0")["balance"].to_pylist() == [100]
        txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 10"}, where="id = 1")
        txn.commit()
        assert balances(lake) == {0: 100, 1: 111, 2: 100}
    assert kinds(events).count("redo") == 1


def test_a_new_constraint_conflicts_with_a_concurrent_row_that_breaks_it_at_any_level(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(2)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = lake.transaction(isolation="snapshot")
        txn.alter("bank", add_constraints={"solvent": "balance >= 0"})
        with other.transaction() as rival:
            rival.append("bank", [{"id": 9, "balance": -1}])
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert "delta.constraints.solvent" not in lake.table("bank").properties


def test_insert_select_under_snapshot_isolation_keeps_the_rows_of_its_snapshot(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(1), "copy": accounts(1, balance=0)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction(isolation="snapshot")
        assert txn.read("bank")["balance"].to_pylist() == [100]
        txn.sql("INSERT INTO copy SELECT id + 10, balance FROM bank")
        with other.transaction() as rival:
            rival.update("bank", {"balance": 7}, where="true")
        txn.commit()
        assert balances(lake, "copy") == {0: 0, 10: 100}
        assert balances(lake) == {0: 7}


# ------------------------------------------------------- validation by rules


@pytest.mark.parametrize(
    ("options", "rule"),
    [({}, "R1"), ({"isolation": "snapshot"}, "R2"), ({"slack": 1}, "R2")],
)
def test_validation_by_rules_conflicts_with_any_commit_to_the_table(
    place: Place, options: dict[str, Any], rule: str
) -> None:
    fill(place, {"bank": accounts(4)})
    with place.connect() as lake, place.connect() as other:
        by_rules = lake.transaction(validation="rules", **options)
        precise = lake.transaction(**options)
        for txn, row in ((by_rules, 0), (precise, 1)):
            txn.update("bank", {"balance": "balance + 1"}, where=f"id = {row}")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 1"}, where="id = 3")
        with pytest.raises(lv.ConflictError, match=f"rule {rule} fires") as raised:
            by_rules.commit()
        assert raised.value.table == "bank"
        precise.commit()
        assert balances(lake) == {0: 100, 1: 101, 2: 100, 3: 101}


def test_validation_by_rules_lets_a_blind_append_commit_after_other_commits(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = lake.transaction(validation="rules")
        txn.append("bank", [{"id": 7, "balance": 1}])
        with other.transaction() as rival:
            rival.update("bank", {"balance": 0}, where="id = 0")
        txn.commit()
        assert balances(lake) == {0: 0, 7: 1}


def test_validation_by_rules_ignores_other_tables_and_is_kept_when_run_repeats(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(1), "till": accounts(1)})
    seen: list[int] = []
    with quick_place.connect() as lake, quick_place.connect() as other:

        def deposit(txn: lv.Transaction) -> None:
            txn.update("bank", {"balance": "balance + 1"}, where="true")
            with other.transaction() as rival:
                rival.append("bank" if len(seen) < 2 else "till", accounts(1, balance=-5))
            seen.append(1)

        lake.run(deposit, validation="rules")
        assert len(seen) == 3, "each commit on the same table is a conflict"
        assert sorted(lake.snapshot().read("bank")["balance"].to_pylist()) == [-4, -4, 101]


def moved_on(place: Place, commits: int, **options: Any) -> lv.Transaction:
    """Return a transaction that has read a table to which others have committed since."""
    fill(place, {"bank": accounts(1)})
    lake = place.connect()
    txn = lake.transaction(**options)
    txn.read("bank")
    for _ in range(commits):
        with place.connect() as other, other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 1"}, where="true")
    return txn


def test_validation_by_rules_holds_a_read_only_transaction_to_its_slack(quick_place: Place) -> None:
    txn = moved_on(quick_place, 2, validation="rules", slack=1, read_only=True)
    with pytest.raises(lv.ConflictError, match="rule R1"):
        txn.commit()


@pytest.mark.parametrize(
    "options",
    [
        {"slack": 2},
        {"isolation": "write-serializable"},
        {"isolation": "snapshot"},
        {"validation": "precise"},
    ],
    ids=str,
)
def test_a_read_only_transaction_is_not_validated_unless_rules_limit_its_slack(
    quick_place: Place, options: dict[str, Any]
) -> None:
    txn = moved_on(quick_place, 2, **({"validation": "rules"} | options), read_only=True)
    txn.commit()
    assert txn.result is not None


def test_slack_is_the_number_of_versions_that_a_read_table_may_be_behind_at_the_commit(
    quick_place: Place,
) -> None:
    for slack, commits in ((1, 1), (1, 2)):
        place = Place(f"{quick_place.root}-{commits}")
        txn = moved_on(place, commits, slack=slack)
        txn.create_table("notes", accounts(1))
        if commits > slack:
            with pytest.raises(lv.ConflictError, match="has read were changed"):
                txn.commit()
        else:
            txn.commit()


def test_validation_by_rules_absorbs_foreign_entries_that_it_read_and_conflicts_with_later_ones(
    local_place: Place,
) -> None:
    fill(local_place, {"bank": accounts(1)})
    with local_place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 1, "balance": 5}])
        local_place.write("bank", [{"id": 2, "balance": 5}])
        txn = lake.transaction(validation="rules")
        assert txn.read("bank").num_rows == 3, "the entry that HEAD does not know is read"
        txn.update("bank", {"balance": 6}, where="id = 2")
        txn.commit()
        txn = lake.transaction(validation="rules")
        txn.update("bank", {"balance": 7}, where="id = 2")
        local_place.write("bank", [{"id": 3, "balance": 5}])
        with pytest.raises(lv.ConflictError, match="rule R1"):
            txn.commit()
        assert balances(lake) == {0: 100, 1: 5, 2: 6, 3: 5}


def test_a_saved_transaction_keeps_its_isolation_level(quick_place: Place) -> None:
    fill(quick_place, {"doctors": ON_CALL, "bank": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        skewed = lake.transaction(isolation="snapshot")
        leave(skewed, 1)
        ruled = lake.transaction(validation="rules", slack=1)
        ruled.update("bank", {"balance": 1}, where="id = 0")
        for txn in (skewed, ruled):
            txn.save()
        with other.transaction() as rival:
            leave(rival, 2)
            rival.append("bank", [{"id": 5, "balance": 5}])
        other.resume(skewed.id).commit()
        with pytest.raises(lv.ConflictError, match=r"rule R2.*slack is 1"):
            other.resume(ruled.id).commit()
