"""Test every crash point of a queued commit, and every interleaving of two crossing transfers."""

from functools import partial

import pytest

from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.settings import Settings
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import (
    crash_both_everywhere,
    crash_everywhere,
    crash_twice_everywhere,
    interleavings,
    interleavings_with_a_crash,
)
from tests.support.search import SOAK, STRIDE, WHOLE, first_seed, how_many
from tests.support.simulated.commits import RCT, RCTI, TABLES, alone, balances, lake, transfer
from tests.support.simulated.upkeep import collects, confirms

QUEUED = pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])

#: A lease ends after few polls, so that a run stays short.
SETTINGS = Settings(lease_seconds=4.0, wait_poll_seconds=1.0)


def recover(client):
    return recovery.recover(context_of(client))


def one_transfer(features, faults, schedule):
    simulation = lake(faults, schedule, settings=SETTINGS)
    program = partial(transfer, features=features)
    simulation.add("owner", program, restart=recover)
    return simulation


def two_transfers(features, faults, schedule):
    """Let two transfers cross: each takes its place first in the table that the other
    takes second.
    """
    simulation = lake(faults, schedule, settings=SETTINGS)
    simulation.add("one", lambda client: transfer(client, "a", "b", 1, features))
    simulation.add("two", lambda client: transfer(client, "b", "a", 10, features))
    return simulation


def check(simulation):
    """Check that live clients have committed, that a dead client's commit is whole or absent, and
    that no place is left.
    """
    store = simulation.store
    alone(simulation, recover, "other")
    invariants.every_marker_ends(store, TABLES)
    found = balances(simulation)
    committed = {client.name for client in simulation.clients if client.result == "committed"}
    lived = {client.name for client in simulation.clients if client.status == "done"}
    assert {name for name in lived if not name.endswith("'")} <= committed
    moved = 100 - found["a"][0]
    assert found["b"][0] == 100 + moved
    assert found["a"][1] == found["b"][1] == 100
    amounts = {"owner": 1, "one": 1, "two": -10}
    sure = sum(amounts[name] for name in committed)
    died = [a for name, a in amounts.items() if name not in committed]
    sums = {sure}
    for amount in died:
        sums |= {total + amount for total in sums}
    assert moved in sums
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.tables_follow_head(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collects, "collector")
    invariants.every_marker_ends(store, TABLES)
    records = [key for key in store.objects if key.startswith("_lakevilla/txns/")]
    assert records == [f"_lakevilla/txns/{TIME_NAME}"]
    invariants.no_orphan_files(store, TABLES)
    assert balances(simulation) == found


@QUEUED
def test_crash_at_any_request_of_a_queued_commit_leaves_all_or_nothing_and_no_place(features):
    runs = crash_everywhere(partial(one_transfer, features), check, "owner", every=STRIDE)
    # The requests of a plain commit, and: record, lists, markers, lists again, and their deletes.
    assert runs >= 24 * 4 // STRIDE


#: The first of the drawn crashes: they are fewer than a stride of `make test`.
FIRST = first_seed() if WHOLE else 0


@QUEUED
def test_a_crash_of_the_recovering_process_leaves_all_or_nothing(features):
    every = how_many(600, whole=60, soak=1)
    build = partial(one_transfer, features)
    runs = crash_twice_everywhere(build, check, "owner", every=every, first=FIRST)
    assert runs > 1000 / every


@QUEUED
def test_two_crossing_transfers_may_both_crash_anywhere(features):
    every = how_many(390, whole=13, soak=1)
    build = partial(two_transfers, features)
    runs = crash_both_everywhere(build, check, ("one", "two"), every=every, first=FIRST)
    assert runs > 5000 / every


#: Far more than there are interleavings.
EVERY = 1_000_000


@QUEUED
def test_two_crossing_transfers_both_commit_in_every_interleaving(features):
    """Play all interleavings in which no turn or one turn (``make soak``: two) is taken away from a
    client.
    """
    build = partial(two_transfers, features)
    limit = how_many(40, whole=EVERY)
    runs = interleavings(build, check, limit=limit, preemptions=2 if SOAK else 1)
    assert 200 < runs < EVERY if WHOLE else runs == limit


@QUEUED
def test_a_transfer_survives_every_crash_of_a_transfer_that_crosses_it(features):
    """Crash the other client at each request, in four ways; ``make soak``: in all those
    interleavings.
    """
    limit = how_many(1, whole=5, soak=EVERY)
    build = partial(two_transfers, features)
    runs = interleavings_with_a_crash(build, check, "one", limit=limit, preemptions=1, every=STRIDE)
    assert runs >= 120 * min(limit, 50) // STRIDE
