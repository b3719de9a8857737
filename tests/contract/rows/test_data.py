"""Data that callers can pass, and the rows that are stored from it (design, section 12)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.interop.delta.handmade import Handmade
from tests.support.delta_by_hand import field
from tests.support.places import Place
from tests.support.tables import in_order

ROWS = {"id": [5, 6], "sku": ["fig", None], "qty": [1, 2]}


class Capsule:
    """An object that has only the Arrow C stream interface, as of any library."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def arrow() -> pa.Table:
    return pa.table(ROWS)


KINDS: dict[str, Callable[[], object]] = {
    "table": arrow,
    "batch": lambda: arrow().to_batches()[0],
    "reader": lambda: arrow().to_reader(),
    "capsule": lambda: Capsule(arrow()),
    "dict-of-lists": lambda: ROWS,
    "list-of-dicts": lambda: arrow().to_pylist(),
    "pandas": lambda: pd.DataFrame({"id": [5, 6], "sku": ["fig", None], "qty": [1, 2]}),
    "pandas-arrow": lambda: arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars-lazy": lambda: pl.LazyFrame(ROWS).filter(pl.col("id") > 0),
    "duckdb": lambda: duckdb.from_arrow(arrow()),
    "large-strings": lambda: arrow().set_column(1, "sku", arrow()["sku"].cast(pa.large_string())),
    "dictionary": lambda: arrow().set_column(1, "sku", arrow()["sku"].dictionary_encode()),
    "categories": lambda: pl.DataFrame(ROWS).with_columns(pl.col("sku").cast(pl.Categorical)),
    "enum": lambda: pl.DataFrame(ROWS).with_columns(pl.col("sku").cast(pl.Enum(["fig"]))),
    "narrow-integers": lambda: arrow().set_column(2, "qty", arrow()["qty"].cast(pa.int8())),
    "other-case-and-order": lambda: (
        arrow().select(["qty", "sku", "id"]).rename_columns(["QTY", "Sku", "ID"])
    ),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_every_verb_accepts_every_kind_of_data(
    lake: lv.Lake, shop: Place, make: Callable[[], object]
) -> None:
    with lake.transaction() as txn:
        txn.append("orders", make())
        txn.upsert("orders", make(), "id")
        merged = (
            txn.merge("orders", make(), "source.id = target.id")
            .when_matched_update({"qty": "target.qty + source.qty"})
            .execute()
        )
        assert merged.rows_updated == 2
        found = txn.sql("select count(*) as n from v", views={"v": make()})
        assert found["n"].to_pylist() == [2]
    expected = [{"id": 5, "sku": "fig", "qty": 2}, {"id": 6, "sku": None, "qty": 4}]
    assert in_order(lake.snapshot().read("orders", where="id > 4")) == expected
    lake.run(lambda txn: txn.overwrite("orders", make()))
    assert [row["qty"] for row in shop.seen("orders")] == [1, 2]


def test_a_table_is_created_from_every_kind_of_data(lake: lv.Lake, shop: Place) -> None:
    for number, make in enumerate(KINDS.values()):
        table = lake.create_table(f"made{number}", make())
        assert [name.lower() for name in sorted(table.schema.names)] == ["id", "qty", "sku"]
        assert len(shop.seen(f"made{number}")) == 2


def test_a_failing_stream_undoes_only_its_own_verb(lake: lv.Lake) -> None:
    def batches() -> Any:
        yield pa.record_batch({"id": [5], "qty": [1]})
        raise OSError("the source went away")

    schema = pa.schema([("id", pa.int64()), ("qty", pa.int64())])
    with lake.transaction() as txn:
        txn.append("stock", {"sku": ["fig"], "left": [5]})
        with pytest.raises(lv.InvalidOperation, match=r"orders: .*went away"):
            txn.append("orders", pa.RecordBatchReader.from_batches(schema, batches()))
    assert lake.snapshot().read("orders").num_rows == 4
    assert lake.snapshot().read("stock").num_rows == 4


def test_a_one_shot_stream_is_written_before_the_verb_returns(lake: lv.Lake) -> None:
    pulled = []

    def batches() -> Any:
        for number in (5, 6):
            pulled.append(number)
            yield pa.record_batch({"id": [number], "qty": [1]})

    schema = pa.schema([("id", pa.int64()), ("qty", pa.int64())])
    txn = lake.transaction()
    txn.append("orders", pa.RecordBatchReader.from_batches(schema, batches()))
    assert pulled == [5, 6]
    txn.commit()
    assert lake.snapshot().read("orders").num_rows == 6


def test_a_scan_of_one_table_can_be_appended_to_another(lake: lv.Lake) -> None:
    lake.create_table("copy", pa.schema([("id", pa.int64()), ("qty", pa.int64())]))
    with lake.transaction() as txn:
        assert txn.append("copy", txn.scan("orders", ["id", "qty"])).rows_inserted == 4
    assert lake.snapshot().read("copy").num_rows == 4


def test_a_missing_nullable_column_becomes_null(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.append("orders", {"id": [5], "qty": [1]}))
    assert in_order(lake.snapshot().read("orders", where="id = 5")) == [
        {"id": 5, "sku": None, "qty": 1}
    ]


def test_schema_mode_merge_adds_columns_and_old_rows_have_null(lake: lv.Lake, shop: Place) -> None:
    with lake.transaction() as txn:
        txn.append("stock", {"sku": ["fig"], "shelf": ["A"]}, schema_mode="merge")
        txn.append("stock", {"sku": ["nut"], "shelf": ["B"], "left": [1]})
        assert txn.read("stock", ["shelf"], "sku = 'apple'")["shelf"].to_pylist() == [None]
        txn.overwrite(
            "stock", {"sku": ["pear"], "weight": [1.5]}, where="sku = 'pear'", schema_mode="merge"
        )
    rows = {row["sku"]: row for row in shop.seen("stock")}
    assert rows["fig"] == {"sku": "fig", "left": None, "shelf": "A", "weight": None}
    assert rows["pear"] == {"sku": "pear", "left": None, "shelf": None, "weight": 1.5}
    assert set(rows) == {"apple", "pear", "plum", "fig", "nut"}


def test_overwrite_with_where_replaces_only_matching_rows(lake: lv.Lake, shop: Place) -> None:
    with lake.transaction() as txn:
        done = txn.overwrite(
            "orders",
            {"id": [1, 9], "sku": ["apple", "apple"], "qty": [7, 8]},
            where="sku = :sku",
            params={"sku": "apple"},
        )
        assert (done.rows_deleted, done.rows_inserted) == (2, 2)
    assert [row["id"] for row in shop.seen("orders")] == [1, 2, 4, 9]


def test_upsert_updates_the_given_columns_of_matched_rows_and_inserts_other_rows(
    lake: lv.Lake, shop: Place
) -> None:
    with lake.transaction() as txn:
        done = txn.upsert("orders", {"id": [1, 9], "qty": [7, 8]}, ["ID"])
        assert (done.rows_updated, done.rows_inserted) == (1, 1)
    rows = shop.seen("orders")
    assert rows[0] == {"id": 1, "sku": "apple", "qty": 7}
    assert rows[-1] == {"id": 9, "sku": None, "qty": 8}


@pytest.mark.parametrize(
    ("data", "told"),
    [({"id": [1, None], "qty": [1, 1]}, "NULL"), ({"id": [1, 1], "qty": [1, 1]}, "two rows")],
    ids=["null", "twice"],
)
def test_upsert_refuses_null_keys_and_duplicate_keys(
    lake: lv.Lake, data: dict[str, Any], told: str
) -> None:
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match=told):
        txn.upsert("orders", data, "id")


