"""The error for SQL that can't be parsed gives line and column in the user's own text."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.sql.statements import statement as taken_apart


@pytest.fixture
def session() -> Any:
    session = lv.connect("memory://").session()
    session.sql("CREATE TABLE t (id BIGINT, s STRING)")
    return session


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("UPDATE t\nSET id = id + 1\nWHERE id = = 1", "at line 3, column 12"),
        ("SELECT 1;\n\nUPDATE t\nSET id = id +\nWHERE true", "at line 4, column 13"),
        ("SELECT 1; DELETE FROM t WHERE id = = 1", "at line 1, column 36"),
        ("SELECT 1;\nSELECT *\nFROM t\nWHERE id = = 1", "at line 4, column 12"),
        ("SELECT 1; SELECT * FROM t WHERE id = = 1", "at line 1, column 38"),
        ("BEGIN ATOMIC\nDELETE FROM t\n WHERE id = = 2;\nEND", "at line 3, column 13"),
        ("MERGE INTO t\nUSING (SELECT 1 AS id) AS s\nON t.id = = s.id\n"
         "WHEN MATCHED THEN DELETE", "at line 3, column 11"),
        ("SELECT 1;\nINSERT INTO t\nSELECT 1,\n id = = 2 FROM t", "at line 4, column 7"),
    ],
)  # fmt: skip
def test_the_place_of_an_error_counts_from_the_beginning_of_the_text(
    session: Any, text: str, place: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=place):
        session.sql(text)


def test_the_place_of_an_error_is_omitted_if_it_is_ambiguous(session: Any) -> None:
    """The text has the same error twice."""
    text = "UPDATE t\nSET id = id = = 1, s = 'a'\nWHERE id = = 1"
    with pytest.raises(lv.InvalidOperation) as caught:
        session.sql(text)
    assert "cannot read 'id = = 1', near '='" in str(caught.value)


def test_an_error_in_a_script_file_has_the_line_of_the_file(tmp_path: Any) -> None:
    lv.connect(tmp_path / "lake").create_table("t", [{"id": 1}])
    (tmp_path / "x.sql").write_text("SELECT 1;\n\nDELETE FROM t\n  WHERE id = = 2;")
    words = ["sql", str(tmp_path / "lake"), "--write", "-f", str(tmp_path / "x.sql")]
    assert "at line 4, column 14" in CliRunner().invoke(app, words).stderr


def test_each_statement_of_a_script_is_parsed_once(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, parse = [], taken_apart.parse_dml

    def counted(text: str, *rest: Any) -> Any:
        asked.append(text)
        return parse(text, *rest)

    monkeypatch.setattr(taken_apart, "parse_dml", counted)
    texts = [f"INSERT INTO t VALUES ({number}, 'once')" for number in range(20)]
    session.sql(";\n".join(texts))
    assert asked == texts
