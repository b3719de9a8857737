"""Choose the runs that draw pictures: drawing takes a third of a smallest run's processor time."""

from __future__ import annotations

import pytest

from bench.harness import running


@pytest.fixture
def pictures() -> None:
    """Request the pictures for a test whose name has no "drawn" in it."""


@pytest.fixture(autouse=True)
def nothing_is_drawn_in_vain(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draw pictures, in a small search, only for the tests that check them."""
    from tests.support.search import WHOLE  # after the options of the search are set

    looks = "drawn" in request.node.name or "pictures" in request.fixturenames
    if not WHOLE and not looks:
        monkeypatch.setattr(running, "draw", lambda *given: [])
