"""Merging a branch applies its changes to the lake, by one commit over all tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.runner import Requests
from lakevilla.transaction.verbs.applying import merge_branch
from lakevilla_testing.histories.plan import small_limits
from tests.contract.foreign_readers import Format
from tests.support.places import Place
from tests.support.refs.shop import clean_up, stock
from tests.support.traces import cost


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        lake.create_table(
            "stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}], format=kind
        )
        lake.create_table("orders", [{"id": 1}], format=kind)
        lake.branch("etl")
        yield lake


def put_in(lake: lv.Lake, sku: str, qty: int) -> None:
    lake.run(lambda txn: txn.append("stock", [{"sku": sku, "qty": qty}]))


def set_to(lake: lv.Lake, sku: str, qty: int) -> None:
    lake.run(lambda txn: txn.update("stock", {"qty": str(qty)}, where=f"sku = '{sku}'"))


def files(lake: lv.Lake) -> set[Path]:
    return set(Path(lake.root).rglob("*.parquet"))


def test_a_merge_applies_the_changes_of_the_branch_to_the_lake(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    set_to(etl, "tea", 6)
    etl.run(lambda txn: txn.delete("stock", where="sku = 'jam'"))
    etl.create_table("report", [{"a": 1}], format=kind)
    etl.run(lambda txn: txn.append("report", [{"a": 2}]))
    etl.drop_table("orders")
    put_in(lake, "ale", 4)  # meanwhile
    done = lake.merge("etl", metadata={"by": "night"})
    assert (done.version, done.merged) == (4, "etl@8")
    assert done.tables == {"stock": "physical", "report": "created", "orders": "dropped"}
    assert stock(lake) == {"tea": 6, "rum": 3, "ale": 4}
    assert sorted(lake.read("report")["a"].to_pylist()) == [1, 2]
    assert list(lake) == ["report", "stock"]
    entry = lake.history(1)[0]
    assert (entry.version, entry.metadata["by"]) == (4, "night")
    assert set(entry.tables) == {"stock", "report", "orders"}
    before, merge = lake.changes(2)
    assert (before.merged, merge.merged, merge.metadata) == (None, "etl@8", {"by": "night"})
    assert (merge.entered, merge.left) == (("report",), ("orders",))
    assert merge.tables["stock"].num_rows == 4
    # The branch is unchanged: it does not have the lake's other changes.
    assert stock(etl) == {"tea": 6, "rum": 3}
    clean_up(lake)
    assert stock(lv.connect(lake.root)) == {"tea": 6, "rum": 3, "ale": 4}
    assert stock(lv.connect(lake.root).on("etl")) == {"tea": 6, "rum": 3}


def test_a_second_merge_applies_only_changes_since_the_first(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    assert lake.refs()[0].merged is None
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert lake.refs()[0].merged == lake.refs()[0].version == 3
    nothing = lake.merge("etl")
    assert (nothing.version, nothing.tables) == (None, {})
    lake.run(lambda txn: txn.delete("stock", where="sku = 'rum'"))
    put_in(etl, "ale", 4)
    set_to(etl, "rum", 9)
    with pytest.raises(lv.MergeConflict):
        lake.merge("etl")
    assert stock(lake) == {"tea": 5, "jam": 1}
    assert lake.merge("etl", on_conflict="ours").tables == {"stock": "kept"}
    assert lake.merge("etl").tables == {}
    put_in(etl, "gin", 5)
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert stock(lake) == {"tea": 5, "jam": 1, "gin": 5}


def test_a_reverted_merge_still_counts_as_merged(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    done = lake.merge("etl")
    assert done.version is not None
    lake.revert(done.version)
    put_in(lake.on("etl"), "ale", 2)
    lake.merge("etl", delete=True)
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 2}

    lake.gc()  # the lake's history needs the branch's file
    lake.cherry_pick(done.version)
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3}


def test_a_merge_by_files_reads_and_writes_no_data(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 6)
    etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
    put_in(lake, "ale", 4)
    before = files(lake)
    for file in before:
        if "_lakevilla/b/" in str(file) or file.parent.name == "orders":
            file.rename(file.with_suffix(".away"))
    assert lake.merge("etl").tables == {"stock": "physical", "orders": "physical"}
    for file in before:
        if not file.exists():
            file.with_suffix(".away").rename(file)
    assert files(lake) == before
    assert stock(lake) == {"tea": 6, "jam": 1, "ale": 4}


def test_a_merge_costs_three_writes_and_one_for_each_table(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.merge("etl")
    put_in(etl, "ale", 3)
    etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
    made = cost(lake, lambda: lake.merge("etl"))
    of_iceberg = 3 * 2 if kind == "iceberg" else 0  # manifests, manifest list and version hint
    assert made.put == 2 + 3 + of_iceberg
    assert made.list == made.head == 0


def test_foreign_clients_read_merged_rows(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    for number in range(3):
        put_in(etl, f"x{number}", number)
        set_to(etl, "tea", 10 + number)
    lake.merge("etl", delete=True)
    if kind == "delta":
        table = deltalake.DeltaTable(f"{lake.root}/stock")
        assert table.to_pyarrow_table().num_rows == 5
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
        table.optimize.compact()
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    expected = {"tea": 12, "jam": 1, "x0": 0, "x1": 1, "x2": 2}
    assert stock(lake) == expected
    clean_up(lake)
    assert stock(lv.connect(lake.root)) == expected
    put_in(lake, "after", 7)
    lake["stock"].optimize()
    clean_up(lake)
    assert stock(lv.connect(lake.root)) == {**expected, "after": 7}
    assert not [
        file for file in files(lake) if "_lakevilla/b/" in str(file) and "stock" in str(file)
    ]


def test_a_merge_goes_by_rows_if_both_sides_have_changed_the_same_file(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 6)
    set_to(lake, "jam", 2)
    # The lake has not changed the rows that the branch has changed.
    assert lake.merge("etl").tables == {"stock": "rows"}
    assert stock(lake) == {"tea": 6, "jam": 2}
    set_to(etl, "tea", 8)
    set_to(lake, "tea", 7)
    before = lake.history(1)[0].version
    with pytest.raises(lv.MergeConflict) as caught:
        lake.merge("etl")
    assert caught.value.tables == ["stock"]
    assert lake.history(1)[0].version == before
    assert stock(lake) == {"tea": 7, "jam": 2}


@pytest.mark.parametrize(
    ("on_conflict", "expected"), [("ours", {"tea": 7, "jam": 2}), ("theirs", {"tea": 6, "jam": 2})]
)
def test_a_row_that_both_sides_have_changed_is_decided_by_on_conflict(
    lake: lv.Lake, on_conflict: Any, expected: dict[str, int]
) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 6)
    set_to(lake, "tea", 7)
    set_to(lake, "jam", 2)
    with pytest.raises(lv.MergeConflict) as caught:
        lake.merge("etl", keys={"stock": ["sku"]})
    (row,) = caught.value.rows("stock").to_pylist()
    assert row["key"]["sku"] == "tea"
    assert [row[side]["qty"] for side in ("base", "ours", "theirs")] == [5, 7, 6]
    lake.merge("etl", keys={"stock": ["sku"]}, on_conflict=on_conflict)
    assert stock(lake) == expected
    assert lake.merge("etl", keys={"stock": ["sku"]}).version is None


def test_a_merge_of_some_tables_leaves_the_others_to_a_later_merge(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
    assert lake.merge("etl", tables=["ord*"]).tables == {"orders": "physical"}
    assert stock(lake) == {"tea": 5, "jam": 1}
    lake.run(lambda txn: txn.delete("orders", where="id = 2"))
    put_in(etl, "ale", 4)
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert stock(lake) == {"tea": 5, "jam": 1, "rum": 3, "ale": 4}
    assert lake.read("orders")["id"].to_pylist() == [1]  # not merged twice


def test_a_schema_change_is_merged_unless_both_sides_have_changed_the_schema(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    etl.run(lambda txn: txn.alter("stock", add_columns={"note": "string"}))
    etl.run(lambda txn: txn.append("stock", [{"sku": "rum", "qty": 1, "note": "new"}]))
    lake.run(lambda txn: txn.append("orders", [{"id": 2}]))
    lake.merge("etl")
    assert lake.read("stock").column_names == ["sku", "qty", "note"]
    etl.run(lambda txn: txn.alter("stock", add_columns={"left": "long"}))
    lake.run(lambda txn: txn.alter("stock", add_columns={"right": "long"}))
    with pytest.raises(lv.MergeConflict, match="both sides"):
        lake.merge("etl")
    assert lake.read("stock").column_names == ["sku", "qty", "note", "right"]


def test_a_merge_conflicts_if_new_rows_of_the_lake_may_not_fit_the_branchs_definition(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    if kind == "delta":
        etl.run(lambda txn: txn.alter("stock", add_constraints={"some": "qty > 0"}))
    else:
        new = [{"sku": "rum", "qty": "many"}]
        etl.run(lambda txn: txn.overwrite("stock", new, schema_mode="overwrite"))
    put_in(lake, "ale", -1)
    before = stock(lake)
    with pytest.raises(lv.MergeConflict, match="may not fit"):
        lake.merge("etl")
    assert stock(lake) == before
    assert lake.merge("etl", on_conflict="theirs").tables == {"stock": "physical"}
    assert stock(lake) == stock(etl)


def test_a_merge_of_a_replaced_schema_conflicts_with_rows_committed_meanwhile(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    new = [{"sku": "rum", "qty": "many"}]
    etl.run(lambda txn: txn.overwrite("stock", new, schema_mode="overwrite"))

    def beside(txn: lv.Transaction) -> bool:
        """Append a row while the merge runs."""
        if lake.history(1)[0].version == before:
            put_in(lake, "ale", 4)
        return True

    before = lake.history(1)[0].version
    with pytest.raises(lv.MergeConflict, match="may not fit"):
        lake.merge("etl", checks=[beside])
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 4}
    lake.run(lambda txn: txn.append("orders", [{"id": 2}]))
    lake.rollback(before)
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert lake.read("stock").to_pylist() == new


def test_a_merge_by_another_client_during_the_checks_is_no_conflict(
    local_place: Place, lake: lv.Lake
) -> None:
    set_to(lake.on("etl"), "tea", 6)
    merged = []

    def beside(txn: lv.Transaction) -> bool:
        if not merged:
            with local_place.connect() as other:
                merged.append(other.merge("etl").version)
                set_to(other, "tea", 8)
        return True

    assert lake.merge("etl", checks=[beside]).version is None
    assert stock(lake) == {"tea": 8, "jam": 1}


def test_a_merge_by_another_client_while_the_branch_is_opened_is_no_conflict(
    local_place: Place, lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to(lake.on("etl"), "tea", 6)
    opened = merge_branch.open_branch
    merged: list[int | None] = []

    def beside(name: str, entry: Any) -> Any:
        if not merged:
            merged.append(None)
            with local_place.connect() as other:
                merged.append(other.merge("etl").version)
                set_to(other, "tea", 8)
        return (yield from opened(name, entry))

    monkeypatch.setattr(merge_branch, "open_branch", beside)
    assert lake.merge("etl").version is None
    assert stock(lake) == {"tea": 8, "jam": 1}


def test_a_table_that_both_sides_have_created_is_a_conflict(lake: lv.Lake, kind: Format) -> None:
    lake.on("etl").create_table("report", [{"a": 1}], format=kind)
    lake.create_table("report", [{"b": "x"}], format=kind)
    with pytest.raises(lv.MergeConflict, match="report"):
        lake.merge("etl")
    assert lake.merge("etl", on_conflict="ours").tables == {"report": "kept"}
    assert lake.read("report").to_pylist() == [{"b": "x"}]


def test_rows_of_a_branchs_table_are_not_merged_into_a_new_table_of_the_same_name(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    etl.create_table("report", [{"a": "a", "b": "b"}], format=kind)
    lake.create_table("report", [{"b": "b", "a": "a"}], format=kind)
    lake.merge("etl", on_conflict="ours")
    etl.run(lambda txn: txn.append("report", [{"a": "a", "b": "b"}]))
    for on_conflict in ("error", "theirs"):
        with pytest.raises(lv.MergeConflict, match=r"another table there; .*on_conflict='ours'$"):
            lake.merge("etl", on_conflict=on_conflict)
    assert lake.merge("etl", on_conflict="ours").tables == {"report": "kept"}
    assert lake.read("report").to_pylist() == [{"b": "b", "a": "a"}]


def test_a_table_that_the_lake_has_dropped_and_the_branch_has_changed_is_a_conflict(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
    lake.drop_table("stock")
    with pytest.raises(lv.MergeConflict, match=r"register\('stock'\)") as caught:
        lake.merge("etl")
    assert caught.value.tables == ["stock"]
    assert lake.merge("etl", on_conflict="ours").tables == {"orders": "physical", "stock": "kept"}
    assert list(lake) == ["orders"]


def test_fast_forward_only_refuses_a_merge_if_the_lake_has_changed_the_same_table(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.run(lambda txn: txn.append("orders", [{"id": 2}]))
    assert lake.merge("etl", fast_forward_only=True).tables == {"stock": "physical"}
    put_in(etl, "ale", 3)
    put_in(lake, "gin", 3)
    with pytest.raises(lv.MergeConflict, match="fast_forward_only"):
        lake.merge("etl", fast_forward_only=True)
    assert lake.merge("etl").tables == {"stock": "physical"}


def test_a_merge_absorbs_a_foreign_commit_to_the_same_table(lake: lv.Lake, kind: Format) -> None:
    if kind == "iceberg":
        pytest.skip("deltalake writes Delta tables")
    put_in(lake.on("etl"), "rum", 3)
    rows = pa.table({"sku": ["ale"], "qty": [4]})
    deltalake.write_deltalake(f"{lake.root}/stock", rows, mode="append")
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert stock(lake) == {"tea": 5, "jam": 1, "rum": 3, "ale": 4}


def test_a_merge_deletes_the_branch_unless_it_has_new_commits(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.merge("etl", delete=True)
    assert lake.refs() == []
    with pytest.raises(lv.RefNotFound):
        put_in(etl, "ale", 4)
    clean_up(lake)
    assert stock(lv.connect(lake.root)) == {"tea": 5, "jam": 1, "rum": 3}
    lake.branch("etl")
    late = lake.on("etl")

    def writes_more(txn: lv.Transaction) -> bool:
        put_in(late, "late", 1)
        return True

    put_in(late, "ale", 4)
    lake.merge("etl", delete=True, checks=[writes_more])
    assert [ref.name for ref in lake.refs()] == ["etl"]
    assert "late" not in stock(lake)
    lake.merge("etl", delete=True)
    assert lake.refs() == []
    assert stock(lake)["late"] == 1


def test_checks_read_the_lake_as_it_is_after_the_merge(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "bad", -1)
    put_in(lake, "ale", 4)
    seen: list[int] = []

    def all_there(txn: lv.Transaction) -> None:
        seen.append(txn.read("stock").num_rows)

    def never(txn: lv.Transaction) -> bool:
        raise ValueError("no")

    checks = [all_there, "SELECT min(qty) >= 0 FROM stock", never]
    with pytest.raises(lv.AuditFailed, match="ValueError: no") as caught:
        lake.merge("etl", checks=checks)
    assert caught.value.failed == ["SELECT min(qty) >= 0 FROM stock", "never"]
    assert seen == [4]
    assert "bad" not in stock(lake)
    set_to(etl, "bad", 1)
    lake.merge("etl", checks=checks[:2])
    assert stock(lake)["bad"] == 1


@pytest.mark.parametrize("delete", [False, True])
def test_a_check_that_aborts_has_failed_and_the_branch_stays(lake: lv.Lake, delete: bool) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    with pytest.raises(lv.AuditFailed, match="aborted"):
        lake.merge("etl", checks=[lambda txn: txn.abort()], delete=delete)
    assert stock(lake) == {"tea": 5, "jam": 1}
    assert stock(etl) == {"tea": 5, "jam": 1, "rum": 3}
    assert lake.merge("etl").tables == {"stock": "physical"}


def test_a_check_that_commits_is_reported(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    with pytest.raises(lv.InvalidOperation, match="has committed"):
        lake.merge("etl", checks=[lambda txn: txn.commit() is None], delete=True)
    assert stock(lake) == stock(etl)
    assert lake.merge("etl", delete=True).tables == {}


@pytest.mark.parametrize(
    "no", [False, pa.scalar(False), pa.scalar(None, pa.bool_()), np.bool_(False)]
)
def test_a_false_value_of_any_library_fails_a_check(lake: lv.Lake, no: object) -> None:
    put_in(lake.on("etl"), "rum", -3)
    with pytest.raises(lv.AuditFailed):
        lake.merge("etl", checks=[lambda txn: no])
    assert stock(lake) == {"tea": 5, "jam": 1}


@pytest.mark.parametrize("answer", [0, "no", [False], np.array([True, False])])
def test_a_check_that_returns_no_truth_value_is_refused(lake: lv.Lake, answer: object) -> None:
    put_in(lake.on("etl"), "rum", -3)
    with pytest.raises(lv.InvalidOperation, match="return True or False"):
        lake.merge("etl", checks=[lambda txn: answer])
    assert stock(lake) == {"tea": 5, "jam": 1}
    assert lake.merge("etl", checks=[lambda txn: np.bool_(True)]).tables == {"stock": "physical"}


def test_a_check_runs_again_if_another_client_changes_rows_that_it_has_read(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    other = lv.connect(lake.root)
    seen: list[int] = []

    def counts(txn: lv.Transaction) -> None:
        seen.append(txn.read("stock").num_rows)
        if len(seen) == 1:
            put_in(other, "ale", 4)

    lake.merge("etl", checks=[counts])
    assert seen == [3, 4]
    assert stock(lake) == {"tea": 5, "jam": 1, "rum": 3, "ale": 4}


def test_an_audited_batch_is_merged_only_if_its_checks_pass(lake: lv.Lake) -> None:
    checks = ["SELECT min(qty) >= 0 FROM stock"]
    with lake.audited("night", checks=checks) as night:
        put_in(night, "rum", 3)
        assert "rum" not in stock(lake)
        put_in(lake, "ale", 4)
    assert stock(lake) == {"tea": 5, "jam": 1, "rum": 3, "ale": 4}
    assert [ref.name for ref in lake.refs()] == ["etl"]
    with pytest.raises(lv.AuditFailed), lake.audited("night", checks=checks) as night:
        put_in(night, "bad", -3)
    assert "bad" not in stock(lake)
    assert stock(lake.on("night"))["bad"] == -3  # kept for inspection
    with pytest.raises(lv.RefExists), lake.audited("night", checks=checks):
        raise AssertionError("it does not begin")
    lake.delete_ref("night")
    with pytest.raises(lv.AuditFailed), lake.audited("b", checks=checks, keep="never") as night:
        put_in(night, "bad", -3)
    with pytest.raises(ZeroDivisionError), lake.audited(checks=checks, keep="never") as night:
        put_in(night, "gin", 1)
        _ = 1 / 0
    with lake.audited("kept", checks=checks, keep="always") as night:
        put_in(night, "gin", 1)
    assert [ref.name for ref in lake.refs()] == ["etl", "kept"]
    assert stock(lake)["gin"] == 1


def test_two_branches_of_a_lake_with_leaves_are_merged_into_all_tables(
    lake: lv.Lake, kind: Format
) -> None:
    with small_limits(True):
        for number in range(6):
            lake.create_table(f"t{number}", [{"a": number}], format=kind)
        for name in ("one", "two"):
            lake.branch(name)
            for number in range(6):
                lake.on(name).run(
                    lambda txn, number=number: txn.append(f"t{number}", [{"a": 100}])  # type: ignore[misc]
                )
        for name in ("one", "two"):
            assert set(lake.merge(name, delete=True).tables.values()) == {"physical"}
            clean_up(lake)
        with lv.connect(lake.root) as other:
            for number in range(6):
                found = sorted(other.read(f"t{number}")["a"].to_pylist())
                assert found == [number, 100, 100]


@pytest.mark.parametrize(
    ("branch", "options", "said"),
    [
        ("nobody", {}, "no ref 'nobody'"),
        ("stock", {}, "merged into table 'stock'"),
        (7, {}, "txn.merge"),
        (pa.table({"a": [1]}), {}, "txn.merge"),
        ("closing", {}, "can't be merged"),
        ("main", {}, "'main' is the lake itself"),
        ("etl", {"keys": {"stock": "nothing"}}, "no column 'nothing'"),
        ("etl", {"keys": ["sku"]}, "keys is a mapping"),
        ("etl", {"tables": ["nothing"]}, "matches 'nothing'"),
        ("etl", {"on_conflict": "mine"}, "on_conflict"),
        ("etl", {"checks": 7}, "checks is a list"),
        ("etl", {"checks": [7]}, "is no check"),
        ("etl", {"checks": ["SELECT 1, 2"]}, "one boolean"),
        ("etl", {"checks": ["SELECT 1"]}, "one boolean"),
        ("etl", {"delete": 1}, "delete"),
        ("etl", {"fast_forward_only": "yes"}, "fast_forward_only"),
    ],
)
def test_invalid_arguments_of_a_merge_are_refused(
    lake: lv.Lake, branch: Any, options: dict[str, Any], said: str
) -> None:
    put_in(lake.on("etl"), "rum", 3)
    lake.tag("closing")
    with pytest.raises((lv.InvalidOperation, lv.RefNotFound), match=said):
        lake.merge(branch, **options)
    assert lake.history(1)[0].version == 2


def test_a_protected_branch_can_be_merged_but_a_merge_that_deletes_it_is_refused(
    lake: lv.Lake,
) -> None:
    put_in(lake.on("etl"), "rum", 3)
    lake.protect("etl")
    with pytest.raises(lv.InvalidOperation, match="is protected"):
        lake.merge("etl", delete=True)
    assert lake.merge("etl").tables == {"stock": "physical"}


def test_a_read_after_a_merge_costs_at_most_two_requests(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    lake.merge("etl")
    stock(lake)
    assert cost(lake, lambda: stock(lake)) in (Requests(get=2), Requests(get=1))


def test_a_check_that_writes_is_refused(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)

    def mends(txn: Any) -> None:
        txn.delete("stock", where="qty < 2")

    def looks(txn: Any) -> bool:
        return bool(txn.read("stock").num_rows == 3)

    with pytest.raises(lv.InvalidOperation, match=r"check mends has written.*checks may only read"):
        lake.merge("etl", checks=[looks, mends])
    assert stock(lake) == {"tea": 5, "jam": 1}
    lake.merge("etl", checks=[looks])
