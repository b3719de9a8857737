"""Test tables in the forms that other projects' clients leave, made by hand.

LakeVilla reads each table, changes it, and reads it again; if deltalake and DuckDB's Delta
extension can read it, they see the same rows before and after.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.interop.delta.handmade import Handmade
from tests.interop.delta.readers import deltalake_rows, duckdb_rows
from tests.support.delta_by_hand import add, commit_info, field, metadata, protocol, remove

ID = field("id")
ROWS = pa.table({"id": [1, 2]})
TWO = [{"id": 1}, {"id": 2}]


@dataclass(frozen=True)
class Shape:
    """A table's creation, its rows, and the other clients that read it."""

    make: Callable[[Handmade], object]
    rows: list[dict[str, Any]]
    others: str = "duckdb deltalake"


SHAPES: dict[str, Shape] = {}


def shape(
    name: str, rows: list[dict[str, Any]], others: str = "duckdb deltalake"
) -> Callable[[Callable[[Handmade], object]], None]:
    def keep(make: Callable[[Handmade], object]) -> None:
        SHAPES[name] = Shape(make, rows, others)

    return keep


def with_(column: str, *values: Any) -> list[dict[str, Any]]:
    return [{"id": number, column: value} for number, value in enumerate(values, 1)]


def nested(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def listed(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


# -- statistics ----------------------------------------------------------------------------

STATISTICS = {
    "absent": None,
    "empty": "",
    "an empty object": "{}",
    "without a count": '{"minValues":{"id":1},"maxValues":{"id":2}}',
    "of some columns": '{"numRecords":2,"minValues":{},"maxValues":{},"nullCount":{}}',
    "not tight": '{"numRecords":2,"tightBounds":false,"minValues":{"id":-5},"maxValues":{"id":9}}',
    "cut off": '{"numRecords":',
    "of other kinds": '{"numRecords":"two","minValues":{"id":"x"},"maxValues":[1],"nullCount":5}',
}
for _name, _stats in STATISTICS.items():

    @shape(f"statistics {_name}", TWO)
    def _(table: Handmade, stats: str | None = _stats) -> None:
        table.begin([ID], table.add("f.parquet", ROWS, stats=stats))


# -- partition values ----------------------------------------------------------------------

UTC = dt.UTC
VALUES: list[tuple[str, str, Any, str]] = [
    ("timestamp", "2024-01-01 00:00:00", dt.datetime(2024, 1, 1, tzinfo=UTC), "duckdb deltalake"),
    (
        "timestamp",
        "2024-01-01T00:00:00.123456Z",
        dt.datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        "duckdb deltalake",
    ),
    ("timestamp", "2024-01-01T01:00:00+01:00", dt.datetime(2024, 1, 1, tzinfo=UTC), ""),
    ("timestamp_ntz", "2024-01-01 00:00:00", dt.datetime(2024, 1, 1), "duckdb"),
    ("timestamp_ntz", "2024-01-01T00:00:00.5", dt.datetime(2024, 1, 1, 0, 0, 0, 500000), ""),
    ("date", "2024-02-29", dt.date(2024, 2, 29), "duckdb deltalake"),
    ("date", "0001-01-01", dt.date(1, 1, 1), "duckdb deltalake"),
    ("decimal(10,2)", "-0.50", Decimal("-0.50"), "duckdb"),
    ("decimal(10,2)", "1.5", Decimal("1.50"), ""),
    ("decimal(10,2)", "1E+1", Decimal("10.00"), ""),
    ("double", "-Infinity", float("-inf"), "duckdb deltalake"),
    ("double", "1e10", 1e10, "duckdb deltalake"),
    ("boolean", "FALSE", False, "duckdb deltalake"),
    ("integer", "007", 7, "duckdb deltalake"),
    ("binary", "\\u0061\\u00FF", b"a\xff", ""),
    ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__", "duckdb deltalake"),
    ("string", "a%20b/c=d", "a%20b/c=d", "duckdb deltalake"),
    ("string", " ", " ", "duckdb deltalake"),
    ("string", "", None, "duckdb deltalake"),
]
for _kind, _text, _value, _others in VALUES:

    @shape(f"partition value {_kind} {_text!r}", with_("p", _value, _value), _others)
    def _(table: Handmade, kind: str = _kind, text: str = _text) -> None:
        ntz = ["timestampNtz"] if kind == "timestamp_ntz" else None
        action = table.add("f.parquet", ROWS, partitionValues={"p": text})
        fields = [ID, field("p", kind)]
        table.begin(fields, action, partition_by=["p"], reader=ntz, writer=ntz)


@shape("partition column in the file too", with_("p", "log", "log"))
def _(table: Handmade) -> None:
    rows = ROWS.append_column("p", pa.array(["file", "file"]))
    action = table.add("f.parquet", rows, partitionValues={"p": "log"})
    table.begin([ID, field("p", "string")], action, partition_by=["p"])


@shape("partition value that the log lacks", [{"id": 1, "p": None}, {"id": 2, "p": None}])
def _(table: Handmade) -> None:
    table.begin([ID, field("p", "string")], table.add("f.parquet", ROWS), partition_by=["p"])


# -- paths ---------------------------------------------------------------------------------


@shape("path encoded", TWO)
def _(table: Handmade) -> None:
    action = table.add("a b%20ü+#?.parquet", ROWS, path="a%20b%2520%C3%BC+%23%3F.parquet")
    table.begin([ID], action)


@shape("path unencoded unicode", TWO, "")
def _(table: Handmade) -> None:
    table.begin([ID], table.add("größe=1/ü.parquet", ROWS))


for _prefix in ("file://", "file:", ""):

    @shape(f"path absolute {_prefix or 'plain'}", TWO, "")
    def _(table: Handmade, prefix: str = _prefix) -> None:
        action = table.add("f.parquet", ROWS, path=f"{prefix}{table.path}/f.parquet")
        table.begin([ID], action)


# -- what files hold -----------------------------------------------------------------------


@shape("names in the file in another case", with_("v", 3, 4), "duckdb")
def _(table: Handmade) -> None:
    rows = pa.table({"ID": [1, 2], "V": [3, 4]})
    table.begin([ID, field("v")], table.add("f.parquet", rows))


@shape("nested names in the file in another case", with_("s", {"a": 1}, None), "duckdb")
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "S": [{"A": 1}, None]})
    table.begin([ID, field("s", nested(field("a")))], table.add("f.parquet", rows))


