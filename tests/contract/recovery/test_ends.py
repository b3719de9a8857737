"""A process that ends, or runs an event loop, in the middle of commits leaves no half of one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv

_SCHEMA = pa.schema([("n", pa.int64())])

#: Threads commit to two tables without end, and the main thread ends after the first commits.
_COMMITS = """
import sys, threading
import lakevilla as lv

root, daemon, begun = sys.argv[1], sys.argv[2] == "daemon", threading.Semaphore(0)
lake = lv.connect(root, settings=lv.Settings(durable_files=False))

def work(number):
    for step in range(1_000_000 if daemon else 3):
        row = {"n": number * 1_000_000 + step}
        try:
            lake.run(lambda txn: (txn.append("a", [row]), txn.append("b", [row])))
        finally:
            begun.release()

for number in range(3):
    threading.Thread(target=work, args=(number,), daemon=daemon).start()
begun.acquire()
"""


def rows(lake: lv.Lake, table: str) -> list[int]:
    found: list[int] = lake.read(table)["n"].to_pylist()
    return sorted(found)


@pytest.mark.parametrize("threads", ["daemon", "waited for"])
def test_commits_at_the_end_of_the_interpreter_are_in_all_tables_or_in_none(
    tmp_path: Path, threads: str
) -> None:
    with lv.connect(str(tmp_path)) as lake:
        for table in ("a", "b"):
            lake.create_table(table, _SCHEMA)
    process = subprocess.run(
        [sys.executable, "-c", _COMMITS, str(tmp_path), threads],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        timeout=60,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    with lv.connect(str(tmp_path)) as lake:
        lake.recover()
        found = rows(lake, "a")
        assert found
        assert found == rows(lake, "b")
        if threads == "waited for":
            assert process.stderr == ""
            assert found == [n * 1_000_000 + step for n in range(3) for step in range(3)]
        lake.run(lambda txn: txn.append("a", [{"n": -1}]))
        assert lake.doctor(files=True).ok


def test_a_task_that_is_cancelled_while_its_thread_commits_has_committed_once(
    tmp_path: Path,
) -> None:
    """A running event loop is no hindrance: verbs block it, or run in a thread of its own."""

    async def work(lake: lv.Lake) -> None:
        lake.run(lambda txn: txn.append("t", [{"n": 1}]))
        commit = asyncio.create_task(
            asyncio.to_thread(lake.run, lambda txn: txn.append("t", [{"n": 2}]))
        )
        await asyncio.sleep(0)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        at_once = [
            asyncio.to_thread(lake.run, lambda txn, n=n: txn.append("t", [{"n": n}]))
            for n in range(3, 7)
        ]
        await asyncio.gather(*at_once)

    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", _SCHEMA)
        asyncio.run(work(lake))  # it waits for the thread of the cancelled task
        assert rows(lake, "t") == [1, 2, 3, 4, 5, 6]


def test_a_forked_child_commits_by_the_lake_of_its_parent_beside_it(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", _SCHEMA)
        lake.run(lambda txn: txn.append("t", [{"n": 0}]))
        open_one = lake.transaction()
        open_one.append("t", [{"n": 1}])
        child = os.fork()
        if child == 0:
            ended = 1
            try:
                lake.run(lambda txn: txn.append("t", [{"n": 2}]))
                ended = int(rows(lake, "t") != [0, 2])
            finally:
                os._exit(ended)
        assert os.waitpid(child, 0)[1] == 0
        open_one.commit()
        assert rows(lake, "t") == [0, 1, 2]
        assert lake.doctor(files=True).ok
