"""Branches, reverts and applied changes that meet marks of other transactions in one file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from lakevilla.lake.operations import by_rows
from lakevilla_testing.planted.every import PLANTED
from tests.support.row_ids import Bank, bank_with, kept


@pytest.fixture
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Yield a bank with two files of four rows, of which rows are marked as deleted."""
    with bank_with("marked", request) as one:
        yield one


def balances(lake: lv.Lake) -> dict[int, int]:
    found = lake.snapshot().read("bank")
    return dict(zip(found["id"].to_pylist(), found["balance"].to_pylist(), strict=True))


def update(lake: lv.Lake, balance: int, *ids: int) -> int:
    """Update rows, and return the version."""
    where = f"id in ({', '.join(map(str, ids))})"
    lake.run(lambda txn: txn.update("bank", {"balance": str(balance)}, where=where))
    return lake.snapshot().version


def test_a_branch_that_has_marked_other_rows_is_merged_without_keys(bank: Bank) -> None:
    before, first = bank.lineage, balances(bank.lake)
    bank.lake.branch("side")
    update(bank.lake, 7, 0, 4)
    with bank.lake.on("side") as side:
        update(side, 9, 1, 5)
        side.run(lambda txn: txn.delete("bank", where="id = 6"))
    bank.lake.merge("side")
    assert balances(bank.lake) == {
        k: {0: 7, 4: 7, 1: 9, 5: 9}.get(k, v) for k, v in first.items() if k != 6
    }
    after = bank.lineage
    assert kept({k: v for k, v in before.items() if k != 6}, after)
    assert bank.lake.verify().ok


def test_a_branch_that_has_marked_a_row_of_the_lake_s_is_in_conflict(bank: Bank) -> None:
    bank.lake.branch("side")
    update(bank.lake, 7, 0)
    with bank.lake.on("side") as side:
        update(side, 9, 0, 1)
    with pytest.raises(lv.MergeConflict):
        bank.lake.merge("side")
    with pytest.raises(lv.MergeConflict) as error:
        bank.lake.merge("side", keys={"bank": ["id"]})
    assert [row["key"] for row in error.value.rows("bank").to_pylist()] == [{"id": 0}]
    bank.lake.merge("side", keys={"bank": ["id"]}, on_conflict="theirs")
    assert {k: balances(bank.lake)[k] for k in (0, 1)} == {0: 9, 1: 9}


def test_a_rebased_branch_has_the_marks_of_both(bank: Bank) -> None:
    bank.lake.branch("side")
    update(bank.lake, 7, 0)
    with bank.lake.on("side") as side:
        update(side, 9, 1)
    bank.lake.rebase("side")
    with bank.lake.on("side") as side:
        found = balances(side)
    assert (found[0], found[1], len(found)) == (7, 9, 8)


def test_a_revert_brings_back_rows_of_a_file_of_which_others_were_marked_since(bank: Bank) -> None:
    before, first = bank.lineage, balances(bank.lake)
    version = update(bank.lake, 7, 0)
    update(bank.lake, 9, 1)
    bank.lake.revert(version)
    assert balances(bank.lake) == {**first, 1: 9}
    assert kept(before, bank.lineage)
    assert bank.lake.verify().ok


def test_a_revert_of_rows_that_were_changed_since_is_in_conflict(bank: Bank) -> None:
    version = update(bank.lake, 7, 0)
    update(bank.lake, 9, 0, 1)
    with pytest.raises(lv.MergeConflict):
        bank.lake.revert(version)


def test_a_merge_by_keys_reads_the_marked_rows_alone(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank.lake.branch("side")
    update(bank.lake, 7, 0)
    with bank.lake.on("side") as side:
        update(side, 9, 1)
    read: list[int] = []
    original = by_rows.indexed

    def indexed(layout: object, keys: object, rows: list[object]) -> object:
        read.append(len(rows))
        return original(layout, keys, rows)

    monkeypatch.setattr(by_rows, "indexed", indexed)
    bank.lake.merge("side", keys={"bank": ["id"]})
    assert read == [1, 1, 1]
    assert {k: balances(bank.lake)[k] for k in (0, 1)} == {0: 7, 1: 9}


def test_the_fault_of_vectors_that_overlap_is_found_in_a_merge(bank: Bank) -> None:
    with PLANTED["vectors_overlap"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_branch_that_has_marked_a_row_of_the_lake_s_is_in_conflict(bank)
