"""Types that a table can't store are refused with their name, in every kind of input."""

from __future__ import annotations

from collections.abc import Callable
from datetime import time, timedelta, timezone
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakevilla.arrow import input
from lakevilla.arrow.opening import open_data
from lakevilla.errors import InvalidOperation

ZONED = time(1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
AT = pa.time64("us")


def of_duckdb(sql: str) -> Any:
    return duckdb.sql(f"SELECT {sql} AS v")


def of_storage(kind: Any, values: list[Any]) -> pa.Table:
    array = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.table({"v": array})


class Degrees(pa.ExtensionType):
    """An extension type defined by a user."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "somebody.degrees")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Degrees:
        return cls()


def noted(name: str) -> pa.Table:
    """A column as read from a file with an extension type that no reader here knows."""
    field = pa.field("v", pa.int64(), metadata={"ARROW:extension:name": name})
    return pa.table([pa.array([1])], pa.schema([field]))


UNKEPT: dict[str, tuple[Callable[[], Any], str]] = {
    "bits": (lambda: of_duckdb("'101'::BIT"), "BIT"),
    "times with a zone": (lambda: of_duckdb("'01:02:03+02'::TIMETZ"), "TIME WITH TIME ZONE"),
    "unsigned numbers of 128 bits": (lambda: of_duckdb("1::UHUGEINT"), "UHUGEINT"),
    "numbers of any size": (lambda: of_duckdb("1::BIGNUM"), "BIGNUM"),
    "geometries": (lambda: of_duckdb("NULL::GEOMETRY"), "GEOMETRY"),
    "in a list": (lambda: of_duckdb("['101'::BIT]"), "BIT"),
    "in an array": (lambda: of_duckdb("['101'::BIT]::BIT[1]"), "BIT"),
    "in a struct": (lambda: of_duckdb("{a: {b: '01:02:03+02'::TIMETZ}}"), "TIME WITH TIME ZONE"),
    "in a map": (lambda: of_duckdb("MAP {1: '101'::BIT}"), "BIT"),
    "unions": (lambda: of_duckdb("union_value(a := 1)"), "union"),
    "intervals": (lambda: of_duckdb("INTERVAL 1 MONTH"), "interval"),
    "months of pandas": (
        lambda: pd.DataFrame({"v": pd.period_range("2024-01", periods=2, freq="M")}),
        "pandas.period",
    ),
    "ranges of pandas": (lambda: pd.DataFrame({"v": pd.interval_range(0, 2)}), "pandas.interval"),
    "what pandas has few of": (
        lambda: pd.DataFrame({"v": pd.arrays.SparseArray([0, 1])}),
        "Sparse pandas data",
    ),
    "months of pandas in Arrow": (
        lambda: pa.table({"v": pa.array(pd.period_range("2024-01", periods=2, freq="M"))}),
        "pandas.period",
    ),
    "objects of polars": (
        lambda: pl.DataFrame({"v": [object()]}, schema={"v": pl.Object}),
        "Object",
    ),
    "numbers of polars": (lambda: pl.DataFrame({"v": [1]}, schema={"v": pl.Int128}), "Int128"),
    "numbers in a list of polars": (
        lambda: pl.DataFrame({"v": [[1]]}, schema={"v": pl.List(pl.Int128)}),
        "Int128",
    ),
    "numbers of polars, later": (
        lambda: pl.LazyFrame({"v": [1]}, schema={"v": pl.Int128}),
        "Int128",
    ),
    "truth values of 8 bits": (lambda: of_storage(pa.bool8(), [1]), "arrow.bool8"),
    "tensors": (
        lambda: of_storage(pa.fixed_shape_tensor(pa.int32(), [2, 2]), [[1, 2, 3, 4]]),
        "arrow.fixed_shape_tensor",
    ),
    "what Arrow can't tell": (
        lambda: of_storage(pa.opaque(pa.binary(), "bit", "DuckDB"), [b"x"]),
        "BIT",
    ),
    "types of somebody's own": (lambda: of_storage(Degrees(), [1.5]), "somebody.degrees"),
    "types noted alone": (lambda: noted("geoarrow.wkb"), "geoarrow.wkb"),
    "types within a struct": (
        lambda: pa.table(
            {
                "v": pa.StructArray.from_arrays(
                    [of_storage(Degrees(), [1.5])["v"].combine_chunks()], ["a"]
                )
            }
        ),
        "somebody.degrees",
    ),
}


@pytest.mark.parametrize("kind", UNKEPT)
def test_creating_a_table_refuses_an_unsupported_type(kind: str) -> None:
    make, name = UNKEPT[kind]
    with pytest.raises(InvalidOperation, match=f"{name}|{name.lower()}"):
        input.schema_of(make(), table="t")


@pytest.mark.parametrize("kind", UNKEPT)
@pytest.mark.parametrize("target", [pa.binary(), AT, pa.int64(), pa.string()], ids=str)
def test_writing_to_a_table_refuses_an_unsupported_type_whatever_the_column_type(
    kind: str, target: pa.DataType
) -> None:
    make, name = UNKEPT[kind]
    with pytest.raises(InvalidOperation, match=f"{name}|{name.lower()}"):
        input.to_reader(make(), table="t", schema=pa.schema([("v", target)]))


def test_an_unsupported_type_in_a_later_part_of_an_iterator_is_refused() -> None:
    parts = [pa.table({"v": [b"x"]}), of_duckdb("'101'::BIT")]
    reader = input.to_reader(parts, table="t", schema=pa.schema([("v", pa.binary())]))
    with pytest.raises(InvalidOperation, match="column 'v' of table 't' has type BIT, which no"):
        reader.read_all()


@pytest.mark.parametrize("kind", [pa.bool8(), Degrees()], ids=str)
def test_an_unsupported_type_in_a_schema_without_rows_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(InvalidOperation, match=f"has type {kind.extension_name}"):
        input.schema_of(pa.schema([("v", pa.list_(kind))]), table="t")


@pytest.mark.parametrize(
    "make",
    [
        lambda: [{"v": None}, {"v": ZONED}],
        lambda: {"v": [ZONED]},
        lambda: {"v": (ZONED,), "w": np.array([1])},
        lambda: {"v": np.array([ZONED], object)},
        lambda: [{"v": [ZONED]}],
        lambda: [{"v": {"a": ZONED}}],
        lambda: (row for row in [{"v": ZONED}]),
        lambda: pd.DataFrame({"v": [ZONED]}),
        lambda: pd.DataFrame({"v": [[ZONED]]}),
    ],
)
def test_python_times_of_day_with_a_zone_are_refused(make: Callable[[], Any]) -> None:
    """Arrow would drop the zone silently."""
    with pytest.raises(
        InvalidOperation, match="column 'v' of the data has times of day with a zone"
    ):
        input.to_reader(make(), table="t", schema=pa.schema([("v", AT)])).read_all()


KEPT: dict[str, tuple[Callable[[], Any], pa.DataType, list[Any]]] = {
    "an enum": (lambda: of_duckdb("'a'::ENUM('a', 'b')"), pa.string(), ["a"]),
    "numbers of 128 bits": (lambda: of_duckdb("17::HUGEINT"), pa.decimal128(38, 0), [17]),
    "JSON": (lambda: of_duckdb("'{}'::JSON"), pa.string(), ["{}"]),
    "JSON of Arrow": (lambda: of_storage(pa.json_(), ["{}"]), pa.string(), ["{}"]),
    "UUIDs": (lambda: of_storage(pa.uuid(), [b"0" * 16]), pa.binary(), [b"0" * 16]),
    "times": (lambda: of_duckdb("TIME '01:02:03'"), AT, [time(1, 2, 3)]),
    "times of pandas": (lambda: pd.DataFrame({"v": [time(1, 2)]}), AT, [time(1, 2)]),
    "seconds": (
        lambda: of_duckdb("'2024-01-01'::TIMESTAMP_S"),
        pa.timestamp("us"),
        [pd.Timestamp("2024-01-01").to_pydatetime()],
    ),
    "an array": (lambda: of_duckdb("[1, 2]::INT[2]"), pa.list_(pa.int32()), [[1, 2]]),
    "fields named as types": (
        lambda: of_duckdb('{"BIT": 1}'),
        pa.struct([("BIT", pa.int32())]),
        [{"BIT": 1}],
    ),
}


@pytest.mark.parametrize("kind", KEPT)
def test_types_that_can_be_stored_keep_their_values(kind: str) -> None:
    make, stored, values = KEPT[kind]
    schema = input.schema_of(make(), table="t")
    assert schema.field("v").type == stored
    rows = input.to_reader(make(), table="t", schema=schema).read_all()
    assert rows["v"].to_pylist() == values


@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_of_39_digits_is_refused(sign: str) -> None:
    """DuckDB returns it as a decimal of 38 digits, which other clients would not read."""
    rows = of_duckdb(f"({sign}170141183460469231731687303715884105727)::HUGEINT")
    schema = input.schema_of(open_data(rows).schema, table="t")
    with pytest.raises(InvalidOperation, match="'v' of table 't' can't hold a number of"):
        input.to_reader(rows, table="t", schema=schema).read_all()
    within = of_duckdb(f"[{{a: ({sign}170141183460469231731687303715884105727)::HUGEINT}}]")
    schema = input.schema_of(open_data(within).schema, table="t")
    with pytest.raises(InvalidOperation, match="more than 38 digits"):
        input.to_reader(within, table="t", schema=schema).read_all()
    most = of_duckdb(f"({sign}99999999999999999999999999999999999999)::HUGEINT")
    schema = input.schema_of(open_data(most).schema, table="t")
    assert input.to_reader(most, table="t", schema=schema).read_all().num_rows == 1
