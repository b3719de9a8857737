"""Play histories in which threads wait for their turn in a chain (note 69).

Replay one with ``campaign.run(SEED, plan=draw_chained(SEED, "delta"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_chained
from tests.support.search import WHOLE, how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 60), ("iceberg", 40), ("mixed", 20)])
def test_every_invariant_holds_where_transactions_read_what_is_not_decided(formats, count):
    events = Counter()
    for seed in range(how_many(6, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_chained(seed, formats)).events
    assert events["combined"], "no transaction was performed in a chain"
    if WHOLE:
        assert {kind for kind in ("redo", "interrupted") if not events[kind]} == set()
