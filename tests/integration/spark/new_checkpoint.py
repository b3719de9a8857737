"""A driver on Spark Connect whose streams begin again: ``python new_checkpoint.py ROOT
CHECKPOINT``.

It prints what one batch is told from its checkpoint, from it again, from an older copy of it, which
plans the batch anew, and from a new one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    root, checkpoint = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession, datasource

    import lakevilla as lv

    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    lake = lv.connect(root, spark=session)
    lake.create_table("source", session.range(5))
    lake.create_table("copied", session.range(0))
    queries = {"copy": ["1", "1", "1, older", "2"]}
    if hasattr(datasource, "DataSourceStreamArrowWriter"):  # from Spark 4.1 on
        queries["sink"] = ["1", "2"]
    outcomes = {
        name: [_outcome(lake, session, name, f"{checkpoint}-{name}-", of) for of in checkpoints]
        for name, checkpoints in queries.items()
    }
    rows = lake.snapshot().read("copied").count()
    print("RESULT " + json.dumps({"outcomes": outcomes, "rows": rows}), flush=True)
    session.stop()


def _outcome(lake: Any, session: Any, name: str, prefix: str, of: str) -> str:
    """Stream a table, as if the driver died before it noted that its batch was committed."""
    number, *older = of.split(", ")
    checkpoint = prefix + number
    for log in ("offsets", "commits") if older else ():
        shutil.rmtree(Path(checkpoint, log))

    def copy(txn: Any, batch: Any) -> None:
        txn.append("copied", batch.select("id"))

    changes = session.readStream.format("lakevilla").option("lake", lake.root)
    writer = changes.option("startingVersion", 1).load("source").writeStream
    if name == "sink":
        writer = writer.format("lakevilla").option("lake", lake.root).option("queryId", name)
    else:
        function = lake.foreach_batch(copy, query_id=name, checkpoint_location=checkpoint)
        writer = writer.foreachBatch(function).queryName(name)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    try:
        query = writer.start("by_sink") if name == "sink" else writer.start()
        query.awaitTermination()
    except Exception as error:
        # From Spark 4.2 on the second start has a batch 1, too: what the lake itself has written
        # since is newer, and has nothing of this table.
        known = (
            "batch 0 of checkpoint",
            "brings batch 0, and the lake has its batch 1",
            "has a batch 0 of other rows",
        )
        return "refused" if any(reason in str(error) for reason in known) else str(error)
    for noted in Path(checkpoint, "commits").glob("*0*"):
        noted.unlink()
    return "done"


if __name__ == "__main__":
    main()
