"""Let Spark commit while transactions are open, and while decided ones are not yet published."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.interop.spark.beside import Beside, look_and_add
from tests.support.tables import add, kinds, values

DELETION_VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
MERGE = """
    MERGE INTO {t} t USING (SELECT 1L AS id, 7L AS balance) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET balance = s.balance
"""

#: Statements that change or delete the row with id 1.
CHANGES = {
    "update": "UPDATE {t} SET balance = 7 WHERE id = 1",
    "delete": "DELETE FROM {t} WHERE id = 1",
    "merge": MERGE,
    "overwrite": "INSERT OVERWRITE {t} VALUES (1, 7)",
}

#: Statements that move rows to other files and change none.
MOVES = {"optimize": "OPTIMIZE {t}", "zorder": "OPTIMIZE {t} ZORDER BY (balance)"}


# -- open transactions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "vectors"),
    [("update", False), ("delete", True), ("merge", True), ("overwrite", False)],
    ids=["update", "delete-vectors", "merge-vectors", "overwrite"],
)
@pytest.mark.seam
@pytest.mark.night
def test_rows_that_a_transaction_has_read_and_spark_then_changes_are_a_conflict(
    bank: Beside, how: str, vectors: bool
) -> None:
    if vectors:
        bank.sql(DELETION_VECTORS)
    with bank.connect() as lake:
        txn = lake.transaction()
        look_and_add(txn, 1, 5)
        bank.sql(CHANGES[how])
        with pytest.raises(lv.ConflictError, match="bank"):
            txn.commit()
        with lake.transaction() as again:
            add(again, 1, 5)
    found = bank.balances()
    assert found.get(1) == (None if how == "delete" else 12)
    rest = {0: 100, 2: 100, 3: 100} if how != "overwrite" else {}
    assert {k: v for k, v in found.items() if k != 1} == rest
    if vectors and how != "overwrite":
        assert any(added.get("deletionVector") for added in bank.actions("add"))


@pytest.mark.seam
@pytest.mark.night
def test_an_update_whose_row_spark_has_changed_is_redone_on_the_new_value(bank: Beside) -> None:
    events: list[lv.Event] = []
    with bank.connect(on_event=events.append) as lake:
        txn = lake.transaction()
        add(txn, 1, 5)
        bank.sql(CHANGES["update"])
        txn.commit()
    assert "redo" in kinds(events)
    assert bank.balances() == {0: 100, 1: 12, 2: 100, 3: 100}


def test_changes_by_spark_of_other_files_or_of_rows_of_another_predicate_are_no_conflict(
    bank: Beside,
) -> None:
    with bank.connect() as lake:
        txn = lake.transaction()
        look_and_add(txn, 1, 5)
        bank.sql("UPDATE {t} SET balance = 9 WHERE id = 3")
        bank.sql("INSERT INTO {t} VALUES (9, 9)")
        txn.commit()
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 9, 9: 9}


def test_a_row_that_spark_inserts_within_a_read_predicate_is_a_conflict(bank: Beside) -> None:
    with bank.connect() as lake:
        txn = lake.transaction()
        total = sum(values(txn.read("bank"), "balance"))
        txn.append("bank", [{"id": 10, "balance": total}])
        bank.sql("INSERT INTO {t} VALUES (9, 9)")
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert sorted(bank.balances()) == [0, 1, 2, 3, 9]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I], ids=str)
def test_a_blind_append_commits_whatever_spark_has_committed(
    bank: Beside, features: lv.Feature
) -> None:
    statements = ["INSERT INTO {t} VALUES (9, 9)", CHANGES["update"], MOVES["optimize"]]
    with bank.connect() as lake:
        for number, statement in enumerate(statements):
            txn = lake.transaction(features)
            txn.append("bank", [{"id": 20 + number, "balance": number}])
            bank.sql(statement)
            txn.commit()
    assert bank.balances() == {0: 100, 1: 7, 2: 100, 3: 100, 9: 9, 20: 0, 21: 1, 22: 2}


def test_an_open_update_is_redone_if_spark_moves_its_files(bank: Beside) -> None:
    events: list[lv.Event] = []
    with bank.connect(on_event=events.append) as lake:
        txn = lake.transaction()
        look_and_add(txn, 1, 5)
        bank.sql(MOVES["optimize"])
        txn.commit()
    assert not {file["dataChange"] for file in _entry_files(bank, 2)} & {True}
    assert "redo" in kinds(events)
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100}


def _entry_files(bank: Beside, version: int) -> list[dict[str, Any]]:
    found = [action.get("add") or action.get("remove") for action in bank.entry(version)]
    files = [file for file in found if file]
    assert files
    return files


def test_spark_is_refused_if_a_transaction_has_changed_what_spark_had_read(bank: Beside) -> None:
    """Spark validates its own commit against LakeVilla's."""
    (before,) = bank.sql("DESCRIBE HISTORY {t} LIMIT 1")
    with bank.connect() as lake:
        with lake.transaction() as txn:
            add(txn, 1, 5)
        assert lake.table("bank").version == before["version"] + 1
    (after,) = bank.sql("DESCRIBE HISTORY {t} LIMIT 1")
    assert after["version"] == before["version"] + 1
    bank.sql("UPDATE {t} SET balance = balance * 2 WHERE id = 1")
    assert bank.balances()[1] == 210


