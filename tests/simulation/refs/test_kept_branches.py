"""Keeping a branch concurrently with writes, merges, rebases, deletions and clean-ups; and every
crash.

Afterwards other clients clean up all that the tables do not need, logs too, and the branch has each
of its rows once, and can be merged (docs/design/0037-upkeep.md).
"""

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla.store.location import HOMES_PREFIX
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import appends, ends, makes, rebases, shows
from tests.support.simulated.commits import alone, lake
from tests.support.simulated.upkeep import (
    DAY,
    all_clean_up,
    collects,
    confirms,
    keeps,
    merges,
    recovers,
    results,
    updates,
    vacuums,
)

SCHEDULES = how_many(2, whole=10, soak=150)

SHARES = pytest.mark.parametrize("share", range(8))


@set_up_once
def a_branch(faults=None, schedule=None):
    """Return a branch with one row of its own, a base with 100, and a lake with 110 since then."""
    simulation = lake(faults, schedule)
    alone(simulation, makes(), "maker")
    assert alone(simulation, appends(7), "first") == "committed"
    assert alone(simulation, updates, "updater") == "committed"
    simulation.now += 10 * DAY
    return simulation


def is_whole(simulation, *rows, balance=100):
    """Check that the branch is kept, stays so through all clean-ups, and can then be merged."""
    assert alone(simulation, keeps("etl"), f"last keeper {simulation.now}") is True
    all_clean_up(simulation)
    shown = alone(simulation, shows(), f"looker {simulation.now}")
    assert shown.keys() == {0, 1, *rows}, (shown, results(simulation))
    assert shown[0] == balance, (shown, results(simulation))
    assert alone(simulation, merges, f"last merger {simulation.now}") == "merged"
    assert alone(simulation, ends(), f"ender {simulation.now}") is None
    all_clean_up(simulation)
    assert not simulation.store.list(HOMES_PREFIX)


@pytest.mark.parametrize(
    "other", [keeps("etl"), updates, vacuums, collects, recovers, merges, rebases(), appends(8)]
)
def test_a_branch_is_kept_concurrently_with_any_work_on_the_lake(other):
    kept_beside(other, SCHEDULES)


def kept_beside(other, limit, every=1):
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("keeper", keeps("etl"))
        simulation.add("other", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["keeper"] is True, found
        # A transaction on a branch finds its epoch closed, and is rerun in the next epoch.
        assert not isinstance(found["other"], str) or found["other"] in (
            "committed",
            "merged",
            "conflict",
        ), found
        added = (8,) if found["other"] == "committed" and other is not updates else ()
        rebased = isinstance(found["other"], tuple) or hasattr(found["other"], "epochs")
        is_whole(simulation, 7, *added, balance=110 if rebased else 100)

    assert interleavings(build, check, limit=limit, every=every) == limit


def test_a_branch_that_is_deleted_while_it_is_kept_leaves_no_object():
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("keeper", keeps("etl"))
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["ender"] is None, found
        assert found["keeper"] in (True, "ref_not_found"), found
        all_clean_up(simulation)
        assert not simulation.store.list(HOMES_PREFIX)
        assert not [info.key for info in simulation.store.list("a") if "/_lakevilla/b/" in info.key]

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@SHARES
def test_a_keep_of_a_branch_may_die_anywhere_and_be_repeated(share):
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("keeper", keeps("etl"), restart=keeps("etl"))
        return simulation

    def check(simulation):
        *_, last = results(simulation).values()
        assert last in (True, "conflict"), last
        alone(simulation, confirms, "operator")
        is_whole(simulation, 7)

    assert crash_everywhere(build, check, "keeper", every=8 * STRIDE, first=share) > 3 // STRIDE


def test_a_branch_whose_keeper_has_died_can_be_written_read_and_deleted():
    def build(faults, schedule):
        simulation = a_branch(faults, schedule)
        simulation.add("keeper", keeps("etl"))
        return simulation

    def check(simulation):
        simulation.now += DAY
        alone(simulation, confirms, "operator")
        written = alone(simulation, appends(8), "writer")
        assert written == "committed", written
        is_whole(simulation, 7, 8)

    assert crash_everywhere(build, check, "keeper", every=3 * STRIDE) > 3 // STRIDE


def test_a_commit_that_was_pending_when_the_branch_was_made_is_on_the_branch_once():
    def build(faults, schedule):
        simulation = lake(faults, schedule)
        simulation.add("updater", updates)
        return simulation

    def check(simulation):
        # The commit is decided, if the updater has come so far, and the updater died before
        # publishing it.
        alone(simulation, makes(), "maker")
        before = alone(simulation, shows(), "first looker")
        assert alone(simulation, updates, "second updater") == "committed"
        simulation.now += 10 * DAY
        is_whole(simulation, balance=before[0])

    assert crash_everywhere(build, check, "updater", every=STRIDE) > 3 // STRIDE


#: One turn is taken away at each request: first from the keeper, then from the writer.
NOCLOSE = {"other": appends(8), "limit": 30, "every": 3}


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("name", "test", "arguments"),
    [
        ("noclose", kept_beside, NOCLOSE),
        (
            "pending_again",
            test_a_commit_that_was_pending_when_the_branch_was_made_is_on_the_branch_once,
            {},
        ),
        (
            "old_files_named",
            test_a_keep_of_a_branch_may_die_anywhere_and_be_repeated,
            {"share": 0},
        ),
    ],
)
def test_the_tests_find_planted_bugs_of_keeping_a_branch(name, test, arguments, monkeypatch):
    monkeypatch.setitem(globals(), "STRIDE", 7)  # enough crashes to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)) as caught:
        test(**arguments)
    assert not isinstance(caught.value.__cause__, AttributeError | NameError | TypeError)