NESTED_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
        [{"x": 1, "y": None}, {"x": 1, "y": "a"}, {"x": None, "y": None}],
    ),
    "list": (pa.list_(pa.float64()), [[1.0, None], [], [float("nan")]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [], [("a", None)]]),
}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("kind", NESTED_KEYS)
def test_upsert_finds_rows_by_nested_keys(
    lake: lv.Lake, kind: str, format: Literal["delta", "iceberg"]
) -> None:
    type_, keys = NESTED_KEYS[kind]
    column = pa.array(keys, type_)
    lake.create_table("t", pa.table({"k": column[:2], "n": [0, 0]}), format=format)
    given = pa.table({"k": column[1:], "n": [1, 2]})
    with lake.transaction() as txn:
        done = txn.upsert("t", given, "k")
        assert (done.rows_updated, done.rows_inserted) == (1, 1)
    found = lake.read("t").sort_by("n")
    assert repr(found["k"].to_pylist()) == repr(column.to_pylist())
    assert found["n"].to_pylist() == [0, 1, 2]
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="two rows"):
        txn.upsert("t", pa.table({"k": column.take(pa.array([2, 2])), "n": [1, 2]}), "k")


def test_the_error_for_two_source_rows_shows_both_whole_whatever_their_columns_names(
    lake: lv.Lake,
) -> None:
    twice = pa.table({"id": [1, 1], "s": [None, "x"]})
    with lake.transaction() as txn:
        merge = txn.merge("orders", twice, "source.id = target.id").when_matched_delete()
        with pytest.raises(
            lv.InvalidOperation, match=r"\{'id': 1, 's': (NULL|x)\} and \{'id': 1, 's': "
        ):
            merge.execute()


