"""Readers of several tables never see a transaction in one table but not in another."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import lakevilla as lv
from tests.support.places import Place, fill, make_place
from tests.support.search import how_many

TABLES = ("a", "b", "c")


def steps(lake: lv.Lake, writer: int, commits: int) -> None:
    """Commit transactions that raise the writer's own counter by one in all three tables."""

    def raise_all(txn: lv.Transaction) -> None:
        for table in TABLES:
            txn.update(table, {"n": "n + 1"}, where=f"id = {writer}")

    for _ in range(commits):
        lake.run(raise_all, attempts=200)


def work(place: Place, writer: int, commits: int) -> None:
    with place.connect() as lake:
        steps(lake, writer, commits)


def watch(place: Place, going_on: Callable[[], bool]) -> int:
    """Read the three tables while writers go on, each time in one transaction or snapshot."""
    looks = 0
    with place.connect() as lake:
        newest: list[int] = []
        while going_on() or looks == 0:
            if looks % 2:
                with lake.transaction(read_only=True) as txn:
                    states = [
                        {row["id"]: row["n"] for row in txn.read(table).to_pylist()}
                        for table in TABLES
                    ]
            else:
                with lake.snapshot() as snapshot:
                    rows = snapshot.sql(
                        "SELECT 'a' AS t, * FROM a UNION ALL SELECT 'b', * FROM b "
                        "UNION ALL SELECT 'c', * FROM c"
                    ).to_pylist()
                states = [
                    {row["id"]: row["n"] for row in rows if row["t"] == table} for table in TABLES
                ]
            assert states[0] == states[1] == states[2], "a transaction was seen by half"
            now = [states[0][writer] for writer in sorted(states[0])]
            assert not newest or all(x <= y for x, y in zip(newest, now, strict=True))
            newest = now
            looks += 1
    return looks


def lake_with_counters(place: Place) -> None:
    """Make three tables, each with a counter for each writer."""
    fill(place, dict.fromkeys(TABLES, counters()))
    if place.seen_by_others:
        with place.connect() as lake:
            lake.register({table: table for table in TABLES})


def counters() -> list[dict[str, int]]:
    return [{"id": writer, "n": 0} for writer in range(4)]


@pytest.mark.parametrize("kind", ["memory", "local", "remote"])
def test_a_reader_of_three_tables_sees_whole_transactions_of_four_threads(
    kind: str, request: pytest.FixtureRequest
) -> None:
    place = make_place(kind, request)
    lake_with_counters(place)
    commits = how_many(2, whole=2 if kind == "remote" else 4)
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(work, place, number, commits) for number in range(4)]
        looks = watch(place, lambda: not all(writer.done() for writer in writers))
        for writer in writers:
            writer.result()
    assert looks > 2
    with place.connect() as lake:
        for table in TABLES:
            assert lake.snapshot().read(table)["n"].to_pylist() == [commits] * 4


@pytest.mark.night
def test_a_reader_of_three_tables_sees_whole_transactions_of_four_processes(
    local_place: Place,
) -> None:
    lake_with_counters(local_place)
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=work, args=(local_place, n, 4)) for n in range(4)]
    for writer in writers:
        writer.start()
    looks = watch(local_place, lambda: any(writer.is_alive() for writer in writers))
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert looks > 2
    for table in TABLES:
        rows = local_place.seen(table)
        assert [row["n"] for row in rows] == [4] * 4, "every other client sees them too"


def test_a_bound_transaction_does_not_see_later_commits_of_other_clients(place: Place) -> None:
    lake_with_counters(place)
    with place.connect() as lake, place.connect() as other:
        bound = lake.transaction(read_only=True)
        assert set(bound.read("a")["n"].to_pylist()) == {0}
        steps(other, 1, 2)
        assert set(bound.read("a")["n"].to_pylist()) == {0}
        later = bound.read("b")["n"].to_pylist(), bound.read("c")["n"].to_pylist()
        assert later == ([0] * 4, [0] * 4), "tables touched later are of the same timestamp"
        assert sorted(lake.snapshot().read("b")["n"].to_pylist()) == [0, 0, 0, 2]


def test_threads_that_share_one_lake_see_whole_transactions(quick_place: Place) -> None:
    lake_with_counters(quick_place)
    stop = threading.Event()
    with quick_place.connect() as lake, ThreadPoolExecutor(4) as pool:

        def read_on() -> int:
            looks = 0
            while not stop.is_set():
                with lake.transaction(read_only=True) as txn:
                    found = [sum(txn.read(table)["n"].to_pylist()) for table in TABLES]
                assert len(set(found)) == 1, found
                looks += 1
            return looks

        readers = [pool.submit(read_on) for _ in range(2)]
        writers = [pool.submit(steps, lake, number, how_many(2, whole=4)) for number in range(2)]
        for writer in writers:
            writer.result()
        stop.set()
        assert all(reader.result() > 0 for reader in readers)


def test_a_read_of_a_table_that_entered_the_lake_after_the_transactions_snapshot_conflicts(
    local_place: Place,
) -> None:
    """Scenario 6: the bound HEAD has no state of the table, whose log holds later commits."""
    fill(local_place, dict.fromkeys(TABLES, counters()))
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("a")
        bound = lake.transaction(read_only=True)
        bound.read("a")
        steps(other, 1, 1)
        with pytest.raises(lv.ConflictError, match="entered"):
            bound.read("b")
