"""``lakevilla sql``: the output formats of query results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.copied import copy_lake


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}])
        lake.create_table("wide", [{f"column_{n}": f"{n} " * 40 for n in range(30)}])
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of the lake, for one test."""
    return copy_lake(furnished, tmp_path)


def invoke(*arguments: str, columns: int | None = None) -> Result:
    env = {"COLUMNS": None if columns is None else str(columns)}
    return CliRunner().invoke(app, list(arguments), env=env)


STOCK = "SELECT sku, qty FROM stock ORDER BY qty"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("csv", "sku,qty\njam,1\ntea,5\n"),
        ("ndjson", '{"sku": "jam", "qty": 1}\n{"sku": "tea", "qty": 5}\n'),
        ("markdown", "| sku | qty |\n| --- | ---: |\n| jam | 1 |\n| tea | 5 |\n"),
    ],
)
def test_query_results_are_printed_in_the_requested_format(
    root: str, form: str, expected: str
) -> None:
    assert invoke("sql", root, STOCK, "--format", form).stdout == expected


def test_option_json_equals_format_json(root: str) -> None:
    rows = [{"sku": "jam", "qty": 1}, {"sku": "tea", "qty": 5}]
    assert json.loads(invoke("sql", root, STOCK, "--format", "json").stdout) == rows
    assert json.loads(invoke("sql", root, STOCK, "--json").stdout) == rows


def test_an_unknown_format_is_refused_and_the_error_lists_the_formats(root: str) -> None:
    refused = invoke("sql", root, STOCK, "--format", "parquet")
    assert refused.exit_code == 2
    assert "ndjson" in refused.stderr


def test_each_row_is_one_line_in_a_terminal_and_omitted_columns_are_counted(root: str) -> None:
    shown = invoke("sql", root, "SELECT * FROM wide", columns=60)
    assert len(shown.stdout.splitlines()) == 3
    assert max(map(len, shown.stdout.splitlines())) <= 60
    assert "no room for 25 of 30 columns" in shown.stderr


@pytest.mark.parametrize("form", ["table", "vertical", "csv", "json"])
def test_output_to_a_pipe_is_not_shortened(root: str, form: str) -> None:
    shown = invoke("sql", root, "SELECT * FROM wide", "--format", form)
    assert all(f"{n} " * 39 in shown.stdout for n in range(30))
    assert shown.stderr == ""


def test_output_of_diff_fits_the_width_of_the_terminal(root: str) -> None:
    shown = invoke("diff", root, "1", columns=40)
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 40
