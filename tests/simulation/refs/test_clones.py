"""Clones concurrently with writers, their deletion, clean-ups and creations of tables:
interleavings and crashes.

Afterwards repeated clean-ups delete all that is too old, and each side shows its own commits
(docs/design/0039-clones.md).
"""

import pyarrow as pa
import pytest

from lakevilla.branches.change import delete_ref
from lakevilla.branches.create import create_ref
from lakevilla.branches.keep import keep
from lakevilla.errors import LakeVillaError
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.tables.drop_data import delete_data
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.apply import restore
from lakevilla.transaction.verbs.read_write import append, create, drop, overwrite, scan
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from tests.support.search import how_many
from tests.support.simulated.branches import makes, shows
from tests.support.simulated.commits import Process, add_to, alone, begin, lake
from tests.support.simulated.upkeep import (
    DAY,
    LAKES,
    collects,
    confirms,
    results,
    updates,
    vacuums,
)

SCHEDULES = how_many(2, whole=12, soak=300)
#: Each searches a part of the schedules.
SHARES = pytest.mark.parametrize("share", range(12))


def answers(program):
    """Run a program in a client's context; return its result, or the kind of the error."""

    def run(client):
        try:
            return (yield from program(client))
        except LakeVillaError as error:
            return error.kind

    return run


def clones(source="a", to="k", at=None):
    """Make a clone; return "cloned", or the kind of the error."""

    def program(client):
        yield from create_ref(
            context_of(client),
            to,
            "clone",
            at,
            tables=None,
            protected=False,
            metadata={},
            created_by="",
            source=source,
        )
        return "cloned"

    return answers(program)


def ends(name="k"):
    def program(client):
        yield from delete_ref(context_of(client), name)
        return "ended"

    return answers(program)


def writes(work, *tables):
    """Commit once; return "committed", or the kind of the error."""

    def program(client):
        txn = begin(client)
        for table in tables:
            yield from work(txn, table)
        yield from commit(txn)
        return "committed"

    return answers(program)


def adds(amount, *tables, number=0):
    return writes(lambda txn, table: add_to(txn, table, amount, number), *tables)


def appends(number, table="k"):
    rows = pa.Table.from_pylist([{"id": number, "balance": 1, "items": ""}])
    return writes(lambda txn, table: append(txn, table, rows.to_reader()), table)


def replaces(table="k"):
    """Replace all rows by other ones, in files of the table's own."""
    rows = pa.Table.from_pylist([{"id": 0, "balance": 7, "items": ""}])
    return writes(lambda txn, table: overwrite(txn, table, rows.to_reader()), table)


def restores(version, table="k"):
    return writes(lambda txn, table: restore(txn, table, OwnVersion(version)), table)


def makes_table(table="k"):
    schema = pa.schema({"id": pa.int64(), "balance": pa.int64(), "items": pa.string()})
    return writes(lambda txn, table: create(txn, table, schema, (), {}), table)


def drops(table, *, with_data=False):
    def program(client):
        txn = begin(client)
        yield from drop(txn, table)
        yield from commit(txn)
        if with_data:
            yield from delete_data(context_of(client), table)
        return "dropped"

    return answers(program)


def looks(table):
    """Read a table of the lake; return its rows, or the kind of the error."""

    def program(client):
        txn = begin(client, read_only=True)
        rows = (yield from scan(txn, table, None, None)).read_all().to_pylist()
        yield from commit(txn)
        found = {row["id"]: row["balance"] for row in rows}
        assert len(rows) == len(found), rows
        return found

    return answers(program)


