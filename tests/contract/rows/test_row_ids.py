"""Ids of rows of Delta tables with row tracking: each verb keeps them (note 63)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from lakevilla_testing.planted.every import PLANTED
from tests.support.foreign_changes import delete_by_vector
from tests.support.places import make_place
from tests.support.row_ids import (
    PROPERTIES,
    SCHEMA,
    Bank,
    actions,
    bank_with,
    changed,
    kept,
    lineage_of,
    lineage_of_each,
    mark_of,
    rows,
)
from tests.support.stores import unpublished


@pytest.fixture(params=["rewritten", "marked"])
def bank(request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Yield a bank whose files are rewritten, or whose deleted rows are marked (note 65)."""
    with bank_with(request.param, request) as one:
        yield one


def test_a_row_keeps_its_id_and_only_an_update_raises_the_version_of_its_last_change(
    bank: Bank,
) -> None:
    first = bank.lineage
    assert first == {k: (k, 1 + k // 4) for k in range(8)}
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id in (1, 5)"))
    second = bank.lineage
    assert kept(first, second)
    assert changed(first, second) == {1, 5}
    assert second[1] == (1, 3)
    bank.lake.run(lambda txn: txn.delete("bank", where="id = 2"))
    bank.lake.table("bank").optimize()
    assert bank.lineage == {k: v for k, v in second.items() if k != 2}
    bank.lake.table("bank").optimize(z_order_by=["balance", "id"])
    assert bank.lineage == {k: v for k, v in second.items() if k != 2}


def test_a_merge_keeps_ids_and_gives_inserted_rows_new_ones(bank: Bank) -> None:
    before = bank.lineage

    def merge(txn: lv.Transaction) -> None:
        source = rows(3, 4, 5, 20, 21, balance=7)
        plan = txn.merge("bank", source, on="target.id = source.id")
        plan = plan.when_matched_delete("target.id = 4")
        plan.when_matched_update_all().when_not_matched_insert_all().execute()

    bank.lake.run(merge)
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {3, 5}
    assert set(after) == {*before, 20, 21} - {4}
    assert min(after[20][0], after[21][0]) > mark_of(bank.path()) - 2


@pytest.mark.parametrize("bank", ["rewritten"], indirect=True)
def test_only_files_with_rows_that_were_there_have_the_columns(bank: Bank) -> None:
    bank.lake.run(lambda txn: txn.upsert("bank", rows(3, 20, balance=1), keys="id"))
    widths = {
        (min(found["id"].to_pylist()), found.num_columns)
        for path in bank.path().glob("*.parquet")
        for found in [pq.read_table(path)]
    }
    assert widths == {(0, 2), (4, 2), (0, 4), (20, 2)}


def test_a_refresh_keeps_the_ids_of_keys(bank: Bank) -> None:
    before = bank.lineage
    data = pa.concat_tables([rows(*range(1, 6), balance=3), rows(30)])
    bank.lake.run(lambda txn: txn.overwrite("bank", data, reuse_by=["id"]))
    after = bank.lineage
    assert kept(before, after)
    assert set(after) == {1, 2, 3, 4, 5, 30}
    assert after[30][0] > max(row for row, _ in before.values())


def test_a_refresh_reads_the_ids_of_files_of_its_own_transaction(bank: Bank) -> None:
    before = bank.lineage
    with bank.lake.transaction() as txn:
        txn.update("bank", {"balance": "7"}, where="id = 5")
        txn.overwrite("bank", rows(*range(8), balance=1), reuse_by=["id"])
    after = bank.lineage
    assert {k: row for k, (row, _) in after.items() if k < 4} == {
        k: row for k, (row, _) in before.items() if k < 4
    }
    assert len(after) == 8


def test_a_key_that_a_table_has_twice_keeps_no_id_in_a_refresh(bank: Bank) -> None:
    bank.lake.run(lambda txn: txn.append("bank", rows(2)))
    bank.lake.run(lambda txn: txn.overwrite("bank", rows(1, 2), reuse_by=["id"]))
    after = bank.lineage
    assert after[1][0] == 1
    assert after[2][0] not in {2, 8}


def test_an_overwrite_of_some_rows_keeps_the_others(bank: Bank) -> None:
    before = bank.lineage
    bank.lake.run(lambda txn: txn.overwrite("bank", rows(1, 2), where="id in (1, 2)"))
    after = bank.lineage
    assert {k: after[k] for k in (0, 3)} == {k: before[k] for k in (0, 3)}
    assert {after[1][0], after[2][0]}.isdisjoint(row for row, _ in before.values())


def test_statements_of_one_transaction_pass_ids_on(bank: Bank) -> None:
    before = bank.lineage
    with bank.lake.transaction() as txn:
        txn.append("bank", rows(10, 11))
        txn.update("bank", {"balance": "1"}, where="id in (1, 10)")
        txn.update("bank", {"balance": "2"}, where="id in (2, 11)")
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {1, 2}


def test_a_row_below_a_deleted_one_keeps_its_id(bank: Bank) -> None:
    before = bank.lineage
    delete_by_vector(bank.place, 1)
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 3"))
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {3}


def test_rows_of_a_pending_file_get_ids_of_their_own_when_they_are_rewritten(bank: Bank) -> None:
    before = bank.lineage
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(10, 11)))
    with bank.lake.transaction() as txn:
        txn.update("bank", {"balance": "1"}, where="id = 10")
        bank.append_by_others(40, 41, 42)
    assert set(bank.lake.read("bank")["id"].to_pylist()) == {*before, 10, 11, 40, 41, 42}
    after = bank.lineage
    assert {k: after[k] for k in before} == before