def test_the_error_of_upsert_for_an_unknown_column_names_all_columns(lake: lv.Lake) -> None:
    for data in ({"id": [1], "quantity": [7]}, {"id": [9], "sku": ["fig"], "shelf": ["A"]}):
        with lake.transaction() as txn, pytest.raises(lv.InvalidOperation) as caught:
            txn.upsert("orders", data, "id")
        assert "its columns are id, sku, qty" in str(caught.value)
        assert "pass schema_mode='merge'" in str(caught.value)


@pytest.mark.parametrize("nothing", [[], {}, pa.table({}), pl.DataFrame(), pd.DataFrame()])
def test_append_and_upsert_of_empty_data_change_nothing(lake: lv.Lake, nothing: Any) -> None:
    before = lake.snapshot().versions["orders"]
    with lake.transaction() as txn:
        for done in (txn.append("orders", nothing), txn.upsert("orders", nothing, "id")):
            assert (done.rows_matched, done.rows_inserted, done.files_added) == (0, 0, 0)
        with pytest.raises(lv.InvalidOperation, match="no key column nokey"):
            txn.upsert("orders", nothing, "nokey")
    assert lake.snapshot().versions["orders"] == before


def test_two_source_rows_for_one_target_row_are_an_error(lake: lv.Lake) -> None:
    twice = {"id": [1, 1], "qty": [5, 6]}
    with lake.transaction() as txn:
        merge = txn.merge("orders", twice, "source.id = target.id").when_matched_update_all()
        with pytest.raises(lv.InvalidOperation, match="orders"):
            merge.execute()


TYPES: dict[str, tuple[pa.DataType, Any, str]] = {
    "boolean": (pa.bool_(), True, "v"),
    "byte": (pa.int8(), -5, "v = -5"),
    "short": (pa.int16(), 300, "v = 300"),
    "integer": (pa.int32(), 70_000, "v = 70000"),
    "long": (pa.int64(), 2**40, "v > 1099511627775"),
    "float": (pa.float32(), 1.5, "v = 1.5"),
    "double": (pa.float64(), 0.1, "v = 0.1"),
    "decimal": (pa.decimal128(10, 2), Decimal("12.34"), "v = 12.34"),
    "string": (pa.string(), "naïve ' \" \\ ✓", "v like 'naïve%'"),
    "binary": (pa.binary(), b"\x00\xff", "v is not null"),
    "date": (pa.date32(), date(2024, 2, 29), "v = date '2024-02-29'"),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        datetime(2024, 2, 29, 12, 30, 0, 123456, UTC),
        "v = timestamp '2024-02-29 12:30:00.123456'",
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        datetime(2024, 2, 29, 12, 30),
        "v = cast('2024-02-29 12:30:00' as timestamp_ntz)",
    ),
    "list": (pa.list_(pa.int64()), [1, 2], "v is not null"),
    "struct": (pa.struct([("a", pa.int64())]), {"a": 3}, "v.a = 3"),
    "map": (pa.map_(pa.string(), pa.int64()), [("k", 1)], "v is not null"),
}


