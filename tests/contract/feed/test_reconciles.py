"""The feed where another client commits between a decision and its publishing.

The decided commit is replayed. A consumer that hasn't read it yet gets the replay alone; one that
has read it gets the difference between both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

import lakevilla as lv
from tests.contract.feed.mirror import Mirror, check, state_at
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.stores import interrupted, is_entry


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect() as lake:
        lake.create_table("bank", [{"id": i, "balance": 100} for i in range(3)])
        lake.create_table("log", [{"id": 0}])
        yield lake


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


def their_update(place: Place, row: int) -> None:
    """Change a row as another client, so that a decided rewrite of its file no longer fits."""
    if place.format == "delta":
        place.delta("bank").update({"balance": "balance + 1"}, predicate=f"id = {row}")
        return
    table = place.catalog().load_table(("bank",))
    found = table.scan(row_filter=f"id == {row}").to_arrow()
    balances = [balance + 1 for balance in found["balance"].to_pylist()]
    table.overwrite(
        found.set_column(1, found.schema.field(1), [balances]), overwrite_filter=f"id == {row}"
    )


def overtaken(
    lake: lv.Lake, place: Place, meanwhile: Callable[[], object] = lambda: None
) -> tuple[int, int]:
    """Have a transaction over two tables replayed in one; return its version and the replay's.

    ``meanwhile`` runs between its decision and the other client's commit.
    """
    start = newest(lake)

    def foreign() -> None:
        meanwhile()
        their_update(place, 0)

    txn = lake.transaction(metadata={"job": "transfer"})
    txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
    txn.append("log", [{"id": 1}])
    with interrupted(lake, is_entry("bank"), foreign), suppress(lv.ForeignConflict):
        txn.commit()
    history = lake.history(newest(lake) - start)
    assert [entry.kind for entry in history[:2]] == ["reconcile", "foreign"]
    return start + 1, history[0].version


def test_a_reconcile_commit_and_the_commit_that_it_replaced_are_one_version_of_the_feed(
    lake: lv.Lake, shared_place: Place
) -> None:
    decided, replayed = overtaken(lake, shared_place)
    [version] = lake.changes(decided - 1)
    assert (version.version, version.since, version.kind) == (replayed, decided - 1, "reconcile")
    assert list(version.tables) == ["bank", "log"]
    changed = {(row["_change_type"], row["balance"]) for row in version.tables["bank"].to_pylist()}
    assert changed == {("delete", 100), ("insert", 202)}  # the replaced 200 is not told
    assert version.tables["log"]["id"].to_pylist() == [1]
    assert lake.snapshot(version=decided).read("bank", where="balance = 200").num_rows == 1
    check(lake, Mirror().apply_all(lake.changes(0)))


def test_a_consumer_that_read_a_replaced_commit_gets_the_difference_to_its_replay(
    lake: lv.Lake, shared_place: Place
) -> None:
    with shared_place.connect() as other:
        mirror = Mirror()

        def look() -> None:
            mirror.apply_all(other.changes(0))
            assert mirror.tables == state_at(other, mirror.version)

        decided, replayed = overtaken(lake, shared_place, look)
        assert mirror.version == decided
        [version] = other.changes(decided)
        assert (version.version, version.since, list(version.tables)) == (
            replayed,
            decided,
            ["bank"],
        )
        mirror.apply(version)
        check(lake, mirror)


def test_commits_between_a_replaced_commit_and_its_replay_are_in_the_same_feed_version(
    lake: lv.Lake, shared_place: Place
) -> None:
    """Otherwise a consumer would get them before the decided commit that precedes them."""
    with shared_place.connect() as other:

        def between() -> None:
            other.run(lambda txn: txn.append("log", [{"id": 2}]))
            other.create_table("new", [{"id": 3}])

        decided, replayed = overtaken(lake, shared_place, between)
        assert replayed == decided + 4
        [version] = lake.changes(decided - 1)
        assert (version.version, version.entered) == (replayed, ("new",))
        assert sorted(version.tables["log"]["id"].to_pylist()) == [1, 2]
        # A consumer that resumes at a version in between has read the state before the replay.
        for since in (decided, decided + 1, decided + 2):
            mirror = Mirror(since, state_at(lake, since)).apply_all(lake.changes(since))
            check(lake, mirror)


def test_a_version_between_a_replaced_commit_and_its_replay_is_refused_by_the_feed(
    lake: lv.Lake, shared_place: Place
) -> None:
    decided, replayed = overtaken(lake, shared_place)
    for ask in (
        lambda: lake.changes(replayed - 1),
        lambda: lake.changes(0, replayed - 1),
        lambda: next(lake.follow(replayed - 1)),
    ):
        with pytest.raises(lv.InvalidOperation, match=f"together with version {replayed}"):
            ask()
    assert [v.version for v in lake.changes(0, decided)][-1] == decided
    assert list(lake.changes(replayed)) == []


def test_a_time_between_a_replaced_commit_and_its_replay_stands_for_the_replay(
    lake: lv.Lake, shared_place: Place
) -> None:
    """``snapshot(timestamp=...)`` shows the replay's version for such a time, too."""
    decided, replayed = overtaken(lake, shared_place)
    made = {entry.version: entry.timestamp for entry in lake.history()}
    within = made[replayed - 1]
    assert lake.snapshot(timestamp=within).version == replayed
    assert [v.version for v in lake.changes(decided - 1, within)] == [replayed]
    assert list(lake.changes(within)) == []


def test_net_changes_over_a_reconcile_commit_and_within_it_are_right(
    lake: lv.Lake, shared_place: Place
) -> None:
    decided, replayed = overtaken(lake, shared_place)
    ranges = [(0, replayed), (decided - 1, decided), (decided, replayed), (decided - 1, replayed)]
    for since, until in ranges:
        known = state_at(lake, since) if since else {}
        mirror = Mirror(since, known).apply_all(lake.changes(since, until, net=True))
        check(lake, mirror)


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_that_stops_and_resumes_anywhere_gets_the_same_changes(
    lake: lv.Lake, shared_place: Place, seed: int
) -> None:
    """The follower also stops between a decided commit and its replay."""
    source = random.Random(seed)
    with shared_place.connect() as other:
        mirrors: list[Mirror] = []

        def look() -> None:
            """Start a follower between decision and replay, and stop it there."""
            if source.random() < 0.5:
                other.run(lambda txn: txn.append("log", [{"id": 9}]))
            mirrors.append(Mirror().apply_all(other.changes(0)))

        for _ in range(how_many(2, whole=4)):
            overtaken(lake, shared_place, look)
        for mirror in mirrors:
            while mirror.version < newest(lake):
                for version in lake.changes(mirror.version):
                    mirror.apply(version)
                    if source.random() < 0.3:
                        break
            check(lake, mirror)
