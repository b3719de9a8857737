"""Rollbacks, reverts and cherry-picks, concurrently with writers and clean-ups."""

import contextlib
from functools import partial

import pyarrow as pa
import pytest

from lakevilla.errors import ConflictError, ForeignConflict, LakeVillaError, MergeConflict
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.apply import apply, roll_back
from lakevilla.transaction.verbs.read_write import append, layout_of, scan
from lakevilla_testing.checks.applied import rollbacks_came_to_what_was
from lakevilla_testing.checks.invariants import all_or_nothing, every_table_is_readable
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.tables.reader import table_rows
from tests.support.search import STRIDE, how_many
from tests.support.simulated import upkeep
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
    transfer,
)
from tests.support.simulated.upkeep import DAY, LAKES, collects

SCHEDULES = how_many(2, whole=25, soak=200)


def rolls_back(client, to=2, attempts=10):
    """Roll both tables back to a version, again if other clients committed first."""
    for _ in range(attempts):
        txn = begin(client)
        try:
            outcomes = yield from roll_back(txn, ("version", to))
            yield from commit(txn)
        except ConflictError:
            yield from end(txn)
        except LakeVillaError as error:
            yield from end(txn)
            if error.kind != "version_not_found":
                raise
            return "refused"
        else:
            return outcomes
    raise AssertionError("others were quicker each time")


def applies(before, after, **options):
    """Apply what changed between two versions."""

    def program(client):
        for _ in range(10):
            txn = begin(client)
            try:
                outcomes = yield from apply(
                    txn, ("version", before), ("version", after), keys={}, **options
                )
                yield from commit(txn)
            except ConflictError:
                yield from end(txn)
            except MergeConflict:
                yield from end(txn)
                return "conflict"
            else:
                return outcomes
        raise AssertionError("others were quicker each time")

    return program


def transfers(client):
    for _ in range(10):
        if (yield from transfer(client)) == "committed":
            return


vacuums = partial(upkeep.vacuums, tables=TABLES)


@set_up_once
def of_four_versions(iceberg, faults=None, schedule=None):
    """Return a lake whose two tables had three transfers after the first version."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    for name in ("first", "second", "third"):
        alone(simulation, transfers, name)
        simulation.now += 3 * DAY
    return simulation


def is_whole(simulation):
    """Check that all tables can be read, no row came or went, and each rollback restored its
    version.
    """
    store = simulation.store
    every_table_is_readable(store, TABLES)
    alone(simulation, transfers, "last")  # publishes what is pending
    all_or_nothing(store, TABLES)
    found = balances(simulation)
    assert sum(sum(rows.values()) for rows in found.values()) == 400, found
    assert {table: len(rows) for table, rows in found.items()} == dict.fromkeys(TABLES, 2)
    rollbacks_came_to_what_was(store)


def beside(other, iceberg, faults, schedule):
    simulation = of_four_versions(iceberg, faults, schedule)
    simulation.add("owner", rolls_back)
    simulation.add("other", other)
    return simulation


def again(client):
    return rolls_back(client, 3)


@LAKES
@pytest.mark.parametrize("other", [transfers, vacuums, collects, again])
def test_a_rollback_restores_the_state_concurrently_with_other_transactions(other, iceberg):
    assert interleavings(partial(beside, other, iceberg), is_whole, limit=SCHEDULES) == SCHEDULES


@LAKES
def test_a_rollback_is_whole_or_absent_wherever_its_client_dies(iceberg):
    def build(faults, schedule):
        simulation = of_four_versions(iceberg, faults, schedule)
        simulation.add("owner", rolls_back, restart=rolls_back)
        return simulation

    assert crash_everywhere(build, is_whole, "owner", every=STRIDE) > 30 // STRIDE


@pytest.mark.parametrize("other", [vacuums, collects])
def test_a_clean_up_concurrent_with_a_rollback_may_die_anywhere(other):
    def build(faults, schedule):
        simulation = of_four_versions((), faults, schedule)
        Process(simulation, rolls_back).until("_delta_log")  # decided, and not published
        simulation.add("owner", other, restart=other)
        return simulation

    assert crash_everywhere(build, is_whole, "owner", every=STRIDE) > 20 // STRIDE


@LAKES
def test_a_rollback_takes_back_a_concurrent_append(iceberg):
    """No client has removed rows: the two conflict only because a rollback counts as reading all
    rows.
    """
    simulation = of_four_versions(iceberg)
    owner = Process(simulation, rolls_back, "owner").until("_lakevilla/HEAD.json")
    alone(simulation, appends, "other")
    owner.finish()
    every_table_is_readable(simulation.store, TABLES)
    assert rollbacks_came_to_what_was(simulation.store) == 2


@LAKES
def test_a_rollback_takes_back_a_concurrent_update_of_a_table_that_did_not_differ(iceberg):
    simulation = lake(iceberg=iceberg)
    alone(simulation, lambda client: updates(client, "b"), "first")
    owner = Process(simulation, lambda client: rolls_back(client, 1), "owner")
    owner.until("_lakevilla/HEAD.json")
    alone(simulation, lambda client: updates(client, "a"), "second")
    owner.finish()
    assert balances(simulation) == {table: {0: 100, 1: 100} for table in TABLES}
    assert rollbacks_came_to_what_was(simulation.store) == 2


def updates(client, table):
    txn = begin(client)
    yield from add_to(txn, table, 1)
    yield from commit(txn)


def of_two_takers(iceberg, faults=None, schedule=None):
    """Let two clients take back the same commit."""
    simulation = of_four_versions(iceberg, faults, schedule)
    simulation.add("one", applies(4, 3))
    simulation.add("two", applies(4, 3))
    return simulation


@LAKES
def test_two_clients_that_revert_the_same_commit_revert_it_once(iceberg):
    runs = interleavings(partial(of_two_takers, iceberg), is_whole, limit=SCHEDULES)
    assert runs == SCHEDULES


@LAKES
def test_two_clients_that_apply_the_same_change_again_apply_it_once(iceberg):
    """The change only adds files, so neither client sees the other's by a removal."""
    simulation = lake(iceberg=iceberg)
    alone(simulation, appends, "appender")
    alone(simulation, lambda client: rolls_back(client, 1), "back")
    one = Process(simulation, applies(1, 2), "one").until("_lakevilla/HEAD.json")
    assert alone(simulation, applies(1, 2), "two") == {"a": "physical"}
    one.finish()
    assert sorted(alone(simulation, ids_seen, "reader")) == [0, 1, 7]


