"""A planted bug in a whole run: ``LAKEVILLA_PLANTED=name pytest ...`` has to fail somewhere."""

import os
from contextlib import ExitStack

from lakevilla_testing.planted.bugs import VARIABLE

_PLANTED = ExitStack()


def pytest_configure() -> None:
    if os.environ.get(VARIABLE):
        from lakevilla_testing.planted.every import planted_by_environment  # a second of imports

        _PLANTED.enter_context(planted_by_environment())


def pytest_unconfigure() -> None:
    _PLANTED.close()


def pytest_report_header() -> list[str]:
    name = os.environ.get(VARIABLE)
    return [f"planted bug: {name}"] if name else []
