"""Play drawn histories with foreign writers: the table sizes in HEAD are the sizes of
the tables.
"""

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
    # The foreign writer of simulated Iceberg tables writes no totals into its summaries.
    [("delta", 8), ("iceberg", 1)],
)
def test_table_sizes_in_each_head_are_those_of_the_tables(formats, known):
    events = Counter()
    for seed in range(SEEDS):
        plan = replace(draw(seed), formats=formats, foreign=("append", "rewrite"))
        outcome, _, error = campaign.replay(seed, plan=plan)
        assert error is None, f"seed {seed} as this test draws it: {error} ({plan})"
        events += outcome.events
    if WHOLE:
        assert events["sizes told"] > known * SEEDS