@pytest.mark.parametrize("bank", ["marked"], indirect=True)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_pending_file_whose_rows_are_marked_has_one_base(bank: Bank, at_once: bool) -> None:
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(10, 11)))
        if at_once:
            bank.lake.run(lambda txn: txn.delete("bank", where="id = 10"))
    bank.lake.run(lambda txn: txn.delete("bank", where="id = 3"))
    bank.lake.run(lambda txn: txn.delete("bank", where="id = 10"))
    log = [action["add"] for action in actions(bank.path()) if "add" in action]
    assert len({(file["path"], file["baseRowId"]) for file in log}) == 3
    assert bank.lineage[11][0] == 9


@pytest.mark.parametrize("bank", ["marked"], indirect=True)
def test_an_export_of_marked_rows_leaves_the_version_of_the_others(bank: Bank) -> None:
    bank.lake.export("bank", "copy", copy=True)
    before = lineage_of(bank.path("copy"))
    bank.lake.run(lambda txn: txn.delete("bank", where="id = 3"))
    bank.lake.export("bank", "copy", copy=True)
    del before[3]
    assert lineage_of(bank.path("copy")) == before


def test_a_commit_that_is_performed_again_after_a_foreign_one_keeps_ids(bank: Bank) -> None:
    before = bank.lineage
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
    delete_by_vector(bank.place, 2)
    assert bank.lake.recover().ok
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {1}
    assert set(after) == set(before) - {2}


def test_change_files_have_no_columns_of_lineage(request: pytest.FixtureRequest) -> None:
    bank = Bank(make_place("local", request), {"delta.enableChangeDataFeed": "true"})
    with bank.lake:
        bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
        bank.lake.run(lambda txn: txn.upsert("bank", rows(2, 20, balance=1), keys="id"))
        found = [pq.read_table(path) for path in bank.path("bank/_change_data").glob("*.parquet")]
        assert {tuple(one.column_names) for one in found} == {("id", "balance", "_change_type")}


def test_a_branch_keeps_ids_when_it_is_merged(bank: Bank) -> None:
    before = bank.lineage
    bank.lake.branch("night")
    night = bank.lake.on("night")
    night.run(lambda txn: txn.append("bank", rows(20, 21)))
    night.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id in (1, 20)"))
    bank.lake.run(lambda txn: txn.append("bank", rows(30)))
    bank.lake.merge("night")
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {1}
    assert set(after) == {*before, 20, 21, 30}


