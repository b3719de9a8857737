"""Use column types that Delta lacks: UUIDs, times of day, fixed-length bytes, nanoseconds."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    FixedType,
    IntegerType,
    ListType,
    NestedField,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.interop.iceberg.beside import Beside, duckdb_reader

UUIDS = [uuid.UUID(int=n * 0x0123456789ABCDEF0123456789ABCDEF % (1 << 128)) for n in range(8)]
TIMES = [datetime.time(n, 2 * n, 3 * n, n * 111_111) for n in range(8)]
#: DuckDB writes more rows than this straight to a file; fewer go through memory.
SMALL = lv.Settings(in_memory_file_limit_bytes=1000)

PLAIN = Schema(
    NestedField(1, "k", IntegerType()),
    NestedField(2, "u", UUIDType()),
    NestedField(
        3,
        "s",
        StructType(
            NestedField(4, "u", UUIDType()),
            NestedField(5, "l", ListType(6, UUIDType(), element_required=False)),
        ),
    ),
)
TIMED = Schema(*PLAIN.fields, NestedField(7, "t", TimeType()))

BY_UUID = PartitionSpec(
    PartitionField(2, 1000, BucketTransform(2), "u_bucket"),
)
BY_ITSELF = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "u"),
    PartitionField(7, 1001, IdentityTransform(), "t"),
)


def row(n: int) -> dict[str, Any]:
    """Return the row that pyiceberg reads if LakeVilla writes the row ``n``."""
    if n % 7 == 0:
        return {"k": n, "u": None, "s": None, "t": None}
    mine, next_one = UUIDS[n % 8], UUIDS[(n + 1) % 8]
    return {"k": n, "u": mine, "s": {"u": next_one, "l": [mine, None]}, "t": TIMES[n % 8]}


def ours(found: dict[str, Any]) -> dict[str, Any]:
    """Return the same row as LakeVilla reads it: UUIDs as bytes."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, list):
            return [plain(part) for part in value]
        return value.bytes if isinstance(value, uuid.UUID) else value

    return {name: plain(value) for name, value in found.items()}


def arrow(schema: Schema, rows: list[dict[str, Any]]) -> pa.Table:
    wanted = [{f.name: one[f.name] for f in schema.fields} for one in rows]
    return pa.Table.from_pylist([ours(one) for one in wanted], schema=storage(schema))


def storage(schema: Schema) -> pa.Schema:
    """Return UUIDs as bytes: Arrow makes no UUIDs of Python's values within lists."""
    inner = [("u", pa.binary(16)), ("l", pa.list_(pa.binary(16)))]
    fields = [("k", pa.int32()), ("u", pa.binary(16)), ("s", pa.struct(inner))]
    if len(schema.fields) > len(fields):
        fields.append(("t", pa.time64("us")))
    return pa.schema(fields)


def made(root: Path, schema: Schema, spec: PartitionSpec, order: SortOrder) -> Table:
    catalog = ObjectStoreCatalog("tests", warehouse=str(root))
    return catalog.create_table(("t",), schema, partition_spec=spec, sort_order=order)


def by_pyiceberg(root: Path) -> list[dict[str, Any]]:
    table = ObjectStoreCatalog("tests", warehouse=str(root)).load_table(("t",))
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("k").to_pylist()
    return found


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "spec", [PartitionSpec(), BY_UUID, BY_ITSELF], ids=["whole", "bucket", "itself"]
)
def test_uuids_and_times_are_read_and_written(
    tmp_path: Path, spec: PartitionSpec, many: bool
) -> None:
    order = SortOrder(SortField(2, IdentityTransform()), SortField(7, IdentityTransform()))
    made(tmp_path, TIMED, spec, order)
    rows = {n: row(n) for n in range(400 if many else 12)}

    def check() -> None:
        with lake.snapshot() as state:
            seen = state.read("t").sort_by("k").to_pylist()
        assert seen == [ours(rows[n]) for n in sorted(rows)]
        assert by_pyiceberg(tmp_path) == [rows[n] for n in sorted(rows)]

    with lv.connect(str(tmp_path), settings=SMALL) as lake:
        with lake.transaction() as txn:
            txn.append("t", arrow(TIMED, list(rows.values())))
        check()
        with lake.transaction() as txn:
            ids = {"old": UUIDS[1], "new": UUIDS[5]}
            txn.update("t", {"u": ":new"}, where="u = :old", params=ids)
            txn.update("t", {"t": "time '23:59:59.5'"}, where="t = :t", params={"t": TIMES[2]})
            txn.delete("t", where="t > '05:00:00' and t < time '06:00:00'")
            txn.upsert("t", arrow(TIMED, [row(3) | {"k": 1000}, row(4) | {"k": 8}]), "k")
        for one in rows.values():
            if one["u"] == UUIDS[1]:
                one["u"] = UUIDS[5]
            if one["t"] == TIMES[2]:
                one["t"] = datetime.time(23, 59, 59, 500_000)
        for n in [n for n, one in rows.items() if one["t"] == TIMES[5]]:
            del rows[n]
        rows |= {1000: row(3) | {"k": 1000}, 8: row(4) | {"k": 8}}
        check()
        lake.table("t").optimize()
        check()
    table = ObjectStoreCatalog("tests", warehouse=str(tmp_path)).load_table(("t",))
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    kinds = {str(pq.ParquetFile(path).schema.column(1).logical_type) for path in files}
    assert kinds == {"UUID"}


