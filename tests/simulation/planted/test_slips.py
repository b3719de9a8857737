"""Plant slips: the test that each of them names fails with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakevilla_testing.planted.every import PLANTED
from tests.support.nested import outcomes

SLIPS = sorted(name for name, bug in PLANTED.items() if bug.found_by)


@pytest.mark.cases(12)  # the named tests run in each run; `make test-all` plants all
@pytest.mark.parametrize("name", SLIPS)
def test_the_named_test_finds_a_slip(name: str, tmp_path: Path) -> None:
    with PLANTED[name].plant():
        assert outcomes(PLANTED[name].found_by, tmp_path / "inner") == {"failed"}
