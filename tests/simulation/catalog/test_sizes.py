"""Drawn histories with other clients: what HEAD says of the sizes of tables is what there was."""

from collections import Counter
from dataclasses import replace

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw
from tests.support.search import WHOLE, how_many

SEEDS = how_many(1, whole=15)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("formats", "known"),
    # The other client of simulated Iceberg tables tells no totals in its summaries.
    [("delta", 8), ("iceberg", 1)],
)
def test_sizes_are_right_in_each_head(formats, known):
    events = Counter()
    for seed in range(SEEDS):
        plan = replace(draw(seed), formats=formats, foreign=("append", "rewrite"))
        outcome, _, error = campaign.replay(seed, plan=plan)
        assert error is None, f"seed {seed} as this test draws it: {error} ({plan})"
        events += outcome.events
    if WHOLE:
        assert events["sizes told"] > known * SEEDS
