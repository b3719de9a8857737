"""Run Spark's upkeep on a lake's tables: VACUUM, RESTORE, checkpoints, log clean-up;
and the guard.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lakevilla as lv
from tests.interop.spark.beside import Beside
from tests.support.places import decide_and_leave
from tests.support.tables import add

CHECKPOINTS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
VACUUM = "VACUUM {t} RETAIN 0 HOURS"


@pytest.fixture
def at_once(bank: Beside) -> Iterator[Beside]:
    """Let Spark vacuum without its check of the retention."""
    key = "spark.databricks.delta.retentionDurationCheck.enabled"
    bank.spark.conf.set(key, "false")
    yield bank
    bank.spark.conf.unset(key)


def commits(bank: Beside, *amounts: int) -> None:
    with bank.connect() as lake:
        for amount in amounts:
            with lake.transaction() as txn:
                add(txn, 1, amount)
                txn.append("other", [{"id": 100 + amount, "balance": amount}])


def age(log: Path) -> None:
    """Make all files of a log forty days older."""
    for path in log.iterdir():
        at = path.stat().st_mtime - 40 * 86400
        os.utime(path, (at, at))


def numbers(log: Path) -> list[int]:
    return sorted(int(path.stem) for path in log.glob("*[0-9].json"))


# -- vacuum --------------------------------------------------------------------------------


@pytest.mark.seam
@pytest.mark.night
def test_commits_survive_vacuum_checkpoint_optimize_and_overwrite_by_spark(
    at_once: Beside,
) -> None:
    """All of them keep the ``txn`` action, which shows that a commit is published."""
    bank = at_once
    commits(bank, 5, 7)
    overwrite = "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE id < 2"
    for statement in ("OPTIMIZE {t}", VACUUM, overwrite, CHECKPOINTS):
        bank.sql(statement)
    newest = max(numbers(bank.log()))
    age(bank.log())
    bank.sql("INSERT INTO {t} VALUES (9, 9)")  # with a checkpoint, and the clean-up after it
    assert numbers(bank.log())[0] >= newest, "Spark cleaned up nothing"
    commits(bank, 1)
    assert bank.balances() == {0: 100, 1: 113, 9: 9}
    assert bank.actions("txn")[-1]["appId"].startswith("lakevilla/")
    with bank.connect() as lake:
        assert lake.recover().ok
        assert lake.doctor().ok
    assert bank.balances() == {0: 100, 1: 113, 9: 9}, "published twice"


def test_a_long_transaction_whose_files_spark_has_vacuumed_fails_and_commits_nothing(
    at_once: Beside,
) -> None:
    """A vacuum without retention deletes files that no log names, those of Delta's own
    writers too.
    """
    bank = at_once
    with bank.connect(settings=lv.Settings(checked_tip_seconds=0.001)) as lake:
        txn = lake.transaction()
        txn.append("bank", [{"id": 9, "balance": 9}])
        txn.save()  # its rows are in a file now
        bank.sql(VACUUM)
        with pytest.raises(lv.TransactionAborted, match="removed by another client's clean-up"):
            txn.commit()
        assert bank.balances() == {0: 100, 1: 100, 2: 100, 3: 100}


def test_a_vacuum_with_the_usual_retention_keeps_files_of_open_and_decided_transactions(
    bank: Beside,
) -> None:
    decide_and_leave(bank.place)
    with bank.connect() as lake:
        txn = lake.transaction()
        txn.append("other", [{"id": 10, "balance": 10}])
        txn.save()
        bank.sql("VACUUM {t}")
        bank.sql("VACUUM {t}", "other")
        txn.commit()
        assert lake.recover().ok
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100}
    assert sorted(bank.balances("other")) == [0, 8, 10]


def test_a_snapshot_of_the_past_whose_files_spark_has_vacuumed_is_reported(at_once: Beside) -> None:
    bank = at_once
    commits(bank, 5, 7)
    with bank.connect() as lake:
        past = lake.history()[-1].version
        with lake.snapshot(version=past) as state:
            assert state.read("bank", where="id = 1").to_pylist() == [{"id": 1, "balance": 105}]
        bank.sql(VACUUM)
    with bank.connect() as lake, lake.snapshot(version=past) as state:
        with pytest.raises(lv.VersionNotFound, match="bank"):
            state.read("bank")
    assert bank.balances()[1] == 112


# -- restore -------------------------------------------------------------------------------


def test_a_restore_to_before_a_commit_undoes_the_commit_and_it_is_not_published_again(
    bank: Beside,
) -> None:
    commits(bank, 5, 7)
    bank.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
    assert bank.balances() == {0: 100, 1: 100, 2: 100, 3: 100}
    with bank.connect() as lake:
        assert lake.recover().ok
    commits(bank, 1)
    assert bank.balances() == {0: 100, 1: 101, 2: 100, 3: 100}
    assert sorted(bank.balances("other")) == [0, 101, 105, 107]


def test_a_restore_under_an_open_transaction_conflicts_with_its_reads(bank: Beside) -> None:
    commits(bank, 5)
    with bank.connect() as lake:
        txn = lake.transaction()
        assert txn.read("bank", where="id = 1").to_pylist() == [{"id": 1, "balance": 105}]
        txn.append("other", [{"id": 9, "balance": 105}])
        bank.sql("RESTORE TABLE {t} TO VERSION AS OF 1")
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert bank.balances()[1] == 100
    assert sorted(bank.balances("other")) == [0, 105]


def test_a_decided_commit_is_replayed_once_though_restores_remove_and_restore_its_file(
    bank: Beside,
) -> None:
    """A commit that is unfit once stays unfit, though the file that it removes is restored."""
    bank.sql("UPDATE {t} SET balance = 50 WHERE id = 1")  # version 2
    decide_and_leave(bank.place)  # the commit removes the file of version 2
    bank.sql("RESTORE TABLE {t} TO VERSION AS OF 1")  # without that file
    with bank.connect() as lake:
        lake.snapshot().read("bank")
    bank.sql("RESTORE TABLE {t} TO VERSION AS OF 2")  # with it
    with bank.connect() as lake:
        lake.recover()
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
    # The update by 5 took effect once; the order of commits decides on which of Spark's values.
    assert bank.balances() == {0: 100, 1: 55, 2: 100, 3: 100, 9: 9}


# -- checkpoints and log clean-up ----------------------------------------------------------


@pytest.mark.seam
def test_a_decided_commit_is_published_after_spark_has_cleaned_up_the_log(
    bank: Beside,
) -> None:
    decide_and_leave(bank.place)
    bank.sql(CHECKPOINTS)
    age(bank.log())
    bank.sql("INSERT INTO {t} VALUES (9, 9)")
    bank.sql("INSERT INTO {t} VALUES (11, 11)")
    assert numbers(bank.log())[0] > 0, "Spark cleaned up nothing"
    with bank.connect() as lake:
        assert lake.recover().ok
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100, 9: 9, 11: 11}
    with bank.connect() as lake:
        lake.recover()
    assert bank.balances()[1] == 105


def test_an_open_transaction_commits_after_a_clean_up_of_the_log_that_it_has_read(
    bank: Beside,
) -> None:
    bank.sql(CHECKPOINTS)
    with bank.connect() as lake:
        txn = lake.transaction()
        add(txn, 1, 5)
        age(bank.log())
        bank.sql("UPDATE {t} SET balance = 7 WHERE id = 1")
        bank.sql("INSERT INTO {t} VALUES (9, 9)")
        try:
            txn.commit()
        except lv.ConflictError:
            with lake.transaction() as txn:
                add(txn, 1, 5)
        entries = numbers(bank.log())
    assert entries[0] > 0
    assert entries == list(range(entries[0], entries[-1] + 1)), "a number was used again"
    assert bank.balances() == {0: 100, 1: 12, 2: 100, 3: 100, 9: 9}


def test_spark_reads_its_checkpoints_and_checksums_next_to_lakevilla_s_commits(
    bank: Beside,
) -> None:
    """Spark writes a ``.crc`` file next to its commits, and checks tables against it."""
    bank.sql("INSERT INTO {t} VALUES (9, 9)")
    commits(bank, *range(1, 11))
    bank.sql("INSERT INTO {t} VALUES (10, 10)")
    assert list(bank.log().glob("*.crc"))
    assert list(bank.log().glob("*.checkpoint*.parquet")), "nobody made a checkpoint"
    assert bank.balances() == {0: 100, 1: 155, 2: 100, 3: 100, 9: 9, 10: 10}
    with bank.connect() as lake:
        for path in bank.log().glob("*[0-9].json"):
            path.unlink() if int(path.stem) < 10 else None
        with lake.transaction() as txn:
            add(txn, 0, 1)
    assert bank.balances()[0] == 101


# -- guarded tables ------------------------------------------------------------------------

WRITES = {
    "insert": "INSERT INTO {t} VALUES (9, 9)",
    "update": "UPDATE {t} SET balance = 0",
    "delete": "DELETE FROM {t} WHERE id = 1",
    "merge": """MERGE INTO {t} t USING (SELECT 1L AS id) s ON t.id = s.id
                WHEN MATCHED THEN DELETE""",
    "overwrite": "INSERT OVERWRITE {t} VALUES (9, 9)",
    "alter": "ALTER TABLE {t} ADD COLUMNS (note STRING)",
    "properties": "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "restore": "RESTORE TABLE {t} TO VERSION AS OF 0",
    "optimize": "OPTIMIZE {t}",
}


def test_spark_reads_a_guarded_table_and_is_refused_to_write_it(bank: Beside) -> None:
    with bank.connect() as lake:
        lake.guard("bank")
        for statement in WRITES.values():
            with pytest.raises((PySparkException, Py4JJavaError), match="lakevilla"):
                bank.sql(statement)
        assert bank.balances() == {0: 100, 1: 100, 2: 100, 3: 100}
        with lake.transaction() as txn:
            add(txn, 1, 5)
        assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100}
        lake.unguard("bank")
    bank.sql(WRITES["insert"])
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100, 9: 9}


def test_spark_is_refused_to_vacuum_a_guarded_table(at_once: Beside) -> None:
    """Spark's connector treats it as a write; other clients may vacuum, as LakeVilla does."""
    bank = at_once
    with bank.connect() as lake:
        lake.guard("bank")
        commits(bank, 5, 7)
        before = set(Path(bank.path("bank")).rglob("*"))
        with pytest.raises(Py4JJavaError, match="lakevilla"):
            bank.sql(VACUUM)
        assert set(Path(bank.path("bank")).rglob("*")) == before
        commits(bank, 1)
    assert bank.balances() == {0: 100, 1: 113, 2: 100, 3: 100}
