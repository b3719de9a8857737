"""Plant slips: the layer of the campaign that has found one finds it at the same seed."""

from __future__ import annotations

import pytest

from lakevilla_testing.histories.campaign import replay
from lakevilla_testing.histories.drawn import plan_in_turn
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.planted.found import FOUND

BY_HISTORIES = sorted(name for name, found in FOUND.items() if found.layer == "histories")


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", BY_HISTORIES)
def test_a_history_of_the_campaign_finds_a_slip(name: str) -> None:
    seed = FOUND[name].seed
    with PLANTED[name].plant():
        assert replay(seed, plan=plan_in_turn(seed))[2] is not None
    assert replay(seed, plan=plan_in_turn(seed))[2] is None
