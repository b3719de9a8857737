"""Planted bugs match the library: each replaced function exists under its name."""

from __future__ import annotations

import pytest

from lakevilla_testing.planted.every import PLANTED


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_each_planted_bug_can_be_planted_and_removed(name: str) -> None:
    with PLANTED[name].plant():
        pass
