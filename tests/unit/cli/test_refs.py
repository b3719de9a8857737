"""Refs on the command line: tags are made, listed and deleted; ``--on`` reads the lake at a ref."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.copied import copy_lake


def invoke(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result


def run(*arguments: str, status: int = 0) -> Any:
    """Run a command with ``--json``; return the JSON that it prints."""
    result = invoke(*arguments, "--json", status=status)
    return json.loads(result.stdout or result.stderr)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of two tables with the tag ``closing``, and a later change and a later table."""
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.create_table("sales/orders", [{"id": 1}])
        lake.tag("closing")
        lake.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="true"))
        lake.create_table("later", [{"a": 1}])
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of that lake, for one test."""
    return copy_lake(furnished, tmp_path)


def quantities(root: str, *options: str) -> list[int]:
    return [row["qty"] for row in run("sql", root, "SELECT qty FROM stock", *options)]


def test_a_tag_is_made_listed_and_deleted(root: str) -> None:
    made = run(
        "tag", root, "first", "--at", "2", "-t", "st*", "--protected", "--metadata", "by=finance"
    )
    assert (made["version"], made["kind"], made["protected"]) == (2, "tag", True)
    assert made["metadata"] == {"by": "finance"}
    assert run("refs", root)[1] == made
    assert "finance" in invoke("refs", root).stdout
    assert [row["name"] for row in run("tables", root, "--on", "first")] == ["stock"]
    refused = invoke("tag", root, "first", "--delete", status=2)
    assert "`lakevilla unprotect ROOT first` lifts that" in refused.stderr
    run("unprotect", root, "first")
    run("protect", root, "closing")
    assert run("tag", root, "first", "--delete") == {"deleted": "first"}
    assert [(ref["name"], ref["protected"]) for ref in run("refs", root)] == [("closing", True)]


def test_protected_main_refuses_writes_until_it_is_unprotected(root: str) -> None:
    assert run("protect", root, "main") == {"protected": "main"}
    assert "main is protected" in invoke("refs", root).stderr
    refused = invoke("sql", root, "DELETE FROM stock WHERE true", "--write", status=2)
    assert "main is protected" in refused.stderr
    assert "`lakevilla unprotect ROOT main` lifts that" in refused.stderr
    assert run("unprotect", root, "main") == {"unprotected": "main"}
    assert "protected" not in invoke("refs", root).stderr


@pytest.mark.parametrize("name", ["tags", "branches", "checkout", "untag", "delete-ref"])
def test_an_unknown_command_with_a_name_used_by_other_products_gets_a_hint(
    root: str, name: str
) -> None:
    assert f"there is no command {name}: " in invoke(name, root, "x", status=2).stderr


def test_tag_marks_the_present_state_a_version_a_time_or_another_tag(root: str) -> None:
    with lv.connect(root) as lake:
        instant = lake.history()[1].timestamp
    assert run("tag", root, "now")["version"] == 4
    assert run("tag", root, "number", "--at", "1")["version"] == 1
    assert run("tag", root, "other", "--at", "closing")["version"] == 2
    assert run("tag", root, "time", "--at", instant.isoformat())["version"] == 3
    assert quantities(root, "--on", "time") == [6]


def test_the_command_refs_in_a_lake_without_refs_says_how_to_make_one(tmp_path: Path) -> None:
    assert run("refs", str(tmp_path)) == []
    assert "lakevilla tag ROOT NAME" in invoke("refs", str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("closing",), "`lakevilla tag ROOT closing --delete` first"),
        (("new", "--at", "2026-11-30"), "write it as 2026-01-31T12:00:00Z"),
        (("new", "--at", "2026-11-30T12:00:00"), "--at '2026-11-30T12:00:00' has no time zone"),
        (("new", "--at", "12:61"), "--at '12:61' is not a time"),
        (("new", "--at", "99"), "no global version 99"),
        (("new", "--at", ""), "no ref ''"),
        (("57",), "a number is a version of the lake"),
        (("new", "--tables", "nothing"), "no table name of the lake matches 'nothing'"),
        (("new", "--metadata", "by"), "write KEY=VALUE"),
        (("nobody", "--delete"), "no ref 'nobody': there are 'closing'"),
        (("closing", "--delete", "--protected"), "and nothing else"),
        (("closing", "--delete", "--at", "1"), "and nothing else"),
    ],
)
def test_an_impossible_tag_is_refused(root: str, arguments: tuple[str, ...], said: str) -> None:
    assert said in run("tag", root, *arguments, status=2)["message"]
    assert [ref["name"] for ref in run("refs", root)] == ["closing"]


def test_commands_that_read_use_the_state_of_a_tag(root: str) -> None:
    at = ("--on", "closing")
    assert quantities(root, *at) == [5]
    assert quantities(root, "--on", "main") == quantities(root) == [6]
    assert [row["name"] for row in run("tables", root, *at)] == ["sales/orders", "stock"]
    assert run("snapshot", root, *at)["version"] == 2
    assert [row["name"] for row in run("schema", root, "stock", *at)] == ["sku", "qty"]
    assert [entry["version"] for entry in run("log", root, *at)] == [2, 1]
    assert [entry["version"] for entry in run("log", root, "--table", "stock", *at)] == [0]
    assert [kept["version"] for kept in run("versions", root, "stock", *at)] == [0]
    assert run("changes", root, "--since", "1", *at)["version"] == 2


@pytest.mark.parametrize(
    "command",
    [
        ("tables",),
        ("snapshot",),
        ("log",),
        ("schema", "stock"),
        ("versions", "stock"),
        ("changes", "--since", "1"),
        ("sql", "SELECT 1"),
        ("create", "new", "a:int"),
        ("drop", "stock"),
        ("rename", "stock", "goods"),
        ("optimize", "stock"),
    ],
)
def test_a_missing_ref_is_reported_by_each_command(root: str, command: tuple[str, ...]) -> None:
    name, *rest = command
    error = run(name, root, *rest, "--on", "nobody", status=2)
    assert error["error"] == "ref_not_found"
    assert "there are 'closing'" in error["message"]


@pytest.mark.parametrize(
    "command",
    [
        ("sql", "DELETE FROM stock", "--write"),
        ("create", "new", "a:int"),
        ("drop", "stock"),
        ("drop", "stock", "--delete-data", "--yes"),
        ("rename", "stock", "goods"),
        ("optimize", "stock"),
    ],
)
def test_commands_that_write_are_refused_at_a_tag(root: str, command: tuple[str, ...]) -> None:
    name, *rest = command
    message = run(name, root, *rest, "--on", "closing", status=2)["message"]
    assert "tag 'closing' only reads: leave out --on" in message
    assert run("snapshot", root)["version"] == 4


@pytest.mark.parametrize(
    "command",
    [
        ("tag", "new"),
        ("refs",),
        ("protect", "closing"),
        ("unprotect", "closing"),
        ("register", "stock"),
        ("guard", "stock"),
        ("unguard", "stock"),
        ("vacuum", "stock"),
        ("gc",),
        ("recover",),
        ("doctor",),
        ("txns",),
        ("abort", "x"),
        ("outcome", "x"),
    ],
)
def test_commands_on_the_whole_lake_refuse_option_on(root: str, command: tuple[str, ...]) -> None:
    name, *rest = command
    message = run(name, root, *rest, "--on", "closing", status=2)["message"]
    assert f"{name} takes no --on: it is about the whole lake" in message
    assert "--on" not in invoke(name, "--help").stdout


@pytest.mark.parametrize(
    "options", [("--version", "1"), ("--version", "3"), ("--timestamp", "2026-01-31T12:00:00Z")]
)
def test_option_version_is_refused_together_with_a_tag_of_one_version(
    root: str, options: tuple[str, ...]
) -> None:
    for command in (("sql", "FROM stock"), ("snapshot",)):
        name, *rest = command
        error = run(name, root, *rest, "--on", "closing", *options, status=2)
        assert error["error"] == "version_not_found"
        assert "tag 'closing' is global version 2 alone" in error["message"]


def test_the_time_of_a_ref_has_a_zone_in_json(root: str) -> None:
    created = run("refs", root)[0]["created"]
    assert datetime.fromisoformat(created).tzinfo is not None


def test_a_branch_is_created_written_read_and_deleted(root: str) -> None:
    made = run("branch", root, "etl", "--at", "closing", "--metadata", "by=me")
    assert (made["kind"], made["base_version"], made["metadata"]) == ("branch", 2, {"by": "me"})
    on = ("--on", "etl")
    run("sql", root, "UPDATE stock SET qty = 50", "--write", *on)
    run("create", root, "new", "a:int", *on)
    run("drop", root, "sales/orders", *on)
    assert quantities(root, *on) == [50]
    assert [row["name"] for row in run("tables", root, *on)] == ["new", "stock"]
    assert [row["name"] for row in run("tables", root)] == ["later", "sales/orders", "stock"]
    assert quantities(root) == [6]
    assert [ref["version"] for ref in run("refs", root) if ref["kind"] == "branch"] == [5]
    assert run("branch", root, "etl", "--delete") == {"deleted": "etl"}
    assert [ref["name"] for ref in run("refs", root)] == ["closing"]


def test_deleting_a_branch_as_a_tag_or_a_tag_as_a_branch_is_refused(root: str) -> None:
    run("branch", root, "etl")
    message = run("tag", root, "etl", "--delete", status=2)["message"]
    assert "'etl' is a branch, so nothing is deleted: `lakevilla branch ROOT etl" in message
    message = run("branch", root, "closing", "--delete", status=2)["message"]
    assert "'closing' is a tag, so nothing is deleted: `lakevilla tag ROOT closing" in message
    assert len(run("refs", root)) == 2


def test_a_branch_is_created_written_rebased_merged_and_deleted(root: str) -> None:
    made = run("branch", root, "etl", "--metadata", "by=night")
    assert (made["kind"], made["version"], made["base_version"]) == ("branch", 4, 4)
    with lv.connect(root) as lake:
        lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
    assert [ref["version"] for ref in run("refs", root) if ref["name"] == "etl"] == [5]
    assert sorted(quantities(root, "--on", "etl")) == [-1, 6]
    assert quantities(root) == [6]
    (row,) = run("diff", root, "main", "etl")
    assert (row["table"], row["rows_added"]) == ("stock", 1)
    with lv.connect(root) as lake:
        lake.create_table("visits", [{"day": 1}])
    missing = invoke("sql", root, "SELECT * FROM visits", "--on", "etl", status=2).stderr
    assert "`lakevilla rebase ROOT etl` adds tables that have joined it since" in missing
    assert run("rebase", root, "etl")["base_version"] == 5
    assert "etl continues from global version 5, as 7" in invoke("rebase", root, "etl").stdout
    check = ("--check", "SELECT min(qty) >= 0 FROM stock")
    refused = invoke("merge", root, "etl", *check, status=2)
    assert "does not pass SELECT min(qty) >= 0 FROM stock" in refused.stderr
    with lv.connect(root) as lake:
        lake.on("etl").run(lambda txn: txn.update("stock", {"qty": "1"}, where="qty < 0"))
    assert "etl@8: global version 6 (stock physical)" in invoke("merge", root, "etl", *check).stdout
    done = run("merge", root, "etl", "--delete")
    assert (done["version"], done["merged"]) == (None, "etl@8")
    assert sorted(quantities(root)) == [1, 6]
    run("branch", root, "other")
    assert run("branch", root, "other", "--delete") == {"deleted": "other"}
    assert [ref["name"] for ref in run("refs", root)] == ["closing"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("branch", "closing"), "there is a tag 'closing' already"),
        (("branch", "closing", "--delete"), "'closing' is a tag"),
        (("branch", "etl", "--delete", "--at", "1"), "takes the name of the branch"),
        (("branch", "nobody", "--delete"), "no ref 'nobody'"),
        (("merge", "closing"), "can't be merged"),
        (("rebase", "closing"), "can't be rebased"),
        (("rebase", "nobody"), "no ref 'nobody'"),
        (("merge", "nobody"), "no ref 'nobody'"),
        (("merge", "etl", "--key", "stock"), "write it as TABLE=COLUMN"),
        (("merge", "etl", "--check", "SELECT 1"), "one boolean"),
    ],
)
def test_impossible_branch_commands_are_refused_with_the_reason(
    root: str, arguments: tuple[str, ...], said: str
) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
        lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
    verb, *rest = arguments
    assert said in " ".join(invoke(verb, root, *rest, status=2).stderr.split())


def test_gc_names_each_deleted_path_once(root: str) -> None:
    run("branch", root, "etl")
    run("sql", root, "DELETE FROM stock WHERE true", "--write", "--on", "etl")
    run("branch", root, "etl", "--delete")
    doomed = [one["key"] for one in run("gc", root, "--dry-run")["findings"] if one["key"]]
    shown = invoke("gc", root, "--dry-run").stdout.replace("\n", "")
    assert len(doomed) > 2
    assert [shown.count(key) for key in doomed] == [1] * len(doomed)


def test_refs_fit_a_terminal_of_80_columns(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run("branch", root, "nightly-2026-11-25", "--protected")
    (head, _, *lines) = [line for line in invoke("refs", root).stdout.splitlines() if line.strip()]
    assert head.split() == ["name", "kind", "version", "base", "created", "protected"]
    assert [line.split()[0] for line in lines] == ["closing", "nightly-2026-11-25"]  # uncut


def test_refs_show_how_much_of_a_branch_is_merged(root: str) -> None:
    run("branch", root, "etl")
    run("sql", root, "UPDATE stock SET qty = 9", "--write", "--on", "etl")
    run("merge", root, "etl")
    (_, etl) = run("refs", root)
    assert etl["merged"] == etl["version"]
    assert "merged" in invoke("refs", root).stdout


def test_export_prints_the_path_of_the_exported_table(root: str) -> None:
    found = invoke("export", root, "stock", "exports/stock")
    assert found.stdout.strip() == f"{root}/exports/stock"


def test_tables_are_cloned_and_the_clone_is_deleted(root: str) -> None:
    made = run("clone", root, "sales", "trials/sales", "--at", "2")
    assert (made["name"], made["kind"], made["version"]) == ("trials/sales", "clone", 2)
    assert "trials/sales" in invoke("refs", root).stdout
    assert run("sql", root, 'SELECT id FROM "trials/sales/orders"') == [{"id": 1}]
    invoke("tag", root, "trials/sales", "--delete", status=2)
    assert run("clone", root, "trials/sales", "--delete") == {"deleted": "trials/sales"}
    assert run("clone", root, "stock", "copied", "--copy")["name"] == "copied"
    assert [ref["name"] for ref in run("refs", root)] == ["closing"]
    assert "the path where" in invoke("clone", root, "stock", status=2).stderr
