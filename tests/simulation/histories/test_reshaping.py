"""Histories whose tables change their columns while rows are read and written (hazard 35).

Eight of each kind of lake in ``make test-all``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_reshaped
from tests.support.search import WHOLE, how_many

HISTORIES = how_many(1, whole=8, soak=200)


@pytest.mark.timeout(600 + HISTORIES)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_every_invariant_holds_while_columns_change(formats):
    told, ended = Counter(), Counter()
    for seed in range(HISTORIES):
        outcome = campaign.run(seed, plan=draw_reshaped(seed, formats))
        told += outcome.events
        ended += outcome.ended
    if WHOLE:
        assert ended["reshape committed"] > 2 * HISTORIES
        assert told["redo"]
