from __future__ import annotations

import pytest

from tests.support.places import Place, make_place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    """Return the place of a local lake whose tables are created as Iceberg tables."""
    return make_place("iceberg", request)
