"""Versions of the change feed on a lake with Spark: DataFrames with the same rows as elsewhere."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


def shown(frame: Any, like: pa.Schema) -> list[str]:
    found = frame.toArrow()
    assert found.schema.names == like.names
    return bag(found.cast(like))


def bag(rows: pa.Table) -> list[str]:
    return sorted(repr(row) for row in rows.to_pylist())


def work(lake: lv.Lake, kind: Any) -> None:
    """Commit versions of all kinds; the second table has change files if its format allows them."""
    rows = [{"id": i, "p": f"p{i % 3}", "tags": ["a", None][: i % 3]} for i in range(40)]
    lake.create_table("s/t", rows, format=kind, partition_by="p")
    properties = {"delta.enableChangeDataFeed": "true"} if kind == "delta" else {}
    lake.create_table("u", rows, format=kind, properties=properties)

    def both(txn: lv.Transaction) -> None:
        txn.update("s/t", {"id": "id + 100"}, where="id % 10 = 3")
        txn.update("u", {"id": "id + 100"}, where="id % 10 = 3")
        txn.delete("u", where="id = 7")

    lake.run(both)
    lake.run(lambda txn: txn.alter("s/t", add_columns={"more": "long"}))
    lake.run(lambda txn: txn.append("s/t", [{"id": 1000, "p": "p0", "more": 1}]))
    lake.table("s/t").optimize()
    lake.run(lambda txn: txn.drop_table("u"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.seam
@pytest.mark.night
def test_versions_of_the_feed_have_the_same_rows_as_without_spark(
    spark: SparkSession, lake: Any, other: lv.Lake, kind: Any
) -> None:
    work(other, kind)
    looked = 0
    for net in (False, True):
        mine, theirs = list(lake.changes(0, net=net)), list(other.changes(0, net=net))
        assert mine == theirs
        for version, like in zip(mine, theirs, strict=True):
            assert list(version.tables) == list(like.tables)
            for name, expected in like.tables.items():
                assert shown(version.tables[name], expected.schema) == bag(expected), version
                looked += expected.num_rows
    assert looked > 100
    [version] = lake.changes(2, 3, columns={"u": ["id"]}, tables=["u"])
    assert version.tables["u"].columns[0] == "id"
    assert version.tables["u"].where("_change_type = 'update_postimage'").count() == (
        4 if kind == "delta" else 0
    )


def test_a_follower_passes_each_version_to_its_function_as_frames(lake: Any) -> None:
    lake.create_table("t", [{"id": 1}])
    lake.run(lambda txn: txn.append("t", [{"id": 2}, {"id": 3}]))
    enough = threading.Event()
    counts = []
    for version in lake.follow(0, stop=enough):
        counts.append(version.tables["t"].count())
        if version.version == 2:
            enough.set()
    assert counts == [1, 2]


def test_a_version_whose_file_was_removed_is_refused_when_it_is_read(
    lake: Any, other: lv.Lake
) -> None:
    other.create_table("t", [{"id": 1}, {"id": 2}])
    other.run(lambda txn: txn.append("t", [{"id": 3}]))
    newest = max(Path(other.root).glob("t/*.parquet"), key=lambda path: path.stat().st_mtime)
    newest.unlink()
    [version] = lake.changes(1)
    with pytest.raises(
        lv.VersionNotFound, match=r"changes of table t by global version 2 are not kept"
    ):
        version.tables["t"]
