"""Histories whose tables change their columns while rows are read and written (hazard 35).

``LAKEVILLA_RESHAPED`` sets how many of each kind of lake.
"""

import os
from collections import Counter

import pytest

from lakevilla.testing.histories import campaign
from lakevilla.testing.histories.plan import draw_reshaped

HISTORIES = int(os.environ.get("LAKEVILLA_RESHAPED", "8"))


@pytest.mark.daily(2, of="campaigns")
@pytest.mark.timeout(600 + HISTORIES)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_every_invariant_holds_while_columns_change(formats):
    told, ended = Counter(), Counter()
    for seed in range(HISTORIES):
        outcome = campaign.run(seed, plan=draw_reshaped(seed, formats))
        told += outcome.events
        ended += outcome.ended
    assert ended["reshape committed"] > 2 * HISTORIES
    assert told["redo"]
