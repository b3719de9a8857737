"""Requests of each kind of transaction, counted at the store.

Warm means: the tables are in HEAD, have one data file each,
and this client made their last commit. Reads of data files are not counted: a
local directory's are not requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from lakevilla.store.effects import Effect, Sleep
from lakevilla.store.runner import Requests
from lakevilla.transaction.state import late_reads
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts, values
from tests.support.traces import Trace, cost, rounds, steps

WIDTHS = [1, 2, 8]


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        yield lake


def warm(lake: lv.Lake, count: int, *, guarded: bool = False) -> list[str]:
    """Create tables of one file each, committed last by this client."""
    tables = names(count)
    for table in tables:
        lake.create_table(table, accounts(2))
        if guarded:
            lake.guard(table)
    with lake.transaction() as txn:
        for table in tables:
            txn.overwrite(table, accounts(3))
    return tables


def test_a_warm_append_without_features_costs_two_puts(lake: lv.Lake) -> None:
    warm(lake, 1)

    def append() -> None:
        with lake.transaction(lv.Feature.NONE) as txn:
            txn.append("t0", accounts(1))

    assert cost(lake, append) == Requests(put=2)
    assert cost(lake, append) == Requests(put=2)


def test_a_warm_append_with_recovery_costs_two_puts(lake: lv.Lake) -> None:
    warm(lake, 1)

    def append() -> None:
        with lake.transaction(lv.Feature.R) as txn:
            txn.append("t0", accounts(1))

    assert cost(lake, append) == Requests(put=2)


def test_an_overwrite_that_keeps_all_files_sends_no_more_requests_than_one_that_writes_them(
    lake: lv.Lake,
) -> None:
    warm(lake, 1)

    def overwrite(**options: Any) -> Callable[[], object]:
        return lambda: lake.run(lambda txn: txn.overwrite("t0", accounts(3), **options))

    cost(lake, overwrite(reuse_by=["id"]))
    for _ in range(2):
        plain = cost(lake, overwrite())
        first = cost(lake, overwrite(reuse_by=["id"]))
        again = cost(lake, overwrite(reuse_by=["id"]))
        assert first == plain
        # Neither a data file nor a log entry: nothing has changed.
        assert again == Requests(put=plain.put - 2, get=plain.get)


@pytest.mark.parametrize("count", WIDTHS)
def test_appends_to_k_tables_cost_2k_plus_2_puts_and_k_plus_1_gets(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def append() -> None:
        with lake.transaction() as txn:
            for table in tables:
                txn.append(table, accounts(1))

    for _ in range(2):
        assert cost(lake, append) == Requests(put=2 * count + 2, get=count + 1)


@pytest.mark.parametrize("count", WIDTHS)
def test_reading_then_writing_k_tables_costs_2k_plus_2_puts_and_2k_plus_1_gets(
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
def test_an_update_of_k_tables_costs_no_more_than_reading_then_writing(
    lake: lv.Lake, count: int
) -> None:
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
def test_guarded_tables_cost_no_probe_for_foreign_commits(lake: lv.Lake, count: int) -> None:
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

    assert cost(lake, append) == Requests(put=2 * count + 2, get=1)
    assert cost(lake, read_then_write) == Requests(put=2 * count + 2, get=1)


@pytest.mark.parametrize("count", WIDTHS)
def test_a_transaction_on_k_tables_is_decided_after_k_plus_2_puts(
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
        for table in tables:
            txn.append(table, accounts(1))
    inside(lake).store = inner
    decided = seen.index("_lakevilla/HEAD.json")
    assert decided + 1 == count + 2
    assert all("/_delta_log/" in key for key in seen[decided + 1 :])


@pytest.mark.parametrize("count", WIDTHS)
def test_a_read_only_transaction_of_guarded_tables_costs_one_get(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count, guarded=True)

    def read() -> None:
        with lake.transaction(read_only=True) as txn:
            for table in tables:
                assert len(txn.read(table)) == 3

    assert cost(lake, read) == Requests(get=1)


class AllAtOnce(WrappedStore):
    """A store that answers GETs only once the expected number is under way, as one round."""

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


@pytest.mark.parametrize("count", WIDTHS)
def test_one_query_over_k_tables_costs_k_plus_1_gets_in_one_round(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def read() -> None:
        with lake.transaction(read_only=True) as txn:
            (row,) = txn.sql(union(tables)).to_pylist()  # type: ignore[union-attr]
            assert row == {"n": 3 * count}

    assert cost(lake, read) == Requests(get=1 + count)
    inner = inside(lake).store
    inside(lake).store = AllAtOnce(inner, 1 + count)
    read()
    inside(lake).store = inner


@pytest.mark.parametrize("count", WIDTHS)
def test_an_uncontended_append_takes_four_rounds(lake: lv.Lake, count: int) -> None:
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

    def append(rivals: int) -> Requests:
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


def test_a_race_lost_to_an_append_to_the_same_table_costs_four_puts_and_three_gets(
    local_place: Place, lake: lv.Lake
) -> None:
    warm(lake, 1)
    with local_place.connect() as other:
        txn = lake.transaction()
        txn.append("t0", accounts(1))
        with other.transaction() as rival:
            rival.append("t0", accounts(1))
        requests = cost(lake, txn.commit)
    # 4 PUTs as without a race; the probe finds the rival's entry, HEAD, the next entry.
    assert requests == Requests(put=4, get=3)


@pytest.mark.parametrize("made_by", ["deltalake", "lakevilla"])
def test_opening_a_table_with_ten_commits_cold_costs_at_most_twelve_requests(
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


def test_a_table_opened_cold_costs_as_much_as_a_warm_one_afterwards(local_place: Place) -> None:
    for number in range(4):
        local_place.write("t0", [{"id": number}])
    with local_place.connect() as lake:
        lake.register("t0")

    with local_place.connect() as lake:

        def read() -> None:
            assert values(lake.transaction(read_only=True).read("t0")) == [0, 1, 2, 3]

        read()
        assert cost(lake, read) == Requests(get=2)


# -- with Feature.CT -----------------------------------------------------------------

RCT = lv.Feature.R | lv.Feature.CT
RCTI = RCT | lv.Feature.I
QUEUED = {"R|CT": RCT, "R|CT|I": RCTI}
QUEUE_WIDTHS = [1, 2, 5]


def run_with(
    lake: lv.Lake, features: lv.Feature, work: Callable[[lv.Transaction], object]
) -> Callable[[], None]:
    def once() -> None:
        with lake.transaction(features) as txn:
            work(txn)

    return once


def work_on(tables: list[str], how: str) -> Callable[[lv.Transaction], None]:
    def append(txn: lv.Transaction) -> None:
        for table in tables:
            txn.append(table, accounts(1))

    def update(txn: lv.Transaction) -> None:
        for table in tables:
            txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    return append if how == "append" else update


@pytest.mark.parametrize("count", QUEUE_WIDTHS)
@pytest.mark.parametrize("features", QUEUED)
def test_appends_with_no_transaction_ahead_cost_one_more_list_per_table_with_queues(
    lake: lv.Lake, features: str, count: int
) -> None:
    work = work_on(warm(lake, count), "append")
    with inside(lake).requests.counting() as without:
        run_with(lake, RCTI & ~lv.Feature.CT, work)()
    alone = len(steps(lake, run_with(lake, RCTI & ~lv.Feature.CT, work)))
    with inside(lake).requests.counting() as queued:
        run_with(lake, QUEUED[features], work)()
    assert queued.minus(without) == Requests(list=count)
    found = steps(lake, run_with(lake, QUEUED[features], work))
    assert len(found) == alone, "no round more"
    (looking,) = [step for step in found if any(verb == "list" for verb, _ in step)]
    assert ("put", f"t{count - 1}/_lakevilla/markers") not in looking
    assert {verb for verb, _ in looking} >= {"list", "put", "get"}, "beside the upload"


@pytest.mark.parametrize("count", QUEUE_WIDTHS)
@pytest.mark.parametrize("features", QUEUED)
def test_places_in_k_queues_cost_2k_lists_and_k_plus_1_puts_and_deletes(
    lake: lv.Lake, features: str, count: int
) -> None:
    work = work_on(warm(lake, count), "update")
    with inside(lake).requests.counting() as without:
        run_with(lake, RCTI & ~lv.Feature.CT, work)()
    with inside(lake).requests.counting() as queued:
        run_with(lake, QUEUED[features], work)()
    more = queued.minus(without)
    # Without isolation, HEAD is read again at the first use of a further table; with it, if
    # a place was taken after the transaction was bound.
    assert more == Requests(get=count - 1, put=count + 1, list=2 * count, delete=count + 1)


@pytest.mark.parametrize("count", QUEUE_WIDTHS)
def test_requests_to_several_queues_are_sent_in_one_round(lake: lv.Lake, count: int) -> None:
    tables = warm(lake, count)

    def work(txn: lv.Transaction) -> None:
        txn.sql(union(tables))  # all tables at once
        txn.append(tables[0], accounts(1))

    found = steps(lake, run_with(lake, RCTI, work))

    def rounds_with(verb: str, part: str) -> list[int]:
        return [
            len([1 for asked, key in step if asked == verb and part in key])
            for step in found
            if any(asked == verb and part in key for asked, key in step)
        ]

    # Places to read in all queues; the queue for the append is listed in the same round.
    assert rounds_with("list", "/markers") == [count, count]
    assert rounds_with("put", "/markers/") == [count]
    assert rounds_with("put", "_lakevilla/txns/") == [1]
    assert rounds_with("delete", "/markers/") == [count]
    (last,) = [step for step in found if any("/_delta_log/" in key for _, key in step)][-1:]
    assert {verb for verb, _ in last} == {"put", "delete"}, "with the entries, not after them"
    assert len([1 for verb, _ in last if verb == "delete"]) == count + 1


@pytest.mark.parametrize("count", QUEUE_WIDTHS)
@pytest.mark.parametrize("features", QUEUED)
def test_short_reads_cost_the_same_with_queues(
    lake: lv.Lake, features: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_reads, "PLACE_AFTER_SECONDS", 3600.0)
    tables = warm(lake, count)

    def read(txn: lv.Transaction) -> None:
        for table in tables:
            txn.read(table, where="id = 1")

    without = run_with(lake, RCTI & ~lv.Feature.CT, read)
    queued = run_with(lake, QUEUED[features], read)
    # Without isolation, HEAD is read again together with the log of each further table.
    newest = 0 if features == "R|CT|I" else count - 1
    assert cost(lake, queued).minus(cost(lake, without)) == Requests(get=newest)
    assert len(steps(lake, queued)) == len(steps(lake, without)), "no round more"


@pytest.mark.parametrize("count", QUEUE_WIDTHS)
def test_reads_take_their_places_in_one_round_with_the_first_write(
    lake: lv.Lake, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_reads, "PLACE_AFTER_SECONDS", 3600.0)
    tables = warm(lake, count)

    def work(txn: lv.Transaction) -> None:
        for table in tables:
            txn.read(table, where="id = 1")
        txn.update(tables[0], {"balance": "balance + 1"}, where="id = 1")

    found = steps(lake, run_with(lake, RCTI, work))
    placing = [s for s in found if any(v == "put" and "/markers/" in key for v, key in s)]
    assert len(placing) == 1
    asked = [verb for verb, key in placing[0] if "/markers" in key or "/txns/" in key]
    assert sorted(asked) == ["list"] * count + ["put"] * (count + 1)


@pytest.mark.parametrize("features", QUEUED)
def test_a_read_only_transaction_costs_the_same_with_queues(lake: lv.Lake, features: str) -> None:
    tables = warm(lake, 2, guarded=True)

    def read() -> None:
        with lake.transaction(QUEUED[features], read_only=True) as txn:
            txn.sql(union(tables))

    assert cost(lake, read) == Requests(get=1)


@pytest.mark.parametrize("count", [1, 2])
def test_a_waiting_transaction_sends_one_conditional_get_per_check(
    local_place: Place, lake: lv.Lake, count: int
) -> None:
    work = work_on(warm(lake, count), "update")
    waiting = threading.Event()
    settings = lv.Settings(wait_poll_seconds=0.01, wait_poll_cap_seconds=0.02)
    with local_place.connect(
        settings=settings, on_event=lambda event: waiting.set() if event.kind == "waiting" else None
    ) as other:
        other.snapshot().read("t0")
        trace = Trace(inside(other).store)
        inside(other).store = trace
        slept = 0
        perform = inside(other).perform

        def counted(effect: Effect) -> object:
            nonlocal slept
            slept += isinstance(effect, Sleep)
            return perform(effect)

        inside(other).perform = counted
        first = lake.transaction(RCTI)
        for table in names(count):
            first.update(table, {"balance": "balance"}, where="id = 1")
        second = other.transaction(RCTI)
        work(second)
        record = f"_lakevilla/txns/{first.id}.json"
        own = f"_lakevilla/txns/{second.id}.json"
        trace.seen.clear()
        with ThreadPoolExecutor(1) as pool:
            end = pool.submit(second.commit)
            assert waiting.wait(60)
            begun = list(trace.seen)
            while len(trace.seen) < len(begun) + 10:
                threading.Event().wait(0.005)
            seen = list(trace.seen)
            first.commit()
            end.result(60)
        lists = [("list", f"{table}/_lakevilla/markers") for table in names(count)]
        assert sorted(begun[:count]) == lists
        assert begun[count : count + 2] == [("put", own), ("get", record)]
        assert set(seen[len(begun) :]) == {("get if changed", record)}
        looks = [n for n, asked in enumerate(trace.seen) if asked == ("get if changed", record)]
        assert len(looks) == slept, "one for each pause"
        assert sorted(trace.seen[looks[-1] + 1 :][:count]) == lists, "the last one tells the end"


def test_an_escalation_costs_one_more_replacement_of_head(
    local_place: Place, lake: lv.Lake
) -> None:
    tables = warm(lake, 2)
    settings = lv.Settings(escalate_after=1, retry_base_seconds=0.001)
    costs = []
    with local_place.connect(settings=settings) as loser:
        loser.snapshot().versions  # noqa: B018 - warm
        trace = Trace(inside(loser).store)
        inside(loser).store = trace

        def long(txn: lv.Transaction) -> None:
            costs.append(len(trace.seen))
            txn.read("t0")
            if len(costs) == 1:
                with lake.transaction() as faster:
                    faster.append("t0", accounts(1))
            for table in tables:
                txn.append(table, accounts(1))

        loser.run(long)
    again = trace.seen[costs[0] :]
    heads = [verb for verb, key in again if (verb, key) == ("put", "_lakevilla/HEAD.json")]
    assert len(heads) == 2, "the reservation, the commit: that the race was lost is seen before"
    placed = [key for verb, key in again if verb == "put" and "/markers/" in key]
    assert len(placed) == 1  # to read in t0
    # The queue of a reserved table is not listed before the commit.
    assert len([1 for verb, key in again if verb == "list"]) == 1
    deleted = [key for verb, key in again if verb == "delete"]
    assert len([key for key in deleted if "/markers/" in key]) == 1


@pytest.mark.parametrize("count", [*QUEUE_WIDTHS, 8, 32])
def test_take_turn_on_k_tables_costs_2k_lists_and_k_plus_1_puts_and_deletes(
    lake: lv.Lake, count: int
) -> None:
    tables = warm(lake, count)

    def work(txn: lv.Transaction) -> None:
        txn.take_turn(*tables)
        for table in tables:
            txn.read(table, where="id = 1")
            txn.update(table, {"balance": "balance + 1"}, where="id = 1")

    with inside(lake).requests.counting() as without:
        run_with(lake, RCTI & ~lv.Feature.CT, work)()
    with inside(lake).requests.counting() as queued:
        run_with(lake, RCTI, work)()
    # With more than two operations, HEAD is read once more: see note 25.
    more = Requests(get=int(count > 2), list=2 * count, put=count + 1, delete=count + 1)
    assert queued.minus(without) == more
    placing = steps(lake, run_with(lake, RCTI, lambda txn: txn.take_turn(*tables)))
    markers = [(table, f"{table}/_lakevilla/markers") for table in tables]
    lists = sorted(("list", prefix) for _, prefix in markers)
    # One round for lists, markers, record and HEAD; later rounds give the places back.
    assert [one for one in placing[0] if one[0] == "list"] == lists
    assert [verb for verb, _ in placing[0] if verb == "put"] == ["put"] * (count + 1)
    assert {verb for step in placing[1:] for verb, _ in step} == {"delete"}