@shape("columns missing, more, in another order", with_("v", None, None))
def _(table: Handmade) -> None:
    rows = pa.table({"other": [9, 9], "id": [1, 2]})
    table.begin([ID, field("v", "string")], table.add("f.parquet", rows))


@shape("a field of a struct missing", with_("s", {"a": 1, "b": None}, None))
def _(table: Handmade) -> None:
    kind = nested(field("a"), field("b", "string"))
    rows = pa.table({"id": [1, 2], "s": [{"a": 1}, None]})
    table.begin([ID, field("s", kind)], table.add("f.parquet", rows))


@shape("a field of a list's struct missing", with_("l", [{"a": 1, "b": None}], None))
def _(table: Handmade) -> None:
    kind = listed(nested(field("a"), field("b", "string")))
    rows = pa.table({"id": [1, 2], "l": [[{"a": 1}], None]})
    table.begin([ID, field("l", kind)], table.add("f.parquet", rows))


@shape("narrower numbers", with_("d", 1.5, 2.0))
def _(table: Handmade) -> None:
    kinds = pa.schema([("id", pa.int32()), ("d", pa.float32())])
    rows = pa.table({"id": [1, 2], "d": [1.5, 2.0]}, kinds)
    table.begin([ID, field("d", "double")], table.add("f.parquet", rows))


OLD = [dt.datetime(2024, 1, 1, 5, tzinfo=UTC), dt.datetime(1900, 1, 1, tzinfo=UTC)]


@shape("timestamps as INT96", with_("ts", *OLD))
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "ts": pa.array(OLD, pa.timestamp("us"))})
    table.data("f.parquet", rows, use_deprecated_int96_timestamps=True)
    table.begin([ID, field("ts", "timestamp")], table.add("f.parquet"))


@shape("dates of Spark's legacy calendar", with_("d", dt.date(1000, 1, 6), dt.date(1900, 1, 1)))
def _(table: Handmade) -> None:
    """The values as they are in the file: Spark alone shifts those before 15 October 1582."""
    rows = pa.table({"id": [1, 2], "d": [dt.date(1000, 1, 6), dt.date(1900, 1, 1)]})
    said = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    table.data("f.parquet", rows.replace_schema_metadata(said))
    table.begin([ID, field("d", "date")], table.add("f.parquet"))


