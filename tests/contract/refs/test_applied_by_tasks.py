"""Spark tasks apply rows as one process does: random histories end in the same result."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.spark import tasks as bins
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.engines.spark.upkeep import meeting
from lakevilla.lake.operations.comparing import merging
from lakevilla.lake.operations.comparing import merging as extents
from lakevilla.settings import Settings
from tests.contract.foreign_readers import Format
from tests.support.inside import inside
from tests.support.refs.meeting_here import JobsHere, hand_over

_FLOATS = (math.nan, -0.0, 0.0, 1.5, None, -math.inf)
KEYS = {"t": ["id", "day"]}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("p", pa.string()),
        ("x", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("n", pa.int32())])),
    ]
)


def row(random: Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "day": date(2026, 1, 1 + number % 3),
        "p": random.choice(["a", "b", None]),
        "x": random.choice(_FLOATS),
        "price": random.choice([None, Decimal("0.10"), Decimal("-3.00")]),
        "at": datetime(2026, 3, 29, tzinfo=UTC) + timedelta(microseconds=random.randrange(3)),
        "tags": random.choice([None, [], ["a", None], ["a, b"]]),
        "place": random.choice([None, {"lat": random.choice(_FLOATS), "n": None}]),
    }


def write(random: Random, lake: Any, first: int) -> None:
    """Update, delete and insert random rows; keys of deleted rows may be used again."""
    doomed = [random.randrange(40) for _ in range(4)]
    changed = [number for number in range(40) if random.random() < 0.2]
    rows = pa.Table.from_pylist([row(random, number) for number in changed], SCHEMA)

    def change(txn: Any) -> None:
        if rows.num_rows:
            txn.upsert("t", rows, keys=["id", "day"])
        txn.delete("t", where=f"id IN ({', '.join(map(str, doomed))})")
        if random.random() < 0.5:
            txn.append("t", pa.Table.from_pylist([row(random, first)], SCHEMA))

    # A second attempt must draw the same choices.
    with lake.transaction() as txn:
        change(txn)
    if random.random() < 0.4:
        lake.table("t").optimize()


def history(lake: Any, kind: Format, seed: int) -> None:
    random = Random(seed)
    rows = pa.Table.from_pylist([row(random, number) for number in range(40)], SCHEMA)
    partitions = random.choice([[], ["p"]])
    mapped = {"delta.columnMapping.mode": "name"} if kind == "delta" else {}
    lake.create_table("t", rows, format=kind, partition_by=partitions, properties=mapped)
    lake.branch("etl")
    etl = lake.on("etl")
    for number in range(random.randrange(1, 4)):
        write(random, etl, 100 + number)
        write(random, lake, random.choice([100, 200]) + number)
    if random.random() < 0.3:
        lake.run(lambda txn: txn.alter("t", rename_columns={"place": "where"}))


BAG = {"t": pa.schema([("n", pa.int64()), ("x", pa.float64()), ("p", pa.string())])}


def equal_rows(random: Random, count: int) -> pa.Table:
    """Return rows, many of them equal."""
    made = [
        {"n": random.randrange(3), "x": random.choice(_FLOATS), "p": random.choice(["a", None])}
        for _ in range(count)
    ]
    return pa.Table.from_pylist(made, BAG["t"])


def history_of_equal_rows(lake: Any, kind: Format, seed: int) -> None:
    random = Random(seed)
    lake.create_table("t", equal_rows(random, 30), format=kind)
    lake.run(lambda txn: txn.append("t", equal_rows(Random(seed + 100), 30)))
    lake.branch("etl")
    etl = lake.on("etl")
    for one in (etl, lake):
        condition = random.choice(["x = 1.5", "n = 1", "p IS NULL AND n = 2", "x = 0.0"])
        with one.transaction() as txn:
            if random.random() < 0.7:
                txn.delete("t", where=condition)
            if random.random() < 0.7:
                txn.append("t", equal_rows(random, 4))
            if random.random() < 0.3:
                txn.update("t", {"x": "x + 1"}, where="n = 0")
    lake.table("t").optimize()


def outcome(lake: Any, on_conflict: Any, keys: Any = KEYS) -> Any:
    """Merge, and return the rows afterwards, or the rows in conflict, or the type of the error."""
    try:
        done = lake.merge("etl", keys=keys, on_conflict=on_conflict)
    except lv.MergeConflict as error:
        if error.by_table["t"] is None:
            return re.sub(r"file \S+|by another transaction: .*", "", str(error))
        return "conflict", sorted(map(repr, error.rows("t").to_pylist()))
    except lv.InvalidOperation as error:
        return type(error).__name__
    return done.tables, sorted(map(repr, lake.read("t").to_pylist()))


@pytest.fixture
def by_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a lake that compares rows in many small tasks; ``kinds`` lists the kinds of tasks."""
    monkeypatch.setattr(bins, "_LEAST_BYTES", 1)
    monkeypatch.setattr(bins, "_MOST_BYTES", 2_000)
    monkeypatch.setattr(meeting, "_MEETING_BYTES", 4_000)
    root = str(tmp_path / "tasks")
    with lv.connect(root) as lake:
        jobs = JobsHere(LakeAddress(root, None, Settings()), 4)
        hand_over(monkeypatch, inside(lake).engine, jobs)
        lake.kinds, lake.sent = jobs.kinds, jobs.sent
        yield lake


@pytest.fixture
def by_one(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path / "one")) as lake:
        yield lake


