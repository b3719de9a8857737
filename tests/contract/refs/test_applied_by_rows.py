"""Changes are applied row by row if other commits have rewritten the files."""

from __future__ import annotations

from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import Format, read_by_others

KEYS = {"stock": "sku"}


def shop(lake: lv.Lake, kind: Format = "delta", **options: Any) -> None:
    """Create a table with four rows in one file, as version 1."""
    rows = [{"sku": sku, "qty": 5} for sku in ("jam", "oil", "tea", "zen")]
    lake.create_table("stock", rows, format=kind, **options)


def change(lake: lv.Lake, sku: str, qty: int) -> int:
    """Set one row; returns the version."""
    lake.run(lambda txn: txn.update("stock", {"qty": qty}, where=f"sku = '{sku}'"))
    return lake.history(1)[0].version


def stock(lake: lv.Lake) -> dict[str, int]:
    """Return all rows; LakeVilla and other readers must see the same ones."""
    table = lake.table("stock")
    rows = sorted(table.read().to_pylist(), key=repr)
    for who, others in read_by_others(table.uri, table.format).items():
        assert sorted(others.to_pylist(), key=repr) == rows, who
    assert len({row["sku"] for row in rows}) == len(rows)
    return {row["sku"]: row["qty"] for row in rows}


def test_a_revert_by_rows_keeps_later_changes_to_other_rows(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    second = change(lake, "jam", 6)
    change(lake, "tea", 7)
    assert lake.revert(second, keys=KEYS).tables == {"stock": "rows"}
    assert stock(lake) == {"jam": 5, "oil": 5, "tea": 7, "zen": 5}
    assert lake.cherry_pick(second, keys=KEYS).tables == {"stock": "rows"}
    assert stock(lake)["jam"] == 6
    # The changed row is in the table already.
    assert lake.cherry_pick(second, keys=KEYS).tables == {"stock": "kept"}


def test_a_merge_conflict_has_the_rows_in_conflict(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.update("stock", {"qty": 6}, where="sku IN ('jam', 'oil')"))
    change(lake, "jam", 7)
    before = stock(lake)
    with pytest.raises(lv.MergeConflict, match="the row with sku 'jam' was changed") as raised:
        lake.revert(2, keys=KEYS)
    assert raised.value.rows("stock").to_pylist() == [
        {
            "key": {"sku": "jam"},
            "base": {"sku": "jam", "qty": 6},
            "ours": {"sku": "jam", "qty": 7},
            "theirs": {"sku": "jam", "qty": 5},
        }
    ]
    assert stock(lake) == before
    assert lake.revert(2, keys=KEYS, on_conflict="ours").tables == {"stock": "rows"}
    assert stock(lake) == {"jam": 7, "oil": 5, "tea": 5, "zen": 5}
    lake.revert(2, keys=KEYS, on_conflict="theirs")
    assert stock(lake)["jam"] == 5


def test_a_revert_by_rows_undoes_inserts_deletes_and_updates_of_one_commit(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)

    def batch(txn: lv.Transaction) -> None:
        txn.update("stock", {"qty": 6}, where="sku = 'jam'")
        txn.delete("stock", where="sku = 'oil'")
        txn.append("stock", [{"sku": "new", "qty": 1}])

    lake.run(batch)
    change(lake, "tea", 7)
    lake.table("stock").optimize()
    assert lake.revert(2, keys=KEYS).tables == {"stock": "rows"}
    assert stock(lake) == {"jam": 5, "oil": 5, "tea": 7, "zen": 5}
    lake.cherry_pick(2, keys=KEYS)
    assert stock(lake) == {"jam": 6, "new": 1, "tea": 7, "zen": 5}


def test_a_revert_of_rows_that_optimize_has_moved_needs_no_keys(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.append("stock", [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 1}]))
    lake.table("stock").optimize()
    assert lake.revert(2).tables == {"stock": "rows"}
    assert stock(lake) == {"jam": 5, "oil": 5, "tea": 5, "zen": 5}
    lake.run(lambda txn: txn.append("stock", [{"sku": "c", "qty": 1}]))
    lake.table("stock").optimize()
    change(lake, "c", 2)
    with pytest.raises(
        lv.MergeConflict, match="a row to delete was changed by another transaction"
    ):
        lake.revert(lake.history()[2].version)


