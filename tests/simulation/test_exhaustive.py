"""Every crash point of a commit, and the interleavings of two commits up to a bound."""

import os

from lakevilla.testing import invariants
from lakevilla.testing.exhaustive import crash_everywhere, crash_twice_everywhere, interleavings
from lakevilla.testing.scheduler import Simulation
from lakevilla.testing.workloads import context_of
from lakevilla.transaction import gc, recovery

from .commits import TABLES, alone, balances, lake, transfer

SOAK = "LAKEVILLA_SOAK" in os.environ


def recover(client):
    return recovery.recover(context_of(client))


def one_transfer(faults, schedule):
    simulation = lake(faults, schedule)
    simulation.add("owner", transfer, restart=recover)
    return simulation


def check_all_or_nothing(simulation: Simulation):
    """Recovered by another client: both tables or none, once and for all, and nothing left over."""
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
    alone(simulation, lambda client: gc.gc(context_of(client)), "collector")
    head = "_lakevilla/HEAD.json" in store.objects
    if head:
        invariants.no_orphan_files(store, TABLES)
    assert balances(simulation) == found


def test_crash_at_any_request_of_a_commit_leaves_all_or_nothing():
    runs = crash_everywhere(one_transfer, check_all_or_nothing, "owner")
    # HEAD; per table a list, reads and a probe; files, commit object, HEAD, entries.
    assert runs >= 15 * 4


def test_crash_of_the_process_that_recovers_leaves_all_or_nothing():
    every = 1 if SOAK else 11
    runs = crash_twice_everywhere(one_transfer, check_all_or_nothing, "owner", every=every)
    assert runs > 1000 / every


def two_transfers(faults, schedule):
    simulation = lake(faults, schedule)
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


def test_two_commits_interleaved_in_every_way_lose_nothing():
    limit = 20_000 if SOAK else 150
    assert interleavings(two_transfers, check_both, limit=limit, preemptions=3) == limit
