"""Play histories over tables whose deleted rows are marked (notes 65 and 66).

Replay one with ``campaign.run(SEED, plan=draw_marked(SEED, "delta"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_marked
from tests.support.search import WHOLE, how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 60), ("iceberg", 60), ("mixed", 20)])
def test_every_invariant_holds_where_deleted_rows_are_marked(formats, count):
    events = Counter()
    for seed in range(how_many(3, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_marked(seed, formats)).events
    if WHOLE:
        assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()