@LAKES
def test_a_file_that_a_foreign_writer_has_restored_is_not_added_twice(iceberg):
    """The change is decided and not published when the file is restored: its replay
    does nothing.
    """
    simulation = lake(iceberg=iceberg)
    alone(simulation, appends, "appender")
    alone(simulation, lambda client: rolls_back(client, 1), "back")
    log = "a/metadata/v" if iceberg else "a/_delta_log"
    owner = Process(simulation, applies(1, 2), "owner").until(log)
    other = iceberg_writer if iceberg else delta_writer
    assert alone(simulation, lambda client: other.restore(client, "a", 1), "foreign")
    with contextlib.suppress(ForeignConflict):
        owner.finish()
    assert sorted(alone(simulation, ids_seen, "reader")) == [0, 1, 7]


def ids_seen(client):
    rows = yield from scan(begin(client), "a", None, None)
    return [row["id"] for row in rows.read_all().to_pylist()]


def appends(client):
    """Append one row to table a, in a file of its own."""
    txn = begin(client)
    layout = yield from layout_of(txn, "a")
    rows = pa.Table.from_pylist([{"id": 7, "balance": 0, "items": ""}], layout.schema)
    yield from append(txn, "a", rows.to_reader())
    yield from commit(txn)


def test_a_rollback_is_refused_if_a_vacuum_may_delete_its_files():
    """HEAD advances during the rollback: it checks again, and is refused."""
    simulation = of_four_versions(())
    owner = Process(simulation, rolls_back, "owner").until("_lakevilla/HEAD.json")
    alone(simulation, vacuums, "sweeper")
    assert owner.finish() == "refused"
    is_whole(simulation)


def test_a_vacuum_keeps_the_files_of_a_decided_rollback():
    simulation = of_four_versions(())
    owner = Process(simulation, rolls_back, "owner").until("a/_delta_log")
    alone(simulation, vacuums, "sweeper")
    assert owner.finish() == dict.fromkeys(TABLES, "physical")
    is_whole(simulation)


def test_a_rollback_is_published_though_a_foreign_writer_has_appended():
    """The append comes after the rollback in HEAD's order."""
    simulation = of_four_versions(())
    owner = Process(simulation, rolls_back, "owner").until("a/_delta_log")
    row = {"id": 9, "balance": 0, "items": ""}
    alone(simulation, lambda client: delta_writer.append(client, "a", [row]), "foreign")
    owner.finish()
    rows = {row["id"]: row["balance"] for row in table_rows(simulation.store, "a")}
    assert rows == {0: 99, 1: 100, 9: 0}


def test_a_rollback_that_a_foreign_writer_makes_unfit_is_void_in_that_table():
    simulation = of_four_versions(())
    owner = Process(simulation, rolls_back, "owner").until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", dict), "foreign")
    with pytest.raises(ForeignConflict, match=r"replayed|changed"):
        owner.finish()
    every_table_is_readable(simulation.store, TABLES)
    assert balances(simulation) == {"a": {0: 97, 1: 100}, "b": {0: 101, 1: 100}}


def test_a_replay_finds_the_rows_of_files_that_a_vacuum_would_have_deleted():
    """A foreign writer has rewritten the files twice: the pending commit reads the files of its
    version.
    """
    simulation = of_four_versions(())
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", dict), "early")
    simulation.now += DAY
    owner = Process(simulation, applies(4, 3), "owner").until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", dict), "foreign")
    simulation.now += DAY
    alone(simulation, vacuums, "sweeper")
    with contextlib.suppress(ForeignConflict):
        owner.finish()
    with contextlib.suppress(ForeignConflict):
        alone(simulation, transfers, "last")  # the pending commit is published first
    every_table_is_readable(simulation.store, TABLES)
    assert balances(simulation) == {"a": {0: 97, 1: 100}, "b": {0: 103, 1: 100}}


#: For each planted bug, which leaves out a rule, the test that finds it.
RULES = {
    "rollback_reads_nothing": partial(test_a_rollback_takes_back_a_concurrent_append, ()),
    "others_forgotten": partial(
        test_a_rollback_takes_back_a_concurrent_update_of_a_table_that_did_not_differ, ()
    ),
    "nosources": test_a_replay_finds_the_rows_of_files_that_a_vacuum_would_have_deleted,
    "files_taken_blindly": test_a_rollback_is_refused_if_a_vacuum_may_delete_its_files,
    # Delta adds a path that is already there without an effect, so only Iceberg shows this bug.
    "added_by_others_too": partial(
        test_a_file_that_a_foreign_writer_has_restored_is_not_added_twice, TABLES
    ),
    "added_twice": partial(test_two_clients_that_apply_the_same_change_again_apply_it_once, TABLES),
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_rollbacks_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 25)  # enough to find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
