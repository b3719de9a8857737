"""Play histories in which the threads of a few processes change the same rows (note 68).

Replay one with ``campaign.run(SEED, plan=draw_hot(SEED, "delta"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_hot, draw_told
from tests.support.search import WHOLE, how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 60), ("iceberg", 40), ("mixed", 20)])
def test_every_invariant_holds_where_transactions_share_versions(formats, count):
    events = Counter()
    for seed in range(how_many(4, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_hot(seed, formats)).events
    assert events["combined"], "no two transactions shared a version"
    if WHOLE:
        assert {kind for kind in ("redo", "interrupted") if not events[kind]} == set()


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_a_log_has_what_a_transaction_tells_it_beside_others_that_share_versions(formats):
    events = Counter()
    for seed in range(how_many(2, whole=20 * TIMES)):
        events += campaign.run(seed, plan=draw_told(seed, formats)).events
    assert events["told"]
