"""The checks of an operator, on the command line and in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.serve.agents.checks import checks_of


def test_checks_come_from_a_file_and_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "checks.toml"
    file.write_text('sizes = "SELECT min(qty) >= 0 FROM stock"\n')
    assert checks_of(["some=SELECT count(*) = 2 FROM stock"], file) == {
        "sizes": "SELECT min(qty) >= 0 FROM stock",
        "some": "SELECT count(*) = 2 FROM stock",
    }
    assert checks_of([], None) == {}


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
    with pytest.raises(InvalidOperation, match=said):
        checks_of([pair], file)


@pytest.mark.parametrize("text", ["sizes: SELECT true", "sizes = 3", "[part]\nsizes = 'SELECT 1'"])
def test_a_file_that_has_no_checks_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "checks.toml"
    file.write_text(text)
    with pytest.raises(InvalidOperation, match=r"checks\.toml"):
        checks_of([], file)
    with pytest.raises(InvalidOperation, match="No such file"):
        checks_of([], tmp_path / "none.toml")
