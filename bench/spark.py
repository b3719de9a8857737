"""LakeVilla's Spark engine beside Spark's own Delta connector, on the same rows.

``python -m bench.spark --rows 10000000 --repeats 3``: read, append and MERGE of 1 % on one
session with two local cores, each measured in turns; and the driver's own peak memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

import lakevilla as lv

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="read,append,merge")
    arguments = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="lakevilla-bench-")
    try:
        session = _session(directory)
        _versions(session)
        bench = _Bench(session, directory, arguments.rows, arguments.repeats)
        for name in arguments.only.split(","):
            getattr(bench, name)()
        print(f"driver: peak of this Python process {_peak_mib()} MiB")
        session.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Bench:
    def __init__(self, session: Any, directory: str, rows: int, repeats: int) -> None:
        self.session, self.directory, self.rows, self.repeats = session, directory, rows, repeats
        self.lake = lv.connect(f"{directory}/lake", spark=session)
        self.python = lv.connect(f"{directory}/lake", spark=session, spark_reader="python")
        self._source = f"{directory}/source"
        _rows(session, rows).repartition(4).write.parquet(self._source)
        self._changed = f"{directory}/changed"
        _rows(session, rows).where("id % 100 = 7").selectExpr(
            "if(id % 1000 = 7, id + 1000000000, id) as id",
            "grp",
            "price + 1 as price",
            "name",
            "day",
            "ts",
        ).write.parquet(self._changed)
        self.source.write.format("delta").save(f"{directory}/lake/facts")

    @property
    def source(self) -> Any:
        return self.session.read.parquet(self._source)

    @property
    def changed(self) -> Any:
        return self.session.read.parquet(self._changed)

    def read(self) -> None:
        """All rows of all columns, into nothing."""
        delta = f"{self.directory}/lake/facts"
        self._turns(
            "read",
            {
                "spark delta": lambda: _drain(self.session.read.format("delta").load(delta)),
                "lakevilla native": lambda: _drain(self.lake.snapshot().read("facts")),
                "lakevilla python": lambda: _drain(self.python.snapshot().read("facts")),
            },
        )

    def append(self) -> None:
        """Append all rows to an empty table; the source is Parquet on this machine."""
        tables = iter(range(1_000_000))

        def delta() -> None:
            path = f"{self.directory}/spark-{next(tables)}"
            self.source.write.format("delta").save(path)
            _forget(path)

        def lakevilla() -> None:
            name = f"appended-{next(tables)}"
            with self.lake.transaction() as txn:
                txn.create_table(name, self.source)
            _forget(f"{self.directory}/lake/{name}")

        self._turns("append", {"spark delta": delta, "lakevilla": lakevilla})

    def merge(self) -> None:
        """1 % of the rows: nine of ten update, one inserts; keys spread over all files."""
        copies = iter(range(1_000_000))

        def copy() -> str:
            name = f"merged-{next(copies)}"
            shutil.copytree(f"{self.directory}/lake/facts", f"{self.directory}/lake/{name}")
            return name

        def delta(name: str) -> None:
            self.changed.createOrReplaceTempView("changed")
            self.session.sql(
                f"MERGE INTO delta.`{self.directory}/lake/{name}` AS t USING changed AS s "
                "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()

        def lakevilla(name: str) -> None:
            with self.lake.transaction() as txn:
                merge = txn.merge(
                    name, self.changed, "t.id = s.id", source_alias="s", target_alias="t"
                )
                merge.when_matched_update_all().when_not_matched_insert_all().execute()

        self._turns(
            "merge of 1 %", {"spark delta": delta, "lakevilla": lakevilla}, before=copy,
            after=lambda name: _forget(f"{self.directory}/lake/{name}"),
        )  # fmt: skip

    def _turns(
        self,
        what: str,
        ways: dict[str, Callable[..., object]],
        before: Callable[[], Any] | None = None,
        after: Callable[[Any], object] = lambda _: None,
    ) -> None:
        took: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(self.repeats + 1):
            for way, do in ways.items():
                given = () if before is None else (before(),)
                began = time.perf_counter()
                do(*given)
                if turn:  # the first warms up
                    took[way].append(time.perf_counter() - began)
                if given:
                    after(*given)
        base = statistics.median(next(iter(took.values())))
        for way, seconds in took.items():
            middle = statistics.median(seconds)
            spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
            told = f"{what:14} {way:18} {middle:7.2f} s  ({spread})  x {middle / base:.2f}"
            print(told, flush=True)


def _rows(session: Any, rows: int) -> Any:
    return session.range(0, rows, 1, 4).selectExpr(
        "id",
        "cast(pmod(hash(id), 1000) as int) as grp",
        "cast(pmod(hash(id, 1), 1000000) as double) / 100 as price",
        "concat('name-', pmod(hash(id, 2), 100000)) as name",
        "date_add(date'2024-01-01', cast(id % 700 as int)) as day",
        "timestamp'2024-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, 0, id % 86400) as ts",
    )


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _forget(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _session(directory: str) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    ivy = Path(__file__).parents[1] / ".cache" / "ivy"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": DELTA,
        "spark.jars.ivy": str(ivy),
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakevilla-bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _versions(session: Any) -> None:
    print(
        f"spark {session.version}, {DELTA}, lakevilla {lv.__version__}, duckdb "
        f"{duckdb.__version__}, pyarrow {pyarrow.__version__}, python {platform.python_version()}, "
        f"{os.cpu_count()} cores",
        flush=True,
    )


def _peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