def test_a_value_that_is_no_uuid_is_refused(tmp_path: Path) -> None:
    made(tmp_path, PLAIN, PartitionSpec(), SortOrder())
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction() as txn:
            txn.append("t", arrow(PLAIN, [row(1)]))
        for data in (["no"], [b"short"]):
            with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="'u'"):
                txn.append("t", {"u": data})
        with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="table t"):
            txn.update("t", {"u": b"short"}, where="true")
    assert by_pyiceberg(tmp_path) == [{name: row(1)[name] for name in ("k", "u", "s")}]


def test_a_table_written_by_pyiceberg_is_read_and_rewritten(tmp_path: Path) -> None:
    table = made(tmp_path, TIMED, PartitionSpec(), SortOrder())
    table.append(arrow(TIMED, [row(n) for n in range(6)]).cast(table.schema().as_arrow()))
    with lv.connect(str(tmp_path)) as lake:
        with lake.transaction() as txn:
            where = "u = :u or t < '02:00:00'"
            found = txn.read("t", where=where, params={"u": UUIDS[3]}).sort_by("k").to_pylist()
            assert found == [ours(row(1)), ours(row(3))]
            txn.delete("t", where="k = 3")
    assert by_pyiceberg(tmp_path) == [row(n) for n in (0, 1, 2, 4, 5)]


def test_a_table_with_times_of_day_is_made_as_iceberg_and_not_as_delta(tmp_path: Path) -> None:
    rows = [{"k": 1, "t": TIMES[3]}]
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", rows, format="iceberg")
        with pytest.raises(lv.InvalidOperation, match=r"time64.*delta does not have"):
            lake.create_table("d", rows)
    assert by_pyiceberg(tmp_path) == rows


