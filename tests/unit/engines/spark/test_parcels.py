"""Rows sent between tasks, in several parcels: the order in which parcels arrive changes no
result.

The tasks run here, one after the other; in place of Spark's exchange, a list is shuffled.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.base import MergeSpec, Rewrite
from lakevilla.engines.duckdb.writing.routing import keys_of
from lakevilla.engines.spark import tasks
from lakevilla.engines.spark.tasks import Bins, LakeAddress, StageTask, Worker, joined, listed
from lakevilla.engines.spark.upkeep import merge as merging
from lakevilla.engines.spark.upkeep import moving as parcels
from lakevilla.engines.spark.upkeep.merge import (
    BinsTask,
    BroadcastMergeTask,
    KeysTask,
    RoutedMergeTask,
    RouteTask,
    RowsTask,
    Shuffle,
    SourceTask,
)
from lakevilla.engines.staged import StagedRows
from lakevilla.settings import Settings
from tests.support.engine_lake import Lake, local, merge_spec, ordered

Parcel = tuple[int, int, bytes]

TARGET = pa.table({"id": pa.array(range(300), pa.int64()), "qty": pa.array(range(300), pa.int64())})
#: Some keys of the table, and new ones.
SOURCE = pa.table(
    {
        "id": pa.array(range(897, 0, -4), pa.int64()),
        "qty": pa.array(range(1000, 1225), pa.int64()),
    }
)
CLAUSES = (
    {"kind": "matched_update", "set": {"qty": "source.qty + target.qty"}},
    {"kind": "not_matched_insert", "set": {"id": "source.id", "qty": "source.qty"}},
    {"kind": "not_matched_by_source_update", "set": {"qty": "-1"}, "predicate": "target.id > 290"},
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit a parcel, and an object of the source, to a few rows."""
    monkeypatch.setattr(parcels, "PARCEL_BYTES", 100)
    monkeypatch.setattr(merging, "PARCEL_BYTES", 100)
    monkeypatch.setattr(parcels, "_WAITING_BYTES", 500)
    monkeypatch.setattr(tasks, "_STAGED_BYTES", 1000)


def taken_apart(batches: Iterable[pa.RecordBatch]) -> list[Parcel]:
    return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]


def in_any_order(sent: list[Parcel], seed: int) -> dict[int, list[Parcel]]:
    """Return the parcels of each place in an arbitrary order: Spark's exchange keeps none."""
    shuffled = list(sent)
    random.Random(seed).shuffle(shuffled)
    found: dict[int, list[Parcel]] = {}
    for parcel in shuffled:
        found.setdefault(parcel[0], []).append(parcel)
    return found


def numbers(*some: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"id": pa.array(some, pa.int64())})])


def as_batches(came: list[Parcel]) -> Iterator[pa.RecordBatch]:
    return iter([parcels.parcels([one]) for one in came])


def test_every_row_reaches_its_place_once_and_in_the_order_in_which_it_was_sent() -> None:
    rows = pa.table({"n": pa.array(range(1000), pa.int64())})
    to = np.array([n * 7 % 5 + 3 for n in range(1000)], np.int32)
    batches = [(b, to[b["n"].to_numpy()]) for b in rows.to_batches(max_chunksize=30)]
    sent = taken_apart(parcels.packed(batches, 2))
    assert len(sent) > 100
    found: dict[int, list[int]] = {}
    for place, kind, body in sent:
        assert kind == 2
        found.setdefault(place, []).extend(pa.ipc.open_stream(body).read_all()["n"].to_pylist())
    assert found == {place: [n for n in range(1000) if to[n] == place] for place in range(3, 8)}
    assert taken_apart(parcels.packed([], 2)) == []


@dataclass(frozen=True)
class Failing:
    """A task that sends some rows, and fails then."""

    place: LakeAddress

    def parcels(self, worker: object, batches: object) -> Iterator[pa.RecordBatch]:
        yield parcels.parcels([(4, 1, b"rows")])
        raise lv.CorruptObject("data file x of table t: cut", key="x")


def test_an_error_of_a_sending_task_is_raised_in_the_receiving_task(tmp_path: Path) -> None:
    task = Failing(LakeAddress(str(tmp_path), None, Settings()))
    came = parcels.unpacked(list(parcels.sent(pickle.dumps(task), numbers(1)))[1:])
    with pytest.raises(lv.CorruptObject, match="data file x of table t") as raised:
        next(came)
    assert raised.value.key == "x"


