"""A disk that takes no more: of the lake, and of this process's temporary files."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.errors import StoreError
from lakevilla.store.backends import local as durable_files
from tests.support.small_disk import SmallDisk, mounted, refusal
from tests.support.tables import values

pytestmark = pytest.mark.skipif(refusal() is not None, reason=str(refusal()))

MANY = pa.table({"id": range(100_000), "balance": [n * n for n in range(100_000)]})


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", 20_000) as disk:
        yield disk


def replaced(lake: lv.Lake) -> object:
    return lake.run(lambda txn: txn.overwrite("t", MANY, reuse_by=["id"]))


def upserted(lake: lv.Lake) -> object:
    return lake.run(lambda txn: txn.upsert("t", MANY, "id"))


@pytest.mark.parametrize("work", [replaced, upserted])
def test_a_full_disk_of_temporary_files_is_named_and_no_data_file_is_called_damaged(
    tmp_path: Path,
    disk: SmallDisk,
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[lv.Lake], object],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
    settings = lv.Settings(in_memory_file_limit_bytes=0, memory_limit_bytes=24 * 2**20)
    with lv.connect(str(tmp_path / "lake"), settings=settings) as lake:
        lake.create_table("t", MANY)
        disk.leave(200 * 1024)
        with pytest.raises(StoreError, match=f"temporary files .* in {disk.path}.*TMPDIR"):
            work(lake)
        disk.clear()
        work(lake)
        assert values(lake.read("t")) == list(range(100_000))


def test_a_process_without_a_directory_for_temporary_files_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    settings = lv.Settings(memory_limit_bytes=333 << 20)  # no other lake's database is used here
    with lv.connect(str(tmp_path), settings=settings) as lake:
        lake.create_table("t", MANY)
        with pytest.raises(StoreError, match="set TMPDIR"):
            lake.sql("SELECT count(*) FROM t")


def changes(lake: lv.Lake) -> list[Callable[[], object]]:
    return [
        lambda: lake.run(lambda txn: txn.append("t", MANY)),
        lambda: lake.run(lambda txn: txn.update("t", {"balance": "1"}, where="true")),
        lambda: lake.session().sql("CREATE TABLE s AS SELECT * FROM t"),
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("left", [20_000, 0])
def test_a_write_that_does_not_fit_on_the_disk_changes_nothing_and_says_what_to_do(
    disk: SmallDisk, kind: str, left: int
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=0, publish_timeout_seconds=1)
    with lv.connect(str(disk.path / "lake"), settings=settings) as lake:
        lake.create_table("t", MANY.slice(0, 30_000), format=kind)
        for change in changes(lake):
            disk.leave(left)
            with pytest.raises(StoreError, match="no space left on the device; free some"):
                change()
        disk.clear()
        assert lake.recover().ok
        assert values(lake.read("t")) == list(range(30_000))
        assert [one for one in lake.doctor(files=True).findings if one.severity == "error"] == []
        lake.run(lambda txn: txn.append("t", [{"id": -1, "balance": 0}]))
        assert lake.table("t").count() == 30_001


def test_a_disk_that_is_full_only_when_it_is_synced_refuses_the_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".parquet"):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        sync(descriptor)

    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with lv.connect(str(tmp_path), settings=settings) as lake:
        lake.create_table("t", MANY.slice(0, 5))
        with monkeypatch.context() as patch:
            patch.setattr(durable_files.os, "fsync", full)
            with pytest.raises(StoreError, match=r"t/lv-h-.* the disk quota is used up"):
                lake.run(lambda txn: txn.append("t", MANY))
        assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
        assert values(lake.read("t")) == [0, 1, 2, 3, 4]
