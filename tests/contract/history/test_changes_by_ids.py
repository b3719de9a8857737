"""``changes`` and the feed of tables whose rows have ids: an update is one pair of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.lake.operations import changes
from tests.support.row_ids import Bank, actions, bank_with, rows
from tests.support.stores import unpublished


@pytest.fixture(params=["rewritten", "marked"])
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    with bank_with(request.param, request) as one:
        yield one


def is_marked(bank: Bank) -> bool:
    return any("deletionVector" in action.get("add", ()) for action in actions(bank.path()))


def told(lake: lv.Lake, since: int, **options: Any) -> list[tuple[str, int, int]]:
    """Return the kind, the id and the balance of each changed row, in the order of the rows."""
    with lake.transaction() as txn:
        found = txn.changes("bank", since, **options).to_pylist()
    return [(row["_change_type"], row["id"], row["balance"]) for row in found]


def run(lake: lv.Lake, sql: str) -> int:
    """Run a statement, and return the version before it."""
    before = lake.snapshot().version
    lake.run(lambda txn: txn.sql(sql))
    return before


def test_an_update_is_a_pair_beside_deleted_and_inserted_rows(bank: Bank) -> None:
    since = bank.lake.snapshot().version
    with bank.lake.transaction() as txn:
        txn.update("bank", {"balance": "7"}, where="id in (1, 5)")
        txn.delete("bank", where="id = 2")
        txn.append("bank", rows(8))
    found = told(bank.lake, since)
    pairs = [("update_preimage", 1, 0), ("update_postimage", 1, 7)]
    others = [("update_preimage", 5, 0), ("update_postimage", 5, 7)]
    at = found.index(pairs[0])
    assert found[at : at + 2] == pairs
    at = found.index(others[0])
    assert found[at : at + 2] == others
    assert sorted(found) == sorted([*pairs, *others, ("delete", 2, 0), ("insert", 8, 0)])
    (version,) = bank.lake.changes(since, tables=["bank"])
    fed = version.tables["bank"]
    assert sorted(zip(fed["_change_type"].to_pylist(), fed["id"].to_pylist(), strict=True)) == (
        sorted((kind, id_) for kind, id_, _ in found)
    )


def test_an_update_of_the_key_is_a_pair(bank: Bank) -> None:
    since = run(bank.lake, "UPDATE bank SET id = 100 WHERE id = 3")
    assert told(bank.lake, since) == [("update_preimage", 3, 0), ("update_postimage", 100, 0)]


def test_rows_that_only_moved_are_not_told(bank: Bank) -> None:
    since = run(bank.lake, "UPDATE bank SET balance = balance WHERE id = 3")
    bank.lake.table("bank").optimize()
    assert told(bank.lake, since) == []


def test_an_equal_row_with_another_id_has_not_changed(bank: Bank) -> None:
    since = bank.lake.snapshot().version
    with bank.lake.transaction() as txn:
        txn.overwrite("bank", rows(1, 2, balance=0), where="id in (1, 2, 3)")
    assert told(bank.lake, since) == [("delete", 3, 0)]


def test_a_row_whose_id_is_not_known_yet_is_deleted_and_inserted(bank: Bank) -> None:
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(8, 9)))
        since = run(bank.lake, "UPDATE bank SET balance = 7 WHERE id = 8")
    assert sorted(told(bank.lake, since)) == [("delete", 8, 0), ("insert", 8, 7)]


def test_a_row_that_leaves_the_selection_is_deleted_from_it(bank: Bank) -> None:
    since = run(bank.lake, "UPDATE bank SET balance = id WHERE id in (1, 6)")
    assert told(bank.lake, since, where="balance < 5") == [
        ("update_preimage", 1, 0),
        ("update_postimage", 1, 1),
        ("delete", 6, 0),
    ]


def test_a_file_of_which_rows_are_marked_is_not_read_whole(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = run(bank.lake, "UPDATE bank SET balance = 7 WHERE id = 3")
    read: list[int] = []
    original = changes._scanned

    def scanned(*args: Any) -> Any:
        found = yield from original(*args)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(changes, "_scanned", scanned)
    assert len(told(bank.lake, since)) == 2
    assert read == ([1, 1] if is_marked(bank) else [4, 4])
