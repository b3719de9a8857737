"""Clients of two releases on one lake: the older ones carry on what they do not know (note 87).

The newer client notes things in ``kept`` of HEAD, of a table and of a tag, which the others do not
know. These do all that replaces HEAD meanwhile.
"""

import msgspec
import pytest

from lakevilla.branches.change import delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.errors import UnsupportedFormat
from lakevilla.global_log.head import FORMAT_WITH_KEPT, successor, with_refs
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.maintenance.upkeep.maintain import maintain
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import interleavings, set_up_once
from lakevilla_testing.tables import delta_writer, iceberg_writer
from tests.support.search import how_many
from tests.support.simulated.commits import (
    add_to,
    alone,
    balances,
    begin,
    commit,
    lake,
    transfer,
)

FORMATS = pytest.mark.parametrize("iceberg", [(), ("a",)], ids=["delta", "iceberg"])
SCHEDULES = how_many(3, whole=40, soak=400)
NOTES = 3


def tags(name):
    def program(client):
        yield from create_ref(
            context_of(client),
            name,
            "tag",
            None,
            tables=None,
            protected=False,
            metadata={},
            created_by="",
        )

    return program


def noting(number):
    """Return a change of HEAD by a newer client: its number in each ``kept`` that there is."""

    def change(context, head):
        kept = {"number": number}
        table = msgspec.structs.replace(head.tables["a"], kept=kept)
        new = successor(
            head, nonce=context.ids.nonce(), now_ms=context.now_ms(), tables={"a": table}
        )
        new = with_refs(new, {"v1": msgspec.structs.replace(head.refs["v1"], kept=kept)})
        return msgspec.structs.replace(new, format=FORMAT_WITH_KEPT, kept=kept)

    return change


def notes(client):
    """Note ascending numbers, each in a replacement of its own: none may be found gone."""
    context = context_of(client)
    for number in range(1, NOTES + 1):

        def change(head, number=number):
            yield from ()
            if number > 1:
                assert numbers_in(head) == {number - 1}
            return noting(number)(context, head)

        yield from replace_until_stored(context, change)


def numbers_in(head):
    found = (head.kept, head.tables["a"].kept, head.refs["v1"].kept)
    return {one.get("number") for one in found}


def older(client):
    """Do what replaces HEAD: commit, commit after others' writes, tag, maintain, end the tag."""
    yield from transfer(client)
    yield from tags("v2")(client)
    yield from maintain(context_of(client), list(TASKS), owner=client.name)
    yield from delete_ref(context_of(client), "v2")
    yield from transfer(client, "b", "a", 2)


@set_up_once
def a_lake(faults, schedule, *, iceberg=()):
    simulation = lake(faults, schedule, iceberg=iceberg)
    alone(simulation, tags("v1"), "tagger")
    return simulation


@FORMATS
def test_an_older_client_keeps_what_a_newer_one_notes_in_any_order(iceberg):
    def build(faults, schedule):
        simulation = a_lake(faults, schedule, iceberg=iceberg)
        simulation.add("newer", notes)
        simulation.add("older", older)
        simulation.add("other", transfer)
        clients = iceberg_writer if iceberg else delta_writer
        simulation.add("foreign", lambda client: clients.optimize(client, "a"))
        return simulation

    def check(simulation):
        found = alone(simulation, head_now, "reader")
        assert numbers_in(found) == {NOTES}
        assert found.format == FORMAT_WITH_KEPT
        total = balances(simulation)
        assert sum(sum(rows.values()) for rows in total.values()) == 400

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def head_now(client):
    return (yield from context_of(client).head()).head


def needs_more(client):
    """Let table ``b`` need something that the other clients do not know."""
    context = context_of(client)

    def change(head):
        yield from ()
        if head.tables["b"].needs:
            return None
        state = msgspec.structs.replace(head.tables["b"], needs=("teleport",))
        now = {"nonce": context.ids.nonce(), "now_ms": context.now_ms()}
        return successor(head, **now, tables={"b": state})

    return (yield from replace_until_stored(context, change)).sequence


@FORMATS
def test_an_older_client_is_refused_at_the_table_that_needs_more_and_nowhere_else(iceberg):
    simulation = a_lake(None, None, iceberg=iceberg)
    alone(simulation, needs_more, "newer")

    def adds(table):
        def program(client):
            txn = begin(client)
            yield from add_to(txn, table, 1)
            yield from commit(txn)

        return program

    alone(simulation, adds("a"), "one")
    with pytest.raises(UnsupportedFormat, match="table b needs 'teleport'"):
        alone(simulation, adds("b"), "two")
    before = {info.key for info in simulation.store.list("b")}
    simulation.now += 10 * 24 * 3600
    report = alone(
        simulation, lambda client: maintain(context_of(client), list(TASKS), owner="o"), "three"
    )
    assert "table b needs 'teleport'" in str(report.findings)
    assert {info.key for info in simulation.store.list("b")} == before
    assert balances(simulation) == {"a": {0: 101, 1: 100}, "b": {0: 100, 1: 100}}


@FORMATS
def test_a_commit_that_began_before_the_table_needed_more_does_not_reach_it(iceberg):
    seen = {}

    def newer(client):
        seen["last"] = yield from needs_more(client)

    def tries(client):
        try:
            yield from transfer(client)
        except UnsupportedFormat:
            seen["refused"] = True

    def build(faults, schedule):
        seen.clear()
        simulation = a_lake(faults, schedule, iceberg=iceberg)
        simulation.add("newer", newer)
        simulation.add("older", tries)
        return simulation

    def check(simulation):
        head = alone(simulation, head_now, "reader")
        assert head.tables["b"].needs == ("teleport",)
        assert max(one.sequence for one in head.commits if "b" in one.tables) <= seen["last"]
        assert "refused" in seen or head.sequence == seen["last"] == 2

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES
