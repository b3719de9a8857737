"""Rebases concurrently with writes, merges, deletions and clean-ups: interleavings, crashes, lost
answers.

Each planted bug leaves out a rule of docs/design/0034-rebase.md, and one of these tests finds it.
"""

from collections import Counter
from itertools import count

import pytest

from lakevilla.branches import branches as entries
from lakevilla.branches import branches as lives_before
from lakevilla.branches.change import all_refs
from lakevilla.errors import LakeVillaError
from lakevilla.global_log.repo import load_head
from lakevilla.store.location import HOMES_PREFIX, at_home
from lakevilla.transaction.verbs.read_write import scan
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import SOAK, STRIDE, how_many
from tests.support.simulated.branches import adds, appends, ends, makes, rebases, shows
from tests.support.simulated.commits import Process, add_to, alone, begin, commit, lake
from tests.support.simulated.upkeep import (
    DAY,
    LAKES,
    collects,
    confirms,
    merges,
    recovers,
    updates,
    vacuums,
)

SCHEDULES = how_many(2, whole=10, soak=150)
OF_SOAK = pytest.mark.skipif(not SOAK, reason="takes a minute: make soak runs it")


def sweep(simulation, days=10):
    """Clean up all that is old enough."""
    simulation.now += days * DAY
    alone(simulation, confirms, f"operator {simulation.now}")
    alone(simulation, vacuums, f"sweeper {simulation.now}")
    alone(simulation, collects, f"collector {simulation.now}")


