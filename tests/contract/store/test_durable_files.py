"""``durable_files=False``: no wait for the disk, but a killed process loses no commit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.backends import local as durable_files
from tests.support.places import Place
from tests.support.tables import accounts

UNSYNCED = lv.Settings(durable_files=False)


@pytest.mark.parametrize("held", [8 * 1024 * 1024, 0], ids=["in memory", "by the engine"])
def test_no_file_is_synced_to_the_disk_without_durable_files(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Nor are the files that the engine writes itself."""
    synced: list[str] = []
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(durable_files.os, "fsync", counted)

    def work(settings: lv.Settings, table: str) -> None:
        with local_place.connect(settings=settings) as lake:
            lake.create_table(table, accounts(3))
            with lake.transaction() as txn:
                txn.append(table, accounts(2))
                txn.update(table, {"balance": "balance + 1"}, where="id = 1")
        assert len(local_place.seen(table)) == 5

    work(lv.Settings(durable_files=False, in_memory_file_limit_bytes=held), "a")
    assert synced == []
    work(lv.Settings(in_memory_file_limit_bytes=held), "b")
    assert any("/b/" in name or name.endswith("/b") for name in synced)
    assert any("_delta_log" in name for name in synced)


def commit_and_die(root: str) -> None:
    lake = lv.connect(root, settings=UNSYNCED)
    for number in range(3):
        with lake.transaction() as txn:
            txn.append("a", accounts(1, number))
            txn.append("b", accounts(1, number))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.night
def test_acknowledged_commits_survive_a_killed_process_without_durable_files(
    local_place: Place,
) -> None:
    with local_place.connect(settings=UNSYNCED) as lake:
        for table in "ab":
            lake.create_table(table, accounts(1))
    process = multiprocessing.get_context("spawn").Process(
        target=commit_and_die, args=(local_place.root,)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    for table in "ab":
        assert sorted(row["balance"] for row in local_place.seen(table)) == [0, 1, 2, 100]
    leftovers = [path.name for path in Path(local_place.root).rglob(".lakevilla-tmp-*")]
    assert leftovers == []
