"""Run Spark's upkeep on a lake's Iceberg tables while LakeVilla transacts on them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import lakevilla as lv
from tests.interop.iceberg.beside import Bag, Beside
from tests.support.stores import interrupted, is_entry

EXPIRE = "older_than => TIMESTAMP '2999-01-01', retain_last => 1"
ALL = "options => map('rewrite-all', 'true')"
ORPHANS = "remove_orphan_files"


@pytest.fixture
def table(beside: Beside) -> Beside:
    """Return a table of three files and rows, made by three commits."""
    with beside.connect() as lake:
        lake.create_table("t", [{"k": 0, "v": 0}], format="iceberg")
        for k in (1, 2):
            with lake.transaction() as txn:
                txn.append("t", [{"k": k, "v": 0}])
    return beside


def pairs(*rows: tuple[int, int]) -> Bag:
    return Counter(rows)


def newest(beside: Beside) -> int:
    return int(beside.metadata()["current-snapshot-id"])


def age(directory: Path, seconds: float = 40 * 86400) -> None:
    """Set the times of all files below a directory back."""
    for path in directory.rglob("*"):
        if path.is_file():
            at = path.stat().st_mtime - seconds
            os.utime(path, (at, at))


def hidden(directory: Path) -> set[Path]:
    """Return the keys of LakeVilla's own objects next to the tables."""
    return {path for path in directory.rglob("*") if "_lakevilla" in path.parts and path.is_file()}


@pytest.mark.seam
@pytest.mark.night
def test_rows_follow_a_rollback_and_a_cherrypick_of_spark(table: Beside) -> None:
    (first, *_) = [row[0] for row in table.sql("SELECT snapshot_id FROM {t}.snapshots")]
    with table.connect() as lake:
        table.call("rollback_to_snapshot", f"snapshot_id => {first}")
        assert table.agreed() == pairs((0, 0))
        with lake.transaction() as txn:
            txn.append("t", [{"k": 5, "v": 5}])
            txn.update("t", {"v": "v + 1"}, where="k = 0")
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
        table.spark.conf.set("spark.wap.id", "staged")
        table.sql("INSERT INTO {t} SELECT 6L, 6L")
        table.spark.conf.unset("spark.wap.id")
        assert table.agreed() == pairs((0, 1), (5, 5))
        with lake.transaction() as txn:
            txn.append("t", [{"k": 7, "v": 7}])
        staged = table.sql(
            "SELECT snapshot_id FROM {t}.snapshots WHERE summary['wap.id'] = 'staged'"
        )[0][0]
        table.call("cherrypick_snapshot", f"snapshot_id => {staged}")
        with lake.transaction() as txn:
            txn.delete("t", where="k = 5")
        assert table.agreed() == pairs((0, 1), (6, 6), (7, 7))
        assert lake.doctor().ok


def test_a_read_in_a_transaction_conflicts_with_a_rollback_of_spark(table: Beside) -> None:
    (first, *_) = [row[0] for row in table.sql("SELECT snapshot_id FROM {t}.snapshots")]
    with table.connect() as lake:
        txn = lake.transaction()
        assert txn.read("t", where="k = 2").num_rows == 1
        txn.append("t", [{"k": 9, "v": 9}])
        table.call("rollback_to_snapshot", f"snapshot_id => {first}")
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert table.agreed() == pairs((0, 0))


@pytest.mark.parametrize("features", [lv.Feature.R, lv.Feature.R | lv.Feature.I])
def test_upkeep_of_spark_during_an_open_transaction_loses_no_row(
    table: Beside, features: lv.Feature
) -> None:
    """Spark rewrites data files and manifests, and deletes the old ones."""
    with table.connect() as lake:
        txn = lake.transaction(features)
        txn.update("t", {"v": "v + 1"}, where="k = 1")
        txn.append("t", [{"k": 3, "v": 3}])
        table.call("rewrite_data_files", ALL)
        table.call("rewrite_manifests")
        table.sql("INSERT INTO {t} SELECT 4L, 4L")
        table.call("expire_snapshots", EXPIRE)
        txn.commit()
        assert table.agreed() == pairs((0, 0), (1, 1), (2, 0), (3, 3), (4, 4))
        table.call("expire_snapshots", EXPIRE)
    with table.connect() as lake:
        with lake.transaction() as txn:
            txn.delete("t", where="k = 0")
        assert table.agreed() == pairs((1, 1), (2, 0), (3, 3), (4, 4))
        assert lake.recover().ok
        assert lake.doctor().ok


def test_a_snapshot_of_the_past_that_spark_has_expired_is_reported(table: Beside) -> None:
    with table.connect() as lake:
        past = lake.history()[-1].version
        with lake.snapshot(version=past) as state:
            assert state.read("t").num_rows == 1
        table.call("rewrite_data_files", ALL)
        table.call("expire_snapshots", EXPIRE)
    with table.connect() as lake, lake.snapshot(version=past) as state:
        with pytest.raises(lv.VersionNotFound, match="t"):
            state.read("t")
    assert table.agreed() == pairs((0, 0), (1, 0), (2, 0))


