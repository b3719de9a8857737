"""Play histories in which Iceberg clients ask for commits of their own snapshots (note 73).

Replay one with ``campaign.run(SEED, plan=draw_given(SEED, "iceberg"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_given
from tests.support.search import WHOLE, how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("iceberg", 60), ("mixed", 30)])
def test_every_answer_to_an_iceberg_client_is_true_in_the_end(formats, count):
    events = Counter()
    for seed in range(how_many(2, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_given(seed, formats)).events
    assert events["given done"], "no request was done"
    if WHOLE:
        wanted = ("given refused", "given none", "answer exists", "reconcile", "redo")
        assert {kind for kind in wanted if not events[kind]} == set()
