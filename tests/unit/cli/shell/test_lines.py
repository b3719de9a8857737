"""A script split into statements and short commands."""

from __future__ import annotations

from collections.abc import Iterator

from lakevilla.cli.shell.screen import ScriptEntry, entries
from lakevilla.sql.statements.script.cutting import is_complete


def cut(text: str) -> list[ScriptEntry]:
    return list(entries(text.splitlines(keepends=True), is_complete))


def test_each_entry_of_a_script_has_the_line_on_which_it_begins() -> None:
    text = "\n-- first\nSELECT 1;\n\\dt\n\nSELECT\n  2\n;\nSELECT 3; SELECT 4;\n"
    assert [(one.text.split()[-1], one.line) for one in cut(text)] == [
        ("1;", 2),
        ("\\dt", 4),
        (";", 6),
        ("4;", 9),
    ]


def test_semicolons_in_strings_comments_and_blocks_do_not_end_a_statement() -> None:
    text = "SELECT ';\n;', 1 -- ;\n/* ; */;\nBEGIN ATOMIC\nSELECT 1;\nSELECT 2;\nEND;\n"
    assert [one.line for one in cut(text)] == [1, 4]


def test_the_last_statement_of_a_script_needs_no_semicolon() -> None:
    assert [one.text for one in cut("SELECT 1;\nSELECT\n2")] == ["SELECT 1;\n", "SELECT\n2"]


def test_a_complete_statement_is_returned_before_the_next_line_is_read() -> None:
    asked = []

    def lines() -> Iterator[str]:
        for line in ("SELECT\n", "1;\n", "SELECT 2;\n"):
            asked.append(line)
            yield line

    assert next(entries(lines(), is_complete)).text == "SELECT\n1;\n"
    assert len(asked) == 2
