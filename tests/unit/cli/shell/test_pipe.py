"""The shell without a terminal: a script on stdin, its results on stdout."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lakevilla as lv
from lakevilla.cli.app import app


def run(root: str, script: str, *options: str) -> Result:
    return CliRunner().invoke(app, ["shell", root, *options], input=script, env={"COLUMNS": None})


def quantities(root: str, ref: str = "main") -> dict[str, int]:
    with lv.connect(root) as lake:
        rows = lake.on(ref).sql("SELECT sku, qty FROM stock").to_pylist()
    return {row["sku"]: row["qty"] for row in rows}


def test_query_results_go_to_stdout_and_reports_of_writes_to_stderr(root: str) -> None:
    script = "UPDATE stock SET qty = 7 WHERE sku = 'tea'; SELECT qty FROM stock ORDER BY 1 DESC"
    shown = run(root, script)
    assert shown.exit_code == 0
    assert shown.stdout.split() == ["qty", "─" * 5, "7", "1", "(2", "rows)"]
    assert "1 row updated; committed as global version 3" in shown.stderr


def test_output_in_a_format_for_programs_has_only_the_rows(root: str) -> None:
    shown = run(root, "\\format csv\nSELECT sku FROM stock ORDER BY 1;\n")
    assert shown.stdout == "sku\njam\ntea\n"


def test_a_transaction_spans_several_statements(root: str) -> None:
    script = "BEGIN;\nDELETE FROM stock WHERE sku = 'tea';\nCOMMIT;\nBEGIN;\nDELETE FROM stock;\n"
    shown = run(root, script + "ROLLBACK;")
    assert "committed as global version 3" in shown.stderr
    assert quantities(root) == {"jam": 1}


def test_a_script_ends_at_its_first_error_and_names_the_line(root: str) -> None:
    script = (
        "UPDATE stock SET qty = 2;\n\n  SELECT 1; SELECT\n  nobody FROM stock;\nDELETE FROM stock;"
    )
    shown = run(root, script)
    assert shown.exit_code == 2
    assert "stdin:3: " in shown.stderr
    assert "nobody" in shown.stderr
    assert quantities(root) == {"tea": 2, "jam": 2}


def test_a_transaction_open_at_the_end_of_a_script_is_rolled_back_and_reported(root: str) -> None:
    shown = run(root, "BEGIN; DELETE FROM stock;")
    assert shown.exit_code == 2
    assert "end it with COMMIT" in shown.stderr
    assert "rolled back transaction " in shown.stderr
    assert "nothing of it is stored" in shown.stderr
    assert len(quantities(root)) == 2


def test_empty_lines_and_lone_semicolons_are_ignored(root: str) -> None:
    shown = run(root, "\n ;\n;;\nSELECT 1 AS one;\n\n")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.split() == ["one", "─" * 5, "1", "(1", "row)"]
    assert run(root, "").exit_code == 0


def test_a_script_on_stdin_is_read_as_utf_8_with_or_without_a_byte_order_mark(root: str) -> None:
    assert "é" in run(root, "\ufeffSELECT 'é' AS a;").stdout
    broken = CliRunner().invoke(app, ["shell", root], input=b"SELECT 1;\nSELECT '\xe9';")
    assert broken.exit_code == 2
    assert "not UTF-8" in broken.stderr


def test_tables_and_columns_are_described_by_the_command_d(root: str) -> None:
    listed = run(root, "\\format csv\n\\dt\n\\dt sales.*\n")
    assert listed.stdout.splitlines()[1].startswith("sales/orders,delta,1,1,")
    assert [line.split(",")[0] for line in listed.stdout.splitlines()] == [
        *("name", "sales/orders", "stock", "name", "sales/orders")
    ]
    described = run(root, "\\d sales.orders\n").stdout
    assert "day" in described
    assert "delta table at version 0" in described
    missing = run(root, "\\d nobody\n")
    assert missing.exit_code == 2
    assert "nobody" in missing.stderr


def test_a_table_created_in_the_open_transaction_is_described(root: str) -> None:
    shown = run(root, "BEGIN;\nCREATE TABLE fresh (a BIGINT);\n\\d fresh\nROLLBACK;\n")
    assert shown.exit_code == 0, shown.stderr
    assert "long" in shown.stdout


def test_constraints_are_shown_by_the_command_d(root: str) -> None:
    with lv.connect(root) as lake, lake.transaction() as txn:
        txn.alter("stock", add_constraints={"some": "qty > 0"})
    assert "CHECK some: qty > 0" in run(root, "\\d stock\n").stdout


def test_the_command_on_switches_the_shell_to_a_branch_and_back(root: str) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
    shown = run(root, "\\on etl\nDELETE FROM stock;\n\\l\n\\on\n\\conninfo\n")
    assert shown.exit_code == 0, shown.stderr
    assert quantities(root, "etl") == {}
    assert len(quantities(root)) == 2
    assert "at main" in shown.stdout
    assert any(line.split()[:2] == ["*", "etl"] for line in shown.stdout.splitlines())


def test_the_option_on_chooses_the_branch_at_the_start(root: str) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
    assert "at etl" in run(root, "\\conninfo\n", "--on", "etl").stdout


def test_switching_to_a_ref_is_refused_while_a_transaction_is_open(root: str) -> None:
    with lv.connect(root) as lake:
        lake.branch("etl")
    shown = run(root, "BEGIN;\n\\on etl\n")
    assert shown.exit_code == 2
    assert "stdin:2: a transaction is open" in shown.stderr


def test_switching_to_a_missing_ref_reports_its_name(root: str) -> None:
    assert "nowhere" in run(root, "\\on nowhere\n").stderr


def test_scripts_are_run_by_the_command_i_and_their_errors_name_the_script(
    root: str, tmp_path: Path
) -> None:
    inner, outer = tmp_path / "inner.sql", tmp_path / "outer.sql"
    inner.write_text("DELETE FROM stock WHERE sku = 'tea';\nSELECT * FROM nobody;\n")
    outer.write_text(f"\\i {inner}\nDELETE FROM stock;\n")
    shown = run(root, f"SELECT 1;\n\\i {outer}\n")
    assert shown.exit_code == 2
    assert f"{inner}:2: " in shown.stderr
    assert quantities(root) == {"jam": 1}


def test_a_script_that_includes_itself_is_ended_with_an_error(root: str, tmp_path: Path) -> None:
    script = tmp_path / "again.sql"
    script.write_text(f"\\i {script}\n")
    assert "does one run itself?" in run(root, f"\\i {script}\n").stderr


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8")]
)
def test_a_script_file_that_cannot_be_read_is_named(
    root: str, tmp_path: Path, content: bytes | None, message: str
) -> None:
    script = tmp_path / "script.sql"
    if content is not None:
        script.write_bytes(content)
    shown = run(root, f"\\i {script}\n")
    assert shown.exit_code == 2
    assert str(script) in shown.stderr
    assert message in shown.stderr


def test_results_are_written_to_a_file_by_the_command_o(root: str, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    script = f"\\format csv\n\\o {target}\nSELECT sku FROM stock ORDER BY 1;\n\\o\nSELECT 1 AS x;\n"
    assert run(root, script).stdout == "x\n1\n"
    assert target.read_text() == "sku\njam\ntea\n"
    assert "can't write" in run(root, f"\\o {tmp_path}\n").stderr


def test_the_command_gx_shows_one_statement_with_a_line_for_each_value(root: str) -> None:
    shown = run(root, "SELECT 1 AS a, 2 AS b \\gx\nSELECT 3 AS c \\g\n").stdout.splitlines()
    assert shown[1:3] == ["a │ 1", "b │ 2"]
    assert shown[4].split() == ["c"]


def test_the_time_of_a_statement_is_shown_after_timing_on(root: str) -> None:
    assert "time: " in run(root, "\\timing on\nSELECT 1;\n").stderr
    assert "time: " not in run(root, "SELECT 1;\n").stderr


def test_an_unknown_backslash_command_ends_a_script(root: str) -> None:
    shown = run(root, "\\tming\nDELETE FROM stock;\n")
    assert shown.exit_code == 2
    assert "stdin:1: there is no \\tming: did you mean \\timing?" in shown.stderr
    assert len(quantities(root)) == 2


def test_leaving_the_shell_in_the_middle_of_a_script_is_no_error(root: str) -> None:
    shown = run(root, "\\q\nDELETE FROM stock;\n")
    assert shown.exit_code == 0
    assert len(quantities(root)) == 2


def test_commits_are_listed_by_the_command_log(root: str) -> None:
    shown = run(root, "\\format csv\n\\log 1\n\\log x\n")
    assert shown.stdout.splitlines()[1].startswith("2,")
    assert "\\log takes a number, not 'x'" in shown.stderr


def test_a_shell_at_a_root_that_does_not_exist_reports_the_root(tmp_path: Path) -> None:
    shown = run(str(tmp_path / "nowhere"), "SELECT 1;")
    assert shown.exit_code == 2
    assert "there is no directory" in shown.stderr


def test_statements_given_by_option_c_are_run_in_place_of_stdin(root: str) -> None:
    texts = ("-c", "UPDATE stock SET qty = 7;\n\\d stock", "-c", "SELECT max(qty) FROM stock")
    shown = run(root, "DELETE FROM stock;", *texts)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.split()[-3:] == ["7", "(1", "row)"]
    assert quantities(root) == {"tea": 7, "jam": 7}


def test_an_error_in_a_statement_given_by_option_c_ends_the_run(root: str) -> None:
    shown = run(root, "", "-c", "SELECT 1;\nSELECT nobody;", "-c", "DELETE FROM stock")
    assert shown.exit_code == 2
    assert "-c:2: " in shown.stderr
    assert quantities(root) == {"tea": 5, "jam": 1}
