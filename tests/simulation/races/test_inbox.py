"""Test commits that other processes include: with a crash at every request, and in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.maintenance import recovery
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.effects import Program, sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import (
    crash_both_everywhere,
    crash_everywhere,
    interleavings,
)
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.timed import TimedSimulation
from tests.support.search import SOAK, STRIDE, first_seed, how_many
from tests.support.simulated.commits import TABLES, add_to, alone, begin, end, lake
from tests.support.simulated.memory_lake import rows_of
from tests.support.simulated.upkeep import collects, confirms

SCHEDULES = how_many(6, whole=10_000, soak=20_000)


@pytest.fixture(autouse=True)
def _crowded() -> Iterator[None]:
    with small_limits(False, crowded=True):
        yield


def adds(client: Client, number: int) -> Program[str]:
    """Add one row to both tables in a process of its own."""
    txn = begin(client)
    try:
        for table in TABLES:
            yield from read_write.append(txn, table, rows_of(number).to_reader())
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    return "committed"


def recover(client: Client) -> Program[Any]:
    return recovery.recover(context_of(client))


def two_processes(faults: Any, schedule: Any, iceberg: tuple[str, ...] = ()) -> Simulation:
    simulation = lake(faults, schedule, iceberg=iceberg)
    simulation.add("one", lambda client: adds(client, 101), restart=recover)
    simulation.add("two", lambda client: adds(client, 102), restart=recover)
    return simulation


def check(simulation: Simulation) -> None:
    """Check that each row is in both tables once or in none, acknowledged rows are there, and no
    proposal is left.
    """
    alone(simulation, recover, "other")
    found = {
        table: sorted(row["id"] for row in table_rows(simulation.store, table) if row["id"] > 100)
        for table in TABLES
    }
    assert found["a"] == found["b"]
    assert len(set(found["a"])) == len(found["a"])
    results = {client.name: client.result for client in simulation.clients}
    for name, number in (("one", 101), ("two", 102)):
        if results.get(name) == "committed":
            assert number in found["a"]
        if results.get(name) == "lost":
            assert number not in found["a"]
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.all_or_nothing(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)


def check_and_collect(simulation: Simulation) -> None:
    """Check the same; and that gc leaves no proposal and no unowned file once HEAD has advanced."""
    check(simulation)
    for number in range(5):
        alone(simulation, _touch, f"mover {number}")
    # the movers may have included commits that were left in the inbox
    alone(simulation, recover, "finisher")
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collects, "collector")
    left = [key for key in simulation.store.objects if key.startswith(INBOX_PREFIX)]
    assert left == []
    invariants.no_orphan_files(simulation.store, TABLES)
    check(simulation)


def _touch(client: Client) -> Program[None]:
    txn = begin(client)
    yield from add_to(txn, "a", 0)
    yield from commit(txn)


@pytest.mark.parametrize("iceberg", [(), ("b",)], ids=["delta", "mixed"])
def test_an_owner_or_leader_that_crashes_anywhere_leaves_all_or_nothing(
    iceberg: tuple[str, ...],
) -> None:
    def build(faults: Any, schedule: Any) -> Simulation:
        return two_processes(faults, schedule, iceberg)

    runs = crash_everywhere(build, check_and_collect, "one", every=STRIDE)
    assert runs >= 20 * 4 // STRIDE


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_crash_anywhere_leaves_all_or_nothing_with_a_clock_an_hour_off(hours: int) -> None:
    def off(program: Any) -> Any:
        def started(client: Client) -> Program[Any]:
            client.clock.skew(hours * 3600.0)
            return (yield from program(client))

        return started

    def build(faults: Any, schedule: Any) -> Simulation:
        simulation = lake(faults, schedule)
        one, two = partial(adds, number=101), partial(adds, number=102)
        simulation.add("one", off(one), restart=off(recover))
        simulation.add("two", two, restart=recover)
        return simulation

    runs = [
        crash_everywhere(build, check_and_collect, client, every=STRIDE)
        for client in ("one", "two")
    ]
    assert min(runs) >= 15 * 4 // STRIDE


@pytest.mark.timeout(0 if SOAK else 300)
def test_owner_and_leader_may_both_crash_anywhere() -> None:
    every = how_many(970, whole=97, soak=1)
    runs = crash_both_everywhere(
        two_processes, check, ("one", "two"), every=every, first=first_seed()
    )
    assert runs > 1000 / every


@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
def test_commits_of_two_processes_lose_nothing_in_any_interleaving() -> None:
    assert interleavings(two_processes, check, limit=SCHEDULES, preemptions=3) == SCHEDULES


# ---------------------------------------------------------------- what reads and changes rows


def furnished(faults: Any, schedule: Any) -> Simulation:
    """Return a lake with a row 10 and a row 20 in both tables, in files of their own."""
    simulation = lake(faults, schedule)
    with small_limits(False):
        for number in (10, 20):
            alone(simulation, partial(_add_rows, number=number), f"maker {number}")
    return simulation


def _add_rows(client: Client, number: int) -> Program[None]:
    txn = begin(client)
    for table in TABLES:
        yield from read_write.append(txn, table, rows_of(number).to_reader())
    yield from commit(txn)


def skews(client: Client, mine: str) -> Program[str]:
    """Turn this client's row off if both rows are on: a balance of 0 is on, of 1 off."""
    txn = begin(client)
    try:
        balances = []
        for table in TABLES:
            rows = yield from read_write.scan(txn, table, None, parse_predicate("id = 10"))
            balances += [row["balance"] for row in rows.read_all().to_pylist()]
        if any(balances):
            yield from end(txn)
            return "seen"
        yield from add_to(txn, mine, 1, 10)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    return "committed"