for _unit, _zone in (("ms", None), ("ms", "UTC"), ("us", None), ("ns", "UTC")):

    @shape(f"timestamps in {_unit} with zone {_zone}", with_("ts", *OLD))
    def _(table: Handmade, unit: Any = _unit, zone: str | None = _zone) -> None:
        instants = OLD if zone else [instant.replace(tzinfo=None) for instant in OLD]
        rows = pa.table({"id": [1, 2], "ts": pa.array(instants, pa.timestamp(unit, zone))})
        table.begin([ID, field("ts", "timestamp")], table.add("f.parquet", rows))


@shape("lists of two levels' names", with_("l", [1, 2], None))
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "l": [[1, 2], None]})
    table.data("f.parquet", rows, use_compliant_nested_type=False)
    table.begin([ID, field("l", listed("long"))], table.add("f.parquet"))


@shape("text without its annotation", with_("s", "a", "b"))
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "s": [b"a", b"b"]})
    table.data("f.parquet", rows, store_schema=False)
    table.begin([ID, field("s", "string")], table.add("f.parquet"))


@shape("bytes of a fixed length", with_("s", b"a", b"b"))
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "s": pa.array([b"a", b"b"], pa.binary(1))})
    table.begin([ID, field("s", "binary")], table.add("f.parquet", rows))


@shape("dictionaries", with_("s", "a", "b"))
def _(table: Handmade) -> None:
    rows = pa.table({"id": [1, 2], "s": pa.array(["a", "b"]).dictionary_encode()})
    table.begin([ID, field("s", "string")], table.add("f.parquet", rows))


for _codec in ("gzip", "zstd", "brotli", "lz4", "none"):

    @shape(f"codec {_codec}", TWO)
    def _(table: Handmade, codec: str = _codec) -> None:
        table.data("f.parquet", ROWS, compression=codec)
        table.begin([ID], table.add("f.parquet"))


@shape("data pages of version 2", TWO)
def _(table: Handmade) -> None:
    table.data("f.parquet", ROWS, data_page_version="2.0", version="1.0")
    table.begin([ID], table.add("f.parquet"))


@shape("a file of no rows", TWO)
def _(table: Handmade) -> None:
    empty = table.add("g.parquet", ROWS.slice(0, 0))
    table.begin([ID], table.add("f.parquet", ROWS), empty)


@shape("a file of no row groups", TWO)
def _(table: Handmade) -> None:
    pq.ParquetWriter(table.path / "g.parquet", ROWS.schema).close()
    table.begin([ID], table.add("f.parquet", ROWS), table.add("g.parquet"))


