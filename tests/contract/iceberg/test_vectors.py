"""Deleted rows of tables of version 3 are marked by vectors where the table's modes say so."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import StaticTable

import lakevilla as lv
from lakevilla.ids import txn_in
from lakevilla_testing.planted.every import PLANTED
from tests.support.inside import inside
from tests.support.marked import CHANGES, MODES, V3, kept, rows
from tests.support.places import Place
from tests.support.row_ids_of_iceberg import files_of, row_ids
from tests.support.stores import Dying, Later, is_entry, unpublished

pytestmark = pytest.mark.usefixtures("marks_in_small_files")


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        create(lake, "t")
        yield lake


def create(lake: lv.Lake, name: str, **options: Any) -> None:
    data = rows(*((k, "old") for k in range(100)))
    lake.create_table(name, data, **{"properties": V3, **options})


def newest(place: Place, name: str = "t") -> StaticTable:
    files = (Path(place.uri(name).removeprefix("file://")) / "metadata").glob("v*.metadata.json")
    last = max(files, key=lambda path: int(path.name[1:].partition(".")[0]))
    return StaticTable.from_metadata(str(last))


def vectors(place: Place, name: str = "t") -> dict[str, int]:
    """Return the number of deleted rows by data file, as the live vectors say."""
    found = newest(place, name).inspect.delete_files().to_pylist()
    with place.connect() as lake:
        files = [file for file in files_of(lake, name) if file["deletes"]]
    counts = {file["path"]: file["deletes"][0]["rows"] for file in files}
    assert sorted(counts.values()) == sorted(one["record_count"] for one in found)
    return counts


def summary(place: Place, name: str = "t") -> dict[str, str]:
    snapshot = newest(place, name).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


def seen_by_pyiceberg(place: Place, expected: dict[int, str], name: str = "t") -> None:
    found = newest(place, name).scan().to_arrow()
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)


def puffins(place: Place, name: str = "t") -> set[str]:
    root = Path(place.uri(name).removeprefix("file://"))
    return {path.relative_to(root).as_posix() for path in root.rglob("*.puffin")}


# -- when ---------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES)
def test_a_statement_that_changes_few_rows_leaves_the_file(
    lake: lv.Lake, place: Place, change: str
) -> None:
    (file,) = files_of(lake, "t")
    with lake.transaction() as txn:
        CHANGES[change](txn)
    assert vectors(place) == {file["path"]: 2}
    found = summary(place)
    assert found["operation"] == ("delete" if change == "delete" else "overwrite")
    assert {name: found[name] for name in ("added-dvs", "added-delete-files")} == {
        "added-dvs": "1",
        "added-delete-files": "1",
    }
    assert found["total-position-deletes"] == found["added-position-deletes"] == "2"
    assert "deleted-data-files" not in found
    expected = kept(lake)
    assert expected[4] == "old"
    assert expected.get(3) in ("new", None)
    seen_by_pyiceberg(place, expected)
    assert lake.verify().ok


@pytest.mark.parametrize("mode", [*MODES])
def test_each_statement_has_a_mode_of_its_own(place: Place, mode: str) -> None:
    with place.connect() as lake:
        create(lake, "t", properties={"format-version": "3", mode: "Merge-On-Read"})
        counts = 0
        for name in ("update", "delete", "merge"):
            with lake.transaction() as txn:
                CHANGES[name](txn)
            counts += mode == f"write.{name}.mode"
            assert len(puffins(place)) == counts
            said = " ".join(lake.capabilities("t").guarantees)
            assert (f"{name} of few rows" in said) == (mode == f"write.{name}.mode")
            with lake.transaction() as txn:
                txn.overwrite("t", rows(*((k, "old") for k in range(100))))


@pytest.mark.parametrize("properties", [{"format-version": "3"}, {"format-version": "2"}])
def test_a_table_that_does_not_ask_for_it_is_rewritten(
    place: Place, properties: dict[str, str]
) -> None:
    with place.connect() as lake:
        create(lake, "t", properties=properties)
        with lake.transaction() as txn:
            txn.delete("t", where="k = 1")
    assert not puffins(place)


def test_a_file_is_rewritten_where_many_rows_change(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 99")
        txn.delete("t", where="k < 95")
    assert not vectors(place)
    assert kept(lake).keys() == set(range(95, 99))


def test_all_rows_of_a_file_are_removed_with_it(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    with lake.transaction() as txn:
        txn.delete("t", where="true")
    assert not newest(place).inspect.files().num_rows
    assert summary(place)["removed-dvs"] == "1"


# -- one vector a file ----------------------------------------------------------------------


def test_a_later_vector_replaces_the_one_before(lake: lv.Lake, place: Place) -> None:
    for count, k in enumerate((1, 2, 3), 1):
        with lake.transaction() as txn:
            txn.delete("t", where=f"k = {k}")
        assert list(vectors(place).values()) == [count]
    found = summary(place)
    assert (found["removed-dvs"], found["removed-position-deletes"]) == ("1", "2")
    assert (found["total-delete-files"], found["total-position-deletes"]) == ("1", "3")
    seen_by_pyiceberg(place, kept(lake))


def test_several_statements_of_one_transaction_mark_rows_of_one_file(
    lake: lv.Lake, place: Place
) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
        assert 1 not in txn.read("t")["k"].to_pylist()
        txn.update("t", {"v": "'a'"}, where="k in (2, 3)")
        txn.update("t", {"v": "'b'"}, where="k in (3, 4)")
    found = kept(lake)
    assert 1 not in found
    assert [found[k] for k in (2, 3, 4, 5)] == ["a", "b", "b", "old"]
    assert sorted(vectors(place).values()) == [1, 4]
    seen_by_pyiceberg(place, found)


def test_rows_of_a_file_of_the_same_transaction_are_marked(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows((200, "new"), (201, "new"), (202, "new")))
        txn.delete("t", where="k = 201")
    assert list(vectors(place).values()) == [1]
    seen_by_pyiceberg(place, kept(lake))
    assert 201 not in kept(lake)


def test_one_puffin_file_has_the_vectors_of_several_files(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows(*((k, "more") for k in range(100, 120))))
    with lake.transaction() as txn:
        txn.delete("t", where="k IN (1, 2, 101)")
    assert sorted(vectors(place).values()) == [1, 2]
    assert len(puffins(place)) == 1
    with lake.transaction() as txn:
        txn.delete("t", where="k = 102")
    assert sorted(vectors(place).values()) == [2, 2]
    seen_by_pyiceberg(place, kept(lake))


def test_manifests_of_vectors_are_merged(place: Place) -> None:
    with place.connect() as lake:
        create(lake, "t", properties={**V3, "commit.manifest.min-count-to-merge": "3"})
        for first in range(100, 160, 10):
            with lake.transaction() as txn:
                txn.append("t", rows(*((k, "more") for k in range(first, first + 10))))
        for first in range(100, 160, 10):
            with lake.transaction() as txn:
                txn.delete("t", where=f"k = {first}")
            seen_by_pyiceberg(place, kept(lake))
        assert list(vectors(place).values()) == [1] * 6
        snapshot = newest(place).current_snapshot()
        assert snapshot is not None
        found = [one.content for one in snapshot.manifests(newest(place).io)]
        assert found.count(ManifestContent.DELETES) <= 3
        with lake.transaction() as txn:
            txn.delete("t", where="k IN (101, 111, 151)")
        seen_by_pyiceberg(place, kept(lake))
        assert sorted(vectors(place).values()) == [1, 1, 1, 2, 2, 2]


def test_partitions_and_older_specs_have_vectors_of_their_own(place: Place) -> None:
    data = pa.table({"k": pa.array(range(12), pa.int64()), "v": ["a", "b", "a b"] * 4})
    with place.connect() as lake:
        lake.create_table("t", data, partition_by=["v"], properties=V3)
        with lake.transaction() as txn:
            txn.delete("t", where="k IN (0, 1, 2)")
        assert list(vectors(place).values()) == [1, 1, 1]
        with lake.transaction() as txn:
            txn.update("t", {"v": "'b'"}, where="k IN (3, 5)")
        seen_by_pyiceberg(place, kept(lake))
        assert kept(lake)[3] == "b"


# -- races ------------------------------------------------------------------------------------


def test_statements_that_delete_other_rows_of_a_file_commute(place: Place) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one, "t")
        first = one.transaction()
        second = other.transaction()
        with first:
            first.update("t", {"v": "'first'"}, where="k in (1, 2)")
            with second:
                second.update("t", {"v": "'second'"}, where="k in (3, 4)")
        found = kept(one)
        assert [found[k] for k in (1, 2, 3, 4, 5)] == ["first"] * 2 + ["second"] * 2 + ["old"]
        assert len(found) == 100
        seen_by_pyiceberg(place, found)
        ids = [row_id for row_id, _ in row_ids(one, "t").values()]
        assert sorted(ids) == list(range(100)), "updated rows keep their ids"
    assert "redo" not in {event.kind for event in events}
    assert list(vectors(place).values()) == [4]


def test_several_statements_on_one_file_commute_with_those_of_another(place: Place) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one, "t")
        with one.transaction() as txn:
            txn.append("t", rows(*((k, "old") for k in range(100, 120))))
        with one.transaction() as first:
            for where in ("k = 1", "k IN (2, 102)", "k = 3"):
                first.update("t", {"v": "'first'"}, where=where)
            with other.transaction() as second:
                second.delete("t", where="k IN (4, 104)")
        found = kept(one)
        assert [found.get(k) for k in (1, 2, 3, 4, 5)] == ["first"] * 3 + [None, "old"]
        assert [found.get(k) for k in (102, 104)] == ["first", None]
        seen_by_pyiceberg(place, found)
    assert "redo" not in {event.kind for event in events}
    assert sorted(vectors(place).values()) == [2, 4]


def test_the_fault_of_an_own_vector_that_is_looked_for_in_the_store_is_found(
    place: Place,
) -> None:
    with (
        PLANTED["own_vectors_are_stored"].plant(),
        pytest.raises(lv.CorruptObject, match="missing"),
    ):
        test_several_statements_on_one_file_commute_with_those_of_another(place)


def test_a_transaction_in_a_queue_marks_rows_again_each_time(place: Place) -> None:
    """It moves to newer states while it waits, before any of its vectors is stored."""
    with place.connect() as one, place.connect() as other:
        create(one, "t")
        with one.transaction(lv.Feature.R | lv.Feature.I | lv.Feature.CT) as first:
            for k in (1, 2):
                first.update("t", {"v": "'first'"}, where=f"k = {k}")
            for k in (3, 4):
                with other.transaction() as second:
                    second.update("t", {"v": "'second'"}, where=f"k = {k}")
                first.read("t", where="k = 50")
        found = kept(one)
        assert [found[k] for k in (1, 2, 3, 4, 5)] == ["first"] * 2 + ["second"] * 2 + ["old"]
        seen_by_pyiceberg(place, found)


def test_statements_that_change_the_same_row_do_not(place: Place) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one, "t")
        with one.transaction() as first:
            first.update("t", {"v": "v || '+'"}, where="k in (1, 2)")
            with other.transaction() as second:
                second.update("t", {"v": "v || '*'"}, where="k in (2, 3)")
        found = kept(one)
        assert [found[k] for k in (1, 2, 3)] == ["old+", "old*+", "old*"]
    assert "redo" in {event.kind for event in events}


def test_a_read_of_a_row_that_another_deletes_is_a_conflict(place: Place) -> None:
    with place.connect() as one, place.connect() as other:
        create(one, "t")
        create(one, "log")
        with pytest.raises(lv.ConflictError, match="read"), one.transaction() as first:
            first.read("t", where="k = 1")
            first.append("log", rows((1000, "seen")))
            with other.transaction() as second:
                second.delete("t", where="k = 1")
        # Another row of the same file was not read.
        with one.transaction() as first:
            first.read("t", where="k = 2")
            first.append("log", rows((1000, "seen")))
            with other.transaction() as second:
                second.delete("t", where="k = 3")
        assert 1000 in kept(one, "log")


def test_the_fault_of_deletes_that_count_as_nothing_is_found(place: Place) -> None:
    with PLANTED["deletes_of_others_as_nothing"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_read_of_a_row_that_another_deletes_is_a_conflict(place)


def test_vectors_that_are_decided_and_not_published_are_the_same_files(place: Place) -> None:
    with place.connect() as lake:
        create(lake, "t")
        with unpublished(lake, is_entry("t")):
            for k in (1, 2):
                with lake.transaction() as txn:
                    txn.update("t", {"v": "'new'"}, where=f"k = {k}")
        with place.connect() as other:
            assert kept(other) == {k: "new" if k in (1, 2) else "old" for k in range(100)}
            first = other.transaction()  # on the pending state
            first.delete("t", where="k = 3")
            lake.recover()
            first.commit()
            assert kept(other).keys() == set(range(100)) - {3}
            seen_by_pyiceberg(place, kept(other))
            assert list(vectors(place).values()) == [3]
            assert other.verify().ok


# -- what others need -------------------------------------------------------------------------


def test_an_optimize_purges_marked_rows(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    before = kept(lake)
    lake.table("t").optimize()
    assert not vectors(place)
    assert kept(lake) == before
    seen_by_pyiceberg(place, before)


def test_rows_come_back_by_a_rollback_and_on_a_branch_they_stay(
    lake: lv.Lake, place: Place
) -> None:
    version = lake.snapshot().version
    ids = row_ids(lake, "t")
    lake.branch("side")
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    with lake.on("side") as side:
        with side.transaction() as txn:
            txn.delete("t", where="k = 2")
        with side.transaction() as txn:
            txn.update("t", {"v": "'side'"}, where="k = 3")
        assert sorted(set(range(100)) - kept(side).keys()) == [2]
    lake.merge("side", keys={"t": ["k"]})
    assert sorted(set(range(100)) - kept(lake).keys()) == [1, 2]
    assert kept(lake)[3] == "side"
    seen_by_pyiceberg(place, kept(lake))
    marked = lake.snapshot().version
    lake.rollback(version)
    assert kept(lake).keys() == set(range(100))
    assert {k: one for k, (one, _) in row_ids(lake, "t").items()} == {
        k: one for k, (one, _) in ids.items()
    }
    lake.rollback(marked)
    assert sorted(set(range(100)) - kept(lake).keys()) == [1, 2]
    seen_by_pyiceberg(place, kept(lake))
    assert lake.verify().ok


def test_a_branch_is_merged_by_files_with_its_vectors(lake: lv.Lake, place: Place) -> None:
    lake.branch("side")
    with lake.on("side") as side:
        for k in (2, 3):
            with side.transaction() as txn:
                txn.update("t", {"v": "'side'"}, where=f"k = {k}")
    lake.merge("side")
    assert [k for k, v in kept(lake).items() if v == "side"] == [2, 3]
    seen_by_pyiceberg(place, kept(lake))
    lake.delete_ref("side")
    later = Later()
    later.of(lake)
    later.ahead_seconds = 30 * 24 * 3600
    lake.gc()
    assert [k for k, v in kept(lake).items() if v == "side"] == [2, 3]
    seen_by_pyiceberg(place, kept(lake))


def test_a_rollback_to_another_vector_adds_no_data_file(lake: lv.Lake, place: Place) -> None:
    states = [lake.snapshot().version]
    for k in (1, 2):
        with lake.transaction() as txn:
            txn.delete("t", where=f"k = {k}")
        states.append(lake.snapshot().version)
    for state, gone in zip(reversed(states), ({1, 2}, {1}, set[int]()), strict=True):
        lake.rollback(state)
        assert kept(lake).keys() == set(range(100)) - gone
        seen_by_pyiceberg(place, kept(lake))
        assert list(vectors(place).values()) == ([len(gone)] if gone else [])
        assert {k for k, _ in row_ids(lake, "t").values()} == set(range(100)) - gone
        assert ("added-data-files" in summary(place)) == (not gone)
        assert summary(place)["operation"] == ("delete" if gone == {1, 2} else "overwrite")


def test_a_clone_and_an_export_keep_the_vectors(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    lake.clone("t", "trial/t")
    assert kept(lake, "trial/t").keys() == set(range(100)) - {1}
    with lake.transaction() as txn:
        txn.delete("trial/t", where="k = 2")
    assert kept(lake, "trial/t").keys() == set(range(100)) - {1, 2}
    assert list(vectors(place, "trial/t").values()) == [2], "no row was written"
    seen_by_pyiceberg(place, kept(lake, "trial/t"), "trial/t")
    assert kept(lake).keys() == set(range(100)) - {1}
    lake.export("t", "by_name", copy=False)
    seen_by_pyiceberg(place, kept(lake), "by_name")
    for _ in range(2):
        lake.export("t", "copied", copy=True)
        seen_by_pyiceberg(place, kept(lake), "copied")
        copied = Path(place.root) / "copied"
        assert len(list(copied.glob("*.parquet"))) == 1
        before = (copied / "metadata/version-hint.text").read_text()
        lake.export("t", "copied", copy=True)
        assert (copied / "metadata/version-hint.text").read_text() == before
        with lake.transaction() as txn:
            txn.delete("t", where="k = 3")
            txn.delete("t", where="k = 4")
    assert lake.verify().ok


def test_gc_and_vacuum_delete_the_vectors_that_nothing_names(lake: lv.Lake, place: Place) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows(*((k, "more") for k in range(100, 120))))
    later = Later()
    later.of(lake)
    for where in ("k IN (1, 101)", "k = 2", "k = 3"):
        with lake.transaction() as txn:
            txn.delete("t", where=where)
    before = puffins(place)
    assert len(before) == 3
    later.ahead_seconds = 30 * 24 * 3600
    lake.gc()
    assert puffins(place) == before, "snapshots name them all"
    lake.table("t").vacuum(0, False, enforce_retention_duration=False)
    live = {one["path"] for file in files_of(lake, "t") for one in file["deletes"] or ()}
    assert puffins(place) == live
    assert len(live) == 2, "the first has a vector of the second file"
    seen_by_pyiceberg(place, kept(lake))
    assert lake.verify().ok


def test_a_client_that_dies_at_any_write_leaves_no_vector_for_good(tmp_path: Path) -> None:
    for writes in itertools.count():
        place = Place(str(tmp_path / str(writes)), format="iceberg")
        with place.connect() as lake:
            create(lake, "t", format="iceberg")
        made = {txn_in(path.name) for path in Path(place.uri("t")).rglob("lv-*.parquet")}
        with place.connect() as dying:
            inside(dying).client.ensure_safe_store()
            store = inside(dying).store = Dying(inside(dying).store, writes)
            with contextlib.suppress(Dying.Death), dying.transaction() as txn:
                txn.update("t", {"v": "'new'"}, where="k IN (1, 2)")
        with place.connect() as other:
            other.recover()
            later = Later()
            later.of(other)
            later.ahead_seconds = 30 * 24 * 3600
            found = kept(other)
            assert found in (dict.fromkeys(range(100), "old"), NEW)
            seen_by_pyiceberg(place, found)
            other.gc()
            other.table("t").vacuum(0, False, enforce_retention_duration=False)
            # What gc leaves while a commit object may still count, it leaves of both kinds.
            data = {txn_in(path.name) for path in Path(place.uri("t")).rglob("lv-*.parquet")}
            assert {txn_in(path) for path in puffins(place)} == data - made
            assert kept(other) == found
            seen_by_pyiceberg(place, found)
            assert other.verify().ok
        if not store.died:
            break
    assert writes > 4


NEW = {k: "new" if k in (1, 2) else "old" for k in range(100)}


def test_a_tag_of_a_branch_keeps_the_vectors_that_only_the_branch_has(
    lake: lv.Lake, place: Place
) -> None:
    lake.branch("side")
    with lake.on("side") as side:
        for k in (1, 2):
            with side.transaction() as txn:
                txn.delete("t", where=f"k = {k}")
        lake.tag("then", at="side")
        with side.transaction() as txn:
            txn.delete("t", where="k = 3")
    with lake.transaction() as txn:
        txn.append("t", rows((200, "lake")))
    lake.rebase("side")
    later = Later()
    later.of(lake)
    later.ahead_seconds = 30 * 24 * 3600
    lake.gc()
    lake.table("t").vacuum(0, False, enforce_retention_duration=False)
    assert kept(lake).keys() == {*range(100), 200}
    with lake.on("side") as side:
        assert kept(side).keys() == {*range(100), 200} - {1, 2, 3}
    with lake.on("then") as then:
        assert kept(then).keys() == set(range(100)) - {1, 2}
    lake.merge("side", delete=True)
    lake.gc()
    assert kept(lake).keys() == {*range(100), 200} - {1, 2, 3}
    seen_by_pyiceberg(place, kept(lake))
    assert list(vectors(place).values()) == [3], "merged by files"
    assert lake.verify().ok


def test_a_refused_transaction_deletes_no_file_of_the_table(lake: lv.Lake) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
        txn.read("t")
        raise ZeroDivisionError
    with lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
    assert kept(lake)[1] == "new"
    assert lake.verify().ok


def test_the_feed_shows_the_rows_alone(lake: lv.Lake) -> None:
    since = lake.snapshot().version
    with lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
        txn.delete("t", where="k = 2")
    (version,) = lake.changes(since, tables=["t"])
    found = version.tables["t"].to_pylist()
    assert sorted((row["k"], row["v"], row["_change_type"]) for row in found) == [
        (1, "new", "update_postimage"),
        (1, "old", "update_preimage"),
        (2, "old", "delete"),
    ]


def test_sizes_count_rows_that_are_left(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 2")
    found = lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 't'")
    assert found["rows"].to_pylist() == [99]


def test_a_commit_object_of_vectors_is_refused_by_older_clients(
    lake: lv.Lake, place: Place
) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows((200, "new")))
    with lake.transaction() as txn:
        txn.delete("t", where="k = 2")
    root = Path(place.root.removeprefix("file://"))
    commits = [json.loads(path.read_text()) for path in root.glob("_lakevilla/commits/*.json")]
    formats = {one["tables"]["t"].get("operation"): one["format"] for one in commits}
    assert formats.pop("DELETE") == 2
    assert set(formats.values()) == {1}


@pytest.mark.parametrize("version", ["3", "2"])
def test_branches_and_reverts_beside_other_marks_need_no_keys(place: Place, version: str) -> None:
    with place.connect() as lake:
        create(lake, "t", properties={**V3, "format-version": version})
        lake.branch("side")
        lake.run(lambda txn: txn.update("t", {"v": "'lake'"}, where="k = 1"))
        with lake.on("side") as side:
            side.run(lambda txn: txn.update("t", {"v": "'side'"}, where="k = 2"))
            side.run(lambda txn: txn.delete("t", where="k = 3"))
        lake.merge("side", delete=True)
        expected = {k: {1: "lake", 2: "side"}.get(k, "old") for k in range(100) if k != 3}
        assert kept(lake) == expected
        seen_by_pyiceberg(place, expected)
        if version == "3":
            assert list(vectors(place).values()) == [3], "no row was written again"
            merged = lake.snapshot().version
            lake.run(lambda txn: txn.delete("t", where="k = 4"))
            lake.revert(merged)
            assert kept(lake) == {k: "lake" if k == 1 else "old" for k in range(100) if k != 4}
            seen_by_pyiceberg(place, kept(lake))
            assert row_ids(lake, "t")[3][0] == 3
        assert lake.verify().ok


def test_a_branch_that_has_marked_a_row_of_the_lake_s_is_in_conflict(lake: lv.Lake) -> None:
    lake.branch("side")
    lake.run(lambda txn: txn.update("t", {"v": "'lake'"}, where="k = 1"))
    with lake.on("side") as side:
        side.run(lambda txn: txn.update("t", {"v": "'side'"}, where="k IN (1, 2)"))
    with pytest.raises(lv.MergeConflict):
        lake.merge("side")
