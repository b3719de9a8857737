"""Crashes of clients that mark rows, and marks by others between decision and publishing.

See notes 65 and 66.
"""

from functools import partial

import pytest

from lakevilla.errors import ForeignConflict
from lakevilla.formats.files import holds_vectors
from lakevilla.transaction.commit.commit import commit
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import COLUMNS
from lakevilla_testing.histories.exhaustive import crash_everywhere, set_up_once
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.tables.delta_reader import read_log
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.scheduler import Simulation
from tests.simulation.races.test_scenarios import collect, one_update, recover, settled
from tests.support.search import STRIDE
from tests.support.simulated.commits import Process, add_to, alone, balances, begin, read
from tests.support.simulated.upkeep import confirms

IDS = range(6)
WRITERS = {"delta": delta_writer, "iceberg": iceberg_writer}
LOGS = {"delta": "a/_delta_log", "iceberg": "a/metadata"}
of_both = pytest.mark.parametrize("form", WRITERS)


@set_up_once
def lake(faults=None, schedule=None, form="delta"):
    """Return a lake with two tables of one large file each, of which rows may be marked."""
    simulation = Simulation(faults=faults, schedule=schedule)
    maker = Simulation(1)
    maker.store = simulation.store

    def set_up(client):
        rows = [{"id": n, "balance": 100, "items": ""} for n in IDS]
        for table in ("a", "b"):
            more = {"version": 3} if form == "iceberg" else {}
            yield from WRITERS[form].create(client, table, COLUMNS, rows, marks=True, **more)
        txn = begin(client)
        for table in ("a", "b"):
            yield from add_to(txn, table, 0, 5)
        yield from commit(txn)

    maker.add("setup", set_up)
    maker.run()
    return simulation


def marks(simulation, number, amount=1, form="delta"):
    """Let a client without LakeVilla mark a row, and add to its balance."""

    def change(row):
        return {**row, "balance": row["balance"] + amount} if row["id"] == number else row

    alone(simulation, lambda client: WRITERS[form].mark(client, "a", change), "foreign")


def expected(**changed):
    return dict.fromkeys(IDS, 100) | {int(name[1:]): value for name, value in changed.items()}


def files_written(simulation):
    return {key for key in simulation.store.objects if key.endswith(".parquet")}


@of_both
def test_commits_that_have_marked_other_rows_are_published_as_they_are(form):
    simulation = lake(form=form)
    process = Process(simulation, one_update(5)).until(LOGS[form])
    behind = Process(simulation, one_update(7, number=1), "behind").until(LOGS[form])
    marks(simulation, 2, form=form)
    before = files_written(simulation)
    process.finish()
    behind.finish()
    assert files_written(simulation) == before
    assert settled(simulation)["a"] == expected(_0=105, _1=107, _2=101)
    # Their files are the table's, though their commits have been replaced.
    simulation.now += 8 * 24 * 3600
    alone(simulation, collect, "collector")
    assert settled(simulation)["a"] == expected(_0=105, _1=107, _2=101)


@of_both
def test_a_commit_that_has_marked_the_same_row_is_performed_again(form):
    simulation = lake(form=form)
    process = Process(simulation, one_update(5)).until(LOGS[form])
    marks(simulation, 0, form=form)
    with pytest.raises(ForeignConflict, match="replayed on the changed rows"):
        process.finish()
    assert settled(simulation)["a"] == expected(_0=106)


@of_both
def test_a_commit_is_performed_again_if_other_clients_have_cleaned_up_its_marks(form):
    simulation = lake(form=form)
    before = set(simulation.store.objects)
    Process(simulation, one_update(5)).until(LOGS[form])
    written = [key for key in set(simulation.store.objects) - before if holds_vectors(key)]
    marks(simulation, 2, form=form)
    for key in written:  # no log names them yet
        del simulation.store.objects[key]
    assert written
    assert settled(simulation)["a"] == expected(_0=105, _2=101)


def test_a_commit_is_performed_again_if_a_row_now_fits_its_predicate():
    simulation = lake()

    def program(client):
        txn = begin(client)
        yield from add_to(txn, "a", 1, 0)
        yield from add_to(txn, "a", 10, "1 or balance = 90")
        return (yield from commit(txn))

    process = Process(simulation, program).until("a/_delta_log")
    marks(simulation, 3, -10)
    with pytest.raises(ForeignConflict):
        process.finish()
    assert settled(simulation)["a"] == expected(_0=101, _1=110, _3=100)


