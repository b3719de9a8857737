"""Histories in which tables are overwritten whole, and files whose rows are the same stay.

Replay one with ``campaign.run(SEED, plan=draw_refreshed(SEED, "mixed"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_refreshed
from tests.support.search import WHOLE, how_many

#: How often more than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 20)])
def test_every_invariant_holds_where_files_are_kept(formats, count):
    events = Counter()
    for seed in range(how_many(1, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats)).events
    if WHOLE:
        assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 20)])
def test_every_invariant_holds_where_tables_are_defined_again(formats, count):
    events = Counter()
    for seed in range(how_many(1, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats, "redefine")).events
    if WHOLE:
        assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


def test_a_read_of_a_state_whose_files_are_no_longer_listed_keeps_nothing_from_being_published():
    """Another client expired the snapshots that a decided commit had read: it counts as touched."""
    campaign.run(53, plan=draw_refreshed(53, "iceberg"))