def test_fixed_bytes_are_read_and_not_written(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "k", IntegerType()), NestedField(2, "f", FixedType(3)))
    table = made(tmp_path, schema, PartitionSpec(), SortOrder())
    rows = [{"k": 1, "f": b"abc"}, {"k": 2, "f": None}, {"k": 3, "f": b"xyz"}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    with lv.connect(str(tmp_path)) as lake:
        with lake.snapshot() as state:
            assert state.read("t").sort_by("k").to_pylist() == rows
            found = state.read("t", where="f >= :f", params={"f": b"abd"})
            assert found.to_pylist() == rows[2:]
        with pytest.raises(lv.UnsupportedTableFeature, match=r"column f .*fixed\[3\]"):
            with lake.transaction() as txn:
                txn.append("t", rows)


def test_uuids_are_equal_for_all_readers(beside: Beside) -> None:
    """Spark reads UUIDs as text, and reads no time of day in an Iceberg table."""
    made(Path(beside.root), PLAIN, BY_UUID, SortOrder(SortField(2, IdentityTransform())))
    rows = [row(n) for n in range(5)]
    for settings in (SMALL, lv.Settings()):
        with beside.connect(settings=settings) as lake, lake.transaction() as txn:
            txn.append("t", arrow(PLAIN, rows * 30))
    wanted = sorted([(one["k"], str(one["u"])) for one in rows] * 60)
    found = beside.sql("SELECT k, u, s.u, s.l[0] FROM {t}")
    assert sorted((one[0], str(one[1])) for one in found) == wanted
    inner = {(one[0], one[2], one[3]) for one in found}
    assert inner == {
        (one["k"], str(one["s"]["u"]), str(one["s"]["l"][0])) if one["s"] else (0, None, None)
        for one in rows
    }
    assert beside.sql(f"SELECT count(*) FROM {{t}} WHERE u = '{UUIDS[2]}'")[0][0] == 60
    path = beside.path()
    query = f"SELECT k, CAST(u AS VARCHAR) FROM iceberg_scan('{path}')"
    assert sorted((k, str(u)) for k, u in duckdb_reader().execute(query).fetchall()) == wanted
    # Spark's tasks handle them as bytes.
    with beside.connect(spark=beside.spark) as lake, lake.transaction() as txn:
        txn.update("t", {"k": 77}, where="u = :u", params={"u": UUIDS[2]})
        rows_of_one = txn.read("t", where="u = :u", params={"u": UUIDS[2]}).select("k", "u")
        assert {tuple(one) for one in rows_of_one.collect()} == {(77, UUIDS[2].bytes)}
    with beside.connect(spark=beside.spark) as lake, lake.snapshot() as state:
        read = state.read("t", where="u = :u", params={"u": UUIDS[2]})
        assert {one[0] for one in read.select("k").collect()} == {77}
    assert beside.sql(f"SELECT DISTINCT k FROM {{t}} WHERE u = '{UUIDS[2]}'")[0][0] == 77


def test_times_of_day_go_through_spark(beside: Beside) -> None:
    made(Path(beside.root), TIMED, PartitionSpec(), SortOrder())
    with beside.connect(spark=beside.spark) as lake:
        with lake.transaction() as txn:
            txn.append("t", arrow(TIMED, [row(n) for n in range(5)]))
        with lake.transaction() as txn:
            txn.delete("t", where="t = time '03:06:09.333333'")
            found = txn.read("t", columns=["k", "t"]).collect()
        assert sorted(tuple(one) for one in found) == [(n, row(n)["t"]) for n in (0, 1, 2, 4)]
    assert by_pyiceberg(Path(beside.root)) == [row(n) for n in (0, 1, 2, 4)]


def test_nanoseconds_of_a_table_of_version_3_are_read(tmp_path: Path) -> None:
    """The test makes the file by hand, because pyiceberg doesn't write version 3."""
    schema = Schema(NestedField(1, "k", IntegerType()), NestedField(2, "n", TimestampType()))
    table = made(tmp_path, schema, PartitionSpec(), SortOrder())
    instants = [0, 1, 1_700_000_000_000_000_001, None]
    fields = [
        pa.field("k", pa.int32(), metadata={"PARQUET:field_id": "1"}),
        pa.field("n", pa.timestamp("ns"), metadata={"PARQUET:field_id": "2"}),
    ]
    rows = pa.table([[0, 1, 2, 3], instants], schema=pa.schema(fields))
    path = tmp_path / "t/data/n.parquet"
    path.parent.mkdir()
    pq.write_table(rows, path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=4,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    with table.transaction() as txn, txn.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    newest = tmp_path / "t/metadata/v2.metadata.json"
    document = json.loads(newest.read_text())
    document |= {"format-version": 3, "next-row-id": 4}
    document["schemas"][0]["fields"][1]["type"] = "timestamp_ns"
    newest.write_text(json.dumps(document))
    with lv.connect(str(tmp_path)) as lake, lake.snapshot() as state:
        found = state.read("t").sort_by("k")["n"]
        assert found.type == pa.timestamp("ns")
        assert found.cast(pa.int64()).to_pylist() == instants
        zero = datetime.datetime(1970, 1, 1)
        for how, wanted in (("=", [0]), (">", [1, 2]), ("<=", [0])):
            part = state.read("t", where=f"n {how} :zero", params={"zero": zero})
            assert sorted(part["k"].to_pylist()) == wanted


def test_rows_older_than_a_column_have_its_default(beside: Beside) -> None:
    """Spark SQL sets no defaults: Iceberg's Java API sets this one."""
    beside.sql(
        "CREATE TABLE {t} (k int) USING iceberg TBLPROPERTIES "
        "('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    beside.sql("INSERT INTO {t} VALUES (1), (2), (3)")
    java = beside.spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    hadoop = beside.spark._jsparkSession.sessionState().newHadoopConf()
    schema = java.hadoop.HadoopTables(hadoop).load(str(beside.path())).updateSchema()
    types = java.types.Types
    of_bytes = java.expressions.Expressions.lit(bytearray(b"\x00'\xff"))
    given = {
        "n": (types.LongType.get(), 7),
        "s": (types.StringType.get(), "it's"),
        "x": (types.DoubleType.get(), 0.5),
        "b": (types.BooleanType.get(), True),
        "d": (types.DateType.get(), "2024-02-03"),
        "m": (types.DecimalType.of(9, 2), "14.20"),
        "at": (types.TimestampType.withZone(), "2024-02-03T04:05:06.000007+00:00"),
        "u": (types.UUIDType.get(), str(UUIDS[3])),
    }
    for name, (kind, value) in given.items():
        default = java.expressions.Expressions.lit(value).to(kind)
        schema = schema.addColumn(name, kind, None, default)
    schema.addColumn("raw", types.BinaryType.get(), None, of_bytes).commit()
    beside.sql("INSERT INTO {t} (k, n, s) VALUES (4, 4, NULL), (5, NULL, 'five')")
    beside.sql("DELETE FROM {t} WHERE k = 2")
    columns = ["k", *given, "raw"]
    theirs = beside.by_spark().select(columns).sort_by("k").to_pylist()
    assert theirs[0]["n"] == 7
    assert theirs[0]["raw"] == b"\x00'\xff"
    for one in theirs:
        one["u"] = uuid.UUID(one["u"]).bytes
    assert beside.ours().select(columns).sort_by("k").to_pylist() == theirs
    for where, wanted in (("n = 7", [1, 3]), ("s = 'five'", [5]), ("n is null", [5]), ("b", None)):
        with beside.connect() as lake:
            found = sorted(lake.snapshot().read("t", where=where)["k"].to_pylist())
        assert found == (wanted or [one["k"] for one in theirs if one["b"]])
