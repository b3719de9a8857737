"""Tests in quarantine: they run, and their failures are reported but do not fail the run.

``tests/quarantine.txt`` lists them. ``python -m tests.support.quarantine`` prints each entry with
its age, and fails if one is malformed or names no test; ``make lint`` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.selection import name_of

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "quarantine.txt"


class Entry(NamedTuple):
    """A test in quarantine: the id of a function, or of one of its cases."""

    test: str
    since: date
    reason: str


def entries(text: str) -> list[Entry]:
    """Return the entries of a list.

    Raises
    ------
    ValueError
        A line is not ``test | date | reason``.
    """
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 2)]
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"line {number} is not 'test | date | reason': {line}")
        found.append(Entry(parts[0], date.fromisoformat(parts[1]), parts[2]))
    return found


def names_a_test(entry: Entry, root: Path = ROOT) -> bool:
    """Return whether the entry's file has the entry's function."""
    file, _, function = entry.test.partition("[")[0].partition("::")
    path = root / file
    return path.is_file() and f"def {function.rpartition('::')[2]}(" in path.read_text()


def main() -> int:
    """Print each entry with its age; 1 if the list can't be read or names no test."""
    try:
        found = entries(LIST.read_text())
    except ValueError as error:
        print(f"{LIST}: {error}")
        return 1
    for entry in found:
        days = (date.today() - entry.since).days
        print(f"in quarantine for {days} days: {entry.test}: {entry.reason}")
    missing = [entry.test for entry in found if not names_a_test(entry)]
    for test in missing:
        print(f"{LIST}: there is no test {test}; remove the entry")
    return int(bool(missing))


# ------------------------------------------------------------------- pytest


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Expect that a test in quarantine fails at times."""
    reasons = {entry.test: entry.reason for entry in entries(LIST.read_text())}
    for item in items:
        case = name_of(item)
        reason = reasons.get(case) or reasons.get(case.partition("[")[0])
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=f"in quarantine: {reason}", strict=False))


if __name__ == "__main__":
    sys.exit(main())