def test_a_removal_of_orphans_deletes_no_file_of_an_open_transaction(table: Beside) -> None:
    """Spark keeps files younger than three days, and names that begin with an underscore."""
    with table.connect() as lake:
        txn = lake.transaction()
        txn.append("t", [{"k": 3, "v": 3}])
        txn.update("t", {"v": "7"}, where="k = 0")
        txn.save()  # its rows are in files now, which no metadata names
        table.call(ORPHANS)
        txn.commit()
    rows = pairs((0, 7), (1, 0), (2, 0), (3, 3))
    assert table.agreed() == rows
    kept = hidden(Path(table.root))
    (table.path() / "data" / "orphan.parquet").write_bytes(b"nobody's")
    age(table.path())
    (removed,) = [row[0] for row in table.call(ORPHANS)][-1:]
    assert not (table.path() / "data" / "orphan.parquet").exists(), removed
    assert hidden(Path(table.root)) == kept
    assert table.agreed() == rows
    with table.connect() as lake:
        assert lake.recover().ok
        with lake.transaction() as txn:
            txn.update("t", {"v": "v + 1"}, where="k = 3")
        assert lake.doctor().ok
    assert table.agreed() == pairs((0, 7), (1, 0), (2, 0), (3, 4))


def test_a_transaction_whose_files_were_removed_fails_and_commits_nothing(table: Beside) -> None:
    with table.connect(settings=lv.Settings(checked_tip_seconds=0.001)) as lake:
        txn = lake.transaction()
        txn.append("t", [{"k": 9, "v": 9}])
        txn.save()
        age(table.path())
        table.call(ORPHANS)
        with pytest.raises(lv.TransactionAborted, match="removed by another client's clean-up"):
            txn.commit()
    assert table.agreed() == pairs((0, 0), (1, 0), (2, 0))


def test_commits_of_spark_and_of_transactions_alternate_without_loss(table: Beside) -> None:
    expected = {0: 0, 1: 0, 2: 0}
    began = len(table.versions())
    with table.connect() as lake:
        for turn in range(3):
            table.sql(f"INSERT INTO {{t}} SELECT {10 + turn}L, 0L")
            with lake.transaction() as txn:
                txn.update("t", {"v": "v + 1"}, where="k < 2")
                txn.append("t", [{"k": 20 + turn, "v": turn}])
            table.sql("UPDATE {t} SET v = v + 10 WHERE k = 1")
            with lake.transaction() as txn:
                txn.delete("t", where=f"k = {10 + turn}")
            expected[20 + turn] = turn
            expected[0] += 1
            expected[1] += 11
        assert lake.doctor().ok
    assert table.agreed() == Counter(expected.items())
    assert len(table.versions()) == began + 3 * 4
    assert table.versions() == list(range(1, len(table.versions()) + 1))


def test_a_decided_commit_is_published_on_top_of_a_commit_of_spark(table: Beside) -> None:
    """The commit changes two tables; Spark commits to one of them before its publishing."""
    with table.connect() as lake:
        lake.create_table("u", [{"k": 0, "v": 0}], format="iceberg")
        txn = lake.transaction()
        txn.update("t", {"v": "v + 1"}, where="k = 0")
        txn.append("u", [{"k": 1, "v": 1}])
        with interrupted(lake, is_entry("t"), lambda: table.sql("INSERT INTO {t} SELECT 8L, 8L")):
            txn.commit()
        assert table.agreed() == pairs((0, 1), (1, 0), (2, 0), (8, 8))
        assert table.agreed("u") == pairs((0, 0), (1, 1))
        txn = lake.transaction()
        txn.update("t", {"v": "v + 1"}, where="k = 0")
        txn.append("u", [{"k": 2, "v": 2}])
        foreign = "UPDATE {t} SET v = v + 100 WHERE k = 0"
        with interrupted(lake, is_entry("t"), lambda: table.sql(foreign)):
            with pytest.raises(lv.ForeignConflict, match="is committed"):
                txn.commit()
        assert lake.recover().ok
        assert table.agreed() == pairs((0, 102), (1, 0), (2, 0), (8, 8))
        assert table.agreed("u") == pairs((0, 0), (1, 1), (2, 2))


def test_a_table_works_though_spark_deletes_old_metadata_files_after_its_commits(
    table: Beside,
) -> None:
    """The table's properties make Spark delete them; the newest file is still found."""
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true', "
        "'write.metadata.previous-versions-max' = '2')"
    )
    with table.connect() as lake:
        for k in (3, 4, 5):
            table.sql(f"INSERT INTO {{t}} SELECT {k}L, 0L")
            with lake.transaction() as txn:
                txn.update("t", {"v": "v + 1"}, where=f"k = {k}")
        assert len(table.versions()) <= 4
    with table.connect() as lake, lake.transaction() as txn:
        txn.append("t", [{"k": 6, "v": 6}])
    assert table.agreed() == pairs((0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 6))
