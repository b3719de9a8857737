"""Set an object of the lake back to an older version of itself, and run upkeep (note 53).

Then restore the newest version, as every error message requests: nothing may be missing.
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


#: The clients that clean up, or continue their work.
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
    """Return a lake with a tag, a branch with commits of its own, and a commit that no
    log has yet.
    """
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
    """Return all rows that the lake, its tag and its branch show."""
    names = [("closing", shows("closing")), ("etl", shows("etl")), ("lake", of_the_lake)]
    return {
        name: alone(simulation, program, f"reader {number} of {name}") for name, program in names
    }


def older_versions(simulation):
    """Return each older version of each object that was replaced: its key and its body."""
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
    """Return findings on objects that HEAD and its refs name: objects that are missing or
    unreadable.
    """

    def looks(client):
        context = context_of(client)
        held = yield from context.head()
        return (yield from look_at_named_objects(context, held.head))

    return [one.message for one in alone(simulation, looks, f"verifier {simulation.now}")]


def upkeep_on(simulation, key, body):
    """Set an object back, run all upkeep, and restore the newest version; return the refusals by
    task.
    """
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


def test_nothing_is_missing_once_the_newest_version_of_any_object_is_restored():
    """Set each object back to each of its older versions."""
    simulation = a_lake()
    older = older_versions(simulation)
    assert len([key for key, _ in older if key == HEAD_KEY]) > 5
    assert any("/branches/" in key for key, _ in older)
    assert is_whole_after_upkeep(simulation, older) > 4


@pytest.mark.parametrize("last", ["tag", "branch", "undecided"])
def test_nothing_is_missing_where_head_was_set_back_by_one_replacement(last):
    """What the last replacement of HEAD named then looks like the leftovers of a dead client."""
    simulation = a_lake(last)
    older = [one for one in older_versions(simulation) if one[0] == HEAD_KEY]
    is_whole_after_upkeep(simulation, older[-1:])


def is_whole_after_upkeep(simulation, older):
    """Check that all is whole after each run of upkeep; return how many runs refused something."""
    before = shown(simulation, "first")
    objects, now = dict(simulation.store.objects), simulation.now
    said = 0
    for number, (key, body) in enumerate(older):
        simulation.store.objects, simulation.now = dict(objects), now
        said += bool(upkeep_on(simulation, key, body))
        assert shown(simulation, number) == before, (key, number)
        # Objects beyond their retention are deleted by any HEAD; the newest HEAD records that.
        alone(simulation, collects, "collector of the newest")
        assert not missing(simulation), (key, number)
        # The lake goes on: pending commits are published, and garbage is deleted.
        alone(simulation, updates, "next writer")
        alone(simulation, recovers, "last recoverer")
        alone(simulation, collects, "last collector")
        after = shown(simulation, f"{number} again")
        assert after["lake"] == {**before["lake"], 0: before["lake"][0] + 10}, (key, number)
        assert (after["closing"], after["etl"]) == (before["closing"], before["etl"])
    return said


def test_readers_and_makers_of_refs_report_a_head_that_went_back():
    simulation = a_lake("branch")
    bodies = [body for key, body in older_versions(simulation) if key == HEAD_KEY]
    simulation.store.apply(Put(HEAD_KEY, bodies[-3], ANY))
    report = alone(simulation, lambda client: doctor(context_of(client)), "doctor")
    assert any(one.key == HEAD_KEY and one.severity == "error" for one in report.findings)
    for program in (makes("new", kind="tag"), makes("new"), ends("closing")):
        assert alone(simulation, program, f"maker {program}") == "corrupt_object"


def test_a_branch_that_went_back_to_before_a_gc_is_not_opened():
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
def test_the_tests_find_planted_bugs_of_the_upkeep(name, last):
    simulation = a_lake(last)
    older = [one for one in older_versions(simulation) if one[0] == HEAD_KEY]
    # Upkeep itself would store the next HEAD, and then nobody would report this one.
    some = older[-1:] if last == "branch" else older[-4:-1]
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)) as caught:
        is_whole_after_upkeep(simulation, some)
    assert not isinstance(caught.value.__cause__, AttributeError | NameError | TypeError)