def adds_one(client: Client, number: int) -> Program[str]:
    """Change a row in both tables."""
    txn = begin(client)
    try:
        for table in TABLES:
            yield from add_to(txn, table, 1, number)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    return "committed"


def two_that_skew(faults: Any, schedule: Any) -> Simulation:
    simulation = furnished(faults, schedule)
    simulation.add("one", lambda client: skews(client, "a"), restart=recover)
    simulation.add("two", lambda client: skews(client, "b"), restart=recover)
    return simulation


def two_apart(faults: Any, schedule: Any) -> Simulation:
    simulation = furnished(faults, schedule)
    simulation.add("one", lambda client: adds_one(client, 10), restart=recover)
    simulation.add("two", lambda client: adds_one(client, 20), restart=recover)
    return simulation


def _balances(simulation: Simulation) -> dict[tuple[str, int], int]:
    alone(simulation, recover, "other")
    rows = [(table, row) for table in TABLES for row in table_rows(simulation.store, table)]
    found = {(table, row["id"]): row["balance"] for table, row in rows}
    assert len(found) == len(rows), "a row is there twice"
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)
    return found


def check_skew(simulation: Simulation) -> None:
    """Check that at most one of the two has committed, and that it is the acknowledged one."""
    found = _balances(simulation)
    results = {client.name: client.result for client in simulation.clients}
    off = {name: found[table, 10] for name, table in (("one", "a"), ("two", "b"))}
    assert sum(off.values()) <= 1
    for name, count in off.items():
        if results.get(name) == "committed":
            assert count == 1
        if results.get(name) in ("lost", "seen"):
            assert count == 0


def check_apart(simulation: Simulation) -> None:
    """Check that each update is in both tables once or in none, and that neither is lost."""
    found = _balances(simulation)
    results = {client.name: client.result for client in simulation.clients}
    for name, number in (("one", 10), ("two", 20)):
        counts = {found[table, number] for table in TABLES}
        assert len(counts) == 1
        assert counts <= {0, 1}
        assert results.get(name) != "lost", "nobody has touched its rows"
        if results.get(name) == "committed":
            assert counts == {1}


