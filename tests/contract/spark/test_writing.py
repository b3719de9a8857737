"""``df.write.format("lakevilla")``: all files that the tasks write are one transaction."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, datasource

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import in_order

Rows = list[dict[str, Any]]

TAKES_STREAMS = hasattr(datasource, "DataSourceStreamArrowWriter")
takes_streams = pytest.mark.skipif(not TAKES_STREAMS, reason="Spark 4.0 has no such writer")


@dataclass
class Sink:
    """A lake, and the Spark session that writes to it."""

    spark: SparkSession
    place: Place
    lake: lv.Lake

    def frame(self, *rows: tuple[object, ...], of: str = "id long, v string") -> DataFrame:
        return self.spark.createDataFrame(list(rows), of)

    def write(
        self, frame: DataFrame, table: str = "t", mode: str = "append", /, **options: object
    ) -> None:
        writer = frame.write.format("lakevilla").option("lake", self.place.root).mode(mode)
        for name, value in options.items():
            writer = writer.option(name, value)  # type: ignore[arg-type]
        writer.save(table)

    def rows(self, table: str = "t") -> Rows:
        return in_order(self.lake.snapshot().read(table))

    def files(self) -> set[str]:
        """Return all stored data files, whether a log names them or not."""
        root = Path(self.place.root)
        return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Iterator[Sink]:
    place = Place(str(tmp_path / "lake"))
    lv.register_data_source(spark)
    with place.connect() as lake:
        yield Sink(spark, place, lake)


@pytest.fixture
def there(sink: Sink) -> Sink:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    sink.lake.create_table("t", pa.table({"id": [1], "v": ["a"]}, schema))
    return sink


@pytest.mark.seam
def test_an_append_is_one_transaction(there: Sink) -> None:
    before = there.lake.snapshot().version
    there.write(there.frame((2, "b"), (3, "c")).repartition(2))
    assert there.rows() == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
    assert there.lake.snapshot().version == before + 1


def test_an_append_to_a_missing_table_creates_it(sink: Sink) -> None:
    sink.write(sink.frame((1, "a"), (2, "b")), "sales/t", partitionBy="v")
    assert sink.rows("sales/t") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    assert sink.place.delta("sales/t").metadata().partition_columns == ["v"]
    assert sink.lake.snapshot().version == 1


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_column_of_a_frame_that_is_not_nullable_accepts_null_later(sink: Sink, mode: str) -> None:
    if mode == "overwrite":
        sink.lake.create_table("t", [{"old": 1}])
    made = sink.spark.range(1).selectExpr("id", "1 AS one", "array(named_struct('a', 2)) AS parts")
    assert not any(field.nullable for field in made.schema)
    sink.write(made, "t", mode, overwriteSchema="true" if mode == "overwrite" else "false")

    sink.write(
        sink.frame((7, None, [None, (None,)]), of="id long, one int, parts array<struct<a: int>>")
    )

    assert sink.rows()[1] == {"id": 7, "one": None, "parts": [None, {"a": None}]}


@pytest.mark.seam
def test_an_overwrite_replaces_all_rows(there: Sink) -> None:
    there.write(there.frame((7, "g")), "t", "overwrite")
    assert there.rows() == [{"id": 7, "v": "g"}]


def test_a_frame_can_overwrite_the_table_that_it_reads(there: Sink) -> None:
    there.lake.run(lambda txn: txn.append("t", [{"id": 2, "v": "b"}]))
    version = there.lake.snapshot().version
    reader = there.spark.read.format("lakevilla").option("lake", there.place.root)
    kept = reader.option("version", version).load("t").where("id > 1")
    there.write(kept, "t", "overwrite", readVersion=version)
    assert there.rows() == [{"id": 2, "v": "b"}]
    with pytest.raises(AnalysisException, match=f"changed since global version {version}"):
        there.write(kept, "t", "overwrite", readVersion=version)


def test_a_task_that_breaks_a_constraint_ends_the_write_with_its_message(there: Sink) -> None:
    there.lake.run(lambda txn: txn.alter("t", add_constraints={"small": "id < 10"}))
    before = there.files()
    with pytest.raises(Exception, match=r"constraint small") as raised:
        there.write(there.frame((2, "b"), (20, "x")).repartition(2))
    assert "InvalidOperation" in str(raised.value)
    assert there.files() == before
    assert there.rows() == [{"id": 1, "v": "a"}]


def test_invalid_options_and_columns_are_reported_before_any_task(there: Sink) -> None:
    frame = there.frame((2, "b", 1), of="id long, v string, w int")
    with pytest.raises(AnalysisException, match="did you mean replaceWhere"):
        there.write(frame, "t", "overwrite", replace_where="id = 1")
    with pytest.raises(AnalysisException, match=r"no column 'w'.*mergeSchema"):
        there.write(frame)
    with pytest.raises(AnalysisException, match="cast"):
        there.write(there.frame(("x",), of="id string"))


@pytest.mark.seam
def test_spark_sql_can_insert_into_a_temporary_view_of_a_table(there: Sink) -> None:
    sql = there.spark.sql
    options = f"(lake '{there.place.root}', table 't')"
    sql(f"CREATE OR REPLACE TEMPORARY VIEW sink USING lakevilla OPTIONS {options}")
    sql("INSERT INTO sink VALUES (2, 'b')")
    assert [row["id"] for row in there.rows()] == [1, 2]
    sql("INSERT OVERWRITE sink VALUES (3, 'c'), (4, 'd')")
    assert [row["id"] for row in there.rows()] == [3, 4]
    # The result is the state at the creation of the view.
    assert [row["id"] for row in sql("SELECT id FROM sink").collect()] == [1]
    sql("DROP VIEW sink")


def test_gc_finds_files_of_a_transaction_that_died_creating_a_table_from_a_frame(
    sink: Sink,
) -> None:
    settings = lv.Settings(max_age_seconds=0)
    with (
        lv.connect(sink.place.root, spark=sink.spark) as lake,
        lv.connect(sink.place.root, settings=settings) as cleaner,
    ):
        txn = lake.transaction()
        txn.create_table("made", sink.frame((1, "a")))
        assert len(sink.files()) == 1
        cleaner.gc()  # as if its driver had died by now
        assert sink.files() == set()
        with pytest.raises(lv.TransactionAborted):
            txn.commit()
        lake.create_table("made", sink.frame((2, "b")))
        cleaner.gc()
        assert len(sink.files()) == 1
        assert lake.doctor().ok


def merges(txn: lv.Transaction, frame: Any) -> None:
    txn.merge("made", frame, "source.id = target.id").when_not_matched_insert_all().execute()


def overwrites(txn: lv.Transaction, frame: Any) -> None:
    txn.overwrite("made", frame, schema_mode="overwrite")


@pytest.mark.parametrize("work", [merges, overwrites])
def test_gc_finds_files_written_to_a_table_whose_creation_was_never_committed(
    sink: Sink, work: Callable[[lv.Transaction, Any], None]
) -> None:
    settings = lv.Settings(max_age_seconds=0)
    with (
        lv.connect(sink.place.root, spark=sink.spark) as lake,
        lv.connect(sink.place.root, settings=settings) as cleaner,
    ):
        txn = lake.transaction()
        txn.create_table("made", pa.schema([("id", pa.int64()), ("v", pa.string())]))
        work(txn, sink.frame((1, "a")))
        assert sink.files() != set()
        cleaner.gc()  # as if its driver had died by now
        assert sink.files() == set()


# -- streams -----------------------------------------------------------------------------


def arrive(directory: Path, number: int, *ids: int) -> None:
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{number}.json"
    hidden.write_text("".join(json.dumps({"id": i, "v": str(i)}) + "\n" for i in ids))
    os.utime(hidden, (number + 1, number + 1))  # the order in which they are read
    hidden.rename(directory / f"{number}.json")


def stream(sink: Sink, tmp_path: Path, checkpoint: str = "checkpoint", **options: str) -> None:
    """Stream all files that exist, one file per batch."""
    source = sink.spark.readStream.schema("id long, v string").option("maxFilesPerTrigger", 1)
    writer = source.json(str(tmp_path / "in")).writeStream.format("lakevilla")
    writer = writer.option("lake", sink.place.root).trigger(availableNow=True)
    for name, value in {"queryId": "copy", **options}.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start("copied")
    query.awaitTermination()


@takes_streams
@pytest.mark.seam
def test_each_batch_of_a_stream_is_one_transaction_and_takes_effect_once(
    sink: Sink, tmp_path: Path
) -> None:
    arrive(tmp_path / "in", 0, 1, 2)
    arrive(tmp_path / "in", 1, 3)
    stream(sink, tmp_path)
    assert [row["id"] for row in sink.rows("copied")] == [1, 2, 3]
    assert sink.lake.snapshot().version == 2
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: path.name)
    newest.unlink()  # as if the driver had been killed before it noted the commit
    newest.with_name(f".{newest.name}.crc").unlink()
    arrive(tmp_path / "in", 2, 4)
    stream(sink, tmp_path)
    assert [row["id"] for row in sink.rows("copied")] == [1, 2, 3, 4]


@takes_streams
@pytest.mark.parametrize("ids", [[1], [1, 2]])  # batch 0 is the last batch, or the one before
def test_a_new_checkpoint_of_the_sink_needs_a_new_query_id(
    sink: Sink, tmp_path: Path, ids: list[int]
) -> None:
    for number, one in enumerate(ids):
        arrive(tmp_path / "in", number, one)
    stream(sink, tmp_path)
    with pytest.raises(StreamingQueryException, match="a query_id of its own"):
        stream(sink, tmp_path, "another")
    stream(sink, tmp_path, "third", queryId="copy-2")
    assert [row["id"] for row in sink.rows("copied")] == sorted(2 * ids)


@takes_streams
def test_a_stream_without_query_id_is_refused(sink: Sink, tmp_path: Path) -> None:
    arrive(tmp_path / "in", 0, 1)
    with pytest.raises(StreamingQueryException, match=r"needs .option\('queryId'"):
        stream(sink, tmp_path, queryId="")


@pytest.mark.skipif(TAKES_STREAMS, reason="later versions take streams")
def test_spark_4_0_refuses_a_stream_with_a_hint_of_foreach_batch(
    sink: Sink, tmp_path: Path
) -> None:
    arrive(tmp_path / "in", 0, 1)
    with pytest.raises(StreamingQueryException, match=r"4\.1 or newer: use .*foreach_batch"):
        stream(sink, tmp_path)
