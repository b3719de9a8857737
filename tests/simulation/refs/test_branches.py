"""Branches concurrently with writers, clean-ups and their deletion: interleavings, and every crash.

Each planted bug leaves out a rule of docs/design/0031-branches.md, and one of these tests finds it.
"""

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.bases import load_base
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.refs import number_of_epoch
from lakevilla.lake.frozen import frozen
from lakevilla.lake.table_log import refresh
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.store.codec import decode
from lakevilla.store.location import HOMES_PREFIX
from lakevilla.transaction.commit import squash
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import (
    adds,
    appends,
    ends,
    makes,
    protects,
    rebases,
    shows,
)
from tests.support.simulated.commits import Process, alone, lake
from tests.support.simulated.upkeep import DAY, LAKES, collects, results, sweep, updates, vacuums

SCHEDULES = how_many(2, whole=25, soak=200)


@set_up_once
def a_branch(iceberg, faults=None, schedule=None):
    """Return a lake whose account 0 in a has 100, and a branch on which it has 101."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    alone(simulation, makes(), "maker")
    assert alone(simulation, adds(), "first") == "committed"
    return simulation


def committed(simulation, *names):
    """Return the number of these clients whose commit was acknowledged; a client that died has
    none.
    """
    found = results(simulation)
    return sum(found.get(name) == "committed" for name in names)


def is_whole(simulation, *writers, at_most=0):
    """Check that the branch shows each acknowledged commit, and no other one."""
    sweep(simulation, 2)
    shown = alone(simulation, shows(), "looker")[0] - 101
    least = committed(simulation, *writers)
    assert least <= shown <= least + at_most, (shown, results(simulation))


def lives_left(simulation):
    found = simulation.store.list(HOMES_PREFIX)
    return {info.key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0] for info in found}


@LAKES
def test_at_least_one_of_two_commits_on_a_branch_succeeds_in_any_order(iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("one", adds())
        simulation.add("two", adds())
        return simulation

    def check(simulation):
        assert committed(simulation, "one", "two") >= 1
        is_whole(simulation, "one", "two")

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def squashing(faults, schedule):
    """Let two clients commit to a branch whose commits are squashed at each commit."""
    simulation = a_branch((), faults, schedule)
    assert alone(simulation, adds(), "second") == "committed"
    simulation.add("one", appends(7))
    simulation.add("two", appends(8))
    return simulation


def squashes_whole(simulation):
    sweep(simulation, 2)
    shown = alone(simulation, shows(), "looker")
    assert results(simulation) == {"one": "committed", "two": "committed"}
    assert shown == {0: 102, 1: 100, 7: 1, 8: 1}


def test_two_appends_on_a_branch_both_commit_in_any_order_where_each_squashes(monkeypatch):
    monkeypatch.setattr(squash, "MOST_APART", 1)
    assert interleavings(squashing, squashes_whole, limit=SCHEDULES) == SCHEDULES


@LAKES
@pytest.mark.parametrize("other", [vacuums, collects, updates])
def test_a_commit_on_a_branch_stays_while_other_clients_work_on_the_lake(other, iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.now += 10 * DAY
        simulation.add("one", adds())
        simulation.add("other", other)
        return simulation

    def check(simulation):
        assert committed(simulation, "one") == 1
        is_whole(simulation, "one")

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@LAKES
@pytest.mark.parametrize("other", [vacuums, collects, updates])
def test_a_branch_shows_the_state_from_which_it_was_made(other, iceberg):
    def build(faults, schedule):
        simulation = lake(faults, schedule, iceberg=iceberg)
        alone(simulation, updates, "first")
        simulation.now += 10 * DAY
        simulation.add("maker", makes())
        simulation.add("other", other)
        return simulation

    def check(simulation):
        sweep(simulation, 2)
        assert alone(simulation, shows(), "looker")[0] in (110, 120)

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@LAKES
def test_a_commit_on_a_branch_is_whole_or_absent_wherever_its_client_dies(iceberg):
    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("owner", adds(), restart=adds(5))
        return simulation

    def check(simulation):
        sweep(simulation, 2)
        shown = alone(simulation, shows(), "looker")[0] - 101
        assert shown in (1, 5, 6), (shown, results(simulation))

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 20 // STRIDE


def test_a_branch_is_whole_or_absent_wherever_its_maker_dies():
    def build(faults, schedule):
        simulation = lake(faults, schedule)
        simulation.add("owner", makes(), restart=makes("again"))
        return simulation

    def check(simulation):
        sweep(simulation, 2)
        if len(simulation.clients) > 1:
            assert alone(simulation, shows("again"), "looker")[0] == 100
        left = alone(simulation, makes(), "second")  # the name is free, or names a whole branch
        assert left == "ref_exists" or left[0] == "etl"
        assert alone(simulation, adds(), "writer") == "committed"

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 20 // STRIDE


@LAKES
def test_an_acknowledged_commit_on_a_branch_comes_before_the_end_of_the_branch(iceberg):
    """The branch is closed first, so the client that removes its entry knows all acknowledged
    commits.
    """

    def build(faults, schedule):
        simulation = a_branch(iceberg, faults, schedule)
        simulation.add("one", adds())
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["ender"] is None
        assert found["one"] in ("committed", "ref_not_found"), found
        assert not commits_after_the_end(simulation)

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def commits_after_the_end(simulation):
    """Return the number of replacements of the branch's HEAD after the lake had removed
    its entry.
    """
    count, was_there, ended = 0, False, False
    for mutation in simulation.store.journal:
        if mutation.after is None:
            continue
        if mutation.key == HEAD_KEY:
            refs = decode(mutation.key, mutation.after.body, Head).refs
            ended = ended or (was_there and "etl" not in refs)
            was_there = was_there or "etl" in refs
        elif mutation.key.endswith("HEAD.json"):
            count += ended
    return count


def test_a_deletion_of_a_branch_may_die_at_any_request_and_be_repeated():
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        simulation.add("owner", ends(), restart=ends())
        return simulation

    def check(simulation):
        assert alone(simulation, ends(), "last") in (None, "ref_not_found")
        sweep(simulation, 2)
        assert not lives_left(simulation)
        assert not [info.key for info in simulation.store.list("a") if "/_lakevilla/b/" in info.key]

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 10 // STRIDE


@pytest.mark.parametrize("other", [None, adds(), rebases()], ids=["alone", "writer", "rebase"])
def test_a_branch_that_was_protected_is_not_deleted(other):
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        simulation.add("protector", protects())
        simulation.add("ender", ends())
        if other is not None:
            simulation.add("other", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        told = found["protector"], found["ender"]
        assert told in (("protected", "invalid_operation"), ("ref_not_found", None)), found
        sweep(simulation, 2)
        assert bool(lives_left(simulation)) == (found["protector"] == "protected")
        if found["protector"] == "protected":
            shown = 101 + (found.get("other") == "committed")
            assert alone(simulation, shows(), "looker")[0] == shown

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def test_a_deletion_that_is_about_to_close_a_branch_is_refused_if_the_branch_gets_protected():
    simulation = a_branch(())
    ender = Process(simulation, ends(), "ender").until(HOMES_PREFIX)
    assert alone(simulation, protects(), "protector") == "protected"
    assert ender.finish() == "invalid_operation"
    assert alone(simulation, shows(), "looker")[0] == 101


def test_a_protection_is_refused_once_a_deletion_has_closed_the_branch():
    simulation = a_branch(())
    ender = Process(simulation, ends(), "ender").until("_lakevilla/HEAD.json")
    assert alone(simulation, protects(), "protector") == "ref_not_found"
    assert ender.finish() is None


def test_a_branch_can_be_protected_or_deleted_once_its_protector_has_died_anywhere():
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        simulation.add("owner", protects(), restart=protects())
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        if results(simulation)["ender"] is None:
            assert alone(simulation, protects(), "second") == "ref_not_found"
        else:
            assert alone(simulation, protects(), "second") == "protected"
            assert alone(simulation, ends(), "last") == "invalid_operation"
            assert alone(simulation, shows(), "looker")[0] == 101

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 5 // STRIDE


def test_a_tag_of_a_branch_stays_when_the_branch_is_deleted():
    simulation = a_branch(())
    alone(simulation, makes("closing", ("ref", "etl"), kind="tag"), "tagger")
    assert alone(simulation, adds(), "second") == "committed"
    assert alone(simulation, ends(), "ender") is None
    sweep(simulation, 2)
    assert alone(simulation, shows("closing"), "looker")[0] == 101
    alone(simulation, ends("closing"), "last")
    sweep(simulation, 2)
    assert not lives_left(simulation)


def test_a_commit_whose_answer_is_lost_is_found_in_a_branch_that_was_closed_since():
    simulation = a_branch(())
    writer = Process(simulation, adds(), "writer").until(f"{_life(simulation)}/HEAD.json")
    simulation.store.apply(writer.next)
    writer.lose()
    assert alone(simulation, ends(), "ender") is None
    assert writer.finish() == "committed"


def test_a_commit_whose_answer_is_lost_has_an_unknown_outcome_once_its_branch_is_swept():
    simulation = a_branch(())
    writer = Process(simulation, adds(), "writer").until(f"{_life(simulation)}/HEAD.json")
    writer.lose()
    assert alone(simulation, ends(), "ender") is None
    sweep(simulation, 2)
    assert writer.finish() == "outcome_unknown"


def test_a_branch_that_was_deleted_before_its_maker_got_an_answer_counts_as_made():
    simulation = lake()
    maker = Process(simulation, makes(), "maker").until("_lakevilla/HEAD.json")
    simulation.store.apply(maker.next)
    maker.lose()
    assert alone(simulation, ends(), "ender") is None
    name, entry = maker.finish()
    assert name == "etl"
    again = alone(simulation, makes(), "again")  # the maker made no second branch
    assert not isinstance(again, str)
    assert again[1].id != entry.id


def test_a_commit_that_stalls_beyond_the_end_of_its_branch_is_refused():
    simulation = lake()
    alone(simulation, makes(), "maker")
    writer = Process(simulation, adds(), "writer").until(f"{_life(simulation)}/HEAD.json")
    assert alone(simulation, ends(), "ender") is None
    sweep(simulation, 2)
    assert writer.finish() == "ref_not_found"


def test_a_deletion_whose_answer_is_lost_leaves_a_newer_branch_of_the_same_name():
    simulation = a_branch(())
    ender = Process(simulation, ends(), "ender").until("_lakevilla/HEAD.json")
    simulation.store.apply(ender.next)
    ender.lose()
    alone(simulation, makes(), "again")
    assert ender.finish() is None
    assert alone(simulation, shows(), "looker")[0] == 100


def test_an_epoch_that_gc_has_listed_is_stored_later_under_another_id():
    """The maker of the branch loses its race to gc, which then deletes what it has listed."""
    simulation = lake()
    collector = Process(simulation, collects, "collector").until(TIME_NAME)  # no epoch exists yet
    maker = Process(simulation, makes(), "maker").until("_lakevilla/HEAD.json")
    simulation.now += 10 * DAY
    collector.until("_lakevilla/HEAD.json").step()
    _, entry = maker.finish()
    collector.finish()
    assert alone(simulation, adds(), "writer") == "committed"
    sweep(simulation, 2)
    assert alone(simulation, shows(), "looker")[0] == 101
    assert number_of_epoch(entry.epoch) == entry.base.made
    assert lives_left(simulation) == {entry.epoch}


def test_commits_of_a_branch_do_not_count_as_commits_of_the_lake_with_the_same_numbers():
    """Where a log is cleaned up, a state is recognised by its commits that were published since."""
    simulation = a_branch(())
    alone(simulation, makes("closing", ("ref", "etl"), kind="tag"), "tagger")
    alone(simulation, updates, "other")

    def looks(client):
        context = context_of(client)
        held = yield from context.head()
        base = yield from load_base(held.head.refs["closing"].base)
        state = base.tables["a"]
        tail = yield from refresh(context, "a")
        assert tail.tip > state.published
        return state, (yield from frozen._followed(context, tail, state, base.sequence))

    state, found = alone(simulation, looks, "looker")
    assert [ref.epoch for ref in state.pending] == [_life(simulation)]
    assert found == (state.published, state.pending)


def _life(simulation):
    (epoch,) = lives_left(simulation)
    return epoch


def finds_a_commit_after_the_end():
    def build(faults, schedule):
        simulation = a_branch((), faults, schedule)
        simulation.add("one", adds())
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        assert not commits_after_the_end(simulation)

    interleavings(build, check, limit=200)


def finds_what_the_log_has_got_since():
    simulation = a_branch(())
    alone(simulation, updates, "other")
    is_whole(simulation)


def finds_what_a_squash_has_lost():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(squash, "MOST_APART", 1)
        interleavings(squashing, squashes_whole, limit=200)


def finds_what_gc_has_swept():
    simulation = a_branch(())
    is_whole(simulation)


@LAKES
def test_each_version_of_a_branch_shows_the_branch_s_state_at_that_version(iceberg):
    """This also holds where one object has replaced many commits, and other clients have cleaned
    up.
    """
    simulation = a_branch(iceberg)
    seen = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(squash, "MOST_APART", 2)
        for number in range(8):
            writer = adds() if number % 2 else appends(10 + number)
            assert alone(simulation, writer, f"writer {number}") == "committed"
            seen[number] = alone(simulation, shows(), f"reader {number}")
            assert alone(simulation, updates, f"other {number}") == "committed"
    sweep(simulation, 2)
    last = branch_version(simulation)
    for number, then in seen.items():
        name = f"etl@{last - 7 + number}"
        assert alone(simulation, shows(name), f"looker {number}") == then, name


def branch_version(simulation):
    """Return the number of the branch's newest commit."""
    [key] = [info.key for info in simulation.store.list(HOMES_PREFIX) if "HEAD.json" in info.key]
    return decode(key, simulation.store.objects[key].body, Head).sequence


