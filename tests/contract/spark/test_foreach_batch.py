"""``lake.foreach_batch``: a batch of a stream is one transaction, and takes effect once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import values

ROOT = Path(__file__).parents[3]
Fn = Callable[[lv.Transaction, Any], object]


@dataclass
class Feed:
    """Files of orders that a stream reads one by one, and the lake that it writes."""

    spark: SparkSession
    place: Place
    directory: Path
    lake: lv.Lake

    def put(self, number: int, *ids: int) -> None:
        """Add a file atomically."""
        self.directory.joinpath("in").mkdir(exist_ok=True)
        hidden = self.directory / "in" / f".{number}.json"
        hidden.write_text("".join(json.dumps({"id": i, "amount": 10 * i}) + "\n" for i in ids))
        os.utime(hidden, (number + 1, number + 1))  # Spark reads files in this order
        hidden.rename(self.directory / "in" / f"{number}.json")

    def run(self, fn: Fn, *, query_id: str = "orders", checkpoint: str = "checkpoint") -> None:
        """Stream all files that exist."""
        stream = self.spark.readStream.schema("id LONG, amount LONG")
        frame = stream.option("maxFilesPerTrigger", 1).json(str(self.directory / "in"))
        query = (
            frame.writeStream.foreachBatch(self.lake.foreach_batch(fn, query_id=query_id))
            .option("checkpointLocation", str(self.directory / checkpoint))
            .start()
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def ids(self, table: str) -> list[int]:
        with self.place.connect() as lake:
            return values(lake.snapshot().read(table))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Iterator[Feed]:
    place = Place(str(tmp_path / "lake"))
    lake = lv.connect(place.root, spark=spark, spark_reader="python")
    schema = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
    lake.create_table("bronze", schema)
    lake.create_table("silver", schema)
    yield Feed(spark, place, tmp_path, lake)
    lake.close()


def both(txn: lv.Transaction, batch: Any) -> None:
    txn.append("bronze", batch)
    txn.upsert("silver", batch.where("amount > 0"), keys="id")


@pytest.mark.seam
@pytest.mark.night
def test_each_batch_writes_its_tables_in_one_transaction(feed: Feed) -> None:
    feed.put(0, 1, 2)
    feed.put(1, 3)
    feed.run(both)
    assert feed.ids("bronze") == feed.ids("silver") == [1, 2, 3]
    with feed.place.connect() as lake:
        assert [entry.tables for entry in lake.history(2)] == [("bronze", "silver")] * 2


@pytest.mark.seam
def test_a_repeated_batch_takes_effect_once(feed: Feed) -> None:
    frame = feed.spark.createDataFrame([(1, 10)], "id LONG, amount LONG")
    calls = []

    def counted(txn: lv.Transaction, batch: Any) -> None:
        calls.append(1)
        both(txn, batch)

    write = feed.lake.foreach_batch(counted, query_id="q")
    write(frame, 0)
    write(frame, 0)
    assert feed.ids("bronze") == [1]
    assert len(calls) == 1
    write(frame, 1)
    with pytest.raises(lv.InvalidOperation, match="brings batch 0, and the lake has its batch 1"):
        write(frame, 0)  # from another checkpoint: Spark never repeats a batch before its last one
    assert len(calls) == 2
    feed.lake.foreach_batch(counted, query_id="another")(frame, 0)
    assert feed.ids("bronze") == [1, 1, 1]


def test_a_restarted_stream_continues_from_the_checkpoint(feed: Feed) -> None:
    feed.put(0, 1)
    feed.run(both)
    feed.put(1, 2)
    feed.run(both)
    feed.run(both)
    assert feed.ids("bronze") == feed.ids("silver") == [1, 2]


def test_a_new_checkpoint_needs_a_new_query_id(feed: Feed) -> None:
    """A new checkpoint counts batches from 0: under the old query_id they would be skipped."""
    feed.put(0, 1)
    feed.run(both)
    with pytest.raises(StreamingQueryException, match=r"batch 0 of checkpoint .* query_id of its"):
        feed.run(both, checkpoint="lost")
    assert feed.ids("bronze") == [1]
    feed.run(both, checkpoint="new", query_id="orders-2")
    assert feed.ids("bronze") == [1, 1]
    assert feed.ids("silver") == [1]


def test_a_batch_function_that_raises_writes_nothing_and_its_batch_is_repeated(feed: Feed) -> None:
    feed.put(0, 1)

    def fails(txn: lv.Transaction, batch: Any) -> None:
        both(txn, batch)
        raise ValueError("no luck today")

    with pytest.raises(StreamingQueryException, match="no luck today"):
        feed.run(fails)
    assert feed.ids("bronze") == feed.ids("silver") == []
    feed.run(both)
    assert feed.ids("bronze") == feed.ids("silver") == [1]


def test_a_batch_function_is_run_again_after_a_conflict(feed: Feed) -> None:
    feed.put(0, 1)
    attempts = []

    def reads_and_writes(txn: lv.Transaction, batch: Any) -> None:
        attempts.append(1)
        seen = values(pa.table(txn.read("silver").toArrow()))
        if len(attempts) == 1:
            with feed.place.connect() as other:
                other.run(lambda t: t.append("silver", pa.table({"id": [9], "amount": [9]})))
        both(txn, batch)
        txn.append("bronze", pa.table({"id": [100 + len(seen)], "amount": [0]}))

    feed.run(reads_and_writes)
    assert len(attempts) == 2
    assert feed.ids("silver") == [1, 9]
    assert feed.ids("bronze") == [1, 101]


PROGRAM = """
import os, signal, sys
from contextlib import nullcontext
sys.path.insert(0, {root!r})
from tests.support.stores import interrupted, is_entry
from tests.fixtures.spark import SMALL
directory, kill_at, kill_in = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
from pyspark.sql import SparkSession
import lakevilla as lv
builder = SparkSession.builder.master("local[2]")
for key, value in SMALL.items():
    builder = builder.config(key, value)
