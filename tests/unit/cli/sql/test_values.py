r"""Values of ``:name`` parameters, given by ``--param`` and in the shell by ``\set``."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.sql.script import value_of, values_of
from lakevilla.errors import InvalidOperation
from tests.support.copied import copy_lake


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", {"sku": "string", "qty": "long", "since": "date"})
        lake.run(
            lambda txn: txn.sql(
                "INSERT INTO stock VALUES ('tea', 5, '2024-02-29'), ('jam', 1, '2024-03-01')"
            )
        )
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of the lake, for one test."""
    return copy_lake(furnished, tmp_path / "lake")


def invoke(name: str, root: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [name, root, *arguments], input=stdin, env={"COLUMNS": None})


def stock(root: str) -> dict[str, int]:
    rows = lv.connect(root).sql("SELECT sku, qty FROM stock").to_pylist()
    return {row["sku"]: row["qty"] for row in rows}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("1.50", Decimal("1.50")),
        ("1e3", 1000.0),
        ("true", True),
        ("null", None),
        ('"5"', "5"),
        ('["tea", 1.5]', ["tea", Decimal("1.5")]),
        ("tea", "tea"),
        ("007", "007"),
        ("NaN", "NaN"),
        ("2024-02-29", "2024-02-29"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_a_parameter_value_is_read_as_json_or_else_as_text(text: str, value: object) -> None:
    found = value_of(text)
    assert found == value
    assert type(found) is type(value)
    assert values_of([f"n={text}"]) == {"n": value}


@pytest.mark.parametrize("given", [["n"], ["=5"], ["a b=5"], ["n=1", "n=2"]])
def test_parameters_that_are_not_name_and_value_are_refused(given: list[str]) -> None:
    with pytest.raises(InvalidOperation, match="parameter"):
        values_of(given)


def test_each_statement_of_a_script_takes_the_parameters_that_it_names(root: str) -> None:
    script = (
        "UPDATE stock SET qty = :qty WHERE since = :day; DELETE FROM stock WHERE sku IN (:gone);"
        "INSERT INTO stock VALUES ('oil', :qty, :day); SELECT 42 AS answer"
    )
    values = ("--param", "qty=9", "-p", "day=2024-02-29", "-p", 'gone=["jam", "gin"]')
    ended = invoke("sql", root, script, "--write", *values)
    assert ended.exit_code == 0, ended.stderr
    assert "42" in ended.stdout
    assert stock(root) == {"tea": 9, "oil": 9}


def test_a_query_of_a_past_version_takes_parameters(root: str) -> None:
    query = "SELECT sku FROM stock WHERE qty > :least"
    shown = invoke("sql", root, query, "--version", "2", "-F", "csv", "-p", "least=3")
    assert shown.stdout == "sku\ntea\n"


@pytest.mark.parametrize("past", [(), ("--version", "2")])
def test_a_parameter_that_no_statement_names_is_refused_before_anything_runs(
    root: str, past: tuple[str, ...]
) -> None:
    write = () if past else ("--write",)
    text = "SELECT 1" if past else "DELETE FROM stock; SELECT :qty"
    ended = invoke("sql", root, text, *write, *past, "-p", "qty=1", "-p", "qyt=1")
    assert ended.exit_code == 2
    assert "no statement has :q" in ended.stderr
    assert len(stock(root)) == 2


def test_a_parameter_without_a_value_is_refused_with_how_to_give_one(root: str) -> None:
    ended = invoke("sql", root, "SELECT :qty")
    assert ended.exit_code == 2
    assert ended.stderr == (
        "invalid_operation: parameter :qty has no value; give it by --param NAME=VALUE, in the "
        "shell by \\set NAME VALUE\n"
    )


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("UPDATE stock SET qty = :qty", "pass --param qty=VALUE"),
        ("SELECT * FROM stock WHERE qty = ?", "pass --param name=VALUE"),
    ],
)
def test_missing_parameters_are_reported_with_the_command_line_option(
    root: str, text: str, advice: str
) -> None:
    ended = invoke("sql", root, text, "--write")
    assert ended.exit_code == 2
    assert advice in ended.stderr
    assert "params" not in ended.stderr


def test_the_shell_keeps_parameter_values_for_later_statements(root: str) -> None:
    script = "\\set qty 7\n\\set\nUPDATE stock SET qty = :qty WHERE sku = :sku; SELECT :qty + 1;\n"
    shown = invoke("shell", root, "--param", "sku=tea", stdin=script)
    assert shown.exit_code == 0, shown.stderr
    assert stock(root) == {"tea": 7, "jam": 1}
    assert "'tea'" in shown.stdout


@pytest.mark.parametrize("line", ["\\set qty", "\\set 5 6"])
def test_the_shell_refuses_a_malformed_set_command(root: str, line: str) -> None:
    ended = invoke("shell", root, "-c", line)
    assert ended.exit_code == 2
    assert "-c:1: " in ended.stderr
