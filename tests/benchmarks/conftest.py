"""Select the runs that are drawn: drawing takes a third of the processor time of a smallest run."""

from __future__ import annotations

import pytest

from bench.harness import running


@pytest.fixture
def pictures() -> None:
    """The test looks at pictures, though its name does not say that they are drawn."""


@pytest.fixture(autouse=True)
def nothing_is_drawn_in_vain(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a small search, only the tests that look at pictures draw them."""
    from tests.support.search import WHOLE  # after the options of the search are known

    looks = "drawn" in request.node.name or "pictures" in request.fixturenames
    if not WHOLE and not looks:
        monkeypatch.setattr(running, "draw", lambda *given: [])
