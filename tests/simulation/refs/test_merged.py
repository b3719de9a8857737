"""Merge concurrently with writers, clean-ups and deletions: each row of the branch arrives once or
not.

Planted bugs leave out rules of docs/design/0031-branches.md, and one of these tests finds each.
"""

from collections import Counter
from functools import partial

import pytest

from lakevilla.branches.change import protect
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.store.codec import decode
from lakevilla.sublogs.operations import Delete
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.read_write import append, execute, scan
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import appends, ends, makes, on_branch, shows
from tests.support.simulated.commits import Process, add_to, alone, begin, commit, end, lake, read
from tests.support.simulated.memory_lake import rows_of
from tests.support.simulated.upkeep import (
    DAY,
    LAKES,
    collects,
    merges,
    results,
    sweep,
    updates,
    vacuums,
)

SCHEDULES = how_many(2, whole=20, soak=200)


def changes_b(client):
    """Commit to the lake a change of the other table."""
    txn = begin(client)
    yield from add_to(txn, "b", 10)
    yield from commit(txn)
    return "committed"


def deletes(number):
    def program(client):
        txn = begin(client)
        yield from execute(txn, Delete("a", parse_predicate(f"id = {number}")), "delete")
        yield from commit(txn)

    return program


@set_up_once
def a_branch(iceberg=(), faults=None, schedule=None):
    """Return a branch with one row more than the lake."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    alone(simulation, makes(), "maker")
    assert alone(simulation, appends(7), "first") == "committed"
    return simulation


def ids(simulation):
    """Return how often each row is in the lake."""

    def looks(client):
        txn = begin(client, read_only=True)
        rows = yield from scan(txn, "a", None, None)
        return Counter(row["id"] for row in rows.read_all().to_pylist())

    return alone(simulation, looks, "reader")


def all_is_merged(simulation, *expected):
    """Merge what is left of the branch, and check that each of its rows is in the lake once."""
    sweep(simulation)
    assert alone(simulation, merges, "last") == "merged"
    sweep(simulation)
    assert ids(simulation) == Counter((0, 1, *expected)), results(simulation)
    assert set(alone(simulation, shows(), "looker")) == {0, 1, *expected}


@LAKES
@pytest.mark.parametrize("other", [merges, updates, vacuums, collects, appends(8)])
def test_each_merged_row_is_in_the_lake_once_in_each_order_of_the_requests(other, iceberg):
    is_writer = other not in (merges, updates, vacuums, collects)

    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.now += 10 * DAY
        simulation.add("one", merges)
        simulation.add("two", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["one"] in ("merged", "conflict"), found
        assert found["two"] not in ("store", "corrupt_object"), found
        all_is_merged(simulation, 7, *((8,) if is_writer else ()))

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@LAKES
def test_a_merge_may_die_anywhere_and_be_completed(iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("owner", merges, restart=merges)
        return simulation

    assert (
        crash_everywhere(
            build, lambda simulation: all_is_merged(simulation, 7), "owner", every=STRIDE
        )
        > 20 // STRIDE
    )


@LAKES
def test_a_branch_that_is_deleted_meanwhile_is_merged_wholly_or_not_at_all(iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("one", merges)
        simulation.add("two", ends())
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["one"] in ("merged", "conflict", "ref_not_found", "version_not_found"), found
        assert found["two"] is None, found
        for _ in range(2):
            sweep(simulation)
        expected = (0, 1, 7) if found["one"] == "merged" else (0, 1)
        assert ids(simulation) == Counter(expected), found

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@LAKES
def test_merged_rows_stay_though_the_branch_ends_before_they_are_published(iceberg):
    simulation = a_branch(iceberg)
    place = "a/metadata/v" if iceberg else "a/_delta_log"
    merger = Process(simulation, merges, "merger").until(place)
    assert alone(simulation, ends(), "ender") is None
    sweep(simulation)
    assert merger.finish() == "merged"
    sweep(simulation)
    assert ids(simulation) == Counter((0, 1, 7))


def test_rows_that_the_lake_has_deleted_since_a_merge_are_not_merged_again():
    simulation = a_branch()
    assert alone(simulation, merges, "merger") == "merged"
    alone(simulation, deletes(7), "deleter")
    assert alone(simulation, appends(8), "second") == "committed"
    assert alone(simulation, merges, "again") == "merged"
    assert ids(simulation) == Counter((0, 1, 8))


def test_an_overtaken_merge_does_not_set_back_the_branch_s_merged_base():
    simulation = a_branch()
    slow = Process(simulation, merges, "slow").until("_lakevilla/HEAD.json")
    assert alone(simulation, appends(8), "second") == "committed"
    assert alone(simulation, merges, "fast") == "merged"
    alone(simulation, deletes(8), "deleter")
    assert slow.finish() in ("merged", "conflict")
    assert alone(simulation, merges, "last") == "merged"
    assert ids(simulation) == Counter((0, 1, 7))


def test_a_merge_of_a_branch_that_was_replaced_by_another_of_its_name_is_refused():
    simulation = a_branch()
    slow = Process(simulation, merges, "slow").until("_lakevilla/HEAD.json")
    assert alone(simulation, ends(), "ender") is None
    alone(simulation, makes(), "maker again")
    assert alone(simulation, appends(9), "writer") == "committed"
    assert slow.finish() in ("conflict", "version_not_found")
    assert set(alone(simulation, shows(), "looker")) == {0, 1, 9}
    assert ids(simulation) == Counter((0, 1))


def test_a_merge_keeps_concurrent_changes_of_its_branch():
    simulation = a_branch()
    slow = Process(simulation, merges, "slow").until("_lakevilla/HEAD.json")
    alone(simulation, lambda client: protect(context_of(client), "etl", on=True), "guard")
    assert slow.finish() == "conflict"
    assert alone(simulation, merges, "again") == "merged"
    assert alone(simulation, ends(), "ender") == "invalid_operation"
    assert ids(simulation) == Counter((0, 1, 7))


def test_a_merge_whose_answer_is_lost_is_found():
    simulation = a_branch()
    merger = Process(simulation, merges, "merger").until("_lakevilla/HEAD.json")
    simulation.store.apply(merger.next)
    merger.lose()
    alone(simulation, ends(), "ender")
    assert merger.finish() == "merged"
    assert ids(simulation) == Counter((0, 1, 7))


def reads_and_appends(client):
    """Commit on the branch: read table b, and write table a."""

    def work(context):
        txn = begin(client, context=context)
        yield from read(txn, "b")
        yield from append(txn, "a", rows_of(8).to_reader())
        yield from commit(txn)

    return on_branch(client, "etl", work)


def test_a_serializable_merge_precedes_changes_of_what_its_branch_read_or_is_refused():
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        alone(simulation, reads_and_appends, "reader")
        simulation.add("one", partial(merges, serializable=True))
        simulation.add("two", changes_b)
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["two"] == "committed", found
        head = decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)
        merged = [one.sequence for one in head.commits if "a" in one.tables][-1]
        changed = [one.sequence for one in head.commits if "b" in one.tables][-1]
        outcome = "merged" if merged > 1 and merged < changed else None
        assert found["one"] in (outcome, "merge_conflict", "conflict"), (found, merged, changed)

    assert interleavings(build, check, limit=2 * SCHEDULES) == 2 * SCHEDULES


def loads(where):
    """Run a job with a key, once at most: on the branch, or on the lake itself."""

    def work(client, context=None):
        txn = begin(client, context=context, key=KeyUse("monday", None))
        try:
            yield from append(txn, "a", rows_of(50).to_reader())
            yield from commit(txn)
        except LakeVillaError as error:
            yield from end(txn)
            return error.kind
        return "committed"

    def program(client):
        if where == "lake":
            return (yield from work(client))
        return (yield from on_branch(client, "etl", lambda context: work(client, context)))

    return program


def with_a_key(*others):
    """Return a branch that holds a committed key, and merge it concurrently with other clients."""

    def build(faults=None, schedule=None):
        simulation = a_branch((), faults, schedule)
        assert alone(simulation, loads("branch"), "loader") == "committed"
        for number, program in enumerate((merges, *others)):
            simulation.add(f"client {number}", program, restart=program)
        return simulation

    return build


def key_commits_once(simulation):
    """Check that the last client finds the key committed."""
    kinds = {"merged", "committed", "conflict", "merge_conflict", "already_committed", None}
    assert set(results(simulation).values()) <= kinds, results(simulation)
    simulation.now += 3600
    last = alone(simulation, loads("lake"), "last")
    assert last in ("committed", "already_committed"), last
    assert alone(simulation, merges, "last merger") in ("merged", "merge_conflict")
    assert ids(simulation)[50] == 1, results(simulation)


def test_a_key_commits_once_on_the_lake_in_each_order_of_the_requests():
    build = with_a_key(loads("lake"))
    assert interleavings(build, key_commits_once, limit=2 * SCHEDULES) == 2 * SCHEDULES


def test_a_key_commits_once_wherever_its_merger_dies():
    assert crash_everywhere(with_a_key(), key_commits_once, "client 0", every=STRIDE) > 20 // STRIDE


#: For each planted bug of merges, the test that finds it.
RULES = {
    "nosync": test_rows_that_the_lake_has_deleted_since_a_merge_are_not_merged_again,
    "blindmerge": test_a_merge_keeps_concurrent_changes_of_its_branch,
    "branch_reads_held_once": (
        test_a_serializable_merge_precedes_changes_of_what_its_branch_read_or_is_refused
    ),
    "keys_left_on_the_branch": test_a_key_commits_once_on_the_lake_in_each_order_of_the_requests,
    "merged_keys_not_bound": test_a_key_commits_once_on_the_lake_in_each_order_of_the_requests,
    "syncback": test_an_overtaken_merge_does_not_set_back_the_branch_s_merged_base,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_merges_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 20)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
