"""A driver on ``local-cluster``, whose executors are processes of their own.

``python clusters.py lost ROOT``: kills an executor while it writes, and one while a merge
shuffles. ``python clusters.py elastic ROOT``: executors are started when there is work, and end
when they have none. ``python clusters.py packed ROOT ARCHIVE``: the workers' Python is that of a
packed environment, and has LakeVilla from nowhere else.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Executors inherit it: what this driver imports must not reach them so.
os.environ.pop("PYTHONPATH", None)


def main() -> None:
    mode, root = sys.argv[1:3]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    modes = {"lost": lost, "elastic": elastic, "packed": packed}
    result = modes[mode](root, *sys.argv[3:])
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    print("RESULT " + json.dumps(result), flush=True)


def lost(root: str) -> dict[str, Any]:
    import lakevilla as lv
    from lakevilla.engines.spark.upkeep import merge

    _with_this_python()
    session = _session({"spark.task.maxFailures": "8"})
    lake: Any = lv.connect(root, spark=session)
    result: dict[str, Any] = {}

    slowly = _slowly(0.2)
    # Without room in memory a file is stored as soon as it is full, and full with a batch.
    small = lv.Settings(in_memory_file_limit_bytes=1, target_file_size_bytes=1)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    files: Any = lv.connect(root, spark=session, settings=small)
    wide = session.range(0, 400, 1, 4).selectExpr("id", "repeat('x', 20000) AS text")
    files.create_table("t", wide.schema)
    rows = wide.mapInArrow(slowly, "id long, text string")
    with _killing(session, result, "append", lambda: _parquet(root) >= 2):
        files.run(lambda txn: txn.append("t", rows))
    result["appended"] = [
        lake.snapshot().read("t").count(),
        lake.snapshot().read("t").distinct().count(),
    ]
    session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    merge.BROADCAST_BYTES = 0
    source = session.range(200, 600, 1, 4).selectExpr("id", "'merged' AS text")
    before = _parquet(root)
    with _killing(session, result, "merge", lambda: _parquet(root) > before):
        with lake.transaction() as txn:
            merging = txn.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_matched_update({"text": "s.text"}).when_not_matched_insert_all().execute()
    found = lake.sql(
        "SELECT count(*), count(DISTINCT id), count_if(text = 'merged') FROM t"
    ).first()
    result["merged"] = list(found)
    session.stop()
    with lv.connect(root, settings=lv.Settings(max_age_seconds=0)) as cleaner:
        cleaner.gc()
    return result | _left(root)


def elastic(root: str) -> dict[str, Any]:
    """Of two executors one has no more work while the other goes on, and then both have none."""
    import lakevilla as lv
    from lakevilla.engines.spark.upkeep import merge

    _with_this_python()
    session = _session(
        {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.minExecutors": "0",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
            "spark.dynamicAllocation.executorIdleTimeout": "1s",
            "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
        }
    )
    application = session.sparkContext.applicationId
    lake: Any = lv.connect(root, spark=session)
    wide = session.range(0, 400, 1, 4).selectExpr("id", "repeat('x', 100) AS text")
    lake.create_table("t", wide.schema)

    def until(count: int) -> None:
        end = time.monotonic() + 120
        while len(_executors(application)) != count:
            assert time.monotonic() < end, _executors(application)
            time.sleep(0.1)

    with _counting(application) as counts:
        rows = wide.mapInArrow(_slowly(0.3), "id long, text string")
        lake.run(lambda txn: txn.append("t", rows))
        until(0)
        counts.append(0)
        # The last rows are one task's, which goes on when the other executor has left.
        merge.BROADCAST_BYTES = 0
        uneven = wide.selectExpr("id + 200 AS id", "'merged' AS text")
        late = uneven.where("id >= 500").mapInArrow(_slowly(1.0), "id long, text string")
        source = uneven.where("id < 500").union(late)
        with lake.transaction() as txn:
            merging = txn.merge("t", source, "t.id = s.id", source_alias="s", target_alias="t")
            merging.when_matched_update({"text": "s.text"}).when_not_matched_insert_all().execute()
        until(0)
        counts.append(0)
    found = lake.sql(
        "SELECT count(*), count(DISTINCT id), count_if(text = 'merged') FROM t"
    ).first()
    session.stop()
    # An executor that leaves with a shuffle has tasks run again, which leaves files of the first.
    with lv.connect(root, settings=lv.Settings(max_age_seconds=0)) as cleaner:
        cleaner.gc()
    return {"executors": counts, "merged": list(found)} | _left(root)


def _with_this_python() -> None:
    import lakevilla

    os.environ["PYSPARK_PYTHON"] = sys.executable
    # The tests' code is not on the workers: what they get of it is pickled by value.
    os.environ["PYTHONPATH"] = str(Path(lakevilla.__file__).parents[1])


def _slowly(seconds: float) -> Callable[[Any], Any]:
    """Hands rows on, ten at a time; pickled by its value."""

    def handed(batches: Any) -> Any:
        for batch in batches:
            for start in range(0, batch.num_rows, 10):
                time.sleep(seconds)
                yield batch.slice(start, 10)

    return handed


def _left(root: str) -> dict[str, Any]:
    """Return whether the lake is well, and the files that no log names."""
    import lakevilla as lv

    with lv.connect(root) as lake:
        well = lake.doctor().ok and lake.verify().ok
    named = set()
    for entry in Path(root, "t", "_delta_log").glob("*.json"):
        for line in entry.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is not None:
                named.add(Path(added["path"]).name)
    orphans = {path.name for path in Path(root, "t").glob("*.parquet")} - named
    return {"doctor": well, "orphans": sorted(orphans)}


def packed(root: str, archive: str) -> dict[str, Any]:
    import lakevilla as lv

    os.environ["PYSPARK_PYTHON"] = "./env/bin/python"
    session = _session({"spark.archives": f"{archive}#env"})
    lake: Any = lv.connect(root, spark=session)
    lake.create_table("t", session.range(100).selectExpr("id", "id % 3 AS p"), partition_by="p")
    with lake.transaction() as txn:
        updated = txn.update("t", {"id": "id + 1000"}, where="p = 1").rows_updated
    lake.table("t").optimize(z_order_by="id")

    def place(batches: Any) -> Any:
        import pyarrow as pa

        import lakevilla

        for _ in batches:
            yield pa.record_batch({"place": [lakevilla.__file__]})

    places = session.range(0, 2, 1, 2).mapInArrow(place, "place string").distinct().collect()
    counted = lake.snapshot().read("t").count()
    session.stop()
    return {"updated": updated, "rows": counted, "places": [row["place"] for row in places]}


@contextmanager
def _killing(
    session: Any, result: dict[str, Any], what: str, when: Callable[[], bool]
) -> Iterator[None]:
    """A block in which an executor of this session is killed once something has happened."""
    done = threading.Event()

    def kill() -> None:
        while not done.wait(0.05):
            if when():
                executors = _executors(session.sparkContext.applicationId)
                os.kill(executors[0], signal.SIGKILL)
                result[f"killed in {what}"] = len(executors)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        done.set()
        killer.join()


@contextmanager
def _counting(application: str) -> Iterator[list[int]]:
    """A block, and how many executors there are in it: a number for each change."""
    counts: list[int] = []
    done = threading.Event()

    def count() -> None:
        while not done.wait(0.1):
            now = len(_executors(application))
            if not counts or counts[-1] != now:
                counts.append(now)

    counter = threading.Thread(target=count)
    counter.start()
    try:
        yield counts
    finally:
        done.set()
        counter.join()


def _executors(application: str) -> list[int]:
    """The processes of this application's executors, and of no other's."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            command = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        is_executor = any("CoarseGrainedExecutorBackend" in part for part in command)
        if is_executor and application in command:
            found.append(int(directory.name))
    return sorted(found)


def _parquet(root: str) -> int:
    return sum(1 for _ in Path(root, "t").glob("*.parquet"))


def _session(more: dict[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakevilla").master("local-cluster[2,1,1024]")
    for key, value in {
        "spark.executor.memory": "600m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **more,
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    main()
