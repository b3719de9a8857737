"""Commands that create, drop and list; the output of values, limits and control characters."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.demo.checks import Check
from lakevilla.cli.demo.run import Shown, _next_steps, _print
from lakevilla.cli.output import Output
from lakevilla.display import shown_text
from lakevilla.values import plain


def invoke(*arguments: str, status: int = 0, **options: Any) -> Any:
    result = CliRunner().invoke(app, list(arguments), **options)
    assert result.exit_code == status, result.output
    return result


def run(*arguments: str, status: int = 0) -> Any:
    """Run a command with ``--json``; return the JSON that it prints."""
    result = invoke(*arguments, "--json", status=status)
    return json.loads(result.stdout or result.stderr, parse_constant=refuse)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def test_a_narrow_terminal_shortens_no_table_name_and_no_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, name = str(tmp_path / ("a" * 60)), "orders_of_the_year_2026_by_customer"
    invoke("create", root, name, "id:bigint")
    monkeypatch.setenv("COLUMNS", "50")
    shown = invoke("tables", root).stdout
    assert max(map(len, shown.splitlines())) <= 50
    assert "…" not in shown
    assert shown.count("a") >= 60


def test_create_makes_a_table_of_the_given_columns(root: str) -> None:
    made = run(
        "create", root, "sales/orders", "id:bigint", "price:decimal(18,2)", "at:struct<a:int>",
        "--partition-by", "id", "--property", "delta.appendOnly=true",
    )  # fmt: skip
    assert made == {
        "name": "sales/orders", "uri": f"{root}/sales/orders", "format": "delta", "version": 0
    }  # fmt: skip
    assert run("schema", root, "sales/orders") == [
        {"name": "id", "type": "int64", "nullable": True, "partition": True},
        {"name": "price", "type": "decimal128(18, 2)", "nullable": True, "partition": False},
        {"name": "at", "type": "struct<a: int32>", "nullable": True, "partition": False},
    ]
    assert lv.connect(root).table("sales/orders").properties["delta.appendOnly"] == "true"
    assert run("create", root, "sales/orders", "x:int", status=2)["error"] == "table_exists"
    run("create", root, "sales/orders", "x:int", "--exist-ok")
    assert [row["name"] for row in run("schema", root, "sales/orders")] == ["id", "price", "at"]
    assert run("create", root, "ice", "x:int", "--format", "iceberg")["format"] == "iceberg"


def test_create_from_a_file_makes_a_table_with_its_rows(root: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "new.parquet")
    (tmp_path / "new.csv").write_text("sku,qty\ntea,3\n")
    run("create", root, "a", "--from", str(tmp_path / "new.parquet"))
    run("create", root, "b", "--from", str(tmp_path / "new.csv"))
    assert run("sql", root, "SELECT * FROM a, b ORDER BY id") == [
        {"id": 1, "sku": "tea", "qty": 3},
        {"id": 2, "sku": "tea", "qty": 3},
    ]


def test_create_from_csv_keeps_null_and_text_apart_and_takes_types(
    root: str, tmp_path: Path
) -> None:
    file = tmp_path / "new.csv"
    file.write_text('id,code,note\n1,01234,\n2,NA,""\n3,,x\n')
    run("create", root, "a", "--from", str(file), "code:string", "id:bigint")
    rows = run("sql", root, "SELECT * FROM a ORDER BY id")
    assert rows == [
        {"id": 1, "code": "01234", "note": None},
        {"id": 2, "code": "NA", "note": ""},
        {"id": 3, "code": None, "note": "x"},
    ]
    refused = run("create", root, "b", "--from", str(file), "cod:string", status=2)
    assert "has no column 'cod': it has id, code, note" in refused["message"]
    pq.write_table(pa.table({"id": [1]}), tmp_path / "new.parquet")
    typed = ("--from", str(tmp_path / "new.parquet"), "id:int")
    assert "has types of its own" in run("create", root, "b", *typed, status=2)["message"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name columns with their types"),
        (("id",), "write NAME:TYPE"),
        (("id:",), "write NAME:TYPE"),
        (("id:int", "id:text"), "given twice"),
        (("id:nonsense",), "nonsense"),
        (("id:int", "--format", "parquet"), "format"),
        (("id:int", "--property", "x"), "write KEY=VALUE"),
        (("--from", "no.parquet"), "there is no such file"),
        (("--from", "no.xlsx"), "must end in .parquet, .csv"),
    ],
)
def test_create_refuses_an_impossible_table_before_anything_is_written(
    root: str, arguments: tuple[str, ...], said: str
) -> None:
    error = run("create", root, "t", *arguments, status=2)
    assert error["error"] == "invalid_operation"
    assert said in error["message"]
    assert not Path(root).exists()


def test_create_refuses_a_file_whose_content_does_not_match_its_suffix(
    root: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.parquet").write_text("no parquet")
    error = run("create", root, "t", "--from", str(tmp_path / "bad.parquet"), status=2)
    assert "is not a parquet file" in error["message"]
    assert not Path(root).exists()


def test_drop_deletes_the_data_of_a_table_only_after_confirmation(root: str) -> None:
    for name in ("a", "b"):
        run("create", root, name, "id:int")
    assert run("drop", root, "a") == {"dropped": "a", "data_deleted": False}
    assert (Path(root) / "a" / "_delta_log").is_dir()
    assert "--yes" in run("drop", root, "b", "--delete-data", status=2)["message"]
    refused = CliRunner().invoke(app, ["drop", root, "b", "--delete-data"], input="n\n")
    assert refused.exit_code != 0
    assert [row["name"] for row in run("tables", root)] == ["b"]
    invoke("drop", root, "b", "--delete-data", input="y\n")
    assert run("tables", root) == []
    assert not [
        path for path in (Path(root) / "b").rglob("*.json*") if "_lakevilla" not in str(path)
    ]
    assert run("drop", root, "c", status=2)["error"] == "table_not_found"


@pytest.fixture
def changed(root: str) -> str:
    """A lake with tables ``a`` and ``b`` at version 2; later a row in ``a`` and two in ``c``."""
    with lv.connect(root) as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("b", [{"id": 1}])
        with lake.transaction() as txn:
            txn.append("a", [{"id": 2}])
        lake.create_table("c", [{"id": 1}, {"id": 2}])
    return root


def test_changes_since_a_version_are_shown_by_table(changed: str) -> None:
    found = run("changes", changed, "--since", "2")
    assert (found["since"], found["version"]) == (2, 4)
    assert {name: one["total"] for name, one in found["tables"].items()} == {"a": 1, "c": 2}
    (row,) = found["tables"]["a"]["rows"]
    assert (row["id"], row["_change_type"], row["_commit_version"]) == (2, "insert", 3)
    assert run("changes", changed, "--since", "4")["tables"] == {}
    only = run("changes", changed, "--since", "0", "--table", "b", "--version", "3")
    assert {name: one["total"] for name, one in only["tables"].items()} == {"b": 1}
    shown = invoke("changes", changed, "--since", "2", "--limit", "1")
    assert "a: 1 row\n" in shown.stdout
    assert "c: 2 rows" in shown.stdout
    assert "continue with --since 4" in shown.stdout
    assert "1 more row left out: a higher --limit shows it" in shown.stderr
    assert (
        "newest global version is 4" in run("changes", changed, "--since", "9", status=2)["message"]
    )


def test_rows_and_entries_left_out_by_a_limit_are_counted(changed: str) -> None:
    query = "SELECT range AS n FROM range(7)"
    found = invoke("sql", changed, query, "--limit", "3", "--json")
    assert json.loads(found.stdout) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert "4 more rows left out" in found.stderr
    assert invoke("sql", changed, query, "--limit", "7").stderr == ""
    log = invoke("log", changed, "--limit", "1")
    assert "up to 3 more older ones left out" in log.stderr
    assert invoke("log", changed, "--limit", "9").stderr == ""
    assert "1 more older one left out" in invoke("log", changed, "-t", "a", "-n", "1").stderr


def test_versions_lists_the_versions_of_a_table(root: str) -> None:
    with lv.connect(root) as lake:
        lake.create_table("a", [{"id": 1}])
        lake.create_table("ice", [{"id": 1}], format="iceberg")
        lake.run(lambda txn: txn.append("a", [{"id": 2}]))
        first, snapshot_id = lake.table("a").versions()[1], lake.table("ice").snapshot_id
    shown = run("versions", root, "a")
    assert [row["version"] for row in shown] == [1, 0]
    assert datetime.fromisoformat(shown[1].pop("timestamp")) == first.timestamp
    assert shown[1] == {"version": 0}
    assert [row["version"] for row in run("versions", root, "a", "--limit", "1")] == [1]
    assert [row["snapshot_id"] for row in run("versions", root, "ice")] == [snapshot_id]
    assert str(snapshot_id) in invoke("versions", root, "ice").stdout
    assert run("versions", root, "b", status=2)["error"] == "table_not_found"


def test_outcome_reports_a_transaction_by_id_or_idempotency_key(changed: str) -> None:
    with lv.connect(changed) as lake:
        with lake.transaction(idempotency_key="night-1") as txn:
            txn.append("a", [{"id": 9}])
        kept = lake.transaction()
        kept.append("a", [{"id": 10}])
        kept.save()
    assert run("outcome", changed, txn.id)["state"] == "committed"
    found = run("outcome", changed, "--key", "night-1")
    assert found["result"]["global_version"] == 5
    shown = invoke("outcome", changed, txn.id).stdout
    assert "committed as global version 5" in shown
    assert "None" not in shown
    assert run("outcome", changed, kept.id, status=1)["state"] == "aborted"
    assert "or --key" in run("outcome", changed, status=2)["message"]
    kept.abort()


# -- how values are printed ------------------------------------------------------------


def test_null_is_shown_differently_from_an_empty_text(changed: str) -> None:
    query = "SELECT '' AS empty, NULL::VARCHAR AS missing, 1 AS x, 2 AS x"
    lines = invoke("sql", changed, query).stdout.splitlines()
    assert lines[0].split() == ["empty", "missing", "x", "x"]
    assert lines[2].split() == ["NULL", "1", "2"]
    assert run("sql", changed, "SELECT '' AS e, NULL AS m") == [{"e": "", "m": None}]


def test_numbers_without_a_json_form_become_text(changed: str) -> None:
    query = "SELECT 'nan'::DOUBLE AS a, 'inf'::DOUBLE AS b, ['-inf'::FLOAT, 1.5] AS c"
    assert run("sql", changed, query) == [{"a": "NaN", "b": "Infinity", "c": ["-Infinity", 1.5]}]
    assert plain({"x": float("nan")}) == {"x": "NaN"}


def test_control_characters_are_never_written_to_a_terminal(changed: str) -> None:
    query = "SELECT 'a' || chr(27) || '[31m' || chr(10) || chr(8238) || ' :smile: [b]x[/b]' AS v"
    shown = invoke("sql", changed, query).stdout
    assert r"a\x1b[31m\n\u202e :smile: [b]x[/b]" in shown
    assert "\x1b" not in shown
    (row,) = run("sql", changed, query)
    assert row["v"].startswith("a\x1b[31m\n")
    bad = invoke("sql", changed, 'SELECT * FROM "no\x1b[2Jwhere"', status=2)
    assert "\x1b" not in bad.output
    assert shown_text("plain é → 日本") == "plain é → 日本"
    assert shown_text("\x00\ud800\x9b") == r"\x00\ud800\x9b"


def test_rows_written_to_a_pipe_are_not_shortened(
    changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # readline sets it for child processes
    query = f"SELECT '{'x' * 300}' AS wide, 1 AS n"
    assert "x" * 300 in invoke("sql", changed, query).stdout


# -- the demo --------------------------------------------------------------------------


def test_the_table_of_the_demo_fits_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    checks = [
        Check("half of a commit seen before recovery", "deltalake", True, True),
        Check("orders or lines without the other", "LakeVilla", 0, 0),
        Check("lines, distinct lines", "deltalake", (60_000_000,) * 2, (60_000_000,) * 2),
    ]
    _print(Shown(checks=checks), Output(as_json=False))
    lines = capsys.readouterr().out.splitlines()
    assert sum("✓" in line for line in lines) == 3
    assert max(map(len, lines)) <= 80
    assert any("60000000, 60000000" in line for line in lines)
    failed = Check("sum of bank balances", "DuckDB", 1, 2)
    _print(Shown(checks=[failed]), Output(as_json=False))
    assert "2, expected 1" in capsys.readouterr().out


@pytest.mark.parametrize("kept", [None, "/data/my lake"])
def test_the_demo_ends_with_the_next_commands_to_try(kept: str | None) -> None:
    text = _next_steps(kept, options=False)
    assert all(len(line) <= 80 for line in text.splitlines())
    if kept is None:
        assert "--keep" in text
        return
    assert "lakevilla tables '/data/my lake'" in text
    for line in text.splitlines()[1:]:  # only commands that exist
        assert line.split()[1] in {one.name for one in app.registered_commands}
