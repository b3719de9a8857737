"""Requests of paths over the catalog: what a predicate excludes is not read."""

from __future__ import annotations

import pytest

import lakevilla as lv
from bench.size.many_tables import cost
from lakevilla.store.runner import Requests
from tests.support.places import Place

ROWS = [{"id": 1, "region": "EU"}, {"id": 2, "region": "Asia"}]


@pytest.fixture
def place(shared_place: Place) -> Place:
    """Return the place of a lake with twelve tables of two files each."""
    with shared_place.connect() as lake, lake.transaction() as txn:
        for number in range(12):
            txn.create_table(f"sales/t{number:02}", ROWS, partition_by=["region"])
    return shared_place


def asked(place: Place, path: str) -> tuple[Requests, int]:
    """Return the requests of a path, by a client that has nothing cached, and its rows."""
    found: list[int] = []
    with place.connect() as lake:
        requests = cost(lake, lambda: found.append(lake.query(path).num_rows))
    return requests, found[0]


def test_a_predicate_on_names_opens_the_tables_that_are_left(place: Place) -> None:
    one, rows = asked(place, "/sales/t03/files")
    assert rows == 2
    narrowed, rows = asked(place, "/[name = 'sales']/[name = 't03']/files[rows > 0]")
    assert rows == 2
    every, rows = asked(place, "/sales/*/files")
    assert rows == 24
    opening = one.total - asked(place, "/sales/t03")[0].total
    assert narrowed.total == one.total, (narrowed, one)
    assert every.total == one.total + 11 * opening, (every, one, opening)


def test_a_predicate_on_sizes_opens_no_table_that_head_excludes(place: Place) -> None:
    names, rows = asked(place, "/sales/*")
    assert rows == 12
    for below in ("files", "partitions", "columns", "statistics", "partitions/files/columns"):
        nothing, rows = asked(place, f"/sales/*[rows > 2]/{below}")
        assert rows == 0
        assert nothing.total == names.total, (below, nothing, names)
    assert names.total <= 2


def test_partitions_and_columns_of_files_cost_what_the_list_of_files_costs(place: Place) -> None:
    files, _ = asked(place, "/sales/t03/files")
    for below, count in (
        ("partitions", 2),
        ("partitions[files = 1]/files", 2),
        ("partitions/region=EU/files/columns/id", 1),
        ("files/columns[max > 1]", 1),
    ):
        requests, rows = asked(place, f"/sales/t03/{below}")
        assert rows == count, below
        assert requests.total == files.total, (below, requests, files)


def test_sql_over_the_partitions_costs_what_a_path_costs(place: Place) -> None:
    query = """SELECT name FROM lakevilla_partitions WHERE "table" = 'sales/t03'"""
    with place.connect() as lake:
        requests = cost(lake, lambda: lake.sql(query))
    assert requests.total == asked(place, "/sales/t03/partitions")[0].total


def test_a_path_in_an_older_version_reads_the_tables_that_it_names(place: Place) -> None:
    with place.connect() as lake:
        for _ in range(3):
            lake.run(lambda txn: txn.append("sales/t05", ROWS))
        first: lv.HistoryEntry = lake.history()[-1]
    with place.connect() as lake:
        one = cost(lake, lambda: lake.query("/sales/t05/files", at=first.version))
        assert lake.query("/sales/t05/files", at=first.version).num_rows == 2
    with place.connect() as lake:
        every = cost(lake, lambda: lake.query("/sales/*/files", at=first.version))
    assert one.total < every.total / 3, (one, every)
