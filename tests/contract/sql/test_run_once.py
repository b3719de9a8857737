"""INSERT OVERWRITE, REPLACE WHERE and CREATE OR REPLACE AS run their query once.

So the rows that the query has read must be unchanged at the commit; a redo removes the rows
that the table has then. With a commit in between, the result is that of some serial order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.session import Session

_CREATE = """
    CREATE TABLE {name} (id BIGINT, k STRING) USING {format} PARTITIONED BY (k);
    INSERT INTO {name} VALUES (1, 'a'), (2, 'b')
"""
#: Statements that replace rows of t, by what their queries read.
_OF_T = (
    "INSERT OVERWRITE t SELECT id + 10, k FROM t",
    "INSERT OVERWRITE t PARTITION (k) SELECT id + 10, k FROM t",
    "INSERT OVERWRITE t PARTITION (k = 'a') SELECT max(id) + 10 FROM t",
    "INSERT INTO t REPLACE WHERE k = 'a' SELECT id + 10, 'a' FROM t",
    "CREATE OR REPLACE TABLE t AS SELECT id + 10 AS id, k FROM t",
)
_OF_S = tuple(text.replace("FROM t", "FROM s") for text in _OF_T)
_OF_NONE = (
    "INSERT OVERWRITE t VALUES (20, 'a')",
    "INSERT OVERWRITE t PARTITION (k) VALUES (20, 'a')",
    "INSERT OVERWRITE t PARTITION (k = 'a') VALUES (20)",
    "INSERT INTO t REPLACE WHERE k = 'a' VALUES (20, 'a')",
    "CREATE OR REPLACE TABLE t AS SELECT 20 AS id, 'a' AS k",
)
#: Statements that another session commits in between.
_BETWEEN = (
    "INSERT INTO t VALUES (3, 'a'), (4, 'b')",
    "DELETE FROM t WHERE id = 1",
    "UPDATE t SET id = 7 WHERE k = 'a'",
    "INSERT INTO s VALUES (5, 'a')",
    "UPDATE s SET id = 8",
)


def _sessions(root: Path, format: str) -> tuple[Session, Session]:
    ours = lv.connect(root).session()
    for name in "ts":
        ours.sql(_CREATE.format(name=name, format=format))
    return ours, lv.connect(root).session()


def _rows(session: Session) -> list[tuple[Any, ...]]:
    found: Any = session.sql("SELECT id, k FROM t ORDER BY ALL")
    return [tuple(row.values()) for row in found.to_pylist()]


def _one_after_the_other(root: Path, format: str, *texts: str) -> list[tuple[Any, ...]]:
    session, _ = _sessions(root, format)
    for text in texts:
        session.sql(text)
    return _rows(session)


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("between", _BETWEEN)
@pytest.mark.parametrize("text", [*_OF_T, *_OF_S, *_OF_NONE])
def test_a_statement_and_a_commit_in_between_have_the_result_of_a_serial_order(
    tmp_path: Path, text: str, between: str, format: str, isolation: str
) -> None:
    ours, other = _sessions(tmp_path / "lake", format)
    ours.sql(f"SET isolation = '{isolation}'")
    ours.sql("BEGIN")
    ours.sql(text)
    other.sql(between)
    orders = ((between, text), (text, between))
    serial = [
        _one_after_the_other(tmp_path / str(number), format, *order)
        for number, order in enumerate(orders)
    ]
    try:
        ours.sql("COMMIT")
    except lv.ConflictError:
        ours.sql("BEGIN")
        ours.sql(text)
        ours.sql("COMMIT")
    assert _rows(other) in serial


@pytest.mark.parametrize("text", [_OF_T[0], _OF_S[0], _OF_S[3], _OF_S[4]])
def test_a_query_run_once_conflicts_if_its_rows_were_changed_meanwhile(
    tmp_path: Path, text: str
) -> None:
    ours, other = _sessions(tmp_path, "delta")
    ours.sql("BEGIN")
    ours.sql(text)
    other.sql(f"UPDATE {text.rstrip(')')[-1]} SET id = id + 100")
    with pytest.raises(lv.ConflictError):
        ours.sql("COMMIT")


@pytest.mark.parametrize("text", [_OF_T[0], _OF_S[3]])
def test_lake_run_runs_a_statement_with_a_query_run_once_again_after_a_conflict(
    tmp_path: Path, text: str
) -> None:
    ours, other = _sessions(tmp_path / "lake", "delta")
    between = f"UPDATE {text[-1]} SET id = id + 100"
    runs = []

    def body(txn: lv.Transaction) -> None:
        txn.sql(text)
        if not runs:
            other.sql(between)
        runs.append(text)

    lv.connect(tmp_path / "lake").run(body)
    assert len(runs) == 2
    assert _rows(ours) == _one_after_the_other(tmp_path / "last", "delta", between, text)
