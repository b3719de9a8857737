"""Batches of a Spark stream of changes hold all changes together; each one is repeatable.

The tests call what Spark calls in its planner and its workers, without Spark.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.spark.source import work
from lakevilla.api.spark.source.batches import Offset
from lakevilla.engines.spark import tasks as bins
from lakevilla.engines.spark.rows import spark_schema
from tests.contract.history.test_changes_over_reconciles import decide, start
from tests.support.places import make_place

Offsets = dict[str, int | str]


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": pa.array(numbers, pa.int64()), "p": [f"p{i % 4}" for i in numbers]})


@pytest.fixture(params=["delta", "delta with its feed", "iceberg"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    kind = request.param
    feed = {"delta.enableChangeDataFeed": "true"} if "feed" in kind else {}
    with lv.connect(str(tmp_path)) as made:
        made.create_table(
            "t", rows(0, 40), format=kind.split()[0], properties=feed, partition_by="p"
        )
        made.create_table("other", rows(0, 1))
        made.run(lambda txn: txn.append("t", rows(40, 8)))
        made.run(lambda txn: txn.update("t", {"id": "id + 1000"}, where="id % 10 = 3"))
        made.run(lambda txn: txn.delete("t", where="id < 6"))
        made.run(lambda txn: txn.append("other", rows(1, 1)))

        def several(txn: lv.Transaction) -> None:
            txn.append("t", rows(100, 3))
            txn.delete("t", where="p = 'p2'")

        made.run(several)
        yield made


def stream(lake: lv.Lake, **options: object) -> bytes:
    asked = {"lake": lake.root, "table": "t", "startingVersion": 1, **options}
    text = {name: str(value) for name, value in asked.items()}
    bound = work.bound(pickle.dumps({}), text)
    return work.stream(pickle.dumps({}), text, work.schema(bound))


def read(state: bytes, start: Offsets, end: Offsets) -> list[list[Any]]:
    """Return the rows of each task of a batch."""
    found = []
    for task in work.ranges(state, start, end):
        batches = list(work.rows("changes", state, task))
        found.append([row for batch in batches for row in batch.to_pylist()])
    return found


def place(offset: Offsets) -> Offsets:
    """Return an offset without the fields that identify the lake's history."""
    return {name: value for name, value in offset.items() if isinstance(value, int)}


