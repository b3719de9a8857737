"""Planted bugs fit the library: the function that each replaces is there under its name."""

from __future__ import annotations

import pytest

from lakevilla_testing.planted.every import PLANTED


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_bug_can_be_planted_and_taken_out(name: str) -> None:
    with PLANTED[name].plant():
        pass
