"""A checkpoint is replaced by an older copy: no batch is mistaken for another (note 48).

A lake is replaced by an older copy: the loss of a batch is reported (note 49).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, datasource

import lakevilla as lv
from tests.support.tables import values

DEFAULT = "spark.sql.streaming.checkpointLocation"
Write = Callable[[DataFrame, int], None]
Around = Callable[[Write], Write]


def as_it_is(write: Write) -> Write:
    return write


class Stream:
    """Files that a stream writes to table ``t``; each batch has all files that are new."""

    def __init__(self, spark: SparkSession, directory: Path, kind: str) -> None:
        self.spark, self.directory, self.kind, self.drivers = spark, directory, kind, 0
        self.lake: Any = lv.connect(str(directory / "lake"), spark=spark, spark_reader="python")
        self.lake.create_table("t", {"id": "long"})
        (directory / "in").mkdir()

    def arrive(self, number: int) -> None:
        hidden = self.directory / "in" / f".{number}.json"
        hidden.write_text(json.dumps({"id": number}))
        hidden.rename(hidden.with_name(f"{number}.json"))

    def run(self, query_id: str = "copy", at: str = "copying", around: Around = as_it_is) -> None:
        """Write all ids that are not negative; ``at`` is the checkpoint's directory."""
        frame = self.spark.readStream.schema("id long").json(str(self.directory / "in"))
        writer = frame.where("id >= 0").writeStream.trigger(availableNow=True)
        if self.kind == "function":
            writer = writer.foreachBatch(around(self.lake.foreach_batch(fill, query_id=query_id)))
        else:
            writer = writer.format("lakevilla").option("lake", self.lake.root)
            writer = writer.option("queryId", query_id).option("table", "t")
        if self.kind == "sink by its name":
            self.spark.conf.set(DEFAULT, str(self.directory))
            writer = writer.queryName(at)
        else:
            writer = writer.option("checkpointLocation", str(self.directory / at))
        try:
            writer.start().awaitTermination()
        finally:
            self.spark.conf.unset(DEFAULT)

    def ids(self) -> list[int]:
        with lv.connect(self.lake.root) as lake:
            return values(lake.snapshot().read("t"))

    def forget_commit(self, at: str = "copying") -> None:
        """Delete Spark's record of the newest batch, as if the driver had died after the commit."""
        commits = self.directory / at / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink()

    def connect_again(self) -> None:
        """Connect as a new driver: new settings, as Spark's processes cache clients by settings."""
        self.lake.close()
        self.drivers += 1
        settings = lv.Settings(lease_seconds=30 + self.drivers)
        self.lake = lv.connect(
            str(self.directory / "lake"), spark=self.spark, spark_reader="python", settings=settings
        )


def fill(txn: lv.Transaction, rows: DataFrame) -> None:
    if not rows.isEmpty():
        txn.append("t", rows)


def only_if_there_are_rows(write: Write) -> Write:
    """Wrap LakeVilla's function for batches so that batches without rows are skipped."""

    def written(rows: DataFrame, number: int) -> None:
        if not rows.isEmpty():
            write(rows, number)

    return written


@pytest.fixture(params=["sink", "sink by its name", "function"])
def stream(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stream]:
    if request.param != "function" and not hasattr(datasource, "DataSourceStreamArrowWriter"):
        pytest.skip("Spark 4.0 has no such writer")
    made = Stream(spark, tmp_path, request.param)
    yield made
    made.lake.close()


def test_a_batch_that_an_older_copy_of_the_checkpoint_plans_again_is_refused(
    stream: Stream,
) -> None:
    stream.arrive(0)
    stream.run()
    shutil.copytree(stream.directory / "copying", stream.directory / "backup")
    stream.arrive(1)
    stream.run()
    shutil.rmtree(stream.directory / "copying")
    shutil.copytree(stream.directory / "backup", stream.directory / "copying")
    stream.arrive(2)  # the copy plans batch 1 with rows 1 and 2
    message = r"stream 'copy' brings batch 1, and lake .* an older copy, .* a query_id of its own"
    for _ in range(2):  # a restart raises the error again
        with pytest.raises(StreamingQueryException, match=message):
            stream.run()
    assert stream.ids() == [0, 1]
    stream.run("copy-2")
    assert stream.ids() == [0, 1, 1, 2]


def test_a_stream_continues_after_its_checkpoint_was_moved(stream: Stream) -> None:
    stream.spark.conf.set("spark.sql.streaming.minBatchesToRetain", "1")
    try:
        for number in range(3):
            stream.arrive(number)
            stream.run()
        stream.forget_commit()
        shutil.copytree(stream.directory / "copying", stream.directory / "moved")
        shutil.rmtree(stream.directory / "copying")
        stream.arrive(3)
        stream.run(at="moved")  # Spark repeats the last batch, which is skipped
        stream.forget_commit("moved")
        stream.run(at="moved")
    finally:
        stream.spark.conf.unset("spark.sql.streaming.minBatchesToRetain")
    assert stream.ids() == [0, 1, 2, 3]


def test_a_stream_reports_that_its_lake_was_replaced_by_an_older_copy(stream: Stream) -> None:
    lake, older, newer = (stream.directory / name for name in ("lake", "older", "newer"))
    stream.arrive(0)
    stream.run()
    shutil.copytree(lake, older)
    for number in (1, 2):
        stream.arrive(number)
        stream.run()
    lake.rename(newer)
    older.rename(lake)
    stream.connect_again()
    stream.arrive(3)
    message = r"'copy' brings batch 3, and lake .* ends with its batch 0: batches 1 to 2 of"
    for _ in range(2):  # a restart raises the error again
        with pytest.raises(StreamingQueryException, match=message):
            stream.run()
    assert stream.ids() == [0]
    lake.rename(older)
    newer.rename(lake)
    stream.connect_again()
    stream.run()
    assert stream.ids() == [0, 1, 2, 3]


def test_batches_without_rows_are_not_reported_as_a_gap(stream: Stream) -> None:
    for number in (0, -1, -2, 3, -4):
        stream.arrive(number)
        stream.run()
    stream.forget_commit()
    stream.run()  # Spark repeats the last batch
    stream.arrive(5)
    stream.run()
    assert stream.ids() == [0, 3, 5]
    (key,) = Path(stream.lake.root, "_lakevilla", "keys").glob("*.json")
    assert json.loads(key.read_bytes())["due"] == 5  # the lake counts batches


def test_a_users_wrapper_of_the_batch_function_may_skip_batches(stream: Stream) -> None:
    if stream.kind != "function":
        pytest.skip("Spark calls the sink itself")
    for number in (0, -1, 2):
        stream.arrive(number)
        stream.run(around=only_if_there_are_rows)
    stream.arrive(3)
    stream.run()
    assert stream.ids() == [0, 2, 3]
