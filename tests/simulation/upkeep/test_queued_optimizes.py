"""Optimizes in the queue of their table: in turns with writers, and killed at each request."""

import pyarrow as pa
import pytest

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.maintenance.upkeep.left_optimizes import commit_left
from lakevilla.store.base import ANY
from lakevilla.store.effects import Get, Put, Sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.abort import give_up
from lakevilla.transaction.verbs.optimize import optimize, result_of
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from tests.support.search import STRIDE, how_many
from tests.support.simulated.commits import (
    RCTI,
    Process,
    add_to,
    alone,
    balances,
    begin,
    lake,
    read,
)

FORMATS = pytest.mark.parametrize("iceberg", [(), ("a",)], ids=["delta", "iceberg"])
SCHEDULES = how_many(3, whole=40, soak=400)


def adds(number):
    """Add a row, and so a small file."""

    def program(client):
        txn = begin(client)
        row = {"id": number, "balance": 1, "items": ""}
        yield from append(txn, "a", pa.Table.from_pylist([row]).to_reader())
        yield from commit(txn)

    return program


def optimizes(client):
    """Optimize the table in its queue; return the result, or None if nothing was to do."""
    txn = begin(client, RCTI, owner=client.name)
    try:
        done = yield from optimize(txn, "a")
        if done is None:
            return None
        planned = done.operation
        return result_of(planned, done, (yield from commit(txn)))
    finally:
        yield from give_up(txn)


def takes(client):
    """Change a row in the queue; run again after a conflict, as ``lake.run`` does."""
    for _ in range(5):
        txn = begin(client, RCTI, owner=client.name)
        try:
            yield from add_to(txn, "a", -1, 2)
            yield from commit(txn)
            return "committed"
        except (ConflictError, TransactionAborted):
            yield from give_up(txn)
    return "lost"


@set_up_once
def small_files(faults, schedule, *, iceberg=()):
    simulation = lake(faults, schedule, iceberg=iceberg)
    for number in (2, 3, 4):
        alone(simulation, adds(number), f"writer {number}")
    return simulation


def files_of(simulation):
    """Return how many files the table has."""

    def program(client):
        txn = begin(client)
        yield from read(txn, "a")
        return (yield from txn.work.tables["a"].snapshot.files()).num_rows

    return alone(simulation, program, "counter")


@FORMATS
def test_optimizes_and_a_writer_in_a_queue_lose_no_row_and_give_up_no_file(iceberg):
    results = {}

    def noting(program):
        def noted(client):
            results[client.name] = yield from program(client)

        return noted

    def build(faults, schedule):
        results.clear()
        simulation = small_files(faults, schedule, iceberg=iceberg)
        simulation.add("one", noting(optimizes))
        simulation.add("two", noting(optimizes))
        simulation.add("writer", noting(takes))
        return simulation

    def check(simulation):
        assert balances(simulation, "a") == {"a": {0: 100, 1: 100, 2: 0, 3: 1, 4: 1}}
        made = [results[name] for name in ("one", "two") if results[name] is not None]
        assert made, results
        assert sum(one.files_given_up for one in made) == 0, made
        assert results["writer"] == "committed"

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@FORMATS
def test_an_optimize_chooses_its_files_after_the_writers_that_are_ahead_in_the_queue(iceberg):
    simulation = small_files(None, None, iceberg=iceberg)
    writer = Process(simulation, takes, "writer").until("HEAD.json")
    waiting = Process(simulation, optimizes)
    while not isinstance(waiting.next, Sleep):
        waiting.step()
    assert writer.finish() == "committed"
    done = waiting.finish()
    assert (done.files_removed, done.files_added, done.files_given_up) == (4, 1, 0)
    assert files_of(simulation) == 1


def goes_on(client):
    """Commit what a dead process has saved, and optimize what is left."""
    yield from commit_left(context_of(client), "a", client.name)
    yield from optimizes(client)


def is_combined(simulation):
    """Check that all rows are there, in one file."""
    assert balances(simulation, "a") == {"a": {0: 100, 1: 100, 2: 1, 3: 1, 4: 1}}
    assert files_of(simulation) == 1


@FORMATS
def test_a_saved_optimize_of_a_dead_process_is_committed_with_the_files_that_it_made(iceberg):
    simulation = small_files(None, None, iceberg=iceberg)
    Process(simulation, optimizes).until("HEAD.json")
    made = data_files(simulation)
    left = alone(simulation, lambda client: commit_left(context_of(client), "a", "two"), "two")
    assert [(one.files_removed, one.files_added) for one in left] == [(4, 1)]
    assert alone(simulation, optimizes, "three") is None
    assert data_files(simulation) == made
    is_combined(simulation)


@FORMATS
def test_an_optimize_of_a_living_process_is_left_to_it(iceberg):
    simulation = small_files(None, None, iceberg=iceberg)
    living = Process(simulation, optimizes).until("HEAD.json")
    own = alone(simulation, lambda client: commit_left(context_of(client), "a", "process"), "two")
    assert own == []
    assert living.finish().files_removed == 4
    is_combined(simulation)


@FORMATS
def test_a_saved_optimize_that_can_not_be_read_is_passed_over(iceberg):
    simulation = small_files(None, None, iceberg=iceberg)
    Process(simulation, optimizes).until("HEAD.json")
    listed = [info.key for info in simulation.store.list("_lakevilla/txns")]
    (sublog,) = [key for key in listed if key.count("/") == 3]
    body = simulation.store.apply(Get(sublog)).body
    newer = body.replace(b'"format":1', b'"format":99', 1)
    assert newer != body
    simulation.store.apply(Put(sublog, newer, ANY))
    left = alone(simulation, lambda client: commit_left(context_of(client), "a", "two"), "two")
    assert left == []
    simulation.now += 100
    assert alone(simulation, optimizes, "three").files_removed == 4
    is_combined(simulation)


@FORMATS
def test_an_optimize_that_was_slow_is_refused_once_another_process_has_taken_it_over(iceberg):
    simulation = small_files(None, None, iceberg=iceberg)
    slow = Process(simulation, optimizes).until("HEAD.json")
    alone(simulation, lambda client: commit_left(context_of(client), "a", "two"), "two")
    try:
        done = slow.finish()
    except TransactionAborted:
        done = None
    assert done is None or done.files_removed == 4  # it finds its own id among the commits
    is_combined(simulation)


@FORMATS
@pytest.mark.parametrize("share", range(4))
def test_a_killed_optimize_loses_no_row_and_the_next_one_combines_all_files(iceberg, share):
    def build(faults, schedule):
        simulation = small_files(faults, schedule, iceberg=iceberg)
        simulation.add("one", optimizes, restart=goes_on)
        return simulation

    assert crash_everywhere(build, is_combined, "one", every=4 * STRIDE, first=share) > 1


def data_files(simulation):
    return {info.key for info in simulation.store.list("a") if info.key.endswith(".parquet")}