@pytest.mark.parametrize("on_conflict", ["error", "ours", "theirs"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.night
def test_a_merge_by_keys_has_the_same_result_by_tasks_and_by_one_process(
    by_tasks: Any, by_one: lv.Lake, kind: Format, seed: int, on_conflict: str
) -> None:
    for lake in (by_tasks, by_one):
        history(lake, kind, seed)
    expected = outcome(by_one, on_conflict)
    assert outcome(by_tasks, on_conflict) == expected
    assert "JudgeTask" in by_tasks.kinds
    assert not list(Path(by_tasks.root).rglob("source-*"))
    assert by_tasks.doctor().ok


@pytest.mark.parametrize("seed", range(12))
def test_a_merge_of_equal_rows_has_the_same_result_by_tasks_and_by_one_process(
    by_tasks: Any, by_one: lv.Lake, kind: Format, seed: int
) -> None:
    for lake in (by_tasks, by_one):
        history_of_equal_rows(lake, kind, seed)
    expected = outcome(by_one, "error", None)
    assert outcome(by_tasks, "error", None) == expected
    assert not list(Path(by_tasks.root).rglob("source-*"))
    assert by_tasks.doctor().ok


def test_a_nan_identifies_a_row_as_any_other_key_does(
    by_tasks: Any, by_one: lv.Lake, kind: Format
) -> None:
    made = pa.table({"x": [math.nan, 0.0, 1.0], "n": [1, 1, 1]})
    for lake in (by_tasks, by_one):
        lake.create_table("t", made, format=kind)
        lake.run(lambda txn: txn.update("t", {"n": "2"}, where="x <> 1.0"))
        lake.run(lambda txn: txn.update("t", {"n": "3"}, where="x = 1.0"))
        assert lake.revert(2, keys={"t": "x"}).tables == {"t": "rows"}
        assert sorted(lake.read("t")["n"].to_pylist()) == [1, 1, 3]


def test_a_revert_restores_the_sign_of_a_zero(by_tasks: Any, by_one: lv.Lake, kind: Format) -> None:
    for lake in (by_tasks, by_one):
        made = {"id": [1, 2], "x": [0.0, 1.0], "place": [{"lat": 0.0}, None]}
        lake.create_table("t", pa.table(made), format=kind)
        turned = pa.table({"id": [1], "x": [-0.0], "place": [{"lat": -0.0}]})
        lake.run(lambda txn, rows=turned: txn.upsert("t", rows, keys="id"))
        lake.run(lambda txn: txn.update("t", {"x": "2"}, where="id = 2"))
        assert lake.revert(2, keys={"t": "id"}).tables == {"t": "rows"}
        (row,) = (row for row in lake.read("t").to_pylist() if row["id"] == 1)
        assert repr((row["x"], row["place"]["lat"])) == "(0.0, 0.0)"


@pytest.mark.parametrize(
    ("keys", "why"),
    [("p", "two rows have 'a'"), ("id", "a row has NULL in it"), ("tags", "identify no rows")],
)
def test_a_revert_refuses_keys_that_do_not_identify_each_row_and_leaves_no_file(
    by_tasks: Any, by_one: lv.Lake, kind: Format, keys: str, why: str
) -> None:
    rows = {"id": [1, 2, None], "p": ["a", "a", "b"], "tags": [["a"], [], None], "n": [1, 2, 3]}
    for lake in (by_tasks, by_one):
        lake.create_table("t", pa.table(rows), format=kind)
        lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="true"))
        lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="n = 3"))
        before = sorted(Path(lake.root).rglob("*.parquet"))
        with pytest.raises(lv.InvalidOperation, match=why):
            lake.revert(2, keys={"t": keys})
        assert sorted(Path(lake.root).rglob("*.parquet")) == before
        assert not list(Path(lake.root).rglob("source-*"))


def test_a_revert_of_many_changed_rows_finds_them_by_the_range_of_their_keys(
    by_tasks: Any, kind: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (merging, extents):
        monkeypatch.setattr(module, "MOST_ASKED_FOR", 5)
    ids = pa.array(range(90), pa.int64())
    by_tasks.create_table("t", pa.table({"id": ids, "n": ids}), format=kind)
    by_tasks.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id < 40"))
    by_tasks.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id >= 39"))
    with pytest.raises(lv.MergeConflict, match="id 39 was"):
        by_tasks.revert(2, keys={"t": "id"})
    by_tasks.revert(2, keys={"t": "id"}, on_conflict="ours")
    found = {row["id"]: row["n"] for row in by_tasks.read("t").to_pylist()}
    assert found == {n: n + 2 if n == 39 else n + 1 if n > 39 else n for n in range(90)}


@pytest.mark.night
def test_a_revert_sends_only_rows_of_a_large_table_that_may_match_a_changed_row(
    by_tasks: Any, kind: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (merging, extents):
        monkeypatch.setattr(module, "MOST_ASKED_FOR", 5)
    monkeypatch.setattr(bins, "_MOST_BYTES", 1 << 20)
    ids = pa.array(range(50_000), pa.int64())
    text = [f"{n * 7919 % 50_021}" for n in range(50_000)]
    by_tasks.create_table("t", pa.table({"id": ids, "n": ids, "text": text}), format=kind)
    by_tasks.run(lambda txn: txn.update("t", {"n": "n + 1"}, where="id % 5000 = 3"))
    by_tasks.run(lambda txn: txn.update("t", {"n": "-1"}, where="id % 5000 = 4 AND id > 9000"))
    by_tasks.sent.clear()
    assert by_tasks.revert(2, keys={"t": "id"}).tables == {"t": "rows"}
    assert by_tasks.sent[-1] == {0: 10, 1: 10}  # changed rows, and rows of the table
    changed = {n for n in range(50_000) if n % 5000 == 4 and n > 9000}
    found = {row["id"]: row["n"] for row in by_tasks.read("t").to_pylist()}
    assert found == {n: -1 if n in changed else n for n in range(50_000)}
