"""Objects that ``gc`` deletes, and those that it keeps because a client may still need them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.ids import uuid7
from lakevilla.store.base import ABSENT, Found
from tests.support.inside import inside
from tests.support.places import Place, fill
from tests.support.stores import Closed, is_head, listed, unpublished
from tests.support.tables import accounts


def test_gc_keeps_the_source_of_a_merge_that_is_not_published_yet(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    source = pa.table({"id": list(range(10_000)), "balance": [7] * 10_000})
    with local_place.connect() as lake, local_place.connect() as other:
        lake.register("bank")
        with unpublished(lake), lake.transaction() as txn:
            txn.upsert("bank", source, "id")
        other.gc()
        local_place.delta("bank").delete("id = 2")
        assert other.recover().ok
    rows = local_place.seen("bank")
    assert len(rows) == 10_000
    assert {row["balance"] for row in rows} == {7}


def test_gc_keeps_files_of_an_unregistered_table_that_another_lake_has_claimed(
    tmp_path: Path,
) -> None:
    old, new = Place(str(tmp_path / "old")), Place(str(tmp_path / "new"))
    old.write("bank", accounts(1))
    # No transaction is too young to be fenced.
    settings = lv.Settings(max_age_seconds=0)
    with old.connect(settings=settings) as loser, new.connect() as owner:
        loser.register("bank")
        loser.unregister("bank")
        owner.register("bank", old.uri("bank"))
        with unpublished(owner), owner.transaction() as txn:
            txn.append("bank", [{"id": 5, "balance": 5}])
        loser.gc()
        assert owner.recover().ok
        assert sorted(owner.snapshot().read("bank")["id"].to_pylist()) == [0, 5]


def test_gc_deletes_only_pages_that_no_head_names(place: Place, page_length: int) -> None:
    fill(place, {"bank": accounts(1)})
    lake = place.connect()
    for balance in range(2 * page_length):
        with lake.transaction(wait="decided") as txn:
            txn.append("bank", [{"id": balance, "balance": balance}])
    lake.close()
    store = inside(lake).store
    pages = [info.key for info in listed(store, "_lakevilla/pages")]
    assert len(pages) == 1
    orphan = f"{pages[0].rsplit('-', 1)[0]}-00ff.json"
    body = store.get(pages[0])
    assert isinstance(body, Found)
    store.put(orphan, body.body, ABSENT)
    lake.gc()
    assert [info.key for info in listed(store, "_lakevilla/pages")] == pages
    assert lake.gc().findings == ()


def test_gc_skips_an_unreadable_table_and_cleans_the_others(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    fill(place, {"sound": accounts(1), "torn": accounts(1)})
    lake = place.connect()
    lake.register({"sound": "sound", "torn": "torn"})
    (tmp_path / "torn" / "_delta_log" / f"{0:020}.json").write_text('{"add": {"path"')
    report = place.connect().gc()
    assert not report.ok
    assert [(finding.table, finding.kind) for finding in report.findings] == [
        ("torn", "corrupt_object")
    ]


def left_in(root: Path, table: str) -> list[str]:
    return sorted(path.name for path in (root / table).rglob("*.parquet"))


def stores_in_a_table_that_is_dropped_with_its_data(root: Path) -> None:
    """Store a file in a table whose data another client deletes; then the owner dies."""
    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with lv.connect(root, settings=settings) as owner, lv.connect(root) as other:
        owner.create_table("t", accounts(1))
        txn = owner.transaction()
        txn.read("t")
        other.drop_table("t", delete_data=True)
        txn.append("t", accounts(1))
        inside(owner).store = Closed(inside(owner).store, lambda key: True)
    assert len(left_in(root, "t")) == 1


def test_gc_deletes_files_stored_in_a_table_after_its_data_was_deleted(tmp_path: Path) -> None:
    stores_in_a_table_that_is_dropped_with_its_data(tmp_path)
    with lv.connect(tmp_path) as lake:
        lake.gc()
        assert len(left_in(tmp_path, "t")) == 1  # the owner may be alive
    with lv.connect(tmp_path, settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.gc()
        assert left_in(tmp_path, "t") == []


def test_gc_keeps_files_in_a_deleted_tables_directory_that_another_lake_has_claimed(
    tmp_path: Path,
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    stores_in_a_table_that_is_dropped_with_its_data(ours)
    with lv.connect(theirs) as other:
        other.create_table("t", accounts(1))
    claim = "t/_lakevilla/lake.json"
    (ours / claim).parent.mkdir(parents=True, exist_ok=True)
    (ours / claim).write_bytes((theirs / claim).read_bytes())
    with lv.connect(ours, settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.gc()
    assert len(left_in(ours, "t")) == 1


def test_gc_keeps_files_of_a_lake_inside_a_deleted_tables_directory(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as outer:
        outer.create_table("t", accounts(1))
        outer.drop_table("t", delete_data=True)
    with pytest.warns(lv.LakeVillaWarning, match="inside"):
        inner = lv.connect(tmp_path / "t")
    with inner:
        with unpublished(inner):
            inner.create_table("decided", accounts(1))
        with lv.connect(tmp_path, settings=lv.Settings(max_age_seconds=0)) as outer:
            outer.gc()
        assert inner.recover().ok
        assert inner.read("decided").num_rows == 1


def test_gc_keeps_files_just_copied_into_a_deleted_tables_directory(tmp_path: Path) -> None:
    """A copy of a table may write the data files before the log."""
    place = tmp_path / "t"
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", accounts(1))
        lake.drop_table("t", delete_data=True)
        place.mkdir(exist_ok=True)
        old = time.time() - 2 * 24 * 3600
        for number, stored in enumerate((old, time.time())):
            path = place / f"lv-h-{uuid7(int(old * 1000), number)}-{number}.parquet"
            path.write_bytes(b"")
            os.utime(path, (stored, stored))
        (_, just_copied) = left_in(tmp_path, "t")
        lake.gc()
        assert left_in(tmp_path, "t") == [just_copied]


def copied_away(lake: lv.Lake, tmp_path: Path) -> Path:
    """Make a table of three commits, and return a copy of its directory."""
    for number in range(3):
        lake.run(lambda txn, number=number: txn.append("t", accounts(1)))
    lake.recover()
    return Path(shutil.copytree(tmp_path / "lake" / "t", tmp_path / "copy"))


@pytest.mark.parametrize("cleaned", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_gc_keeps_a_table_that_was_copied_back_into_its_deleted_directory(
    tmp_path: Path, kind: Literal["delta", "iceberg"], cleaned: bool
) -> None:
    with lv.connect(tmp_path / "lake", settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.create_table("t", accounts(1), format=kind)
        copy = copied_away(lake, tmp_path)
        if cleaned and kind == "iceberg":
            for old in sorted(copy.glob("metadata/v*.metadata.json"))[:-1]:
                old.unlink()
        lake.run(lambda txn: txn.append("t", accounts(1)))
        lake.drop_table("t", delete_data=True)
        shutil.copytree(copy, tmp_path / "lake" / "t", dirs_exist_ok=True)
        lake.gc()
        lake.register("t")
        assert lake.read("t").num_rows == 4


def test_gc_keeps_an_iceberg_table_of_which_only_the_metadata_was_copied_back_so_far(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path / "lake", settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.create_table("t", accounts(1), format="iceberg")
        copy = copied_away(lake, tmp_path)
        lake.drop_table("t", delete_data=True)
        metadata = tmp_path / "lake" / "t" / "metadata"
        copied = {
            Path(shutil.copy(one, metadata)) for one in copy.glob("metadata/v*.metadata.json")
        }
        lake.gc()
        assert set(metadata.iterdir()) == copied
        shutil.copytree(copy, tmp_path / "lake" / "t", dirs_exist_ok=True)
        lake.register("t")
        assert lake.read("t").num_rows == 4


def test_gc_deletes_metadata_written_late_into_a_deleted_tables_directory(tmp_path: Path) -> None:
    """A slow publisher may write metadata and a manifest list that name deleted manifests."""
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", accounts(1), format="iceberg")
        copy = copied_away(lake, tmp_path)
        *_, newest = sorted(copy.glob("metadata/v*.metadata.json"))
        lake.drop_table("t", delete_data=True)
        metadata = tmp_path / "lake" / "t" / "metadata"
        shutil.copy(newest, metadata)
        for own in sorted(copy.glob("metadata/snap-*.avro")):
            shutil.copy(own, metadata)
        lake.gc()
        assert list(metadata.iterdir()) == []


def changes_rows(txn: lv.Transaction) -> None:
    txn.create_table("new", accounts(3))
    txn.update("new", {"balance": "balance + 1"}, "id = 1")


def creates_with_large_files(txn: lv.Transaction) -> None:
    txn.create_table("new", {"id": list(range(10_000))})


@pytest.mark.parametrize(("work", "limit"), [(changes_rows, 2**20), (creates_with_large_files, 1)])
def test_gc_deletes_files_of_a_new_table_whose_creator_died(
    tmp_path: Path, work: Callable[[lv.Transaction], None], limit: int
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=limit)
    with lv.connect(tmp_path, settings=settings) as owner:
        owner.create_table("other", accounts(1))
        txn = owner.transaction()
        work(txn)
        assert left_in(tmp_path, "new") != []
        with lv.connect(tmp_path) as lake:
            lake.gc()
            assert left_in(tmp_path, "new") != []  # the creator may be alive
        with lv.connect(tmp_path, settings=lv.Settings(max_age_seconds=0)) as lake:
            lake.gc()
            assert left_in(tmp_path, "new") == []
            lake.gc()  # gc deletes the note once it finds no more files
        assert list((tmp_path / "_lakevilla/txns").rglob("new")) == []
        with pytest.raises(lv.TransactionAborted):
            txn.commit()


@pytest.mark.parametrize(("work", "limit"), [(changes_rows, 2**20), (creates_with_large_files, 1)])
def test_the_note_of_a_new_table_is_deleted_when_its_creation_is_committed(
    tmp_path: Path, work: Callable[[lv.Transaction], None], limit: int
) -> None:
    with lv.connect(tmp_path, settings=lv.Settings(in_memory_file_limit_bytes=limit)) as lake:
        lake.run(work)
        assert list((tmp_path / "_lakevilla/txns").rglob("new")) == []
        files = left_in(tmp_path, "new")
    with lv.connect(tmp_path, settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.gc()
    assert set(files) >= set(left_in(tmp_path, "new"))
    with lv.connect(tmp_path) as lake:
        assert lake.read("new").num_rows in (3, 10_000)


def test_gc_deletes_files_of_a_creation_whose_client_died_right_before_the_commit_point(
    tmp_path: Path,
) -> None:
    with lv.connect(tmp_path) as owner:
        owner.create_table("other", accounts(1))
        inside(owner).store = Closed(inside(owner).store, is_head)
        with pytest.raises(lv.StoreError):
            owner.create_table("new", accounts(1))
    assert len(left_in(tmp_path, "new")) == 1
    with lv.connect(tmp_path, settings=lv.Settings(max_age_seconds=0)) as lake:
        # After this commit HEAD can't have been set back.
        lake.run(lambda txn: txn.append("other", accounts(1)))
        lake.gc()
        lake.gc()
        lake.gc()
        assert left_in(tmp_path, "new") == []
        assert list((tmp_path / "_lakevilla/txns").rglob("new")) == []
