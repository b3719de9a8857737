"""Histories in which tables are overwritten whole, and files whose rows are the same stay.

Replay one with ``campaign.run(SEED, plan=draw_refreshed(SEED, "mixed"))``.
"""

import os
from collections import Counter

import pytest

from lakevilla.testing.histories import campaign
from lakevilla.testing.histories.plan import draw_refreshed

#: How often more than in every run.
TIMES = 50 if "LAKEVILLA_SOAK" in os.environ else 1


@pytest.mark.daily(2, of="campaigns")
@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 20)])
def test_every_invariant_holds_where_files_are_kept(formats, count):
    events = Counter()
    for seed in range(count * TIMES):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats)).events
    assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


@pytest.mark.daily(2, of="campaigns")
@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 20)])
def test_every_invariant_holds_where_tables_are_defined_anew(formats, count):
    events = Counter()
    for seed in range(count * TIMES):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats, "redefine")).events
    assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


def test_a_read_of_a_state_whose_files_are_no_longer_listed_keeps_nothing_from_being_published():
    """Another client expired the snapshots that a decided commit had read: it counts as touched."""
    campaign.run(53, plan=draw_refreshed(53, "iceberg"))