@set_up_once
def of_one_commit(iceberg, faults=None, schedule=None):
    """Return a lake whose table a has a file of the lake's own, and 110 in its first account."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    assert alone(simulation, updates, "earlier writer") == "committed"
    simulation.now += 3 * DAY
    return simulation


@set_up_once
def cloned(iceberg=(), faults=None, schedule=None):
    """Return the same lake with a clone of a at k."""
    simulation = of_one_commit(iceberg, faults, schedule)
    assert alone(simulation, clones(), "cloner") == "cloned"
    simulation.now += 3 * DAY
    return simulation


def sweep(simulation, times=2):
    """Clean up all that is too old, on both sides."""
    for number in range(times):
        simulation.now += 10 * DAY
        alone(simulation, confirms, f"operator {number} {simulation.now}")
        for table in ("a", "k"):
            swept = answers(lambda client, table=table: vacuums(client, (table,)))
            alone(simulation, swept, f"sweeper of {table} {number} {simulation.now}")
        alone(simulation, collects, f"collector {number} {simulation.now}")


def looked(simulation, table):
    return alone(simulation, looks(table), f"looker at {table} {simulation.now}")


BEFORE = {0: 110, 1: 100}


@LAKES
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (adds(1, "k"), adds(2, "k", number=1), {0: 111, 1: 102}),
        (adds(1, "k"), adds(2, "k"), {0: 113, 1: 100}),
        (adds(1, "k"), appends(9), {0: 111, 1: 100, 9: 1}),
        (appends(8), appends(9), {**BEFORE, 8: 1, 9: 1}),
    ],
    ids=["other rows", "the same row", "an append", "two appends"],
)
def test_two_concurrent_first_writes_to_a_clone_both_take_effect(one, other, expected, iceberg):
    def build(faults, schedule):
        simulation = cloned(iceberg, faults, schedule)
        simulation.add("one", one)
        simulation.add("other", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found == {"one": "committed", "other": "committed"}, found
        sweep(simulation)
        assert looked(simulation, "k") == expected
        assert looked(simulation, "a") == BEFORE

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@LAKES
@pytest.mark.parametrize("other", [updates, vacuums, collects])
def test_a_clone_shows_one_state_of_its_source_in_each_order_of_the_requests(other, iceberg):
    def build(faults, schedule):
        simulation = of_one_commit(iceberg, faults, schedule)
        simulation.add("cloner", clones())
        simulation.add("other", other)
        return simulation

    def check(simulation):
        assert results(simulation)["cloner"] == "cloned"
        shown = looked(simulation, "k")
        assert shown in (BEFORE, {0: 120, 1: 100}), shown
        alone(simulation, updates, "later writer")
        sweep(simulation)
        assert looked(simulation, "k") == shown
        assert alone(simulation, adds(1, "k", number=1), "last writer") == "committed"
        sweep(simulation)
        assert looked(simulation, "k") == {**shown, 1: 101}

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


@pytest.mark.parametrize(
    ("write", "needs_it"), [(adds(1, "k"), False), (adds(1, "b", "k"), False), (appends(9), True)]
)
def test_a_write_to_a_clone_and_the_end_of_the_clone_take_effect_one_after_the_other(
    write, needs_it
):
    """An update rewrites the table's one file: then the clone needs no file of its source."""

    def build(faults, schedule):
        simulation = cloned((), faults, schedule)
        simulation.add("writer", write)
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        found = results(simulation)
        alone(simulation, updates, "later writer")
        shown = looked(simulation, "k")
        sweep(simulation)
        assert looked(simulation, "k") == shown
        if found["writer"] == "committed":
            assert found["ender"] == ("invalid_operation" if needs_it else "ended"), found
            assert shown in ({0: 111, 1: 100}, {**BEFORE, 9: 1}), shown
        else:
            assert found["ender"] == "ended", found
            assert shown == "table_not_found"

    assert interleavings(build, check, limit=4 * SCHEDULES) == 4 * SCHEDULES


