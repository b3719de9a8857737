"""CREATE OR REPLACE TABLE, and CREATE TABLE ... LIKE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.api.session import Session
from tests.support.inside import executor

FORMATS = ["delta", "iceberg"]


@pytest.fixture(params=FORMATS)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    session = lv.connect(tmp_path).session()
    session.sql(
        f"CREATE TABLE t (id BIGINT NOT NULL, k STRING COMMENT 'word') USING {request.param} "
        "PARTITIONED BY (k) TBLPROPERTIES ('owner' = 'me');"
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
    )
    return session


def rows(session: Session, text: str) -> list[dict[str, Any]]:
    found = session.sql(text)
    assert not isinstance(found, lv.OperationResult | lv.CommitResult | None)
    return found.to_pylist()


def columns(session: Session) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(session, "DESCRIBE t")]


def properties(session: Session) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows(session, "DESCRIBE DETAIL t")}


def test_create_or_replace_defines_the_table_as_a_new_one(session: Session) -> None:
    session.sql(
        "CREATE OR REPLACE TABLE t (k STRING, id DECIMAL(5, 1) COMMENT 'n', day DATE) "
        "PARTITIONED BY (day) TBLPROPERTIES ('team' = 'us')"
    )
    assert columns(session) == [
        ("k", "string", True, None, None),
        ("id", "decimal(5,1)", True, None, "n"),
        ("day", "date", True, "day", None),
    ]
    assert properties(session)["team"] == "us"
    assert "owner" not in properties(session)
    assert rows(session, "FROM t") == []
    session.sql("INSERT INTO t VALUES ('c', 1.5, NULL)")
    assert len(rows(session, "FROM t")) == 1
    # The old version can still be read.
    assert rows(session, "SELECT k FROM t VERSION AS OF 0 ORDER BY id") == [{"k": "a"}, {"k": "b"}]


def test_the_query_of_create_or_replace_can_read_the_replaced_table(
    session: Session, tmp_path: Path
) -> None:
    format = properties(session)["format"]
    session.sql("CREATE OR REPLACE TABLE t AS SELECT k, max(id) AS n FROM t GROUP BY k")
    wanted = [{"k": "a", "n": 1}, {"k": "b", "n": 2}]
    assert rows(session, "FROM t ORDER BY k") == wanted
    assert properties(session)["format"] == format
    if format == "delta":
        theirs = DeltaTable(tmp_path / "t").to_pyarrow_table()
    else:
        newest = max(tmp_path.glob("t/metadata/v*.metadata.json"), key=lambda p: p.stat().st_mtime)
        theirs = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    assert sorted(theirs.to_pylist(), key=lambda row: row["k"]) == wanted


def test_create_or_replace_creates_a_missing_table(session: Session) -> None:
    session.sql("CREATE OR REPLACE TABLE a.u USING iceberg AS SELECT id FROM t WHERE id > 1")
    assert rows(session, "FROM a.u") == [{"id": 2}]


def test_create_or_replace_shows_in_its_transaction_and_is_undone_by_rollback(
    session: Session,
) -> None:
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 5 AS y; INSERT INTO t VALUES (6)")
    assert rows(session, "FROM t ORDER BY y") == [{"y": 5}, {"y": 6}]
    assert session._lake.table("t").schema.names == ["id", "k"]
    session.sql("ROLLBACK")
    assert rows(session, "SELECT count(*) AS n FROM t") == [{"n": 2}]
    session.sql("BEGIN; DELETE FROM t; CREATE OR REPLACE TABLE t AS SELECT 5 AS y; COMMIT")
    assert rows(session, "FROM t") == [{"y": 5}]


def test_drop_table_if_exists_accepts_a_dropped_table(session: Session) -> None:
    session.sql("BEGIN; DROP TABLE t; DROP TABLE IF EXISTS t")
    with pytest.raises(
        lv.TableNotFound, match="t does not exist: it was dropped by this transaction"
    ):
        session.sql("DROP TABLE t")
    session.sql("ROLLBACK; BEGIN; DROP TABLE IF EXISTS t; DROP TABLE IF EXISTS t; COMMIT")
    assert rows(session, "SHOW TABLES") == []


def test_a_table_that_is_dropped_and_created_in_one_transaction_is_replaced(
    session: Session,
) -> None:
    session.sql("BEGIN; INSERT INTO t VALUES (3, 'c'); DROP TABLE t; CREATE TABLE u (a INT)")
    assert session.transaction is not None
    session.transaction.save()
    with pytest.raises(
        lv.TableNotFound, match="t does not exist: it was dropped by this transaction"
    ):
        session.sql("CREATE TABLE t AS SELECT * FROM t")
    with pytest.raises(lv.InvalidOperation):
        session.sql("CREATE TABLE t (a INT) PARTITIONED BY (b)")
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == ["u"]
    session.sql("CREATE TABLE t AS SELECT 'x' AS b; INSERT INTO t VALUES ('y')")
    saved = executor(session.transaction).state.claims.saved
    assert saved is not None
    assert saved.operations == 1  # only the saved part drops the table
    session.sql("COMMIT")
    assert rows(session, "FROM t ORDER BY b") == [{"b": "x"}, {"b": "y"}]
    assert rows(session, "SELECT count(*) AS n FROM t VERSION AS OF 0") == [{"n": 2}]
    session.sql("DROP TABLE t; CREATE TABLE IF NOT EXISTS t (c INT); DROP TABLE t")
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == ["u"]
    session.sql(
        "CREATE TABLE w (a INT); INSERT INTO w VALUES (1); DROP TABLE w; CREATE TABLE w (b DATE)"
    )
    assert rows(session, "FROM w") == []
    assert [row["name"] for row in rows(session, "DESCRIBE w")] == ["b"]


def test_create_or_replace_also_replaces_rows_appended_meanwhile(session: Session) -> None:
    session.sql("BEGIN; CREATE OR REPLACE TABLE t (id BIGINT, k STRING)")
    session._lake.session().sql("INSERT INTO t VALUES (3, 'c')")
    session.sql("COMMIT")
    assert rows(session, "FROM t") == []


def test_an_insert_into_a_table_replaced_meanwhile_is_a_conflict(session: Session) -> None:
    session.sql("BEGIN; INSERT INTO t VALUES (3, 'c')")
    session._lake.session().sql("CREATE OR REPLACE TABLE t (id STRING, k STRING)")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    assert rows(session, "FROM t") == []


def test_one_of_two_concurrent_replacements_of_a_table_takes_effect(session: Session) -> None:
    other = session._lake.session()
    session.sql("BEGIN; CREATE OR REPLACE TABLE t AS SELECT 1 AS a")
    other.sql("CREATE OR REPLACE TABLE t AS SELECT 'x' AS b")
    try:
        session.sql("COMMIT")
    except lv.ConflictError:
        assert rows(session, "FROM t") == [{"b": "x"}]
    else:
        assert rows(session, "FROM t") == [{"a": 1}]
    # A single statement is run again after a conflict.
    session.sql("CREATE OR REPLACE TABLE t AS SELECT 2 AS a")
    assert rows(session, "FROM t") == [{"a": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE OR REPLACE TABLE t (a INT, A INT)", "twice"),
        ("CREATE OR REPLACE TABLE t (a INT) PARTITIONED BY (b)", "'b'"),
        ("CREATE OR REPLACE TABLE t AS SELECT error('no row') AS a", "no row"),
        ("CREATE OR REPLACE TABLE t AS SELECT nothing FROM t", "nothing"),
    ],
)
def test_a_failed_create_or_replace_leaves_the_table_unchanged(
    session: Session, text: str, message: str
) -> None:
    session.sql("BEGIN")
    with pytest.raises(lv.InvalidOperation) as caught:
        session.sql(text)
    assert message in str(caught.value)
    session.sql("COMMIT")
    assert [column[0] for column in columns(session)] == ["id", "k"]
    assert rows(session, "SELECT count(*) AS n FROM t") == [{"n": 2}]


def test_create_or_replace_keeps_the_format(session: Session) -> None:
    format = properties(session)["format"]
    (other,) = {"delta", "iceberg"} - {format}
    with pytest.raises(lv.InvalidOperation, match=f"is a table of {format}, and keeps its format"):
        session.sql(f"CREATE OR REPLACE TABLE t (a INT) USING {other}")


def test_a_replaced_delta_table_has_only_the_constraints_of_its_new_definition(
    tmp_path: Path,
) -> None:
    session = lv.connect(tmp_path).session()
    session.sql(
        "CREATE TABLE t (a INT, CHECK (a > 0)) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name'); INSERT INTO t VALUES (1)"
    )
    with pytest.raises(lv.InvalidOperation, match="there is no column a"):
        session.sql("CREATE OR REPLACE TABLE t (b INT, CHECK (a > 0))")
    session.sql("CREATE OR REPLACE TABLE t (a INT, b INT, CONSTRAINT less CHECK (a < b))")
    session.sql("INSERT INTO t VALUES (-1, 2)")
    with pytest.raises(lv.InvalidOperation, match="less"):
        session.sql("INSERT INTO t VALUES (3, 2)")
    session.sql("CREATE OR REPLACE TABLE t AS SELECT b AS a, 'x' AS b FROM t")
    assert rows(session, "FROM t") == [{"a": 2, "b": "x"}]
    assert rows(session, "FROM t VERSION AS OF 2") == [{"a": -1, "b": 2}]
    session.sql("CREATE OR REPLACE TABLE t (a INT) TBLPROPERTIES ('delta.appendOnly' = 'true')")
    session.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(lv.InvalidOperation, match="append-only"):
        session.sql("CREATE OR REPLACE TABLE t (a INT)")


def test_create_table_like_copies_the_definition_of_another_table(session: Session) -> None:
    session.sql("CREATE TABLE a.u LIKE t")
    assert rows(session, "DESCRIBE a.u") == rows(session, "DESCRIBE t")
    assert rows(session, "FROM a.u") == []
    session.sql("CREATE OR REPLACE TABLE t LIKE a.u; CREATE TABLE IF NOT EXISTS t LIKE a.u")
    assert rows(session, "FROM t") == []
    with pytest.raises(lv.TableNotFound):
        session.sql("CREATE TABLE v LIKE none")