@shape("odd column names, mapped by name", with_("a b;{}.ü", 3, 4), "duckdb")
def _(table: Handmade) -> None:
    ids = [
        field("id", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c-1"}),
        field(
            "a b;{}.ü", **{"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": "c-2"}
        ),
    ]
    rows = pa.table({"c-1": [1, 2], "c-2": [3, 4]})
    mode = {"delta__columnMapping__mode": "name", "delta__columnMapping__maxColumnId": "2"}
    entry = protocol()
    entry["protocol"] |= {"minReaderVersion": 2, "minWriterVersion": 5}
    table.entry(entry, metadata(ids, **mode), table.add("f.parquet", rows))


# -- logs ----------------------------------------------------------------------------------


@shape("no files", [])
def _(table: Handmade) -> None:
    table.begin([ID])


@shape("objects in the log that are no part of it", TWO)
def _(table: Handmade) -> None:
    table.begin([ID], table.add("f.parquet", ROWS))
    for name in (
        f"{0:020}.json.tmp",
        f"{1:020}.json.gz",
        f".{0:020}.json.crc",
        f"{0:020}.crc",
        "_staged_commits",
        "notes.txt",
    ):
        (table.log / name).write_text("x")


@shape("actions and fields of the future", TWO)
def _(table: Handmade) -> None:
    table.begin([ID], table.add("f.parquet", ROWS, sparkle={"a": [1]}))
    table.entry({"sparkle": {}}, commit_info(1, sparkle=5))


@shape("blank lines and Windows' ends of lines", TWO)
def _(table: Handmade) -> None:
    table.begin([ID], table.add("f.parquet", ROWS))
    entry = table.log / f"{0:020}.json"
    entry.write_bytes(b"\n" + entry.read_bytes().replace(b"\n", b"\r\n\r\n"))


@shape("several actions in a line", TWO)
def _(table: Handmade) -> None:
    table.entry({**protocol(), **metadata([ID]), **table.add("f.parquet", ROWS)})


@shape("no commitInfo, no optional fields", TWO, "")
def _(table: Handmade) -> None:
    described = metadata([{"name": "id", "type": "long"}])["metaData"]
    for name in ("id", "format", "configuration", "createdTime"):
        del described[name]
    described["partitionColumns"] = None
    table.entry(protocol(), {"metaData": described}, table.add("f.parquet", ROWS))


@shape("numbers in the configuration", TWO)
def _(table: Handmade) -> None:
    described = metadata([ID])
    described["metaData"]["configuration"] = {"a": 5, "delta.appendOnly": False}
    table.entry(protocol(), described, table.add("f.parquet", ROWS))


@shape("a hint at a checkpoint that is not there", TWO, "")
def _(table: Handmade) -> None:
    table.begin([ID], table.add("f.parquet", ROWS))
    (table.log / "_last_checkpoint").write_text('{"version":9,"size":3,"checksum":"0"}')


@shape("a log whose beginning was cleaned up", TWO)
def _(table: Handmade) -> None:
    table.begin([ID], table.add("g.parquet", ROWS.slice(0, 1)))
    table.entry(remove("g.parquet", deletionTimestamp=9), table.add("f.parquet", ROWS))
    _checkpointed(table)
    table.entry(commit_info(3))
    for version in range(2):
        (table.log / f"{version:020}.json").unlink()
    (table.log / "_last_checkpoint").unlink()


@shape("a checkpoint and no entries", TWO)
def _(table: Handmade) -> None:
    table.begin([ID], table.add("f.parquet", ROWS))
    table.entry(commit_info(1))
    _checkpointed(table)
    for version in range(2):
        (table.log / f"{version:020}.json").unlink()


def _checkpointed(table: Handmade) -> None:
    from deltalake import DeltaTable

    DeltaTable(str(table.path)).create_checkpoint()


OTHERS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "duckdb": duckdb_rows,
    "deltalake": deltalake_rows,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_table_of_each_shape_is_read_and_rewritten(tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    table = Handmade(tmp_path)
    shape.make(table)
    expected = shape.rows
    for _ in range(2):
        for other in shape.others.split():
            assert OTHERS[other](table.path) == expected, other
        with lv.connect(str(tmp_path)) as lake:
            read = lake.snapshot().read("t").sort_by("id")
            assert read.to_pylist() == expected
            some = lake.snapshot().read("t", where="id >= 2 and id < 3")["id"].to_pylist()
            assert some == [row["id"] for row in expected if row["id"] == 2]
            with lake.transaction() as txn:
                done = txn.update("t", {"id": "id + 100"}, "id = 1")
                assert done.rows_updated == len([row for row in expected if row["id"] == 1])
        moved = [{**row, "id": 101} if row["id"] == 1 else row for row in expected]
        expected = sorted(moved, key=lambda row: row["id"])


# -- refused by an error that names the cause ----------------------------------------------

TYPES = ["interval", "interval year to month", "timestamp_nanos", "char(5)", "variant", "time"]
TYPES += ["string collate UNICODE", "geometry(4326)", "decimal(50,2)", "decimal(5,9)", "odd"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("deep", [False, True])
def test_an_unknown_type_is_refused_by_its_name(tmp_path: Path, kind: str, deep: bool) -> None:
    table = Handmade(tmp_path)
    inner = nested(field("in", listed(kind))) if deep else kind
    table.begin([ID, field("x", inner)], table.add("f.parquet", ROWS))
    before = sorted(path.name for path in table.log.iterdir())
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match="column of type") as raised:
            lake.snapshot().read("t")
        assert kind in str(raised.value)
        with pytest.raises(lv.UnsupportedTableFeature), lake.transaction() as txn:
            txn.append("t", [{"id": 3}])
    assert sorted(path.name for path in table.log.iterdir()) == before


REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "names that differ by case": ([ID, field("ID")], "columns id and ID, which differ only"),
    "nested names that differ by case": (
        [ID, field("s", nested(field("a"), field("A")))],
        r"columns s\.a and s\.A",
    ),
    "no columns": ([], "no columns"),
    "a struct without fields": ([ID, field("s", nested())], "a struct without fields, s"),
    "a void within a struct": ([ID, field("s", nested(field("v", "void")))], "void within another"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_whose_values_are_ambiguous_is_refused_by_name(tmp_path: Path, name: str) -> None:
    fields, told = REFUSED[name]
    table = Handmade(tmp_path)
    table.begin(fields, table.add("f.parquet", ROWS))
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match=told):
            lake.snapshot().read("t")
        with pytest.raises(lv.UnsupportedTableFeature, match=told), lake.transaction() as txn:
            txn.delete("t", "true")


@pytest.mark.parametrize(("codec", "byte"), [("LZ4", 5), ("LZO", 3)])
def test_an_unknown_codec_is_refused_by_its_name(tmp_path: Path, codec: str, byte: int) -> None:
    table = Handmade(tmp_path)
    table.data("f.parquet", ROWS, compression="lz4")
    path = table.path / "f.parquet"
    body = path.read_bytes()
    start = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    # Replace the codec 7 (LZ4_RAW) in Thrift's field by another one, which old writers use.
    footer = body[start:].replace(bytes([0x15, 2 * 7]), bytes([0x15, 2 * byte]))
    path.write_bytes(body[:start] + footer)
    table.begin([ID], table.add("f.parquet"))
    with lv.connect(str(tmp_path)) as lake, pytest.raises(lv.LakeVillaError, match=codec):
        lake.snapshot().read("t")


UNREADABLE = [
    ("integer", "x"),
    ("byte", "300"),
    ("date", "2024-02-30"),
    ("timestamp", "yesterday"),
    ("decimal(10,2)", "1,5"),
    ("decimal(3,2)", "12345"),
    ("double", "many"),
    ("boolean", "maybe"),
]


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
@pytest.mark.parametrize(("kind", "text"), UNREADABLE)
def test_a_partition_value_that_does_not_fit_its_type_is_reported_with_file_and_column(
    tmp_path: Path, kind: str, text: str, many: bool
) -> None:
    """``many``: more partitions than a query handles in separate branches."""
    table = Handmade(tmp_path)
    good = [
        table.add(f"g{n}.parquet", ROWS, partitionValues={"q": str(n), "p": None})
        for n in range(70 if many else 1)
    ]
    bad = table.add("bad.parquet", ROWS, partitionValues={"q": "0", "p": text})
    table.begin([ID, field("q", "integer"), field("p", kind)], *good, bad, partition_by=["q", "p"])
    verbs: list[Callable[[lv.Transaction], object]] = [
        lambda txn: txn.read("t"),
        lambda txn: txn.sql("select p, count(*) from t group by p"),
        lambda txn: txn.delete("t", "p is not null and id = 1"),
    ]
    with lv.connect(str(tmp_path)) as lake:
        for verb in verbs:
            with pytest.raises(lv.CorruptObject) as raised, lake.transaction() as txn:
                verb(txn)
            assert raised.value.key == "t/bad.parquet"
            assert raised.value.table == "t"
            assert f"{text!r} for partition column p" in str(raised.value)
        with lake.transaction() as txn:
            txn.append("t", [{"id": 9, "q": 0, "p": None}])
        assert lake.snapshot().read("t", ["id"], where="q = 0").num_rows == 5


def test_bytes_that_look_like_escapes_are_read_literally(tmp_path: Path) -> None:
    table = Handmade(tmp_path)
    action = table.add("f.parquet", ROWS, partitionValues={"p": "\\u00zz"})
    table.begin([ID, field("p", "binary")], action, partition_by=["p"])
    with lv.connect(str(tmp_path)) as lake:
        assert lake.snapshot().read("t").to_pylist() == with_("p", *[b"\\u00zz"] * 2)


def test_a_table_whose_files_are_not_parquet_is_not_written(tmp_path: Path) -> None:
    table = Handmade(tmp_path)
    described = metadata([ID])
    described["metaData"]["format"] = {"provider": "orc", "options": {}}
    table.entry(protocol(), described, add("f.orc"))
    with lv.connect(str(tmp_path)) as lake:
        with pytest.raises(lv.UnsupportedTableFeature, match="orc"), lake.transaction() as txn:
            txn.append("t", [{"id": 1}])
