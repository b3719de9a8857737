"""An object of the lake goes back to an older version of itself, and upkeep runs (note 53).

Then the newest one is restored, as every message says: nothing may be missing.
"""

from functools import partial

import pytest

from lakevilla.errors import CorruptObject, LakeVillaError
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.maintenance.doctor import doctor
from lakevilla.maintenance.upkeep.maintain import maintain
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.maintenance.verify.objects import look_at_named_objects
from lakevilla.store.base import ANY
from lakevilla.store.effects import Put
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.branches import adds, appends, ends, makes, on_branch, shows
from tests.support.simulated.commits import Process, alone, begin, commit, lake, read
from tests.support.simulated.upkeep import DAY, collects, keeps, recovers, updates, vacuums


def maintains(client):
    return maintain(context_of(client), list(TASKS), owner=client.name)


#: Whoever cleans up, or goes on by himself.
UPKEEP = {
    "gc": collects,
    "vacuum": partial(vacuums, tables=("a", "b")),
    "recover": recovers,
    "maintain": maintains,
    "keep": keeps("closing"),
    "gc again": collects,
    "vacuum again": partial(vacuums, tables=("a", "b")),
}


def of_the_lake(client):
    txn = begin(client, read_only=True)
    found = yield from read(txn, "a")
    yield from commit(txn)
    return found


def a_lake(last=""):
    """A lake with a tag, a branch with commits of its own, and a commit that is in no log yet."""
    simulation = lake()
    for name, program in (
        ("first writer", updates),
        ("tagger", makes("closing", kind="tag")),
        ("second writer", updates),
        ("brancher", makes("etl")),
        ("writer on it", adds(5)),
        ("second on it", appends(7)),
        ("collector", collects),
        ("third writer", updates),
    ):
        simulation.now += DAY / 2
        alone(simulation, program, name)
    if last == "tag":
        alone(simulation, makes("late", kind="tag"), "late tagger")
    elif last == "branch":
        alone(simulation, makes("late"), "late brancher")
    elif last == "undecided":
        Process(simulation, updates, "slow").until(HEAD_KEY)
    else:
        Process(simulation, updates, "decided").until("a/_delta_log")
    return simulation


def shown(simulation, number):
    """All that the lake, its tag and its branch show."""
    names = [("closing", shows("closing")), ("etl", shows("etl")), ("lake", of_the_lake)]
    return {
        name: alone(simulation, program, f"reader {number} of {name}") for name, program in names
    }


def older_versions(simulation):
    """Each older version of each object that was replaced: its key and its body."""
    versions = {}
    for change in simulation.store.journal:
        if change.after is not None and "/maintenance/" not in change.key:
            versions.setdefault(change.key, []).append(change.after.body)
    return [
        (key, body)
        for key, bodies in sorted(versions.items())
        if key in simulation.store.objects
        for body in dict.fromkeys(bodies[:-1])
    ]


def missing(simulation):
    """Return what HEAD and its refs name, and is not there; what makes a file of theirs
    unreadable.
    """

    def looks(client):
        context = context_of(client)
        held = yield from context.head()
        return (yield from look_at_named_objects(context, held.head))

    return [one.message for one in alone(simulation, looks, f"verifier {simulation.now}")]


def upkeep_on(simulation, key, body):
    """Set an object back, let everybody clean up, and bring the newest back; what was refused."""
    newest = simulation.store.objects[key].body
    simulation.store.apply(Put(key, body, ANY))
    simulation.now += 10 * DAY
    refused = {}
    for name, program in UPKEEP.items():
        try:
            alone(simulation, program, f"{name} {simulation.now}")
        except LakeVillaError as error:
            refused[name] = error
    simulation.store.apply(Put(key, newest, ANY))
    return refused


def test_nothing_is_missing_once_the_newest_is_restored():
    """Whatever went back, and however far."""
    simulation = a_lake()
    older = older_versions(simulation)
    assert len([key for key, _ in older if key == HEAD_KEY]) > 5
    assert any("/branches/" in key for key, _ in older)
    assert is_whole_after_upkeep(simulation, older) > 4


@pytest.mark.parametrize("last", ["tag", "branch", "undecided"])
def test_nothing_is_missing_where_head_went_back_by_one(last):
    """By which what its last replacement has made is like what a dead client leaves."""
    simulation = a_lake(last)
    older = [one for one in older_versions(simulation) if one[0] == HEAD_KEY]
    is_whole_after_upkeep(simulation, older[-1:])


def is_whole_after_upkeep(simulation, older):
    """Whether all is there after each; how often anything was refused."""
    before = shown(simulation, "first")
    objects, now = dict(simulation.store.objects), simulation.now
    said = 0
    for number, (key, body) in enumerate(older):
        simulation.store.objects, simulation.now = dict(objects), now
        said += bool(upkeep_on(simulation, key, body))
        assert shown(simulation, number) == before, (key, number)
        # What is behind its retention goes by any HEAD; the newest says so once it was cleaned by.
        alone(simulation, collects, "collector of the newest")
        assert not missing(simulation), (key, number)
        # And the lake goes on: what is pending is published, and what is garbage is deleted.
        alone(simulation, updates, "next writer")
        alone(simulation, recovers, "last recoverer")
        alone(simulation, collects, "last collector")
        after = shown(simulation, f"{number} again")
        assert after["lake"] == {**before["lake"], 0: before["lake"][0] + 10}, (key, number)
        assert (after["closing"], after["etl"]) == (before["closing"], before["etl"])
    return said


def test_a_head_that_went_back_is_reported_by_readers_and_by_makers_of_refs():
    simulation = a_lake("branch")
    bodies = [body for key, body in older_versions(simulation) if key == HEAD_KEY]
    simulation.store.apply(Put(HEAD_KEY, bodies[-3], ANY))
    report = alone(simulation, lambda client: doctor(context_of(client)), "doctor")
    assert any(one.key == HEAD_KEY and one.severity == "error" for one in report.findings)
    for program in (makes("new", kind="tag"), makes("new"), ends("closing")):
        assert alone(simulation, program, f"maker {program}") == "corrupt_object"


def test_a_branch_that_went_back_behind_a_gc_is_not_opened():
    simulation = a_lake("tag")
    found = [(key, body) for key, body in older_versions(simulation) if "/branches/" in key]
    key, body = found[0]
    simulation.store.apply(Put(key, body, ANY))
    with pytest.raises(CorruptObject, match="was set back"):
        alone(simulation, lambda client: on_branch(client, "etl", lambda _: None), "opener")


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("name", "last"), [("old_head_is_believed", "commit"), ("next_number_is_nobodys", "branch")]
)
def test_planted_bugs_are_found(name, last):
    simulation = a_lake(last)
    older = [one for one in older_versions(simulation) if one[0] == HEAD_KEY]
    # The next one would be made by upkeep itself, and nothing be told of this one any more.
    some = older[-1:] if last == "branch" else older[-4:-1]
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)) as caught:
        is_whole_after_upkeep(simulation, some)
    assert not isinstance(caught.value.__cause__, AttributeError | NameError | TypeError)