def test_a_revert_without_keys_removes_as_many_equal_rows_as_the_commit_added(
    lake: lv.Lake, kind: Format
) -> None:
    rows = [{"n": 1}, {"n": 1}, {"n": None}]
    lake.create_table("bag", rows, format=kind)
    lake.run(lambda txn: txn.append("bag", [{"n": 1}, {"n": None}, {"n": 2}]))
    lake.table("bag").optimize()
    assert lake.revert(2).tables == {"bag": "rows"}
    assert sorted(lake.read("bag")["n"].to_pylist(), key=repr) == [1, 1, None]


def test_a_revert_goes_by_rows_after_deltalake_has_rewritten_the_files(lake: lv.Lake) -> None:
    shop(lake)
    second = change(lake, "jam", 6)
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    table.update({"qty": "7"}, predicate="sku = 'tea'")
    table.optimize.compact()
    assert lake.revert(second, keys=KEYS).tables == {"stock": "rows"}
    assert stock(lake) == {"jam": 5, "oil": 5, "tea": 7, "zen": 5}


def test_a_revert_writes_its_rows_to_the_change_data_feed(lake: lv.Lake) -> None:
    shop(lake, properties={"delta.enableChangeDataFeed": "true"})
    second = change(lake, "jam", 6)
    change(lake, "tea", 7)
    lake.revert(second, keys=KEYS)
    version = lake.table("stock").version
    assert version is not None
    feed = deltalake.DeltaTable(f"{lake.root}/stock").load_cdf(
        starting_version=version, ending_version=version
    )
    rows = pa.table(feed.read_all()).select(["sku", "qty", "_change_type"]).to_pylist()
    assert sorted(rows, key=repr) == [
        {"sku": "jam", "qty": 5, "_change_type": "update_postimage"},
        {"sku": "jam", "qty": 6, "_change_type": "update_preimage"},
    ]


@pytest.mark.parametrize(
    ("rows", "keys", "words"),
    [
        ([{"sku": None, "qty": 1}], "sku", "has NULL in it"),
        ([{"sku": "x", "qty": 1}, {"sku": "x", "qty": 2}], "sku", "two rows have 'x'"),
        ([{"sku": "x", "qty": 5}], "qty", "two rows have 5"),
    ],
)
def test_keys_that_do_not_identify_each_row_are_refused(
    lake: lv.Lake, rows: list[Any], keys: str, words: str
) -> None:
    shop(lake)
    lake.run(lambda txn: txn.append("stock", rows))
    lake.table("stock").optimize()
    before = lake.history(1)[0].version
    with pytest.raises(lv.InvalidOperation, match=words):
        lake.revert(2, keys={"stock": keys})
    assert lake.history(1)[0].version == before


def test_a_revert_by_rows_fails_if_files_to_compare_were_vacuumed(lake: lv.Lake) -> None:
    shop(lake)
    second = change(lake, "jam", 6)
    change(lake, "tea", 7)
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(lv.LakeVillaError, match=r"was deleted by other clients|was removed"):
        lake.revert(second, keys=KEYS)


def test_an_apply_by_rows_includes_earlier_changes_of_its_transaction(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    second = change(lake, "jam", 6)
    with lake.transaction() as txn:
        txn.update("stock", {"qty": 8}, where="sku = 'oil'")
        assert txn.apply(second, second - 1, keys=KEYS).tables == {"stock": "rows"}
        assert len(txn.read("stock")) == 4
    assert stock(lake) == {"jam": 5, "oil": 8, "tea": 5, "zen": 5}


def test_an_apply_is_redone_after_a_lost_race(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    second = change(lake, "jam", 6)
    change(lake, "tea", 7)
    with lake.transaction() as txn:
        txn.apply(second, second - 1, keys=KEYS)
        change(lake, "oil", 9)  # another client commits first
    assert stock(lake) == {"jam": 5, "oil": 9, "tea": 7, "zen": 5}
    with pytest.raises(lv.MergeConflict), lake.transaction() as txn:
        txn.apply(second - 1, second, keys=KEYS)
        change(lake, "jam", 10)
    assert stock(lake)["jam"] == 10


def test_a_saved_apply_is_resumed_by_another_client(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    second = change(lake, "jam", 6)
    change(lake, "tea", 7)
    txn = lake.transaction()
    assert txn.apply(second, second - 1, keys=KEYS).tables == {"stock": "rows"}
    txn.save()
    with lv.connect(lake.root) as other:
        change(other, "oil", 9)  # so the resuming client applies the rows again
        other.resume(txn.id).commit()
    assert stock(lake) == {"jam": 5, "oil": 9, "tea": 7, "zen": 5}
