"""Overwrites that replace only the partitions of their rows, or also the schema."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.tables import bag, contents, in_order, values

SALES = pa.table(
    {"day": ["mon", "mon", "tue", None], "shop": [1, 2, 1, 1], "amount": [10, 20, 30, 40]}
)
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture(params=["delta", "delta with mapped columns", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path) as lake:
        yield lake


def make(lake: lv.Lake, kind: str, data: object, **options: Any) -> None:
    if "mapped" in kind:
        options["properties"] = MAPPED
    lake.create_table("t", data, format=format_of(kind), **options)


def format_of(kind: str) -> Format:
    return "iceberg" if kind == "iceberg" else "delta"


def seen_alike(lake: lv.Lake, kind: str) -> pa.Table:
    """Return the rows; all readers must read the same ones."""
    ours = lake.snapshot().read("t")
    others = read_by_others(lake.table("t").uri, format_of(kind), is_mapped="mapped" in kind)
    for name, theirs in others.items():
        assert theirs.column_names == ours.column_names, name
        assert bag(theirs) == bag(ours), name
    return ours


# ------------------------------------------------------------------ partitions


def test_only_partitions_with_new_rows_are_replaced(lake: lv.Lake, kind: str) -> None:
    make(lake, kind, SALES, partition_by="day")
    with lake.transaction() as txn:
        done = txn.overwrite(
            "t",
            [{"day": "mon", "shop": 9, "amount": 1}, {"day": None, "shop": 9, "amount": 2}],
            partitions="dynamic",
        )
        assert (done.rows_deleted, done.rows_inserted) == (3, 2)
    assert in_order(seen_alike(lake, kind)) == [
        {"day": "mon", "shop": 9, "amount": 1},
        {"day": "tue", "shop": 1, "amount": 30},
        {"day": None, "shop": 9, "amount": 2},
    ]


def test_a_dynamic_overwrite_replaces_partitions_by_the_values_of_all_partition_columns(
    lake: lv.Lake, kind: str
) -> None:
    make(lake, kind, SALES, partition_by=["day", "shop"])
    with lake.transaction() as txn:
        txn.overwrite(
            "t",
            [
                {"day": "mon", "shop": 2, "amount": 0},
                {"day": "wed", "shop": 1, "amount": 5},
                {"day": None, "shop": 2, "amount": 6},
            ],
            partitions="dynamic",
        )
    assert values(seen_alike(lake, kind), "amount") == [0, 5, 6, 10, 30, 40]


def test_data_without_rows_replaces_no_partition(lake: lv.Lake, kind: str) -> None:
    make(lake, kind, SALES, partition_by="day")
    with lake.transaction() as txn:
        done = txn.overwrite("t", SALES.slice(0, 0), partitions="dynamic")
        assert done.rows_deleted == 0
        txn.overwrite("t", (row for row in ()), partitions="dynamic")
    assert len(lake.snapshot().read("t")) == 4


VALUES: dict[str, list[Any]] = {
    "int": [1, -5],
    "bool": [True, False],
    "float": [1.5, math.nan],
    "infinity": [math.inf, -math.inf],
    "decimal": [Decimal("1.50"), Decimal("-2.25")],
    "date": [datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)],
    "time": [
        datetime.datetime(2024, 2, 29, 12, 0, 0, 250000),
        datetime.datetime(1969, 12, 31, 23, 59, 59),
    ],
    "zoned": [
        datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC),
    ],
    "text": ["it's 100%/a=b", "NULL"],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", VALUES)
def test_partitions_of_every_type_are_distinguished(
    lake: lv.Lake, case: str, format: Format
) -> None:
    one, other = VALUES[case]
    rows = pa.table({"p": [one, other, None], "n": [1, 2, 3]})
    lake.create_table("t", rows, format=format, partition_by="p")
    for number, value in enumerate((one, other, None), 1):
        with lake.transaction() as txn:
            new = pa.table({"p": pa.array([value], rows["p"].type), "n": [number * 10]})
            done = txn.overwrite("t", new, partitions="dynamic")
            assert done.rows_deleted == 1
    assert values(lake.snapshot().read("t"), "n") == [10, 20, 30]


def test_invalid_dynamic_overwrites_are_refused_before_anything_is_written(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("plain", SALES)
    rows = pa.table({"ts": [datetime.datetime(2024, 1, 1)], "n": [1]})
    lake.create_table("days", rows, format="iceberg", partition_by="day(ts)")
    lake.create_table("bytes", {"b": "binary", "n": "int"}, partition_by="b")
    lake.create_table("t", SALES, partition_by="day")
    before = contents(tmp_path)
    with lake.transaction() as txn:

        def refused(match: str, table: str, data: object, **options: Any) -> None:
            with pytest.raises(lv.InvalidOperation, match=match):
                txn.overwrite(table, data, **options)

        refused("has no partitions", "plain", SALES, partitions="dynamic")
        refused(r"partitioned by day\(ts\)", "days", rows, partitions="dynamic")
        refused("not binary", "bytes", {"b": [b"x"], "n": [1]}, partitions="dynamic")
        refused("choose one", "t", SALES, where="shop = 1", partitions="dynamic")
        refused("partitions must be None or 'dynamic'", "t", SALES, partitions="static")
        refused("leave where and partitions", "t", SALES, where="true", schema_mode="overwrite")
        refused(
            "leave where and partitions",
            "t",
            SALES,
            partitions="dynamic",
            schema_mode="overwrite",
        )
        refused("None or 'merge' or 'overwrite'", "t", SALES, schema_mode="replace")
        with pytest.raises(lv.InvalidOperation, match="schema_mode must be None or 'merge'"):
            txn.append("t", SALES, schema_mode="overwrite")  # type: ignore[arg-type]
    assert contents(tmp_path) == before


def test_a_redone_dynamic_overwrite_replaces_rows_added_to_its_partition_meanwhile(
    lake: lv.Lake, kind: str
) -> None:
    make(lake, kind, SALES, partition_by="day")
    with lake.transaction() as txn:
        txn.overwrite("t", [{"day": "mon", "shop": 9, "amount": 1}], partitions="dynamic")
        lake.run(lambda t: t.append("t", [{"day": "mon", "shop": 5, "amount": 77}]))
        lake.run(lambda t: t.append("t", [{"day": "tue", "shop": 5, "amount": 88}]))
    assert values(lake.snapshot().read("t"), "amount") == [1, 30, 40, 88]


# ---------------------------------------------------------------------- schema


def test_an_overwrite_can_replace_the_schema(lake: lv.Lake, kind: str) -> None:
    make(lake, kind, pa.table({"id": [1, 2], "x": [1.5, 2.5], "gone": ["a", "b"]}))
    for rows in (
        pa.table({"new": ["n"], "x": ["text"], "id": [7]}),
        pa.table({"id": [8, 9], "gone": [True, None]}),
        pa.table({"ID": pa.array([1], pa.int32())}),
    ):
        with lake.transaction() as txn:
            txn.overwrite("t", rows, schema_mode="overwrite")
            assert txn.read("t").column_names == rows.column_names
            txn.append("t", rows)
        found = seen_alike(lake, kind)
        assert [name.lower() for name in found.column_names] == [
            name.lower() for name in rows.column_names
        ]
        assert bag(found) == bag(pa.concat_tables([rows, rows]))
        assert lake.table("t").schema.types == rows.schema.types


def test_versions_before_a_replaced_schema_are_read_with_their_own_columns(
    lake: lv.Lake, kind: str
) -> None:
    make(lake, kind, pa.table({"id": [1, 2], "x": [1.5, 2.5]}))
    before = lake.snapshot().version
    with lake.transaction() as txn:
        txn.overwrite("t", pa.table({"x": ["a"]}), schema_mode="overwrite")
    assert lake.snapshot(before).read("t").to_pydict() == {"id": [1, 2], "x": [1.5, 2.5]}
    assert seen_alike(lake, kind).to_pydict() == {"x": ["a"]}


def test_a_column_of_both_schemas_stays_not_null_after_an_overwrite_of_the_schema(
    lake: lv.Lake, kind: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])
    make(lake, kind, schema)
    with lake.transaction() as txn:
        txn.overwrite("t", [{"id": 1, "y": "a"}], schema_mode="overwrite")
    assert not lake.table("t").schema.field("id").nullable
    with pytest.raises(lv.InvalidOperation, match="id"), lake.transaction() as txn:
        txn.overwrite("t", [{"id": None, "y": "a"}], schema_mode="overwrite")
    assert seen_alike(lake, kind).to_pydict() == {"id": [1], "y": ["a"]}


def test_an_overwrite_of_the_schema_keeps_partitioning_and_constraints(
    lake: lv.Lake, kind: str, tmp_path: Path
) -> None:
    make(lake, kind, SALES, partition_by="day")
    if kind != "iceberg":
        with lake.transaction() as txn:
            txn.alter("t", add_constraints={"positive": "amount > 0"})
    before = contents(tmp_path)
    refused = [pa.table({"shop": [1], "amount": [1]})]
    if kind != "iceberg":
        refused.append(pa.table({"shop": [1], "day": ["x"]}))
        refused.append(pa.table({"day": ["x"], "amount": ["1"]}))
    with lake.transaction() as txn:
        for rows in refused:
            with pytest.raises(lv.InvalidOperation, match=r"partitioned by|constraint 'positive'"):
                txn.overwrite("t", rows, schema_mode="overwrite")
    assert contents(tmp_path) == before
    with lake.transaction() as txn:
        txn.overwrite(
            "t", pa.table({"DAY": ["sat"], "amount": [5], "more": [1]}), schema_mode="overwrite"
        )
    assert seen_alike(lake, kind).to_pydict() == {"day": ["sat"], "amount": [5], "more": [1]}
    assert lake.table("t").partition_by == ("day",)


@pytest.mark.parametrize("columns", [{"x": ["a"]}, {"y": [1]}, {"id": [3]}])
def test_an_append_for_the_old_schema_conflicts_with_an_overwrite_of_the_schema(
    lake: lv.Lake, kind: str, columns: dict[str, list[Any]]
) -> None:
    make(lake, kind, pa.table({"id": [1, 2], "x": [1.5, 2.5]}))
    with pytest.raises(lv.ConflictError), lake.transaction() as txn:
        txn.append("t", [{"id": 5, "x": 5.5}])
        with lake.transaction() as other:
            other.overwrite("t", pa.table(columns), schema_mode="overwrite")
    assert seen_alike(lake, kind).to_pydict() == columns


def test_the_later_of_two_concurrent_overwrites_of_the_schema_takes_effect(
    lake: lv.Lake, kind: str
) -> None:
    make(lake, kind, pa.table({"id": [1, 2], "x": [1.5, 2.5]}))
    runs = []

    def replace(txn: lv.Transaction) -> None:
        runs.append(txn.id)
        txn.overwrite("t", pa.table({"mine": [1]}), schema_mode="overwrite")
        if len(runs) == 1:
            with lake.transaction() as other:
                other.overwrite("t", pa.table({"theirs": ["x"]}), schema_mode="overwrite")

    lake.run(replace)
    assert seen_alike(lake, kind).to_pydict() == {"mine": [1]}


def test_an_overwrite_by_a_generator_can_replace_the_schema(lake: lv.Lake, kind: str) -> None:
    make(lake, kind, pa.table({"id": [1]}))
    with lake.transaction() as txn:
        txn.overwrite(
            "t", ({"k": number, "s": "x"} for number in range(3)), schema_mode="overwrite"
        )
    assert values(seen_alike(lake, kind), "k") == [0, 1, 2]
