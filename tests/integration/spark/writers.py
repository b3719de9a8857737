"""A driver whose writes meet what clusters do: speculative copies, an executor that is killed.

``python writers.py ROOT MARKS WORK``: on a standalone cluster with a worker at each of two
addresses, as no copy of a task runs on the host of the first. ``MARKS`` is a directory in which
tasks leave notes for each other, ``WORK`` that of the workers.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> None:
    root, marks, work = sys.argv[1:4]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(_cluster(work)).appName("writers")
    for key, value in SPECULATES.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    import lakevilla as lv

    lv.register_data_source(session)
    found: dict[str, Any] = {}
    for number, (what, rows) in enumerate(
        {"speculation": _slow_at_first(marks), "executor": _killed_at_first(marks)}.items()
    ):
        frame = session.range(0, 400, 1, 4).selectExpr("id", f"{number} as job")
        frame = frame.mapInArrow(rows, "id long, job int")
        writer = frame.write.format("lakevilla").option("lake", root).mode("append")
        writer.save("written")
        with lv.connect(root) as lake:
            found[what] = lake.snapshot().read("written").num_rows
    found["marks"] = sorted(path.name for path in Path(marks).iterdir())
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    print("RESULT " + json.dumps(found), flush=True)
    session.stop()


def _cluster(work: str) -> str:
    """Begin a master and two workers in this driver's JVM; the master's address."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    gateway: Any = SparkContext._gateway
    jvm = gateway.jvm
    spark, none = jvm.org.apache.spark, jvm.scala.Option.empty()
    conf = spark.SparkConf()
    master = spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, conf)
    url = f"spark://127.0.0.1:{master._1().address().port()}"
    urls = gateway.new_array(jvm.String, 1)
    urls[0] = url
    for number in (2, 3):
        spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}", 0, 0, 1, 1024, urls, work, jvm.scala.Option.apply(number), conf,
            none,
        )  # fmt: skip
    return url


def _slow_at_first(marks: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """One task waits for a copy of itself, and then both write at once."""

    def rows(batches: Iterable[Any]) -> Iterable[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0:
            copy = Path(marks, "copied")
            if task.attemptNumber():
                copy.touch()
            deadline = time.monotonic() + 100
            while not copy.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
        yield from batches

    return rows


def _killed_at_first(marks: str) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """One task kills its executor when it has had all its rows; those beside it go, too."""

    def rows(batches: Iterable[Any]) -> Iterable[Any]:
        from pyspark import TaskContext

        yield from batches
        task = TaskContext.get()
        assert task is not None
        killed = Path(marks, "killed")
        if task.partitionId() == 1 and not killed.exists():
            killed.touch()
            daemon = Path("/proc", str(os.getppid()), "status").read_text()
            (executor,) = [line.split()[1] for line in daemon.splitlines() if line[:5] == "PPid:"]
            os.kill(int(executor), signal.SIGKILL)
            time.sleep(60)

    return rows


main()
