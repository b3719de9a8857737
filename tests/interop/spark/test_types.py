"""Write every type of Delta's by Spark and by LakeVilla; each reads the other's files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import lakevilla as lv
from tests.interop.spark.beside import Beside
from tests.support.tables import bag

DECIMAL = pa.decimal128(38, 10)
MOMENT = pa.timestamp("us", tz="UTC")
WALL = pa.timestamp("us")
DAY = pa.struct([("day", pa.date32()), ("b", pa.binary())])
INNER = pa.struct([("x", DECIMAL), ("at", MOMENT)])

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("tiny", pa.int8()),
        pa.field("small", pa.int16()),
        pa.field("num", pa.int32()),
        pa.field("big", pa.int64()),
        pa.field("single", pa.float32()),
        pa.field("twice", pa.float64()),
        pa.field("wide", DECIMAL),
        pa.field("whole", pa.decimal128(38, 0)),
        pa.field("narrow", pa.decimal128(9, 2)),
        pa.field("middle", pa.decimal128(18, 18)),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", MOMENT),
        pa.field("wall", WALL),
        pa.field("list", pa.list_(pa.string())),
        pa.field("lists", pa.list_(pa.list_(pa.float64()))),
        pa.field("map", pa.map_(pa.string(), pa.float64())),
        pa.field(
            "days", pa.map_(pa.int32(), pa.struct([("day", pa.date32()), ("b", pa.binary())]))
        ),
        pa.field("struct", pa.struct([("a", pa.int8()), ("inner", INNER)])),
        pa.field(
            "deep",
            pa.list_(pa.struct([("k", pa.string()), ("m", pa.map_(pa.string(), pa.list_(WALL)))])),
        ),
    ]
)

USUAL: dict[str, Any] = {
    "k": 1,
    "flag": True,
    "tiny": 1,
    "small": 2,
    "num": 3,
    "big": 4,
    "single": 1.5,
    "twice": 0.1,
    "wide": Decimal("1.0000000001"),
    "whole": Decimal(7),
    "narrow": Decimal("1.25"),
    "middle": Decimal("0.000000000000000001"),
    "text": "grün 🦆 ‮ \t\"quoted\" 'single'\n",
    "bytes": b"\x00\xff",
    "day": date(2024, 2, 29),
    "at": datetime(2024, 3, 10, 10, 30, 0, 123456, UTC),  # in the hour that Los Angeles skips
    "wall": datetime(2024, 3, 10, 2, 30, 0, 123456),
    "list": ["a", None, ""],
    "lists": [[1.0, None], None, []],
    "map": [("a", 1.0), ("b", None)],
    "days": [(1, {"day": date(2024, 1, 1), "b": b"x"}), (2, None)],
    "struct": {"a": 1, "inner": {"x": Decimal("2.5"), "at": datetime(2024, 1, 1, tzinfo=UTC)}},
    "deep": [{"k": "x", "m": [("a", [datetime(2024, 1, 1), None])]}, None, {"k": None, "m": None}],
}
LARGEST: dict[str, Any] = {
    "k": 2,
    "flag": False,
    "tiny": 127,
    "small": 32767,
    "num": 2**31 - 1,
    "big": 2**63 - 1,
    "single": math.inf,
    "twice": math.inf,
    "wide": Decimal("9" * 28 + "." + "9" * 10),
    "whole": Decimal("9" * 38),
    "narrow": Decimal("9999999.99"),
    "middle": Decimal("0." + "9" * 18),
    "text": "\U0010ffff" * 40,  # longer than the prefix in statistics
    "bytes": b"\xff" * 40,
    "day": date(9999, 12, 31),
    "at": datetime(9999, 12, 30, 23, 59, 59, 999999, UTC),
    "wall": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "list": ["x" * 1000],
    "lists": [[math.inf, math.nan, -0.0]],
    "map": [("", math.nan)],
    "days": [(2**31 - 1, {"day": None, "b": None})],
    "struct": {"a": 127, "inner": None},
    "deep": [{"k": "", "m": [("", None), ("e", [])]}],
}
SMALLEST: dict[str, Any] = {
    "k": 3,
    "flag": None,
    "tiny": -128,
    "small": -32768,
    "num": -(2**31),
    "big": -(2**63),
    "single": -math.inf,
    "twice": -math.inf,
    "wide": Decimal("-" + "9" * 28 + "." + "9" * 10),
    "whole": Decimal("-" + "9" * 38),
    "narrow": Decimal("-9999999.99"),
    "middle": Decimal("-0." + "9" * 18),
    "text": "",
    "bytes": b"",
    "day": date(1, 1, 2),
    "at": datetime(1, 1, 2, tzinfo=UTC),
    "wall": datetime(1, 1, 1),
    "list": [],
    "lists": [],
    "map": [],
    "days": [],
    "struct": {"a": None, "inner": {"x": None, "at": None}},
    "deep": [],
}
ODD: dict[str, Any] = {
    **dict.fromkeys(SCHEMA.names),
    "k": 4,
    "single": math.nan,
    "twice": -0.0,
    "day": date(1582, 10, 10),  # a day that the Julian-Gregorian calendar lacks
    "at": datetime(1582, 10, 10, tzinfo=UTC),
    "wall": datetime(1582, 10, 10),
}
MORE: dict[str, Any] = {
    **dict.fromkeys(SCHEMA.names),
    "k": 5,
    "single": -0.0,
    "twice": math.nan,
    "day": date(1500, 2, 28),
    "at": datetime(1900, 1, 1, tzinfo=UTC),
    "wall": datetime(1969, 12, 31, 23, 59, 59, 999999),
}
NOTHING = {**dict.fromkeys(SCHEMA.names), "k": 6}

ROWS = pa.Table.from_pylist([USUAL, LARGEST, SMALLEST, ODD, MORE, NOTHING], schema=SCHEMA)


def in_utc(kind: pa.DataType) -> pa.DataType:
    """Return the type with every timestamp in UTC: Spark returns its session's time zone."""
    if pa.types.is_timestamp(kind) and kind.tz:
        return MOMENT
    if pa.types.is_list(kind):
        return pa.list_(in_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(in_utc(kind.key_type), in_utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, in_utc(field.type)) for field in kind.fields])
    return kind


