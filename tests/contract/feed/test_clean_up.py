"""The feed after vacuum and gc gives the right rows, or an error with a version to resume from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.global_log import head
from tests.contract.feed.mirror import Mirror, state_at
from tests.support.places import Place
from tests.support.stores import Later

SETTINGS = lv.Settings(outcome_retention_seconds=600, max_age_seconds=600)


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect(settings=SETTINGS) as lake:
        lake.create_table("a", [{"id": i, "n": 0} for i in range(3)])
        lake.create_table("b", [{"id": 0, "n": 0}])
        yield lake


def vacuum(place: Place, lake: lv.Lake, table: str) -> None:
    """Delete all data files that the newest state doesn't need."""
    then = time.time() - 30 * 24 * 3600
    for path in (Path(place.root) / table).rglob("*.parquet"):
        os.utime(path, (then, then))
    lake.table(table).vacuum(0, dry_run=False, enforce_retention_duration=False)


def test_vacuumed_files_raise_an_error_for_their_own_table_and_version_only(
    lake: lv.Lake, shared_place: Place
) -> None:
    def both(txn: lv.Transaction) -> None:
        txn.update("a", {"n": "n + 1"}, where="true")
        txn.append("b", [{"id": 1, "n": 0}])

    lake.run(both)
    lake.run(lambda txn: txn.append("b", [{"id": 2, "n": 0}]))
    expected = state_at(lake)
    vacuum(shared_place, lake, "a")
    with shared_place.connect(settings=SETTINGS) as other:
        versions = list(other.changes(0))
        assert [v.version for v in versions] == [1, 2, 3, 4]
        for version in (versions[0], versions[2]):
            with pytest.raises(
                lv.VersionNotFound, match=f"by global version {version.version} are"
            ):
                version.tables["a"]
        # The version's other table, and later versions, can be read.
        assert versions[2].tables["b"]["id"].to_pylist() == [1]
        assert Mirror(3, state_at(other, 3)).apply_all(other.changes(3)).tables == expected


def test_a_feed_over_deleted_history_raises_an_error_that_names_the_first_version(
    lake: lv.Lake, shared_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "PAGE_LENGTH", 4)
    monkeypatch.setattr(head, "COMMITS_IN_HEAD", 8)
    clock = Later()
    clock.of(lake)

    def append(count: int) -> None:
        for number in range(count):
            lake.run(lambda txn, n: txn.append("b", [{"id": n, "n": 0}]), number)

    append(10)
    with shared_place.connect() as slow:
        feed = slow.follow(0, poll_seconds=0.01)
        mirror = Mirror()
        mirror.apply(next(feed))
        first = lake.history(1)[0].version
        clock.ahead_seconds = 3600
        append(12)
        lake.gc()  # gc removes published commits from HEAD's pending list
        lake.gc()  # the next gc may then delete their history
        for client in (lake, slow):
            for ask in (client.changes, client.follow):
                with pytest.raises(lv.VersionNotFound, match=f"kept since version {first};"):
                    ask(first - 1)
            assert [v.version for v in client.changes(first)] == list(range(13, 25))
        assert (first, lake.history(1)[0].version) == (12, 24)
        # The idle client holds these versions: it gets either their rows or an error.
        try:
            for version in feed:
                mirror.apply(version)
                if version.version == 24:
                    break
        except lv.VersionNotFound:
            assert mirror.version < first
        assert mirror.versions == list(range(1, mirror.version + 1))


@pytest.mark.parametrize("seed", range(2))
def test_changes_after_a_clean_up_are_right_or_raise_version_not_found(
    lake: lv.Lake, shared_place: Place, seed: int
) -> None:
    clock = Later()
    clock.of(lake)
    states = {2: state_at(lake)}
    for number in range(8):

        def change(txn: lv.Transaction, number: int = number) -> None:
            txn.update("a", {"n": "n + 1"}, where=f"id = {(number + seed) % 3}")
            txn.append("b", [{"id": number, "n": 0}])

        lake.run(change)
        states[lake.history(1)[0].version] = state_at(lake)
        if number % 3 == seed:
            vacuum(shared_place, lake, "a")
        if number == 5:
            clock.ahead_seconds = 3600
            lake.gc()
    right = 0
    with shared_place.connect(settings=SETTINGS) as other:
        for since, before in states.items():
            for net in (False, True):
                mirror = Mirror(since, dict(before))
                try:
                    mirror.apply_all(other.changes(since, net=net))
                except lv.VersionNotFound:
                    continue
                assert mirror.tables == states[max(states)]
                right += 1
    assert right >= 2
