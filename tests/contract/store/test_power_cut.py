"""A power cut at any time keeps acknowledged commits; any other commit is whole or absent."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.errors import LakeVillaError
from lakevilla.store.backends import local
from lakevilla.store.backends import local as durable_files
from lakevilla.store.base import NEW, Condition
from tests.support.search import how_many
from tests.support.simulated.disk import Disk, Left
from tests.support.tables import accounts

TABLES = ("a", "b")


def both(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for table in TABLES:
            txn.append(table, accounts(2, 1))


def alone(lake: lv.Lake) -> None:
    with lake.transaction(features=lv.Feature.NONE) as txn:
        txn.append("a", accounts(2, 2))


def rewrite(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.update("b", {"balance": "balance + 10"}, where="id = 0")
        txn.append("a", accounts(2, 3))


STEPS: tuple[Callable[[lv.Lake], None], ...] = (both, alone, rewrite)
Balances = tuple[list[int], list[int]]

#: The balances of a and b after each number of steps.
STATES: list[Balances] = [
    ([100], [100]),
    ([1, 1, 100], [1, 1, 100]),
    ([1, 1, 2, 2, 100], [1, 1, 100]),
    ([1, 1, 2, 2, 3, 3, 100], [1, 11, 110]),
]


def worked(root: Path, monkeypatch: pytest.MonkeyPatch, held: int = 8 * 1024 * 1024) -> Disk:
    """Return the simulated disk of a lake after all steps."""
    disk = Disk(root)
    settings = lv.Settings(in_memory_file_limit_bytes=held)
    with lv.connect(str(root), settings=settings) as lake:
        for table in TABLES:
            lake.create_table(table, accounts(1))
    with disk.watched(monkeypatch), lv.connect(str(root), settings=settings) as lake:
        for step in STEPS:
            step(lake)
            disk.acknowledged += 1
    return disk


def fault_of(disk: Disk, left: Left, states: Sequence[Balances] = STATES) -> str | None:
    """Return what is wrong with the lake that a power cut has left, or None."""
    disk.restore(left)
    done = left[1]
    try:
        with lv.connect(str(disk.root)) as lake:
            seen = tuple(sorted(lake.read(table)["balance"].to_pylist()) for table in TABLES)
            if seen not in states[done : done + 2]:
                return f"after {done} steps: {seen}"
            # The lake can be written further, and other clients see the same rows.
            both(lake)
        logs = [DeltaTable(str(disk.root / table)).to_pyarrow_table() for table in TABLES]
    except (LakeVillaError, OSError) as error:
        return f"after {done} steps: {error}"
    if any(len(log) != len(rows) + 2 for log, rows in zip(logs, seen, strict=True)):
        return f"after {done} steps, by the logs: {[len(log) for log in logs]}"
    return None


@pytest.mark.parametrize("held", [8 * 1024 * 1024, 0], ids=["in memory", "by the engine"])
def test_acknowledged_commits_survive_every_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    disk = worked(tmp_path / "lake", monkeypatch, held)
    assert len(disk.left) > 2 * disk.barriers
    cuts = disk.left[:: how_many(4, whole=1)]
    faults = [fault for left in cuts if (fault := fault_of(disk, left)) is not None]
    assert faults == []


@pytest.mark.parametrize("step", [both, alone, rewrite])
def test_a_commit_is_acknowledged_only_if_its_names_are_on_the_disk_though_a_sync_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[[lv.Lake], None]
) -> None:
    """The disk reports an error once, at each sync in turn: the read-back must not trust names."""
    ended = []
    for failing in range(how_many(3, whole=0), 40, how_many(4, whole=1)):
        disk = Disk(tmp_path / str(failing))
        settings = lv.Settings(retry_base_seconds=0.001, publish_timeout_seconds=0.2)
        with lv.connect(str(disk.root), settings=settings) as lake:
            for table in TABLES:
                lake.create_table(table, accounts(1))
        with disk.watched(monkeypatch), monkeypatch.context() as patch:
            fired = fail_once(patch, failing)
            with lv.connect(str(disk.root), settings=settings) as lake:
                with contextlib.suppress(lv.StoreError, lv.CommitOutcomeUnknown):
                    step(lake)
                    disk.acknowledged += 1
            last = disk.cut()
        if not fired:
            break
        ended.append(disk.acknowledged)
        states = [STATES[0], AFTER[step]]
        faults = [fault_of(disk, left, states) for left in last]
        assert faults == [None] * len(last), f"the sync of {fired} failed"
    assert 1 in ended


#: The balances of a and b after one step alone.
AFTER = {
    both: ([1, 1, 100], [1, 1, 100]),
    alone: ([2, 2, 100], [100]),
    rewrite: ([3, 3, 100], [110]),
}


def fail_once(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the sync of that number fail, and return where it was, once it has."""
    sync, seen, fired = os.fsync, itertools.count(), []

    def failing(descriptor: int) -> None:
        if next(seen) == number:
            fired.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    monkeypatch.setattr(durable_files.os, "fsync", failing)
    return fired


def no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    write = durable_files.write_new
    monkeypatch.setattr(local, "write_new", lambda *given: write(*given[:-1], False))


def no_bytes_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(directory: int, name: str, body: bytes, durable: bool) -> os.stat_result:
        status = durable_files.write_new(directory, name, body, False)
        durable_files.sync_directory(directory)
        return status

    monkeypatch.setattr(local, "write_in_place", without)


def no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (local, durable_files):
        monkeypatch.setattr(module, "sync_directory", lambda directory: None)


def no_names_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = durable_files.sync_directory

    def some(directory: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{directory}")).name not in TABLES:
            sync(directory)

    monkeypatch.setattr(durable_files, "sync_directory", some)


def entries_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: log entries get their names before their bytes are on the disk."""
    put = local.LocalStore.put

    def put_in_place(self: local.LocalStore, key: str, body: bytes, condition: Condition) -> object:
        return put(self, key, body, NEW if "/_delta_log/" in key else condition)

    monkeypatch.setattr(local.LocalStore, "put", put_in_place)


@pytest.mark.parametrize(
    "lost", [no_bytes, no_bytes_of_data, no_names, no_names_of_data, entries_in_place]
)
def test_a_missing_write_barrier_is_found_by_the_power_cut_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: Callable[[pytest.MonkeyPatch], None]
) -> None:
    with monkeypatch.context() as broken:
        lost(broken)
        disk = worked(tmp_path / "lake", monkeypatch)
    assert any(fault_of(disk, left) is not None for left in disk.left)
