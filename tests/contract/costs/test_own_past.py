"""Requests for log versions of a table: an old one costs no more than opening the table."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost, rounds

VERSIONS = 30


@pytest.fixture(params=["delta", "iceberg"])
def grown(request: pytest.FixtureRequest, local_place: Place) -> Place:
    """Create a table of thirty versions; each tenth version of a Delta table has a checkpoint."""
    with local_place.connect() as lake:
        lake.create_table("a", accounts(1), format=request.param)
        for _ in range(VERSIONS - 1):
            lake.run(lambda txn: txn.append("a", accounts(1)))
    return local_place


@pytest.mark.cases(1)
def test_reading_an_old_log_version_costs_no_more_than_opening_and_reading_the_table(
    grown: Place,
) -> None:
    with grown.connect() as lake:
        most = cost(lake, lambda: lake.read("a"))
    with grown.connect() as lake:
        most_rounds = rounds(lake, lambda: lake.read("a"))
    for version in (0, 9, VERSIONS - 1):
        with grown.connect() as lake:
            table = lake.table("a")

            def ask(table: lv.Table[Any] = table, version: int = version) -> None:
                assert table.read(version=version).num_rows == version + 1

            assert cost(lake, ask).total <= most.total, version
            assert cost(lake, ask).total == 1  # HEAD, to find the table
        with grown.connect() as lake:
            table = lake.table("a")
            assert rounds(lake, partial(table.read, version=version)) <= most_rounds


def test_reads_by_timestamp_and_lists_of_versions_cost_one_list_of_the_log(grown: Place) -> None:
    with grown.connect() as lake:
        table = lake.table("a")
        of_delta = table.format == "delta"
        asked = table.versions()[VERSIONS // 2]
        table.read(version=asked.version)
        # HEAD and newer versions; a LIST for a Delta table, and for an Iceberg table each metadata
        # file whose snapshot is needed.
        by_time = cost(lake, lambda: table.read(timestamp=asked.timestamp))
        assert (by_time.list, by_time.get) == (int(of_delta), 2)
        listed = cost(lake, table.versions)
        assert (listed.list, listed.get) == ((1, 2) if of_delta else (0, 2 + VERSIONS - 1))
        some = cost(lake, lambda: table.versions(limit=3))
        assert (some.list, some.get) == ((1, 2) if of_delta else (0, 2 + 2))

        def ask() -> None:
            with pytest.raises(lv.VersionNotFound, match=f"version 0 .* to {VERSIONS - 1} "):
                table.read(version=VERSIONS)

        # The existing versions are found by bisection.
        assert cost(lake, ask).total <= 8
