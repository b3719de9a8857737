"""A toy protocol to test the simulator: a counter kept by compare-and-swap."""

import json
import random

from lakevilla.store.base import ABSENT, Match, Missing, Stored, Unknown
from lakevilla.store.effects import get, put
from lakevilla_testing.world.faults import RandomFaults, swarm
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import PrioritySchedule, RandomSchedule


def increment(client, times, *, careful=True):
    """Add one, ``times`` times; return the numbers of acknowledged and of doubtful increments."""
    acknowledged = unknown = 0
    while acknowledged + unknown < times:
        found = yield from get("counter")
        if isinstance(found, Missing):
            value, condition = 0, ABSENT
        else:
            value, condition = json.loads(found.body)["value"], Match(found.token)
        body = {"value": value + 1}
        if careful:
            body["nonce"] = client.ids.nonce()
        outcome = yield from put("counter", json.dumps(body).encode(), condition)
        acknowledged += isinstance(outcome, Stored)
        unknown += isinstance(outcome, Unknown)
    return acknowledged, unknown


def run_counter(seed, *, clients=3, times=4, intensity=1.0, careful=True):
    source = random.Random(f"{seed}/faults")
    moves = random.Random(f"{seed}/schedule")
    simulation = Simulation(
        seed,
        schedule=PrioritySchedule(moves) if seed % 2 else RandomSchedule(moves),
        faults=RandomFaults(swarm(source, intensity), source),
        clock_rates=True,
    )
    for number in range(clients):
        simulation.add(f"c{number}", lambda client: increment(client, times, careful=careful))
    simulation.run()
    simulation.land_delayed_writes()
    return simulation


def value_of(simulation):
    found = simulation.store.objects.get("counter")
    return 0 if found is None else json.loads(found.body)["value"]


def check_counter(simulation):
    """Check that the counter has all acknowledged increments, and no more than may have been
    stored.
    """
    sure = sum(client.result[0] for client in simulation.clients if client.result)
    doubt = sum(client.result[1] for client in simulation.clients if client.result)
    crashed = sum(client.status == "crashed" for client in simulation.clients)
    least = sure
    most = sure + doubt if not crashed else 10**9
    assert least <= value_of(simulation) <= most, (least, value_of(simulation), most)
