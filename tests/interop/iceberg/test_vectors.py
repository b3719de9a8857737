"""LakeVilla, Spark, DuckDB and pyiceberg share tables whose deleted rows are marked by vectors."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from tests.interop.iceberg.beside import Beside
from tests.interop.iceberg.test_version_3 import agreed_ids
from tests.support.row_ids_of_iceberg import files_of

MODES = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
V3 = {"format-version": "3", **MODES}
OLD = pa.table({"k": pa.array(range(20), pa.int64()), "v": ["old"] * 20, "p": ["a b"] * 20})


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark rows in files of any size."""
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))


def vectors(beside: Beside) -> list[int]:
    """Return the numbers of rows of the live vectors, after a check that Spark sees the same."""
    theirs = beside.spark.table(f"{beside.name()}.delete_files").collect()
    with beside.connect() as lake:
        ours = [one["rows"] for file in files_of(lake, "t") for one in file["deletes"] or ()]
    assert sorted(ours) == sorted(row["record_count"] for row in theirs)
    return sorted(ours)


@pytest.mark.seam
@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_both_clients_mark_rows_of_one_file(beside: Beside, partition_by: list[str]) -> None:
    with beside.connect() as lake:
        lake.create_table("t", OLD, format="iceberg", partition_by=partition_by, properties=V3)
        ids = {k: row_id for k, (row_id, _) in agreed_ids(beside).items()}

        def ours(change: Callable[[lv.Transaction], object]) -> None:
            lake.run(change)
            agree()

        def theirs(statement: str) -> None:
            beside.sql(statement)
            agree()

        def agree() -> None:
            lake.recover()
            found = agreed_ids(beside)
            beside.agreed()
            assert {k: one for k, (one, _) in found.items() if k < 20} == {
                k: ids[k] for k in found if k < 20
            }

        ours(lambda txn: txn.delete("t", where="k in (1, 2)"))
        assert vectors(beside) == [2]
        theirs("DELETE FROM {t} WHERE k = 3")
        assert vectors(beside) == [3]
        ours(lambda txn: txn.update("t", {"v": "'new'"}, where="k in (4, 5)"))
        assert vectors(beside) == [5]
        theirs("UPDATE {t} SET v = 'spark' WHERE k IN (5, 6)")
        ours(lambda txn: txn.upsert("t", [{"k": 7, "v": "new", "p": "a b"}], keys="k"))
        texts = {4: "new", 5: "spark", 6: "spark", 7: "new"}
        expected = {(k, texts.get(k, "old"), "a b") for k in (0, *range(4, 20))}
        assert set(beside.agreed()) == expected
        beside.call("rewrite_position_delete_files")
        agree()
        ours(lambda txn: txn.delete("t", where="k IN (8, 9)"))
        beside.call("rewrite_manifests")
        agree()
        ours(lambda txn: txn.delete("t", where="k = 10"))
        beside.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
        agree()
        assert vectors(beside) == []
        ours(lambda txn: txn.delete("t", where="k = 11"))
        assert vectors(beside) == [1]
        beside.call("expire_snapshots", "older_than => now(), retain_last => 1")
        agree()
        ours(lambda txn: txn.delete("t", where="k = 12"))
        lake.table("t").optimize()
        agree()
        assert vectors(beside) == []
        assert {row[0] for row in beside.agreed()} == {0, *range(4, 8), *range(13, 20)}
        assert lake.verify().ok


