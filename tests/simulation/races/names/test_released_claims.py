"""Unregister a table while clients of its lake register it, and other lakes claim it (note 51)."""

import pytest

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.global_log.head import HEAD_KEY, Head, empty_head
from lakevilla.global_log.repo import LakeFile, claim_table, lake_key
from lakevilla.lake.tables.claims import restore_claims
from lakevilla.lake.tables.registration import register, unregister
from lakevilla.store.codec import FORMAT, decode
from lakevilla.store.effects import delete
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.planted.every import PLANTED
from tests.simulation.races.names.test_reused_tables import drop, taking_up
from tests.support.simulated.commits import Process, alone, lake


def letting_go(client):
    yield from unregister(context_of(client), "a", "a")
    return "let go"


def registering(client):
    yield from register(context_of(client), {"a": "a"}, {"a": ["a"]})
    return "registered"


def recovering(client):
    context = context_of(client)
    held = yield from context.head()
    return (yield from restore_claims(context, held.head))


def without_claim(client):
    """Delete the claim, as another client's clean-up does."""
    yield from delete(lake_key("a"))


def other_lake(client):
    """Claim the table for another lake, then register it there."""
    head = empty_head("other", "elsewhere", "n", FORMAT)
    try:
        yield from claim_table("a", head, client.ids, "theirs")
    except InvalidOperation:
        return "refused"
    return "theirs"


def in_turn(*programs, named="other"):
    """Run programs one after the other, each in a process of its own; an error counts
    as a result.
    """

    def run(simulation):
        results = []
        for number, program in enumerate(programs):
            try:
                results.append(alone(simulation, program, f"{named}{number}"))
            except LakeVillaError as error:
                results.append(type(error))
        return results

    return run


def every_point(program, others, before=()):
    """Return, for each request of a program before which others run, simulation, result and others'
    results.
    """
    request = 0
    while True:
        simulation = lake()
        in_turn(*before, named="before")(simulation)
        process = Process(simulation, program, "first")
        for _ in range(request):
            if not process.done:
                process.step()
        if process.done:
            break
        yield simulation, process, in_turn(*others)(simulation)
        request += 1
    assert request > 3


def result_of(process):
    try:
        return process.finish()
    except LakeVillaError as error:
        return type(error)


def owner(simulation):
    """Return which lake the claim names, and whether this lake has the table."""
    found = simulation.store.objects.get(lake_key("a"))
    named = None if found is None else decode("a", found.body, LakeFile).lake_id
    head = decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)
    state = head.tables.get("a")
    return named, head.lake_id, state is not None and not state.dropped


def no_two_lakes_have_it(simulation, theirs):
    """``theirs``: another lake's registration of the table was acknowledged."""
    named, own, live = owner(simulation)
    assert not (theirs and live), "two lakes have it"
    if theirs:
        assert named == "other", f"its claim was taken away: {named!r}"
    if live:
        assert named == own, f"this lake has it, and the claim names {named!r}"
        assert alone(simulation, other_lake, "late") == "refused"


@pytest.mark.parametrize(
    "others",
    [
        (registering,),
        (registering, other_lake),
        (letting_go, other_lake),
        (letting_go, other_lake, registering),
        (letting_go, registering),
        (registering, letting_go, other_lake, registering),
        (recovering, other_lake),
    ],
    ids=lambda programs: "-".join(one.__name__ for one in programs),
)
def test_releasing_a_table_removes_only_its_own_claim(others):
    for simulation, process, said in every_point(letting_go, others):
        result_of(process)
        no_two_lakes_have_it(simulation, "theirs" in said)


@pytest.mark.parametrize(
    ("program", "before"),
    [
        pytest.param(registering, drop, id="dropped and registered"),
        pytest.param(registering, letting_go, id="let go and registered"),
        pytest.param(taking_up(), drop, id="dropped and taken up"),
        pytest.param(taking_up(), letting_go, id="let go and taken up"),
        pytest.param(recovering, without_claim, id="its claim is lost"),
    ],
)
@pytest.mark.parametrize(
    "others", [(letting_go,), (letting_go, other_lake), (letting_go, registering, letting_go)]
)
def test_registering_or_reusing_a_table_leaves_a_claim_that_no_client_gives_away(
    program, others, before
):
    for simulation, process, said in every_point(program, others, (before,)):
        result_of(process)
        no_two_lakes_have_it(simulation, "theirs" in said)


def test_a_released_table_is_free_for_another_lake_in_the_end():
    simulation = lake()
    assert alone(simulation, other_lake, "early") == "refused"
    assert alone(simulation, letting_go, "first") == "let go"
    assert alone(simulation, other_lake, "late") == "theirs"
    with pytest.raises(InvalidOperation, match="belongs to the lake at elsewhere"):
        alone(simulation, registering, "again")


def test_a_release_that_a_dead_client_left_unfinished_is_completed_by_another():
    for simulation, process, _ in every_point(letting_go, ()):
        del process
        alone(simulation, letting_go, "second")
        assert alone(simulation, other_lake, "late") == "theirs"


def test_the_test_finds_a_planted_release_without_a_condition():
    with PLANTED["claims_let_go_late"].plant(), pytest.raises(AssertionError):
        test_releasing_a_table_removes_only_its_own_claim((letting_go, other_lake))


def test_the_test_finds_a_planted_release_that_goes_by_an_outdated_claim():
    with PLANTED["claims_left_as_they_are"].plant(), pytest.raises(AssertionError):
        test_releasing_a_table_removes_only_its_own_claim((registering,))


@pytest.mark.parametrize("program", [registering, taking_up()], ids=["register", "take up"])
def test_the_test_finds_a_planted_client_that_does_not_check_whether_its_claim_was_given_away(
    program,
):
    with PLANTED["claims_given_away_unseen"].plant(), pytest.raises(AssertionError):
        test_registering_or_reusing_a_table_leaves_a_claim_that_no_client_gives_away(
            program, (letting_go,), drop
        )
