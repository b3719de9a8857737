"""Requests of listing names, tables, and tables that are not in the lake yet."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.global_log import leaves
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.tables import accounts
from tests.support.traces import cost, critical_path, steps


def filled(place: Place, count: int) -> list[str]:
    """Create tables with a few commits each."""
    names = [f"region_{number % 3}/t{number:03}" for number in range(count)]
    with place.connect() as lake:
        with lake.transaction() as txn:
            for name in names:
                txn.create_table(name, accounts(2))
        for _ in range(2):
            with lake.transaction() as txn:
                for name in names:
                    txn.append(name, accounts(1))
    return sorted(names)


@pytest.mark.parametrize("count", [2, 12])
def test_listing_names_costs_one_get(local_place: Place, count: int) -> None:
    names = filled(local_place, count)
    with local_place.connect() as lake:
        assert cost(lake, lambda: list(lake)) == Requests(get=1)
        assert cost(lake, lambda: len(lake)) == Requests(get=1)
        assert cost(lake, lambda: names[0] in lake) == Requests(get=1)
        assert list(lake) == names


@pytest.mark.parametrize("in_leaves", [False, True])
@pytest.mark.parametrize("count", [2, how_many(12, whole=40)])
def test_listing_all_tables_takes_four_rounds(
    shared_place: Place, count: int, in_leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_leaves:
        monkeypatch.setattr(leaves, "INLINE_BYTES", 100)
        monkeypatch.setattr(leaves, "LEAF_BYTES", 100)
    names = filled(shared_place, count)
    found: list[lv.Table] = []
    with shared_place.connect() as lake:
        assert critical_path(lake, lambda: found.extend(lake.tables())) <= 4
        assert [table.name for table in found] == names
        assert [table.version for table in found] == [2] * count
    with shared_place.connect() as lake:
        assert critical_path(lake, lambda: list(lake)) == 1 + in_leaves


@pytest.mark.parametrize("appends", [1, 6])
def test_discovering_a_new_table_reads_no_data_files_and_no_tables_of_the_lake(
    local_place: Place, appends: int
) -> None:
    names = filled(local_place, 6)
    for _ in range(appends):
        local_place.write("new", accounts(1))
    with local_place.connect() as lake:
        traced = [request for step in steps(lake, lake.discover) for request in step]
    # HEAD, the root and its three directories; no request for tables that are in the lake.
    assert not [key for _, key in traced if key.startswith(tuple(names))]
    of_new = [verb for verb, key in traced if key.startswith("new/")]
    # The requests read log entries and a claim, and list in two formats.
    assert sorted(of_new) == ["get"] * (appends + 1) + ["list"] * 2
    of_others = [request for request in traced if not request[1].startswith("new/")]
    assert len(of_others) == 2 + 3 * 4
    with local_place.connect() as lake:
        assert critical_path(lake, lake.discover) <= 8


def test_discovering_many_tables_takes_as_many_rounds_as_few(local_place: Place) -> None:
    def made(count: int) -> int:
        for number in range(count):
            local_place.write(f"dir_{number % 2}/new_{number}", accounts(1))
        with local_place.connect() as lake:
            return critical_path(lake, lake.discover)

    assert made(2) == made(12)
