"""Reads outside a transaction cost as much as the same reads of a snapshot."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import polars as pl
import pytest

import lakevilla as lv
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost

READS: dict[str, tuple[Callable[[lv.Lake], object], Callable[[lv.Lake], object]]] = {
    "read": (lambda lake: lake.read("a"), lambda lake: lake.snapshot().read("a")),
    "scan": (
        lambda lake: lake.scan("a").read_all(),
        lambda lake: lake.snapshot().scan("a").read_all(),
    ),
    "sql": (
        lambda lake: lake.sql("FROM a NATURAL JOIN b"),
        lambda lake: lake.snapshot().sql("FROM a NATURAL JOIN b"),
    ),
}


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_warm_read_costs_no_more_than_a_read_of_a_snapshot(
    local_place: Place, verb: str, format: lv.api.table.FormatName
) -> None:
    at_once, of_snapshot = READS[verb]
    with local_place.connect() as lake:
        for table in ("a", "b"):
            lake.create_table(table, accounts(2), format=format)
        of_snapshot(lake)
        expected = cost(lake, lambda: of_snapshot(lake))
        assert cost(lake, lambda: at_once(lake)) == expected
        assert expected.total == expected.get > 0


def test_a_read_by_a_table_object_costs_as_much_as_by_the_lake(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("a", accounts(2))
        table = lake.table("a")
        lake.read("a")
        assert cost(lake, lambda: table.read()) == cost(lake, lambda: lake.read("a"))


def test_views_in_duckdb_cost_requests_only_when_they_are_attached(local_place: Place) -> None:
    with local_place.connect() as lake, duckdb.connect() as connection:
        for table in ("a", "b"):
            lake.create_table(table, accounts(2))
        lake.attach(connection)
        expected = cost(lake, lambda: lake.snapshot().versions)
        assert cost(lake, lambda: lake.attach(connection)) == expected
        query = "SELECT count(*) FROM a JOIN b USING (id)"
        assert cost(lake, connection.sql(query).fetchall) == Requests()


def test_a_lazy_frame_costs_as_much_as_a_read(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("a", accounts(2))
        table = lake.table("a")
        expected = cost(lake, lambda: table.read(where="id = 1"))
        frame = table.to_polars(lazy=True)
        one = pl.col("id") == 1
        assert cost(lake, lambda: frame.filter(one).collect()) == Requests()
        again = cost(lake, lambda: table.to_polars(lazy=True).filter(one).collect())
        assert again == expected
