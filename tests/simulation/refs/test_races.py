"""Make refs concurrently with clean-ups: all interleavings up to a bound, and every crash.

Each planted bug leaves out a rule, and one of these tests or of the histories finds it.
"""

from functools import partial

import pytest

from lakevilla.branches.change import delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.errors import LakeVillaError
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.store.effects import Get
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.checks.refs import refs_are_as_they_were
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.client import Client
from tests.support.search import STRIDE, how_many
from tests.support.simulated.commits import (
    Process,
    add_to,
    alone,
    begin,
    lake,
    simulation_client,
)
from tests.support.simulated.upkeep import DAY, LAKES, collects, vacuums

#: The number of interleavings of two clients; ``make test-all`` sets 10,000 for those of commits.
SCHEDULES = how_many(3, whole=25, soak=200)


def tags(at, name="closing"):
    """Make a tag; return its name and entry, or None if it is refused."""

    def program(client):
        try:
            entry = yield from create_ref(
                context_of(client),
                name,
                "tag",
                at,
                tables=None,
                protected=False,
                metadata={},
                created_by="",
            )
        except LakeVillaError as error:
            if error.kind != "version_not_found":
                raise
            return None
        return name, entry

    return program


def updates(client):
    txn = begin(client)
    yield from add_to(txn, "a", 1, 0)
    yield from commit(txn)


@set_up_once
def of_two_versions(iceberg, faults=None, schedule=None):
    """Return a lake with an older version whose file of table a no newer version needs."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    for name in ("first", "second"):
        alone(simulation, updates, name)
        simulation.now += 3 * DAY
    return simulation


def is_kept(simulation):
    """Check that each ref shows its state, now and after other clients have cleaned up."""
    store = simulation.store
    acknowledged = [c.result for c in simulation.clients if isinstance(c.result, tuple)]
    looker = Client(simulation, "looker", f"{simulation.seed}/looker", 1.0)
    compared = 0
    for number in range(2):
        compared += refs_are_as_they_were(
            store, context_of(looker), acknowledged, (), may_be_lost=False
        )
        simulation.now += 10 * DAY
        alone(simulation, vacuums, f"sweeper {number}")
        alone(simulation, collects, f"collector {number}")
    return compared


def tag_beside(at, other, iceberg, faults, schedule):
    simulation = of_two_versions(iceberg, faults, schedule)
    simulation.add("owner", tags(at))
    simulation.add("other", other)
    return simulation


@LAKES
@pytest.mark.parametrize("at", [None, ("version", 1)], ids=["now", "older"])
@pytest.mark.parametrize("other", [vacuums, collects, updates])
def test_a_tag_keeps_its_state_in_each_order_of_the_requests(at, other, iceberg):
    runs = interleavings(partial(tag_beside, at, other, iceberg), is_kept, limit=SCHEDULES)
    assert runs == SCHEDULES


@LAKES
@pytest.mark.parametrize("at", [None, ("version", 1)], ids=["now", "older"])
def test_a_tag_is_whole_or_absent_wherever_its_maker_dies(at, iceberg):
    def build(faults, schedule):
        simulation = of_two_versions(iceberg, faults, schedule)
        simulation.add("owner", tags(at), restart=tags(at, "again"))
        return simulation

    assert crash_everywhere(build, is_kept, "owner", every=STRIDE) > 20 // STRIDE


@pytest.mark.parametrize("other", [vacuums, collects])
def test_a_clean_up_concurrent_with_the_making_of_a_tag_may_die_anywhere(other):
    def build(faults, schedule):
        simulation = of_two_versions((), faults, schedule)
        alone(simulation, tags(None), "tagger")
        alone(simulation, updates, "third")
        simulation.now += 3 * DAY
        simulation.add("owner", other, restart=other)
        return simulation

    assert crash_everywhere(build, is_kept, "owner", every=STRIDE) > 20 // STRIDE


def test_a_deletion_whose_answer_is_lost_leaves_a_newer_tag_of_the_same_name():
    """Another client has reused the name meanwhile: the deleter leaves the new tag."""
    simulation = of_two_versions(())
    alone(simulation, tags(None), "tagger")
    deleter = Process(simulation, lambda client: delete_ref(context_of(client), "closing"))
    deleter.until("_lakevilla/HEAD.json")
    simulation.store.apply(deleter.next)
    deleter.lose()
    made = alone(simulation, tags(None), "again")
    deleter.finish()
    looked(simulation, made)


def test_a_base_that_gc_has_listed_is_stored_again():
    """The maker of the tag loses its race to gc, which then deletes what it has listed."""
    simulation = of_two_versions(())
    alone(simulation, collects, "first gc")  # HEAD knows all entries of the logs
    simulation.now += DAY
    collector = Process(simulation, collects, "collector").until(TIME_NAME)  # no base exists yet
    tagger = Process(simulation, tags(None), "tagger").until("_lakevilla/HEAD.json")
    collector.until("_lakevilla/HEAD.json").step()
    made = tagger.finish()
    collector.finish()
    looked(simulation, made)


def looked(simulation, made):
    """Check that the tag shows its state."""
    looker = Client(simulation, "last looker", "looker", 1.0)
    assert refs_are_as_they_were(
        simulation.store, context_of(looker), [made], (), may_be_lost=False
    )


def test_a_file_removed_while_a_vacuum_lists_is_kept_for_a_tag_made_meanwhile():
    """Clients whose clocks are behind add the file and remove it in between."""
    simulation = of_two_versions(())
    row = {"id": 9, "balance": 1, "items": ""}
    other = Process(simulation, lambda client: delta_writer.append(client, "a", [row]), "other")
    other.until("a/_delta_log")
    simulation.now += DAY
    sweeper = Process(simulation, vacuums, "sweeper").until("_lakevilla/HEAD.json")
    sweeper.step()
    sweeper.until("_lakevilla/HEAD.json", Get).step()
    sweeper.until("a/_delta_log", Get).step()
    other.finish()
    made = alone(simulation, tags(None), "tagger")
    late = simulation_client(simulation, "late")
    late.clock.skew(-10 * DAY)
    run_now(simulation.store, delta_writer.rewrite(late, "a", dict))
    sweeper.finish()
    looked(simulation, made)


def test_a_commit_that_was_pending_when_its_tag_was_made_is_kept_for_the_tag():
    """A foreign writer committed before it was published, so no log version is exactly
    that state.
    """
    simulation = of_two_versions(())
    Process(simulation, updates, "owner").until("a/_delta_log")
    made = alone(simulation, tags(None), "tagger")
    row = {"id": 9, "balance": 1, "items": ""}
    alone(simulation, lambda client: delta_writer.append(client, "a", [row]), "other")
    alone(simulation, updates, "later")
    for number in range(3):
        simulation.now += 60 * DAY
        alone(simulation, collects, f"collector {number}")
    looked(simulation, made)


#: Bugs that no history finds, or only one in thousands.
RARE = {
    "nocas": lambda: interleavings(
        partial(tag_beside, ("version", 1), vacuums, ()), is_kept, limit=200
    ),
    "samename": test_a_base_that_gc_has_listed_is_stored_again,
    "noentries": (test_a_file_removed_while_a_vacuum_lists_is_kept_for_a_tag_made_meanwhile),
    "nobasecommits": test_a_commit_that_was_pending_when_its_tag_was_made_is_kept_for_the_tag,
    "nameagain": test_a_deletion_whose_answer_is_lost_leaves_a_newer_tag_of_the_same_name,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RARE)
def test_each_planted_bug_of_refs_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 25)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RARE[name]()
