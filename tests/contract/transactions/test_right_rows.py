"""Rows that a predicate takes, in tables that others have changed: as the predicate says."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import DoubleType

import lakevilla as lv
from tests.builders import Place, make_place
from tests.contract.other_clients.changes import newest, upgraded, write_entry

NAN = math.nan


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def widen(place: Place, column: str, old: str, new: str, *features: str) -> None:
    """Another writer of the table ``t`` widens a column; the files stay."""
    metadata = newest(place, "metaData", "t")
    schema = json.loads(metadata["schemaString"])
    (field,) = (field for field in schema["fields"] if field["name"] == column)
    assert field["type"] == old
    field["type"] = new
    field["metadata"]["delta.typeChanges"] = [{"fromType": old, "toType": new}]
    configuration = {**metadata.get("configuration", {}), "delta.enableTypeWidening": "true"}
    changed = {"schemaString": json.dumps(schema), "configuration": configuration}
    protocol = upgraded(
        newest(place, "protocol", "t"), reads=("typeWidening", *features), writes=()
    )
    write_entry(place, protocol, {"metaData": {**metadata, **changed}}, table="t")


@pytest.mark.parametrize(
    ("column", "old", "new", "where", "kept"),
    [
        (pa.array([1, 2], pa.int32()), "integer", "double", "x <= 1.6", [2.0]),
        (pa.array([0.05, 0.1], pa.float32()), "float", "double", "x <= 0.1", [0.10000000149011612]),
        (
            pa.array([date(2020, 1, 1), date(2020, 1, 2)]),
            "date",
            "timestamp_ntz",
            "x < timestamp '2020-01-01 12:00:00'",
            [date(2020, 1, 2)],
        ),
    ],
    ids=["int to double", "float to double", "date to timestamp_ntz"],
)
def test_a_delete_over_a_widened_column_takes_what_matches(
    request: pytest.FixtureRequest,
    column: pa.Array,
    old: str,
    new: str,
    where: str,
    kept: list[Any],
) -> None:
    place = make_place("local", request)
    place.write("t", pa.table({"x": column}))
    widen(place, "x", old, new, *(["timestampNtz"] if new == "timestamp_ntz" else []))
    with place.connect() as lake:
        with lake.transaction() as txn:
            assert txn.delete("t", where).rows_deleted == 1
        left = lake.snapshot().read("t").to_pylist()
    assert [getattr(row["x"], "date", lambda row=row: row["x"])() for row in left] == kept


def test_a_delete_over_a_column_that_pyiceberg_promoted_takes_what_matches(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("iceberg", request)
    place.write("t", pa.table({"x": pa.array([0.05, 0.1], pa.float32())}))
    with place.catalog().load_table(("t",)).update_schema() as update:
        update.update_column("x", DoubleType())
    with place.connect() as lake, lake.transaction() as txn:
        assert txn.delete("t", "x <= 0.1").rows_deleted == 1
        assert lake.snapshot().read("t").num_rows == 2
    assert place.seen("t") == [{"x": 0.10000000149011612}]


@pytest.mark.parametrize("own", [True, False], ids=["ours", "another writer's"])
def test_nan_is_found_and_deleted_above_every_number(place: Place, own: bool) -> None:
    rows = pa.table({"x": [1.0, NAN], "s": [{"y": 1.0}, {"y": NAN}]})
    if own:
        with place.connect() as lake, lake.transaction() as txn:
            txn.create_table("t", rows)
    else:
        place.write("t", rows)
    with place.connect() as lake:
        for column in ("x", "s.y"):
            for where, found in {
                "{} > 5": 1,
                "{} <= 5": 1,
                "{} <> 1.0": 1,
                "{} = :nan": 1,
                "{} in (7, :nan)": 1,
                "{} < :nan": 1,
            }.items():
                params = {"nan": NAN} if ":nan" in where else None
                condition = where.format(column)
                assert (
                    lake.snapshot().read("t", where=condition, params=params).num_rows == found
                ), condition
        with lake.transaction() as txn:
            assert txn.delete("t", "x <= 5").rows_deleted == 1
        assert math.isnan(lake.snapshot().read("t")["x"][0].as_py())
        with lake.transaction() as txn:
            assert txn.delete("t", "s.y > 5").rows_deleted == 1


PRICE = Decimal("9025684103.8753")


@pytest.mark.parametrize("where", ["d = :f", "d = f", "cast(d as double) <= :f"])
def test_a_decimal_is_found_by_the_double_that_it_is(place: Place, where: str) -> None:
    rows = pa.table({"d": pa.array([PRICE], pa.decimal128(18, 4)), "f": [float(PRICE)]})
    params = {"f": float(PRICE)} if ":f" in where else None
    place.write("t", rows)
    with place.connect() as lake:
        assert lake.snapshot().read("t", where=where, params=params).num_rows == 1
        with lake.transaction() as txn:
            assert txn.delete("t", where, params=params).rows_deleted == 1


def test_a_phantom_that_equals_a_double_is_a_conflict(place: Place) -> None:
    rows = pa.table({"d": pa.array([PRICE], pa.decimal128(18, 4)), "n": [1]})
    place.write("t", rows.slice(0, 0))
    with place.connect() as lake, place.connect() as other:
        txn = lake.transaction()
        assert txn.read("t", where="d = :f", params={"f": float(PRICE)}).num_rows == 0
        txn.append("t", {"d": [Decimal(1)], "n": [2]})
        with other.transaction() as theirs:
            theirs.append("t", rows)
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_a_month_later_is_after_what_comes_a_month_later(place: Place) -> None:
    moments = [datetime(2023, 1, 30, 23), datetime(2023, 1, 31, 1)]
    place.write("t", pa.table({"ts": pa.array(moments, pa.timestamp("us", "UTC"))}))
    where = "ts + interval '1' month > timestamp '2023-02-28 12:00:00'"
    with place.connect() as lake:
        assert lake.snapshot().read("t", where=where)["ts"].to_pylist() == [
            moments[0].replace(tzinfo=UTC)
        ]
