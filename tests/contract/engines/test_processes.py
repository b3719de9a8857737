"""One engine serves threads, and a forked child gets a database of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from tests.support.engine_lake import Lake, predicate


def test_threads_share_an_engine(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.make("t", pa.table({"k": list(range(1000)), "v": ["x"] * 1000}))
    table = lake.input("t")
    layout = table.layout
    start = threading.Barrier(8)

    def work(number: int) -> int:
        start.wait()
        found = 0
        for step in range(5):
            where = predicate(f"k % 8 = {number}", layout)
            rows = lake.runner.run(lake.engine.scan(table, None, where)).read_all()
            result = lake.runner.run(
                lake.engine.delete(table, predicate(f"k < {number + step}", layout), lake.name)
            )
            assert result.rows_deleted == number + step
            found += rows.num_rows
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [625] * 8


def test_two_scans_can_be_read_alternately(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.make("t", pa.table({"k": list(range(300_000))}))
    table = lake.input("t")
    left, right = (lake.runner.run(lake.engine.scan(table, None, None)) for _ in range(2))
    seen = [0, 0]
    for a, b in zip(left, right, strict=False):
        seen[0] += a.num_rows
        seen[1] += b.num_rows
        lake.runner.run(lake.engine.scan(table, ["k"], predicate("k = 5", table.layout))).read_all()
    assert seen == [300_000, 300_000]


def test_a_forked_child_can_read_and_ends(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.make("t", pa.table({"k": [1, 2, 3]}))
    assert lake.scan("t").num_rows == 3
    parents = lake.engine._database.directory
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, pickle.dumps(lake.scan("t", where="k > 1").num_rows))
            assert lake.engine._database.directory != parents
        finally:
            os._exit(0)
    os.close(write)
    assert pickle.loads(os.read(read, 100)) == 2
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    assert os.path.isdir(parents)
    assert lake.scan("t").num_rows == 3


def test_a_forked_child_can_collect_engines_that_its_parent_no_longer_uses(tmp_path: Path) -> None:
    gc.collect()  # frees objects of earlier tests, such as connections
    gc.disable()  # the parent's unused engines still exist at the fork
    try:
        for number in range(2):
            lake = Lake(str(tmp_path / str(number)))
            lake.make("t", pa.table({"k": [1, 2, 3]}))
            assert lake.scan("t").num_rows == 3
            select = lake.engine.query(
                "SELECT count(*) AS n FROM t", {"t": lake.input("t")}, {}, {}
            )
            assert lake.runner.run(select).to_pylist() == [{"n": 3}]
            del lake, select
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # closing an engine would wait for ever for threads of the parent
            gc.collect()
            os._exit(0)
    finally:
        gc.enable()
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.make("t", pa.table({"k": [1, 2, 3]}))
    locks = [lake.engine._database._lock, lake.engine._closed._lock, lake.runner.requests._lock]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locks[0], locks[1], locks[2]:
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        ended = 1
        with contextlib.suppress(BaseException):
            ended = int(lake.scan("t").num_rows != 3)
        os._exit(ended)
    done.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0


def test_the_temporary_directory_is_deleted_with_the_engine(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    directory = lake.engine._database.directory
    assert os.path.isdir(directory)
    del lake
    gc.collect()
    assert not os.path.exists(directory)