session = builder.config("spark.sql.warehouse.dir", directory + "/wh").getOrCreate()
session.sparkContext.setLogLevel("OFF")
lake = lv.connect(directory + "/lake", spark=session, spark_reader="python")

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def both(txn, batch):
    txn.append("bronze", batch)
    if kill_in == "middle" and current == kill_at:
        die()
    txn.upsert("silver", batch, keys="id")

write = lake.foreach_batch(both, query_id="orders")
current = -1

def batch_of(frame, number):
    global current
    current = number
    dies = kill_in == "decided" and number == kill_at
    with interrupted(lake, is_entry("silver"), die) if dies else nullcontext():
        write(frame, number)
    if kill_in == "committed" and number == kill_at:
        die()

frame = (session.readStream.schema("id LONG, amount LONG").option("maxFilesPerTrigger", 1)
    .json(directory + "/in"))
query = (frame.writeStream.foreachBatch(batch_of)
    .option("checkpointLocation", directory + "/checkpoint").start())
query.processAllAvailable()
query.stop()
lake.close()
session.stop()
"""


def test_batches_take_effect_once_however_the_driver_is_killed(feed: Feed) -> None:
    """Kill the driver within a batch, after its commit is decided, and before Spark records it."""
    for number in range(5):
        feed.put(number, *range(10 * number, 10 * number + 10))

    def driver(kill_at: int, kill_in: str) -> int:
        program = PROGRAM.format(root=str(ROOT))
        arguments = [sys.executable, "-c", program, str(feed.directory), str(kill_at), kill_in]
        done = subprocess.run(
            arguments, cwd=feed.directory, capture_output=True, text=True, timeout=200
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
        return done.returncode

    assert driver(1, "middle") == -signal.SIGKILL
    assert feed.ids("bronze") == feed.ids("silver") == list(range(10))
    assert driver(2, "decided") == -signal.SIGKILL
    assert feed.ids("bronze") == feed.ids("silver") == list(range(30))
    assert driver(3, "committed") == -signal.SIGKILL
    assert feed.ids("bronze") == feed.ids("silver") == list(range(40))
    assert driver(-1, "") == 0
    assert feed.ids("bronze") == feed.ids("silver") == list(range(50))
