"""Tests within a test: a run of named tests in this very process, where a bug is planted."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class _Outcomes:
    """A plugin that notes how tests ended."""

    found: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found.add(report.outcome)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def outcomes(name: str, directory: Path) -> set[str]:
    """Run the tests of a name, as pytest takes it; return how they ended: ``passed``, ``failed``.

    Raises
    ------
    AssertionError
        There is no test of that name.
    """
    noted = _Outcomes()
    without = ("cacheprovider", "xdist", "faulthandler", "tests.support.in_memory")
    options = [part for plugin in without for part in ("-p", f"no:{plugin}")]
    options += ["--basetemp", str(directory), name]
    with _quiet():
        code = pytest.main(options, plugins=[noted])
    ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert code in ended, f"pytest ran no test {name!r}: {code!r}"
    return noted.found
