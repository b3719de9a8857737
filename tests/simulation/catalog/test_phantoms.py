"""Test two clients that read the catalog and write by what they read: one sees the
other's commit.
"""

from contextlib import suppress

import pytest

from lakevilla.errors import ConflictError
from lakevilla.sql.catalog import CatalogRead, Term, range_of
from lakevilla.transaction.verbs.catalog.rows import catalog_rows
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables.reader import table_rows
from tests.support.search import STRIDE, how_many
from tests.support.simulated.commits import TABLES, begin, commit, end, lake
from tests.support.simulated.memory_lake import rows_of

SCHEDULES = how_many(25, whole=60, soak=3000)
BY_NAME = (Term("name", "in", TABLES),)
BY_TABLE = (Term("table", "in", TABLES),)
READS = {
    "tables": CatalogRead("tables", range_of(BY_NAME, "name"), BY_NAME, ("name", "rows")),
    "files": CatalogRead("files", range_of(BY_TABLE, "table"), BY_TABLE),
    "statistics": CatalogRead("statistics", range_of(BY_TABLE, "table"), BY_TABLE),
}
ROW = rows_of(7)


def adds_if_there_are_four(kind, table):
    """Append a row if both tables together have at most four."""

    def program(client):
        txn = begin(client)
        try:
            seen = yield from catalog_rows(txn, READS[kind])
            if counted(kind, seen) <= 4:
                yield from append(txn, table, ROW.to_reader())
            yield from commit(txn)
        except ConflictError:
            yield from end(txn)
            return "lost"
        return "committed"

    return program


def counted(kind, seen):
    """Return the number of rows of both tables that the catalog shows."""
    if kind == "statistics":
        files = len(set(seen["path"].to_pylist()))
        return 4 if files <= len(TABLES) else 5
    return sum(seen["rows"].to_pylist())


def race(kind):
    def build(faults, schedule):
        simulation = lake(faults, schedule)
        for table in TABLES:
            simulation.add(f"adds to {table}", adds_if_there_are_four(kind, table))
        return simulation

    return build


def no_more_than_five(simulation):
    rows = sum(len(table_rows(simulation.store, table)) for table in TABLES)
    done = [client.result for client in simulation.clients].count("committed")
    pending = simulation.fired.total() > 0
    assert rows == 5 or (pending and rows == 4), (rows, done)


@pytest.mark.parametrize("kind", READS)
def test_catalog_counts_read_by_two_clients_hold_at_the_commit(kind):
    assert interleavings(race(kind), no_more_than_five, limit=SCHEDULES) > 20


@pytest.mark.parametrize("kind", ["tables"])
def test_a_client_that_dies_at_any_request_causes_no_phantom(kind):
    assert (
        crash_everywhere(race(kind), no_more_than_five, f"adds to {TABLES[0]}", every=STRIDE)
        > 10 // STRIDE
    )


def test_the_simulation_finds_phantoms():
    with PLANTED["phantoms_are_let_through"].plant(), suppress(AssertionError):
        interleavings(race("tables"), no_more_than_five, limit=SCHEDULES)
        pytest.fail("a phantom was not found")
