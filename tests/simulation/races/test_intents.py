"""Test operations that other processes perform: with a crash at every request, in every order."""

import random
from contextlib import ExitStack
from functools import partial

import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.commit.together import combine, group
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import (
    crash_both_everywhere,
    crash_everywhere,
    interleavings,
)
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.bugs import attribute
from lakevilla_testing.world.interrupts import interrupted
from lakevilla_testing.world.timed import TimedSimulation
from tests.support.search import SOAK, STRIDE, first_seed, how_many
from tests.support.simulated.commits import (
    TABLES,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
)
from tests.support.simulated.threads import asking, process, recover
from tests.support.simulated.transfers import commits, drawn, moved, performing
from tests.support.simulated.upkeep import collects, confirms

SCHEDULES = how_many(6, whole=10_000, soak=20_000)
#: What each process adds: the sum tells which of them have committed.
AMOUNTS = {"one": 1, "two": 10, "three": 100}


@pytest.fixture(autouse=True)
def _hot_and_crowded():
    with small_limits(False, crowded=True, hot=True):
        yield


def adds(client, amount, begun=None):
    """Move an amount between the tables in a process of its own, and look at no result."""
    txn = begin(client, defer=True)
    if begun is not None:
        begun.append(txn)
    try:
        yield from add_to(txn, "a", amount)
        yield from add_to(txn, "b", -amount)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    assert [done.counts.rows_updated for done in txn.work.done] == [1, 1]
    return "committed"


def processes(faults=None, schedule=None, *, names=("one", "two"), iceberg=(), seed=0):
    simulation = lake(faults, schedule, iceberg=iceberg, seed=seed)
    for name in names:
        simulation.add(name, partial(adds, amount=AMOUNTS[name]), restart=recover)
    return simulation


def check(simulation):
    """Check that each amount is there once or not at all, and as its process was told."""
    alone(simulation, recover, "other")
    there = moved(simulation)
    for client in simulation.clients:
        if client.name in AMOUNTS:
            count = there // AMOUNTS[client.name] % 10
            assert count <= 1
            assert client.result != "committed" or count == 1
            assert client.result != "lost" or count == 0
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.all_or_nothing(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)


def check_and_collect(simulation):
    """Check the same; and that gc leaves no proposal and no unowned file once HEAD has advanced."""
    check(simulation)
    for number in range(5):
        alone(simulation, _touch, f"mover {number}")
    # The movers may have performed operations that were left in the inbox.
    check(simulation)
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collects, "collector")
    assert [key for key in simulation.store.objects if key.startswith(INBOX_PREFIX)] == []
    invariants.no_orphan_files(simulation.store, TABLES)
    check(simulation)


def _touch(client):
    txn = begin(client)
    yield from add_to(txn, "a", 0)
    yield from commit(txn)


# ------------------------------------------------------------- going together


@pytest.mark.parametrize("iceberg", [(), TABLES, ("b",)])
def test_processes_that_change_the_same_rows_share_versions(iceberg):
    shared = 0
    for seed in range(6):
        simulation = processes(names=AMOUNTS, iceberg=iceberg, seed=seed)
        simulation.run()
        assert [client.result for client in simulation.clients] == ["committed"] * 3
        check(simulation)
        assert moved(simulation) == sum(AMOUNTS.values())
        shared += sum(len(one.members) > 1 for one in commits(simulation))
    assert shared > 0


@pytest.mark.parametrize("seed", range(20))
def test_operations_of_others_do_the_same_as_in_commits_one_after_the_other(seed):
    """The operations of each process, some of which fail, and the counts that it is told."""
    source = random.Random(f"intents/{seed}")
    members = [drawn(source) for _ in range(source.randint(2, 5))]
    simulation = lake(seed=seed)
    for number, operations in enumerate(members):
        simulation.add(f"process {number}", partial(performing, operations=operations))
    simulation.run()
    results = [client.result for client in simulation.clients]
    told = dict(results)
    order = [txn for one in commits(simulation) for txn in one.transactions]
    by_id = {txn: operations for (txn, _), operations in zip(results, members, strict=True)}
    again = lake(seed=seed)
    with small_limits(False):
        for number, txn in enumerate(order):
            if txn in by_id:
                found = alone(again, partial(performing, operations=by_id[txn]), f"alone{number}")
                assert found[1] == told[txn]
    assert balances(simulation) == balances(again)
    for txn in by_id.keys() - set(order):
        assert isinstance(told[txn], str)