def plain(table: pa.Table) -> tuple[dict[str, pa.DataType], Counter[str]]:
    """Return types and rows for comparison; the repr distinguishes NaN, and -0.0 from 0.0."""
    table = table.cast(pa.schema([(field.name, in_utc(field.type)) for field in table.schema]))
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    return types, Counter(repr(row) for row in table.to_pylist())


def shifted(rows: pa.Table, by: int) -> pa.Table:
    """Return the rows with ``by`` added to ``k``."""
    return rows.set_column(0, "k", pa.array([k + by for k in rows["k"].to_pylist()], pa.int64()))


def read_alike(beside: Beside, table: str, expected: pa.Table) -> None:
    with beside.connect() as lake, lake.snapshot() as state:
        ours = state.read(table)
    theirs = beside.arrow(table)
    assert plain(theirs) == plain(expected)
    assert plain(ours) == plain(expected)


def spark_writes(beside: Beside, table: str, rows: pa.Table, *partition_by: str) -> None:
    # Without the schema, Spark would place times without a zone in its session's zone.
    frame = beside.spark.createDataFrame(rows, from_arrow_schema(rows.schema, True))
    writer = frame.coalesce(1).write.format("delta").mode("append").partitionBy(*partition_by)
    writer.save(beside.path(table))


# The session sets the physical type of timestamps in Spark's files.
@pytest.fixture(params=["INT96", "TIMESTAMP_MICROS"])
def instants(request: pytest.FixtureRequest, beside: Beside) -> Iterator[Beside]:
    key = "spark.sql.parquet.outputTimestampType"
    before = beside.spark.conf.get(key)
    assert before is not None
    beside.spark.conf.set(key, request.param)
    yield beside
    beside.spark.conf.set(key, before)


@pytest.mark.seam
@pytest.mark.night
def test_a_table_of_spark_is_read_and_rewritten_and_then_read_by_spark(
    instants: Beside,
) -> None:
    spark_writes(instants, "t", ROWS)
    read_alike(instants, "t", ROWS)
    with instants.connect() as lake, lake.transaction() as txn:
        assert txn.update("t", {"k": "k + 10"}, where="k <= 6").rows_updated == 6
        txn.append("t", ROWS)
    both = pa.concat_tables([shifted(ROWS, 10), ROWS])
    read_alike(instants, "t", both)
    instants.sql("UPDATE {t} SET k = k + 10", "t")
    read_alike(instants, "t", shifted(both, 10))