class Merging:
    """A table of three files, a source of some objects, and the arguments of all tasks of a
    merge.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        for start in range(0, 300, 100):
            lake.make("t", TARGET.slice(start, 100), mode="append")
        self.place = LakeAddress(lake.root, None, Settings())
        self.worker = Worker(self.place)
        self.table = lake.input("t")
        files = self.table.files
        bins = tuple(listed(files.slice(n, 1)) for n in range(files.num_rows))
        self.bins = Bins(self.table.layout, bins)
        staging = StageTask(
            self.place, "t", tuple(SOURCE.schema.names), SOURCE.schema, "aside/", ()
        )
        batches = iter(SOURCE.to_batches(max_chunksize=20))
        staged = staging.run(self.worker, batches).staged
        self.source = StagedRows(
            tuple(k for k, _ in staged), tuple(n for _, n in staged), SOURCE.schema
        )
        self.spec = merge_spec(self.table.layout, SOURCE.schema, "target.id = source.id", CLAUSES)

    def apart(self) -> tuple[MergeSpec, MergeSpec]:
        """Split a merge into its changes of existing rows and its inserts of new rows."""
        spec = self.spec
        new = tuple(one for one in spec.clauses if one.kind == "not_matched_insert")
        old = tuple(one for one in spec.clauses if one.kind != "not_matched_insert")
        made = [MergeSpec(spec.on, spec.source_alias, spec.target_alias, c) for c in (old, new)]
        return made[0], made[1]

    def sent(self, task: Any, tasks: int) -> list[Parcel]:
        """Return the parcels that so many tasks send."""
        each = (task.parcels(self.worker, numbers(n)) for n in range(tasks))
        return taken_apart(chain.from_iterable(each))

    def rows_after(self, rewrite: Rewrite) -> list[str]:
        self.lake.commit("t", rewrite, "MERGE")
        return ordered(self.lake.rows("t"))


@pytest.fixture
def merge(tmp_path: Path) -> Merging:
    return Merging(local(tmp_path))


def expected(directory: Path, *, inserts: bool) -> list[str]:
    """Return the rows that the embedded engine makes in the same merge."""
    lake = local(directory)
    lake.make("t", TARGET)
    clauses: Any = [one for one in CLAUSES if inserts or one["kind"] != "not_matched_insert"]
    lake.merge("t", SOURCE, "target.id = source.id", *clauses)
    return ordered(lake.rows("t"))


@pytest.mark.parametrize("seed", range(2))
def test_a_merge_with_a_broadcast_source_gives_the_rows_of_the_embedded_engine(
    merge: Merging, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    assert len(merge.source.keys) > 2
    sender = SourceTask(merge.place, merge.source)
    sent = taken_apart(
        batch
        for n in range(len(merge.source.keys))
        for batch in sender.parcels(merge.worker, numbers(n))
    )
    assert len(sent) > 2 * len(merge.source.keys)
    old, _ = merge.apart()
    task = BroadcastMergeTask(merge.place, merge.bins, SOURCE.schema, old, merge.lake.name)
    done, matched = [], []
    for number in range(len(merge.bins.files)):
        some = [one for parts in in_any_order(sent, seed + number).values() for one in parts]
        beside = [
            pa.record_batch({"id": [number], "to": [to], "kind": [kind], "rows": [rows]})
            for to, kind, rows in some
        ]
        report = task.run(merge.worker, iter(beside))
        done.append(report.rewrite)
        matched.append(report.matched)
    at = np.sort(np.concatenate(matched))
    assert at.tolist() == [n for n, key in enumerate(SOURCE["id"].to_pylist()) if key < 300]
    found = merge.rows_after(joined(done))
    assert found == expected(tmp_path_factory.mktemp("embedded"), inserts=False)


@pytest.mark.parametrize("seed", range(2))
def test_a_merge_with_a_shuffled_source_gives_the_rows_of_the_embedded_engine(
    merge: Merging, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    worker = merge.worker
    keys = keys_of(merge.spec, merge.table.layout.schema, SOURCE.schema)
    assert keys is not None
    shuffle = Shuffle(merge.table.layout, merge.source, merge.spec, keys, 3, worker.engine.version)
    old, new = merge.apart()
    files, objects = len(merge.bins.files), len(merge.source.keys)

    meeting = merge.sent(KeysTask(merge.place, merge.bins, shuffle), files)
    meeting += merge.sent(RowsTask(merge.place, shuffle), objects)
    assert len(meeting) > 50
    route = RouteTask(merge.place, shuffle, new, merge.lake.name)
    routed = merge.sent(BinsTask(merge.place), files)
    for came in in_any_order(meeting, seed).values():
        routed += taken_apart(route.parcels(worker, as_batches(came)))
    task = RoutedMergeTask(merge.place, merge.bins, shuffle, old, merge.lake.name)
    reports = [task.run(worker, as_batches(c)) for c in in_any_order(routed, seed).values()]
    assert [one.error for one in reports] == [None] * files
    found = merge.rows_after(joined([one.rewrite for one in reports]))
    assert found == expected(tmp_path_factory.mktemp("embedded"), inserts=True)


@pytest.mark.parametrize(
    ("kind", "on", "keys"),
    [
        (pa.int32(), "cast(target.k as bigint) = source.k", ("k",)),
        (pa.string(), "target.k = source.k", ("k",)),
        # '1' and '01' are one number: by their texts they would be sent to different tasks.
        (pa.string(), "cast(target.k as bigint) = cast(source.k as bigint)", None),
        (pa.decimal128(9, 2), "cast(target.k as bigint) = cast(source.k as bigint)", None),
    ],
)
def test_only_columns_whose_equal_values_have_equal_hashes_become_shuffle_keys(
    merge: Merging, kind: pa.DataType, on: str, keys: tuple[str, ...] | None
) -> None:
    schema = pa.schema({"k": kind})
    layout = replace(merge.table.layout, schema=schema, physical=schema, partition_by=())
    spec = merge_spec(layout, schema, on, ())
    found = keys_of(spec, schema, schema)
    assert (None if found is None else found.target) == keys


def test_a_worker_with_another_duckdb_version_is_refused(merge: Merging) -> None:
    keys = keys_of(merge.spec, merge.table.layout.schema, SOURCE.schema)
    assert keys is not None
    shuffle = Shuffle(merge.table.layout, merge.source, merge.spec, keys, 3, "0.1")
    with pytest.raises(lv.InvalidOperation, match=r"workers have duckdb .* driver 0\.1: install"):
        list(RowsTask(merge.place, shuffle).parcels(merge.worker, numbers(0)))
