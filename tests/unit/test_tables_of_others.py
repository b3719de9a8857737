"""The tests named by docs/tables-of-others.md exist, and every line names one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tables-of-others.md").read_text()

#: The short name that a section of the page gives to a test file.
SHORT = re.compile(r"`(\w+)` is\s+`(tests/[\w/]+\.py)`")
NAMED = re.compile(r"`([\w/.]+)::(test_\w+)`")


def sections() -> list[str]:
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]


def missing(section: str) -> list[str]:
    """Return the tests that a section names and that do not exist."""
    short = dict(SHORT.findall(section))
    found = []
    for place, name in NAMED.findall(section):
        path = ROOT / short.get(place, place)
        if not path.is_file() or not re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE):
            found.append(f"{place}::{name}")
    return found


def test_every_test_that_the_page_names_exists() -> None:
    assert sections()
    assert [name for section in sections() for name in missing(section)] == []


def test_every_line_of_the_tables_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| feature |", "|---"))]
    assert len(rows) > 50
    assert [row for row in rows if not NAMED.search(row)] == []


def test_a_named_test_that_does_not_exist_is_reported() -> None:
    section = "`x` is `tests/unit/test_tables_of_others.py` `x::test_nothing` `y.py::test_a`"
    assert missing(section) == ["x::test_nothing", "y.py::test_a"]
