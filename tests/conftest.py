"""Fixtures that all tests share."""

import gc

import pytest
from hypothesis import settings

from lakevilla.api.client.client import LakeClient

pytest_plugins = [
    "tests.support.in_memory",
    "tests.support.databases",
    "tests.support.selection",
    "tests.support.units",
    "tests.support.spent",
    "tests.support.quarantine",
    "tests.support.planted",
    "tests.support.rewritten",
    "tests.support.command_line",
    "tests.fixtures.marks",
    "tests.fixtures.servers",
    "tests.fixtures.signals",
    "tests.fixtures.spark",
    "tests.fixtures.catalogs",
]


@pytest.hookimpl(trylast=True)  # after the options of the search are known
def pytest_configure() -> None:
    """Set how many examples Hypothesis draws: the same ones in each run, except in a soak."""
    from tests.support.search import SOAK, how_many

    # Without a deadline: how long an example takes depends on how busy the machine is.
    examples = how_many(15, whole=500)
    settings.register_profile("repeated", derandomize=True, deadline=None, max_examples=examples)
    if not SOAK:
        settings.load_profile("repeated")


@pytest.fixture(autouse=True)
def no_cache_is_shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clients of a test stand for two processes, unless it says that they are of one."""
    if request.node.get_closest_marker("one_process") is None:
        monkeypatch.setattr(LakeClient, "_cached_as", lambda client: object())


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests with the Spark session, or the REST catalog, first and each group in one worker.

    They take their time to start.
    """
    for item in items:
        for server in ("spark", "rest_server"):
            if server in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(server))
                break
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collected tests and modules stay to the end: the collector need not look at them each time.

    That was a seventh of the time of the simulation. Nor need it look after every 700 new objects:
    that was a twentieth of the time of the contracts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
