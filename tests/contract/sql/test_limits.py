"""A session stops statements that exceed its limits of rows, bytes or time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
import lakevilla.dbapi
from lakevilla.cli.app import app

#: More rows than would fit in memory, and more time than a test takes.
MANY = "SELECT * FROM range(2000000000)"
LONG = "SELECT sum(a.range * b.range) AS n FROM range(3000000) a, range(3000000) b"


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with lv.connect(str(tmp_path / "lake")) as lake:
        lake.create_table("t", [{"n": 1}])
        yield lake


@pytest.mark.parametrize("limit", [{"max_rows": 1000}, {"max_bytes": 1_000_000}])
def test_a_query_stops_at_a_limit_and_its_error_names_the_limit(
    lake: Any, limit: dict[str, int]
) -> None:
    (name,) = limit
    with lake.session(**limit) as session:
        with pytest.raises(lv.InvalidOperation, match=f"{name} = .* raise the limit") as caught:
            session.sql(MANY)
        assert caught.value.reason == "limit"
        assert session.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 1}]
    with pytest.raises(lv.InvalidOperation, match=name):
        lake.sql(MANY, **limit)


def test_a_query_within_the_limits_returns_all_its_rows(lake: Any) -> None:
    with lake.session(max_rows=1000, max_bytes=20_000) as session:
        assert session.sql("SELECT * FROM range(1000)").num_rows == 1000
        with pytest.raises(lv.InvalidOperation, match="max_rows"):
            session.sql("SELECT 1::TINYINT FROM range(1001)")
        with pytest.raises(lv.InvalidOperation, match="max_bytes"):
            session.sql("SELECT range AS a, range AS b, range AS c FROM range(1000)")


@pytest.mark.parametrize("text", [LONG, LONG + ", t", "INSERT INTO t " + LONG])
def test_a_statement_that_exceeds_its_timeout_stops_without_a_change(lake: Any, text: str) -> None:
    with lake.session(timeout_seconds=0.3) as session:
        with pytest.raises(lv.InvalidOperation, match=r"timeout_seconds = 0\.3") as caught:
            session.sql(text)
        assert caught.value.reason == "limit"
    with lake.session(timeout_seconds=60) as session:
        session.sql("SET timeout_seconds = 0.3")
        with pytest.raises(lv.InvalidOperation, match=r"timeout_seconds = 0\.3"):
            session.sql(text)
        session.sql("RESET timeout_seconds")
        assert session.sql("SELECT n FROM t").to_pylist() == [{"n": 1}]
    with pytest.raises(lv.InvalidOperation, match="timeout_seconds"):
        lake.sql(LONG, timeout_seconds=0.3)


def test_a_transaction_can_go_on_after_a_stopped_statement(lake: Any) -> None:
    with lake.session(max_rows=5) as session:
        session.sql("BEGIN")
        session.sql("INSERT INTO t VALUES (2)")
        for text in (MANY, "INSERT INTO t " + MANY):
            with pytest.raises(lv.InvalidOperation, match="max_rows"):
                session.sql(text)
        session.sql("COMMIT")
    assert sorted(lake.read("t")["n"].to_pylist()) == [1, 2]


def test_limits_can_be_set_and_reset_by_statements(lake: Any) -> None:
    with lake.session(max_rows=10) as session:
        session.sql("SET max_rows = 3")
        with pytest.raises(lv.InvalidOperation, match="max_rows = 3"):
            session.sql("SELECT * FROM range(4)")
        session.sql("RESET max_rows")
        with pytest.raises(lv.InvalidOperation, match="max_rows = 10"):
            session.sql("SELECT * FROM range(11)")
    with lake.session() as session:
        session.sql("SET max_rows = 3; SET max_rows = none")
        assert session.sql("SELECT * FROM range(11)").num_rows == 11
        found = {one["name"]: one["value"] for one in session.sql("SHOW SETTINGS").to_pylist()}
        assert (found["max_rows"], found["timeout_seconds"]) == ("default", "default")


@pytest.mark.parametrize(
    "text",
    ["SET max_rows = none", "SET max_rows = 11", "SET timeout_seconds = 61", "SET max_bytes = 2"],
)
def test_statements_do_not_lift_the_limits_of_their_session(lake: Any, text: str) -> None:
    with lake.session(max_rows=10, max_bytes=1, timeout_seconds=60) as session:
        session.sql("SET max_rows = 3; SET max_bytes = 0")
        with pytest.raises(lv.InvalidOperation, match="SET can only lower it"):
            session.sql(text)
        found = {one["name"]: one["value"] for one in session.sql("SHOW SETTINGS").to_pylist()}
        assert (found["max_rows"], found["max_bytes"]) == ("3", "0")


@pytest.mark.parametrize(
    "wrong",
    [{"max_rows": -1}, {"max_bytes": 1.5}, {"max_rows": True}, {"timeout_seconds": 0}],
)
def test_an_invalid_limit_is_refused(lake: Any, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(lv.InvalidOperation, match=name):
        lake.session(**wrong)
    with pytest.raises(lv.InvalidOperation, match=name):
        lake.sql("SELECT 1", **wrong)


def test_a_connection_accepts_limits(lake: Any) -> None:
    with lakevilla.dbapi.connect(lake, max_rows=5) as connection:
        assert len(connection.execute("SELECT * FROM range(5)").fetchall()) == 5
        with pytest.raises(lakevilla.dbapi.OperationalError, match="max_rows = 5"):
            connection.execute(MANY)


@pytest.mark.parametrize("past", [(), ("--version", "1")])
def test_the_command_line_accepts_limits(lake: Any, past: tuple[str, ...]) -> None:
    for arguments, name in ((("--max-rows", "5"), "max_rows"), (("--timeout", "0.3"), "timeout")):
        text = MANY if name == "max_rows" else LONG
        shown = CliRunner().invoke(app, ["sql", lake.root, text, *arguments, *past])
        assert shown.exit_code != 0
        assert name in shown.output
    shown = CliRunner().invoke(app, ["shell", lake.root, "-c", MANY, "--max-bytes", "1000"])
    assert shown.exit_code != 0
    assert "max_bytes" in shown.output
