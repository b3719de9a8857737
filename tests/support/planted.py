"""A planted bug in a whole run: ``LAKEVILLA_PLANTED=name pytest ...`` has to fail somewhere."""

import os
from contextlib import ExitStack

from lakevilla_testing.planted.every import VARIABLE, planted_by_environment

_PLANTED = ExitStack()


def pytest_configure() -> None:
    _PLANTED.enter_context(planted_by_environment())


def pytest_unconfigure() -> None:
    _PLANTED.close()


def pytest_report_header() -> list[str]:
    name = os.environ.get(VARIABLE)
    return [f"planted bug: {name}"] if name else []
