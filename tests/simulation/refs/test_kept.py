"""Keeping a tag concurrently with writers, clean-ups and its deletion: interleavings, and every
crash.

Afterwards other clients clean up all that the tables do not need, logs too, and the tag shows the
same rows (docs/design/0037-upkeep.md).
"""

from functools import partial

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla.store.location import HOMES_PREFIX
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import ends, makes, shows
from tests.support.simulated.commits import add_to, alone, begin, commit, lake
from tests.support.simulated.upkeep import (
    DAY,
    all_clean_up,
    collects,
    confirms,
    keeps,
    updates,
    vacuums,
)

SCHEDULES = how_many(5, whole=20, soak=200)
#: Each searches a part of the schedules.
SHARES = pytest.mark.parametrize("share", range(8))


@set_up_once
def tagged(faults=None, schedule=None):
    """Return a lake whose tag has 100 in the first account of table a, which has 110 by now."""
    simulation = lake(faults, schedule)
    assert alone(simulation, makes("closing", kind="tag"), "tagger") != "ref_exists"
    assert alone(simulation, updates, "earlier writer") == "committed"
    simulation.now += 10 * DAY
    return simulation


def stays(simulation, name="closing"):
    all_clean_up(simulation)
    assert alone(simulation, shows(name), f"looker {simulation.now}") == {0: 100, 1: 100}


def results(simulation):
    return {client.name: client.result for client in simulation.clients}


@SHARES
def test_a_keep_of_a_tag_may_die_anywhere_and_be_repeated(share):
    def build(faults, schedule):
        simulation = tagged(faults, schedule)
        simulation.add("keeper", keeps("closing"), restart=keeps("closing"))
        return simulation

    def check(simulation):
        assert results(simulation)["keeper"] is not False
        # A keeper that died may have left objects that look like those of a newer HEAD (note 53).
        alone(simulation, confirms, "operator")
        assert alone(simulation, keeps("closing"), "last") is True
        stays(simulation)
        copies = [info.key for info in simulation.store.list("a") if "/_lakevilla/b/" in info.key]
        assert len(copies) == 1, copies  # no copy was made twice

    assert crash_everywhere(build, check, "keeper", every=8 * STRIDE, first=share) > 3 // STRIDE


@pytest.mark.parametrize("other", [vacuums, collects, updates, keeps("closing")])
def test_a_tag_is_kept_concurrently_with_any_work_on_the_lake(other):
    kept_beside(other, SCHEDULES)


def kept_beside(other, limit, every=1):
    def build(faults, schedule):
        simulation = tagged(faults, schedule)
        simulation.add("keeper", keeps("closing"))
        simulation.add("other", other)
        return simulation

    def check(simulation):
        assert results(simulation)["keeper"] is True
        if other is updates:  # the next keep copies what the table has removed since
            assert alone(simulation, keeps("closing"), "last") is True
        stays(simulation)

    assert interleavings(build, check, limit=limit, every=every) == limit


def test_a_tag_that_is_deleted_while_it_is_kept_leaves_no_object():
    def build(faults, schedule):
        simulation = tagged(faults, schedule)
        simulation.add("keeper", keeps("closing"))
        simulation.add("ender", ends("closing"))
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["ender"] is None
        assert found["keeper"] in (True, "ref_not_found"), found
        all_clean_up(simulation)
        assert not simulation.store.list(HOMES_PREFIX)
        assert not [info.key for info in simulation.store.list("a") if "/_lakevilla/b/" in info.key]

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def test_a_keeper_leaves_a_newer_tag_of_the_same_name_unchanged():
    def build(faults, schedule):
        simulation = tagged(faults, schedule)
        simulation.add("keeper", keeps("closing"))

        def again(client):
            yield from ends("closing")(client)
            return (yield from makes("closing", kind="tag")(client))

        simulation.add("maker", again)
        return simulation

    def check(simulation):
        alone(simulation, vacuums, "sweeper")
        alone(simulation, collects, "collector")
        assert alone(simulation, shows("closing"), "looker") == {0: 110, 1: 100}

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def test_a_tag_of_a_kept_tag_stays_when_the_kept_tag_is_deleted():
    simulation = tagged()
    assert alone(simulation, keeps("closing"), "keeper") is True
    alone(simulation, makes("copy", ("ref", "closing"), kind="tag"), "second tagger")
    assert alone(simulation, ends("closing"), "ender") is None
    stays(simulation, "copy")
    assert alone(simulation, ends("copy"), "last") is None
    all_clean_up(simulation)
    assert not simulation.store.list(HOMES_PREFIX)
    assert not [info.key for info in simulation.store.list("a") if "/_lakevilla/b/" in info.key]


def test_a_tag_is_kept_again_when_its_tables_have_removed_more_files():
    simulation = lake()
    alone(simulation, makes("closing", kind="tag"), "tagger")
    alone(simulation, lambda client: _empties(client, "b"), "writer of b")
    assert alone(simulation, keeps("closing"), "keeper") is True
    assert alone(simulation, updates, "writer of a") == "committed"
    assert alone(simulation, keeps("closing"), "keeper again") is True
    stays(simulation)
    assert alone(simulation, shows("closing", "b"), "looker") == {0: 100, 1: 100}


def _empties(client, table):
    txn = begin(client)
    yield from add_to(txn, table, 1)
    yield from commit(txn)


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("name", "test"),
    [
        # Between its list and its deletions gc sends more requests than the first schedules end.
        ("copies_before_a_life", partial(kept_beside, collects, 30, every=4)),
        ("kept_goes_with_its_life", test_a_tag_of_a_kept_tag_stays_when_the_kept_tag_is_deleted),
        ("blindkeep", test_a_keeper_leaves_a_newer_tag_of_the_same_name_unchanged),
    ],
)
def test_the_tests_find_planted_bugs_of_keeping_a_tag(name, test):
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)) as caught:
        test()
    assert not isinstance(caught.value.__cause__, AttributeError | NameError | TypeError)
