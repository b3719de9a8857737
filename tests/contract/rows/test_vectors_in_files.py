"""Vectors of Delta are in files; other clients read them, and none deletes a live one."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import lakevilla as lv
from lakevilla.formats.delta import deletion_vectors
from lakevilla.ids import txn_in
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables.delta_writer import inline_vector
from tests.contract.foreign_readers import HAS_EXTENSIONS, POLARS_READS_VECTORS, duckdb_reader
from tests.support.inside import inside
from tests.support.marked import kept, years_later
from tests.support.places import Place
from tests.support.stores import Dying, Later, unpublished

ALLOWED = {"delta.enableDeletionVectors": "true"}
COUNT = 200
pytestmark = pytest.mark.usefixtures("marks_in_small_files")


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        create(lake)
        yield lake


def rows(keys: Any, value: str = "old") -> pa.Table:
    keys = pa.array(keys, pa.int64())
    return pa.table({"k": keys, "v": [value] * len(keys)})


def create(lake: lv.Lake) -> None:
    lake.create_table("t", rows(range(COUNT)), properties=ALLOWED)


def vectors(place: Place, name: str = "t") -> set[str]:
    """Return the paths of the files of vectors in a table's directory."""
    root = Path(place.uri(name).removeprefix("file://"))
    return {path.relative_to(root).as_posix() for path in root.rglob("*.bin")}


def live(place: Place, name: str = "t") -> list[dict[str, Any]]:
    """Return the vectors of the table's last entry that has one."""
    log = Path(place.uri(name).removeprefix("file://")) / "_delta_log"
    for entry in sorted(log.glob("0*.json"), reverse=True):
        adds = [one["add"] for one in map(json.loads, entry.open()) if "add" in one]
        if any("deletionVector" in add for add in adds):
            return [add["deletionVector"] for add in adds if "deletionVector" in add]
    return []


def seen_by(place: Place, expected: dict[int, str], name: str = "t") -> None:
    """Check what the kernels of deltalake, polars and DuckDB read."""
    path = place.uri(name).removeprefix("file://")
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT k, v FROM t")
    found = pa.table(query.read_all())
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    if POLARS_READS_VECTORS:
        assert dict(pl.scan_delta(path).collect().rows()) == expected
    assert found.num_rows == len(expected)
    if HAS_EXTENSIONS:
        scan = f"SELECT k, v FROM delta_scan('file://{path}')"
        rows = duckdb_reader().execute(scan).fetchall()
        assert dict(rows) == expected
        assert len(rows) == len(expected)


# -- when, and what ---------------------------------------------------------------------------


