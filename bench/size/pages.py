"""The pages of a gateway, over a lake of many tables and commits: as a browser loads them again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from urllib.error import HTTPError
from urllib.request import urlopen

import pyarrow as pa

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter
from bench.harness.store.places import LOCAL
from lakevilla.serve.server import server_of

SYSTEM = "LakeVilla"
ROW = pa.table({"id": pa.array([1], pa.int64())})
#: Each page, and a table and a commit that every lake of the benchmark has.
PAGES = (
    "/",
    "/tables",
    "/table?name=t%2F000",
    "/table?name=t%2F000&part=files",
    "/table?name=t%2F000&part=versions",
    "/commit?version=2",
    "/refs",
    "/compare?a=night&b=main",
    "/query?sql=SELECT+count(*)+FROM+%22t%2F000%22",
    "/activity",
    "/upkeep",
)
_PATIENCE_SECONDS = 60


def measure(run: Run) -> None:
    """Load each page once, and then again and again."""
    root = run.places.root(SYSTEM)
    with lv.connect(root, storage_options=run.places.options) as lake:
        _fill(run, lake)
        with _served(lake) as uri:
            for page in PAGES:
                run.advance(page)
                run.check("each page is shown", _loaded(uri + page))
                for _ in range(run.number("repeats")):
                    measured = Measured()
                    begun = time.perf_counter()
                    run.check("each page is shown", _loaded(uri + page))
                    measured.seconds = time.perf_counter() - begun
                    measured.record(SYSTEM, measured.seconds)
                    run.add(SYSTEM, {"page": page}, measured)
    slowest = max(run.result.series, key=lambda one: one.p50_ms)
    run.target("ms of the slowest page, once it is known", 200, [slowest.p50_ms], slowest)


def _fill(run: Run, lake: lv.Lake) -> None:
    tables = [f"t/{number:03}" for number in range(run.number("tables"))]
    run.advance(f"{len(tables)} tables are made")
    with lake.transaction() as txn:
        for name in tables:
            txn.create_table(name, ROW)
    for number in range(run.number("commits")):
        name = tables[number % len(tables)]
        lake.run(lambda txn, name=name: txn.append(name, ROW))
    lake.branch("night")
    lake.on("night").run(lambda txn: txn.append(tables[0], ROW))


def _loaded(uri: str) -> bool:
    try:
        with urlopen(uri, timeout=_PATIENCE_SECONDS) as answer:
            return bool(answer.read())
    except HTTPError:
        return False


@contextmanager
def _served(lake: lv.Lake) -> Iterator[str]:
    uris: Queue[str] = Queue()
    server = server_of(lake, port=0, when_started=uris.put, read_only=True)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield uris.get(timeout=_PATIENCE_SECONDS)
    finally:
        server.should_exit = True
        thread.join()


BENCHMARK = Benchmark(
    name="pages",
    summary="the pages of a gateway, loaded again, over a lake of many tables and commits",
    claim="none: the target is 200 ms for a page",
    deviations="gateway and browser are one process; nothing is drawn",
    parameters=(
        Parameter("tables", 500, 20, "of one row, as they begin", least=1),
        Parameter("commits", 1000, 20, "to them, in turn", least=1),
        Parameter("repeats", 10, 1, "of each page", least=1),
    ),
    run=measure,
    plots={"pages": lambda result: medians(result, lambda one: str(one.params["page"]))},
    profile=LOCAL,
)
