"""LakeVilla and Spark mark rows of the same files as deleted, and purge them."""

from __future__ import annotations

from typing import Any

import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from tests.interop.spark.beside import Beside

ALLOWED = {"enableDeletionVectors": "true"}


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark rows in files of any size."""
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))


def marked(beside: Beside) -> list[dict[str, Any]]:
    """Return the files that the last version adds with a vector."""
    last = max(beside.log("t").glob("*[0-9].json"))
    actions = beside.entry(int(last.stem), "t")
    adds = [action["add"] for action in actions if "add" in action]
    return [add for add in adds if add.get("deletionVector")]


@pytest.mark.parametrize("layout", ["", " | PARTITIONED BY (p)"])
@pytest.mark.parametrize("mode", ["none", "name"])
def test_both_clients_mark_rows_of_one_file(beside: Beside, layout: str, mode: str) -> None:
    beside.make(
        f"k BIGINT, v STRING, p STRING{layout}", "t", **ALLOWED, **{"columnMapping.mode": mode}
    )
    beside.sql("INSERT INTO {t} SELECT id, 'old', 'a b' FROM range(0, 20, 1, 1)", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.delete("t", where="k in (1, 2)")
        assert marked(beside)
        beside.sql("DELETE FROM {t} WHERE k = 3", "t")
        with lake.transaction() as txn:
            txn.update("t", {"v": "'new'"}, where="k in (4, 5)")
        (again,) = marked(beside)
        assert again["deletionVector"]["cardinality"] == 5
        beside.sql("UPDATE {t} SET v = 'spark' WHERE k IN (5, 6)", "t")
        with lake.transaction() as txn:
            txn.upsert("t", [{"k": 7, "v": "new", "p": "a b"}], keys="k")
    texts = {4: "new", 5: "spark", 6: "spark", 7: "new"}
    expected = {(k, texts.get(k, "old"), "a b"): 1 for k in (0, *range(4, 20))}
    assert beside.both("t") == expected
    beside.sql("REORG TABLE {t} APPLY (PURGE)", "t")
    assert beside.both("t") == expected
    with beside.connect() as lake, lake.transaction() as txn:
        txn.delete("t", where="k = 19")
    beside.sql("OPTIMIZE {t}", "t")
    del expected[19, "old", "a b"]
    assert beside.both("t") == expected


def test_spark_s_vacuum_leaves_live_vectors(beside: Beside) -> None:
    beside.make("k BIGINT, v STRING", "t", **ALLOWED)
    beside.sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 20, 1, 1)", "t")
    with beside.connect() as lake:
        for k in (1, 2):
            lake.run(lambda txn, k=k: txn.delete("t", where=f"k = {k}"))
    beside.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    beside.sql("VACUUM {t} RETAIN 0 HOURS", "t")
    assert beside.both("t") == {(k, "old"): 1 for k in (0, *range(3, 20))}
    beside.sql("DELETE FROM {t} WHERE k = 3", "t")
    assert beside.both("t") == {(k, "old"): 1 for k in (0, *range(4, 20))}


def test_a_commit_that_marks_rows_is_done_again_if_spark_has_marked_others_first(
    beside: Beside,
) -> None:
    beside.make("k BIGINT, v STRING", "t", **ALLOWED)
    beside.sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 20, 1, 1)", "t")
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.update("t", {"v": "'new'"}, where="k in (4, 5)")
            beside.sql("DELETE FROM {t} WHERE k = 3", "t")
        with pytest.raises(lv.ConflictError), lake.transaction() as txn:
            txn.read("t", where="k = 7")
            txn.delete("t", where="k = 8")
            beside.sql("DELETE FROM {t} WHERE k = 7", "t")
    expected = {(k, "new" if k in (4, 5) else "old"): 1 for k in range(20) if k not in (3, 7)}
    assert beside.both("t") == expected


def test_marked_rows_are_in_the_change_feed_of_both(beside: Beside) -> None:
    beside.make("k BIGINT, v STRING", "t", **ALLOWED, enableChangeDataFeed="true")
    beside.sql("INSERT INTO {t} SELECT id, 'old' FROM range(0, 20, 1, 1)", "t")
    with beside.connect() as lake, lake.transaction() as txn:
        txn.delete("t", where="k = 1")
        txn.update("t", {"v": "'new'"}, where="k = 2")
    found = beside.spark.sql(f"SELECT * FROM table_changes_by_path('{beside.path('t')}', 2)")
    assert {(row["_change_type"], row["k"], row["v"]) for row in found.collect()} == {
        ("delete", 1, "old"),
        ("update_preimage", 2, "old"),
        ("update_postimage", 2, "new"),
    }
