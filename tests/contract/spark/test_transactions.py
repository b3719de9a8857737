"""Transactions of a PySpark driver give the same guarantees as others, with DataFrames."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakevilla as lv
from lakevilla.engines.spark.rows import is_frame
from tests.support.inside import inside


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Iterator[lv.Lake]:
    """Return a client of the same lake without Spark."""
    with lv.connect(str(tmp_path)) as made:
        yield made


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*.parquet")}


def accounts(spark: SparkSession, count: int = 4) -> DataFrame:
    return spark.range(count).selectExpr("id", "100L as balance")


def test_a_frame_shows_the_bound_version_however_late_it_is_used(
    spark: SparkSession, lake: Any, other: lv.Lake
) -> None:
    lake.create_table("bank", accounts(spark, 2))
    with lake.snapshot() as now:
        frame = now.read("bank")
        other.run(lambda txn: txn.update("bank", {"balance": "0"}, where="true"))
        assert rows(frame) == [(0, 100), (1, 100)]
        assert rows(now.sql("SELECT id, balance FROM bank")) == [(0, 100), (1, 100)]
    assert rows(lake.snapshot().read("bank")) == [(0, 0), (1, 0)]


def test_a_read_with_a_limit_returns_a_frame_of_that_many_rows(
    spark: SparkSession, lake: Any
) -> None:
    lake.create_table("bank", accounts(spark))
    table = lake.table("bank")
    assert lake.read("bank", where=F.col("id") > 0, limit=2).count() == 2
    assert (table.head(3).count(), table.count(), table.columns) == (3, 4, ["id", "balance"])
    with lake.transaction() as txn:
        frame = txn.read("bank", limit=1)
        txn.update("bank", {"balance": frame["balance"] + 1}, where=frame["id"] == 0)
    assert lake.table("bank").count(where="balance = 101") == 1


@pytest.mark.seam
def test_a_transaction_reads_its_own_uncommitted_writes_and_other_clients_do_not(
    spark: SparkSession, lake: Any, other: lv.Lake
) -> None:
    lake.create_table("bank", accounts(spark))
    with lake.transaction() as txn:
        txn.update("bank", {"balance": "balance - 10"}, where="id = 1")
        txn.append("bank", spark.range(10, 11).selectExpr("id", "1L as balance"))
        txn.delete("bank", where="id = 0")
        assert rows(txn.read("bank")) == [(1, 90), (2, 100), (3, 100), (10, 1)]
        assert rows(txn.read("bank", ["id"], where="balance < 100")) == [(1,), (10,)]
        total = txn.sql("SELECT sum(balance) AS total FROM bank").first()
        assert total is not None
        assert total["total"] == 291
        assert other.snapshot().read("bank").num_rows == 4
    assert rows(lake.snapshot().read("bank")) == [(1, 90), (2, 100), (3, 100), (10, 1)]


def test_a_transaction_is_aborted_if_rows_that_it_read_were_changed(
    spark: SparkSession, lake: Any, other: lv.Lake
) -> None:
    lake.create_table("bank", accounts(spark))
    with pytest.raises(lv.ConflictError):
        with lake.transaction() as txn:
            txn.read("bank", where="id = 1")
            other.run(lambda t: t.update("bank", {"balance": "1"}, where="id = 1"))
            txn.append("bank", accounts(spark, 1))
    assert other.snapshot().read("bank").num_rows == 4


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_column_names_stay_bound_to_fields_when_a_transaction_swaps_the_names(
    spark: SparkSession, lake: Any, other: lv.Lake, kind: str
) -> None:
    """Names are bound once: in Spark SQL, in a redo by Spark and in a redo without Spark."""
    properties = {"delta.columnMapping.mode": "name"} if kind == "delta" else {}
    start = {"a": [1, 2], "b": [10, 20]}
    lake.create_table("t", pa.table(start), format=kind, properties=properties)
    with lake.transaction() as txn:
        txn.alter("t", rename_columns={"a": "x"})
        txn.alter("t", rename_columns={"b": "a"})
        txn.sql("UPDATE t SET x = x + 100 WHERE a = 5")
        assert rows(txn.read("t", where="a = 5")) == []
        txn.delete("t", where="a = 20")
        other.run(lambda t: t.append("t", {"a": [5], "b": [6]}))
    assert rows(lake.snapshot().read("t", ["x", "a"])) == [(1, 10), (5, 6)]
    with lake.transaction() as txn:
        txn.sql("UPDATE t SET x = a WHERE a = 10")

        def swap_back(mine: lv.Transaction) -> None:
            mine.alter("t", rename_columns={"a": "b"})
            mine.alter("t", rename_columns={"x": "a"})

        other.run(swap_back)
    assert rows(lake.snapshot().read("t", ["a", "b"])) == [(5, 6), (10, 10)]


@pytest.mark.seam
@pytest.mark.night
def test_spark_redoes_an_operation_in_conflict(
    spark: SparkSession, lake: Any, other: lv.Lake
) -> None:
    lake.create_table("bank", accounts(spark))
    with lake.transaction() as txn:
        txn.update("bank", {"balance": "balance - 10"}, where="id = 1")
        other.run(lambda t: t.update("bank", {"balance": "balance + 7"}, where="true"))
    assert txn.result.retries >= 1
    assert rows(lake.snapshot().read("bank")) == [(0, 107), (1, 97), (2, 107), (3, 107)]


def test_a_nondeterministic_frame_runs_once_and_a_redo_uses_the_same_rows(
    spark: SparkSession, lake: Any, other: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("bank", accounts(spark))
    lake.create_table("draws", spark.range(0).selectExpr("id", "0D as value"))
    told = tmp_path / "told"

    @F.udf("double")
    def draw(key):
        import random

        with told.open("a") as log:
            log.write(f"{key}\n")
        return random.random()

    drawn = spark.range(4).select("id", draw("id").alias("value"))
    with lake.transaction() as txn:
        txn.append("draws", drawn)
        first = rows(txn.read("draws", where="id < 9"))
        assert sorted(told.read_text().split()) == ["0", "1", "2", "3"]
        merge = txn.merge(
            "bank", spark.range(2).select("id", draw("id").alias("v")), "t.id = s.id",
            source_alias="s", target_alias="t",
        )  # fmt: skip
        merge.when_matched_update({"balance": "t.balance + cast(s.v * 0 + 1 as long)"}).execute()
        other.run(lambda t: t.update("bank", {"balance": "balance + 7"}, where="true"))
        other.run(lambda t: t.append("draws", {"id": [9], "value": [9.0]}))
    assert txn.result.retries >= 1
    assert len(told.read_text().split()) == 6
    assert rows(lake.snapshot().read("draws")) == [*first, (9, 9.0)]
    assert rows(lake.snapshot().read("bank")) == [(0, 108), (1, 108), (2, 107), (3, 107)]


@pytest.mark.seam
@pytest.mark.night
def test_a_transaction_whose_third_job_fails_shows_and_leaves_nothing(
    spark: SparkSession, lake: Any, tmp_path: Path
) -> None:
    for name in ("a", "b", "c", "d"):
        lake.create_table(name, accounts(spark))
    before = files(tmp_path)

    @F.udf("long")
    def broken(key):
        if key == 3:
            raise ValueError("the price list has no row 3")
        return key

    with pytest.raises(lv.InvalidOperation) as caught:
        with lake.transaction() as txn:
            txn.append("a", accounts(spark))
            txn.update("b", {"balance": "0"}, where="true")
            txn.append(
                "c", spark.range(8).repartition(4).select("id", broken("id").alias("balance"))
            )
            txn.append("d", accounts(spark))
    message = str(caught.value)
    assert "append c" in message
    assert "job lakevilla-write-" in message
    assert "ValueError: the price list has no row 3" in message
    with lake.snapshot() as now:
        assert all(rows(now.read(name)) == rows(accounts(spark)) for name in "abcd")
    with lv.connect(str(tmp_path), settings=lv.Settings(max_age_seconds=0)) as cleaner:
        cleaner.gc()
    assert files(tmp_path) == before


def test_a_row_that_breaks_a_constraint_is_reported_and_its_job_leaves_no_file(
    spark: SparkSession, lake: Any, tmp_path: Path
) -> None:
    lake.create_table("bank", accounts(spark))
    lake.run(lambda txn: txn.alter("bank", add_constraints={"solvent": "balance >= 0"}))
    before = files(tmp_path)
    bad = spark.range(100).repartition(4).selectExpr("id", "id - 50 as balance")
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match="constraint solvent"):
            txn.append("bank", bad)
        with pytest.raises(lv.InvalidOperation, match="constraint solvent"):
            txn.update("bank", {"balance": "-1"}, where="id = 2")
        with pytest.raises(lv.InvalidOperation, match=r"overflow|range"):
            txn.update("bank", {"balance": "balance * 9223372036854775807"}, where="true")
        assert files(tmp_path) == before
        txn.update("bank", {"balance": "1"}, where="id = 2")  # the transaction can go on
    assert rows(lake.snapshot().read("bank", where="id = 2")) == [(2, 1)]


@pytest.mark.seam
def test_verbs_accept_the_same_data_as_on_a_lake_without_spark(
    spark: SparkSession, lake: Any
) -> None:
    lake.create_table("bank", pa.table({"id": [1], "balance": [5]}))
    with lake.transaction() as txn:
        txn.append("bank", [{"id": 2, "balance": 6}])
        txn.upsert("bank", pa.table({"id": [2, 3], "balance": [7, 8]}), "id")
        txn.sql("INSERT INTO bank SELECT id + 100, balance FROM more", views={
            "more": pa.table({"id": [1], "balance": [0]})
        })  # fmt: skip
        txn.overwrite("bank", spark.range(1, 2).selectExpr("id", "50L as balance"), where="id = 1")
    assert rows(lake.snapshot().read("bank")) == [(1, 50), (2, 7), (3, 8), (101, 0)]


def test_upsert_refuses_null_keys_and_duplicate_keys(
    spark: SparkSession, lake: Any, tmp_path: Path
) -> None:
    lake.create_table("bank", accounts(spark))
    with lake.transaction() as txn:
        with pytest.raises(lv.InvalidOperation, match=r"upsert bank: .*id has NULL"):
            txn.upsert("bank", spark.sql("SELECT cast(null AS long) id, 1L balance"), "id")
        with pytest.raises(lv.InvalidOperation, match="two rows for one key"):
            txn.upsert("bank", spark.sql("SELECT id % 3 AS id, id AS balance FROM range(9)"), "ID")
        with pytest.raises(lv.InvalidOperation, match="no key column nr"):
            txn.upsert("bank", accounts(spark), "nr")
        done = txn.upsert("bank", accounts(spark, 6), "id")
        assert (done.rows_updated, done.rows_inserted) == (4, 2)
        nothing = txn.upsert("bank", accounts(spark).where("id > 100"), "id")
        assert (nothing.rows_updated, nothing.rows_inserted) == (0, 0)


def test_columns_may_have_any_name_that_a_table_allows(spark: SparkSession, lake: Any) -> None:
    odd = spark.range(3).selectExpr("id AS `a.b`", "'x' AS `c-d`", "id * 2 AS `e f`")
    lake.create_table("odd", odd, properties={"delta.columnMapping.mode": "name"})
    with lake.transaction() as txn:
        txn.append("odd", odd)
        changed = spark.sql("SELECT 2L AS `a.b`, 'y' AS `c-d`, 0L AS `e f`")
        with pytest.raises(lv.InvalidOperation, match="two rows for one key"):
            txn.upsert("odd", changed.union(changed), "a.b")
        assert txn.upsert("odd", changed, "a.b").rows_updated == 2
        assert txn.read("odd", ["a.b", "e f"], where='"a.b" = 1').count() == 2


def test_each_reader_refuses_unknown_and_duplicate_columns(spark: SparkSession, lake: Any) -> None:
    lake.create_table("bank", accounts(spark))
    python = lv.connect(lake.root, spark=spark, spark_reader="python")
    for one in (lake, python):
        with one.snapshot() as now:
            for columns in (["nope"], ["ID"], ["id", "id"]):
                with pytest.raises(lv.InvalidOperation, match="bank"):
                    now.read("bank", columns)


@pytest.mark.connector("delta")
def test_lengths_of_char_and_varchar_are_checked_and_both_readers_compare_blanks_alike(
    spark: SparkSession, lake: Any
) -> None:
    path = f"{lake.root}/words"
    spark.sql(f"CREATE TABLE delta.`{path}` (c char(3), v varchar(3)) USING delta")
    lake.run(lambda txn: txn.append("words", [{"c": "ab", "v": "ab "}, {"c": "abc", "v": None}]))
    for column in ("c", "v"):
        for rows_ in ([{column: "abcd"}], spark.sql(f"SELECT 'abcd' AS {column}")):
            with pytest.raises(lv.InvalidOperation, match=rf"char\(3\) of column {column}"):
                lake.run(lambda txn, given=rows_: txn.append("words", given))
    with pytest.raises(lv.InvalidOperation, match=r"varchar\(3\) of column v"):
        lake.run(lambda txn: txn.update("words", {"v": "'long'"}, where="true"))
    python = lv.connect(lake.root, spark=spark, spark_reader="python")
    for where in ("c = 'ab'", "c = 'ab '", "v = 'ab'", "v = 'ab '"):
        found = [rows(one.snapshot().read("words", where=where)) for one in (lake, python)]
        assert found[0] == found[1]


@pytest.mark.connector("delta")
def test_spark_settings_that_skip_files_or_shift_dates_do_not_change_reads(
    spark: SparkSession, lake: Any
) -> None:
    """Rows that a read left out would be lost when the rows read are written again."""
    early = date(1001, 1, 1)
    lv.connect(lake.root).create_table("days", pa.table({"day": [early, date(2026, 1, 1)]}))
    native = lv.connect(lake.root, spark=spark, spark_reader="native")
    for name, value in (
        ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
        ("spark.sql.files.ignoreMissingFiles", "true"),
    ):
        spark.conf.set(name, value)
        try:
            found = lake.read("days").toArrow()["day"].to_pylist()
            with pytest.raises(lv.InvalidOperation, match=f"days: with {name}={value} Spark's own"):
                native.read("days")
        finally:
            spark.conf.unset(name)
        assert sorted(found) == [early, date(2026, 1, 1)]
    assert native.read("days").count() == 2


def test_a_pickled_lake_does_not_include_its_spark_session(lake: Any, spark: SparkSession) -> None:
    lake.create_table("bank", accounts(spark))
    again = pickle.loads(pickle.dumps(lake))
    assert [table.name for table in again.tables()] == ["bank"]
    with pytest.raises(lv.InvalidOperation, match="connect again with spark="):
        again.snapshot().read("bank")
    with inside(again).client.beside(accounts(spark)):
        assert again.snapshot().read("bank").count() == 4


def test_past_states_and_changes_are_returned_as_frames(spark: SparkSession, lake: Any) -> None:
    lake.create_table("bank", accounts(spark, 2))
    lake.run(lambda txn: txn.update("bank", {"balance": "7"}, where="id = 0"))
    created = lake.history()[-1].version
    assert rows(lake.snapshot(version=created).read("bank")) == [(0, 100), (1, 100)]
    with lake.snapshot() as now:
        changes = now.changes("bank", since=created)
    assert is_frame(changes)
    assert {row["_change_type"] for row in changes.collect()} == {"insert", "delete"}
    assert lake.snapshot().scan("bank").read_all().num_rows == 2


def test_optimize_and_doctor_work_on_a_lake_with_spark(spark: SparkSession, lake: Any) -> None:
    lake.create_table("bank", accounts(spark).repartition(4))
    lake.table("bank").optimize()
    assert rows(lake.snapshot().read("bank")) == rows(accounts(spark))
    assert lake.doctor().ok


def test_upsert_treats_keys_that_are_equal_in_sql_as_one_key(
    spark: SparkSession, lake: Any
) -> None:
    lake.create_table(
        "t", spark.sql("SELECT 0.0D AS x, 1L AS n UNION ALL SELECT double('NaN'), 2L")
    )
    twice = spark.sql("SELECT 0.0D AS x, 1L AS n UNION ALL SELECT -0.0D, 2L")
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation, match="two rows for one"):
        txn.upsert("t", twice, "x")
    with lake.transaction() as txn:
        txn.upsert(
            "t", spark.sql("SELECT -0.0D AS x, 3L AS n UNION ALL SELECT double('NaN'), 4L"), "x"
        )
    assert sorted(row["n"] for row in lake.snapshot().read("t").collect()) == [3, 4]
