"""Play drawn histories with clients that follow the change feed, crash, and absorb
foreign commits.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_followed
from tests.support.search import WHOLE, how_many

SEEDS = how_many(1, whole=20)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_a_copy_made_from_the_change_feed_equals_the_lake_at_each_position_of_the_feed(formats):
    events = Counter()
    for seed in range(SEEDS):
        events += campaign.run(seed, plan=draw_followed(seed, formats)).events
    if WHOLE:
        assert events["copied"] > 5 * SEEDS  # states of the lake that were compared
        assert events["feed_is_as_it_was"] > 3 * SEEDS
        assert events["absorbed"] >= SEEDS // 10
