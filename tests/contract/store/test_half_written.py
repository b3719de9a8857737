"""A half-written data file: while it is written, and after its writer was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.backends import local as durable_files
from tests.support.places import Place
from tests.support.tables import accounts, values

pytestmark = pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I])


def halfway(then: Callable[[], None]) -> Callable[[int, memoryview], int]:
    """Return an ``os.write`` that writes half of the first data file and then calls ``then``."""
    write, done = os.write, []

    def halves(descriptor: int, rest: memoryview) -> int:
        if done or not os.readlink(f"/proc/self/fd/{descriptor}").endswith(".parquet"):
            return write(descriptor, rest)
        done.append(True)
        written = write(descriptor, rest[: len(rest) // 2])
        then()
        return written

    return halves


def data_files(place: Place) -> list[Path]:
    return list(Path(place.root, "t").rglob("*.parquet"))


def test_no_client_reads_a_data_file_that_is_half_written(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, features: lv.Feature
) -> None:
    seen: list[object] = []

    def look() -> None:
        assert len(data_files(local_place)) == 2, "it lies under its own name"
        with local_place.connect() as other:
            other.gc()
            assert [one for one in other.doctor(files=True).findings if one.level == "error"] == []
            seen.append(values(other.read("t")))
            seen.append(other.sql("SELECT count(*) AS n FROM t")["n"].to_pylist())
            other.run(lambda txn: txn.append("t", accounts(1, 7)))
        seen.append(len(local_place.seen("t")))

    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        monkeypatch.setattr(durable_files.os, "write", halfway(look))
        with lake.transaction(features=features) as txn:
            txn.append("t", accounts(2, 3))
    assert seen == [[0], [1], 2]
    assert sorted(row["balance"] for row in local_place.seen("t")) == [3, 3, 7, 100]


def append_and_die_halfway(root: str, features: lv.Feature) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    durable_files.os.write = halfway(die)  # type: ignore[assignment]
    with lv.connect(root) as lake, lake.transaction(features=features) as txn:
        txn.append("t", accounts(2, 3))


@pytest.mark.night
def test_a_killed_writers_half_written_file_affects_no_client(
    local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        process = multiprocessing.get_context("spawn").Process(
            target=append_and_die_halfway, args=(local_place.root, features)
        )
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert len(data_files(local_place)) == 2
        lake.run(lambda txn: txn.append("t", accounts(1, 7)))
        assert [one for one in lake.doctor(files=True).findings if one.level == "error"] == []
        assert values(lake.read("t"), "balance") == [7, 100]
    assert sorted(row["balance"] for row in local_place.seen("t")) == [7, 100]