def test_a_branch_that_is_merged_by_rows_keeps_the_ids_of_keys(bank: Bank) -> None:
    before = bank.lineage
    bank.lake.branch("night")
    bank.lake.on("night").run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "2"}, where="id = 2"))
    bank.lake.merge("night", keys={"bank": "id"})
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {1, 2}


def test_a_branch_that_is_rebased_and_merged_keeps_ids(bank: Bank) -> None:
    before = bank.lineage
    bank.lake.branch("night")
    bank.lake.on("night").run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "2"}, where="id = 5"))
    bank.lake.rebase("night")
    bank.lake.on("night").run(lambda txn: txn.update("bank", {"balance": "3"}, where="id = 6"))
    bank.lake.merge("night")
    after = bank.lineage
    assert kept(before, after)
    assert changed(before, after) == {1, 5, 6}


def test_a_state_that_is_restored_has_the_ids_that_it_had(bank: Bank) -> None:
    before, version = bank.lineage, bank.lake.snapshot().version
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id in (1, 5)"))
    bank.lake.run(lambda txn: txn.delete("bank", where="id = 2"))
    bank.lake.rollback(version)
    assert bank.lineage == before
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 3"))
    assert kept(before, bank.lineage)
    assert changed(before, bank.lineage) == {3}


def test_rows_that_are_reverted_twice_have_ids_of_their_own(bank: Bank) -> None:
    before = bank.lineage
    bank.lake.run(lambda txn: txn.delete("bank", where="id < 4"))
    deleted = bank.lake.snapshot().version
    bank.lake.revert(deleted)
    bank.lake.table("bank").optimize()
    assert bank.lineage == before
    bank.lake.revert(deleted)
    found = bank.lake.read("bank")["id"].to_pylist()
    assert sorted(found) == sorted([*before, 0, 1, 2, 3])
    ids = [row for _, row, _ in lineage_of_each(bank.path())]
    assert len(set(ids)) == len(found)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_of_ids_are_not_mapped(request: pytest.FixtureRequest, mode: str) -> None:
    bank = Bank(make_place("local", request), {"delta.columnMapping.mode": mode})
    with bank.lake:
        before = bank.lineage
        for value in ("1", "2"):
            bank.lake.run(lambda txn, v=value: txn.update("bank", {"balance": v}, where="id = 1"))
        bank.lake.table("bank").optimize()
        after = bank.lineage
        assert kept(before, after)
        assert changed(before, after) == {1}


@pytest.mark.parametrize("partitions", [3, 100], ids=["few", "many"])
def test_a_partitioned_table_keeps_ids_where_rows_change_their_partition(
    request: pytest.FixtureRequest, partitions: int
) -> None:
    place = make_place("local", request)
    with place.connect() as lake:
        lake.create_table("bank", SCHEMA, partition_by=["balance"], properties=PROPERTIES)
        for first in (0, 1000):
            parts = [rows(first + n, balance=n % partitions) for n in range(2 * partitions)]
            lake.run(lambda txn, parts=parts: txn.append("bank", pa.concat_tables(parts)))
        before = lineage_of(Path(place.root) / "bank")
        lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id % 4 = 0"))
        lake.table("bank").optimize()
        after = lineage_of(Path(place.root) / "bank")
        assert kept(before, after)
        assert changed(before, after) == {k for k in before if k % 4 == 0}


def test_clones_and_exports_have_the_ids_of_their_source(bank: Bank) -> None:
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id in (1, 5)"))
    bank.lake.run(lambda txn: txn.append("bank", rows(8)))
    before = bank.lineage
    for copy in (False, True):
        name = f"clone{copy}"
        bank.lake.clone("bank", name, copy=copy)
        bank.lake.run(lambda txn, name=name: txn.append(name, rows(50, 51)))
        bank.lake.run(lambda txn, name=name: txn.update(name, {"balance": "1"}, where="id = 8"))
        after = lineage_of(bank.path(name))
        assert kept(before, after)
        assert len(after) == 11
        assert min(after[50][0], after[51][0]) > max(row for row, _ in before.values())
        bank.lake.export("bank", f"export{copy}", copy=copy)
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 3"))
    for copy in (False, True):
        bank.lake.export("bank", f"export{copy}", copy=copy)
        found = lineage_of(bank.path(f"export{copy}"))
        assert kept(bank.lineage, found)
        assert len(found) == 9


