"""Spark's Iceberg connector commits through a gateway, beside busy clients of LakeVilla.

An Iceberg client names in each commit the newest snapshot of its table. So it loses to appends of
LakeVilla, which fit every state, unless the gateway reserves the table for it. Java's client tries
a commit five times, within two seconds.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value
from bench.harness.peers.spark import session
from bench.harness.peers.spark_iceberg import settings_of_files
from lakevilla.serve.server import server_of

GUEST, BUSY = "Spark, through the gateway", "LakeVilla"
TABLE = "t"
SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])
#: The rows of the clients of LakeVilla begin here, and so many lie between two clients.
_FIRST, _APART = 1_000_000, 1_000_000
HELD = "each row that was acknowledged is there, once, and none of a commit that was refused"
_PATIENCE_SECONDS = 60


def measure(run: Run) -> None:
    """The commits of one Spark client, one after the other, while all others append."""
    root, options = run.places.root(BUSY), run.places.options
    with lv.connect(root, storage_options=options) as lake:
        lake.create_table(TABLE, SCHEMA, format="iceberg")
    spark = session(run.places)
    guest, busy = Measured(), Measured()
    outcomes: Counter[int] = Counter()
    with _served(root, options) as uri:
        name = _attached(spark, uri, options)
        spark.sql(f"SELECT count(*) FROM {name}").collect()
        run.advance("clients of LakeVilla begin")
        with _beside(root, options, run.number("clients")) as end:
            begun = time.monotonic()
            for number in range(run.number("commits")):
                if number % 20 == 0:
                    run.advance(f"{number} commits, {outcomes[False]} of them refused")
                at = time.monotonic()
                outcomes[_commit(spark, name, number, guest)] += 1
                guest.record(GUEST, time.monotonic() - at)
            guest.seconds = busy.seconds = time.monotonic() - begun
            counts = end()
    for seconds in (one for count in counts for one in count):
        busy.record(BUSY, seconds)
    params: dict[str, Value] = {"clients": run.number("clients")}
    ended = 100 * outcomes[True] / run.number("commits")
    run.add(GUEST, params, guest, figures={"commits that ended, %": ended})
    run.add(BUSY, params, busy)
    with lv.connect(root, storage_options=options) as lake:
        there = Counter(lake.read(TABLE)["id"].to_pylist())
    mine = {one for one in guest.counts.facts if isinstance(one, int)}
    of_others = {
        _FIRST + _APART * client + row
        for client, count in enumerate(counts)
        for row in range(len(count))
    }
    run.check(HELD, there == Counter({*mine, *of_others}))


def _commit(spark: SparkSession, name: str, number: int, guest: Measured) -> bool:
    """Insert a row; return whether that ended well. Its own client tries again."""
    try:
        spark.sql(f"INSERT INTO {name} VALUES ({number}, 'spark')").collect()
    except PySparkException as error:
        if "CommitFailedException" not in str(error):
            raise
        return False
    guest.counts.facts.append(number)
    return True


def _attached(spark: SparkSession, uri: str, options: dict[str, str]) -> str:
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": uri,
        ".warehouse": "lake",
        ".cache-enabled": "false",
        **settings_of_files(options),
    }
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.guests{key}", value)
    return f"guests.root.{TABLE}"


@contextmanager
def _served(root: str, options: dict[str, str]) -> Iterator[str]:
    """A gateway, as a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(root, options, there), daemon=True)
    process.start()
    try:
        if not here.poll(_PATIENCE_SECONDS):
            raise TimeoutError(f"the gateway did not start within {_PATIENCE_SECONDS} s")
        yield str(here.recv())
    finally:
        process.terminate()
        process.join()


def _serve(root: str, options: dict[str, str], started: Connection) -> None:
    with lv.connect(root, storage_options=options) as lake:
        server_of(lake, port=0, when_started=started.send).run()


@contextmanager
def _beside(
    root: str, options: dict[str, str], clients: int
) -> Iterator[Callable[[], list[list[float]]]]:
    """Processes that append to the table; what is yielded ends them, and returns the seconds that
    each of their commits has taken.
    """
    context = multiprocessing.get_context("spawn")
    over, pipes = context.Event(), [context.Pipe() for _ in range(clients)]
    processes = [
        context.Process(target=_appends, args=(root, options, number, over, there), daemon=True)
        for number, (_, there) in enumerate(pipes)
    ]

    def end() -> list[list[float]]:
        over.set()
        return [here.recv() for here, _ in pipes]

    for process in processes:
        process.start()
    try:
        for here, _ in pipes:
            here.recv()  # it has committed once
        yield end
    finally:
        over.set()
        for process in processes:
            process.join(_PATIENCE_SECONDS)
            process.kill()


def _appends(
    root: str, options: dict[str, str], client: int, over: Event, told: Connection
) -> None:
    first, seconds = _FIRST + _APART * client, list[float]()
    with lv.connect(root, storage_options=options) as lake:
        while not over.is_set():
            row = {"id": first + len(seconds), "who": f"client {client}"}
            begun = time.monotonic()
            lake.run(lambda txn, row=row: txn.append(TABLE, [row]))
            seconds.append(time.monotonic() - begun)
            if len(seconds) == 1:
                told.send("begun")
    told.send(seconds)


def needs(parameters: Mapping[str, Value]) -> Needs:
    """The memory of Spark, and of the processes."""
    processes = int(parameters["clients"]) + 1
    return Needs(memory_bytes=(2 << 30) + processes * (300 << 20), why="Spark, and the processes")


BENCHMARK = Benchmark(
    name="guests",
    summary="Spark's Iceberg connector commits through a gateway, beside clients of LakeVilla",
    claim="none: the target is that 95 of 100 commits of Spark end, with its own four retries",
    deviations="one gateway; all processes, Spark and the server share the machine's processors",
    parameters=(
        Parameter("commits", 200, 5, "of Spark", least=1),
        Parameter("clients", 4, 1, "of LakeVilla, each a process that appends rows", least=1),
    ),
    run=measure,
    needs=needs,
    plots={
        "commits": lambda result: medians(result, lambda one: f"{one.params['clients']} clients")
    },
)