@set_up_once
def a_branch(iceberg=(), faults=None, schedule=None):
    """Return a branch with one row more than the lake, whose account 0 has got 110 since."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    alone(simulation, makes(), "maker")
    assert alone(simulation, appends(7), "first") == "committed"
    assert alone(simulation, updates, "updater") == "committed"
    return simulation


def results(simulation):
    return {client.name: client.result for client in simulation.clients}


def kinds(simulation):
    """Return the outcomes of the clients, without their results."""
    return {name: r if isinstance(r, str) else None for name, r in results(simulation).items()}


def ids(simulation):
    """Return how often each row is in the lake."""

    def looks(client):
        txn = begin(client, read_only=True)
        rows = yield from scan(txn, "a", None, None)
        return Counter(row["id"] for row in rows.read_all().to_pylist())

    return alone(simulation, looks, "reader")


def entry_of(simulation):
    """The branch's entry in the lake's HEAD."""
    refs = alone(simulation, lambda client: all_refs(context_of(client)), f"l{simulation.now}")
    return refs["etl"][0]


def lives_left(simulation):
    found = simulation.store.list(HOMES_PREFIX)
    return {info.key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0] for info in found}


def is_whole(simulation, *rows, balance=110):
    """Rebase the branch once more; after each of two clean-ups, check which rows it has, and the
    balance of account 0; then merge it, and check that the lake has each row once.
    """
    sweep(simulation)
    last = alone(simulation, rebases(), f"last {simulation.now}")
    assert not isinstance(last, str), (last, results(simulation))
    for _ in range(2):
        sweep(simulation)
        shown = alone(simulation, shows(), f"looker {simulation.now}")
        assert shown.keys() == {0, 1, *rows}, (shown, results(simulation))
        assert shown[0] == balance, (shown, results(simulation))
    assert alone(simulation, merges, "last merger") == "merged"
    assert ids(simulation) == Counter((0, 1, *rows)), results(simulation)


@LAKES
@pytest.mark.parametrize("other", [rebases(), updates, merges, vacuums, collects, appends(8)])
def test_a_rebased_branch_is_whole_in_each_order_of_the_requests(other, iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.now += 10 * DAY
        simulation.add("one", rebases())
        simulation.add("two", other)
        return simulation

    def check(simulation):
        found = kinds(simulation)
        assert found["one"] is None, found
        assert found["two"] in (None, "committed", "merged", "conflict"), found
        added = other not in (updates, merges, vacuums, collects) and found["two"] == "committed"
        is_whole(simulation, 7, *((8,) if added else ()), balance=120 if other is updates else 110)

    limit = SCHEDULES // 2 if iceberg else SCHEDULES
    assert interleavings(build, check, limit=limit) == limit


@pytest.mark.parametrize(
    ("next_one", "iceberg"),
    [
        pytest.param(rebases(), (), id="rebased"),
        pytest.param(rebases(), ("a", "b"), id="rebased-iceberg", marks=OF_SOAK),
        pytest.param(shows(), (), id="read"),
        pytest.param(recovers, (), id="recovered"),
        pytest.param(merges, (), id="merged"),
    ],
)
def test_a_branch_is_whole_wherever_its_rebase_dies(next_one, iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("owner", rebases(), restart=next_one)
        return simulation

    assert (
        crash_everywhere(build, lambda simulation: is_whole(simulation, 7), "owner", every=STRIDE)
        > 20 // STRIDE
    )


@pytest.mark.parametrize("landed", [True, False])
def test_a_branch_is_whole_whichever_answer_is_lost(landed):
    for number in count():
        simulation = a_branch()
        rebaser = Process(simulation, rebases(), "rebaser")
        for _ in range(number):
            rebaser.until("")
            rebaser.step()
        try:
            rebaser.until("")
        except AssertionError:
            break
        if landed:
            simulation.store.apply(rebaser.next)
        rebaser.lose()
        answer = rebaser.finish()
        assert not isinstance(answer, str) or answer == "store"
        is_whole(simulation, 7)
    assert number >= 5


@LAKES
def test_a_branch_that_is_deleted_during_a_rebase_is_gone(iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("one", rebases())
        simulation.add("two", ends())
        return simulation

    def check(simulation):
        found = kinds(simulation)
        assert found["one"] in (None, "ref_not_found", "version_not_found"), found
        assert found["two"] is None, found
        for _ in range(2):
            sweep(simulation)
        assert not lives_left(simulation)
        assert ids(simulation) == Counter((0, 1)), found

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def test_a_rebase_with_a_conflict_leaves_the_branch_unchanged():
    simulation = a_branch()
    assert alone(simulation, adds(5), "changer") == "committed"
    before = entry_of(simulation)
    assert alone(simulation, rebases(), "one") == "merge_conflict"
    assert entry_of(simulation) == before
    assert alone(simulation, shows(), "looker") == {0: 105, 1: 100, 7: 1}
    done = alone(simulation, rebases(keys={"a": ("id",)}, on_conflict="ours"), "two")
    assert done.id == before.id
    assert alone(simulation, shows(), "last looker") == {0: 110, 1: 100, 7: 1}


def test_a_rebase_that_finds_a_conflict_after_it_has_closed_the_branch_opens_it_again():
    simulation = lake()
    alone(simulation, makes(), "maker")
    assert alone(simulation, adds(5), "changer") == "committed"
    assert alone(simulation, add_elsewhere, "elsewhere") == "committed"
    slow = Process(simulation, rebases(), "slow").until("_lakevilla/HEAD.json")
    assert alone(simulation, updates, "updater") == "committed"
    assert slow.finish() == "merge_conflict"
    assert alone(simulation, shows(), "looker") == {0: 105, 1: 100}
    assert alone(simulation, appends(8), "writer") == "committed"
    sweep(simulation)
    again = rebases(keys={"a": ("id",)}, on_conflict="theirs")
    assert not isinstance(alone(simulation, again, "again"), str)
    assert alone(simulation, shows(), "last looker") == {0: 105, 1: 100, 8: 1}


def add_elsewhere(client):
    txn = begin(client)
    yield from add_to(txn, "b", 10)
    yield from commit(txn)
    return "committed"


def test_a_transaction_that_is_open_during_a_rebase_conflicts_and_is_not_on_the_branch():
    simulation = a_branch()
    epoch = entry_of(simulation).epoch
    writer = Process(simulation, appends(8), "writer").until(f"{epoch}/HEAD.json")
    assert not isinstance(alone(simulation, rebases(), "rebaser"), str)
    assert writer.finish() == "conflict"
    is_whole(simulation, 7)


def a_commit_without_an_answer(simulation, *, landed=True):
    epoch = entry_of(simulation).epoch
    writer = Process(simulation, appends(8), "writer").until(f"{epoch}/HEAD.json")
    if landed:
        simulation.store.apply(writer.next)
    writer.lose()
    return writer


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_is_lost_is_searched_for_in_the_epoch_that_was_closed_since(landed):
    simulation = a_branch()
    writer = a_commit_without_an_answer(simulation, landed=landed)
    assert not isinstance(alone(simulation, rebases(), "rebaser"), str)
    assert writer.finish() == ("committed" if landed else "conflict")
    is_whole(simulation, 7, *((8,) if landed else ()))


def test_an_epoch_stays_for_clients_that_search_for_a_commit_in_it():
    simulation = a_branch()
    writer = a_commit_without_an_answer(simulation)
    assert alone(simulation, merges, "merger") == "merged"
    rebased = alone(simulation, rebases(), "rebaser")
    assert len(rebased.epochs) == 2
    sweep(simulation, days=1)
    assert writer.finish() == "committed"


def test_the_outcome_of_a_commit_is_unknown_once_its_epoch_is_swept():
    simulation = a_branch()
    writer = a_commit_without_an_answer(simulation)
    assert alone(simulation, merges, "merger") == "merged"
    alone(simulation, rebases(), "rebaser")
    simulation.now += 10 * DAY
    assert alone(simulation, updates, "another") == "committed"
    assert len(alone(simulation, rebases(), "second").epochs) == 2
    sweep(simulation)
    sweep(simulation)
    assert writer.finish() == "outcome_unknown"


def test_files_of_older_epochs_stay_as_long_as_the_branch_has_them():
    simulation = a_branch()
    first = entry_of(simulation).epoch
    for number in range(3):
        alone(simulation, updates, f"updater {number}")
        assert not isinstance(alone(simulation, rebases(), f"rebaser {number}"), str)
        sweep(simulation)
    assert entry_of(simulation).epochs[0] == first
    assert alone(simulation, shows(), "looker") == {0: 140, 1: 100, 7: 1}


def test_epochs_are_deleted_once_the_lake_has_all_that_was_written_in_them():
    simulation = a_branch()
    assert alone(simulation, merges, "merger") == "merged"
    for number in range(3):
        alone(simulation, updates, f"updater {number}")
        alone(simulation, rebases(), f"rebaser {number}")
        sweep(simulation)
    sweep(simulation)
    # the branch's present epoch, and the one that was closed last
    assert len(lives_left(simulation)) == 2
    assert ids(simulation) == Counter((0, 1, 7))


def test_the_newest_of_very_many_epochs_that_nothing_needs_stay(monkeypatch):
    monkeypatch.setattr(entries, "MOST_RECENT", 2)
    simulation = a_branch()
    first = entry_of(simulation).epoch
    epochs = [first]
    for number in range(4):
        alone(simulation, updates, f"updater {number}")
        alone(simulation, rebases(), f"rebaser {number}")
        epochs.append(entry_of(simulation).epoch)
    assert entry_of(simulation).epochs == (first, *epochs[-3:])  # the first epoch has files
    is_whole(simulation, 7, balance=150)


def test_a_deletion_ends_the_epoch_that_a_concurrent_rebase_has_made():
    simulation = a_branch()
    rebaser = Process(simulation, rebases(), "rebaser").until("_lakevilla/HEAD.json")
    ender = Process(simulation, ends(), "ender").until("_lakevilla/HEAD.json")
    assert rebaser.finish().id
    assert alone(simulation, appends(8), "writer") == "committed"
    epoch = entry_of(simulation).epoch
    late = Process(simulation, appends(9), "late").until(f"{epoch}/HEAD.json")
    assert ender.finish() is None
    assert late.finish() == "ref_not_found"


def test_a_branch_is_rebased_where_head_is_a_log():
    simulation = lake(warm=False)
    simulation.store.replaces = False

    def warm_up(client):
        txn = begin(client)
        yield from add_to(txn, "a", 0)
        yield from commit(txn)

    alone(simulation, warm_up, "setup")
    alone(simulation, makes(), "maker")
    for number in range(3):
        assert alone(simulation, appends(7 + number), f"one {number}") == "committed"
        assert alone(simulation, updates, f"other {number}") == "committed"
        assert not isinstance(alone(simulation, rebases(), f"rebaser {number}"), str)
        sweep(simulation)
    is_whole(simulation, 7, 8, 9, balance=130)


def test_outcomes_are_read_from_older_epochs():
    simulation = a_branch()
    first = entry_of(simulation).epoch
    alone(simulation, rebases(), "rebaser")

    def asks(client):
        context = context_of(client)
        held = yield from at_home(first, load_head())
        (mine,) = [one.txn for one in held.head.commits]
        found = yield from lives_before.committed_before(context, "etl", mine)
        assert found is not None
        assert found.id == mine
        assert (yield from lives_before.committed_before(context, "etl", mine[::-1])) is None

    alone(simulation, asks, "asker")


def finds_a_commit_that_is_lost():
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        simulation.add("one", rebases())
        simulation.add("two", appends(8))
        return simulation

    def check(simulation):
        is_whole(simulation, 7, *((8,) if kinds(simulation)["two"] == "committed" else ()))

    interleavings(build, check, limit=200)


#: For each planted bug of rebases, the test that finds it.
RULES = {
    "noclose": finds_a_commit_that_is_lost,
    "droplives": test_files_of_older_epochs_stay_as_long_as_the_branch_has_them,
    "movedlost": lambda: (
        test_a_commit_whose_answer_is_lost_is_searched_for_in_the_epoch_that_was_closed_since(True)
    ),
    "goneno": test_the_outcome_of_a_commit_is_unknown_once_its_epoch_is_swept,
    "shortlives": test_an_epoch_stays_for_clients_that_search_for_a_commit_in_it,
    "moved_is_ended": (
        test_a_rebase_that_finds_a_conflict_after_it_has_closed_the_branch_opens_it_again
    ),
    "outcomelives": test_outcomes_are_read_from_older_epochs,
    "dereg_moved": test_a_deletion_ends_the_epoch_that_a_concurrent_rebase_has_made,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_rebases_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 10)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
