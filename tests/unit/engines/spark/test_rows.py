"""The column types of Spark DataFrames converted to the types of tables."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

import lakevilla as lv
from lakevilla.engines.spark.rows import (
    arrow_types,
    as_declared,
    may_be_null,
    may_be_null_beyond,
)


def test_may_be_null_makes_all_fields_nullable_except_the_keys_of_maps() -> None:
    inner = StructType(
        [
            StructField("a", IntegerType(), nullable=False),
            StructField("l", ArrayType(IntegerType(), containsNull=False)),
        ]
    )
    rows = StructType(
        [
            StructField("n", IntegerType(), nullable=False),
            StructField("s", inner, nullable=False),
            StructField("m", MapType(StringType(), IntegerType(), valueContainsNull=False)),
        ]
    )
    given = arrow_types(rows, "t")
    assert not given.field("n").nullable
    assert not given.field("s").type.field("a").nullable
    assert not given.field("m").type.item_field.nullable

    found = may_be_null(given)

    assert found.names == given.names
    of_struct = found.field("s").type
    free = [found.field("n"), found.field("s"), of_struct.field("a"), of_struct.field("l")]
    free += [of_struct.field("l").type.value_field, found.field("m").type.item_field]
    assert all(field.nullable for field in free)
    assert not found.field("m").type.key_field.nullable
    assert found.field("n").type == pa.int32()


@pytest.mark.parametrize(
    "kind",
    [
        VariantType(),
        StructType([StructField("a", ArrayType(VariantType()))]),
        MapType(StringType(), VariantType()),
    ],
)
def test_a_variant_column_is_refused(kind: DataType) -> None:
    """Arrow would store it as a struct of bytes, for every reader."""
    with pytest.raises(lv.InvalidOperation, match=r"column .v. for table .t. .*variant.*cast it"):
        arrow_types(StructType([StructField("v", kind)]), "t")


@pytest.mark.parametrize("nested", [False, True])
def test_text_with_a_collation_is_refused(nested: bool) -> None:
    """It would be stored as ordinary text, whose values are compared differently."""
    text = StringType("UTF8_LCASE")
    columns = StructType([StructField("v", ArrayType(text) if nested else text)])
    with pytest.raises(lv.InvalidOperation, match=r"'v' for table 't' .* UTF8_LCASE.*cast it"):
        arrow_types(columns, "t")


def test_timestamps_become_utc_and_spark_field_metadata_is_dropped() -> None:
    noted = StructField("x", TimestampType(), metadata={"comment": "in Spark alone"})
    columns = [
        StructField("at", TimestampType(), metadata={"comment": "in Spark alone"}),
        StructField("local", TimestampNTZType()),
        StructField("l", ArrayType(TimestampType())),
        StructField("m", MapType(StringType(), TimestampType())),
        StructField("s", StructType([noted])),
    ]
    instant = pa.timestamp("us", "UTC")
    found = arrow_types(StructType(columns), "t")
    assert found.field("at").type == instant
    assert found.field("local").type == pa.timestamp("us")
    assert found.field("l").type.value_type == instant
    assert found.field("m").type.item_type == instant
    assert found.field("s").type.field("x").type == instant
    assert found.field("at").metadata is None
    assert found.field("s").type.field("x").metadata is None


@pytest.mark.parametrize("name", ["VariantType", "GeometryType"])
def test_types_that_only_spark_understands_are_refused(name: str) -> None:
    kind: Any = getattr(types, name, None)
    if kind is None:
        pytest.skip(f"this Spark has no {name}")
    columns = StructType([StructField("v", kind(4326) if name == "GeometryType" else kind())])
    with pytest.raises(lv.InvalidOperation, match=r"column 'v' for table 't' is of type .*cast it"):
        arrow_types(columns, "t")


def test_rows_are_returned_with_exactly_the_columns_that_spark_declared() -> None:
    inner = pa.struct([pa.field("a", pa.int32(), False)])
    at = pa.field("at", pa.timestamp("ms", "UTC"), False)
    there = pa.schema([pa.field("id", pa.int64(), False), at, pa.field("s", inner)])
    row = {"id": 1, "at": datetime(2024, 2, 29, tzinfo=UTC), "s": {"a": 1}}
    batch = pa.RecordBatch.from_pylist([row], there)
    declared = pa.schema(
        [
            pa.field("s", pa.struct([pa.field("a", pa.int32())])),
            pa.field("late", pa.string()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("id", pa.int64()),
        ]
    )
    found = as_declared(batch, declared)
    assert found.schema.equals(declared)
    assert found.to_pylist() == [{**row, "late": None}]
    assert as_declared(found, declared) is found
    none = pa.RecordBatch.from_pylist([{**row, "s": None}], there)
    assert as_declared(none, there.set(0, pa.field("id", pa.int64()))).to_pylist()[0]["s"] is None


@pytest.mark.parametrize(
    ("asked", "there", "beyond"),
    [
        (pa.field("c", pa.int64()), pa.field("c", pa.int64(), False), False),
        (pa.field("c", pa.int64(), False), pa.field("c", pa.int64()), True),
        (pa.field("c", pa.int64(), False), pa.field("c", pa.int64(), False), False),
        *(
            (pa.field("c", wrapped(strict)), pa.field("c", wrapped(kept)), strict and not kept)
            for wrapped in (
                lambda strict: pa.list_(pa.field("element", pa.int64(), not strict)),
                lambda strict: pa.map_(pa.string(), pa.field("value", pa.int64(), not strict)),
                lambda strict: pa.struct([pa.field("a", pa.int64(), not strict)]),
            )
            for strict in (True, False)
            for kept in (True, False)
        ),
    ],
)
def test_a_field_declared_not_null_is_found_where_the_table_allows_null(
    asked: pa.Field, there: pa.Field, beyond: bool
) -> None:
    assert may_be_null_beyond(asked, there) is beyond


def test_an_array_without_an_element_type_is_accepted_and_such_a_map_refused() -> None:
    nothing = ArrayType(NullType(), containsNull=False)
    rows = StructType([StructField("a", nothing), StructField("n", NullType(), nullable=False)])
    assert arrow_types(rows, "t") == pa.schema([("a", pa.list_(pa.null())), ("n", pa.null())])
    empty = StructType([StructField("m", MapType(NullType(), NullType(), False))])
    with pytest.raises(lv.InvalidOperation, match="column 'm' for table 't' is of type map<void"):
        arrow_types(empty, "t")
