"""Requests of commits with Iceberg tables, alone and together with Delta tables.

Warm as in ``test_request_counts``. A Delta table costs as much as alone: one log entry. A
version of an Iceberg table is a manifest, a manifest list, a metadata file and the hint, and two
GETs: for a compressed file of the next number, and whether the table is still the same one. All
these requests come after HEAD.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.store.runner import Requests
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost, rounds

WIDTHS = [1, 2, 4]


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        yield lake


def warm(lake: lv.Lake, count: int, formats: tuple[str, ...] = ("delta", "iceberg")) -> list[str]:
    """Create ``count`` tables of each format with one file each, committed last by this client."""
    tables = [f"{kind}{number}" for number in range(count) for kind in formats]
    for table in tables:
        lake.create_table(table, accounts(2), format=table.rstrip("0123456789"))  # type: ignore[arg-type]
    with lake.transaction() as txn:
        for table in tables:
            txn.overwrite(table, accounts(3))
    return tables


def append_to(txn: lv.Transaction, tables: list[str]) -> None:
    for table in tables:
        txn.append(table, accounts(1))


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R])
def test_a_warm_append_to_an_iceberg_table_costs_five_puts(
    lake: lv.Lake, features: lv.Feature
) -> None:
    tables = warm(lake, 1, ("iceberg",))

    def append() -> None:
        with lake.transaction(features) as txn:
            append_to(txn, tables)

    for _ in range(2):
        requests = cost(lake, append)
        # The data file, manifest, manifest list, metadata file and hint.
        assert requests.put == 5
        assert requests.get <= 2, "is the next number taken by a compressed file; is it this table"
        assert requests.list == requests.head == requests.delete == 0


@pytest.mark.parametrize("count", WIDTHS)
def test_appends_to_k_tables_of_each_format_cost_7k_plus_2_puts_and_4k_plus_1_gets(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def append() -> None:
        with lake.transaction() as txn:
            append_to(txn, tables)

    for _ in range(2):
        assert cost(lake, append) == Requests(put=7 * count + 2, get=4 * count + 1)
    assert rounds(lake, append) == 4  # HEAD, files and probes, HEAD, versions


@pytest.mark.parametrize("count", WIDTHS)
def test_an_update_of_k_tables_of_each_format_costs_8k_plus_2_puts(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def update() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    requests = cost(lake, update)
    # An Iceberg table's second manifest records the removed file.
    assert requests.put == 8 * count + 2
    # A probe per table at the first use and at the commit; the manifest with the file.
    assert requests.get <= 7 * count + 1
    assert requests.list == 0


@pytest.mark.parametrize("count", WIDTHS)
def test_a_read_of_k_tables_of_each_format_costs_2k_plus_1_gets(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def read() -> None:
        with lake.transaction(read_only=True) as txn:
            for table in tables:
                assert len(txn.read(table)) == 3

    assert cost(lake, read) == Requests(get=2 * count + 1)


@pytest.mark.parametrize("count", WIDTHS)
def test_a_commit_to_k_tables_of_each_format_is_decided_after_2k_plus_2_puts(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)
    seen: list[str] = []
    inner = inside(lake).store

    class Watch(WrappedStore):
        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            seen.append(key)
            return super().put(key, body, condition)

    inside(lake).store = Watch(inner)
    with lake.transaction() as txn:
        append_to(txn, tables)
    inside(lake).store = inner
    decided = seen.index("_lakevilla/HEAD.json")
    assert decided + 1 == 2 * count + 2
    assert not any("/metadata/" in key or "/_delta_log/" in key for key in seen[:decided])
    assert all("/metadata/" in key or "/_delta_log/" in key for key in seen[decided + 1 :])


def test_a_lost_race_costs_one_get_and_one_put(local_place: Place, lake: lv.Lake) -> None:
    tables = warm(lake, 2)
    lake.create_table("elsewhere", accounts(1), format="iceberg")

    def append(rivals: int) -> Requests:
        with local_place.connect() as other:
            txn = lake.transaction()
            append_to(txn, tables)
            for _ in range(rivals):
                with other.transaction() as rival:
                    rival.append("elsewhere", accounts(1))
            return cost(lake, txn.commit)

    calm, lost = append(0), append(2)
    assert (lost.put, lost.get) == (calm.put + 1, calm.get + 1)
