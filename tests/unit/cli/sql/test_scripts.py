"""``lakevilla sql`` with many statements: from files, a pipe or the argument."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.sql.script import scripts_of
from tests.support.copied import copy_lake


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("furnished")
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}])
    return root


@pytest.fixture
def root(furnished: Path, tmp_path: Path) -> str:
    """A copy of the lake, for one test."""
    return copy_lake(furnished, tmp_path / "lake")


def invoke(root: str, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["sql", root, *arguments], input=stdin, env={"COLUMNS": None})


def file(tmp_path: Path, text: str, name: str = "script.sql") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def skus(root: str) -> set[str]:
    rows = lv.connect(root).sql("SELECT sku FROM stock").to_pylist()
    return {row["sku"] for row in rows}


BROKEN = """\
-- two that are well, and one that is not
INSERT INTO stock VALUES ('gin', 1);
SELECT 42 AS answer;
INSERT INTO stock
    SELECT nobody FROM stock;
DELETE FROM stock;
"""


def test_the_error_of_a_script_names_its_line_and_earlier_commits_stay(
    root: str, tmp_path: Path
) -> None:
    script = file(tmp_path, BROKEN)
    ended = invoke(root, "-f", script, "--write")
    assert ended.exit_code == 2
    assert f"{script}:4: " in ended.stderr
    assert "committed before that: global version 2" in ended.stderr
    assert "42" in ended.stdout
    assert skus(root) == {"tea", "jam", "gin"}


def test_option_atomic_commits_all_statements_or_none(root: str, tmp_path: Path) -> None:
    ended = invoke(root, "-f", file(tmp_path, BROKEN), "--write", "--atomic")
    assert ended.exit_code == 2
    assert "nothing of it is stored" in ended.stderr
    assert skus(root) == {"tea", "jam"}
    well = file(tmp_path, "INSERT INTO stock VALUES ('gin', 1); DELETE FROM stock WHERE qty = 5")
    ended = invoke(root, "-f", well, "--write", "--atomic")
    assert ended.exit_code == 0, ended.stderr
    assert "committed as global version 2" in ended.stdout
    assert skus(root) == {"jam", "gin"}


def test_a_script_delimits_its_transactions_by_begin_and_commit(root: str, tmp_path: Path) -> None:
    script = (
        "BEGIN; DELETE FROM stock; ROLLBACK; BEGIN; DELETE FROM stock WHERE sku = 'tea'; COMMIT"
    )
    assert invoke(root, "-f", file(tmp_path, script), "--write").exit_code == 0
    assert skus(root) == {"jam"}
    ended = invoke(root, "-f", file(tmp_path, "BEGIN; DELETE FROM stock;"), "--write")
    assert ended.exit_code == 2
    assert "end it with COMMIT" in ended.stderr
    assert skus(root) == {"jam"}


@pytest.mark.parametrize("text", ["", " \n", "/* nothing */", ";;"])
def test_a_script_without_a_statement_is_refused(root: str, tmp_path: Path, text: str) -> None:
    for ended in (
        invoke(root, "-f", file(tmp_path, text)),
        invoke(root, stdin=text),
        invoke(root, text),
    ):
        assert ended.exit_code == 2
        assert "there is no statement to run" in ended.stderr


def test_a_script_on_stdin_is_read_as_utf_8_with_or_without_a_byte_order_mark(root: str) -> None:
    assert invoke(root, "--format", "csv", stdin="\ufeffSELECT 'é' AS a").stdout == "a\né\n"
    ended = CliRunner().invoke(app, ["sql", root], input=b"SELECT '\xe9'")
    assert ended.exit_code == 2
    assert "can't read stdin: it is not UTF-8" in ended.stderr


def test_a_call_with_neither_statements_nor_stdin_is_refused(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(lv.InvalidOperation, match="takes statements"):
        scripts_of(None, None)


@pytest.mark.parametrize(
    "text", ["DELETE FROM stock", "/* a */ create table t (a INT)", "OPTIMIZE stock"]
)
def test_statements_that_write_are_refused_without_option_write(root: str, text: str) -> None:
    ended = invoke(root, text)
    assert ended.exit_code == 2
    assert "writes: add --write" in ended.stderr
    assert skus(root) == {"tea", "jam"}


def test_script_files_are_run_in_the_given_order(root: str, tmp_path: Path) -> None:
    one = file(tmp_path, "CREATE TABLE fresh (a BIGINT)", "1.sql")
    two = file(tmp_path, "INSERT INTO fresh VALUES (7); SELECT a FROM fresh", "2.sql")
    ended = invoke(root, "-f", one, "-f", two, "--write", "--format", "csv")
    assert ended.stdout == "a\n7\n"
    assert "1 row inserted" in ended.stderr


def test_statements_are_read_from_a_pipe(root: str) -> None:
    query = "SELECT sku FROM stock ORDER BY 1;\nSELECT 1 AS x;"
    expected = "sku\njam\ntea\nx\n1\n"
    for arguments in ((), ("-",), ("-f", "-")):
        assert invoke(root, *arguments, "--format", "csv", stdin=query).stdout == expected
    assert "stdin:2: " in invoke(root, stdin="SELECT 1;\nSELECT nobody FROM stock").stderr


def test_each_statements_result_is_a_json_value_on_its_own_line(root: str) -> None:
    script = "DELETE FROM stock WHERE sku = 'tea'; SELECT sku FROM stock"
    deleted, rows = invoke(root, script, "--write", "--json").stdout.splitlines()
    assert json.loads(deleted)[0]["rows_deleted"] == 1
    assert json.loads(rows) == [{"sku": "jam"}]


@pytest.mark.parametrize(
    "script",
    [
        "DELETE FROM stock",
        "CREATE TABLE fresh (a BIGINT)",
        "DROP TABLE stock",
        "SELECT 1; DELETE FROM stock",
        "ROLLBACK; DELETE FROM stock",
        "COMMIT; BEGIN; DELETE FROM stock; COMMIT",
        "CREATE BRANCH etl",
        "BEGIN ATOMIC DELETE FROM stock; END",
    ],
)
def test_no_statement_writes_without_option_write(root: str, script: str) -> None:
    assert invoke(root, script).exit_code == 2
    with lv.connect(root) as lake:
        assert [entry.version for entry in lake.history()] == [1]
        assert lake.refs() == []


def test_queries_without_option_write_read_one_state(root: str) -> None:
    shown = invoke(root, "SELECT 1 AS a; SHOW TABLES; SELECT count(*) AS n FROM stock", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout.splitlines()[-1]) == [{"n": 2}]


def test_scripts_read_a_past_version_by_option_version(root: str) -> None:
    invoke(root, "DELETE FROM stock", "--write")
    script = "SELECT count(*) AS n FROM stock; SELECT 1 AS one"
    shown = invoke(root, script, "--version", "1", "--json").stdout.splitlines()
    assert [json.loads(line) for line in shown] == [[{"n": 2}], [{"one": 1}]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;\nSELECT\n 'half", "script.sql:2: "),
        ("SELECT 1;\n\nBEGIN ATOMIC\nSELECT 1;", "script.sql:3: "),
        ("-- nothing\n", "there is no statement"),
        ("SELECT 1;\n\\dt\n", "script.sql:2: \\dt is a command of `lakevilla shell`"),
    ],
)
def test_a_script_that_can_not_be_parsed_runs_no_statement(
    root: str, tmp_path: Path, text: str, message: str
) -> None:
    ended = invoke(root, "-f", file(tmp_path, text), "--write")
    assert ended.exit_code == 2
    assert message in ended.stderr
    assert ended.stdout == ""


def test_incompatible_sql_options_and_unreadable_files_are_refused(
    root: str, tmp_path: Path
) -> None:
    script = file(tmp_path, "SELECT 1")
    assert "not both" in invoke(root, "SELECT 1", "-f", script).stderr
    assert "add --write" in invoke(root, "SELECT 1", "--atomic").stderr
    assert "No such file" in invoke(root, "-f", str(tmp_path / "none.sql")).stderr
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in invoke(root, "-f", str(tmp_path / "binary.sql")).stderr


def test_a_query_on_the_command_line_does_not_load_pandas(root: str) -> None:
    """Loading pandas takes longer than the query."""
    code = f"""
import sys
import lakevilla as lv
from tests.support.copied import copy_lake
lake = lv.connect({root!r})
lake.session().sql("SELECT sku FROM stock WHERE sku = 'it''s' ORDER BY 1")
print("pandas" in sys.modules)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
