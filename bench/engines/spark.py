"""LakeVilla's Spark engine beside Spark's own Delta connector, on the same rows (target 13).

Read, append, MERGE of 1% and OPTIMIZE on one warm session with two local cores, in turns. What the
driver's own process takes of memory is noted: rows must not make it grow.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import lakevilla as lv
from bench.commits.rows import rows_in
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import Counts, closed_loop
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, WrongParameter, chosen
from bench.harness.store.places import LOCAL

DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
PEER, NATIVE, PYTHON = "Spark+Delta", "LakeVilla", "LakeVilla, python reader"
SOURCE, WRITTEN = "LakeVilla, data source", "LakeVilla, written by it"
PARTS = ("read", "append", "merge", "optimize")
#: The files that are put together.
_SMALL_FILES = 48
#: The driver's JVM, and the Python workers beside it.
_MEMORY_BYTES = 4 * 2**30
_ROW_BYTES = 40


def measure(run: Run) -> None:
    """Each part, its ways in turns; the first turn warms."""
    parts = {"read": _read, "append": _append, "merge": _merge, "optimize": _optimize}
    wanted = chosen("parts", run["parts"], PARTS)
    if run.places.profile != LOCAL:
        raise WrongParameter("spark's tables lie in a directory: --profile local")
    run.advance("Spark starts")
    try:
        with _session(run) as session:
            tables = Tables(run, session)
            for part in wanted:
                parts[part](run, tables)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                run.note(f"after {part}, the driver's Python has taken {peak} MiB at most")
    except NotInstalled as error:
        # The other benchmarks of the same command run.
        run.note(str(error))
        run.check("Spark runs here", False)
    _targets(run)


class Tables:
    """The rows that are read, appended and merged, in a directory."""

    def __init__(self, run: Run, session: Any) -> None:
        self.session, self.rows = session, run.number("rows")
        self.directory = run.places.directory
        self.root = f"{self.directory}/lake"
        self.lake: lv.Lake[Any] = lv.connect(self.root, spark=session)
        self.native: lv.Lake[Any] = lv.connect(self.root, spark=session, spark_reader="native")
        self.python: lv.Lake[Any] = lv.connect(self.root, spark=session, spark_reader="python")
        run.advance(f"{self.rows:,} rows are made")
        _rows(session, self.rows).repartition(4).write.parquet(f"{self.directory}/source")
        _rows(session, self.rows).where("id % 100 = 7").selectExpr(
            "if(id % 1000 = 7, id + 1000000000, id) as id",
            "grp",
            "price + 1 as price",
            "name",
            "day",
            "ts",
        ).write.parquet(f"{self.directory}/changed")
        self.source.write.format("delta").save(f"{self.root}/facts")
        with self.lake.transaction() as txn:
            txn.create_table("written", self.source)

    @property
    def source(self) -> Any:
        return self.session.read.parquet(f"{self.directory}/source")

    @property
    def changed(self) -> Any:
        return self.session.read.parquet(f"{self.directory}/changed")

    def by_data_source(self, name: str) -> Any:
        return self.session.read.format("lakevilla").option("lake", self.root).load(name)

    def sums(self, name: str) -> tuple[int, float]:
        """How many rows a table has, and their prices together, by Spark alone."""
        frame = self.session.read.format("delta").load(f"{self.root}/{name}")
        found = frame.selectExpr("count(*)", "sum(cast(price * 100 as long))").collect()[0]
        return found[0], found[1]


def _read(run: Run, tables: Tables) -> None:
    """All rows of all columns, into nothing.

    Of ``facts``, which Spark has written, and once of what LakeVilla has: the native reader of both
    is Spark's own, so the same files take it the same time.
    """
    _turns(
        run,
        "read",
        {
            PEER: lambda _: _drain(
                tables.session.read.format("delta").load(f"{tables.root}/facts")
            ),
            NATIVE: lambda _: _drain(tables.native.snapshot().read("facts")),
            WRITTEN: lambda _: _drain(tables.native.snapshot().read("written")),
            PYTHON: lambda _: _drain(tables.python.snapshot().read("facts")),
            SOURCE: lambda _: _drain(tables.by_data_source("facts")),
        },
    )
    for way, lake in ((NATIVE, tables.native), (PYTHON, tables.python)):
        run.check(f"{way} reads every row", lake.snapshot().read("facts").count() == tables.rows)
    written, facts = tables.sums("written"), tables.sums("facts")
    run.check("what LakeVilla has written is the same", written == facts)


def _append(run: Run, tables: Tables) -> None:
    """All rows to a new table; the source is Parquet on this machine."""
    numbers = count()

    def ours(name: str) -> None:
        with tables.lake.transaction() as txn:
            txn.create_table(name, tables.source)

    def by_source(name: str) -> None:
        # Clients are threads, and Spark finds a Python source to write to by the thread's session.
        tables.session._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(
            tables.session._jsparkSession
        )
        writer = tables.source.write.format("lakevilla").option("lake", tables.root)
        writer.mode("append").save(name)

    def after(way: str, name: str) -> None:
        rows = rows_in(f"{tables.root}/{name}", {})
        run.check(f"an append by {way} has every row", rows == tables.rows)
        shutil.rmtree(f"{tables.root}/{name}")

    _turns(
        run,
        "append",
        {
            PEER: lambda name: tables.source.write.format("delta").save(f"{tables.root}/{name}"),
            NATIVE: ours,
            SOURCE: by_source,
        },
        before=lambda: f"appended-{next(numbers)}",
        after=after,
    )


def _merge(run: Run, tables: Tables) -> None:
    """1% of the rows: nine of ten update, one inserts; keys spread over all files."""
    numbers = count()
    sums: dict[str, tuple[int, float]] = {}

    def copy() -> str:
        name = f"merged-{next(numbers)}"
        shutil.copytree(f"{tables.root}/facts", f"{tables.root}/{name}")
        return name

    def theirs(name: str) -> None:
        tables.changed.createOrReplaceTempView("changed")
        tables.session.sql(
            f"MERGE INTO delta.`{tables.root}/{name}` AS t USING changed AS s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def ours(name: str) -> None:
        with tables.lake.transaction() as txn:
            changed = tables.changed
            merge = txn.merge(name, changed, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def after(way: str, name: str) -> None:
        sums[way] = tables.sums(name)
        if way == NATIVE:
            run.check("a merge by LakeVilla and one by Spark agree", sums[PEER] == sums[NATIVE])
        shutil.rmtree(f"{tables.root}/{name}")

    _turns(run, "merge of 1%", {PEER: theirs, NATIVE: ours}, before=copy, after=after)


def _optimize(run: Run, tables: Tables) -> None:
    """Small files become large ones; once more, in Z order by two columns."""
    numbers = count()
    small = f"{tables.root}/small"
    tables.source.repartition(_SMALL_FILES).write.format("delta").save(small)

    def copy() -> str:
        name = f"small-{next(numbers)}"
        shutil.copytree(small, f"{tables.root}/{name}")
        return name

    def after(way: str, name: str) -> None:
        found = tables.sums(name)
        run.check(f"an optimize by {way} keeps every row", found == tables.sums("small"))
        shutil.rmtree(f"{tables.root}/{name}")

    for what, by, order in (
        ("optimize", "", ()),
        ("optimize in z order", "ZORDER BY (grp, price)", ("grp", "price")),
    ):
        _turns(run, what, _optimizing(tables, by, order), before=copy, after=after)


def _optimizing(
    tables: Tables, by: str, order: tuple[str, ...]
) -> dict[str, Callable[[str], object]]:
    return {
        PEER: lambda name: tables.session.sql(
            f"OPTIMIZE delta.`{tables.root}/{name}` {by}"
        ).collect(),
        NATIVE: lambda name: tables.lake.table(name).optimize(z_order_by=order),
    }


def _turns(
    run: Run,
    what: str,
    ways: dict[str, Callable[[str], object]],
    before: Callable[[], str] = lambda: "",
    after: Callable[[str, str], object] = lambda way, name: None,
) -> None:
    for turn in range(run.number("repeats") + 1):
        for way, do in ways.items():
            run.advance(f"{what}: {way}, turn {turn}")
            name = before()

            def client(
                counts: Counts, do: Callable[[str], object] = do, name: str = name
            ) -> Iterator[str]:
                yield what
                do(name)

            measured = closed_loop([client])
            if turn or measured.deaths:  # the first warms up
                run.add(way, {"operation": what}, measured)
            if not measured.deaths:
                after(way, name)


def _targets(run: Run) -> None:
    aims = (
        ("read", NATIVE, 0.9),
        ("read", WRITTEN, 0.9),
        ("read", PYTHON, 1.05),
        ("read", SOURCE, 1.25),
        ("append", NATIVE, 1.0),
        ("append", SOURCE, 1.25),
        ("merge of 1%", NATIVE, 0.5),
        ("optimize", NATIVE, 1.0),
        ("optimize in z order", NATIVE, 1.0),
    )
    for operation, way, at_most in aims:
        ours, theirs = (run.result.find(one, operation=operation) for one in (way, PEER))
        run.ratio(f"[13] {operation}: {way} / {PEER}", at_most, ours, theirs)


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


@contextmanager
def _session(run: Run) -> Iterator[Any]:
    """A session that ends with its JVM."""
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise NotInstalled(f"spark needs {error.name}: pip install 'lakevilla[spark]'") from error
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java") is None:
        raise NotInstalled("spark needs Java 17: `make java` installs it, or says how")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Spark plans a Python source in new processes: those would compile all modules each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": DELTA,
        "spark.jars.ivy": str(Path(__file__).resolve().parents[2] / ".cache" / "ivy"),
        "spark.sql.warehouse.dir": f"{run.places.directory}/warehouse",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakevilla-bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise NotInstalled(
            f"Spark did not start ({error}): it fetches {DELTA} from Maven Central once"
        ) from error
    session.sparkContext.setLogLevel("ERROR")
    gateway: Any = session.sparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        _end(gateway.proc)


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """The JVM ends with its standard input."""
    if jvm.stdin is not None:
        jvm.stdin.close()
    try:
        jvm.wait(20)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


BENCHMARK = Benchmark(
    name="spark",
    summary="LakeVilla's Spark engine beside Spark's own Delta connector",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations="one session with two local cores, tables in a directory",
    parameters=(
        Parameter("rows", 10_000_000, 100_000, "of six columns", least=1000),
        Parameter("parts", ",".join(PARTS), "read,append,merge,optimize", "of them"),
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"medians": lambda result: medians(result, lambda one: str(one.params["operation"]))},
    profile=LOCAL,
    needs=lambda parameters: Needs(
        disk_bytes=5 * _ROW_BYTES * int(parameters["rows"]),
        memory_bytes=_MEMORY_BYTES,
        why=f"Spark, with {parameters['rows']} rows,",
    ),
)