def test_a_table_of_lakevilla_is_read_and_written_by_spark(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", ROWS)
        read_alike(beside, "t", ROWS)
        spark_writes(beside, "t", shifted(ROWS, 10))
        beside.sql("DELETE FROM {t} WHERE k = 1", "t")
        expected = pa.concat_tables([ROWS.slice(1), shifted(ROWS, 10)])
        read_alike(beside, "t", expected)
        with lake.transaction() as txn:
            txn.delete("t", "k = 11")
    read_alike(beside, "t", pa.concat_tables([ROWS.slice(1), shifted(ROWS, 10).slice(1)]))


LITERALS = {
    "flag": "TRUE",
    "tiny": "127",
    "big": "9223372036854775807",
    "wide": "9999999999999999999999999999.9999999999",
    "narrow": "-9999999.99",
    "text": "''",
    # Spark's own filter does not find a day that the Julian-Gregorian calendar lacks.
    "day": "DATE '1500-02-28'",
    "wall": "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'",
}
OURS = {**LITERALS, "wall": "TIMESTAMP '1969-12-31 23:59:59.999999'"}


def test_predicates_find_the_same_rows_by_the_statistics_of_each_writer(beside: Beside) -> None:
    """Each row is in a file of its own, so statistics decide which files are read."""
    with beside.connect() as lake:
        for number in range(len(ROWS)):
            spark_writes(beside, "theirs", ROWS.take([number]))
            if number == 0:
                lake.create_table("ours", ROWS.take([0]))
            else:
                with lake.transaction() as txn:
                    txn.append("ours", ROWS.take([number]))
        for table in ("ours", "theirs"):
            frame = beside.spark.read.format("delta").load(beside.path(table))
            wanted = [
                sorted(row.k for row in frame.where(f"{column} = {value}").select("k").collect())
                for column, value in LITERALS.items()
            ]
            with lake.snapshot() as state:
                found = [
                    sorted(state.read(table, ["k"], f"{column} = {value}")["k"].to_pylist())
                    for column, value in OURS.items()
                ]
            assert found == wanted == [[1], [2], [2], [2], [3], [3], [5], [5]]


def test_char_and_varchar_columns_keep_their_types_when_lakevilla_rewrites_and_alters_a_table(
    beside: Beside,
) -> None:
    beside.make("k BIGINT, code CHAR(3), name VARCHAR(5) COMMENT 'short'", "t")
    beside.sql("INSERT INTO {t} VALUES (1, 'a', 'abc'), (2, 'abc', NULL)", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.update("t", {"name": "'xyz'"}, where="k = 2")
        with lake.transaction() as txn:
            txn.alter("t", add_columns=pa.schema([("more", pa.int32())]))
            txn.append("t", [{"k": 3, "code": "zzz", "name": "n", "more": 3}])
    assert _declared(beside) == {"code": "char(3)", "name": "varchar(5)"}
    with pytest.raises(Exception, match="EXCEED_CHAR_VARCHAR_LIMIT"):
        beside.sql("INSERT INTO {t} VALUES (4, 'abcd', 'abc', 4)", "t")
    theirs = {(1, "a  ", "abc", None), (2, "abc", "xyz", None), (3, "zzz", "n", 3)}
    assert bag(beside.arrow("t")) == dict.fromkeys(theirs, 1)
    # Spark pads values when it reads them; the files have them unpadded.
    ours = {(1, "a", "abc", None), (2, "abc", "xyz", None), (3, "zzz", "n", 3)}
    with beside.connect() as lake, lake.snapshot() as state:
        assert bag(state.read("t")) == dict.fromkeys(ours, 1)


def _declared(beside: Beside) -> dict[str, str]:
    """Return the types that Spark keeps in the schema's metadata; to Delta they are strings."""
    fields = json.loads(beside.actions("metaData", "t")[-1]["schemaString"])["fields"]
    key = "__CHAR_VARCHAR_TYPE_STRING"
    return {f["name"]: f["metadata"][key] for f in fields if key in f["metadata"]}


def test_a_column_of_spark_s_void_type_is_read_as_null(beside: Beside) -> None:
    """Spark's ``void`` column is in the schema and in no file."""
    beside.sql("CREATE TABLE {t} USING delta AS SELECT 1L AS k, NULL AS nothing", "t")
    assert beside.both("t") == {(1, None): 1}
    with beside.connect() as lake, lake.transaction() as txn:
        txn.update("t", {"k": "k + 1"}, where="k = 1")
        txn.append("t", [{"k": 5}])
    assert beside.both("t") == {(2, None): 1, (5, None): 1}


PARTITIONS: Sequence[str | None] = [
    None, "plain", "a b", "a/b", "x=y", "50%", "%20", "ü🦆", "a:b", "'q\"", "\\",
    "{t}", "\n", ".", "#?",
]  # fmt: skip


def test_odd_partition_values_are_read_by_both_clients(beside: Beside) -> None:
    schema = pa.schema([("k", pa.int64()), ("p", pa.string())])
    rows = [{"k": number, "p": value} for number, value in enumerate(PARTITIONS)]
    theirs = pa.Table.from_pylist(rows, schema=schema)
    spark_writes(beside, "t", theirs, "p")
    read_alike(beside, "t", theirs)
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.append("t", shifted(theirs, 100))
        expected = pa.concat_tables([theirs, shifted(theirs, 100)])
        read_alike(beside, "t", expected)
        with lake.transaction() as txn:
            for number, value in enumerate(PARTITIONS):
                where = "p IS NULL" if value is None else "p = :p"
                params = {} if value is None else {"p": value}
                done = txn.update("t", {"k": "k + 1000"}, where=where, params=params)
                assert done.rows_updated == 2, (number, value)
        read_alike(beside, "t", shifted(expected, 1000))
        beside.sql("UPDATE {t} SET k = k + 1000", "t")
        read_alike(beside, "t", shifted(expected, 2000))


def test_an_empty_string_that_spark_stores_as_a_partition_value_is_null(beside: Beside) -> None:
    """In Delta an empty partition value means NULL. LakeVilla refuses to write one."""
    beside.sql("CREATE TABLE {t} (k BIGINT, p STRING) USING delta PARTITIONED BY (p)", "t")
    beside.sql("INSERT INTO {t} VALUES (1, '')", "t")
    with beside.connect() as lake, lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match="column p must not be empty"):
            txn.append("t", [{"k": 2, "p": ""}])
        txn.update("t", {"k": "k + 1"}, "p IS NULL")
    assert beside.both("t") == {(2, None): 1}


def test_an_empty_string_for_a_partition_that_is_a_number_is_null(beside: Beside) -> None:
    """Spark's connector fails if a filter names the column; LakeVilla reads it."""
    beside.sql("CREATE TABLE {t} (k BIGINT, p BIGINT) USING delta PARTITIONED BY (p)", "t")
    beside.sql("INSERT INTO {t} VALUES (1, 1), (2, NULL)", "t")
    entry = sorted(Path(beside.place.root, "t", "_delta_log").glob("*.json"))[-1]
    entry.write_text(entry.read_text().replace('{"p":null}', '{"p":""}'))
    assert '{"p":""}' in entry.read_text()
    Path(entry.parent, entry.name.replace(".json", ".crc")).unlink(missing_ok=True)
    Path(entry.parent, f".{entry.name}.crc").unlink(missing_ok=True)
    with lv.connect(beside.place.root, spark=beside.spark, spark_reader="python") as lake:
        assert [row.k for row in lake.snapshot().read("t", where="p is null").collect()] == [2]
    with beside.connect() as lake, lake.transaction() as txn:
        txn.update("t", {"k": "k + 10"}, "p is null")
    assert beside.both("t") == {(1, 1): 1, (12, None): 1}


def test_partition_values_of_every_type_are_read_by_both_clients(beside: Beside) -> None:
    names = ["flag", "tiny", "small", "num", "big", "single", "twice", "wide", "day", "at", "wall"]
    rows = ROWS.select(["k", "text", *names])
    spark_writes(beside, "theirs", rows, *names)
    read_alike(beside, "theirs", rows)
    with beside.connect() as lake:
        lake.create_table("ours", rows, partition_by=names)
        with lake.transaction() as txn:
            txn.append("theirs", shifted(rows, 10))
            txn.update("theirs", {"k": "k + 100"}, where="k <= 6")
    read_alike(beside, "ours", rows)
    read_alike(beside, "theirs", pa.concat_tables([shifted(rows, 100), shifted(rows, 10)]))
    spark_writes(beside, "ours", shifted(rows, 10), *names)
    read_alike(beside, "ours", pa.concat_tables([rows, shifted(rows, 10)]))
