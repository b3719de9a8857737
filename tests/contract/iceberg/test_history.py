"""The history of an Iceberg table, which its newest metadata file mostly describes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.lake.past import table_entries
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.traces import cost

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return replace(make_place("local", request), format="iceberg")


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", rows(1), format="iceberg")
        yield lake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "n": [0] * len(ids)}, schema=SCHEMA)


def append(lake: lv.Lake, *ids: int) -> None:
    lake.run(lambda txn: txn.append("t", rows(*ids)))


def commits_of_all_kinds(place: Place, lake: lv.Lake) -> None:
    """Commit by each verb, and by pyiceberg, which also sets ``main`` back."""
    for number in range(2, 6):
        append(lake, number)
    older = place.catalog().load_table("t").current_snapshot()
    assert older is not None
    lake.run(lambda txn: txn.update("t", {"n": "1"}, where="id = 2"))
    lake.run(lambda txn: txn.delete("t", where="id = 3"))
    lake.run(lambda txn: txn.alter("t", set_properties={"owner": "us"}))
    lake.run(lambda txn: txn.overwrite("t", rows(7, 8)), metadata={"why": "a new load"})
    place.catalog().load_table("t").append(rows(9))
    foreign = place.catalog().load_table("t")
    foreign.manage_snapshots().rollback_to_snapshot(older.snapshot_id).commit()
    with foreign.transaction() as several:
        several.append(rows(10))
        several.append(rows(11))
    append(lake, 12)
    lake.table("t").optimize()


def described(lake: lv.Lake) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return entries as the newest file describes them, and as all files do."""
    context = inside(lake).context
    entries = inside(lake).run(table_entries(context, "t", None))
    snapshot = context.tails["t"].snapshot
    versions = range(snapshot.version + 1)
    found = context.formats.of(snapshot).described(snapshot, versions)
    return dict(found), {entry.version: entry for entry in entries}


def shown(entry: Any) -> tuple[object, ...]:
    return (
        entry.operation,
        entry.txn_ids,
        entry.nonce,
        entry.timestamp_ms,
        entry.raw_commit_info,
    )


def test_the_newest_file_describes_versions_as_their_own_files_do(
    place: Place, lake: lv.Lake
) -> None:
    commits_of_all_kinds(place, lake)
    found, whole = described(lake)
    assert len(found) >= 8
    assert {v: shown(one) for v, one in found.items()} == {v: shown(whole[v]) for v in found}
    with place.connect() as other:
        history = other.table("t").history()
    assert [one.version for one in history] == sorted(whole, reverse=True)
    assert [one.operation for one in history] == [whole[one.version].operation for one in history]


def test_versions_of_the_same_millisecond_are_read_from_their_own_files(
    place: Place, lake: lv.Lake
) -> None:
    class Stopped(SystemClock):
        def now(self) -> float:
            return 4_000_000_000.0

    inside(lake).clock = Stopped()
    append(lake, 2)
    lake.run(lambda txn: txn.alter("t", set_properties={"owner": "us"}))
    append(lake, 3)
    found, whole = described(lake)
    assert not set(found) & set(sorted(whole)[1:])
    operations = [one.operation for one in lake.table("t").history(3)]
    assert operations == ["APPEND", whole[2].operation, "APPEND"]


def test_a_history_of_many_versions_reads_the_newest_file_alone(
    place: Place, lake: lv.Lake
) -> None:
    for number in range(30):
        append(lake, number)
    with place.connect() as other:
        assert cost(other, lambda: other.table("t").history(20)).total <= 10