@pytest.mark.parametrize("other", [makes_table("k"), makes_table("k/x")])
def test_either_a_clone_or_a_table_is_created_at_one_path(other):
    def build(faults, schedule):
        simulation = of_one_commit((), faults, schedule)
        simulation.add("cloner", clones())
        simulation.add("other", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        won = (found["cloner"] == "cloned", found["other"] == "committed")
        assert sum(won) == 1, found
        assert looked(simulation, "k") == (BEFORE if won[0] else looked(simulation, "k"))

    assert interleavings(build, check, limit=2 * SCHEDULES) == 2 * SCHEDULES


def test_a_source_is_either_dropped_with_its_data_or_cloned():
    def build(faults, schedule):
        simulation = of_one_commit((), faults, schedule)
        simulation.add("cloner", clones())
        simulation.add("dropper", drops("a", with_data=True))
        return simulation

    def check(simulation):
        found = results(simulation)
        sweep(simulation)
        if found["cloner"] == "cloned":
            assert looked(simulation, "k") == BEFORE, found
        else:
            assert found == {"cloner": "table_not_found", "dropper": "dropped"}

    assert interleavings(build, check, limit=4 * SCHEDULES) == 4 * SCHEDULES


def test_a_restored_state_of_a_clone_is_kept_or_the_restore_is_refused():
    """The restore brings back an older state of a table that needs no file of its
    source any more.
    """

    def build(faults, schedule):
        simulation = cloned((), faults, schedule)
        assert alone(simulation, appends(9), "first") == "committed"
        assert alone(simulation, replaces(), "second") == "committed"
        simulation.add("restorer", restores(0))
        simulation.add("ender", ends())
        return simulation

    def check(simulation):
        found = results(simulation)
        alone(simulation, updates, "later writer")
        sweep(simulation)
        expected = {**BEFORE, 9: 1} if found["restorer"] == "committed" else {0: 7}
        assert looked(simulation, "k") == expected, found
        assert (found["restorer"], found["ender"]) in (
            ("committed", "invalid_operation"),
            ("version_not_found", "ended"),
        ), found

    assert interleavings(build, check, limit=4 * SCHEDULES) == 4 * SCHEDULES


def test_a_file_that_only_a_tag_of_an_ended_clone_keeps_is_not_restored_once_the_tag_ends():
    """The clone has ended: the tag that shows it may be deleted, whatever files the table names."""

    def build(faults, schedule):
        simulation = cloned((), faults, schedule)
        assert alone(simulation, appends(9), "first") == "committed"
        alone(simulation, makes("closing", kind="tag"), "tagger")
        assert alone(simulation, replaces(), "second") == "committed"
        assert alone(simulation, ends(), "ender of the clone") == "ended"
        simulation.add("restorer", restores(0))
        simulation.add("ender", ends("closing"))
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["ender"] == "ended", found
        alone(simulation, updates, "later writer")
        sweep(simulation)
        expected = {**BEFORE, 9: 1} if found["restorer"] == "committed" else {0: 7}
        assert looked(simulation, "k") == expected, found

    assert interleavings(build, check, limit=4 * SCHEDULES) == 4 * SCHEDULES


@LAKES
@SHARES
@pytest.mark.parametrize("who", ["cloner", "writer", "ender"])
def test_clients_that_die_anywhere_leave_a_clone_and_its_source_whole(who, share, iceberg):
    programs = {"cloner": clones(), "writer": adds(1, "k"), "ender": ends()}

    def build(faults, schedule):
        simulation = (of_one_commit if who == "cloner" else cloned)(iceberg, faults, schedule)
        simulation.add(who, programs[who], restart=programs[who])
        return simulation

    def check(simulation):
        sweep(simulation)
        shown = looked(simulation, "k")
        allowed = {
            "cloner": [BEFORE],
            "writer": [{0: 111, 1: 100}, {0: 112, 1: 100}],
            "ender": ["table_not_found"],
        }
        assert shown in allowed[who], shown
        assert looked(simulation, "a") == BEFORE

    assert crash_everywhere(build, check, who, every=12, first=share) > 0


def keeps():
    def program(client):
        report = yield from keep(context_of(client), "k")
        return report.ok

    return answers(program)


@LAKES
@SHARES
def test_a_client_that_copies_files_for_a_clone_may_die_anywhere(share, iceberg):
    def build(faults, schedule):
        simulation = cloned(iceberg, faults, schedule)
        assert alone(simulation, appends(9), "writer") == "committed"
        simulation.add("keeper", keeps(), restart=keeps())
        return simulation

    def check(simulation):
        *_, last = results(simulation).values()
        assert last in (True, "conflict"), last
        alone(simulation, confirms, "operator")
        assert alone(simulation, keeps(), "last keeper") is True
        assert alone(simulation, ends(), "ender") == "ended"
        assert alone(simulation, updates, "later writer") == "committed"
        sweep(simulation)
        assert looked(simulation, "k") == {**BEFORE, 9: 1}

    assert crash_everywhere(build, check, "keeper", every=12, first=share) > 0


@pytest.mark.parametrize("other", [appends(8), replaces(), keeps(), ends(), updates, collects])
def test_keeping_a_clone_is_safe_concurrently_with_other_clients(other):
    def build(faults, schedule):
        simulation = cloned((), faults, schedule)
        assert alone(simulation, appends(9), "writer") == "committed"
        simulation.add("keeper", keeps())
        simulation.add("other", other)
        return simulation

    def check(simulation):
        found = results(simulation)
        assert found["keeper"] in (True, "ref_not_found"), found
        shown = looked(simulation, "k")
        assert alone(simulation, ends(), "ender") in ("ended", "ref_not_found")
        alone(simulation, updates, "later writer")
        sweep(simulation)
        assert looked(simulation, "k") == shown
        assert shown in ({**BEFORE, 9: 1}, {**BEFORE, 8: 1, 9: 1}, {0: 7}), shown

    assert interleavings(build, check, limit=SCHEDULES) == SCHEDULES


def test_a_tag_shows_the_state_of_a_clone_that_has_ended():
    simulation = cloned()
    assert alone(simulation, makes("closing", kind="tag"), "tagger") != "ref_exists"
    assert alone(simulation, ends(), "ender") == "ended"
    assert alone(simulation, updates, "later writer") == "committed"
    sweep(simulation)
    assert alone(simulation, shows("closing", "k"), "looker") == BEFORE


def test_the_later_of_two_first_writes_to_a_clone_builds_on_the_earlier_one():
    simulation = cloned()
    writer = Process(simulation, adds(1, "k"), "writer").until("_lakevilla/HEAD.json")
    assert alone(simulation, adds(2, "k", number=1), "other writer") == "committed"
    assert writer.finish() == "committed"
    assert looked(simulation, "k") == {0: 111, 1: 102}


def test_a_read_of_a_clone_conflicts_with_another_clone_made_in_its_place():
    simulation = cloned()
    writer = Process(simulation, adds(1, "k"), "writer").until("_lakevilla/HEAD.json")
    assert alone(simulation, ends(), "ender") == "ended"
    assert alone(simulation, updates, "later writer") == "committed"
    assert alone(simulation, clones(), "second cloner") == "cloned"
    assert writer.finish() == "conflict"
    sweep(simulation)
    assert looked(simulation, "k") == {0: 120, 1: 100}


RARE = {
    "detached_from_what_was_deleted": lambda: (
        test_a_write_to_a_clone_and_the_end_of_the_clone_take_effect_one_after_the_other(
            appends(9), True
        )
    ),
    "ended_under_a_detached_table": lambda: (
        test_a_write_to_a_clone_and_the_end_of_the_clone_take_effect_one_after_the_other(
            appends(9), True
        )
    ),
    "cloned_under_the_same_name": (
        test_a_read_of_a_clone_conflicts_with_another_clone_made_in_its_place
    ),
    "clones_hold_nothing": lambda: (
        test_a_clone_shows_one_state_of_its_source_in_each_order_of_the_requests(updates, ())
    ),
    "clones_in_tags_forgotten": test_a_tag_shows_the_state_of_a_clone_that_has_ended,
    "created_under_a_clone": lambda: test_either_a_clone_or_a_table_is_created_at_one_path(
        makes_table("k")
    ),
    "mounted_over_a_table": lambda: test_either_a_clone_or_a_table_is_created_at_one_path(
        makes_table("k/x")
    ),
    "restored_from_a_clone_that_ended": (
        test_a_restored_state_of_a_clone_is_kept_or_the_restore_is_refused
    ),
    "kept_by_the_clone_in_a_tag": (
        test_a_file_that_only_a_tag_of_an_ended_clone_keeps_is_not_restored_once_the_tag_ends
    ),
    "detached_twice": test_the_later_of_two_first_writes_to_a_clone_builds_on_the_earlier_one,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RARE)
def test_each_planted_bug_of_clones_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 12)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RARE[name]()
