"""Changes of a table's schema, constraints and properties share one commit with the data."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import in_order

NOTE = pa.schema([pa.field("note", pa.string()), pa.field("pair", pa.list_(pa.int64()))])


def test_schema_and_data_reach_each_table_in_one_commit(lake: lv.Lake, shop: Place) -> None:
    before = {name: shop.delta(name).version() for name in ("orders", "stock")}
    with lake.transaction() as txn:
        for name in before:
            txn.alter(name, add_columns=NOTE, set_properties={"owner": "shop"})
        txn.append("orders", {"id": [5], "qty": [1], "note": ["hi"], "pair": [[1, 2]]})
        txn.update("stock", {"note": "'low'"}, '"left" < 60')
    for name, version in before.items():
        table = shop.delta(name)
        assert table.version() == version + 1
        assert table.metadata().configuration["owner"] == "shop"
    assert shop.seen("orders")[-1] == {
        "id": 5, "sku": None, "qty": 1, "note": "hi", "pair": [1, 2]
    }  # fmt: skip
    assert [row["note"] for row in shop.seen("stock")] == ["low", None, None]


def test_alter_can_rename_and_drop_columns_under_column_mapping(lake: lv.Lake) -> None:
    lake.create_table("t", {"a": [1], "b": [2]}, properties={"delta.columnMapping.mode": "name"})
    with lake.transaction() as txn:
        txn.alter("t", rename_columns={"a": "x"})
        txn.alter("t", drop_columns=["b"])
        txn.append("t", {"x": [5]})
        with pytest.raises(lv.InvalidOperation, match="b"):
            txn.read("t", where="b = 2")
    assert in_order(lake.snapshot().read("t")) == [{"x": 1}, {"x": 5}]


MAPPED = {"delta": {"delta.columnMapping.mode": "name"}, "iceberg": None}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_alter_can_swap_column_names_in_one_call(lake: lv.Lake, format: Any) -> None:
    rows = {"a": [1], "b": [2], "s": [{"p": 3, "q": 4}], "d": ["x"], "e": ["y"]}
    # A partition field of Iceberg keeps its name, which no other column may take.
    partition_by = ["d", "e"] if format == "delta" else []
    lake.create_table(
        "t", rows, format=format, partition_by=partition_by, properties=MAPPED[format]
    )
    nested = {"s.p": "q", "s.q": "p", "s": "t"} if format == "delta" else {"s": "t"}
    with lake.transaction() as txn:
        txn.alter("t", rename_columns={"a": "b", "B": "a", "d": "e", "e": "d", **nested})
        txn.append("t", {"a": [20], "b": [10], "d": ["v"], "e": ["w"]})
    inner = {"q": 3, "p": 4} if format == "delta" else {"p": 3, "q": 4}
    assert in_order(lake.snapshot().read("t")) == [
        {"b": 1, "a": 2, "t": inner, "e": "x", "d": "y"},
        {"b": 10, "a": 20, "t": None, "e": "w", "d": "v"},
    ]
    assert lake.snapshot().read("t", where="a = 2 and e = 'x'").num_rows == 1
    with lake.transaction() as txn:
        txn.alter("t", rename_columns={"a": "b", "b": "c"})  # a chain
        assert txn.delete("t", "b = 2").rows_deleted == 1
    assert lake.snapshot().read("t", ["b", "c"]).to_pylist() == [{"b": 20, "c": 10}]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("names", [{"a": "b"}, {"a": "c", "b": "C"}])
def test_alter_refuses_two_columns_of_the_same_name(
    lake: lv.Lake, format: Any, names: dict[str, str]
) -> None:
    lake.create_table("t", {"a": [1], "b": [2]}, format=format, properties=MAPPED[format])
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="two columns"):
        txn.alter("t", rename_columns=names)


def test_renaming_without_column_mapping_is_refused(lake: lv.Lake) -> None:
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="columnMapping"):
        txn.alter("orders", rename_columns={"qty": "count"})
    with lake.transaction() as txn:
        txn.alter("orders", drop_constraints=["qty_positive"])
        with pytest.raises(lv.InvalidOperation, match="columnMapping"):
            txn.alter("orders", drop_columns=["qty"])


def test_a_new_constraint_applies_to_later_verbs_of_its_transaction_and_can_be_dropped(
    lake: lv.Lake, shop: Place
) -> None:
    with lake.transaction() as txn:
        txn.alter("stock", add_constraints={"some": '"left" > 0'})
        with pytest.raises(lv.InvalidOperation, match="some"):
            txn.append("stock", {"sku": ["fig"], "left": [0]})
    with pytest.raises(Exception, match=r"some|left"):
        shop.write("stock", [{"sku": "fig", "left": 0}])
    with lake.transaction() as txn:
        txn.alter("stock", drop_constraints=["some"])
        txn.append("stock", {"sku": ["fig"], "left": [0]})
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="some"):
        txn.alter("stock", drop_constraints=["some"])


def test_alter_can_drop_not_null(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.alter("orders", drop_not_null=["id"])
        txn.append("orders", {"id": [None], "qty": [1]})
    assert lake.table("orders").schema.field("id").nullable


def test_a_new_column_that_exists_or_must_have_values_is_refused(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for columns in (
            pa.schema([("QTY", pa.int64())]),
            pa.schema([pa.field("must", pa.int64(), nullable=False)]),
        ):
            with pytest.raises(lv.InvalidOperation, match=r"(?i)qty|must"):
                txn.alter("orders", add_columns=columns)
        with pytest.raises(lv.InvalidOperation, match="nothing to change"):
            txn.alter("orders")


def test_alter_can_set_and_unset_a_property(lake: lv.Lake, shop: Place) -> None:
    lake.run(lambda txn: txn.alter("stock", set_properties={"owner": "shop", "x": "1"}))
    lake.run(lambda txn: txn.alter("stock", unset_properties=["x"]))
    assert lake.table("stock").properties == {"owner": "shop"}
    assert shop.delta("stock").metadata().configuration == {"owner": "shop"}


def test_an_append_only_table_accepts_only_appends(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.alter("stock", set_properties={"delta.appendOnly": "true"}))
    with lake.transaction() as txn:
        txn.append("stock", {"sku": ["fig"], "left": [5]})
        for verb in (
            lambda: txn.delete("stock", "true"),
            lambda: txn.update("stock", {"left": "1"}, "true"),
            lambda: txn.overwrite("stock", {"sku": ["fig"]}),
        ):
            with pytest.raises(lv.InvalidOperation, match="append-only"):
                verb()
    assert lake.snapshot().read("stock").num_rows == 4


def test_an_append_commits_with_null_in_a_column_that_was_added_meanwhile(
    lake: lv.Lake, shop: Place
) -> None:
    with shop.connect() as other, lake.transaction() as txn:
        txn.append("stock", {"sku": ["fig"], "left": [5]})
        other.run(lambda theirs: theirs.alter("stock", add_columns=NOTE))
    assert [row for row in shop.seen("stock") if row["sku"] == "fig"] == [
        {"sku": "fig", "left": 5, "note": None, "pair": None}
    ]


def test_an_append_that_breaks_a_constraint_added_meanwhile_is_refused(
    lake: lv.Lake, shop: Place
) -> None:
    with shop.connect() as other:
        with pytest.raises(lv.LakeVillaError, match="stock"), lake.transaction() as txn:
            txn.append("stock", {"sku": ["fig"], "left": [5]})
            other.run(lambda theirs: theirs.alter("stock", add_constraints={"many": '"left" > 9'}))
    assert all(row["left"] > 9 for row in shop.seen("stock"))
