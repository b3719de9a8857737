"""Reuse a dropped table's name while other clients work on it, at every request (note 47)."""

import pyarrow as pa
import pytest

from lakevilla.errors import (
    ConflictError,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    TableExists,
    TableNotFound,
)
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.tables.drop_data import delete_data
from lakevilla.lake.tables.registration import register
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc.gc import gc
from lakevilla.store.codec import decode
from lakevilla.sublogs.operations import Replace
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs import read_write
from lakevilla.transaction.verbs.reuse import can_be_reused, reuse
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.histories.exhaustive import one_search, set_up_once
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_writer, iceberg_writer
from tests.support.search import how_many
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
)

FORMATS = {"delta": (), "iceberg": ("a",)}


def taking_up(balance=7, amount=1):
    """CREATE OR REPLACE the table, and change another one; return the outcome."""

    def program(client):
        txn = begin(client)
        try:
            if (yield from can_be_reused(txn, "a", "a")):
                yield from reuse(txn, "a")
                yield from replace(txn, balance, revives=True)
            else:
                yield from read_write.create(txn, "a", SCHEMA, [], {})
            yield from add_to(txn, "b", amount)
            yield from commit(txn)
        except LakeVillaError as error:
            yield from end(txn)
            return type(error)
        return "taken up"

    return program


def replace(txn, balance, *, revives):
    columns = SCHEMA.serialize().to_pybytes()
    asked = Replace("a", (), None, columns, replaces_schema=True, revives=revives)
    layout = yield from read_write.layout_to_replace(txn, asked)
    rows = pa.Table.from_pylist(
        [{"id": 0, "balance": balance, "items": ""}], schema=layout.schema
    ).to_reader()
    yield from read_write.replace(txn, asked, layout, rows)


def drop(client):
    txn = begin(client)
    yield from read_write.drop(txn, "a")
    yield from commit(txn)


def changed_and_dropped(client):
    """Decide a commit that no client publishes, and drop the table behind it."""
    txn = begin(client)
    yield from add_to(txn, "a", 5)
    yield from commit(txn, publish=False)
    txn = begin(client)
    yield from read_write.drop(txn, "a")
    yield from commit(txn, publish=False)


def made_and_dropped(format):
    """Decide a table and its drop, neither of which is in its log."""

    def program(client):
        txn = begin(client)
        yield from read_write.create(txn, "a", SCHEMA, [], {}, format)
        yield from commit(txn, publish=False)
        txn = begin(client)
        yield from read_write.drop(txn, "a")
        yield from commit(txn, publish=False)

    return program


def registering(client):
    yield from register(context_of(client), {"a": "a"}, {"a": ["a"]})
    return "registered"


def deleting(client):
    """Do the rest of ``drop_table(delete_data=True)``, once its drop is decided."""
    try:
        yield from delete_data(context_of(client), "a")
    except InvalidOperation:
        return "stays"
    return "deleted"


def publishing(client):
    context = context_of(client)
    held = yield from context.head()
    yield from publish_table(context, held.head, "a")


def recover(client):
    return recovery.recover(context_of(client))


def nothing(client):
    yield from ()


def foreign(format):
    writer = iceberg_writer if format == "iceberg" else delta_writer

    def program(client):
        yield from writer.append(client, "a", [{"id": 5, "balance": 0, "items": ""}])

    return program


def head_of(simulation):
    return decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)


def log_of(simulation, format):
    key = "a/_delta_log/" if format == "delta" else "a/metadata/v"
    return [k for k in simulation.store.objects if k.startswith(key) and k.endswith(".json")]


@set_up_once
def prepared(iceberg, before, tables, faults=None, schedule=None):
    simulation = lake(faults, schedule, iceberg=iceberg, tables=tables)
    alone(simulation, before, "dropper")
    return simulation


def every_point(other, format, before=drop, tables=TABLES):
    """Return, for each request before which ``other`` runs, the simulation, the process and other's
    result.
    """
    request = 0
    while True:
        simulation = prepared(FORMATS[format], before, tables)
        process = Process(simulation, taking_up(), "first")
        for _ in range(request):
            if not process.done:
                process.step()
        if process.done:
            break
        yield simulation, process, alone(simulation, other, "other")
        request += how_many(3, whole=1)
    assert request > 8


def settled(simulation, *, there=True):
    """Check that every client reads the state of HEAD, and that nothing is pending."""
    alone(simulation, recover, "recoverer")
    tables = TABLES if there else ("b",)
    invariants.every_table_is_readable(simulation.store, tables)
    invariants.no_id_commits_twice(simulation.store, tables)
    invariants.tables_follow_head(simulation.store, tables)
    alone(simulation, lambda client: gc(context_of(client)), "collector")
    return balances(simulation, *tables)


formats = pytest.mark.parametrize("format", FORMATS)


