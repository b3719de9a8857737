"""The feed where another client commits between a decision and its publishing.

What is decided is replayed; who has not seen it yet is told of the replay alone, and who has seen
it is told the difference.
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
    """Another client changes a row, by which a decided rewrite of its file fits no more."""
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
    """A transaction of two tables is replayed in one; its version, and that of the replay.

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


def test_a_reconcile_comes_in_one_with_what_it_replaced(lake: lv.Lake, shared_place: Place) -> None:
    decided, replayed = overtaken(lake, shared_place)
    [version] = lake.changes(decided - 1)
    assert (version.version, version.since, version.kind) == (replayed, decided - 1, "reconcile")
    assert list(version.tables) == ["bank", "log"]
    changed = {(row["_change_type"], row["balance"]) for row in version.tables["bank"].to_pylist()}
    assert changed == {("delete", 100), ("insert", 202)}  # and none of 200
    assert version.tables["log"]["id"].to_pylist() == [1]
    assert lake.snapshot(version=decided).read("bank", where="balance = 200").num_rows == 1
    check(lake, Mirror().apply_all(lake.changes(0)))


def test_a_reader_that_saw_a_replaced_commit_gets_the_difference(
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


def test_commits_between_the_replaced_one_and_its_replay_come_with_them(
    lake: lv.Lake, shared_place: Place
) -> None:
    """Else a consumer would have them before what came first."""
    with shared_place.connect() as other:

        def between() -> None:
            other.run(lambda txn: txn.append("log", [{"id": 2}]))
            other.create_table("new", [{"id": 3}])

        decided, replayed = overtaken(lake, shared_place, between)
        assert replayed == decided + 4
        [version] = lake.changes(decided - 1)
        assert (version.version, version.entered) == (replayed, ("new",))
        assert sorted(version.tables["log"]["id"].to_pylist()) == [1, 2]
        # Whoever comes back after the next one has seen the state in which it is not replayed.
        for since in (decided, decided + 1, decided + 2):
            mirror = Mirror(since, state_at(lake, since)).apply_all(lake.changes(since))
            check(lake, mirror)


def test_a_number_within_the_pair_is_refused(lake: lv.Lake, shared_place: Place) -> None:
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


def test_a_time_within_the_pair_stands_for_the_whole_of_it(
    lake: lv.Lake, shared_place: Place
) -> None:
    """As ``snapshot(timestamp=...)`` shows it."""
    decided, replayed = overtaken(lake, shared_place)
    made = {entry.version: entry.timestamp for entry in lake.history()}
    within = made[replayed - 1]
    assert lake.snapshot(timestamp=within).version == replayed
    assert [v.version for v in lake.changes(decided - 1, within)] == [replayed]
    assert list(lake.changes(within)) == []


def test_net_over_a_reconcile_and_within_it(lake: lv.Lake, shared_place: Place) -> None:
    decided, replayed = overtaken(lake, shared_place)
    ranges = [(0, replayed), (decided - 1, decided), (decided, replayed), (decided - 1, replayed)]
    for since, until in ranges:
        known = state_at(lake, since) if since else {}
        mirror = Mirror(since, known).apply_all(lake.changes(since, until, net=True))
        check(lake, mirror)


@pytest.mark.parametrize("seed", range(3))
def test_a_feed_cut_at_any_versions_has_the_same_changes(
    lake: lv.Lake, shared_place: Place, seed: int
) -> None:
    """A follower that stops and goes on wherever it likes, also in the middle of a replay."""
    source = random.Random(seed)
    with shared_place.connect() as other:
        mirrors: list[Mirror] = []

        def look() -> None:
            """A follower that begins in the midst of it, and stops there."""
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