def test_an_open_transaction_commits_rows_though_spark_adds_a_column(bank: Beside) -> None:
    with bank.connect() as lake:
        txn = lake.transaction()
        txn.append("bank", [{"id": 8, "balance": 8}])
        bank.sql("ALTER TABLE {t} ADD COLUMNS (note STRING)")
        txn.commit()
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9, "note": "n"}])
    rows = bank.both()
    assert rows[(9, 9, "n")] == 1
    assert rows[(8, 8, None)] == 1


# -- decided and not yet published ---------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "vectors"),
    [("merge", False), ("delete", True), ("update", True)],
    ids=["merge", "delete-vectors", "update-vectors"],
)
@pytest.mark.seam
def test_a_change_by_spark_of_a_decided_commits_file_is_reconciled_and_reported(
    bank: Beside, how: str, vectors: bool
) -> None:
    if vectors:
        bank.sql(DELETION_VECTORS)
    events: list[lv.Event] = []
    with bank.connect(on_event=events.append) as lake:
        with pytest.raises(lv.ForeignConflict) as raised:
            bank.slip_in(lake, lambda: bank.sql(CHANGES[how]), lambda txn: add(txn, 0, 5))
        assert raised.value.table == "bank"
        assert raised.value.result is not None
        assert lake.outcome(raised.value.result.id).state == "committed"
    assert "reconcile" in kinds(events)
    expected = {0: 105, 1: 7, 2: 100, 3: 100}
    if how == "delete":
        del expected[1]
    assert bank.balances() == expected


def test_a_change_by_spark_of_the_same_row_is_kept_and_the_decided_commit_comes_after_it(
    bank: Beside,
) -> None:
    with bank.connect() as lake, pytest.raises(lv.ForeignConflict):
        bank.slip_in(lake, lambda: bank.sql(CHANGES["update"]), lambda txn: add(txn, 1, 5))
    assert bank.balances()[1] == 12


def test_an_optimize_by_spark_of_a_decided_commit_s_files_is_reconciled_without_an_error(
    bank: Beside,
) -> None:
    events: list[lv.Event] = []
    with bank.connect(on_event=events.append) as lake:
        txn = bank.slip_in(lake, lambda: bank.sql(MOVES["zorder"]), lambda txn: add(txn, 1, 5))
        assert txn.state == "committed"
    assert "reconcile" in kinds(events)
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100}


def test_an_insert_by_spark_concurrently_with_a_decided_commit_is_no_conflict(bank: Beside) -> None:
    with bank.connect() as lake:
        bank.slip_in(
            lake,
            lambda: bank.sql("INSERT INTO {t} VALUES (9, 9)"),
            lambda txn: add(txn, 1, 5),
        )
    assert bank.balances() == {0: 100, 1: 105, 2: 100, 3: 100, 9: 9}


def test_a_decided_commit_is_replayed_if_spark_adds_a_column_to_its_table(bank: Beside) -> None:
    with bank.connect() as lake, pytest.raises(lv.ForeignConflict, match="were replayed"):
        bank.slip_in(
            lake,
            lambda: bank.sql("ALTER TABLE {t} ADD COLUMNS (note STRING)"),
            lambda txn: add(txn, 1, 5),
        )
    assert bank.both() == {
        (0, 100, None): 1, (1, 105, None): 1, (2, 100, None): 1, (3, 100, None): 1,
    }  # fmt: skip


def test_a_decided_commit_is_void_and_reported_where_spark_drops_its_column(
    bank: Beside,
) -> None:
    bank.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
        "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
    )

    def work(txn: lv.Transaction) -> None:
        add(txn, 1, 5)
        txn.append("other", [{"id": 8, "balance": 8}])

    with bank.connect() as lake:
        with pytest.raises(lv.ForeignConflict, match="cancelled"):
            bank.slip_in(lake, lambda: bank.sql("ALTER TABLE {t} DROP COLUMN balance"), work)
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9}])
    assert bank.both() == {(0,): 1, (1,): 1, (2,): 1, (3,): 1, (9,): 1}
    assert sorted(bank.balances("other")) == [0, 8]


def test_a_decided_commit_is_void_and_reported_where_spark_replaces_its_table(
    bank: Beside,
) -> None:
    replaced = "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 5L AS id, 5L AS balance"
    with bank.connect() as lake:
        with pytest.raises(lv.ForeignConflict):
            bank.slip_in(lake, lambda: bank.sql(replaced), lambda txn: add(txn, 1, 5))
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
    assert bank.balances() == {5: 5, 9: 9}


def test_spark_sees_one_table_ahead_of_another_until_both_are_published(bank: Beside) -> None:
    """Readers of single tables share no state; the lake's snapshot returns the versions."""
    seen: list[pa.Table] = []
    versions: list[dict[str, int | None]] = []

    def foreign() -> None:
        seen.append(bank.arrow("bank"))
        with bank.connect() as reader, reader.snapshot() as state:
            versions.append({name: it.version for name, it in state.versions.items()})

    def work(txn: lv.Transaction) -> None:
        add(txn, 1, -5)
        txn.update("other", {"balance": "balance + 5"}, where="id = 0")

    with bank.connect() as lake:
        bank.slip_in(lake, foreign, work)
    assert sum(values(seen[0], "balance")) == 400  # decided, and not in this table's log yet
    assert versions[0]["bank"] is None, "no version of its log shows what the lake shows"
    with bank.connect() as lake, lake.snapshot() as state:
        fitting = {name: it.version for name, it in state.versions.items()}
    assert fitting == {"bank": 2, "other": 1}
    frames = [bank.arrow(name, version) for name, version in fitting.items()]
    assert sum(sum(values(frame, "balance")) for frame in frames) == 500
