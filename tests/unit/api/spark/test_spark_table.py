"""The calls of ``DeltaTable``: which verb each is, and over which columns, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import lakevilla as lv

ROWS = [{"k": k, "qty": 10 * k, "v": f"v{k}"} for k in range(5)]
COUNTED = pa.table({"k": [3, 4, 9], "qty": [1, 2, 3], "v": ["a", "b", "c"], "op": ["u", "d", "u"]})


@pytest.fixture
def lake() -> Iterator[lv.Lake]:
    with lv.connect(f"memory://fluent-{uuid4()}") as made:
        made.create_table("stock", ROWS)
        yield made


def table(where: Any) -> Any:
    return lv.SparkTable(where, "stock", "t")


def found(lake: lv.Lake, name: str = "stock") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.read(name).to_pylist())


def test_the_first_clause_of_its_kind_whose_condition_is_true_applies(lake: lv.Lake) -> None:
    merge = table(lake).merge(COUNTED, "t.k = source.k")
    result = (
        merge.whenMatchedDelete("source.op = 'd'")
        .whenMatchedUpdate("t.qty > 1000", {"v": "'never'"})
        .whenMatchedUpdate(set={"t.qty": "t.qty + source.qty", "v": "source.v"})
        .whenNotMatchedInsert("source.qty > 100", {"k": "source.k"})
        .whenNotMatchedInsert(values={"k": "source.k", "v": "upper(source.v)"})
        .whenNotMatchedBySourceUpdate("t.k = 0", {"v": "concat(t.v, '!')"})
        .whenNotMatchedBySourceDelete("t.k = 1")
        .execute()
    )
    assert found(lake) == [(0, 0, "v0!"), (2, 20, "v2"), (3, 31, "a"), (9, None, "C")]
    assert (result.rows_updated, result.rows_inserted, result.rows_deleted) == (2, 1, 2)


def test_a_builder_keeps_its_clauses_when_another_is_made_from_it(lake: lv.Lake) -> None:
    merge = table(lake).merge(COUNTED, "t.k = source.k")
    updating = merge.whenMatchedUpdate(set={"qty": "0"})
    updating.whenNotMatchedInsertAll()
    assert repr(updating) == (
        "<lakevilla.SparkMergeBuilder into stock as t, 1 clause: execute() performs it>"
    )
    updating.execute()
    assert [row[:2] for row in found(lake)] == [(0, 0), (1, 10), (2, 20), (3, 0), (4, 0)]


def test_a_merge_refuses_two_rows_for_one_also_where_it_only_deletes(lake: lv.Lake) -> None:
    twice = pa.concat_tables([COUNTED, COUNTED])
    with pytest.raises(lv.InvalidOperation, match=r"two source rows .* match one target row"):
        table(lake).merge(twice, "t.k = source.k").whenMatchedDelete().execute()


def test_clauses_of_all_columns_leave_out_what_the_table_lacks(lake: lv.Lake) -> None:
    merge = table(lake).merge(COUNTED, "t.k = source.k")
    merge.whenMatchedUpdateAll("source.op = 'u'").whenNotMatchedInsertAll().execute()
    assert lake.table("stock").columns == ["k", "qty", "v"]
    assert found(lake)[3:] == [(3, 1, "a"), (4, 40, "v4"), (9, 3, "c")]


@pytest.mark.parametrize("clause", ["whenMatchedUpdateAll", "whenNotMatchedInsertAll"])
def test_a_clause_of_all_columns_refuses_a_source_that_lacks_one(
    lake: lv.Lake, clause: str
) -> None:
    merge = table(lake).merge(COUNTED.drop(["v"]), "t.k = source.k")
    with pytest.raises(lv.InvalidOperation, match=f"{clause} of table stock .* no column v"):
        getattr(merge, clause)().execute()
    assert len(found(lake)) == 5


def test_a_merge_with_schema_evolution_adds_columns_and_keeps_those_that_the_source_lacks(
    lake: lv.Lake,
) -> None:
    merge = table(lake).merge(COUNTED.drop(["v"]), "t.k = source.k")
    merge.withSchemaEvolution().whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert found(lake)[3:] == [(3, 1, "v3", "u"), (4, 2, "v4", "d"), (9, 3, None, "u")]


def test_a_clause_refuses_columns_of_the_side_that_has_no_row(lake: lv.Lake) -> None:
    merge = table(lake).merge(COUNTED, "t.k = source.k")
    for clause, told in (
        (merge.whenNotMatchedInsert(values={"k": "t.k"}), r"has t\.k, .*columns of the source"),
        (merge.whenNotMatchedInsertAll("t.k > 0"), r"has t\.k, .*columns of the source"),
        (merge.whenNotMatchedBySourceDelete("source.k > 0"), r"has source\.k, .*of the table"),
        (merge.whenNotMatchedBySourceUpdate(set={"v": "op"}), r"has source\.op, .*of the table"),
    ):
        with pytest.raises(lv.InvalidOperation, match=told):
            clause.execute()
    assert len(found(lake)) == 5


def test_a_table_without_an_alias_is_called_by_the_last_part_of_its_name(lake: lv.Lake) -> None:
    lake.create_table("sales/orders", ROWS)
    orders = lv.SparkTable(lake, "sales/orders")
    orders.update("orders.k = 1", {"orders.qty": "orders.qty + 1"})
    orders.delete("orders.k > 1")
    assert found(lake, "sales/orders") == [(0, 0, "v0"), (1, 11, "v1")]
    with pytest.raises(lv.InvalidOperation, match=r"no column orders\.k"):
        orders.alias("o").delete("orders.k = 0")


def test_an_update_and_a_delete_without_a_condition_change_all_rows(lake: lv.Lake) -> None:
    table(lake).update(set={"qty": "t.k"})
    assert [row[1] for row in found(lake)] == [0, 1, 2, 3, 4]
    table(lake).delete()
    assert found(lake) == []


def test_all_calls_in_a_transaction_are_one_commit(lake: lv.Lake) -> None:
    before = lake.snapshot().version
    with lake.transaction() as txn:
        stock = table(txn)
        stock.merge(COUNTED, "t.k = source.k").whenMatchedDelete().execute()
        stock.update("t.k = 0", {"v": "'seen'"})
        stock.delete("k = 1")
        assert found(lake)[0] == (0, 0, "v0")
    assert lake.snapshot().version == before + 1
    assert found(lake) == [(0, 0, "seen"), (2, 20, "v2")]


def test_a_transaction_refuses_to_commit_with_a_merge_that_was_not_executed(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"merge into stock .* never executed"):
        with lake.transaction() as txn:
            table(txn).merge(COUNTED, "t.k = source.k").whenMatchedDelete()
    with lake.transaction() as txn:
        merge = table(txn).merge(COUNTED, "t.k = source.no")
        with pytest.raises(lv.InvalidOperation, match=r"no column source\.no"):
            merge.whenMatchedDelete().execute()
    assert len(found(lake)) == 5


def test_assignments_in_the_place_of_the_condition_are_refused(lake: lv.Lake) -> None:
    stock = table(lake)
    merge = stock.merge(COUNTED, "t.k = source.k")
    for call, argument in (
        (stock.update, "set"),
        (merge.whenMatchedUpdate, "set"),
        (merge.whenNotMatchedInsert, "values"),
        (merge.whenNotMatchedBySourceUpdate, "set"),
    ):
        with pytest.raises(lv.InvalidOperation, match=f"comes first.*pass {argument}="):
            call({"qty": "1"})
        with pytest.raises(lv.InvalidOperation, match=f"needs {argument}="):
            call("true")
    with pytest.raises(lv.InvalidOperation, match="needs a condition"):
        stock.merge(COUNTED, None)
    with pytest.raises(lv.InvalidOperation, match="no clause"):
        merge.execute()


def test_calls_of_delta_that_a_lake_has_elsewhere_say_where(lake: lv.Lake) -> None:
    with pytest.raises(AttributeError, match=r"lake\.create_table"):
        lv.SparkTable.createIfNotExists(None)
    with pytest.raises(AttributeError, match=r"lake\.clone"):
        table(lake).clone("copy")
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        lv.SparkTable.nothing  # noqa: B018


def test_upkeep_and_the_log_are_no_part_of_a_transaction(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for call in (
            table(txn).history,
            table(txn).detail,
            table(txn).optimize,
            table(txn).vacuum,
            lambda: table(txn).restoreToVersion(0),
            lambda: table(txn).restoreToTimestamp("2026-01-31T12:00:00Z"),
        ):
            with pytest.raises(lv.InvalidOperation, match="call it outside"):
                call()


def test_a_table_of_a_lake_without_spark_is_refused(lake: lv.Lake) -> None:
    for given in (lake, lake.transaction()):
        with pytest.raises(lv.InvalidOperation, match="with spark="):
            lv.SparkTable.forName(given, "stock")
    with pytest.raises(lv.InvalidOperation, match="or a SparkSession, not 'warehouse'"):
        lv.SparkTable.forPath("warehouse", "stock")