def test_a_read_of_a_row_that_the_other_client_has_marked_is_reported():
    simulation = lake()

    def program(client):
        txn = begin(client)
        yield from read(txn, "a", "id = 3")
        yield from add_to(txn, "a", 1, 0)
        return (yield from commit(txn))

    process = Process(simulation, program).until("a/_delta_log")
    marks(simulation, 3)
    with pytest.raises(ForeignConflict, match="rows that it had read"):
        process.finish()
    assert settled(simulation)["a"] == expected(_0=101, _3=101)


def test_a_commit_of_a_file_that_is_gone_is_performed_again():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    marks(simulation, 2)
    alone(simulation, lambda client: delta_writer.optimize(client, "a"), "optimizer")
    with pytest.raises(ForeignConflict):
        process.finish()
    assert settled(simulation)["a"] == expected(_0=105, _2=101)


def test_a_commit_behind_one_that_is_performed_again_is_so_too():
    simulation = lake()
    first = Process(simulation, one_update(5)).until("a/_delta_log")
    second = Process(simulation, one_update(7, number=1), "behind").until("a/_delta_log")
    marks(simulation, 0)
    for process in (first, second):
        with pytest.raises(ForeignConflict):
            process.finish()
    assert settled(simulation)["a"] == expected(_0=106, _1=107)


def test_a_commit_rewrites_the_file_if_marks_are_switched_off_before_it_is_published():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")

    def switch_off(client):
        return delta_writer.set_property(client, "a", "delta.enableDeletionVectors", "false")

    alone(simulation, switch_off, "foreign")
    with pytest.raises(ForeignConflict):
        process.finish()
    assert settled(simulation)["a"] == expected(_0=105)
    files = run_now(simulation.store, read_log("a")).files.values()
    assert not [file for file in files if file.get("deletionVector")]


def test_the_fault_of_changes_beside_that_count_as_nothing_is_found():
    with PLANTED["changes_beside_as_nothing"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_commit_is_performed_again_if_a_row_now_fits_its_predicate()


# ------------------------------------------------------------------ crashes


def transfer(client):
    """Move an amount between two tables, by marks in a file of each."""
    txn = begin(client)
    yield from add_to(txn, "a", -1, 1)
    yield from add_to(txn, "b", 1, 1)
    yield from commit(txn)


def one_transfer(form, faults, schedule):
    simulation = lake(faults, schedule, form)
    simulation.add("owner", transfer, restart=recover)
    return simulation


def decide(client):
    """Decide a transfer that its owner leaves to other clients to publish."""
    txn = begin(client)
    yield from add_to(txn, "a", -1, 1)
    yield from add_to(txn, "b", 1, 1)
    yield from commit(txn, publish=False)


def one_reconcile(form, faults, schedule):
    simulation = lake(faults, schedule, form)
    alone(simulation, decide, "decider")
    marks(simulation, 2, form=form)
    simulation.add("owner", recover, restart=recover)
    return simulation


def whole(others, simulation):
    """Check that both tables have the transfer or none, and that nothing is left over."""
    found = settled(simulation)
    moved = 100 - found["a"][1]
    assert moved in (0, 1)
    assert found["a"] == {**expected(_1=100 - moved), **others}
    assert found["b"] == expected(_1=100 + moved)
    simulation.now += 3 * 24 * 3600
    alone(simulation, confirms, "operator")
    alone(simulation, collect, "collector")
    invariants.no_orphan_files(simulation.store, ("a", "b"))
    assert balances(simulation) == found


@of_both
@pytest.mark.parametrize(
    ("build", "others", "least"), [(one_transfer, {}, 15), (one_reconcile, {2: 101}, 15)]
)
def test_a_crash_at_any_request_of_a_marking_commit_leaves_the_tables_whole(
    build, others, least, form
):
    runs = crash_everywhere(partial(build, form), partial(whole, others), "owner", every=STRIDE)
    assert runs >= least * 4 // STRIDE
