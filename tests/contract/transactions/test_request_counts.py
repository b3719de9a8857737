"""What each path costs in requests, counted where they are sent.

Warm, as the budgets mean it: the tables are in HEAD, have one data file each,
and this client made their last commit. Reads of data files are not counted: a
local directory's are not requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, GetOutcome, Refused, Store, Stored, Token
from lakevilla.store.effects import Effect
from lakevilla.store.runner import Counts
from tests.builders import Place, WrappedStore, accounts, values

WIDTHS = [1, 2, 8]


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        yield lake


def warm(lake: lv.Lake, count: int, *, guarded: bool = False) -> list[str]:
    """Tables of one file each, whose last commit this client made."""
    tables = names(count)
    for table in tables:
        lake.create_table(table, accounts(2))
        if guarded:
            lake.guard(table)
    with lake.transaction() as txn:
        for table in tables:
            txn.overwrite(table, accounts(3))
    return tables


def cost(lake: lv.Lake, work: Callable[[], object]) -> Counts:
    with lake.runner.requests.counting() as requests:
        work()
    assert (requests.head, requests.delete) == (0, 0), requests
    return requests


def test_a_warm_append_without_features_is_two_puts(lake: lv.Lake) -> None:
    warm(lake, 1)

    def append() -> None:
        with lake.transaction(lv.Feature.NONE) as txn:
            txn.append("t0", accounts(1))

    assert cost(lake, append) == Counts(put=2)
    assert cost(lake, append) == Counts(put=2)


def test_a_warm_append_with_recovery_is_two_puts(lake: lv.Lake) -> None:
    warm(lake, 1)

    def append() -> None:
        with lake.transaction(lv.Feature.R) as txn:
            txn.append("t0", accounts(1))

    assert cost(lake, append) == Counts(put=2)


@pytest.mark.parametrize("count", WIDTHS)
def test_appends_to_k_tables_are_2k_and_2_puts_and_k_and_1_gets(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def append() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.append(table, accounts(1))

    for _ in range(2):
        assert cost(lake, append) == Counts(put=2 * count + 2, get=count + 1)


@pytest.mark.parametrize("count", WIDTHS)
def test_reading_then_writing_k_tables_is_2k_and_2_puts_and_2k_and_1_gets(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def read_then_write() -> None:
        with lake.transaction() as txn:
            for table in tables:
                assert len(txn.read(table, where="id = 1")) == 1
                txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    for _ in range(2):
        requests = cost(lake, read_then_write)
        assert requests.put == 2 * count + 2
        assert requests.get <= 2 * count + 1
        assert requests.list == 0


@pytest.mark.parametrize("count", WIDTHS)
def test_an_update_of_k_tables_is_no_dearer_than_read_then_write(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def update() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    requests = cost(lake, update)
    assert requests.put == 2 * count + 2
    assert requests.get <= 2 * count + 1
    assert requests.list == 0


@pytest.mark.parametrize("count", WIDTHS)
def test_guarded_tables_are_not_probed(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count, guarded=True)

    def append() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.append(table, accounts(1))

    def read_then_write() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.read(table, where="id = 1")
                txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    assert cost(lake, append) == Counts(put=2 * count + 2, get=1)
    assert cost(lake, read_then_write) == Counts(put=2 * count + 2, get=1)


@pytest.mark.parametrize("count", WIDTHS)
def test_a_transaction_is_decided_after_k_and_2_puts(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)
    seen: list[str] = []
    inner = lake.runner.store

    class Watch(WrappedStore):
        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            seen.append(key)
            return super().put(key, body, condition)

    lake.runner.store = Watch(inner)
    with lake.transaction() as txn:
        for table in tables:
            txn.append(table, accounts(1))
    lake.runner.store = inner
    decided = seen.index("_lakevilla/HEAD.json")
    assert decided + 1 == count + 2
    assert all("/_delta_log/" in key for key in seen[decided + 1 :])


@pytest.mark.parametrize("count", WIDTHS)
def test_a_read_only_transaction_of_guarded_tables_is_one_get(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count, guarded=True)

    def read() -> None:
        with lake.transaction(read_only=True) as txn:
            for table in tables:
                assert len(txn.read(table)) == 3

    assert cost(lake, read) == Counts(get=1)


class AllAtOnce(WrappedStore):
    """Answers no GET before as many as expected are under way: they must be one round."""

    def __init__(self, inner: Store, expected: int) -> None:
        super().__init__(inner)
        self._together = threading.Barrier(expected, timeout=20)

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._together.wait()
        return super().get(key, known, byte_range)


def union(tables: list[str]) -> str:
    every = " UNION ALL ".join(f"SELECT id FROM {table}" for table in tables)
    return f"SELECT count(*) AS n FROM ({every})"


def rounds(lake: lv.Lake, work: Callable[[], object]) -> int:
    """How many times ``work`` waited for the store: for one request, or several at once."""
    waited = 0
    perform = lake.runner._perform

    def counted(effect: Effect) -> object:
        nonlocal waited
        with lake.runner.requests.counting() as requests:
            outcome = perform(effect)
        waited += requests.total > 0
        return outcome

    lake.runner._perform = counted  # type: ignore[method-assign]
    try:
        work()
    finally:
        lake.runner._perform = perform  # type: ignore[method-assign]
    return waited


@pytest.mark.parametrize("count", WIDTHS)
def test_one_query_over_k_tables_is_1_and_k_gets_in_one_round(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def read() -> None:
        with lake.transaction(read_only=True) as txn:
            (row,) = txn.sql(union(tables)).to_pylist()  # type: ignore[union-attr]
            assert row == {"n": 3 * count}

    assert cost(lake, read) == Counts(get=1 + count)
    inner = lake.runner.store
    lake.runner.store = AllAtOnce(inner, 1 + count)
    read()
    lake.runner.store = inner


@pytest.mark.parametrize("count", WIDTHS)
def test_an_uncontended_append_is_four_rounds(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def append() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.append(table, accounts(1))

    assert rounds(lake, append) == 4  # HEAD, files and probes, HEAD, entries


@pytest.mark.parametrize("count", WIDTHS)
def test_a_lost_race_costs_one_get_and_one_put(
    local_place: Place, lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)
    lake.create_table("elsewhere", accounts(1))

    def append(rivals: int) -> Counts:
        with local_place.connect() as other:
            txn = lake.transaction()
            for table in tables:
                txn.append(table, accounts(1))
            for _ in range(rivals):
                with other.transaction() as rival:
                    rival.append("elsewhere", accounts(1))
            return cost(lake, txn.commit)

    calm, lost = append(0), append(2)
    assert (lost.put, lost.get) == (calm.put + 1, calm.get + 1)


def test_a_race_lost_to_an_append_to_the_same_table_costs_no_more_before_publishing(
    local_place: Place, lake: lv.Lake
) -> None:
    warm(lake, 1)
    with local_place.connect() as other:
        txn = lake.transaction()
        txn.append("t0", accounts(1))
        with other.transaction() as rival:
            rival.append("t0", accounts(1))
        requests = cost(lake, txn.commit)
    # 4 PUT and the probe as ever; the rival's entry, the number after it; HEAD lost and read anew.
    assert requests.put == 5
    assert requests.get <= 4


@pytest.mark.parametrize("made_by", ["deltalake", "lakevilla"])
def test_opening_ten_commits_cold_is_at_most_twelve_requests(
    local_place: Place, made_by: str
) -> None:
    with local_place.connect() as lake:
        if made_by == "deltalake":
            for number in range(10):
                local_place.write("t0", [{"id": number}])
            lake.register("t0")
        else:
            lake.create_table("t0", [{"id": 0}])
            for number in range(1, 10):
                with lake.transaction() as txn:
                    txn.append("t0", [{"id": number}])
    with local_place.connect() as lake:

        def read() -> None:
            with lake.transaction(read_only=True) as txn:
                assert len(txn.read("t0")) == 10

        requests = cost(lake, read)
        assert requests.put == 0
        assert requests.total <= 12, requests


def test_a_table_opened_cold_is_read_warm_afterwards(local_place: Place) -> None:
    for number in range(4):
        local_place.write("t0", [{"id": number}])
    with local_place.connect() as lake:
        lake.register("t0")

    with local_place.connect() as lake:

        def read() -> None:
            assert values(lake.transaction(read_only=True).read("t0")) == [0, 1, 2, 3]

        read()
        assert cost(lake, read) == Counts(get=2)
