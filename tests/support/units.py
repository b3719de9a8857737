"""Distribute the tests of a run over its workers by units: a few tests of a file at a time.

xdist's own ``--dist loadgroup`` sends each test alone, counts all tests that a worker has done
before it sends the next one, and so leaves the workers waiting for it: of 12,000 empty tests that
was more than half of the time. Also, each worker made the fixtures of each module. A unit is sent
whole, and is forgotten when it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadGroupScheduling

#: The number of tests in a unit, at most: few enough that the workers end at about the same time.
MOST = 40


def units(tests: Sequence[str]) -> dict[str, str]:
    """Return the unit of each test: its group, or its file and a number.

    Tests of a file that follow each other are in one unit, up to `MOST`. Tests of a group are in
    one unit, wherever they are.
    """
    found: dict[str, str] = {}
    file, number, size = "", 0, 0
    for test in tests:
        group = group_of(test)
        if group is not None:
            found[test] = f"group {group}"
            continue
        own = test.partition("::")[0]
        if own != file or size == MOST:
            file, number, size = own, number + 1, 0
        found[test] = f"{number} {file}"
        size += 1
    return found


def group_of(test: str) -> str | None:
    """Return the group that xdist has appended to a test's id."""
    _, at, group = test.rpartition("@")
    return group if at and "]" not in group else None


# ------------------------------------------------------------------- pytest


@pytest.hookimpl(optionalhook=True)  # some environments have no xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    """Replace what ``--dist loadgroup`` stands for."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.support.unit_scheduling import UnitScheduling

    config.option.loadscopereorder = False  # the groups are first, and the quick tests of unit last
    return UnitScheduling(config, log)
