"""Set and add fields within columns: Spark does the same on a table of the same rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.interop.spark.beside import Beside

_COLUMNS = (
    "k BIGINT, s STRUCT<a: BIGINT, b: STRING, t: STRUCT<u: BIGINT, v: INT>>, "
    "l ARRAY<STRUCT<a: BIGINT>>, m MAP<STRING, STRUCT<a: BIGINT>>"
)
_ROWS = """
    (1, named_struct('a', 1L, 'b', 'x', 't', named_struct('u', 1L, 'v', 2)),
     array(named_struct('a', 1L)), map('q', named_struct('a', 1L))),
    (2, NULL, NULL, NULL),
    (3, named_struct('a', 3L, 'b', NULL, 't', NULL), array(), NULL)
"""
_AUTO = "spark.databricks.delta.schema.autoMerge.enabled"


def both(beside: Beside, **properties: str) -> None:
    """Return two tables of the same rows: Spark changes ``theirs``, the lake changes ``ours``."""
    for table in ("theirs", "ours"):
        beside.make(_COLUMNS, table, **properties)
        beside.sql(f"INSERT INTO {{t}} VALUES {_ROWS}", table)


def rows(beside: Beside, table: str) -> list[dict[str, Any]]:
    return beside.arrow(table).sort_by("k").to_pylist()


@pytest.mark.parametrize(
    ("targets", "where"),
    [
        ("s.a = 7", "k > 0"),
        ("s.t.v = 5, s.b = 'y'", "k <> 3"),
        ("S.A = s.a + k, s.t = NULL", "k > 0"),
    ],
)
@pytest.mark.seam
@pytest.mark.night
def test_a_field_is_set_with_the_same_result_as_by_spark(
    beside: Beside, targets: str, where: str
) -> None:
    both(beside)
    lake = beside.connect()
    beside.sql(f"UPDATE {{t}} SET {targets} WHERE {where}", "theirs")
    lake.run(lambda txn: txn.sql(f"UPDATE ours SET {targets} WHERE {where}"))
    assert rows(beside, "ours") == rows(beside, "theirs")


_SOURCE = pa.table(
    {
        "k": [1, 2, 3, 4],
        "s": pa.array(
            [{"t": {"v": 9}, "a": 5}, {"t": {"v": 8}, "a": 6}, {"t": None, "a": None}, None],
            pa.struct([("t", pa.struct([("v", pa.int32())])), ("a", pa.int64())]),
        ),
    }
)
_WIDER = pa.table(
    {
        "k": [1, 2, 5],
        "s": pa.array(
            [{"n": 1, "t": {"w": "i"}}, {"n": 2, "t": None}, {"n": 3, "t": {"w": "j"}}],
            pa.struct([("n", pa.int64()), ("t", pa.struct([("w", pa.string())]))]),
        ),
        "l": pa.array(
            [[{"a": 4, "b": 1}], None, [None]],
            pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        ),
        "m": pa.array(
            [[("q", {"y": 1})], [], None], pa.map_(pa.string(), pa.struct([("y", pa.int64())]))
        ),
    }
)


@pytest.mark.parametrize("source", [_SOURCE, _WIDER], ids=["fewer", "more"])
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_a_merge_of_all_columns_keeps_and_adds_the_same_fields_as_spark_s(
    beside: Beside, source: pa.Table, mapping: str
) -> None:
    both(beside, **{"columnMapping.mode": mapping})
    spark = beside.spark
    spark.createDataFrame(source).createOrReplaceTempView("source")
    before = spark.conf.get(_AUTO, "false")
    spark.conf.set(_AUTO, "true")
    try:
        beside.sql(
            "MERGE INTO {t} AS t USING source AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
            "theirs",
        )
    finally:
        spark.conf.set(_AUTO, before)
    lake = beside.connect()
    lake.run(lambda txn: txn.upsert("ours", source, keys="k", schema_mode="merge"))
    assert rows(beside, "ours") == rows(beside, "theirs")
    assert beside.arrow("ours").schema.equals(beside.arrow("theirs").schema)


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_an_append_adds_the_same_fields_as_spark_s(beside: Beside, mapping: str) -> None:
    both(beside, **{"columnMapping.mode": mapping})
    writer = beside.spark.createDataFrame(_WIDER).write.format("delta").mode("append")
    writer.option("mergeSchema", "true").save(beside.path("theirs"))
    lake = beside.connect()
    lake.run(lambda txn: txn.append("ours", _WIDER, schema_mode="merge"))
    assert beside.arrow("ours").schema.equals(beside.arrow("theirs").schema)
    order = [("k", "ascending"), ("new", "ascending")]
    for table in ("ours", "theirs"):
        assert beside.arrow(table).num_rows == 6, order
    mine, theirs = (sorted(map(repr, rows(beside, table))) for table in ("ours", "theirs"))
    assert mine == theirs
    lake.run(lambda txn: txn.update("ours", {"s.n": "s.n + 1"}, "s.n = 3"))
    beside.sql("UPDATE {t} SET s.n = s.n + 1 WHERE s.n = 3", "theirs")
    mine, theirs = (sorted(map(repr, rows(beside, table))) for table in ("ours", "theirs"))
    assert mine == theirs


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("place", ["s", "l.element", "m.value", "s.t"])
def test_a_nested_field_is_altered_with_the_same_result_as_by_spark(
    beside: Beside, place: str, mapping: str
) -> None:
    both(beside, **{"columnMapping.mode": mapping})
    old = "u" if place == "s.t" else "a"
    changes = [f"ADD COLUMN {place}.q INT"]
    if mapping == "name":
        changes += [
            f"RENAME COLUMN {place}.{old} TO z",
            f"ADD COLUMN {place}.r STRING",
            f"DROP COLUMN {place}.q",
        ]
    session = beside.connect().session()
    for change in changes:
        spelled = change.replace("ADD COLUMN", "ADD COLUMNS (") + (")" if "ADD" in change else "")
        beside.sql(f"ALTER TABLE {{t}} {spelled}", "theirs")
        session.sql(f"ALTER TABLE ours {change}")
    assert rows(beside, "ours") == rows(beside, "theirs")
    assert beside.arrow("ours").schema.equals(beside.arrow("theirs").schema)
    beside.sql("INSERT INTO {t} SELECT * FROM {t} WHERE k = 1", "ours")
    session.sql("UPDATE ours SET k = k + 1")
    with beside.connect() as lake:
        assert lake.read("ours").sort_by("k").to_pylist() == rows(beside, "ours")
