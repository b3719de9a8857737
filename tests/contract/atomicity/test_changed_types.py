"""Wider types and new fields of structs: old files stay, and all engines and readers agree."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import HAS_EXTENSIONS, duckdb_reader, read_by_others
from tests.support.places import make_place
from tests.support.tables import in_order

WIDENING = {"delta": {"delta.enableTypeWidening": "true"}, "iceberg": None}

DELTA: dict[str, tuple[pa.DataType, Any, str, Any]] = {
    "byte to short": (pa.int8(), 7, "short", 300),
    "byte to double": (pa.int8(), 7, "double", 0.5),
    "short to int": (pa.int16(), 7, "int", 2**31 - 1),
    "int to long": (pa.int32(), 7, "bigint", 2**40),
    "int to double": (pa.int32(), 7, "double", 0.5),
    "int to decimal": (pa.int32(), 7, "decimal(12,2)", Decimal("9999999999.25")),
    "long to decimal": (pa.int64(), 2**62, "decimal(21,1)", Decimal("0.5")),
    "float to double": (pa.float32(), 0.5, "double", 0.1),
    "decimal to decimal": (
        pa.decimal128(4, 1), Decimal("1.5"), "decimal(7,3)", Decimal("1234.125"),
    ),
    "date to timestamp_ntz": (
        pa.date32(), date(2020, 1, 2), "timestamp_ntz", datetime(2020, 1, 2, 3, 4),
    ),
}  # fmt: skip
ICEBERG: dict[str, tuple[pa.DataType, Any, str, Any]] = {
    "int to long": DELTA["int to long"],
    "float to double": DELTA["float to double"],
    "decimal to decimal": (
        pa.decimal128(4, 1), Decimal("1.5"), "decimal(7,1)", Decimal("123456.5"),
    ),
}  # fmt: skip
CASES = [
    *(pytest.param("delta", *case, id=f"delta, {name}") for name, case in DELTA.items()),
    *(pytest.param("iceberg", *case, id=f"iceberg, {name}") for name, case in ICEBERG.items()),
]
LIKE = {date(2020, 1, 2): datetime(2020, 1, 2)}


@pytest.mark.parametrize(("format", "old", "value", "new", "wide"), CASES)
def test_old_and_new_rows_are_read_and_written_with_the_wider_type(
    request: pytest.FixtureRequest, format: Any, old: pa.DataType, value: Any, new: str, wide: Any
) -> None:
    place = make_place("iceberg" if format == "iceberg" else "local", request)
    narrow = pa.table(
        {
            "id": pa.array([1, 2]),
            "x": pa.array([value, None], old),
            "s": pa.array([{"y": value}, None], pa.struct([("y", old)])),
        }
    )
    with place.connect() as lake:
        lake.create_table("t", narrow, format=format, properties=WIDENING[format])
        before = lake.history(1)[0].version
        with lake.transaction() as txn:
            txn.alter("t", change_types={"X": new, "s.y": new})
            txn.append("t", [{"id": 3, "x": wide, "s": {"y": wide}}])
            assert {row["x"] for row in txn.read("t").to_pylist()} == {
                LIKE.get(value, value),
                None,
                wide,
            }
        was = LIKE.get(value, value) if isinstance(value, date) else value
        assert (
            lake.table("t").schema.field("x").type == lake.table("t").schema.field("s").type[0].type
        )
        snapshot = lake.snapshot()
        for column in ("x", "s.y"):
            for looked_for, found in ((was, 1), (wide, 3)):
                rows = snapshot.read("t", ["id"], f"{column} = :v", params={"v": looked_for})
                assert rows["id"].to_pylist() == [found], column
        assert in_order(lake.snapshot(before).read("t", ["id", "x"])) == [
            {"id": 1, "x": value}, {"id": 2, "x": None}
        ]  # fmt: skip
        with lake.transaction() as txn:
            assert txn.update(
                "t", {"x": ":v"}, "x = :old", params={"v": wide, "old": was}
            ).rows_updated
        assert {row["x"] for row in lake.snapshot().read("t").to_pylist()} == {None, wide}
        assert lake.doctor(files=True).ok
    if format == "iceberg":
        seen = place.catalog().load_table(("t",)).scan().to_arrow().to_pylist()
        assert [row["s"] and row["s"]["y"] for row in sorted(seen, key=lambda r: r["id"])] == [
            was, None, wide
        ]  # fmt: skip


def of(lake: lv.Lake, format: Any, **more: Any) -> None:
    rows = pa.table(
        {
            "n": pa.array([1], pa.int32()),
            "big": pa.array([1], pa.int64()),
            "f": pa.array([0.5], pa.float32()),
            "d": pa.array([Decimal("1.5")], pa.decimal128(4, 1)),
            "t": ["a"],
            "l": pa.array([[1]], pa.list_(pa.int32())),
        }
    )
    lake.create_table("t", rows, format=format, properties=WIDENING[format], **more)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"big": "int"}, "column 'big' of table t is long and can't become integer"),
        ({"n": "int"}, "column 'n' of table t is integer already: leave it out"),
        ({"n": "float"}, "'n' of table t is integer and can't become float: in .* it may become"),
        ({"big": "double"}, "is long and can't become double"),
        ({"d": "decimal(6,4)"}, r"is decimal\(4,1\) and can't become decimal\(6,4\)"),
        ({"t": "bigint"}, "widens no string; to change what is stored, add a column"),
        ({"l": "array<bigint>"}, r"is array<integer> and can't become array<long>"),
        ({"m": "bigint"}, "has no column 'm'"),
        ({"n": "numbr"}, "numbr"),
        ("bigint", "change_types must be a mapping of columns to types"),
    ],
)
def test_type_changes_that_are_not_widening_are_refused(
    lake: lv.Lake, format: Any, types: Any, words: str
) -> None:
    of(lake, format)
    before = lake.history(1)
    with pytest.raises(lv.InvalidOperation, match=words), lake.transaction() as txn:
        txn.alter("t", change_types=types)
    assert lake.history(1) == before


def test_a_type_change_needs_an_explicit_property_as_it_locks_out_older_readers(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("t", pa.table({"n": pa.array([1], pa.int32())}))
    with pytest.raises(lv.InvalidOperation, match=r"before the property delta\.enableTypeWidening"):
        with lake.transaction() as txn:
            txn.alter("t", change_types={"n": "bigint"})
    with lake.transaction() as txn:
        txn.alter(
            "t",
            change_types={"n": "bigint"},
            rename_columns={},
            set_properties={"delta.enableTypeWidening": True},
        )
    table = deltalake.DeltaTable(lake.table("t").uri)
    assert "typeWidening" in (table.protocol().reader_features or [])
    (field,) = table.schema().fields
    assert field.metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    if HAS_EXTENSIONS:
        scan = f"FROM delta_scan('{lake.table('t').uri}')"
        assert duckdb_reader().sql(scan).to_arrow_table().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_type_changes_of_partition_columns_and_constrained_columns_are_refused(
    lake: lv.Lake, format: Any
) -> None:
    of(lake, format, partition_by=["n", "d"])
    for types in [{"n": "double"}, {"d": "decimal(7,1)"}] if format == "delta" else [{"n": "long"}]:
        with pytest.raises(lv.InvalidOperation, match="partitioned by"), lake.transaction() as txn:
            txn.alter("t", change_types=types)
    if format == "delta":
        with lake.transaction() as txn:
            txn.alter("t", change_types={"n": "long"})
            txn.append("t", [{"n": 2**40, "d": Decimal("1.5")}])
        assert lake.snapshot().read("t", ["n"], "n > 1")["n"].to_pylist() == [2**40]
        with lake.transaction() as txn:
            txn.alter("t", add_constraints={"half": "f is null or f < 1"})
        with (
            pytest.raises(lv.InvalidOperation, match="constraint 'half'"),
            lake.transaction() as txn,
        ):
            txn.alter("t", change_types={"f": "double"})


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_concurrent_update_commits_on_the_wider_type_and_an_append_conflicts(
    lake: lv.Lake, format: Any
) -> None:
    of(lake, format)
    txn = lake.transaction()
    txn.append("t", [{"n": 2}])
    other = lake.transaction()
    other.update("t", {"n": "n + 10"}, "true")
    with lake.transaction() as altering:
        altering.alter("t", change_types={"n": "bigint"})
    other.commit()
    with pytest.raises(lv.ConflictError):
        txn.commit()
    rows = lake.snapshot().read("t", ["n"])
    assert (rows["n"].type, rows["n"].to_pylist()) == (pa.int64(), [11])


@pytest.mark.parametrize("mapped", [False, True], ids=["by name", "mapped"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_alter_can_add_fields_to_structs(lake: lv.Lake, format: Any, mapped: bool) -> None:
    properties = {"delta.columnMapping.mode": "name"} if mapped and format == "delta" else None
    old = {"id": 1, "address": {"street": "x", "geo": {"lat": 1.5}}}
    lake.create_table("t", [old], format=format, properties=properties)
    with lake.transaction() as txn:
        txn.alter(
            "t", add_columns={"address.zip": "string", "Address.geo.lon": "double", "a.b": "int"}
        )
        new = {"id": 2, "address": {"street": "y", "geo": {"lat": 2.5, "lon": 3.5}, "zip": "10115"}}
        txn.append("t", [{**new, "a.b": 7}])
    assert in_order(lake.snapshot().read("t")) == [
        {"id": 1, "address": {"street": "x", "geo": {"lat": 1.5, "lon": None}, "zip": None},
         "a.b": None},
        {**new, "a.b": 7},
    ]  # fmt: skip
    found = lake.snapshot().read("t", ["id"], "address.zip = '10115' AND address.geo.lon > 3")
    assert found["id"].to_pylist() == [2]
    with lake.transaction() as txn:
        assert txn.update("t", {"id": "0"}, "id = 1").rows_updated == 1  # rewrites the file
    rows = in_order(lake.snapshot().read("t", ["id", "address"]))
    assert rows[0]["address"]["zip"] is None
    seen = read_by_others(lake.table("t").uri, format, is_mapped=mapped)
    for client, table in seen.items():
        assert in_order(table.select(["id", "address"])) == rows, client
    for names, words in (
        ({"address.ZIP": "string"}, "already .*a column 'address.zip'"),
        ({"address.geo": "string"}, "already .*a column 'address.geo'"),
    ):
        with pytest.raises(lv.InvalidOperation, match=words), lake.transaction() as txn:
            txn.alter("t", add_columns=names)


def test_the_second_of_two_transactions_that_add_the_same_field_conflicts(lake: lv.Lake) -> None:
    lake.create_table("t", [{"s": {"a": 1}}])
    first, second = lake.transaction(), lake.transaction()
    for txn in (first, second):
        txn.alter("t", add_columns={"s.b": "int"})
    first.commit()
    with pytest.raises(lv.ConflictError, match=r"already has a column 's\.b'"):
        second.commit()
