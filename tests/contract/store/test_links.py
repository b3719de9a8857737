"""Links and named pipes in a local lake: clients touch no file outside, and never wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place

Work = Callable[[lv.Lake], object]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        lake.create_table("t", [{"a": 1}])
    return place


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Make another user's old files, one of which looks like a table's file."""
    documents = tmp_path / "documents"
    documents.mkdir()
    old = time.time() - 30 * 86400
    for name in ("a.parquet", "b.txt"):
        (documents / name).write_text("precious")
        os.utime(documents / name, (old, old))
    return documents


@pytest.mark.parametrize(
    "work",
    [
        lambda lake: lake.table("t").vacuum(dry_run=False),
        lambda lake: lake.maintain(),
        lambda lake: lake.gc(),
        lambda lake: lake.drop_table("t", delete_data=True),
    ],
    ids=["vacuum", "maintain", "gc", "drop"],
)
def test_files_behind_a_link_within_a_table_are_not_deleted(
    place: Place, documents: Path, work: Work
) -> None:
    os.symlink(documents, Path(place.root, "t", "x"))
    with place.connect() as lake:
        work(lake)
    assert sorted(os.listdir(documents)) == ["a.parquet", "b.txt"]


@pytest.mark.parametrize("work", ["vacuum", "drop", "gc"])
def test_no_file_is_deleted_from_a_table_whose_directory_became_a_link(
    place: Place, tmp_path: Path, work: str
) -> None:
    """The table's own files are behind the link; files of other users may be there, too."""
    away = tmp_path / "away"
    Path(place.root, "t").rename(away)
    os.symlink(away, Path(place.root, "t"))
    before = sorted(str(path) for path in away.rglob("*"))
    works: dict[str, Work] = {
        "vacuum": lambda lake: lake.table("t").vacuum(
            0, dry_run=False, enforce_retention_duration=False
        ),
        "drop": lambda lake: lake.drop_table("t", delete_data=True),
        "gc": lambda lake: lake.gc(),
    }
    with place.connect() as lake, suppress(lv.LakeVillaError):
        works[work](lake)
    assert sorted(str(path) for path in away.rglob("*")) == before


@pytest.mark.parametrize(
    "make",
    [
        lambda lake: lake.create_table("x/new", [{"a": 1}]),
        lambda lake: lake.create_table("x/new", [{"a": 1}], or_replace=True),
        lambda lake: lake.session().sql("CREATE TABLE x.new (a INT)"),
        lambda lake: lake.export("t", "x/new", copy=True),
        lambda lake: lake.clone("t", "x/new"),
    ],
    ids=["create", "or replace", "SQL", "export", "clone"],
)
def test_a_table_name_below_a_link_is_refused(place: Place, documents: Path, make: Work) -> None:
    os.symlink(documents, Path(place.root, "x"))
    with place.connect() as lake, pytest.raises(lv.InvalidOperation):
        make(lake)
    assert sorted(os.listdir(documents)) == ["a.parquet", "b.txt"]


def test_all_verbs_work_in_a_lake_whose_root_is_a_link_or_below_one(tmp_path: Path) -> None:
    (tmp_path / "mnt" / "data").mkdir(parents=True)
    os.symlink(tmp_path / "mnt" / "data", tmp_path / "data")
    large = lv.Settings(in_memory_file_limit_bytes=0)
    with lv.connect(str(tmp_path / "data" / "lake"), settings=large) as lake:
        lake.create_table("t", pa.table({"a": range(1000)}))
        lake.run(lambda txn: txn.update("t", {"a": "a + 1"}, where="a > 500"))
        lake.table("t").vacuum(dry_run=False)
        assert lake.gc().ok
        assert lake.read("t").num_rows == 1000
    with lv.connect(str(tmp_path / "mnt" / "data" / "lake")) as same:
        same.drop_table("t", delete_data=True)
    assert not list((tmp_path / "mnt" / "data" / "lake" / "t").rglob("*.parquet"))


def test_a_large_data_file_is_not_written_into_a_linked_partition_directory(
    place: Place, documents: Path
) -> None:
    """The engine writes large files itself, by their path."""
    with place.connect() as lake:
        lake.create_table("p", pa.table({"a": [1], "d": ["x"]}), partition_by=["d"])
    directory = next(Path(place.root, "p").glob("d=*"))
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    os.symlink(documents, directory)
    large = lv.Settings(in_memory_file_limit_bytes=0)
    rows = pa.table({"a": range(1000), "d": ["x"] * 1000})
    with place.connect(settings=large) as lake, pytest.raises(lv.LakeVillaError, match="link"):
        lake.run(lambda txn: txn.append("p", rows))
    assert sorted(os.listdir(documents)) == ["a.parquet", "b.txt"]


def test_a_pipe_as_a_log_entry_is_refused_at_once(place: Place) -> None:
    os.mkfifo(Path(place.root, "t/_delta_log/00000000000000000001.json"))
    with place.connect() as lake, pytest.raises(lv.StoreError, match="no regular file"):
        lake.read("t")


def test_a_pipe_as_a_data_file_is_refused_at_once(place: Place) -> None:
    file = next(Path(place.root, "t").glob("*.parquet"))
    file.unlink()
    os.mkfifo(file)
    with place.connect() as lake:
        with pytest.raises(lv.CorruptObject, match="no regular file"):
            lake.read("t")
        with pytest.raises(lv.LakeVillaError):
            lake.sql("SELECT * FROM t")
