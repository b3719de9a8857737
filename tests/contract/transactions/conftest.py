"""The stores on which transactions must behave alike."""

from __future__ import annotations

import pytest

from tests.builders import Place, make_place


@pytest.fixture(params=["memory", "local", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    """A lake on each store."""
    return make_place(request.param, request)


@pytest.fixture(params=["memory", "local"])
def quick_place(request: pytest.FixtureRequest) -> Place:
    """For what does not depend on the store."""
    return make_place(request.param, request)


@pytest.fixture
def local_place(request: pytest.FixtureRequest) -> Place:
    """A directory that other clients read and write too."""
    return make_place("local", request)
