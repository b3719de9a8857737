"""Requests of the change feed, counted where they are sent.

Reads of data files are not counted: a local directory's are not requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from bench.size.many_tables import ROWS, lake_of, real_tables
from lakevilla.store.runner import Requests
from tests.support.places import Place
from tests.support.traces import cost, rounds


class Polls:
    """A stop event that counts waits instead of waiting, and is set after so many of them."""

    def __init__(self, count: int) -> None:
        self.left = count

    def is_set(self) -> bool:
        return self.left <= 0

    def wait(self, timeout: float | None = None) -> None:
        self.left -= 1


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect() as lake:
        for name in ("a", "b", "c"):
            lake.create_table(name, [{"id": 0, "n": 0}])
        yield lake


@pytest.fixture
def follower(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect() as lake:
        yield lake


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


def write(lake: lv.Lake, *tables: str) -> None:
    def change(txn: lv.Transaction) -> None:
        for name in tables:
            txn.append(name, [{"id": 1, "n": 1}])
            txn.update(name, {"n": "n + 1"}, where="id = 0")

    lake.run(change)


def append_often(lake: lv.Lake, count: int) -> None:
    for _ in range(count):
        lake.run(lambda txn: txn.append("a", [{"id": 1, "n": 1}]))


def test_a_poll_of_a_follower_costs_one_conditional_get(lake: lv.Lake, follower: lv.Lake) -> None:
    start = newest(follower)

    def idle(polls: int) -> Requests:
        return cost(
            follower, lambda: list(follower.follow(start, poll_seconds=60, stop=Polls(polls)))
        )

    # ``follow`` itself sends another GET, to refuse an invalid version.
    assert [idle(polls) for polls in (1, 2, 9)] == [Requests(get=1 + n) for n in (1, 2, 9)]


@pytest.mark.parametrize("tables", [("a",), ("a", "b", "c")])
def test_a_version_of_the_feed_costs_one_get_of_head_and_one_of_its_commit_object(
    lake: lv.Lake, follower: lv.Lake, tables: tuple[str, ...]
) -> None:
    feed = follower.follow(0, poll_seconds=0.001)
    for version in feed:
        dict(version.tables)
        if version.version == 3:
            break
    found: list[lv.Version] = []
    for _ in range(2):
        write(lake, *tables)
        # HEAD and the commit object.
        assert cost(follower, lambda: found.append(next(feed))) == Requests(get=2)
        # Reading the rows costs only reads of the tables' data files.
        assert cost(follower, lambda: dict(found[-1].tables)) == Requests()
        assert set(found[-1].tables) == set(tables)


def test_the_commit_objects_of_many_versions_are_read_in_rounds(
    lake: lv.Lake, shared_place: Place
) -> None:
    append_often(lake, 29)
    with shared_place.connect() as other:
        assert rounds(other, lambda: list(other.changes(0))) == 1 + 2


def test_versions_of_tables_that_are_not_requested_cost_no_request(
    lake: lv.Lake, shared_place: Place
) -> None:
    append_often(lake, 20)
    write(lake, "b")
    with shared_place.connect() as other:
        versions: list[lv.Version] = []
        requests = cost(other, lambda: versions.extend(other.changes(3, tables=["b"])))
        assert (requests, [v.version for v in versions]) == (Requests(get=2), [24])


def test_a_cold_version_reads_the_log_of_each_of_its_tables(
    lake: lv.Lake, shared_place: Place
) -> None:
    write(lake, "a", "b")
    with shared_place.connect() as other:
        [version] = other.changes(3)
        requests = cost(other, lambda: dict(version.tables))
        assert requests.put == 0
        assert requests.total <= 2 * (9 if shared_place.format == "iceberg" else 5)


def test_absorbing_costs_a_get_for_each_log_and_a_put_if_there_is_a_foreign_commit(
    lake: lv.Lake, follower: lv.Lake, shared_place: Place
) -> None:
    start = newest(lake)

    def absorb(tables: list[str]) -> Requests:
        def follow() -> None:
            feed = follower.follow(
                start, tables=tables, poll_seconds=60, absorb_seconds=3600, stop=Polls(1)
            )
            for version in feed:
                dict(version.tables)

        return cost(follower, follow)

    absorb(["a", "b", "c"])
    # HEAD at the call, HEAD again, the logs.
    idle = absorb(["a", "b", "c"])
    assert (idle.put, idle.get) == (0, 2 + 3)
    assert absorb(["b"]).get == 2 + 1
    shared_place.write("a", [{"id": 7, "n": 7}])
    shared_place.write("b", [{"id": 7, "n": 7}])
    busy = absorb(["a", "b", "c"])
    assert busy.put == 1
    assert [entry.kind for entry in lake.history(2)] == ["foreign", "foreign"]


def test_the_feed_of_a_lake_with_many_tables_reads_only_leaves_of_tables_that_it_reports(
    tmp_path: Path,
) -> None:
    """The feed reads only leaves of tables that were written to."""
    with lake_of(20_000, str(tmp_path / "many"), commits=1) as lake:
        names = real_tables(20_000)
        with lv.connect(lake.root) as other:
            start = newest(lake)
            lake.run(lambda txn: txn.append(names[3], ROWS))
            found: list[lv.Version] = []
            requests = cost(other, lambda: found.extend(other.changes(start)))
            assert [list(version.tables) for version in found] == [[names[3]]]
            # HEAD, a leaf, the commit object.
            assert requests == Requests(get=3)
            assert found[0].tables[names[3]].num_rows == 2