@pytest.mark.parametrize(("type_", "value", "where"), TYPES.values(), ids=TYPES.keys())
def test_values_of_every_type_are_stored_found_and_changed(
    lake: lv.Lake, shop: Place, type_: pa.DataType, value: Any, where: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", type_)])
    rows = pa.table({"id": [1, 2], "v": pa.array([value, None], type_)}, schema=schema)
    lake.create_table("t", rows)
    with lake.transaction() as txn:
        assert txn.read("t", where=where)["v"].to_pylist() == [value]
        assert txn.read("t", where="v is null")["id"].to_pylist() == [2]
        txn.update("t", {"v": "v"}, "id = 1")
        txn.append("t", rows.slice(0, 1))
        txn.update("t", {"v": None}, where)
        txn.append("t", rows.slice(0, 1))
    assert shop.delta("t").to_pyarrow_table().sort_by("id")["v"].to_pylist() == [
        None,
        None,
        value,
        None,
    ] or sorted(str(row["v"]) for row in shop.seen("t")) == sorted(
        ["None", "None", str(value), "None"]
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name, (_, value, _) in TYPES.items()
        if name
        in (
            "boolean",
            "byte",
            "long",
            "double",
            "decimal",
            "string",
            "date",
            "timestamp",
            "timestamp_ntz",
            "binary",
        )
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_parameter_has_the_type_of_its_value(lake: lv.Lake, name: str, value: Any) -> None:
    type_ = TYPES[name][0]
    rows = pa.table({"id": [1, 2], "v": pa.array([value, None], type_)})
    lake.create_table("t", rows)
    with lake.transaction() as txn:
        assert txn.read("t", where="v = :v", params={"v": value})["id"].to_pylist() == [1]
        assert txn.read("t", where="v in :v", params={"v": [value]})["id"].to_pylist() == [1]
        assert txn.read("t", where="v in :v", params={"v": []}).num_rows == 0
        assert txn.update("t", {"v": ":v"}, "id = 2", params={"v": value}).rows_updated == 1
        if not isinstance(value, str):
            assert txn.update("t", {"v": value}, "id = 1").rows_updated == 1
        assert txn.read("t", where="v = :v", params={"v": value}).num_rows == 2
        same = txn.sql("select id from t where v = :v", {"v": value})
        assert same.num_rows == 2


def test_decimals_of_38_digits_are_found_and_prune_files(lake: lv.Lake, shop: Place) -> None:
    widest = [Decimal("9" * 36 + ".99"), Decimal("-" + "9" * 36 + ".99"), Decimal("0.01"), None]
    amounts = pa.table({"n": [1, 2, 3, 4], "amount": pa.array(widest, pa.decimal128(38, 2))})
    shop.write("ledger", amounts)
    with lake.transaction() as txn:
        for number, amount in enumerate(widest[:3], 1):
            found = txn.read("ledger", where="amount = :amount", params={"amount": amount})
            assert found["n"].to_pylist() == [number]
        assert txn.update("ledger", {"n": "n + 10"}, "amount > 0").rows_updated == 2
        txn.append("ledger", amounts)
        assert txn.read("ledger", where="amount < 0")["n"].to_pylist() == [2, 2]
    assert shop.delta("ledger").to_pyarrow_table().num_rows == 8


def test_a_parameter_with_sql_in_it_is_only_text(lake: lv.Lake) -> None:
    hostile = "x' or true; drop table orders --"
    with lake.transaction() as txn:
        assert txn.read("orders", where="sku = :s", params={"s": hostile}).num_rows == 0
        assert txn.delete("orders", "sku = :s", params={"s": hostile}).rows_deleted == 0
        txn.update("orders", {"sku": ":s"}, "id = 1", params={"s": hostile})
        assert txn.read("orders", ["id"], "sku = :s", params={"s": hostile}).num_rows == 1
        assert txn.sql("select id from orders where sku = :s", {"s": hostile}).num_rows == 1


def test_timestamps_with_a_zone_and_without_are_not_mixed(lake: lv.Lake) -> None:
    aware, naive = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1)
    schema = pa.schema([("z", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us"))])
    lake.create_table("t", pa.table({"z": [aware], "n": [naive]}, schema=schema))
    with lake.transaction() as txn:
        for verb in (
            lambda: txn.update("t", {"z": naive}, "true"),
            lambda: txn.update("t", {"n": aware}, "true"),
            lambda: txn.read("t", where="z = :v", params={"v": naive}),
            lambda: txn.read("t", where="n = :v", params={"v": aware}),
            lambda: txn.append("t", pa.table({"z": [naive]})),
            lambda: txn.append("t", pa.table({"n": [aware]})),
        ):
            with pytest.raises(lv.InvalidOperation, match=r"zone|timestamp"):
                verb()


def test_current_timestamp_is_one_value_in_a_transaction(lake: lv.Lake) -> None:
    lake.create_table(
        "t",
        pa.schema([("id", pa.int64()), ("made", pa.timestamp("us", "UTC")), ("day", pa.date32())]),
    )
    lake.run(lambda txn: txn.append("t", {"id": [1, 2]}))
    with lake.transaction() as txn:
        txn.update("t", {"made": "current_timestamp", "day": "current_date"}, "id = 1")
        txn.update("t", {"made": "now()"}, "id = 2")
        txn.sql("insert into t select 3, now(), current_date")
        txn.sql("insert into t select 4, current_timestamp, today()")
        txn.sql(
            "merge into t using (select 5 as id, now() as made) as s on t.id = s.id "
            "when not matched then insert (id, made) values (s.id, s.made)"
        )
        seen = txn.sql("select count(*) as n from t where made = now()")
        assert seen["n"].to_pylist() == [5]
    times = set(lake.snapshot().read("t")["made"].to_pylist())
    assert len(times) == 1


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("7 / 2", 3.5),
        ("qty / 4", 2.5),
        ("cast(qty as double) / 0.5", 20.0),
        ("case when qty = 10 then 1.5 else 0.0 end", 1.5),
        ("coalesce(null, 2.5)", 2.5),
    ],
)
def test_division_is_true_division(lake: lv.Lake, expression: str, result: float) -> None:
    lake.run(lambda txn: txn.alter("orders", add_columns=pa.schema([("x", pa.float64())])))
    lake.run(lambda txn: txn.update("orders", {"x": f"cast({expression} as double)"}, "id = 1"))
    assert lake.snapshot().read("orders", ["x"], "id = 1")["x"].to_pylist() == [result]


@pytest.mark.parametrize(
    "expression",
    ["qty / (id - 1)", "qty % (id - 1)", "9223372036854775807 + qty", "cast(sku as bigint)"],
)
def test_expressions_without_a_value_raise_instead_of_returning_null(
    lake: lv.Lake, expression: str
) -> None:
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation):
            txn.update("orders", {"qty": f"cast({expression} as bigint)"}, "id = 1")
        with pytest.raises(lv.InvalidOperation):
            txn.read("orders", where=f"{expression} = 1")


NOTHING: list[Callable[[], object]] = [
    lambda: [{"id": 1, "x": None}],
    lambda: pa.table({"id": [1], "x": pa.nulls(1)}),
    lambda: pa.table({"id": [1], "x": pa.nulls(1)}).to_reader(),
    lambda: pd.DataFrame({"id": [1], "x": [None]}),
]
NULLS: dict[str, Callable[[lv.Transaction, Any], object]] = {
    "append": lambda txn, rows: txn.append("t", rows),
    "overwrite": lambda txn, rows: txn.overwrite("t", rows),
    "upsert": lambda txn, rows: txn.upsert("t", rows, "id"),
    "merge": lambda txn, rows: (
        txn.merge("t", rows, "source.id = target.id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    ),
    "insert": lambda txn, rows: txn.sql("INSERT INTO t SELECT * FROM v", views={"v": rows}),
    "sql-merge": lambda txn, rows: txn.sql(
        "MERGE INTO t USING v ON t.id = v.id WHEN MATCHED THEN UPDATE SET x = v.x "
        "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (v.id, v.x)",
        views={"v": rows},
    ),
}


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.string(), pa.timestamp("us", "UTC"), pa.list_(pa.string()), pa.bool_()],
    ids=str,
)
@pytest.mark.parametrize("verb", NULLS)
def test_a_column_of_nulls_alone_fits_a_column_of_any_type(
    shop: Place, verb: str, kind: pa.DataType
) -> None:
    with shop.connect() as lake:
        lake.create_table("t", pa.schema([("id", pa.int64()), ("X", kind)]))
        for make in NOTHING:
            with lake.transaction() as txn:
                txn.delete("t", "true")
                NULLS[verb](txn, make())
            assert lake.snapshot().read("t").to_pylist() == [{"id": 1, "X": None}]


def test_empty_lists_without_a_type_fit_list_columns(shop: Place) -> None:
    with shop.connect() as lake:
        tags = pa.list_(pa.string())
        lake.create_table("t", pa.schema([("id", pa.int64()), ("tags", tags)]))
        lake.run(lambda txn: txn.upsert("t", [{"id": 1, "tags": []}], "id"))
        assert lake.snapshot().read("t").to_pylist() == [{"id": 1, "tags": []}]


def test_a_select_reads_a_view_with_a_column_of_nulls_alone(lake: lv.Lake) -> None:
    query = "SELECT v.id, v.x, o.sku FROM v LEFT JOIN orders AS o ON o.qty = v.x"
    for make in NOTHING:
        rows = lake.snapshot().sql(query, views={"v": make()})
        assert rows.to_pylist() == [{"id": 1, "x": None, "sku": None}]


@pytest.mark.parametrize(
    ("verb", "named"),
    [("upsert", "'t'"), ("merge", "'t'"), ("insert", "'v'"), ("sql-merge", "'v'")],
)
def test_the_error_for_an_unsupported_type_names_the_callers_column(
    shop: Place, verb: str, named: str
) -> None:
    rows = pa.table({"id": [1], "x": pa.array([1], pa.uint64())})
    with shop.connect() as lake:
        lake.create_table("t", pa.schema([("id", pa.int64()), ("x", pa.int64())]))
        told = f"column 'x' of table {named} has type uint64"
        with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match=told):
            NULLS[verb](txn, rows)


def test_every_verb_accepts_rows_with_a_void_column(tmp_path: Path) -> None:
    """Spark creates void columns by ``SELECT NULL AS v``; data files don't contain them."""
    table = Handmade(tmp_path)
    table.begin([field("id"), field("v", "void")], table.add("f.parquet", pa.table({"id": [1, 2]})))
    with lv.connect(tmp_path) as lake:
        rows = lake.read("t")
        with lake.transaction() as txn:
            txn.append("t", rows.slice(0, 1))
            txn.upsert("t", pa.table({"id": [2, 3], "v": pa.nulls(2)}), "id")
            merge = txn.merge("t", rows.slice(1), "source.id = target.id")
            assert merge.when_matched_update_all().execute().rows_updated == 1
        found = lake.read("t")
    assert sorted(found["id"].to_pylist()) == [1, 1, 2, 3]
    assert found["v"].to_pylist() == [None] * 4
