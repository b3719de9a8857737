"""The versions of a log that can be opened, and the timestamp of each."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.delta_by_hand import Tables, add, commit_info, metadata, protocol

CREATED = 1_700_000_000.0


def logged(tables: Tables, *seconds: float) -> Any:
    """Make a log with one entry for each item: its file time, in seconds after the creation."""
    tables.write_log(len(seconds))
    for version, after in enumerate(seconds):
        path = tables.log() / f"{version:020}.json"
        os.utime(path, (CREATED + after, CREATED + after))
    return tables.open()


def kept(tables: Tables, newest: Any, limit: int | None = None) -> dict[int, float]:
    found = tables.run(tables.format.kept_versions(newest, limit))
    return {one.version: one.timestamp_ms / 1000 - CREATED for one in found}


def by(tables: Tables, newest: Any, seconds: float) -> int | None:
    return tables.run(tables.format.version_by(newest, int((CREATED + seconds) * 1000)))


def test_a_version_can_be_opened_only_with_all_entries_since_a_checkpoint(tables: Tables) -> None:
    newest = logged(tables, *range(12))
    for version in (3, 8):
        tables.run(tables.format.checkpoint(tables.run(tables.format.open_at("t", "t", version))))
    for version in (0, 5):
        (tables.log() / f"{version:020}.json").unlink()
    assert list(kept(tables, newest)) == [11, 10, 9, 8, 4, 3]
    assert list(kept(tables, newest, 2)) == [11, 10]
    assert (by(tables, newest, 6.5), by(tables, newest, 3), by(tables, newest, 2)) == (4, 3, None)


def test_each_version_gets_a_later_time_than_the_one_before(tables: Tables) -> None:
    """As in Delta: the clocks of stores have a resolution of seconds, and may go back."""
    newest = logged(tables, 0, 7, 7, 5, 9)
    assert kept(tables, newest) == pytest.approx({4: 9, 3: 7.002, 2: 7.001, 1: 7, 0: 0}, abs=1e-4)
    assert [by(tables, newest, at) for at in (-1, 0, 6, 7, 7.001, 8, 99)] == [
        None, 0, 0, 1, 2, 3, 4,
    ]  # fmt: skip


def test_in_commit_timestamps_count_from_the_version_that_enabled_them(tables: Tables) -> None:
    feature = ("inCommitTimestamp",)
    tables.write_entry(0, protocol(writer=feature), metadata(), add("f0.parquet"))
    since = {
        "delta__enableInCommitTimestamps": "true",
        "delta__inCommitTimestampEnablementVersion": "2",
    }
    for version in range(1, 9):
        own = {"inCommitTimestamp": int((CREATED + version * 100) * 1000)} if version > 1 else {}
        began = [metadata(**since)] if version == 2 else []
        info = commit_info(version, **own)
        tables.write_entry(version, info, *began, add(f"f{version}.parquet"))
    for version in range(9):
        os.utime(tables.log() / f"{version:020}.json", (CREATED + version, CREATED + version))
    newest = tables.open()
    times = {0: 0, 1: 1, **{version: version * 100 for version in range(2, 9)}}
    assert kept(tables, newest) == pytest.approx(times)
    asked = {0.5: 0, 150: 1, 200: 2, 299: 2, 555: 5, 9999: 8}
    assert {at: by(tables, newest, at) for at in asked} == asked
    with tables.runner.requests.counting() as made:
        by(tables, newest, 555)
    assert (made.list, made.get) == (1, 3)
