"""A mapping of names to types can describe columns wherever a schema is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import deltalake
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.schema import Schema

import lakevilla as lv
from tests.support.tables import contents

FORMATS: list[Any] = ["delta", "iceberg"]
Format = Literal["delta", "iceberg"]
ZONED, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")

NAMED: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(18,2)": pa.decimal128(18, 2),
    "decimal(18, 2)": pa.decimal128(18, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": ZONED,
    "timestamp_ntz": LOCAL,
    "array<int>": pa.list_(pa.int32()),
    "list<string>": pa.list_(pa.string()),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
    "struct<a:int,b:string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "struct<a int, b: array<map<string, decimal(3,1)>>>": pa.struct(
        [("a", pa.int32()), ("b", pa.list_(pa.map_(pa.string(), pa.decimal128(3, 1))))]
    ),
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("here", [{"id": 1}])
        yield lake


def same(found: pa.Schema, expected: pa.Schema) -> bool:
    """Return whether columns have the same types, whatever the names of list elements."""
    return found.empty_table().cast(expected).schema.equals(expected)


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_is_created_and_altered_by_names_of_types(lake: lv.Lake, format: Format) -> None:
    widths = {pa.int8(): pa.int32(), pa.int16(): pa.int32()} if format == "iceberg" else {}
    columns = {f"c{n}": name for n, name in enumerate(NAMED)}
    expected = pa.schema(
        [(f"c{n}", widths.get(type_, type_)) for n, type_ in enumerate(NAMED.values())]
    )
    lake.create_table("made", columns, format=format)
    made = lake.table("made").schema
    assert same(made, expected)
    assert all(field.nullable for field in made)
    lake.create_table("altered", {"id": pa.int64()}, format=format)
    lake.run(lambda txn: txn.alter("altered", add_columns=columns))
    assert same(pa.schema(list(lake.table("altered").schema)[1:]), expected)
    lake.run(lambda txn: txn.append("altered", [{"id": 1, "c4": 5, "c12": "x"}]))
    assert lake.snapshot().read("altered", ["c4", "c12"]).to_pylist() == [{"c4": 5, "c12": "x"}]


def test_a_mapping_to_types_is_taken_as_a_schema_and_one_to_values_as_data(lake: lv.Lake) -> None:
    lake.create_table("schema", {"x": "string"})
    lake.create_table("typed", {"x": pa.int64(), "y": "date"})
    lake.create_table("lists", {"x": ["string"]})
    lake.create_table("arrays", {"x": pa.array([1]), "y": np.array([2]), "z": pd.Series([3])})
    lake.create_table("described", deltalake.Schema.from_arrow(pa.schema({"x": pa.int64()})))
    counts = [len(lake.snapshot().read(name)) for name in ("schema", "typed", "lists", "arrays")]
    assert counts == [0, 0, 1, 1]
    assert lake.table("described").schema == pa.schema({"x": pa.int64()})


@pytest.mark.parametrize("format", FORMATS)
def test_a_pyiceberg_schema_is_accepted(lake: lv.Lake, format: Format) -> None:
    inner = types.StructType(types.NestedField(3, "y", types.DateType(), required=False))
    given = Schema(
        types.NestedField(7, "id", types.LongType(), required=True),
        types.NestedField(9, "s", inner, required=False),
    )
    lake.create_table("made", given, format=format)
    made = lake.table("made").schema
    assert same(made, pa.schema({"id": pa.int64(), "s": pa.struct([("y", pa.date32())])}))
    assert [field.nullable for field in made] == [False, True]
    added = Schema(types.NestedField(1, "note", types.StringType(), required=False))
    lake.run(lambda txn: txn.alter("made", add_columns=added))
    lake.run(lambda txn: txn.append("made", [{"id": 1, "s": None, "note": "x"}]))
    assert lake.snapshot().read("made", ["note"]).to_pylist() == [{"note": "x"}]
    keyed = Schema(*given.fields, identifier_field_ids=[7])
    with pytest.raises(lv.InvalidOperation, match="names identifier fields, which LakeVilla does"):
        lake.create_table("keyed", keyed, format=format)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"x": "strnig"}, "column 'x' has the type 'strnig'.* did you mean \"string\""),
        ({"x": "float64"}, 'did you mean "double"'),
        ({"x": "datetime"}, 'did you mean "timestamp"'),
        ({"x": "decimal"}, r'did you mean "decimal\(18,2\)"'),
        ({"x": "decimal(99,2)"}, "out of range"),
        ({"x": "varchar(3)"}, "length nothing would check"),
        ({"x": "struct<a:char (3)>"}, "length nothing would check"),
        ({"x": ""}, "unknown"),
        ({"x": "int)"}, "unknown"),
        ({"x": "int) + (1"}, "unknown"),
        ({"x": "int; drop table here"}, "unknown"),
        ({"x": "int not null"}, "unknown"),
        ({"x": "struct<a:int not null>"}, "unknown"),
        ({"x": "struct<>"}, "unknown"),
        ({"x": "array<" * 500 + "int" + ">" * 500}, "unknown"),
        ({"x": "variant"}, "no table can keep"),
        ({"x": "struct<a:int,A:int>"}, "columns 'a' and 'A'"),
        ({"x": int}, "column 'x' has int"),
        ({"x": "int", "y": [1]}, "column 'y' has a list where other columns have types"),
        ({"x": "int", "y": None}, "column 'y' has a NoneType"),
        ({"x": "int", 5: "int"}, "column name 5 is not a string"),
        ({"x": "int", "": "int"}, "column name '' is not a string"),
        ({"x": "int", "X": "int"}, "columns 'x' and 'X'"),
        ({"x": pa.duration("s")}, "duration"),
        ({"x": pa.struct([])}, "struct"),
        (pa.schema([("x", pa.struct([]))]), "struct"),
        (pa.schema([("x", pa.list_(pa.struct([])))]), "struct"),
        (pa.schema([("x", pa.map_(pa.string(), pa.struct([])))]), "struct"),
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_invalid_column_types_are_refused_in_create_table_and_in_alter(
    lake: lv.Lake, tmp_path: Path, format: Format, given: Any, told: str
) -> None:
    lake.create_table("there", [{"id": 1}], format=format)
    before = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match=told) as raised:
        lake.create_table("made", given, format=format)
    assert raised.value.table == "made"
    with pytest.raises(lv.InvalidOperation, match=told) as raised:
        lake.run(lambda txn: txn.alter("there", add_columns=given))
    assert raised.value.table == "there"
    assert contents(tmp_path) == before


@pytest.mark.parametrize("given", ["x", 5, {}, [], [("x", "int")], pa.schema([]), {"x": [1]}, int])
def test_alter_refuses_data_as_a_schema(lake: lv.Lake, given: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="add_columns must be"):
        lake.run(lambda txn: txn.alter("here", add_columns=given))


@pytest.mark.parametrize("format", FORMATS)
def test_the_error_for_an_empty_struct_in_data_names_the_column(
    lake: lv.Lake, tmp_path: Path, format: Format
) -> None:
    lake.create_table("there", [{"id": 1}], format=format)
    before = contents(tmp_path)
    for data in ([{"id": 2, "x": {}}], [{"id": 2, "x": [{}]}]):
        with pytest.raises(lv.InvalidOperation, match=r"'x.*struct"):
            lake.create_table("made", data, format=format)
        with lake.transaction() as txn:
            with pytest.raises(lv.InvalidOperation, match=r"'x.*struct"):
                txn.append("there", data, schema_mode="merge")
            txn.abort()
    assert contents(tmp_path) == before
