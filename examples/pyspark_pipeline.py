"""Orders go from bronze to gold on Spark: four tables, and one transaction for each batch.

Run by itself, it shows all of it: a Spark driver streams raw orders into four tables, a second
driver reads them all along, the first is killed in the middle of a batch and started again,
and in the end every order is counted exactly once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb

import lakevilla as lv

BATCHES, ORDERS_IN_A_BATCH = 6, 2000
PARTS, PIECES = 100, 1_000_000  # in stock, and so many of each
KILLED_IN = 3  # the batch that the first driver does not survive

TABLES = {
    "bronze_orders": """
        o_orderkey LONG, o_nation STRING, o_orderdate DATE, o_lines ARRAY<STRUCT<
            l_number INT, l_partkey LONG, l_quantity LONG,
            l_price DECIMAL(12, 2), l_discount DECIMAL(4, 2), l_status STRING>>""",
    "silver_lines": """
        l_orderkey LONG, l_nation STRING, l_day DATE, l_partkey LONG, l_quantity LONG,
        l_revenue DECIMAL(18, 4)""",
    "gold_revenue": "nation STRING, day DATE, lines LONG, revenue DECIMAL(28, 4)",
    "gold_stock": "part LONG, pieces LONG",
}


# -- the first driver: a pipeline ------------------------------------------------------


def pipeline(root: str) -> None:
    """Stream the raw orders that are there; a batch that is committed already is skipped."""
    spark = session()
    lake = lv.connect(f"{root}/lake", spark=spark)
    raw = spark.readStream.schema(TABLES["bronze_orders"]).option("maxFilesPerTrigger", 1)
    stream = raw.json(f"{root}/raw").writeStream.trigger(availableNow=True)
    stream = stream.option("checkpointLocation", f"{root}/checkpoint")
    stream.foreachBatch(lake.foreach_batch(refine, query_id="orders")).start().awaitTermination()
    spark.stop()


def refine(txn: Any, orders: Any) -> None:
    """Bring a batch of raw orders into four tables. Spark does the work, LakeVilla commits it."""
    lines = orders.selectExpr("*", "inline(o_lines)").where("l_status <> 'returned'")
    lines = lines.selectExpr(
        "o_orderkey AS l_orderkey", "o_nation AS l_nation", "o_orderdate AS l_day", "l_partkey",
        "l_quantity", "CAST(l_price * (1 - l_discount) AS DECIMAL(18, 4)) AS l_revenue",
    )  # fmt: skip
    days = lines.selectExpr("l_nation AS nation", "l_day AS day", "1 AS lines", "l_revenue")
    revenue = days.groupBy("nation", "day").agg({"lines": "sum", "l_revenue": "sum"})
    sold = lines.groupBy("l_partkey").agg({"l_quantity": "sum"})

    txn.append("bronze_orders", orders)
    txn.append("silver_lines", lines)
    say("pipeline: a batch is in bronze and silver, and goes on to gold")
    txn.merge(
        "gold_revenue",
        revenue.selectExpr("nation", "day", "`sum(lines)` AS lines", "`sum(l_revenue)` AS revenue"),
        "gold.nation = batch.nation AND gold.day = batch.day",
        source_alias="batch",
        target_alias="gold",
    ).when_matched_update(
        {"lines": "gold.lines + batch.lines", "revenue": "gold.revenue + batch.revenue"}
    ).when_not_matched_insert_all().execute()
    txn.merge(
        "gold_stock",
        sold.toDF("part", "pieces"),
        "gold.part = batch.part",
        source_alias="batch",
        target_alias="gold",
    ).when_matched_update({"pieces": "gold.pieces - batch.pieces"}).execute()


def session() -> Any:
    """A small Spark session. It needs no jar: LakeVilla reads and writes Delta by itself."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("orders")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


# -- the second driver: a reader, here without Spark -----------------------------------


def watch(root: str) -> None:
    """Look at the four tables until all orders are there; each look must add up."""
    looks, seen = 0, -1
    with lv.connect(f"{root}/lake") as lake:
        while seen < BATCHES * ORDERS_IN_A_BATCH:
            with lake.snapshot() as state:
                totals = state.sql(TOTALS).to_pylist()[0]
            orders, _ = added_up(totals)
            assert orders >= seen, "what was seen is gone"
            looks += 1
            if orders > seen:
                say(f"    reader: {orders} orders, {totals['silver_revenue'] or 0} of revenue")
            seen = orders
            time.sleep(0.1)
    say(f"    reader: all there; the four tables agreed each of {looks} times")


TOTALS = f"""
    SELECT * FROM
        (SELECT count(*) AS orders FROM bronze_orders),
        (SELECT count(*) AS bronze_lines FROM (SELECT unnest(o_lines) AS l FROM bronze_orders)
            WHERE l.l_status <> 'returned'),
        (SELECT count(*) AS silver_lines, sum(l_quantity) AS silver_pieces,
            sum(l_revenue) AS silver_revenue FROM silver_lines),
        (SELECT sum(lines) AS gold_lines, sum(revenue) AS gold_revenue FROM gold_revenue),
        (SELECT {PARTS * PIECES} - sum(pieces) AS gold_pieces FROM gold_stock)
"""


