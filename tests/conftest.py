"""Fixtures that all tests share."""

import os
from datetime import date

import pytest
from hypothesis import settings

pytest_plugins = [
    "tests.fixtures.s3",
    "tests.fixtures.signals",
    "tests.fixtures.spark",
    "tests.fixtures.catalogs",
]

# `make test` draws the same examples each time, `make soak` new ones. Without a deadline: how
# long one takes says how busy the machine is.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if not os.environ.get("LAKEVILLA_SOAK"):
    settings.load_profile("repeatable")

# The tables and predicates of tests/property are others each day; all workers draw the same.
os.environ.setdefault("LAKEVILLA_ROWS_SEED", str(date.today().toordinal() * 1000))


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs the Spark session, or the REST catalog, runs first and each in one worker.

    They take their time to start.
    """
    for item in items:
        for server in ("spark", "rest_server"):
            if server in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(server))
                break
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
