"""Write new data files in the table's sort order, and mark them as sorted only if they are."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.interop.iceberg.beside import Beside, bag

ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST

SCHEMA = Schema(
    NestedField(1, "part", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "score", DoubleType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "inner", StructType(NestedField(6, "x", IntegerType()))),
)
IDS = {"part": 1, "name": 2, "score": 3, "at": 4, "x": 6}
#: DuckDB writes more rows than this straight to a file; fewer go through memory.
SMALL = lv.Settings(in_memory_file_limit_bytes=2000)


def order(*fields: tuple[str, Transform[Any, Any], SortDirection, NullOrder]) -> SortOrder:
    return SortOrder(
        *(
            SortField(source_id=IDS[name], transform=how, direction=direction, null_order=nulls)
            for name, how, direction, nulls in fields
        ),
        order_id=1,
    )


def made(root: Path, by: SortOrder, *, partitioned: bool = False) -> Table:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    catalog = ObjectStoreCatalog("tests", warehouse=str(root))
    return catalog.create_table(
        ("t",), SCHEMA, partition_spec=spec if partitioned else PartitionSpec(), sort_order=by
    )


def rows(count: int = 300, start: int = 0) -> pa.Table:
    """Return rows in no order, with NULLs, and many of them."""
    numbers = [(n * 7919) % 1009 + start for n in range(count)]
    first = datetime.datetime(2024, 1, 1)
    return pa.table(
        {
            "part": pa.array([n % 3 for n in numbers], pa.int32()),
            "name": [None if n % 11 == 0 else f"{n % 17:02}é{n % 5}" for n in numbers],
            "score": [None if n % 7 == 0 else n / 4 for n in numbers],
            "at": [first + datetime.timedelta(hours=n % 99) for n in numbers],
            "inner": [{"x": n} for n in numbers],
        },
        schema=pa.schema(
            [
                ("part", pa.int32()),
                ("name", pa.string()),
                ("score", pa.float64()),
                ("at", pa.timestamp("us")),
                ("inner", pa.struct([("x", pa.int32())])),
            ]
        ),
    )


def marked(root: Path) -> dict[str, int | None]:
    """Return the live data files, and the sort order that the manifests state for each."""
    table = ObjectStoreCatalog("tests", warehouse=str(root)).load_table(("t",))
    return {
        task.file.file_path.removeprefix("file://"): task.file.sort_order_id
        for task in table.scan().plan_files()
    }


def key_of(*parts: tuple[str, Callable[[Any], Any], bool, bool]) -> Callable[[Any], Any]:
    """Return the key by which Python sorts as a sort order does: (column, of its value, down,
    NULLs).
    """

    class Part:
        def __init__(self, value: Any, down: bool, nulls_first: bool) -> None:
            self.value, self.down, self.nulls_first = value, down, nulls_first

        def __lt__(self, other: Part) -> bool:
            if self.value is None or other.value is None:
                null = self.value is None and other.value is not None
                rest = other.value is None and self.value is not None
                return null if self.nulls_first else rest
            return self.value > other.value if self.down else self.value < other.value

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Part) and self.value == other.value

    def key(row: dict[str, Any]) -> tuple[Part, ...]:
        return tuple(
            Part(None if row[name] is None else of(row[name]), down, nulls)
            for name, of, down, nulls in parts
        )

    return key


def check_sorted(path: str, key: Callable[[Any], Any]) -> None:
    keys = [key(row) for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert not any(after < before for before, after in pairwise(keys)), path


BY_NAME = (
    order(("name", IdentityTransform(), DESC, LAST), ("score", IdentityTransform(), ASC, FIRST)),
    key_of(("name", str.encode, True, False), ("score", float, False, True)),
)
BY_DAY = (
    order(("at", DayTransform(), DESC, FIRST), ("name", TruncateTransform(3), ASC, LAST)),
    key_of(
        ("at", lambda value: value.date(), True, True),
        ("name", lambda value: value[:3].encode(), False, False),
    ),
)
_bucket = BucketTransform(4).transform(StringType())
BY_BUCKET = (
    order(("name", BucketTransform(4), ASC, FIRST), ("score", IdentityTransform(), DESC, LAST)),
    key_of(("name", _bucket, False, True), ("score", float, True, False)),
)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("case", [BY_NAME, BY_DAY, BY_BUCKET], ids=["columns", "day", "bucket"])
def test_every_verb_writes_sorted_files(
    tmp_path: Path, case: tuple[SortOrder, Callable[[Any], Any]], many: bool, partitioned: bool
) -> None:
    by, key = case
    made(tmp_path, by, partitioned=partitioned)
    settings = SMALL if many else lv.Settings()

    def check() -> None:
        files = marked(tmp_path)
        assert len(files) >= (3 if partitioned else 1)
        assert set(files.values()) == {1}
        for path in files:
            check_sorted(path, key)

    with lv.connect(str(tmp_path), settings=settings) as lake:
        with lake.transaction() as txn:
            txn.append("t", rows())
        check()
        with lake.transaction() as txn:
            txn.update("t", {"name": "'zz' || name", "score": "score - 1"}, where="score > 20")
        check()
        with lake.transaction() as txn:
            txn.delete("t", where="score < 10")
        check()
        with lake.transaction() as txn:
            txn.append("t", rows(50))
        lake.table("t").optimize()
        check()
        with lake.snapshot() as state:
            seen = bag(state.read("t"))
    opened = ObjectStoreCatalog("tests", warehouse=str(tmp_path)).load_table(("t",))
    assert bag(opened.scan().to_arrow()) == seen


@pytest.mark.parametrize("down", [False, True])
def test_floats_are_sorted_in_the_total_order_of_the_format(tmp_path: Path, down: bool) -> None:
    negative_nan = struct.unpack("<d", struct.pack("<q", -(1 << 51)))[0]
    wanted = [negative_nan, -math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    mixed = [wanted[n * 5 % 8] for n in range(8)]
    by = order(("score", IdentityTransform(), DESC if down else ASC, LAST))
    made(tmp_path, by)
    with lv.connect(str(tmp_path)) as lake, lake.transaction() as txn:
        txn.append("t", pa.table({"score": mixed}))
    (path,) = marked(tmp_path)
    found = pq.read_table(path)["score"].to_numpy().view("int64")
    ordered = pa.array(wanted).to_numpy()
    assert found.tolist() == (ordered[::-1] if down else ordered).view("int64").tolist()


def test_unsorted_files_are_not_marked_as_sorted(tmp_path: Path) -> None:
    """Files are unsorted by a nested column, or because a Z curve orders them."""
    made(tmp_path / "nested", order(("x", IdentityTransform(), ASC, FIRST)))
    with lv.connect(str(tmp_path / "nested")) as lake, lake.transaction() as txn:
        txn.append("t", rows())
    assert set(marked(tmp_path / "nested").values()) == {None}
    made(tmp_path / "z", BY_NAME[0])
    with lv.connect(str(tmp_path / "z")) as lake:
        with lake.transaction() as txn:
            txn.append("t", rows())
        assert set(marked(tmp_path / "z").values()) == {1}
        lake.table("t").optimize(z_order_by=["part", "score"])
    assert set(marked(tmp_path / "z").values()) == {None}


def test_files_are_sorted_within_partitions_by_the_order_that_spark_has_set(beside: Beside) -> None:
    beside.sql(
        "CREATE TABLE {t} (k int, v string, at timestamp_ntz) USING iceberg "
        "PARTITIONED BY (bucket(2, k)) TBLPROPERTIES ('format-version' = '2')"
    )
    beside.sql("INSERT INTO {t} VALUES (1, 'before', TIMESTAMP_NTZ '2024-01-01 00:00:00')")
    beside.sql("ALTER TABLE {t} WRITE ORDERED BY days(at) DESC NULLS LAST, v")
    day = datetime.datetime(2024, 1, 1)
    written = [
        {"k": n, "v": f"{n * 37 % 101}", "at": day + datetime.timedelta(days=n % 4)}
        for n in range(60)
    ]
    with beside.connect() as lake, lake.transaction() as txn:
        txn.append("t", written)
    assert sum(beside.agreed().values()) == 61
    named = beside.sql("SELECT file_path, sort_order_id, record_count FROM {t}.files")
    assert [row[1] or 0 for row in named if row[2] == 1] == [0]
    assert [row[1] for row in named if row[2] > 1] == [1, 1]
    key = key_of(("at", lambda value: value.date(), True, False), ("v", str.encode, False, True))
    for path, _, count in named:
        if count > 1:
            check_sorted(path.removeprefix("file:"), key)
    with beside.connect(spark=beside.spark) as lake, lake.transaction() as txn:
        txn.update("t", {"v": "v || '!'"}, where="k < 30")
        kind = "k int, v string, at timestamp_ntz"
        given = [tuple(one.values()) for one in written]
        txn.append("t", beside.spark.createDataFrame(given, kind))
    named = beside.sql("SELECT file_path, sort_order_id FROM {t}.files")
    assert {row[1] for row in named} == {1}
    for path, _ in named:
        check_sorted(path.removeprefix("file:"), key)
    assert sum(beside.agreed().values()) == 121
