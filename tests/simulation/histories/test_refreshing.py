"""Play histories in which clients overwrite whole tables, and files with unchanged rows stay.

Replay one with ``campaign.run(SEED, plan=draw_refreshed(SEED, "mixed"))``.
"""

from collections import Counter

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_refreshed
from tests.support.search import WHOLE, how_many

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 40)])
def test_every_invariant_holds_where_an_overwrite_keeps_files(formats, count):
    events = Counter()
    for seed in range(how_many(1, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats)).events
    if WHOLE:
        assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("delta", 30), ("iceberg", 40)])
def test_every_invariant_holds_where_an_overwrite_redefines_tables(formats, count):
    events = Counter()
    for seed in range(how_many(1, whole=count * TIMES)):
        events += campaign.run(seed, plan=draw_refreshed(seed, formats, "redefine")).events
    if WHOLE:
        assert {kind for kind in ("redo", "reconcile") if not events[kind]} == set()


def test_a_commit_is_published_though_the_file_list_of_the_state_it_read_was_expired():
    """Another client expired the snapshots that a decided commit had read: its read counts as
    changed.
    """
    campaign.run(53, plan=draw_refreshed(53, "iceberg"))
