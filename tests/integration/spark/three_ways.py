"""One pipeline by frames, by SQL and by streams; run again, it goes on where it was killed.

``python three_ways.py ROOT INCOMING CHECKPOINTS``: files of orders, one of a day each (a later one
corrects an earlier one of the same day), become ``bronze`` (all rows), ``silver`` (what was sold
a day) and ``gold`` (what was sold of each kind, corrections included). Prints ``STEP`` as it comes
to each of ``STEPS``.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT, INCOMING, CHECKPOINTS = sys.argv[1:4]
COLUMNS = "id long, day string, sku string, amount long"


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("three ways")
    builder = builder.config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    import lakevilla as lv

    settings = lv.Settings(lease_seconds=2)  # an undecided use of a key is waited for that long
    lake = lv.connect(ROOT, spark=spark, settings=settings)
    for number, path in enumerate(sorted(Path(INCOMING).glob("*.json"))):
        rows = spark.read.schema(COLUMNS).json(str(path))
        by_frames(rows, number)
        step()
        by_sql(lake, rows, number)
    step()
    frames_gold(spark, lake)
    by_streams(spark, lake)
    print("RESULT " + json.dumps({"done": True}), flush=True)


def step() -> None:
    print("STEP", flush=True)


def save(frame: Any, table: str, mode: str, **options: object) -> None:
    writer = frame.write.format("lakevilla").option("lake", ROOT).mode(mode)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(table)


def by_frames(rows: Any, number: int) -> None:
    step()
    save(rows, "f_bronze", "append", idempotencyKey=f"bronze {number}")
    step()
    days = rows.groupBy("day").sum("amount").toDF("day", "sold")
    where = f"day = '{rows.first()['day']}'"
    save(days, "f_silver", "overwrite", replaceWhere=where, idempotencyKey=f"silver {number}")


def frames_gold(spark: Any, lake: Any) -> None:
    version = lake.snapshot().version
    reader = spark.read.format("lakevilla").option("lake", ROOT).option("version", version)
    sold = reader.load("f_bronze").groupBy("sku").sum("amount").toDF("sku", "sold")
    save(sold, "f_gold", "overwrite")


def by_sql(lake: Any, rows: Any, number: int) -> None:
    def once(txn: Any) -> None:
        if number == 0:
            txn.create_table("q_bronze", rows.schema)
            txn.create_table("q_silver", {"day": "string", "sold": "long"})
            txn.create_table("q_gold", {"sku": "string", "sold": "long"})
        views = {"arrived": rows}
        txn.sql("INSERT INTO q_bronze SELECT * FROM arrived", views=views)
        day = {"day": rows.first()["day"]}
        txn.sql("DELETE FROM q_silver WHERE day = :day", day)
        txn.sql(
            "INSERT INTO q_silver SELECT day, sum(amount) FROM arrived GROUP BY day", views=views
        )
        txn.sql("DELETE FROM q_gold WHERE true")
        txn.sql("INSERT INTO q_gold SELECT sku, sum(amount) FROM q_bronze GROUP BY sku")

    lake.run(once, idempotency_key=("sql", number))


def by_streams(spark: Any, lake: Any) -> None:
    def source() -> Any:
        stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return stream.json(INCOMING)

    def start(writer: Any, name: str, *table: str) -> None:
        step()
        checkpoint = Path(CHECKPOINTS, name)
        offsets = checkpoint / "offsets"
        if offsets.is_dir() and not any(one.name.isdigit() for one in offsets.iterdir()):
            # Killed while it planned its first batch: Spark takes half a checkpoint for no new one.
            shutil.rmtree(checkpoint)
        writer = writer.option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start(*table).awaitTermination()

    def sink(frame: Any, name: str) -> Any:
        writer = frame.writeStream.format("lakevilla").option("lake", ROOT)
        return writer.option("queryId", name)

    def silver(txn: Any, batch: Any) -> None:
        days = batch.groupBy("day").sum("amount").toDF("day", "sold")
        where = f"day = '{batch.first()['day']}'"
        txn.overwrite("s_silver", days, where)

    if "s_silver" not in lake:
        lake.create_table("s_silver", {"day": "string", "sold": "long"})
    start(sink(source(), "bronze"), "bronze", "s_bronze")
    function = lake.foreach_batch(silver, query_id="silver")
    start(source().writeStream.foreachBatch(function), "silver")
    sold = source().groupBy("sku").sum("amount").toDF("sku", "sold")
    start(sink(sold, "gold").outputMode("complete"), "gold", "s_gold")


main()