@formats
@pytest.mark.parametrize("other", [publishing, recover, nothing], ids=lambda one: one.__name__)
@one_search
def test_pending_commits_are_published_once_and_before_the_table_is_reused(format, other):
    for simulation, process, _ in every_point(other, format, changed_and_dropped):
        assert process.finish() == "taken up"
        assert settled(simulation) == {"a": {0: 7}, "b": {0: 101, 1: 100}}


@formats
@pytest.mark.parametrize("other", [publishing, recover, nothing], ids=lambda one: one.__name__)
@one_search
def test_a_pending_table_that_no_log_shows_yet_is_not_forgotten_when_its_name_is_reused(
    format, other
):
    made = made_and_dropped(format)
    for simulation, process, _ in every_point(other, format, made, tables=("b",)):
        assert process.finish() == "taken up"
        assert settled(simulation) == {"a": {0: 7}, "b": {0: 101, 1: 100}}
        assert len(log_of(simulation, format)) == 2


@formats
@one_search
def test_a_reuse_replaces_a_dropped_table_that_another_client_registers_first_or_fails(format):
    outcomes = set()
    for simulation, process, said in every_point(registering, format, changed_and_dropped):
        mine = process.finish()
        outcomes.add(mine)
        assert said == "registered"
        assert not head_of(simulation).tables["a"].dropped
        now = settled(simulation)
        assert now["b"][0] == 100 + (mine == "taken up")
        assert now["a"] == ({0: 7} if mine == "taken up" else {0: 105, 1: 100}), mine
    assert "taken up" in outcomes
    assert outcomes <= {"taken up", ConflictError, TableExists}


@formats
@one_search
def test_two_clients_that_reuse_one_table_leave_the_rows_of_one_of_them(format):
    outcomes = set()
    for simulation, process, said in every_point(taking_up(8, 10), format):
        mine = process.finish()
        outcomes.add((mine, said))
        assert "taken up" in (mine, said)
        now = settled(simulation)
        taken = [1] * (mine == "taken up") + [10] * (said == "taken up")
        assert now["b"][0] == 100 + sum(taken)
        assert now["a"] in ({0: 7}, {0: 8})
        if len(taken) == 1:
            assert now["a"] == ({0: 7} if mine == "taken up" else {0: 8})
    assert len(outcomes) > 1


@formats
@one_search
def test_a_table_is_never_reused_while_its_data_is_being_deleted(format):
    outcomes = set()
    for simulation, process, said in every_point(deleting, format):
        mine = process.finish()
        outcomes.add((mine, said))
        now = settled(simulation, there=mine == "taken up")
        assert now["b"][0] == 100 + (mine == "taken up")
        assert head_of(simulation).tables["a"].dropped == (mine != "taken up")
        if mine == "taken up":
            assert now["a"] == {0: 7}
        else:
            left = [key for key in simulation.store.objects if key.startswith("a/")]
            assert not [key for key in left if "_delta_log" in key or "/metadata/" in key], left
    refused = {(error, "deleted") for error in (ConflictError, TableExists, TableNotFound)}
    assert outcomes & refused
    assert outcomes <= refused | {("taken up", "stays")}, outcomes
    assert ("taken up", "stays") in outcomes


def test_the_test_finds_a_planted_reuse_that_does_not_check_for_the_deletion():
    with (
        PLANTED["taken_up_while_its_data_goes"].plant(),
        pytest.raises((AssertionError, LakeVillaError)),
    ):
        test_a_table_is_never_reused_while_its_data_is_being_deleted("delta")


@formats
@one_search
def test_rows_of_clients_that_read_no_head_are_replaced_with_the_older_rows(format):
    for simulation, process, _ in every_point(foreign(format), format):
        versions = len(log_of(simulation, format))  # the two rows of before, and the client's
        mine = process.finish()
        assert mine in ("taken up", ConflictError, ForeignConflict)
        is_committed = mine is not ConflictError
        now = settled(simulation)
        assert now["b"][0] == 100 + is_committed
        if is_committed:
            # A row behind the log entry is a row of the new table, which has the same columns. A
            # row before it, decided or not, was written for the old one.
            assert now["a"] == ({0: 7} if versions == 3 else {0: 7, 5: 0})


def test_the_test_finds_a_planted_reuse_that_keeps_rows_of_the_old_definition():
    with PLANTED["rows_of_the_old_definition"].plant(), pytest.raises(AssertionError):
        test_rows_of_clients_that_read_no_head_are_replaced_with_the_older_rows("delta")


@formats
@one_search
def test_a_reuse_that_is_cut_off_leaves_the_table_dropped_or_replaced(format):
    taken = kept = 0
    for simulation, process, _ in every_point(nothing, format, changed_and_dropped):
        del process
        dropped = head_of(simulation).tables["a"].dropped
        now = settled(simulation)
        assert now["a"] == ({0: 105, 1: 100} if dropped else {0: 7})
        assert now["b"][0] == 100 + (not dropped)
        taken += not dropped
        kept += dropped
    assert taken
    assert kept
