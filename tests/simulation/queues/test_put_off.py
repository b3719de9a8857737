"""Test deferred operations, which are performed at the commit, among other clients and crashes."""

from functools import partial

import pytest

from lakevilla.maintenance import recovery
from lakevilla.settings import Settings
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings
from tests.support.search import STRIDE, WHOLE, how_many
from tests.support.simulated.commits import (
    RCT,
    RCTI,
    RI,
    TABLES,
    Member,
    add_to,
    alone,
    balances,
    begin,
    lake,
    read,
    transfer,
)
from tests.support.simulated.upkeep import collects, confirms

FEATURES = pytest.mark.parametrize("features", [RI, RCT, RCTI], ids=["R|I", "R|CT", "R|CT|I"])
QUEUED = pytest.mark.parametrize("features", [RCT, RCTI], ids=["R|CT", "R|CT|I"])
#: A lease ends after few polls, so that a run stays short.
SETTINGS = Settings(lease_seconds=4.0, wait_poll_seconds=1.0)


def recover(client):
    return recovery.recover(context_of(client))


def check(simulation):
    """Check that each transfer is whole or absent, acknowledged ones are whole, and nothing is left
    over.
    """
    store = simulation.store
    alone(simulation, recover, "other")
    found = balances(simulation)
    amounts = {"owner": 1, "one": 1, "two": -10}
    sure = sum(amounts[c.name] for c in simulation.clients if c.result == "committed")
    open_ = [amounts[c.name] for c in simulation.clients if c.name in amounts and c.result is None]
    moved = 100 - found["a"][0]
    assert moved in {sure, *(sure + amount for amount in open_)}
    assert found == {"a": {0: 100 - moved, 1: 100}, "b": {0: 100 + moved, 1: 100}}
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.tables_follow_head(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collects, "collector")
    invariants.every_marker_ends(store, TABLES)
    invariants.no_orphan_files(store, TABLES)
    assert balances(simulation) == found


@FEATURES
def test_a_crash_at_any_request_of_a_deferred_commit_leaves_all_or_nothing(features):
    def build(faults, schedule):
        simulation = lake(faults, schedule, settings=SETTINGS)
        program = partial(transfer, features=features, defer=True)
        simulation.add("owner", program, restart=recover)
        return simulation

    # Requests: HEAD twice; per table a probe, a read, a file and an entry; the commit object.
    assert crash_everywhere(build, check, "owner", every=STRIDE) >= 12 * 4 // STRIDE


@FEATURES
def test_two_crossing_deferred_transfers_both_commit_in_every_interleaving(features):
    """Play all interleavings in which no turn or one turn is taken away from a client."""

    def build(faults, schedule):
        simulation = lake(faults, schedule, settings=SETTINGS)
        for name, pair, amount, defer in (("one", "ab", 1, True), ("two", "ba", 10, False)):
            program = partial(
                transfer,
                source=pair[0],
                target=pair[1],
                amount=amount,
                features=features,
                defer=defer,
            )
            simulation.add(name, program)
        return simulation

    def both(simulation):
        assert [client.result for client in simulation.clients] == ["committed", "committed"]
        check(simulation)

    limit = how_many(20, whole=1_000_000)
    runs = interleavings(build, both, limit=limit, preemptions=1)
    assert 50 < runs < limit if WHOLE else runs == limit


@QUEUED
def test_deferred_operations_wait_for_transactions_ahead_and_are_performed_once(features):
    simulation = lake()
    order = []

    def work(name, pause, **options):
        def program(client):
            yield from sleep(pause)
            txn = begin(client, features, **options)
            yield from add_to(txn, "a", 1)
            yield from sleep(2.0 - 2 * pause)
            yield from commit(txn)
            order.append(name)
            return txn.work.redos

        return program

    first = simulation.add("first", work("first", 0.0))
    late = simulation.add("late", work("late", 0.5, defer=True))
    simulation.run()
    assert order == ["first", "late"]
    assert (first.result, late.result) == (0, 0), "it was done once, after the other"
    assert balances(simulation, "a") == {"a": {0: 102, 1: 100}}


@FEATURES
@pytest.mark.parametrize("seed", range(6))
def test_reads_still_hold_when_deferred_operations_are_performed(features, seed):
    """Otherwise a client would write an amount that it has computed from an outdated balance."""
    simulation = lake(seed=seed)

    def body(txn):
        seen = yield from read(txn, "a", "id = 0")
        yield from sleep(0.5)
        yield from add_to(txn, "b", seen[0])

    members = [Member(simulation, f"m{number}", body, features, defer=True) for number in range(2)]
    Member(simulation, "rival", lambda txn: add_to(txn, "a", 7), features)
    simulation.run()
    assert {member.result for member in members} == {"committed"}
    found = balances(simulation)
    assert found["a"][0] == 107
    # Each client has read 100 or 107: both orders are serial.
    assert found["b"][0] - 100 in {200, 207, 214}