def bag(found: list[list[Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for some in found for row in some)


def expected(lake: lv.Lake, since: int = 0) -> Counter[str]:
    changed = lake.snapshot().changes("t", since)
    names = changed.schema.names
    kinds = [
        pa.timestamp("us", "UTC") if n == "_commit_timestamp" else changed.schema.field(n).type
        for n in names
    ]
    cast = pa.table([c.cast(k) for c, k in zip(changed.columns, kinds, strict=True)], names)
    return bag([cast.to_pylist()])


@pytest.mark.parametrize(
    "limits",
    [
        {"maxFilesPerTrigger": 1},
        {"maxFilesPerTrigger": 3},
        {"maxBytesPerTrigger": "2k"},
        {"maxFilesPerTrigger": 100, "maxBytesPerTrigger": "1b"},
        {},
    ],
)
def test_batches_with_a_size_limit_hold_all_changes_together(
    lake: lv.Lake, limits: dict[str, Any]
) -> None:
    state = stream(lake, **limits)
    at = work.first_offset(state)
    found: Counter[str] = Counter()
    batches = []
    while (end := work.next_offset(state, at)) != at:
        batches.append((at, end, bag(read(state, at, end))))
        found += batches[-1][2]
        at = end
    assert place(at) == {"version": lake.snapshot().version}
    assert found == expected(lake)
    assert len(batches) > 4 if limits else len(batches) == 1
    # A restarted stream reads the batches again, in another process, after further commits.
    lake.run(lambda txn: txn.update("t", {"id": "id + 5000"}, where="true"))
    lake.table("t").optimize()
    again = stream(lake, **limits)
    for begin, end, held in batches:
        assert bag(read(again, begin, end)) == held


def test_a_batch_limited_to_a_few_files_ends_within_a_commit(lake: lv.Lake) -> None:
    state = stream(lake, maxFilesPerTrigger=3)
    first = work.next_offset(state, work.first_offset(state))
    assert place(first) == {"version": 0, "within": 1, "parts": 3}
    assert Offset.of(work.next_offset(state, first)).version >= 1
    # Without limits (Spark wants all available changes), the stream goes on from there.
    everything = work.next_offset(state, first, limited=False)
    assert place(everything) == {"version": lake.snapshot().version}
    begin = work.first_offset(state)
    assert bag(read(state, begin, first)) + bag(read(state, first, everything)) == expected(lake)


def test_a_stream_with_an_end_version_plans_no_batch_beyond_it(lake: lv.Lake) -> None:
    """Spark fixes the end at the start of a query with ``Trigger.AvailableNow``."""
    state = stream(lake, maxFilesPerTrigger=2)
    until = work.newest_version(state)
    lake.run(lambda txn: txn.append("t", rows(500, 1)))
    at = work.first_offset(state)
    while (end := work.next_offset(state, at, until=until)) != at:
        at = end
    assert place(at) == {"version": until}


def test_a_batch_is_split_into_several_tasks_of_about_equal_bytes(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bins, "_LEAST_BYTES", 1)
    state = stream(lake, partitions=4)
    found = read(state, {"version": 0}, {"version": 3})
    assert len(found) >= 4
    assert bag(found) == expected(lake) - expected(lake, 3)


def test_a_column_added_later_is_null_in_rows_of_earlier_commits(lake: lv.Lake) -> None:
    before = stream(lake, maxFilesPerTrigger=3)
    first = work.next_offset(before, work.first_offset(before))
    lake.run(lambda txn: txn.alter("t", add_columns={"more": "long"}))
    found = read(stream(lake), work.first_offset(before), first)
    assert {row["more"] for some in found for row in some} == {None}


@pytest.mark.parametrize("start", [{"version": 90}, {"version": 4, "within": 90, "parts": 1}])
def test_a_lake_whose_newest_version_is_below_the_streams_offset_is_refused(
    lake: lv.Lake, start: Offsets
) -> None:
    """The stream doesn't wait until the lake reaches the version of its offset."""
    state = stream(lake)
    with pytest.raises(lv.VersionNotFound, match="it is another lake, or an older copy"):
        work.next_offset(state, start)
    with pytest.raises(lv.VersionNotFound, match="it is another lake, or an older copy"):
        work.ranges(state, start, {"version": 5})


@pytest.mark.parametrize("first", [1, 99])
def test_a_starting_version_that_the_lake_does_not_have_yet_is_refused(
    lake: lv.Lake, first: int
) -> None:
    """The error is raised also if the range begins beyond the lake's newest version."""
    newest = lake.history()[0].version
    options = {"lake": lake.root, "what": "versions", "startingVersion": str(first)}
    with pytest.raises(lv.VersionNotFound, match=f"no global version 50; its newest is {newest}"):
        work.bound(pickle.dumps({}), options | {"version": "50"})


def test_a_versions_stream_of_a_lake_whose_newest_version_is_below_its_offset_is_refused(
    lake: lv.Lake,
) -> None:
    options = {"lake": lake.root, "what": "versions", "startingVersion": "1"}
    bound = work.bound(pickle.dumps({}), options)
    state = work.stream(pickle.dumps({}), options, work.schema(bound))
    start: Offsets = {"version": 90}
    with pytest.raises(lv.VersionNotFound, match="another lake, or an older copy"):
        work.next_offset(state, start)
    with pytest.raises(lv.VersionNotFound, match="another lake, or an older copy"):
        work.ranges(state, start, {"version": 5})


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", ""])
@pytest.mark.parametrize("option", ["maxFilesPerTrigger", "maxBytesPerTrigger"])
def test_a_stream_limit_that_is_no_whole_number_is_refused(
    lake: lv.Lake, option: str, value: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"option {option} must be a whole number"):
        stream(lake, **{option: value})


def test_the_schema_given_to_spark_equals_that_of_the_changes(lake: lv.Lake) -> None:
    state = stream(lake)
    names = spark_schema(lake.table("t").schema).names
    changes: Any = pickle.loads(state)
    assert changes.schema.names[: len(names)] == names


def test_a_stream_that_starts_at_a_reconcile_commit_reports_its_rows(
    request: pytest.FixtureRequest,
) -> None:
    """The version before a reconcile commit has no state of its own; once, the stream took it for
    the reconcile commit itself and left out its rows.
    """
    place, source = make_place("local", request), random.Random(3)
    start(place)
    decide(place, ["update"], source)
    decide(place, ["update"], source)
    with place.connect() as lake:
        found = [entry.version for entry in lake.history() if entry.kind == "reconcile"]
        for version in found:
            state = stream(lake, startingVersion=version)
            begin = work.first_offset(state)
            rows = bag(read(state, begin, {"version": version}))
            assert rows == bag(read(stream(lake), {"version": version - 2}, {"version": version}))
            assert rows
            told = {"lake": lake.root, "what": "versions", "startingVersion": str(version)}
            bound = work.bound(pickle.dumps({}), told)
            kind, state, _ = work.reader(bound, work.schema(bound))
            [part] = work.partitions(kind, state)
            [batch] = work.rows(kind, state, part)
            assert batch["version"].to_pylist() == list(
                range(version, lake.history()[0].version + 1)
            )
    assert found


FOREIGN = ("optimize", "update", "append", "delete")


@pytest.mark.parametrize("files", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_batches_over_reconcile_commits_add_up_to_the_newest_state(
    request: pytest.FixtureRequest, seed: int, files: int
) -> None:
    """Other clients commit between decision and publishing, wherever the stream has got to."""
    place, source = make_place("local", request), random.Random(seed)
    start(place)
    state: Counter[str] = Counter()
    batches: list[tuple[Offsets, Offsets, Counter[str]]] = []
    at: Offsets = {"version": 0}

    def take(most: int) -> Offsets:
        end = at
        with place.connect() as lake:
            held = stream(lake, maxFilesPerTrigger=files)
        for _ in range(most):
            begin, end = end, work.next_offset(held, end)
            if begin == end:
                break
            found = read(held, begin, end)
            batches.append((begin, end, bag(found)))
            for row in (row for some in found for row in some):
                sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
                state[repr((row["id"], row["n"]))] += sign
        return end

    for _ in range(3):
        decide(place, source.choices(FOREIGN, k=source.randint(1, 3)), source)
        at = take(source.randint(0, 3))
    at = take(1000)
    with place.connect() as lake:
        now = lake.snapshot(lake.snapshot().version).read("t").to_pylist()
        assert at["version"] == lake.snapshot().version
        again = stream(lake)
    assert +state == Counter(repr((row["id"], row["n"])) for row in now)
    assert min(state.values()) >= 0
    for begin, end, rows_then in batches:
        assert bag(read(again, begin, end)) == rows_then