#: For each planted bug of branches, the test that finds it.
RULES = {
    "dereg_first": finds_a_commit_after_the_end,
    "protected_in_the_lake_alone": (
        test_a_deletion_that_is_about_to_close_a_branch_is_refused_if_the_branch_gets_protected
    ),
    "closed_is_not_looked_at": finds_a_commit_after_the_end,
    "branch_follows_logs": finds_what_the_log_has_got_since,
    "squash_takes_what_came_since": finds_what_a_squash_has_lost,
    "later_squash_taken": lambda: (
        test_each_version_of_a_branch_shows_the_branch_s_state_at_that_version(())
    ),
    "gc_knows_no_epochs": finds_what_gc_has_swept,
    "vacuum_knows_no_epochs": finds_what_gc_has_swept,
    "samelife": test_an_epoch_that_gc_has_listed_is_stored_later_under_another_id,
    "createlost": test_a_branch_that_was_deleted_before_its_maker_got_an_answer_counts_as_made,
    "goneno": test_a_commit_whose_answer_is_lost_has_an_unknown_outcome_once_its_branch_is_swept,
    "tagged_commits_go_with_their_branch": (
        test_a_tag_of_a_branch_stays_when_the_branch_is_deleted
    ),
    "nameagain": test_a_deletion_whose_answer_is_lost_leaves_a_newer_branch_of_the_same_name,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_branches_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 25)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
