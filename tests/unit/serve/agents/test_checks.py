"""The checks of an operator, on the command line and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.serve.agents.checks import checks_of


def test_checks_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(
        'sizes = "SELECT min(qty) >= 0 FROM stock"\n[no_rows]\nnames = "FROM stock -- all"'
    )
    found = checks_of(["some=SELECT count(*) = 2 FROM stock"], ["none=SELECT 1 WHERE false"], file)
    assert found == {
        "sizes": "SELECT min(qty) >= 0 FROM stock",
        "some": "SELECT count(*) = 2 FROM stock",
        "names": "SELECT count(*) = 0 FROM (\nFROM stock -- all\n)",
        "none": "SELECT count(*) = 0 FROM (\nSELECT 1 WHERE false\n)",
    }
    assert checks_of([], [], None) == {}


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("SELECT 1 = 1", "NAME=SQL"),
        ("some", "NAME=SQL"),
        ("some=", "NAME=SQL"),
        ("=SELECT true", "NAME=SQL"),
        ("some=DELETE FROM stock", "check some: "),
        ("some=SELECT * FROM read_csv('/etc/passwd')", "check some: read_csv"),
        ("sizes=SELECT true", "twice"),
    ],
)
def test_a_check_that_is_none_is_refused_before_an_agent_is_served(
    tmp_path: Path, pair: str, said: str
) -> None:
    file = tmp_path / "checks.toml"
    file.write_text('sizes = "SELECT true"')
    for given in ([pair], []), ([], [pair]):
        with pytest.raises(InvalidOperation, match=said):
            checks_of(*given, file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sizes: SELECT true", "checks.toml"),
        ("sizes = 3", "check sizes is no text"),
        ("[part]\nsizes = 'SELECT 1'", "check part is no text"),
        ("no_rows = 'SELECT 1'", "no table"),
        ("a = 'SELECT true'\n[no_rows]\na = 'SELECT 1'", "twice"),
    ],
)
def test_a_file_that_has_no_checks_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(text)
    with pytest.raises(InvalidOperation, match=said):
        checks_of([], [], file)
    with pytest.raises(InvalidOperation, match="No such file"):
        checks_of([], [], tmp_path / "none.toml")
