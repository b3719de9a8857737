"""``spark.readStream.format("lakevilla")``: the changes of a table, each reported once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import lakevilla as lv
from tests.support.places import Place
from tests.support.stores import Later
from tests.support.tables import in_order

Rows = list[dict[str, Any]]


@dataclass
class Stream:
    """A stream of the changes of ``bank`` that keeps its batches in order."""

    spark: SparkSession
    place: Place
    checkpoint: Path
    batches: list[Rows]

    def frame(self, **options: object) -> DataFrame:
        reader = self.spark.readStream.format("lakevilla").option("lake", self.place.root)
        for name, value in {"table": "bank", **options}.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load()

    def keep(self, batch: DataFrame, number: int) -> None:
        self.batches.append(in_order(batch.toArrow()))

    def run(self, **options: object) -> list[Rows]:
        """Run until all changes are reported, and stop; return the batches since."""
        given = {"startingVersion": 1, **options}
        writer = self.frame(**given).writeStream.foreachBatch(self.keep)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        before = len(self.batches)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        return self.batches[before:]

    def offsets(self) -> list[int]:
        """Return the versions at which the batches of the checkpoint end."""
        return [offset["version"] for offset in self.all_offsets()]

    def all_offsets(self) -> list[dict[str, Any]]:
        written = sorted(
            (path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        return [json.loads(path.read_text().splitlines()[-1]) for path in written]

    def forget_commit(self) -> None:
        """Make it as if the query had been killed after it had planned its last batch."""
        last = str(
            max(int(p.name) for p in (self.checkpoint / "commits").iterdir() if p.name.isdigit())
        )
        (self.checkpoint / "commits" / last).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    place = Place(str(tmp_path / "lake"))
    lv.register_data_source(spark)
    with place.connect() as lake:
        lake.create_table("bank", rows(0, 1))
        lake.create_table("other", rows(0))
    yield Stream(spark, place, tmp_path / "checkpoint", [])
    for query in spark.streams.active:
        query.stop()


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "tag": [f"t{i}" for i in ids]})


def brief(batch: Rows) -> list[tuple[int, str, int]]:
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in batch)


def as_spark_has(changed: pa.Table) -> Rows:
    stamp = changed.schema.get_field_index("_commit_timestamp")
    stamps = changed.column(stamp).cast(pa.timestamp("us", "UTC"))
    return in_order(changed.set_column(stamp, "_commit_timestamp", stamps))


@pytest.mark.seam
@pytest.mark.night
def test_a_stream_returns_each_change_once_across_restarts(stream: Stream) -> None:
    with stream.place.connect() as lake:
        assert [brief(batch) for batch in stream.run()] == [[(1, "insert", 0), (1, "insert", 1)]]
        lake.run(lambda txn: txn.append("other", rows(7)))
        with lake.transaction() as txn:
            txn.append("bank", rows(2))
            txn.delete("bank", where="id = 0")
        lake.run(lambda txn: txn.update("bank", {"tag": "'new'"}, where="id = 1"))
        (batch,) = stream.run()
        now = lake.snapshot()
        assert batch == as_spark_has(now.changes("bank", 2))
        assert brief(batch) == [
            (4, "delete", 0),
            (4, "insert", 2),
            (5, "delete", 1),
            (5, "insert", 1),
        ]
        assert stream.run() == []
        assert stream.offsets() == [2, now.version]


def test_a_stream_begins_at_its_starting_version(stream: Stream) -> None:
    with stream.place.connect() as lake:
        for number in (2, 3, 4):
            lake.run(lambda txn, n=number: txn.append("bank", rows(n)))
        newest = lake.snapshot().version
    (batch,) = stream.run(startingVersion=newest - 1, columns="id", where="id <> 99")
    assert brief(batch) == [(newest - 1, "insert", 3), (newest, "insert", 4)]
    assert "tag" not in batch[0]


def test_a_stream_waits_for_a_starting_version_in_the_future(stream: Stream) -> None:
    assert stream.run(startingVersion=4) == [[]]  # Spark begins a checkpoint with a batch
    with stream.place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", rows(3)))
        lake.run(lambda txn: txn.append("bank", rows(4)))
    assert [brief(batch) for batch in stream.run(startingVersion=4)] == [[(4, "insert", 4)]]


@pytest.mark.seam
def test_changes_between_two_versions_are_read_as_a_batch(stream: Stream) -> None:
    with stream.place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", rows(2)))
        lake.run(lambda txn: txn.append("bank", rows(3)))
        expected = as_spark_has(lake.snapshot(3).changes("bank", 1))
    reader = stream.spark.read.format("lakevilla").option("lake", stream.place.root)
    frame = reader.option("startingVersion", 2).option("version", 3).load("bank")
    assert in_order(frame.toArrow()) == expected != []


def test_a_large_commit_is_returned_in_several_batches_across_restarts(stream: Stream) -> None:
    """A query that was killed continues within the commit, with the rows that it had planned."""
    many = rows(*range(100, 140)).append_column("p", pa.array([f"p{i % 7}" for i in range(40)]))
    with stream.place.connect() as lake:
        lake.create_table("wide", many, partition_by="p")  # seven files
        lake.run(lambda txn: txn.append("wide", many.slice(0, 7)))
        begun = stream.run(table="wide", maxFilesPerTrigger=2)
        assert [len(batch) for batch in begun[:3]] == [12, 12, 11]
        assert [offset.get("parts") for offset in stream.all_offsets()[:3]] == [2, 4, 6]
        last = begun[-1]
        stream.forget_commit()
        again = stream.run(table="wide", maxFilesPerTrigger=2)
        assert again == [last]
        lake.run(lambda txn: txn.append("wide", many.slice(0, 7)))
        after = stream.run(table="wide", maxFilesPerTrigger=4)
        assert [len(batch) for batch in after] == [4, 3]
        every = [row for batch in (*begun, *after) for row in batch]
        changed = as_spark_has(lake.snapshot().changes("wide", 0))
    assert sorted(map(str, every)) == sorted(map(str, changed))


def test_an_available_now_run_has_at_most_one_batch_before_spark_4_2(stream: Stream) -> None:
    with stream.place.connect() as lake:
        for number in (2, 3, 4, 5):
            lake.run(lambda txn, n=number: txn.append("bank", rows(n)))
    given = {"startingVersion": 1, "maxFilesPerTrigger": 2}
    for _ in range(3):
        writer = stream.frame(**given).writeStream.foreachBatch(stream.keep)
        writer = writer.option("checkpointLocation", str(stream.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    found = [row["id"] for batch in stream.batches for row in batch]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    if pyspark.__version__ < "4.2":
        assert len(stream.batches) == 3  # no more than one each time


def test_a_stream_reports_history_that_was_deleted(stream: Stream) -> None:
    clock = Later()
    stream.run()
    with stream.place.connect() as lake:
        clock.of(lake)
        for number in range(60):
            lake.run(lambda txn, n=number: txn.append("bank", rows(n)))
        clock.ahead_seconds = 8 * 24 * 3600.0
        lake.run(lambda txn: txn.append("bank", rows(100)))
        lake.gc()
        lake.gc()
        with pytest.raises(lv.VersionNotFound, match="not kept any more"):
            lake.snapshot(2)
    with pytest.raises(StreamingQueryException, match="global version 2 is not kept any more"):
        stream.run()


def test_a_query_ends_when_a_column_is_added_and_returns_the_column_after_a_restart(
    stream: Stream,
) -> None:
    writer = stream.frame(startingVersion=1).writeStream.foreachBatch(stream.keep)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
    query.processAllAvailable()
    with stream.place.connect() as lake:
        wider = rows(5).append_column("more", pa.array([5], pa.int64()))
        lake.run(lambda txn: txn.append("bank", wider, schema_mode="merge"))
    with pytest.raises(StreamingQueryException, match="columns of table bank were changed since"):
        query.awaitTermination(60)
    (batch,) = stream.run()
    assert [(row["id"], row["more"]) for row in batch] == [(5, 5)]


def test_a_batch_planned_before_a_column_was_added_is_returned_with_null_in_it(
    stream: Stream,
) -> None:
    """A restarted query returns changes planned earlier with the columns that it has now."""
    stream.run()
    with stream.place.connect() as lake:
        lake.run(lambda txn: txn.append("bank", rows(5)))
        stream.run()
        stream.forget_commit()
        wider = rows(6).append_column("more", pa.array([6], pa.int64()))
        lake.run(lambda txn: txn.append("bank", wider, schema_mode="merge"))
    again, after = stream.run()
    assert [(row["id"], row["more"]) for row in again] == [(5, None)]
    assert [(row["id"], row["more"]) for row in after] == [(6, 6)]


def test_a_checkpoint_of_another_lake_is_refused(stream: Stream, tmp_path: Path) -> None:
    stream.run()
    other = Place(str(tmp_path / "younger"))
    with other.connect() as lake:
        lake.create_table("bank", rows(1))
    stream.place = other
    with pytest.raises(StreamingQueryException, match="it is another lake, or an older copy"):
        stream.run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the global version that it begins with"),
        ({"startingVersion": "x"}, "option startingVersion must be a whole number"),
        ({"startingVersion": "1", "version": "2"}, "a stream has no version or timestamp"),
    ],
)
def test_a_stream_with_invalid_options_is_refused_with_the_reason(
    stream: Stream, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        query = stream.frame(**options).writeStream.foreachBatch(stream.keep).start()
        query.processAllAvailable()
