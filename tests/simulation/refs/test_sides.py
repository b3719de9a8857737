"""Change one table on two sides: no subtraction and no value of either side is lost
(notes 55, 56).
"""

from functools import partial

import pyarrow as pa
import pytest

from lakevilla.errors import ConflictError, ForeignConflict, LakeVillaError, MergeConflict
from lakevilla.sublogs.operations import Alter
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.apply import apply
from lakevilla.transaction.verbs.applying.merge_branch import merge_branch
from lakevilla.transaction.verbs.read_write import append, execute, layout_of, scan
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer
from tests.support.search import STRIDE, how_many
from tests.support.simulated.branches import makes, on_branch, rebases
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    begin,
    end,
    lake,
    read,
)
from tests.support.simulated.upkeep import LAKES, results

SCHEDULES = how_many(2, whole=20, soak=200)
KEYS = {"a": ("id",)}


def again(attempt):
    """Retry where other clients committed first; return "done", or the kind of the error."""

    def program(client):
        for _ in range(10):
            txn = begin(client)
            try:
                yield from attempt(txn)
                yield from commit(txn)
            except ConflictError:
                yield from end(txn)
            except MergeConflict as error:
                yield from end(txn)
                return error.kind
            else:
                return "done"
        raise AssertionError("others were quicker each time")

    return program


# ----------------------------------------------------------------------- sums


def merges(name):
    return again(lambda txn: merge_branch(txn, name, keys=KEYS))


#: Take one from an account of the lake.
takes = again(lambda txn: add_to(txn, "a", -1))


def takes_on(name):
    def program(client):
        def work(context):
            txn = begin(client, context=context)
            yield from add_to(txn, "a", -1)
            yield from commit(txn)

        yield from on_branch(client, name, work)

    return program


@set_up_once
def two_branches(iceberg=(), faults=None, schedule=None):
    """Return two branches, each of which has taken one from the same account."""
    simulation = lake(faults, schedule, iceberg=iceberg)
    for name in ("etl", "more"):
        alone(simulation, makes(name), f"maker of {name}")
        alone(simulation, takes_on(name), f"taker on {name}")
    return simulation


def balance(simulation):
    def looks(client):
        return (yield from read(begin(client, read_only=True), "a"))

    return alone(simulation, looks, "reader")[0]


def keeps_the_sum(simulation):
    """Check the sum: each client that committed has taken one, a client with a conflict none."""
    found = results(simulation)
    assert set(found.values()) <= {"done", "merge_conflict"}, found
    assert balance(simulation) == 100 - sum(one == "done" for one in found.values()), found


@LAKES
@pytest.mark.parametrize("other", [takes, merges("more")])
def test_a_merge_does_not_take_an_equal_subtraction_of_another_client_for_its_own(other, iceberg):
    def build(faults, schedule):
        simulation = two_branches(iceberg, faults, schedule)
        simulation.add("one", merges("etl"))
        simulation.add("two", other)
        return simulation

    assert interleavings(build, keeps_the_sum, limit=SCHEDULES) == SCHEDULES


def test_a_merge_whose_client_dies_takes_effect_once_or_not():
    """The client begins again, and finds the effects of its own first try."""

    def build(faults, schedule):
        simulation = two_branches((), faults, schedule)
        simulation.add("owner", merges("etl"), restart=merges("etl"))
        return simulation

    def check(simulation):
        alone(simulation, merges("etl"), "last")
        assert balance(simulation) == 99

    assert crash_everywhere(build, check, "owner", every=STRIDE) > 20 // STRIDE


def test_a_merge_after_a_rebase_settled_as_ours_undoes_no_subtraction_of_the_lake():
    simulation = two_branches()
    assert alone(simulation, merges("etl"), "merge") == "done"
    assert alone(simulation, rebases("more", KEYS), "rebase") == "merge_conflict"
    kept = alone(simulation, rebases("more", KEYS, on_conflict="ours"), "settled")
    assert not isinstance(kept, str)
    assert alone(simulation, takes, "other") == "done"
    assert alone(simulation, merges("more"), "again") == "done"
    assert balance(simulation) == 98


def test_an_equal_foreign_update_in_a_replay_makes_the_merge_void():
    """The merge is decided and not published: its replay can't take a foreign subtraction for its
    own.
    """
    simulation = two_branches()
    owner = Process(simulation, merges("etl"), "owner").until("a/_delta_log")

    def subtracts(client):
        def less(row):
            return {**row, "balance": row["balance"] - (row["id"] == 0)}

        return (yield from delta_writer.rewrite(client, "a", less))

    alone(simulation, subtracts, "foreign")
    with pytest.raises(ForeignConflict):
        owner.finish()
    assert balance(simulation) == 99


# ------------------------------------------------------------- removed columns


@set_up_once
def with_column(faults=None, schedule=None):
    """Return an Iceberg table that has got a column by version 2."""
    simulation = lake(faults, schedule, iceberg=TABLES)
    columns = pa.schema([("c", pa.string())]).serialize().to_pybytes()

    def adds(client):
        txn = begin(client)
        yield from execute(txn, Alter("a", {}, columns), "alter")
        yield from commit(txn)

    alone(simulation, adds, "adder")
    return simulation


def takes_back(txn):
    yield from apply(txn, ("version", 2), ("version", 1), keys={})


def appends(txn):
    layout = yield from layout_of(txn, "a", probing=True)
    row = {"id": 7, "balance": 0, "items": "", "c": "of somebody else"}
    rows = pa.Table.from_pylist([row], layout.schema)
    yield from append(txn, "a", rows.to_reader())


def columns_and_rows(simulation):
    def looks(client):
        found = (yield from scan(begin(client, read_only=True), "a", None, None)).read_all()
        return found.column_names, found.to_pylist()

    return alone(simulation, looks, "reader")


def hides_nothing(simulation):
    """Check that a row was written with a column that exists, or without it after its removal."""
    found = results(simulation)
    columns, rows = columns_and_rows(simulation)
    assert found["two"] == "done", found
    if "c" in columns:
        assert found["one"] == "merge_conflict"
        assert rows[-1]["c"] == "of somebody else" or rows[0]["c"] == "of somebody else"
        return
    # The row's writer knew no such column.
    assert found["one"] == "done"
    assert simulation.written_without


def appender(simulation):
    def attempt(txn):
        layout = yield from layout_of(txn, "a", probing=True)
        simulation.written_without = "c" not in layout.schema.names
        yield from appends(txn)

    return again(attempt)


def an_append_beside_a_revert(faults, schedule):
    simulation = with_column(faults, schedule)
    simulation.add("one", again(takes_back))
    simulation.add("two", appender(simulation))
    return simulation


def test_a_revert_of_an_added_column_hides_no_value_of_another_client():
    runs = interleavings(an_append_beside_a_revert, hides_nothing, limit=SCHEDULES)
    assert runs == SCHEDULES


RULES = {
    "equal_changes_kept": partial(
        test_a_merge_does_not_take_an_equal_subtraction_of_another_client_for_its_own,
        merges("more"),
        (),
    ),
    "values_in_dropped_columns": test_a_revert_of_an_added_column_hides_no_value_of_another_client,
}


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", RULES)
def test_each_planted_bug_of_two_sides_is_found(name, monkeypatch):
    monkeypatch.setitem(globals(), "SCHEDULES", 20)  # as many as find each of them
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        RULES[name]()
