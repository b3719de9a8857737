"""A driver that does every verb once, on the session it is said; prints what came out.

``python pipeline.py MODE ROOT CHECKPOINT``: ``connect`` (a Connect server of its own), ``cluster``
(``local-cluster``: executors are processes of their own) or ``local``.
"""

from __future__ import annotations

import _thread
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

OPTIONS = json.loads(os.environ.get("LAKE_OPTIONS", "null"))


def main() -> None:
    mode, root = sys.argv[1:3]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = _session(mode)
    if mode == "connect":
        _forbid_py4j()
    import lakevilla as lv

    lake = lv.connect(root, spark=session, storage_options=OPTIONS)
    said: dict[str, Any] = {"session": type(session).__module__, "reads": {}}
    orders = session.range(100).selectExpr("id", "id % 4 as shop", "'new' as state")
    lake.create_table("orders", orders, partition_by=["shop"])
    lake.create_table("stock", session.range(4).selectExpr("id as shop", "100L as pieces"))
    lake.create_table("log", session.range(0).selectExpr("id", "'' as what"))
    with lake.transaction() as txn:
        said["updated"] = txn.update("orders", {"state": "'paid'"}, where="shop = 1").rows_updated
        said["deleted"] = txn.delete("orders", where="id >= 96").rows_deleted
        txn.update("stock", {"pieces": "pieces - 25"}, where="true")
        more = session.range(90, 110).selectExpr("id", "id % 4 as shop", "'more' as state")
        said["upserted"] = txn.upsert("orders", more, "id").rows_inserted
        merge = txn.merge("stock", session.range(2, 6).selectExpr("id as shop"), "t.shop = s.shop",
                          source_alias="s", target_alias="t")  # fmt: skip
        merge.when_matched_update({"pieces": "t.pieces + 1"})
        merge.when_not_matched_insert({"shop": "s.shop", "pieces": "0"}).execute()
        txn.sql("INSERT INTO log SELECT id, state FROM orders WHERE id > :id", {"id": 107})
        said["reads"]["own"] = txn.read("orders", ["state"], where="shop = 1").distinct().count()
        paid = txn.sql("SELECT count(*) AS n FROM orders WHERE state = 'paid'").first()
        said["paid"] = paid["n"]
    said["versions"] = txn.result.versions
    if mode == "connect":
        said["interrupted"] = _interrupted(lake, session)
    if mode == "cluster":
        said["retried"] = _with_retries(lake, session)
    handle = lake.foreach_batch(lambda txn, batch: txn.append("log", batch), query_id="q")
    batch = session.range(3).selectExpr("id", "'batch' as what")
    handle(batch, 0)
    handle(batch, 0)  # handed over again
    streamed = _streamed(lake, session, sys.argv[3])
    said["streamed"] = streamed | _written(lake, session, sys.argv[3])
    with lake.snapshot() as now:
        for table in ("orders", "stock", "log"):
            rows = now.read(table).collect()
            said["reads"][table] = sorted([list(map(str, row)) for row in rows])
        said["embedded"] = {
            table: lv.connect(root, storage_options=OPTIONS).snapshot().read(table).num_rows
            for table in ("orders", "stock", "log")
        }
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    print("RESULT " + json.dumps(said), flush=True)
    session.stop()


def _written(lake: Any, session: Any, checkpoint: str) -> dict[str, int]:
    """Rows by the data source: a frame's, and a stream of what they changed.

    Rows that were replaced by the same ones have not changed.
    """
    from pyspark.sql import datasource

    root = lake.root
    frame = session.range(6).selectExpr("id", "id % 2 as part")
    odd = frame.where("part = 1")
    for rows, mode, name, value in (
        (frame, "append", "partitionBy", "part"),
        (odd, "overwrite", "replaceWhere", "part = 1"),
    ):
        writer = rows.write.format("lakevilla").option("lake", root).option(name, value)
        writer.mode(mode).save("by_source")
    reader = session.readStream.format("lakevilla").option("lake", root)
    changes = reader.option("startingVersion", 1).load("by_source")
    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        sink = changes.writeStream.format("lakevilla").option("lake", root).option("queryId", "w")
    else:  # Spark 4.0

        def copy(txn: Any, batch: Any) -> None:
            txn.append("by_stream", batch)

        lake.create_table("by_stream", changes.schema)
        sink = changes.writeStream.foreachBatch(lake.foreach_batch(copy, query_id="w"))
    sink = sink.option("checkpointLocation", f"{checkpoint}-written").trigger(availableNow=True)
    sink.start("by_stream").awaitTermination()
    read = session.read.format("lakevilla").option("lake", root)
    return {name: read.load(name).count() for name in ("by_source", "by_stream")}