def test_32_processes_on_one_row_lose_nothing_and_commit_together():
    simulation = TimedSimulation(3)
    simulation.store = lake().store
    done = []

    def works(client):
        context = context_of(client)
        yield from sleep(0.5 * client.random.random())
        while simulation.now < 6:
            txn = begin(client, context=context, defer=True)
            yield from add_to(txn, "a", 1)
            yield from commit(txn)
            done.append(client.name)

    for number in range(32):
        simulation.add(f"process {number}", works)
    simulation.run()
    assert balances(simulation)["a"][0] == 100 + len(done)
    invariants.no_id_commits_twice(simulation.store, TABLES)
    assert len(done) > 6 * 30
    assert len(set(done)) == 32


def test_processes_find_out_by_themselves_that_they_change_the_same_rows():
    simulation = TimedSimulation(3)
    simulation.store = lake().store
    done = []

    def works(client):
        context = context_of(client)
        yield from sleep(0.5 * client.random.random())
        while simulation.now < 10:
            txn = begin(client, context=context)
            combine.defer_if_hot(txn)  # as ``lake.run`` does
            yield from add_to(txn, "a", 1)
            yield from commit(txn)
            done.append((simulation.now, client.name))

    usual = [(combine, "COLD", float("-inf")), (group, "CROWD", 2), (group, "DOUBTFUL_SECONDS", 5)]
    with ExitStack() as planted:
        for one in usual:
            planted.enter_context(attribute(*one))
        for number in range(8):
            simulation.add(f"process {number}", works)
        simulation.run()
    assert balances(simulation)["a"][0] == 100 + len(done)
    late = [name for now, name in done if now > 5]
    assert len(late) > 5 * 8, "raced for HEAD alone they make four a second"
    assert len(set(late)) == 8


# ------------------------------------------------------------------ mishaps


@pytest.mark.parametrize("iceberg", [(), ("b",)], ids=["delta", "mixed"])
def test_an_owner_or_leader_that_crashes_anywhere_leaves_all_or_nothing(iceberg):
    build = partial(processes, iceberg=iceberg)
    assert crash_everywhere(build, check_and_collect, "one", every=STRIDE) >= 60 // STRIDE


@pytest.mark.timeout(0 if SOAK else 300)
def test_owner_and_leader_may_both_crash_anywhere():
    every = how_many(970, whole=97, soak=1)
    runs = crash_both_everywhere(processes, check, ("one", "two"), every=every, first=first_seed())
    assert runs > 1000 / every


@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
def test_operations_of_two_processes_are_performed_once_in_any_order():
    assert interleavings(processes, check, limit=SCHEDULES, preemptions=3) == SCHEDULES


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("instant", ["before", "after"])
def test_an_owner_that_is_interrupted_finds_out_whether_others_have_committed_it(instant, again):
    endings = set()
    for at in range(1, 60, how_many(3, whole=1)):
        begun = []

        def owner(client, at=at, begun=begun):
            try:
                return (yield from interrupted(adds(client, 1, begun), at, instant))
            except KeyboardInterrupt:
                txn = begun[0]
                if again and txn.state == "open" and len(txn.work.done) == 2:
                    yield from commit(txn)
                    return "committed"
                yield from end(txn)
                return "unknown" if txn.ending.tried else "never"

        simulation = lake(seed=at)
        simulation.add("owner", owner)
        for name in ("two", "three"):
            simulation.add(name, partial(adds, amount=AMOUNTS[name]))
        simulation.run()
        ending, *rest = [client.result for client in simulation.clients]
        assert rest == ["committed"] * 2
        # Until HEAD has moved past the proposal, other processes may perform it.
        for number in range(5):
            alone(simulation, _touch, f"mover {number}")
        alone(simulation, recover, "other")
        there = moved(simulation) - 110
        assert there in (0, 1)
        assert ending != "committed" or there
        assert ending != "never" or not there
        told = alone(simulation, asking(begun[0].id), "asker")
        assert told.state == ("committed" if there else "aborted")
        invariants.no_id_commits_twice(simulation.store, TABLES)
        endings.add((ending, there))
    assert endings >= ({("committed", 1)} if again else {("never", 0), ("unknown", 1)})


def test_processes_with_threads_perform_each_others_operations():
    for seed in range(4):
        simulation = lake(seed=seed)
        for name in ("one", "two"):
            amounts = [AMOUNTS[name] * 10 ** (2 * n) for n in range(3)]
            threads = [
                lambda context, client, amount=amount: _thread(context, client, amount)
                for amount in amounts
            ]
            simulation.add(name, process(*threads))
        simulation.run()
        assert [client.result for client in simulation.clients] == [["committed"] * 3] * 2
        assert moved(simulation) == 111111
        invariants.no_id_commits_twice(simulation.store, TABLES)


def _thread(context, client, amount):
    txn = begin(client, context=context, defer=True)
    yield from add_to(txn, "a", amount)
    yield from add_to(txn, "b", -amount)
    yield from commit(txn)
    return "committed"
