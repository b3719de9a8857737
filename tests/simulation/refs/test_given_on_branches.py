"""Iceberg clients that commit on a branch, beside others, its merge, its rebase and its end.

Each rule that a planted bug leaves out is argued in docs/design/0073-given-commits.md.
"""

import pytest

from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import adds, ends, makes, rebases, shows
from tests.support.simulated.commits import TABLES, alone, begin, commit, lake, read
from tests.support.simulated.givers import Asking
from tests.support.simulated.upkeep import collects, merges, results, sweep, updates

SCHEDULES = how_many(2, whole=60, soak=400)
#: The distance between the crashes that are run: the four kinds of crashes all occur.
EVERY = how_many(8 * STRIDE + 1, whole=3)
ONE, TWO = 70, 71


@set_up_once
def a_branch(faults=None, schedule=None):
    """Return a lake of Iceberg tables, and a branch on which account 0 in a has 101."""
    simulation = lake(faults, schedule, iceberg=TABLES)
    alone(simulation, makes(), "maker")
    assert alone(simulation, adds(), "first") == "committed"
    return simulation


def reads_lake(client):
    txn = begin(client, read_only=True)
    found = yield from read(txn, "a")
    yield from commit(txn)
    return found


def answers_are_true(simulation, shown):
    for client in simulation.clients:
        number = {"one": ONE, "two": TWO}.get(client.name.rstrip("'"))
        if number is not None and client.result == "done":
            assert number in shown, (shown, results(simulation))
        if number is not None and client.result == "refused":
            assert number not in shown, (shown, results(simulation))


def on_the_branch(simulation, whose=None):
    """Check the branch after all clients, and return its rows; ``updates`` are the lake's own."""
    sweep(simulation, 2)
    shown = alone(simulation, shows(), "looker")
    answers_are_true(simulation, shown)
    committed = sum(one.result == "committed" for one in simulation.clients)
    added = 0 if whose is updates else committed
    assert shown[0] == 101 + added, (shown, results(simulation))
    return shown


def beside(*others):
    """Return a history of two Iceberg clients on the branch beside others."""

    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        one, two = Asking(ONE), Asking(TWO)
        simulation.add("one", one, restart=one)
        simulation.add("two", two, restart=two)
        for number, other in enumerate(others):
            simulation.add(f"other {number}", other)
        return simulation

    return build


@pytest.mark.parametrize("other", [adds(), updates, collects], ids=["branch", "lake", "gc"])
def test_answers_to_clients_of_a_branch_are_true_in_any_order(other):
    def check(simulation):
        shown = on_the_branch(simulation, whose=other)
        assert {ONE, TWO} & shown.keys(), "at least one of them commits"

    assert interleavings(beside(other), check, limit=SCHEDULES) == SCHEDULES


def test_a_client_of_a_branch_that_dies_at_any_request_has_its_row_once():
    assert crash_everywhere(beside(adds()), on_the_branch, "one", every=EVERY) > 0


@pytest.mark.parametrize("other", [merges, rebases()], ids=["merge", "rebase"])
def test_answers_are_true_beside_a_merge_and_a_rebase_of_the_branch(other):
    def check(simulation):
        shown = on_the_branch(simulation)
        if other is merges and alone(simulation, merges, "merger") == "merged":
            there = alone(simulation, reads_lake, "reader")
            assert shown.keys() <= there.keys()
            answers_are_true(simulation, there)

    assert interleavings(beside(other), check, limit=SCHEDULES) == SCHEDULES


def test_nothing_is_done_on_a_branch_that_has_ended():
    def check(simulation):
        sweep(simulation, 2)
        assert results(simulation)["other 0"] is None
        assert set(alone(simulation, reads_lake, "reader")) == {0, 1}

    assert interleavings(beside(ends()), check, limit=SCHEDULES) == SCHEDULES


@pytest.mark.cases(None)
def test_a_request_that_is_not_looked_for_on_its_branch_is_found():
    with PLANTED["not_looked_for_on_its_branch"].plant(), pytest.raises(AssertionError):
        interleavings(beside(adds()), on_the_branch, limit=500)