@pytest.mark.parametrize(
    ("build", "correct"),
    [(two_that_skew, check_skew), (two_apart, check_apart)],
    ids=["that skew", "apart"],
)
@pytest.mark.timeout(0 if SCHEDULES > 1000 else 300)
def test_two_processes_that_read_and_change_rows_commit_right_in_any_order_and_crash(
    build: Any, correct: Any
) -> None:
    assert crash_everywhere(build, correct, "one", every=STRIDE) >= 20 * 4 // STRIDE
    assert interleavings(build, correct, limit=SCHEDULES, preemptions=3) == SCHEDULES


# ---------------------------------------------------------------- a crowd with a racer


def appenders(
    simulation: TimedSimulation,
    count: int,
    until: float,
    *,
    racing: bool = True,
    note: Callable[[dict[str, int]], None] = lambda done: None,
) -> dict[str, int]:
    """Run ``count`` processes that append as fast as they can, and one that updates; return commits
    by client.
    """
    done: dict[str, int] = {}

    def appends(client: Client) -> Program[None]:
        context = context_of(client)
        yield from sleep(0.5 * client.random.random())
        while simulation.now < until:
            txn = begin(client, context=context)
            number = 1000 + sum(done.values()) * 100 + len(done)
            yield from read_write.append(txn, "a", rows_of(number).to_reader())
            yield from commit(txn)
            done[client.name] = done.get(client.name, 0) + 1
            note(done)

    def races(client: Client) -> Program[None]:
        context = context_of(client)
        while simulation.now < until:
            txn = begin(client, context=context)
            yield from add_to(txn, "b", 1)
            yield from commit(txn)
            done[client.name] = done.get(client.name, 0) + 1

    for number in range(count):
        simulation.add(f"appender {number}", appends)
    if racing:
        simulation.add("racer", races)
    return done


def crowd_beside_a_racer(seconds: float) -> dict[str, int]:
    simulation = TimedSimulation(3)
    simulation.store = lake().store
    done = appenders(simulation, 32, seconds)
    simulation.run()
    invariants.no_id_commits_twice(simulation.store, TABLES)
    return done


def eight_on_one_table(seed: int) -> tuple[int, int]:
    """Return the commits of ten seconds, and the requests, once the clients have formed a crowd."""
    simulation = TimedSimulation(seed)
    simulation.store = lake().store
    begun: list[tuple[int, int]] = []

    def note(done: dict[str, int]) -> None:
        if simulation.now > 5.0 and not begun:
            begun.append((sum(done.values()), sum(simulation.asked.values())))

    with small_limits(False):
        done = appenders(simulation, 8, 15.0, racing=False, note=note)
        simulation.run()
    commits, requests = begun[0]
    return sum(done.values()) - commits, sum(simulation.asked.values()) - requests


@pytest.mark.timeout(300)
def test_eight_processes_on_one_table_commit_together_with_few_requests() -> None:
    found = [eight_on_one_table(seed) for seed in (4, 5)[: how_many(1, whole=2)]]
    commits = sum(one[0] for one in found)
    assert commits >= len(found) * 10 * 13
    assert sum(one[1] for one in found) <= 16.5 * commits


SECONDS = how_many(3, whole=6)


@pytest.mark.timeout(300)
def test_thirty_two_appenders_and_a_racer_that_only_replaces_head_itself_all_make_progress() -> (
    None
):
    with small_limits(False):
        done = crowd_beside_a_racer(SECONDS)
    racer = done.pop("racer", 0)
    assert racer >= 3, "who races is not starved"
    assert sum(done.values()) > 30 * SECONDS, "each second so many commits"
    assert len(done) == 32, "and nobody is left out"


@pytest.mark.timeout(300)
def test_a_crowd_whose_members_each_replace_head_alone_is_slower_and_starves_some() -> None:
    with PLANTED["crowd_not_noticed"].plant(), small_limits(False):
        done = crowd_beside_a_racer(SECONDS)
    done.pop("racer", 0)
    assert sum(done.values()) < 30 * SECONDS
