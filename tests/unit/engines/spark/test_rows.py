"""The columns of DataFrames, as those of tables."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

import lakevilla as lv
from lakevilla.engines.spark.rows import arrow_types, may_be_null


def test_null_is_taken_at_every_depth_but_in_the_keys_of_maps() -> None:
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
def test_a_type_that_arrow_would_take_for_another_is_refused(kind: DataType) -> None:
    """A table of variants would be one of structs of bytes, for every reader."""
    with pytest.raises(lv.InvalidOperation, match=r"column .v. for table .t. .*variant.*cast it"):
        arrow_types(StructType([StructField("v", kind)]), "t")
