"""``lake.follow``: yields versions without end, and resumes where an earlier call stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

import lakevilla as lv
from tests.contract.feed.mirror import Mirror, check
from tests.support.places import Place
from tests.support.stores import interrupted, is_head, unpublished


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect() as lake:
        yield lake


def until(versions: Iterator[lv.Version], last: int) -> list[lv.Version]:
    found = []
    for version in versions:
        found.append(version)
        if version.version >= last:
            return found
    raise AssertionError("it has ended")


def append(lake: lv.Lake, table: str, number: int) -> None:
    lake.run(lambda txn: txn.append(table, [{"id": number}]))


def test_following_waits_for_new_versions_and_resumes_where_it_ended(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 0}])
    feed = lake.follow(0, poll_seconds=0.01)
    assert [v.version for v in islice(feed, 1)] == [1]
    later = threading.Timer(0.1, append, (lake, "a", 1))
    later.start()
    assert next(feed).version == 2
    append(lake, "a", 2)
    append(lake, "a", 3)
    assert next(feed).version == 3
    feed.close()
    again = lake.follow(3, poll_seconds=0.01)
    assert next(again).tables["a"]["id"].to_pylist() == [3]


def test_following_can_begin_before_the_lake_exists(lake: lv.Lake) -> None:
    feed = lake.follow(0, poll_seconds=0.01)
    stop = threading.Event()
    found: list[int] = []

    def read() -> None:
        found.extend(version.version for version in islice(feed, 1))
        stop.set()

    reader = threading.Thread(target=read)
    reader.start()
    lake.create_table("a", [{"id": 0}])
    reader.join(60)
    assert (found, stop.is_set()) == ([1], True)


def test_following_stops_at_once_when_its_stop_event_is_set(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 0}])
    append(lake, "a", 1)
    stop = threading.Event()
    seen = []
    for version in lake.follow(0, poll_seconds=3600, stop=stop):
        seen.append(version.version)
        stop.set()
    assert seen == [1]
    # The stop event also ends the wait for a version.
    stop.clear()
    threading.Timer(0.1, stop.set).start()
    began = time.monotonic()
    assert list(lake.follow(2, poll_seconds=3600, stop=stop)) == []
    assert time.monotonic() - began < 60


def test_following_by_a_name_pattern_includes_tables_added_later(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 0}])
    feed = lake.follow(0, tables=["s/*"], poll_seconds=0.01)
    lake.create_table("s/b", [{"id": 0}])
    append(lake, "a", 1)
    assert [(v.version, list(v.tables)) for v in until(feed, 2)] == [(2, ["s/b"])]
    append(lake, "s/b", 1)
    assert next(feed).version == 4
    lake.rename_table("a", "s/a")
    append(lake, "s/a", 2)
    found = until(feed, 6)
    assert [(v.version, list(v.tables)) for v in found] == [(5, ["s/a"]), (6, ["s/a"])]


def test_following_a_table_goes_on_when_the_table_is_renamed(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 0}])
    feed = lake.follow(0, tables=["a"], poll_seconds=0.01)
    assert next(feed).version == 1
    lake.rename_table("a", "b")
    append(lake, "b", 1)
    assert [(v.version, list(v.tables)) for v in until(feed, 3)] == [(2, ["b"]), (3, ["b"])]


def test_following_absorbs_commits_of_other_clients_to_the_followed_tables(
    lake: lv.Lake, shared_place: Place
) -> None:
    lake.create_table("a", [{"id": 0}])
    lake.create_table("b", [{"id": 0}])
    shared_place.write("a", [{"id": 7}])
    shared_place.write("b", [{"id": 8}])
    feed = lake.follow(2, tables=["a"], poll_seconds=0.01, absorb_seconds=0.01)
    first = next(feed)
    assert (first.kind, first.tables["a"]["id"].to_pylist()) == ("foreign", [7])
    shared_place.write("a", [{"id": 9}])
    assert next(feed).tables["a"]["id"].to_pylist() == [9]
    # Foreign commits to tables that aren't followed are left to the next transaction.
    assert [entry.tables for entry in lake.history(2)] == [("a",), ("a",)]
    check(lake, Mirror().apply_all(lake.changes(0)))


def test_a_follower_leaves_a_foreign_commit_that_makes_a_decided_commit_unfit_to_its_replay(
    local_place: Place,
) -> None:
    """The feed loses nothing and reports nothing twice, though the follower absorbs foreign
    commits while another client publishes.
    """
    with local_place.connect() as lake, local_place.connect() as other:
        lake.create_table("bank", [{"id": 0, "balance": 1}])
        with unpublished(lake), lake.transaction() as txn:
            txn.update("bank", {"balance": "balance * 10"}, where="id = 0")
        local_place.delta("bank").update({"balance": "balance + 1"}, predicate="id = 0")
        mirror = Mirror()
        feed = other.follow(0, poll_seconds=0.01, absorb_seconds=0.01)
        for version in islice(feed, 2):
            mirror.apply(version)
        assert mirror.versions == [1, 2]
        stop = threading.Timer(0.05, lambda: other.recover())
        stop.start()
        mirror.apply(next(feed))
        stop.join()
        check(lake, mirror)
        assert lake.read("bank")["balance"].to_pylist() == [20]
        assert lake.history(1)[0].kind == "reconcile"


def test_a_follower_whose_write_of_head_is_overtaken_absorbs_again(
    lake: lv.Lake, shared_place: Place
) -> None:
    lake.create_table("a", [{"id": 0}])
    lake.create_table("b", [{"id": 0}])
    shared_place.write("a", [{"id": 7}])
    with shared_place.connect() as other:
        feed = other.follow(2, poll_seconds=0.01, absorb_seconds=3600)
        with interrupted(other, is_head, lambda: append(lake, "b", 1)):
            found = until(feed, 4)
    assert [(v.version, v.kind, list(v.tables)) for v in found] == [
        (3, "transaction", ["b"]),
        (4, "foreign", ["a"]),
    ]


def test_following_is_not_stopped_by_guarded_tables_or_unreadable_logs(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        for name in ("a", "b", "guarded"):
            lake.create_table(name, [{"id": 0}])
        lake.guard("guarded")
        start = lake.history(1)[0].version
        entry = lake.root + f"/b/_delta_log/{1:020}.json"
        with open(entry, "w") as torn:
            torn.write('{"add": {"path"')
        local_place.write("a", [{"id": 7}])
        with local_place.connect() as other:
            feed = other.follow(start, poll_seconds=0.01, absorb_seconds=0.01)
            assert next(feed).tables["a"]["id"].to_pylist() == [7]


def test_eight_followers_of_one_lake_report_the_same_versions(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 0}])
    seen: dict[int, list[int]] = {number: [] for number in range(8)}

    def follow(number: int) -> None:
        seen[number] = [v.version for v in until(lake.follow(0, poll_seconds=0.01), 6)]

    readers = [threading.Thread(target=follow, args=(number,)) for number in seen]
    for reader in readers:
        reader.start()
    for number in range(1, 6):
        append(lake, "a", number)
    for reader in readers:
        reader.join(120)
    assert all(versions == list(range(1, 7)) for versions in seen.values())
