"""``lakevilla diff``, ``rollback`` and ``revert``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app


def run(*arguments: str, status: int = 0) -> Any:
    """Run a command with ``--json``; return the JSON that it prints."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout or result.stderr)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake in which version 1 makes a table, and versions 2 and 3 add a row each."""
    root = str(tmp_path / "lake")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        for sku in ("jam", "oil"):
            lake.run(lambda txn, sku=sku: txn.append("stock", [{"sku": sku, "qty": 1}]))
        lake.tag("opening", at=1)
    return root


def test_diff_shows_changed_tables_or_the_changed_rows_of_one_table(root: str) -> None:
    (row,) = run("diff", root, "opening")
    assert (row["table"], row["rows_added"]) == ("stock", 2)
    assert run("diff", root, "2", "3", "--rows", "stock") == [
        {"sku": "oil", "qty": 1, "_change_type": "insert"}
    ]
    assert run("diff", root, "3", "3") == []


def test_rollback_and_revert_report_how_each_table_was_changed(root: str) -> None:
    assert run("revert", root, "2") == {
        "version": 4,
        "merged": "revert of 2",
        "tables": {"stock": "physical"},
    }
    assert run("rollback", root, "opening", "--table", "st*")["version"] == 5
    assert run("sql", root, "SELECT sku FROM stock") == [{"sku": "tea"}]
    text = CliRunner().invoke(app, ["rollback", root, "opening"]).stdout
    assert text == "rollback to opening: nothing to do (stock kept)\n"


def test_invalid_arguments_of_rollback_and_revert_are_reported(root: str) -> None:
    error = run("rollback", root, "2026-11-25", status=2)
    assert "write it as 2026-01-31T12:00:00Z" in json.dumps(error)
    error = run("revert", root, "2", "--key", "stock", status=2)
    assert "TABLE=COLUMN" in json.dumps(error)
    error = run("revert", root, "2", "--key", "stock=sku,nosuch", status=2)
    assert "no column 'nosuch'" in json.dumps(error)


def test_a_merge_conflict_is_reported_with_its_rows_and_with_command_line_options(
    root: str,
) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
        for at, qty in ((lake, 7), (lake.on("etl"), 8)):
            at.run(lambda txn, qty=qty: txn.update("stock", {"qty": qty}, where="sku = 'tea'"))
    error = run("merge", root, "etl", status=2)
    assert "--key stock=COLUMN" in error["message"]
    assert "rows" not in error

    error = run("merge", root, "etl", "--key", "stock=sku", status=2)
    assert "give --on-conflict ours or theirs" in error["message"]
    (row,) = error["rows"]["stock"]
    assert [row[side]["qty"] for side in ("base", "ours", "theirs")] == [5, 7, 8]
    text = CliRunner().invoke(app, ["merge", root, "etl", "--key", "stock=sku"]).stderr
    assert 'stock: key {"sku": "tea"}  base {"sku": "tea", "qty": 5}  ours' in text


def test_errors_of_a_failed_check_and_an_existing_branch_name_commands(root: str) -> None:
    run("branch", root, "etl")
    error = run("merge", root, "etl", "--check", "SELECT min(qty) > 1 FROM stock", status=2)
    assert error["message"].endswith("read it by --on etl")
    error = run("branch", root, "etl", status=2)
    assert "`lakevilla branch ROOT etl --delete` first" in error["message"]
    error = run("merge", root, "etl", "--check", "SELECT min(qtty) > 1 FROM stock", status=2)
    assert "check 'SELECT min(qtty) > 1 FROM stock': " in error["message"]
