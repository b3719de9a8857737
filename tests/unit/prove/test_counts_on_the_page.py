"""What the page on reliability counts."""

from __future__ import annotations

from pathlib import Path

from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.planted.found import FOUND
from tests.prove.layers import LAYERS

PAGE = Path(__file__).parents[3] / "docs" / "reliability.md"


def test_the_page_counts_the_planted_bugs():
    by_histories = sum(bug.for_histories and not bug.found_by for bug in PLANTED.values())
    text = PAGE.read_text()
    assert f"{len(PLANTED)} ways to break the library" in text
    assert f"histories must find {by_histories} of them" in text
    assert f"each of the {by_histories} planted bugs" in text


def test_the_page_tells_which_layer_has_found_a_slip():
    text = PAGE.read_text()
    assert FOUND.keys() <= PLANTED.keys()
    assert {found.layer for found in FOUND.values()} <= {layer.name for layer in LAYERS}
    for name, found in FOUND.items():
        assert f"| `{name}` | `{found.layer}` | {found.seconds:.1f} | {found.seed} |" in text
