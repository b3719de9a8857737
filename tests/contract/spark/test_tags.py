"""Tags read by Spark: ``option("ref", name)`` of the data source, ``lake.on`` with ``spark=``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakevilla as lv
from tests.fixtures.spark import connectors
from tests.support.places import Place
from tests.support.tables import accounts, in_order

Format = Literal["delta", "iceberg"]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Tagged:
    """A table ``bank`` with tag ``closing``, all of whose rows were changed after the tag."""

    spark: SparkSession
    place: Place
    kind: Format

    def connect(self) -> lv.Lake[DataFrame]:
        return lv.connect(self.place.root, spark=self.spark)

    def read(self, table: str = "bank", /, **options: object) -> DataFrame:
        reader = self.spark.read.format("lakevilla").option("lake", self.place.root)
        for name, value in options.items():
            reader = reader.option(name, value)  # type: ignore[arg-type]
        return reader.load(table)

    def rows(self, table: str = "bank", /, **options: object) -> Rows:
        return in_order(self.read(table, **options).toArrow())

    def change(self, balance: int) -> None:
        with self.place.connect() as lake:
            lake.run(lambda txn: txn.update("bank", {"balance": balance}, where="true"))

    def clean_up(self) -> None:
        with self.place.connect() as lake:
            lake["bank"].vacuum(0, dry_run=False, enforce_retention_duration=False)
            lake.gc()


@pytest.fixture(params=["delta", "iceberg"])
def tagged(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Any) -> Tagged:
    found = Tagged(spark, Place(str(tmp_path / "lake")), request.param)
    with found.connect() as lake:
        lake.create_table("bank", pa.Table.from_pylist(accounts(4)), format=found.kind)
        lake.run(lambda txn: txn.delete("bank", where="id = 3"))
        lake.tag("closing")
    found.change(7)
    return found


THEN = accounts(3)


@pytest.mark.seam
def test_the_data_source_reads_the_lake_at_a_tag(tagged: Tagged) -> None:
    tagged.clean_up()
    assert tagged.rows(ref="closing") == THEN
    assert tagged.rows(ref="closing", columns="balance", where="id = 1") == [{"balance": 100}]
    assert {row["balance"] for row in tagged.rows(ref="main")} == {7}
    assert tagged.rows() == tagged.rows(ref="main")


def test_a_frame_keeps_the_state_of_its_tag_after_the_tag_is_deleted(tagged: Tagged) -> None:
    frame = tagged.read(ref="closing")
    with tagged.place.connect() as lake:
        lake.tag("other", at="closing")
        lake.delete_ref("closing")
        lake.tag("closing")
    tagged.change(8)
    tagged.clean_up()
    assert in_order(frame.toArrow()) == THEN
    assert {row["balance"] for row in tagged.rows(ref="closing")} == {7}


def test_the_data_source_reads_changes_up_to_a_tag(tagged: Tagged) -> None:
    changes = tagged.rows(ref="closing", startingVersion=2)
    assert [(row["id"], row["_change_type"]) for row in changes] == [(3, "delete")]
    assert len(tagged.rows(startingVersion=2)) > 1


def test_the_error_for_a_missing_table_or_ref_names_it(tagged: Tagged) -> None:
    with tagged.place.connect() as lake:
        lake.create_table("later", [{"a": 1}])
    with pytest.raises(Exception, match="no ref 'nobody': there are 'closing'"):
        tagged.read(ref="nobody")
    with pytest.raises(Exception, match="table later is not in tag 'closing'"):
        tagged.read("later", ref="closing")
    with pytest.raises(Exception, match="give option ref or version, not both"):
        tagged.read(ref="closing", version=1)


def test_a_stream_refuses_option_ref(tagged: Tagged) -> None:
    stream = tagged.spark.readStream.format("lakevilla").option("lake", tagged.place.root)
    frame = stream.option("ref", "closing").option("startingVersion", 1).load("bank")
    with pytest.raises(Exception, match="a stream follows the lake itself, or a branch, and 'clos"):
        query = frame.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()


@pytest.mark.parametrize("how", ["native", "python"])
def test_a_lake_at_a_tag_is_read_by_spark(tagged: Tagged, how: Any) -> None:
    if how == "native" and tagged.kind not in connectors():
        pytest.skip(f"there is no {tagged.kind} connector for this Spark")
    lake = lv.connect(tagged.place.root, spark=tagged.spark, spark_reader=how)
    then = lake.on("closing")
    frame = then.read("bank")
    assert len(in_order(then["bank"].read(version=0).toArrow())) == 4
    tagged.change(9)
    tagged.clean_up()
    assert in_order(frame.toArrow()) == THEN
    assert in_order(then.read("bank", ["balance"], where="id = 1").toArrow()) == [{"balance": 100}]
    assert then.sql("SELECT sum(balance) AS total FROM bank").collect()[0]["total"] == 300
    assert in_order(then["bank"].read().toArrow()) == THEN
    with then.snapshot() as state:
        assert in_order(state.read("bank").toArrow()) == THEN
    with lake.snapshot() as now:
        both = now.read("bank").join(then.read("bank"), "id")
        assert both.count() == 3
    with pytest.raises(lv.InvalidOperation, match="tag 'closing' only reads"):
        then.run(lambda txn: txn.delete("bank"))
    lake.close()


@pytest.mark.connector("delta")
def test_a_tag_keeps_rows_that_spark_without_lakevilla_has_written(tagged: Tagged) -> None:
    if tagged.kind == "iceberg":
        pytest.skip("Spark writes Iceberg tables through a catalog: tests/interop/iceberg")
    where = f"delta.`{tagged.place.uri('bank')}`"
    tagged.spark.sql(f"INSERT INTO {where} VALUES (50, 50)")
    with tagged.connect() as lake:
        lake.tag("with-fifty")
        tagged.spark.sql(f"DELETE FROM {where} WHERE id < 50")
        then = lake.on("with-fifty")
        assert {row["id"] for row in then.read("bank").collect()} == {0, 1, 2, 50}
    assert {row["id"] for row in tagged.rows(ref="with-fifty")} == {0, 1, 2, 50}
    assert tagged.rows() == [{"id": 50, "balance": 50}]


def test_the_data_source_reads_a_branch(tagged: Tagged) -> None:
    with tagged.place.connect() as lake:
        lake.branch("etl", at="closing")
        etl = lake.on("etl")
        etl.run(lambda txn: txn.update("bank", {"balance": "balance + 1"}, where="id = 1"))
        etl.run(lambda txn: txn.append("bank", [{"id": 9, "balance": 9}]))
        expected = in_order(etl.read("bank"))
        frame = tagged.read(ref="etl")
        etl.run(lambda txn: txn.delete("bank", where="true"))
    assert in_order(frame.toArrow()) == expected
    assert expected == [*THEN[:1], {"id": 1, "balance": 101}, THEN[2], {"id": 9, "balance": 9}]
    assert tagged.rows(ref="etl") == []
    assert {row["balance"] for row in tagged.rows()} == {7}
    with pytest.raises(Exception, match="give option ref or version, not both"):
        tagged.read(ref="etl", version=2)