def _streamed(lake: Any, session: Any, checkpoint: str) -> dict[str, int]:
    """The changes of one table, as a stream into another, twice with one checkpoint."""
    lake.create_table("copied", session.range(0).selectExpr("id", "'' as change"))

    def copy(txn: Any, batch: Any) -> None:
        txn.append("copied", batch.selectExpr("id", "_change_type AS change"))

    for _ in range(2):
        changes = session.readStream.format("lakevilla").option("lake", lake.root)
        query = (
            changes.option("startingVersion", 1).load("log").writeStream
            .foreachBatch(lake.foreach_batch(copy, query_id="copy"))
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
    read = session.read.format("lakevilla").option("lake", lake.root)
    return {
        "copied": lake.snapshot().read("copied").where("change = 'insert'").count(),
        "source": read.load("log").count(),
        "before": read.option("version", 3).load("log").count(),
    }


def _interrupted(lake: Any, session: Any) -> str:
    """Ctrl-C while a job runs that would take minutes on all cores; then another job."""
    sleep = "java_method('java.lang.Thread', 'sleep', 300000L)"
    slow = session.range(0, 2, 1, 2).selectExpr(f"cast(length({sleep}) AS long) AS id")
    began = time.monotonic()
    threading.Timer(8, _thread.interrupt_main).start()
    try:
        with lake.transaction() as txn:
            txn.update("orders", {"state": "'lost'"}, where="true")
            txn.append("log", slow)
    except KeyboardInterrupt:
        session.range(4).count()
        return "yes" if time.monotonic() - began < 200 else "the job went on"
    return "no"


def _with_retries(lake: Any, session: Any) -> int:
    """Append rows by tasks that fail once, after files of theirs were stored; files added."""
    import lakevilla as lv

    root, options = lake.root, OPTIONS

    def fails_once(batches):  # type: ignore[no-untyped-def]
        from pyspark import TaskContext

        from lakevilla.store.backends.object_store import open_store

        for batch in batches:
            for start in range(0, batch.num_rows, 10):
                yield batch.slice(start, 10)
        if TaskContext.get().attemptNumber() == 0:
            store = open_store(root, options)
            deadline = time.monotonic() + 60
            while not any(info.key.endswith(".parquet") for info in store.list("retried/")):
                if time.monotonic() > deadline:
                    raise TimeoutError("no file was stored")
                time.sleep(0.1)
            raise OSError("this executor was lost")

    # Without room in memory a file is stored as soon as it is full, and full with a batch.
    small = lv.Settings(in_memory_file_limit_bytes=1, target_file_size_bytes=1)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    files = lv.connect(root, spark=session, storage_options=options, settings=small)
    # Rows that are larger than what Spark gathers before it hands them on.
    wide = session.range(0, 120, 1, 4).selectExpr("id", "repeat('x', 20000) AS text")
    files.create_table("retried", wide.schema)
    frame = wide.mapInArrow(fails_once, "id long, text string")
    added = files.run(lambda txn: (txn.append("retried", frame), txn)[0].files_added)
    session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    return int(added)


def _session(mode: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakevilla")
    if mode == "connect":
        builder = builder.remote("local[2]")
    else:
        builder = builder.master("local-cluster[2,1,1024]" if mode == "cluster" else "local[2]")
        builder = builder.config("spark.executor.memory", "600m")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _forbid_py4j() -> None:
    """From here on a command to a JVM, or a SparkContext, ends the driver."""
    import py4j.java_gateway
    import pyspark

    # The context of the server in this process has set its own.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("py4j was used on Spark Connect")

    py4j.java_gateway.GatewayClient.send_command = forbidden
    py4j.clientserver.JavaClient.send_command = forbidden
    pyspark.SparkContext.__init__ = forbidden  # type: ignore[method-assign,assignment]


if __name__ == "__main__":
    main()
