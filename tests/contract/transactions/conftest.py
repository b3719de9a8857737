"""The stores on which transactions must behave alike."""

from __future__ import annotations

import pytest

from tests.builders import Place, make_place


@pytest.fixture(params=["memory", "local", "s3", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    """A lake on each store."""
    return make_place(request.param, request)


@pytest.fixture(params=["memory", "local", "iceberg"])
def quick_place(request: pytest.FixtureRequest) -> Place:
    """For what does not depend on the store."""
    return make_place(request.param, request)


@pytest.fixture(params=["memory", "local"])
def delta_place(request: pytest.FixtureRequest) -> Place:
    """For what Delta tables alone have: constraints, append-only tables, checkpoints, guards."""
    return make_place(request.param, request)


@pytest.fixture(params=["local", "iceberg"])
def shared_place(request: pytest.FixtureRequest) -> Place:
    """A directory that other clients read and write too, in either format."""
    return make_place(request.param, request)


@pytest.fixture
def local_place(request: pytest.FixtureRequest) -> Place:
    """A directory that other clients read and write too."""
    return make_place("local", request)
