"""Play drawn histories with clients that make tags, delete them, and vacuum all the time."""

from collections import Counter
from dataclasses import replace

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw_kept
from lakevilla_testing.world.faults import Fault
from tests.support.search import WHOLE, how_many

SEEDS = how_many(1, whole=20)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_each_ref_keeps_its_state_whatever_other_clients_do(formats):
    events, fired = Counter(), Counter()
    for seed in range(SEEDS):
        outcome = campaign.run(seed, plan=draw_kept(seed, formats))
        events += outcome.events
        fired += outcome.fired
    if WHOLE:
        assert events["kept"] > 5 * SEEDS  # states of tables that were compared
        assert fired[Fault.CLEAN_UP] > SEEDS


@pytest.mark.timeout(600)
@pytest.mark.parametrize("formats", ["delta", "iceberg", "mixed"])
def test_kept_refs_keep_their_state(formats):
    events = Counter()
    for seed in range(SEEDS):
        plan = replace(draw_kept(seed, formats), keeps_apart=True)
        events += campaign.run(seed, plan=plan).events
    if WHOLE:
        assert events["kept"] > 5 * SEEDS
        assert events["kept apart"] > SEEDS / 2