def test_both_clients_mark_rows_of_one_file_of_version_2(beside: Beside) -> None:
    with beside.connect() as lake:

        def ours(change: Callable[[lv.Transaction], object]) -> None:
            lake.run(change)
            lake.recover()
            beside.agreed()

        def theirs(statement: str) -> None:
            beside.sql(statement)
            beside.agreed()

        properties = {**MODES, "format-version": "2"}
        lake.create_table("t", OLD, format="iceberg", partition_by=["p"], properties=properties)
        ours(lambda txn: txn.delete("t", where="k IN (1, 2)"))
        theirs("DELETE FROM {t} WHERE k = 3")
        ours(lambda txn: txn.update("t", {"v": "'new'"}, where="k IN (4, 5)"))
        files = beside.spark.table(f"{beside.name()}.delete_files").collect()
        assert [(row["content"], row["file_format"], row["record_count"]) for row in files] == [
            (1, "PARQUET", 5)
        ]
        theirs("UPDATE {t} SET v = 'spark' WHERE k IN (5, 6)")
        ours(lambda txn: txn.upsert("t", [{"k": 7, "v": "new", "p": "a b"}], keys="k"))
        texts = {4: "new", 5: "spark", 6: "spark", 7: "new"}
        expected = {(k, texts.get(k, "old"), "a b") for k in (0, *range(4, 20))}
        assert set(beside.agreed()) == expected
        beside.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
        ours(lambda txn: txn.delete("t", where="k = 8"))
        # Positions of several files at once, which stay beside those of one.
        beside.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity' = 'partition')")
        theirs("DELETE FROM {t} WHERE k IN (4, 9)")
        ours(lambda txn: txn.delete("t", where="k IN (5, 10)"))
        theirs("DELETE FROM {t} WHERE k = 11")
        beside.call("rewrite_data_files", "options => map('rewrite-all', 'true')")
        beside.agreed()
        ours(lambda txn: txn.delete("t", where="k = 12"))
        beside.call("expire_snapshots", "older_than => now(), retain_last => 1")
        ours(lambda txn: txn.delete("t", where="k = 13"))
        lake.table("t").optimize()
        assert {row[0] for row in beside.agreed()} == {0, 6, 7, *range(14, 20)}
        assert beside.spark.table(f"{beside.name()}.delete_files").count() == 0
        assert lake.verify().ok


def test_a_commit_that_marks_rows_is_done_again_if_spark_has_marked_others_first(
    beside: Beside,
) -> None:
    with beside.connect() as lake:
        lake.create_table("t", OLD, format="iceberg", properties=V3)
        with lake.transaction() as txn:
            txn.update("t", {"v": "'new'"}, where="k in (4, 5)")
            beside.sql("DELETE FROM {t} WHERE k = 3")
        assert vectors(beside) == [3]
        with pytest.raises(lv.ConflictError), lake.transaction() as txn:
            txn.read("t", where="k = 7")
            txn.delete("t", where="k = 8")
            beside.sql("DELETE FROM {t} WHERE k = 7")
    expected = {(k, "new" if k in (4, 5) else "old", "a b") for k in range(20) if k not in (3, 7)}
    assert set(beside.agreed()) == expected


def test_a_vector_has_the_rows_of_position_deletes_from_before_the_upgrade(
    beside: Beside,
) -> None:
    with beside.connect() as lake:
        lake.create_table("t", OLD, format="iceberg", properties={**V3, "format-version": "2"})
        beside.sql("INSERT INTO {t} SELECT id, 'more', 'a b' FROM range(20, 40, 1, 1)")
        beside.sql("DELETE FROM {t} WHERE k IN (3, 21)")
        with lake.transaction() as txn:
            txn.alter("t", set_properties={"format-version": "3"})
        with lake.transaction() as txn:
            txn.delete("t", where="k = 4")
        beside.agreed()
        with lake.transaction() as txn:
            txn.delete("t", where="k = 22")
        beside.agreed()
        assert vectors(beside) == [2, 2]
        beside.sql("DELETE FROM {t} WHERE k IN (5, 23)")
        assert vectors(beside) == [3, 3]
    assert {row[0] for row in beside.agreed()} == set(range(40)) - {3, 4, 5, 21, 22, 23}


def test_a_file_that_spark_spells_otherwise_is_named_as_in_its_own_entry(beside: Beside) -> None:
    modes = ", ".join(f"'{name}' = '{value}'" for name, value in V3.items())
    beside.sql(f"CREATE TABLE {{t}} (k bigint, v string) USING iceberg TBLPROPERTIES ({modes})")
    beside.sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 20, 1, 1)")
    with beside.connect() as lake:
        for k in (1, 2):
            with lake.transaction() as txn:
                txn.delete("t", where=f"k = {k}")
    assert vectors(beside) == [2]
    assert {row[0] for row in beside.agreed()} == {0, *range(3, 20)}
