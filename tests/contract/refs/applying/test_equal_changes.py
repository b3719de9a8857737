"""Rows that both sides have set to equal values: one change, or two of which one would be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import Format
from tests.support.places import Place

KEYS = {"t": "id"}


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        rows = [{"id": n, "bal": 100, "note": "a"} for n in range(3)]
        lake.create_table("t", rows, format=kind)
        lake.create_table("s", [{"id": 0, "x": -1, "y": 99}], format=kind)
        lake.branch("etl")
        yield lake


def balances(lake: lv.Lake) -> list[int]:
    return [row["bal"] for row in lake.read("t").sort_by("id").to_pylist()]


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


Change = Callable[[lv.Lake], Any]


def by_update(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.update("t", {"bal": "bal - 1"}, where="id = 0"))


def by_merge(lake: lv.Lake) -> None:
    def merges(txn: lv.Transaction) -> None:
        merge = txn.merge("t", [{"id": 0, "x": -1}], on="target.id = source.id")
        merge.when_matched_update({"bal": "target.bal + source.x"}).execute()

    lake.run(merges)


def by_query_of_itself(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql(
            "MERGE INTO t USING (SELECT id, bal - 1 AS b FROM t WHERE id = 0) AS n ON t.id = n.id "
            "WHEN MATCHED THEN UPDATE SET bal = n.b"
        )


def by_values(lake: lv.Lake) -> None:
    """Update a row by a subquery: a query computes the value, and a merge operation sets it."""
    with lake.session() as session:
        session.sql("UPDATE t SET bal = bal + (SELECT min(x) FROM s) WHERE id = 0")


def by_update_from(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql("UPDATE t SET bal = t.bal + s.x FROM s WHERE t.id = s.id")


def by_constant(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.update("t", {"bal": 99}, where="bal = 100 AND id = 0"))


def by_upsert(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.upsert("t", [{"id": 0, "bal": 99, "note": "a"}], keys="id"))


def by_source(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql("UPDATE t SET bal = s.y FROM s WHERE t.id = s.id")


def by_values_of_others(lake: lv.Lake) -> None:
    with lake.session() as session:
        session.sql("UPDATE t SET bal = (SELECT max(s.y) FROM s) WHERE id IN (SELECT s.id FROM s)")


COMPUTED = [by_update, by_merge, by_query_of_itself, by_values, by_update_from]
GIVEN = [by_constant, by_upsert, by_source, by_values_of_others]


@pytest.mark.parametrize("theirs", COMPUTED + GIVEN)
@pytest.mark.parametrize("ours", [by_update, by_constant])
def test_an_equal_change_is_a_conflict_if_one_side_has_computed_it(
    lake: lv.Lake, ours: Change, theirs: Change
) -> None:
    ours(lake)
    theirs(lake.on("etl"))
    assert balances(lake) == balances(lake.on("etl")) == [99, 100, 100]
    if ours in GIVEN and theirs in GIVEN:
        assert lake.merge("etl", keys=KEYS).tables == {"t": "kept"}
        return
    with pytest.raises(lv.MergeConflict, match=r"changed alike on both sides, in bal") as raised:
        lake.merge("etl", keys=KEYS)
    assert [row["ours"]["bal"] for row in raised.value.rows("t").to_pylist()] == [99]
    assert lake.merge("etl", keys=KEYS, on_equal="keep").tables == {"t": "kept"}
    assert lake.merge("etl", keys=KEYS).tables == {}
    assert balances(lake) == [99, 100, 100]


@pytest.mark.parametrize("settled", [{"on_conflict": "ours"}, {"on_conflict": "theirs"}])
def test_a_merge_that_says_whose_rows_count_needs_no_choice_for_equal_changes(
    lake: lv.Lake, settled: Any
) -> None:
    by_update(lake)
    by_update(lake.on("etl"))
    assert lake.merge("etl", keys=KEYS, **settled).tables == {"t": "kept"}


def test_a_computed_column_of_another_row_makes_no_conflict_of_an_equal_change(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    for side in (lake, etl):
        side.run(lambda txn: txn.update("t", {"note": "'b'"}, where="id = 1"))
    etl.run(lambda txn: txn.update("t", {"bal": "bal - 1"}, where="id = 2"))
    assert lake.merge("etl", keys=KEYS).tables == {"t": "rows"}
    assert balances(lake) == [100, 100, 99]


def test_a_field_that_is_set_to_a_constant_was_not_computed(lake: lv.Lake) -> None:
    lake.create_table("u", [{"id": 0, "st": {"a": 1, "b": "x"}}])
    lake.branch("other")
    for side in (lake, lake.on("other")):
        side.run(lambda txn: txn.update("u", {"st.a": 7}, where="id = 0"))
    assert lake.merge("other", keys={"u": "id"}).tables == {"u": "kept"}
    lake.branch("third")
    for side in (lake, lake.on("third")):
        side.run(lambda txn: txn.update("u", {"st.a": "st.a + 1"}, where="id = 0"))
    with pytest.raises(lv.MergeConflict, match="changed alike on both sides, in st"):
        lake.merge("third", keys={"u": "id"})


def test_rows_that_both_sides_insert_or_delete_are_kept(lake: lv.Lake) -> None:
    for side in (lake, lake.on("etl")):
        by = {"id": 7, "bal": 1, "note": "new"}
        side.run(lambda txn, by=by: (txn.append("t", [by]), txn.delete("t", where="id = 1")))
        side.run(lambda txn: txn.update("t", {"bal": "bal + 1"}, where="id = 7"))
    assert lake.merge("etl", keys=KEYS).tables == {"t": "kept"}
    assert lake.read("t").num_rows == 3


def test_transfers_on_two_branches_lose_no_money(lake: lv.Lake) -> None:
    lake.branch("other")
    for name in ("etl", "other"):
        lake.on(name).run(
            lambda txn: (
                txn.update("t", {"bal": "bal - 1"}, where="id = 0"),
                txn.update("t", {"bal": "bal + 1"}, where="id IN (1)"),
            )
        )
    lake.merge("etl", keys=KEYS)
    with pytest.raises(lv.MergeConflict) as raised:
        lake.merge("other", keys=KEYS)
    assert raised.value.rows("t").num_rows == 2
    assert sum(balances(lake)) == 300
    with pytest.raises(lv.MergeConflict, match="on_equal='keep'"):
        lake.rebase("other", keys=KEYS)
    lake.rebase("other", keys=KEYS, on_equal="keep")
    assert lake.merge("other", keys=KEYS).tables == {}


def move(lake: lv.Lake) -> None:
    """Rewrite the files by a change to another row, so that rows have to be compared."""
    lake.run(lambda txn: txn.update("t", {"note": "'moved'"}, where="id = 2"))


def test_a_change_picked_from_the_branch_is_no_second_change_in_a_merge(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    by_update(etl)
    lake.cherry_pick(f"etl@{newest(etl)}")
    move(lake)
    etl.run(lambda txn: txn.update("t", {"note": "'b'"}, where="id = 1"))
    assert lake.merge("etl", keys=KEYS).tables == {"t": "rows"}
    assert balances(lake) == [99, 100, 100]
    by_update(etl)  # a second change, which the lake makes by itself, too
    by_update(lake)
    with pytest.raises(lv.MergeConflict, match="changed alike"):
        lake.merge("etl", keys=KEYS)


def test_a_commit_shared_by_two_branches_is_no_second_change_in_a_merge(
    lake: lv.Lake,
) -> None:
    by_update(lake.on("etl"))
    lake.branch("more", at="etl")
    lake.on("more").run(lambda txn: txn.update("t", {"note": "'b'"}, where="id = 1"))
    lake.merge("etl")
    move(lake)
    assert lake.merge("more", keys=KEYS).tables == {"t": "rows"}
    assert balances(lake) == [99, 100, 100]


def test_a_change_applied_before_is_no_second_change_in_a_merge(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    by_update(etl)
    version = newest(etl)
    with lake.transaction() as txn:
        txn.apply(f"etl@{version - 1}", f"etl@{version}")
        txn.update("t", {"note": "'c'"}, where="id = 2")
    assert lake.merge("etl", keys=KEYS).tables == {"t": "kept"}


def test_a_merge_after_a_rebase_still_detects_changes_that_the_lake_has_picked(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    by_update(etl)
    move(lake)
    lake.rebase("etl", keys=KEYS)
    lake.cherry_pick(f"etl@{newest(etl)}", keys=KEYS)
    move(lake)
    assert lake.merge("etl", keys=KEYS).tables == {"t": "kept"}
    assert balances(lake) == [99, 100, 100]
    by_update(lake.on("etl"))
    by_update(lake)
    with pytest.raises(lv.MergeConflict, match="changed alike"):
        lake.merge("etl", keys=KEYS)


def test_a_second_revert_or_cherry_pick_of_the_same_commit_changes_nothing(lake: lv.Lake) -> None:
    by_update(lake)
    version = newest(lake)
    move(lake)
    assert lake.revert(version, keys=KEYS).tables == {"t": "rows"}
    assert lake.revert(version, keys=KEYS).tables == {"t": "kept"}
    assert balances(lake) == [100, 100, 100]
    lake.cherry_pick(version, keys=KEYS)
    assert lake.cherry_pick(version, keys=KEYS).tables == {"t": "kept"}
    assert balances(lake) == [99, 100, 100]


def test_a_revert_reports_a_conflict_if_another_commit_has_computed_the_old_value(
    lake: lv.Lake,
) -> None:
    by_update(lake)
    version = newest(lake)
    lake.run(lambda txn: txn.update("t", {"bal": "bal + 1"}, where="id = 0"))
    with pytest.raises(lv.MergeConflict, match="changed alike"):
        lake.revert(version, keys=KEYS)
    assert lake.revert(version, keys=KEYS, on_equal="keep").tables == {"t": "kept"}


def test_changes_of_the_same_transaction_count_as_equal_changes_in_an_apply(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    by_update(etl)
    version = newest(etl)
    with lake.transaction() as txn:
        txn.update("t", {"bal": "bal - 1"}, where="id = 0")
        with pytest.raises(lv.MergeConflict, match="changed alike"):
            txn.apply(f"etl@{version - 1}", f"etl@{version}", keys=KEYS)
        done = txn.apply(f"etl@{version - 1}", f"etl@{version}", keys=KEYS, on_equal="keep")
        assert done.tables == {"t": "kept"}


def test_an_equal_change_that_is_committed_during_the_merge_is_a_conflict(lake: lv.Lake) -> None:
    by_update(lake.on("etl"))
    move(lake)
    version = newest(lake)

    def beside(txn: lv.Transaction) -> bool:
        if newest(lake) == version:
            by_update(lake)
        return True

    with pytest.raises(lv.MergeConflict, match="changed alike"):
        lake.merge("etl", keys=KEYS, checks=[beside])


def test_an_equal_update_by_deltalake_is_a_conflict_as_it_may_be_computed(
    lake: lv.Lake, kind: Format
) -> None:
    if kind == "iceberg":
        pytest.skip("deltalake writes Delta tables")
    by_constant(lake.on("etl"))
    deltalake.DeltaTable(f"{lake.root}/t").update({"bal": "bal - 1"}, predicate="id = 0")
    with pytest.raises(lv.MergeConflict, match="which may be computed"):
        lake.merge("etl", keys=KEYS)
    move(lake)  # the lake absorbs deltalake's commit
    with pytest.raises(lv.MergeConflict, match="which may be computed"):
        lake.merge("etl", keys=KEYS)


def test_rows_that_deltalake_appends_or_deletes_do_not_count_as_computed(
    lake: lv.Lake, kind: Format
) -> None:
    if kind == "iceberg":
        pytest.skip("deltalake writes Delta tables")
    by_constant(lake.on("etl"))
    by_constant(lake)
    table = deltalake.DeltaTable(f"{lake.root}/t")
    table.delete("id = 2")
    rows = pa.table({"id": [9], "bal": [1], "note": ["x"]})
    deltalake.write_deltalake(f"{lake.root}/t", rows, mode="append")
    assert lake.merge("etl", keys=KEYS).tables == {"t": "kept"}


def test_an_equal_change_is_a_conflict_even_after_many_commits_on_the_branch(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    for number in range(20):  # more commits than HEAD keeps separate
        etl.run(lambda txn, n=number: txn.update("t", {"note": f"'{n}'"}, where="id = 1"))
    by_update(etl)
    by_constant(lake)
    with pytest.raises(lv.MergeConflict, match="changed alike"):
        lake.merge("etl", keys=KEYS)


def test_unknown_values_of_on_equal_are_refused(lake: lv.Lake) -> None:
    for verb in (
        lambda: lake.merge("etl", on_equal="both"),
        lambda: lake.rebase("etl", on_equal="both"),
        lambda: lake.revert(1, on_equal="both"),
        lambda: lake.cherry_pick(1, on_equal="both"),
    ):
        with pytest.raises(lv.InvalidOperation, match="on_equal"):
            verb()
