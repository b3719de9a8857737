"""Test lakes on stores that differ from S3, as Ceph, R2 and others are known to."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from lakevilla.store.effects import Program
from lakevilla.store.probe import probe
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import draw
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import RandomFaults, swarm
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import RandomSchedule
from lakevilla_testing.world.store import Deviation
from tests.support.search import how_many

DEVIATIONS = [deviation for deviation in get_args(Deviation) if deviation]


@pytest.mark.cases(None)
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_the_probe_finds_out_that_a_store_with_a_deviation_is_safe(deviation: Deviation) -> None:
    simulation = Simulation(3)
    simulation.store.deviation = deviation

    def program(client: Client) -> Program[bool]:
        return (yield from probe(client.ids))

    client = simulation.add("prober", program)
    simulation.run()
    assert client.result is True
    assert simulation.store.objects == {}


@pytest.mark.cases(None)
@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_every_invariant_holds_on_a_store_with_a_deviation(deviation: Deviation) -> None:
    for seed in range(2, 2 + how_many(1, whole=60)):
        plan = draw(seed)
        faults = random.Random(f"{seed}/faults")
        simulation = Simulation(
            seed,
            schedule=RandomSchedule(random.Random(f"{seed}/schedule")),
            faults=RandomFaults(swarm(faults, plan.intensity), faults),
            settings=plan.settings,
        )
        simulation.store.deviation = deviation
        campaign.run(seed, plan=plan, simulation=simulation)
