"""All kinds of transactions, and clients without LakeVilla, at once on the same tables."""

from collections import Counter
from itertools import combinations_with_replacement

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.meetings import meeting
from lakevilla_testing.histories.plan import EVERYONE, SERIALIZABLE, draw, draw_mix
from tests.support.search import WHOLE, how_many

SEEDS = how_many(1, whole=60)
#: None stands for a client without LakeVilla; there is one, so it has no second of its kind.
PAIRS = {meeting(*pair) for pair in combinations_with_replacement((*EVERYONE, None), 2)}
PAIRS -= {meeting(None, None)}


@pytest.mark.timeout(600)
def test_every_invariant_holds_for_each_pair_of_levels_on_a_table():
    met, levels = Counter(), set()
    for seed in range(SEEDS):
        outcome = campaign.run(seed, plan=draw_mix(seed))
        met += outcome.meetings
        levels |= set(outcome.plan.levels)
    if WHOLE:
        assert {pair: met[pair] for pair in PAIRS if met[pair] < 10} == {}
        # This holds in histories of several levels, too.
        assert len(levels) > 5


def test_histories_of_every_run_draw_the_mix_of_levels_too():
    plans = [draw(seed) for seed in range(2000)]
    mixed = [plan for plan in plans if plan.features == EVERYONE]
    assert len(mixed) > 150
    assert all(plan.foreign for plan in mixed)
    assert sum(plan.levels != (SERIALIZABLE,) for plan in mixed) > 50
