"""Drop a table at each request of a client that commits to it by a log entry (note 50)."""

import pytest

from lakevilla.errors import ConflictError, LakeVillaError, TableNotFound
from lakevilla.lake.tables.drop_data import delete_data
from lakevilla.lake.tables.registration import register
from lakevilla.settings import Settings
from lakevilla.store.effects import Get, Put
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.commits import (
    RI,
    Process,
    add_to,
    alone,
    balances,
    begin,
    end,
    lake,
)
from tests.support.simulated.memory_lake import rows_of

FORMATS = {"delta": (), "iceberg": ("a",)}
formats = pytest.mark.parametrize("format", FORMATS)
#: The time after which a client has to read HEAD again.
LATER = 11.0
REUSED = Settings().reuse_after_seconds + 1


def appending(features):
    """Append twice, some time apart, as a client that knows the table; return the last outcome."""

    def program(client):
        context = context_of(client)
        for number in (7, 8):
            client.simulation.now += LATER
            txn = begin(client, features, context)
            try:
                yield from read_write.append(txn, "a", rows_of(number).to_reader())
                yield from commit(txn)
            except LakeVillaError as error:
                yield from end(txn)
                return type(error)
        return "appended"

    return program


def dropping(client, features=RI):
    txn = begin(client, features)
    yield from read_write.drop(txn, "a")
    yield from commit(txn)


def deleting(client):
    yield from dropping(client)
    yield from delete_data(context_of(client), "a")


def using_again(format):
    """Delete the data, let time pass, and create another table there."""

    def program(client):
        yield from deleting(client)
        client.simulation.now += REUSED
        txn = begin(client)
        yield from read_write.create(txn, "a", SCHEMA, [], {}, format)
        yield from read_write.append(txn, "a", rows_of(1).to_reader())
        yield from commit(txn)

    return program


def every_point(other, format, features):
    """Return each request of the second append before which ``other`` runs, and whether HEAD was
    read.
    """
    request = 0
    while True:
        simulation = lake(iceberg=FORMATS[format])
        process = Process(simulation, appending(features), "appender")
        while not (isinstance(process.next, Put) and _is_entry(process.next.key)):
            process.step()
        process.step()  # the first append
        asked = False
        for _ in range(request):
            if not process.done:
                asked = asked or (isinstance(process.next, Get) and "HEAD" in process.next.key)
                process.step()
        if process.done:
            break
        alone(simulation, other, "other")
        yield simulation, process, asked
        request += 1
    assert request > 2


def _is_entry(key):
    return key.startswith("a/_delta_log/") or key.endswith(".metadata.json")


def result_of(process):
    try:
        return process.finish()
    except LakeVillaError as error:
        return type(error)


@formats
@pytest.mark.parametrize("features", [Feature.NONE, Feature.R], ids=str)
def test_a_commit_that_reads_head_after_the_drop_is_refused_and_any_other_is_in_the_log(
    format, features
):
    outcomes = set()
    for simulation, process, asked in every_point(dropping, format, features):
        result = result_of(process)
        outcomes.add(result)
        if not asked:
            assert result in (ConflictError, TableNotFound)
        alone(simulation, lambda c: register(context_of(c), {"a": "a"}, {"a": ["a"]}), "again")
        assert (8 in balances(simulation)["a"]) == (result == "appended")
        alone(simulation, lambda c: _commit_one(c), "next")
        invariants.every_table_is_readable(simulation.store, ("a", "b"))
    assert "appended" in outcomes
    assert outcomes & {ConflictError, TableNotFound}


def _commit_one(client):
    txn = begin(client)
    yield from add_to(txn, "a", 1)
    yield from commit(txn)


@formats
def test_a_client_writes_nothing_into_another_table_that_was_created_in_place_of_its_table(format):
    for simulation, process, _ in every_point(using_again(format), format, Feature.NONE):
        if isinstance(process.next, Put) and _is_entry(process.next.key):
            continue  # no request takes so long (note 13)
        result_of(process)
        log = sorted(key for key in simulation.store.objects if _is_entry(key))
        assert len(log) == 1, log
        assert balances(simulation)["a"] == {1: 0}


@formats
def test_no_row_is_acknowledged_once_the_data_is_deleted_and_its_writer_has_read_head(format):
    for _, process, asked in every_point(deleting, format, Feature.NONE):
        assert asked or result_of(process) in (ConflictError, TableNotFound)


def test_the_test_finds_a_planted_commit_by_log_entry_that_relies_on_an_outdated_head():
    with (
        PLANTED["entries_by_an_old_head"].plant(),
        pytest.raises((AssertionError, LakeVillaError)),
    ):
        test_no_row_is_acknowledged_once_the_data_is_deleted_and_its_writer_has_read_head("delta")