def added_up(totals: dict[str, Any]) -> tuple[int, tuple[Any, ...]]:
    """The orders, and their lines, pieces and revenue: the same from each table."""
    told = {name: int(value or 0) if "revenue" not in name else Decimal(value or 0)
            for name, value in totals.items()}  # fmt: skip
    assert told["orders"] % ORDERS_IN_A_BATCH == 0, f"half a batch: {told}"
    assert told["bronze_lines"] == told["silver_lines"] == told["gold_lines"], told
    assert told["silver_pieces"] == told["gold_pieces"], told
    assert told["silver_revenue"] == told["gold_revenue"], told
    return told["orders"], (told["gold_lines"], told["gold_pieces"], told["gold_revenue"])


# -- what is there before and after ----------------------------------------------------


def prepare(root: str) -> None:
    """Make raw orders, a file for each batch, and the tables."""
    from pyspark.sql.types import StructType

    spark = session()
    spark.range(0, BATCHES * ORDERS_IN_A_BATCH, 1, BATCHES).selectExpr(
        "id AS o_orderkey",
        "element_at(array('FRANCE', 'JAPAN', 'KENYA', 'PERU'), 1 + pmod(hash(id), 4)) AS o_nation",
        "date_add(DATE '1995-01-01', pmod(hash(id, 'day'), 60)) AS o_orderdate",
        f"""transform(sequence(1, 1 + pmod(hash(id, 'lines'), 7)), n -> named_struct(
            'l_number', n,
            'l_partkey', pmod(hash(id, n), {PARTS}),
            'l_quantity', 1 + pmod(hash(id, n, 'quantity'), 50),
            'l_price', CAST(pmod(hash(id, n, 'price'), 1000000) / 100 AS DECIMAL(12, 2)),
            'l_discount', CAST(pmod(hash(id, n, 'discount'), 11) / 100 AS DECIMAL(4, 2)),
            'l_status', IF(pmod(hash(id, n, 'status'), 20) = 0, 'returned', 'sold'))) AS o_lines""",
    ).write.json(f"{root}/raw")
    with lv.connect(f"{root}/lake", spark=spark) as lake, lake.transaction() as txn:
        for name, columns in TABLES.items():
            txn.create_table(name, StructType.fromDDL(columns))
        txn.append("gold_stock", spark.range(PARTS).selectExpr("id AS part", f"{PIECES} AS pieces"))
    spark.stop()


def check(root: str) -> None:
    """Compare what was generated with what LakeVilla, and what any reader of Delta, finds."""
    files = Path(root, "raw").glob("*.json")
    orders = [json.loads(line, parse_float=Decimal) for f in files for line in f.open()]
    lines = [line for order in orders for line in order["o_lines"] if line["l_status"] == "sold"]
    pieces = sum(line["l_quantity"] for line in lines)
    revenue = sum(line["l_price"] * (1 - line["l_discount"]) for line in lines)
    made = len(orders), (len(lines), pieces, revenue)

    with lv.connect(f"{root}/lake") as lake:
        with lake.snapshot() as state:
            assert added_up(state.sql(TOTALS).to_pylist()[0]) == made
        assert len(lake.history()) == 1 + BATCHES, "a batch was committed twice, or not at all"
    with duckdb.connect() as others:
        for name in TABLES:
            table = deltalake.DeltaTable(f"{root}/lake/{name}")
            others.register(name, table.to_pyarrow_table())
        assert added_up(others.sql(TOTALS).to_arrow_table().to_pylist()[0]) == made
    say(
        f"totals agree: {made[0]} orders, {len(lines)} lines, {pieces} pieces, {revenue} of revenue"
    )


def show(root: str) -> None:
    """Run the drivers beside each other, and kill the pipeline's once."""
    say(f"{BATCHES} batches of {ORDERS_IN_A_BATCH} raw orders are made")
    assert drive("prepare", root).wait() == 0, "nothing could be prepared"
    reader = drive("watch", root)
    first = drive("pipeline", root, stdout=subprocess.PIPE)
    try:
        for begun, line in enumerate(first.stdout, 1):
            print(line, end="", flush=True)
            if begun == KILLED_IN:
                first.send_signal(signal.SIGKILL)  # it has no chance to tidy up
                say("pipeline: killed, with two of four tables written")
        assert first.wait() == -signal.SIGKILL, "the pipeline failed before it was killed"
        with lv.connect(f"{root}/lake") as lake, lake.snapshot() as state:
            orders, _ = added_up(state.sql(TOTALS).to_pylist()[0])
            say(f"nothing of half a batch is seen: there are {orders} orders")
        assert drive("pipeline", root).wait() == 0, "the pipeline failed"
        assert reader.wait(timeout=60) == 0, "the reader saw tables that disagree"
    finally:
        for driver in (first, reader):
            driver.kill()
    check(root)


def drive(part: str, root: str, **options: Any) -> subprocess.Popen[str]:
    """Start a part of this script as a process of its own."""
    return subprocess.Popen([sys.executable, __file__, part, root], text=True, **options)


def say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        {"prepare": prepare, "pipeline": pipeline, "watch": watch, "check": check}[sys.argv[1]](
            sys.argv[2]
        )
    else:
        with tempfile.TemporaryDirectory() as directory:
            show(directory)
