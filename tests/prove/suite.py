"""Parts of the test suite that search, with the seeds of another date in each turn."""

from __future__ import annotations

import os
import sys
from datetime import date, timedelta

import pytest

from tests.prove.turn import Turn

#: The date that seed 0 stands for.
FIRST = date(2026, 11, 28)

#: Between the first slices of two turns; three turns of a third of the suite run all of it.
_STRIDE = 17
_RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Counted:
    """A plugin of pytest that counts tests in the turn, and keeps failures."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.failures: list[tuple[str, str]] = []
        #: Of files that can't be read: pytest then runs no test at all.
        self.errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longrepr}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # The log of a turn that is killed says where it was.
        print(nodeid, file=sys.__stderr__, flush=True)
        self._turn.write_at_times()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.append((report.nodeid, str(report.longrepr)))
        elif report.when == "call" and report.passed:
            folder = "/".join(report.nodeid.split("/")[1:3]).partition(".py")[0]
            self._turn.count(f"tests of {folder}")


def options_of(seed: int) -> list[str]:
    """Return the options of the turn with a seed.

    A seed stands for a date, whose seeds the tests draw from, and for the slice of the suite that
    comes first. In every other turn tests search little, so that soon all of them have run; in the
    others they search as in the night, and there are tests that take minutes.
    """
    drawn = (FIRST + timedelta(days=seed)).isoformat()
    pair, searches_much = divmod(seed, 2)
    much = ["--search", "whole"] if searches_much else ["--search", "small", "--cases", "few"]
    return [*much, "--seeds", drawn, "--slice", str(pair * _STRIDE)]


def run_tests(turn: Turn, paths: list[str]) -> None:
    """Run tests in a fixed order that begins elsewhere in each turn, until the turn ends."""
    seed = turn.next_seed()
    options = options_of(seed)
    counted = Counted(turn)
    usual = [
        "--minutes",
        str(turn.seconds_left / 60),
        "-q",
        "-m",
        "not soak and not integration",
        f"--maxfail={turn.most_failures}",
    ]
    with open(os.devnull, "w") as quiet, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", quiet)
        status = pytest.main([*options, *usual, *paths], plugins=[counted])
    for nodeid, text in counted.failures:
        turn.failed(seed, f"python -m pytest '{nodeid}' {' '.join(options)}", text)
    if status not in _RAN:
        command = f"python -m pytest {' '.join((*options, *paths))}"
        turn.failed(seed, command, "\n".join(counted.errors) or f"pytest ended with {status!r}")