def test_an_export_of_what_is_pending_has_the_ids_that_the_log_assigns(bank: Bank) -> None:
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(10, 11)))
    bank.append_by_others(40)
    bank.lake.export("bank", "export")
    assert kept(bank.lineage, lineage_of(bank.path("export")))


def test_an_export_of_a_branch_has_no_ids_that_its_source_may_assign_later(bank: Bank) -> None:
    bank.lake.branch("night")
    night = bank.lake.on("night")
    night.run(lambda txn: txn.append("bank", rows(20)))
    night.export("bank", "export")
    made = [a["metaData"]["configuration"] for a in actions(bank.path("export")) if "metaData" in a]
    assert "delta.enableRowTracking" not in made[-1]


def test_a_commit_says_whether_it_has_kept_all_ids(bank: Bank) -> None:
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(10, 11)))
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
    bank.lake.run(lambda txn: txn.append("bank", rows(12)))
    with unpublished(bank.lake):
        bank.lake.run(lambda txn: txn.append("bank", rows(13, 14)))
        bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 13"))
    assert bank.lake.recover().ok
    infos = [a["commitInfo"] for a in actions(bank.path()) if "commitInfo" in a]
    told = [
        (info["operation"], info["tags"]["delta.rowTracking.preserved"])
        for info in infos
        if info["operation"] != "CREATE TABLE"
    ]
    assert told == [
        *[("WRITE", "true")] * 2,
        ("TRANSACTION", "true"),  # of rows that were pending, and of an update of others
        *[("WRITE", "true")] * 2,
        ("UPDATE", "false"),
    ]


@pytest.mark.parametrize("bank", ["rewritten"], indirect=True)
def test_verify_finds_ids_that_two_rows_may_have(bank: Bank) -> None:
    bank.lake.run(lambda txn: txn.update("bank", {"balance": "1"}, where="id = 1"))
    bank.lake.tag("before")
    bank.lake.branch("night")
    bank.lake.on("night").run(lambda txn: txn.update("bank", {"balance": "2"}, where="id = 2"))
    assert bank.lake.verify().ok
    mark = mark_of(bank.path())
    assert mark == 11
    bank.append_wrongly(20, 21, base=6)
    bank.append_wrongly(22, base=0, stored=100)
    bank.append_wrongly(23, 24, base=11)
    found = [one for one in bank.lake.verify().findings if one.severity == "error"]
    assert {(one.kind, one.table) for one in found} == {("row_ids", "bank")}
    about = [one.message.partition(": ")[0] for one in found]
    assert "file other-22.parquet stores the row id 100, and the table's mark is 11" in about
    assert "rows of file other-23.parquet have ids up to 12, and the table's mark is 11" in about
    same = [text.partition("have the same ids, ")[2] for text in about]
    assert sorted(filter(None, same)) == ["from 11 on", "from 6 on"]
    assert len(about) == 4


#: For each planted bug, a test that must fail with it.
CATCHERS: dict[str, Callable[[Bank], None]] = {
    "copied_rows_lose_ids": (
        test_a_row_keeps_its_id_and_only_an_update_raises_the_version_of_its_last_change
    ),
    "updated_rows_keep_since": test_a_merge_keeps_ids_and_gives_inserted_rows_new_ones,
    "base_of_a_pending_file_guessed": (
        test_rows_of_a_pending_file_get_ids_of_their_own_when_they_are_rewritten
    ),
    "clone_begins_at_zero": test_clones_and_exports_have_the_ids_of_their_source,
    "rows_that_are_there_added_again": test_rows_that_are_reverted_twice_have_ids_of_their_own,
    "position_without_deleted_rows": test_a_row_below_a_deleted_one_keeps_its_id,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("bank", ["rewritten"], indirect=True)
@pytest.mark.parametrize("name", CATCHERS)
def test_each_planted_bug_is_found(bank: Bank, name: str) -> None:
    with PLANTED[name].plant(), pytest.raises(AssertionError):
        CATCHERS[name](bank)