def test_a_twentieth_of_a_large_file_is_marked(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the limits as they are
    count = 1_000_000
    value = np.random.default_rng(1).integers(0, 1 << 60, count)
    with local_place.connect() as lake:
        lake.create_table("t", pa.table({"k": np.arange(count), "v": value}), properties=ALLOWED)
        (file,) = local_place.delta("t").file_uris()
        where = "k % 20 = 0"
        assert lake.run(lambda txn: txn.delete("t", where=where)).rows_deleted == 50_000
        assert local_place.delta("t").file_uris() == [file]
        stored = [path.stat().st_size for path in Path(local_place.root).rglob("*.bin")]
        assert sum(stored) < 110_000
        given = pa.table({"k": np.arange(25, count, 50), "v": np.zeros(20_000, np.int64)})
        assert lake.run(lambda txn: txn.upsert("t", given, "k")).rows_updated == 20_000
        assert file in local_place.delta("t").file_uris()
        assert lake.sql("SELECT count(*) AS n FROM t WHERE v = 0")["n"].to_pylist() == [20_000]
        (marked,) = live(local_place)
        assert marked["cardinality"] == 70_000
        assert lake.sql("SELECT count(*) AS n FROM t")["n"].to_pylist() == [count - 50_000]
        assert lake.run(lambda txn: txn.delete("t", where="k % 20 = 1 OR k = 2")).rows_deleted
        assert file not in local_place.delta("t").file_uris(), "more than a twentieth"


def test_one_file_has_the_vectors_of_several_data_files(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.append("t", rows(range(COUNT, 2 * COUNT))))
    lake.run(lambda txn: txn.append("t", rows(range(2 * COUNT, 3 * COUNT))))
    where = f"k % 10 = 1 AND k < {2 * COUNT} OR k = {2 * COUNT}"
    lake.run(lambda txn: txn.delete("t", where=where))
    assert [one["storageType"] for one in live(local_place)] == ["u", "u", "u"]
    assert len(vectors(local_place)) == 1
    expected = {k for k in range(3 * COUNT) if not ((k % 10 == 1 and k < 400) or k == 400)}
    assert kept(lake).keys() == expected
    seen_by(local_place, kept(lake))
    assert lake.verify().ok


def test_a_table_with_partitions_has_its_vectors_in_the_same_place(local_place: Place) -> None:
    with local_place.connect() as lake:
        parts = pa.array([f"a{k % 2}" for k in range(COUNT)])
        data = rows(range(COUNT)).append_column("p", parts)
        lake.create_table("t", data, partition_by=["p"], properties=ALLOWED)
        lake.run(lambda txn: txn.delete("t", where="k < 20"))
        (path,) = vectors(local_place)
        assert path.startswith("_lakevilla/v/lv-h-")
        assert kept_keys(lake) == set(range(20, COUNT))
        if POLARS_READS_VECTORS:
            scan = pl.scan_delta(local_place.uri("t")).select("k").collect()
            assert set(scan["k"].to_list()) == set(range(20, COUNT))


def kept_keys(lake: lv.Lake) -> set[int]:
    return set(lake.read("t")["k"].to_pylist())


def test_several_statements_of_a_transaction_store_one_vector(
    lake: lv.Lake, local_place: Place
) -> None:
    with lake.transaction() as txn:
        for first in (0, 10, 20):
            txn.delete("t", where=f"k >= {first} AND k < {first + 5}")
            assert first not in txn.read("t")["k"].to_pylist()
    (vector,) = live(local_place)
    assert vector["cardinality"] == 15
    gone = {*range(5), *range(10, 15), *range(20, 25)}
    assert kept(lake).keys() == set(range(COUNT)) - gone
    seen_by(local_place, kept(lake))


# -- beside others -------------------------------------------------------------------------------


def test_statements_on_other_rows_of_a_file_commute(local_place: Place) -> None:
    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as one, local_place.connect() as other:
        create(one)
        with one.transaction() as first:
            first.update("t", {"v": "'first'"}, where="k < 10")
            first.delete("t", where="k = 10")
            for start in (20, 40):
                other.run(lambda txn, k=start: txn.delete("t", where=f"k >= {k} AND k < {k + 10}"))
        found = kept(one)
    assert found == {
        k: "first" if k < 10 else "old"
        for k in range(COUNT)
        if not (k == 10 or 20 <= k < 30 or 40 <= k < 50)
    }
    assert "redo" not in {event.kind for event in events}
    seen_by(local_place, found)


def test_a_decided_commit_is_published_beside_the_marks_of_another_client(
    local_place: Place,
) -> None:
    with local_place.connect() as one:
        create(one)
        with unpublished(one):
            one.run(lambda txn: txn.update("t", {"v": "'new'"}, where="k < 10"))
        marked_by_another(local_place, range(20, 30))
        before = {path.name for path in Path(local_place.uri("t")).rglob("*.parquet")}
    with local_place.connect() as other:
        other.recover()
        assert {path.name for path in Path(local_place.uri("t")).rglob("*.parquet")} == before
        expected = {k: "new" if k < 10 else "old" for k in range(COUNT) if not 20 <= k < 30}
        assert kept(other) == expected
        years_later(other)
        assert kept(other) == expected
        seen_by(local_place, expected)
        assert other.verify().ok


def marked_by_another(place: Place, gone: range) -> None:
    """Mark rows of the table's first file in its log, as a client without LakeVilla does."""
    log = Path(place.uri("t").removeprefix("file://")) / "_delta_log"
    (add,) = [one["add"] for one in map(json.loads, (log / f"{0:020}.json").open()) if "add" in one]
    vector = inline_vector(np.array(gone))
    marked = {
        "storageType": "i",
        "pathOrInlineDv": vector.path_or_inline,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    remove = {"path": add["path"], "deletionTimestamp": 0, "dataChange": True}
    actions = [{"remove": remove}, {"add": {**add, "deletionVector": marked}}]
    version = max(int(path.stem) for path in log.glob("0*.json")) + 1
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_branches_are_merged_with_the_vectors_of_both(lake: lv.Lake, local_place: Place) -> None:
    lake.branch("side")
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    with lake.on("side") as side:
        side.run(lambda txn: txn.update("t", {"v": "'side'"}, where="k >= 20 AND k < 30"))
        side.run(lambda txn: txn.delete("t", where="k >= 40 AND k < 50"))
        assert kept(side).keys() == set(range(COUNT)) - {*range(40, 50)}
    lake.merge("side", delete=True)
    years_later(lake)
    assert kept(lake) == {
        k: "side" if 20 <= k < 30 else "old" for k in range(10, COUNT) if not 40 <= k < 50
    }
    seen_by(local_place, kept(lake))
    assert lake.verify().ok


def test_tags_clones_and_exports_keep_their_vectors(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    lake.tag("then")
    lake.clone("t", "trial/t")
    lake.export("t", "by_name", copy=False)
    lake.export("t", "copied", copy=True)
    first = kept(lake)
    lake.run(lambda txn: txn.delete("t", where="k < 20"))
    lake.run(lambda txn: txn.delete("trial/t", where="k >= 100 AND k < 110"))
    years_later(lake)
    with lake.on("then") as then:
        assert kept(then) == first
    seen_by(local_place, first, "copied")
    assert kept(lake, "trial/t") == {k: "old" for k in first if not 100 <= k < 110}
    assert kept(lake).keys() == set(range(20, COUNT))
    lake.export("t", "copied", copy=True)
    seen_by(local_place, kept(lake), "copied")
    assert lake.verify().ok


def test_a_rollback_and_a_drop_handle_vectors(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    version = lake.snapshot().version
    lake.run(lambda txn: txn.delete("t", where="k < 20"))
    lake.rollback(version)
    assert kept(lake).keys() == set(range(10, COUNT))
    seen_by(local_place, kept(lake))
    lake.drop_table("t", delete_data=True)
    assert vectors(local_place) == set()


# -- left over -------------------------------------------------------------------------------------


def test_gc_and_vacuum_delete_the_vectors_that_nothing_names(
    lake: lv.Lake, local_place: Place
) -> None:
    for first in (0, 10, 20):
        where = f"k >= {first} AND k < {first + 8}"
        lake.run(lambda txn, where=where: txn.delete("t", where=where))
    before = vectors(local_place)
    assert len(before) == 3
    later = Later()
    later.of(lake)
    later.ahead_seconds = 3 * 24 * 3600
    lake.gc()
    assert vectors(local_place) == before, "entries of the log name them all"
    years_later(lake)
    (left,) = vectors(local_place)
    assert left in before
    seen_by(local_place, kept(lake))
    lake.table("t").optimize()
    later.ahead_seconds += 30 * 24 * 3600
    lake.table("t").vacuum(0, False, enforce_retention_duration=False)
    assert vectors(local_place) == set()


def test_the_full_vacuum_of_deltalake_leaves_a_live_vector(
    lake: lv.Lake, local_place: Place
) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    for full in (False, True):
        table = DeltaTable(local_place.uri("t"))
        table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert len(vectors(local_place)) == 1
    seen_by(local_place, dict.fromkeys(range(10, COUNT), "old"))


def test_a_refused_transaction_leaves_no_vector(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    before = vectors(local_place)
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
        txn.delete("t", where="k < 20")
        txn.read("t")  # which stores the vector
        raise ZeroDivisionError
    assert vectors(local_place) == before
    assert kept(lake).keys() == set(range(10, COUNT))


def test_a_client_that_dies_at_any_write_leaves_no_vector_for_good(tmp_path: Path) -> None:
    for writes in itertools.count():
        place = Place(str(tmp_path / str(writes)))
        with place.connect() as lake:
            create(lake)
        made = {txn_in(path.name) for path in Path(place.uri("t")).rglob("lv-*.parquet")}
        with place.connect() as dying:
            inside(dying).client.ensure_safe_store()
            store = inside(dying).store = Dying(inside(dying).store, writes)
            with contextlib.suppress(Dying.Death), dying.transaction() as txn:
                txn.update("t", {"v": "'new'"}, where="k < 10")
        with place.connect() as other:
            other.recover()
            found = kept(other)
            assert found in (dict.fromkeys(range(COUNT), "old"), NEW)
            seen_by(place, found)
            years_later(other)
            data = {txn_in(path.name) for path in Path(place.uri("t")).rglob("lv-*.parquet")}
            assert {txn_in(path) for path in vectors(place)} == data - made
            assert kept(other) == found
            seen_by(place, found)
            assert other.verify().ok
        if not store.died:
            break
    assert writes > 4


NEW = {k: "new" if k < 10 else "old" for k in range(COUNT)}


def test_a_transaction_whose_vector_was_collected_says_so(
    lake: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_vectors, "_READ_WHOLE", 0)  # and so is not in memory
    with pytest.raises(lv.TransactionAborted, match="ran so long"), lake.transaction() as txn:
        txn.delete("t", where="k < 10")
        txn.read("t")
        for path in vectors(local_place):
            (Path(local_place.uri("t")) / path).unlink()
        txn.delete("t", where="k = 20")


def test_a_vector_that_is_gone_is_found_by_verify(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 10"))
    (path,) = vectors(local_place)
    (Path(local_place.uri("t")) / path).unlink()
    found = {one.kind: one.message for one in lake.verify().findings}
    assert path in found["damaged_file"]


def test_the_fault_of_vectors_that_gc_takes_for_garbage_is_found(
    lake: lv.Lake, local_place: Place
) -> None:
    with PLANTED["vectors_are_garbage"].plant(), pytest.raises(AssertionError):
        test_gc_and_vacuum_delete_the_vectors_that_nothing_names(lake, local_place)
