"""Every crash point of a commit, and the interleavings of two commits up to a bound.

The commits change two Delta tables, or a Delta and an Iceberg table. An Iceberg table takes
requests of its own (manifests, a manifest list, the hint), and none of them may take effect before
HEAD.
"""

from functools import partial

import pytest

from lakevilla.maintenance import recovery
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import (
    crash_everywhere,
    crash_twice_everywhere,
    interleavings,
)
from lakevilla_testing.world.scheduler import Simulation
from tests.support.search import SOAK, STRIDE, first_seed, how_many
from tests.support.simulated.commits import TABLES, add_to, alone, balances, begin, lake, transfer
from tests.support.simulated.upkeep import collects, confirms

#: The number of interleavings of two clients of Delta tables.
SCHEDULES = how_many(6, whole=10_000, soak=20_000)
#: The same number for a lake of both formats, which sends more and slower requests.
SCHEDULES_OF_BOTH = how_many(4, whole=50, soak=SCHEDULES)


def recover(client):
    return recovery.recover(context_of(client))


#: The tables that are Iceberg tables; all others are Delta tables.
LAKES = pytest.mark.parametrize("iceberg", [(), ("b",)], ids=["delta", "mixed"])


def one_transfer(iceberg, faults, schedule):
    simulation = lake(faults, schedule, iceberg=iceberg)
    simulation.add("owner", transfer, restart=recover)
    return simulation


def check_all_or_nothing(simulation: Simulation):
    """Recover by another client: both tables have the transfer or none, and nothing is
    left over.
    """
    store = simulation.store
    alone(simulation, recover, "other")
    found = balances(simulation)
    moved = 100 - found["a"][0]
    assert moved in (0, 1)
    assert found["b"][0] == 100 + moved
    assert found["a"][1] == found["b"][1] == 100
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    invariants.recovery_twice_is_recovery_once(
        store, lambda: recovery.recover(context_of(simulation.clients[0]))
    )
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collects, "collector")
    head = "_lakevilla/HEAD.json" in store.objects
    if head:
        invariants.no_orphan_files(store, TABLES)
    assert balances(simulation) == found


@LAKES
def test_crash_at_any_request_of_a_commit_leaves_all_or_nothing(iceberg):
    runs = crash_everywhere(
        partial(one_transfer, iceberg), check_all_or_nothing, "owner", every=STRIDE
    )
    # Requests: HEAD; per table a list, reads and a probe; files, commit object, HEAD, entries.
    assert runs >= 15 * 4 // STRIDE


#: First crashes, each followed by each second one: all of a Delta lake, in so many tests; of a lake
#: of both formats (120, each for a minute) another one each day.
OF_DELTA, OF_BOTH = 11, 120
PAIRS = [pytest.param((), OF_DELTA * STRIDE, n, id=f"delta-{n}") for n in range(OF_DELTA)] + [
    pytest.param(("b",), 1 if SOAK else OF_BOTH, first_seed(), id="mixed")
]


@pytest.mark.timeout(0 if SOAK else 300)
@pytest.mark.parametrize(("iceberg", "every", "first"), PAIRS)
def test_a_crash_of_the_recovering_process_leaves_all_or_nothing(iceberg, every, first):
    build = partial(one_transfer, iceberg)
    runs = crash_twice_everywhere(build, check_all_or_nothing, "owner", every=every, first=first)
    assert runs > 1000 / every


def two_transfers(iceberg, faults, schedule):
    simulation = lake(faults, schedule, iceberg=iceberg)
    simulation.add("one", lambda client: transfer(client, "a", "b", 1))
    simulation.add("two", lambda client: transfer(client, "b", "a", 10))
    return simulation


def check_both(simulation: Simulation):
    alone(simulation, recover, "other")
    one, two = (client.result == "committed" for client in simulation.clients)
    assert one or two
    found = balances(simulation)
    assert found["a"][0] == 100 - 1 * one + 10 * two
    assert found["b"][0] == 100 + 1 * one - 10 * two
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.all_or_nothing(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)


@LAKES
@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
def test_two_commits_lose_nothing_in_any_interleaving(iceberg):
    limit = SCHEDULES_OF_BOTH if iceberg else SCHEDULES
    build = partial(two_transfers, iceberg)
    assert interleavings(build, check_both, limit=limit, preemptions=3) == limit


def decide(client):
    """Decide a transfer that its owner leaves to other clients to publish."""
    txn = begin(client)
    yield from add_to(txn, "a", -1)
    yield from add_to(txn, "b", 1)
    yield from commit(txn, publish=False)


def two_publishers(iceberg, faults, schedule):
    simulation = lake(faults, schedule, iceberg=iceberg)
    alone(simulation, decide, "owner")
    simulation.add("one", recover)
    simulation.add("two", recover)
    return simulation


def check_published_once(simulation: Simulation):
    store = simulation.store
    found = balances(simulation)
    assert (found["a"][0], found["b"][0]) == (99, 101)
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.all_or_nothing(store, TABLES)


@LAKES
@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
def test_two_publishers_publish_a_commit_once_in_any_interleaving(iceberg):
    limit = SCHEDULES_OF_BOTH if iceberg else SCHEDULES
    build = partial(two_publishers, iceberg)
    assert interleavings(build, check_published_once, limit=limit, preemptions=3) == limit
