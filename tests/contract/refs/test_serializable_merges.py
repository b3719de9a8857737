"""Merges that check whether rows read on the branch were changed on the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.transaction.verbs.applying import observed
from tests.contract.foreign_readers import Format
from tests.support.places import Place


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    """Return a lake with two doctors on call, each in a separate table."""
    with local_place.connect() as lake:
        for name in ("alice", "bob"):
            rows = [{"day": 1, "on_call": True}, {"day": 2, "on_call": True}]
            lake.create_table(name, rows, format=kind)
        lake.branch("a")
        lake.branch("b")
        yield lake


def leaves(lake: lv.Lake, who: str, other: str, day: int = 1) -> None:
    """Take one doctor off call after reading that the other is on call."""

    def work(txn: Any) -> None:
        there = txn.read(other, where="day = :day", params={"day": day}, columns=["on_call"])
        assert there["on_call"].to_pylist() == [True]
        txn.update(who, {"on_call": "false"}, where="day = :day", params={"day": day})

    lake.run(work)


def on_call(lake: lv.Lake, day: int = 1) -> int:
    query = "FROM alice UNION ALL FROM bob"
    found = lake.sql(f"SELECT count(*) AS n FROM ({query}) WHERE on_call AND day = {day}")
    return int(found["n"][0].as_py())


def test_a_merge_allows_write_skew_by_default(lake: lv.Lake) -> None:
    leaves(lake.on("a"), "alice", "bob")
    leaves(lake.on("b"), "bob", "alice")
    lake.merge("a")
    lake.merge("b")
    assert on_call(lake) == 0


def test_a_serializable_merge_refuses_write_skew(lake: lv.Lake) -> None:
    leaves(lake.on("a"), "alice", "bob")
    leaves(lake.on("b"), "bob", "alice")
    lake.merge("a", isolation="serializable")
    with pytest.raises(lv.MergeConflict, match=r"have read alice there.*isolation='snapshot'") as e:
        lake.merge("b", isolation="serializable")
    assert e.value.tables == ["alice"]
    assert on_call(lake) == 1
    assert lake.refs()[1].merged is None
    lake.merge("b")
    assert on_call(lake) == 0


def test_a_serializable_merge_refuses_write_skew_with_a_transaction_on_the_lake(
    lake: lv.Lake,
) -> None:
    leaves(lake.on("a"), "alice", "bob")
    leaves(lake, "bob", "alice")
    with pytest.raises(lv.MergeConflict, match="have read bob"):
        lake.merge("a", isolation="serializable")
    assert on_call(lake) == 1


def test_a_serializable_merge_allows_changes_to_rows_that_the_branch_did_not_read(
    lake: lv.Lake,
) -> None:
    leaves(lake.on("a"), "alice", "bob", day=1)
    leaves(lake, "bob", "alice", day=2)  # rewrites the file that the branch has read
    lake.merge("a", isolation="serializable", keys={"alice": "day"})
    assert (on_call(lake, 1), on_call(lake, 2)) == (1, 1)


def test_a_serializable_merge_allows_read_rows_to_be_moved_to_other_files(lake: lv.Lake) -> None:
    etl = lake.on("a")
    leaves(etl, "alice", "bob")
    lake.run(lambda txn: txn.append("bob", [{"day": 3, "on_call": True}]))
    lake.table("bob").optimize()
    lake.merge("a", isolation="serializable")
    assert on_call(lake) == 1


def test_reads_of_an_operation_count_in_a_serializable_merge(lake: lv.Lake) -> None:
    lake.on("a").run(lambda txn: txn.sql("INSERT INTO alice SELECT day + 10, on_call FROM bob"))
    lake.run(lambda txn: txn.append("bob", [{"day": 3, "on_call": True}]))
    with pytest.raises(lv.MergeConflict, match="have read bob"):
        lake.merge("a", isolation="serializable")
    lake.on("b").run(lambda txn: txn.append("alice", [{"day": 9, "on_call": True}]))
    lake.run(lambda txn: txn.append("alice", [{"day": 8, "on_call": True}]))
    lake.merge("b", isolation="serializable")  # a blind append reads nothing


def test_changes_merged_before_are_no_conflict_in_a_serializable_merge(lake: lv.Lake) -> None:
    etl = lake.on("a")
    leaves(etl, "alice", "bob")
    lake.merge("a", isolation="serializable")
    etl.run(lambda txn: txn.update("bob", {"on_call": "true"}, where="day = 1"))
    leaves(etl, "bob", "alice", day=2)
    lake.merge("a", isolation="serializable")
    # After the merge, rows that the merged transactions have read may change.
    leaves(lake, "alice", "alice", day=2)
    etl.run(lambda txn: txn.append("bob", [{"day": 4, "on_call": True}]))
    lake.merge("a", isolation="serializable")
    assert (on_call(lake, 1), on_call(lake, 2), on_call(lake, 4)) == (1, 0, 1)


def test_a_serializable_merge_after_a_partial_one_validates_all_reads_of_the_branch(
    lake: lv.Lake,
) -> None:
    etl = lake.on("a")
    leaves(etl, "alice", "bob", day=1)
    etl.run(lambda txn: txn.append("bob", [{"day": 5, "on_call": True}]))
    lake.merge("a", tables=["bob"])
    leaves(lake, "bob", "alice", day=1)
    with pytest.raises(lv.MergeConflict, match="have read bob"):
        lake.merge("a", isolation="serializable")


def test_a_serializable_merge_refuses_if_a_table_that_the_branch_read_was_dropped(
    lake: lv.Lake,
) -> None:
    leaves(lake.on("a"), "alice", "bob")
    lake.drop_table("bob")
    with pytest.raises(lv.MergeConflict, match="have read bob"):
        lake.merge("a", isolation="serializable")


def test_tables_and_columns_made_on_the_branch_do_not_conflict_in_a_serializable_merge(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("a")
    etl.create_table("plan", [{"day": 1}], format=kind)
    etl.run(lambda txn: txn.alter("alice", add_columns={"note": "string"}))
    etl.run(lambda txn: txn.update("alice", {"note": "'x'"}, where="note IS NULL"))
    etl.run(lambda txn: txn.sql("INSERT INTO plan SELECT day + 1 FROM plan"))
    lake.merge("a", isolation="serializable")
    assert sorted(lake.read("plan")["day"].to_pylist()) == [1, 2]
    assert lake.read("alice")["note"].to_pylist() == ["x", "x"]


def test_a_serializable_merge_refuses_a_change_committed_while_it_validates(
    lake: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves(lake.on("a"), "alice", "bob")
    hold: Callable[..., Any] = observed.hold_observed
    with local_place.connect() as other:

        def slow(*args: Any) -> Any:
            yield from hold(*args)
            if on_call(other) == 2:
                leaves(other, "bob", "alice")

        monkeypatch.setattr("lakevilla.transaction.verbs.applying.merge_branch.hold_observed", slow)
        with pytest.raises(lv.MergeConflict, match="have read bob"):
            lake.merge("a", isolation="serializable")
    assert on_call(lake) == 1


@pytest.mark.parametrize("option", [{"tables": ["alice"]}, {"on_conflict": "ours"}])
def test_a_serializable_merge_with_options_that_leave_out_a_part_is_refused(
    lake: lv.Lake, option: dict[str, Any]
) -> None:
    leaves(lake.on("a"), "alice", "bob")
    with pytest.raises(lv.InvalidOperation, match=f"can't be combined with {next(iter(option))}"):
        lake.merge("a", isolation="serializable", **option)
    with pytest.raises(lv.InvalidOperation, match="isolation"):
        lake.merge("a", isolation="full")  # type: ignore[arg-type]


def test_a_serializable_merge_without_the_commit_objects_fails(lake: lv.Lake) -> None:
    leaves(lake.on("a"), "alice", "bob")
    for path in Path(lake.root).glob("_lakevilla/branches/*/commits/*.json"):
        path.unlink()
    with lv.connect(lake.root) as other, pytest.raises(lv.LakeVillaError, match="missing"):
        other.merge("a", isolation="serializable")


def test_audited_can_merge_with_serializable_isolation(lake: lv.Lake) -> None:
    with (
        pytest.raises(lv.MergeConflict, match="have read bob"),
        lake.audited("night", checks=[], isolation="serializable") as night,
    ):
        leaves(night, "alice", "bob")
        leaves(lake, "bob", "alice")
    assert on_call(lake) == 1
