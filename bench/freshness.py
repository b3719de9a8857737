"""Freshness: from a writer's stamp until a reader has the row (the artifact's workload)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, cast, get_args

import pyarrow as pa
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import Measured
from bench.harness.drawing import COLOURS, figure, owner
from bench.harness.parameters import Parameter, chosen
from bench.harness.peers import Peer, peer
from bench.harness.results import Result

SCHEMA = pa.schema([("i", pa.int64()), ("stamp", pa.float64())])
#: After so long without news the other side is taken for dead.
_PATIENCE_SECONDS = 60.0


#: Peers whose clients share one session, and what it knows.
PEERS = ("Spark+Delta", "Spark+Iceberg")
#: What a commit of LakeVilla waits for.
Wait = Literal["published", "decided"]
#: What appends a row, and what finds those after a number; each opened by the side that uses it.
Write = Callable[[int], None]
Read = Callable[[int], pa.Table]
Sides = tuple[
    Callable[[], AbstractContextManager[Write]], Callable[[], AbstractContextManager[Read]]
]


def measure(run: Run) -> None:
    """Each system and way to append, beside one reader that polls."""
    # Both now: the systems are made one by one, the last after the others have run.
    waits = cast(list[Wait], chosen("wait", run["wait"], get_args(Wait)))
    peers = chosen("peers", run["peers"], PEERS)
    for system, sides in _systems(run, waits, peers):
        run.advance(system)
        run.places.reset()
        started, finished, seconds, deaths, interrupted = _once(sides, run.number("runs"))
        requests = run.places.count()  # once: both points are of the same reads
        if not deaths and not interrupted:
            run.check("the reader has each row, once", len(finished) == run.number("runs"))
        for point, delays in (("read started", started), ("read finished", finished)):
            measured = Measured(seconds=seconds, deaths=list(deaths))
            for delay in delays:
                measured.record(point, delay)
            run.add(system, {"until": point}, measured, requests=requests)
        if interrupted:
            raise KeyboardInterrupt


def _systems(run: Run, waits: Sequence[Wait], peers: Sequence[str]) -> Iterator[tuple[str, Sides]]:
    for wait in waits:
        yield f"LakeVilla, {wait}", _lakevilla(run, wait)
    for name in peers:
        try:
            shared = peer(name, run.places)
        except NotInstalled as error:
            run.note(f"{name} was left out: {error}")
            continue
        yield name, _of_peer(shared)


def _lakevilla(run: Run, wait: Wait) -> Sides:
    root, options = run.places.root(wait), run.places.options
    with lv.connect(root, storage_options=options) as lake:
        lake.create_table("stamps", SCHEMA)

    @contextmanager
    def writer() -> Iterator[Write]:
        with lv.connect(root, storage_options=options) as lake:

            def write(i: int) -> None:
                with lake.transaction(wait=wait) as txn:
                    txn.append("stamps", _stamped(i))

            yield write

    @contextmanager
    def reader() -> Iterator[Read]:
        with lv.connect(root, storage_options=options) as lake:

            def read(last: int) -> pa.Table:
                with lake.snapshot() as state:
                    return state.read("stamps", where="i > :last", params={"last": last})

            yield read

    return writer, reader


def _of_peer(shared: Peer) -> Sides:
    shared.create(["stamps"], SCHEMA.empty_table())
    return (
        lambda: nullcontext(lambda i: shared.append(["stamps"], _stamped(i))),
        lambda: nullcontext(lambda last: shared.read("stamps", f"i > {last}")),
    )


def _stamped(i: int) -> pa.Table:
    return pa.table({"i": [i], "stamp": [time.time()]}, schema=SCHEMA)


def _once(sides: Sides, runs: int) -> tuple[list[float], list[float], float, list[str], bool]:
    """Delays until a read that found a row began, and ended; seconds, deaths, and Ctrl-C."""
    open_writer, open_reader = sides
    seen = threading.Semaphore(1)
    over = threading.Event()
    started: list[float] = []
    finished: list[float] = []
    deaths: list[str] = []

    def write() -> None:
        with open_writer() as append:
            for i in range(runs):
                if over.is_set():
                    return
                if not seen.acquire(timeout=_PATIENCE_SECONDS):
                    raise TimeoutError(f"the reader has not seen row {i - 1}")
                append(i)

    def read() -> None:
        with open_reader() as find:
            last = -1
            while last < runs - 1 and not over.is_set():
                began = time.time()
                found = find(last)
                ended = time.time()
                for row in found.to_pylist():
                    last = max(last, row["i"])
                    started.append(max(began - row["stamp"], 0.0))
                    finished.append(ended - row["stamp"])
                    seen.release()

    def watched(name: str, work: Callable[[], None]) -> Callable[[], None]:
        def run_it() -> None:
            try:
                work()
            except Exception as error:
                deaths.append(f"the {name}, after {len(finished)} rows: {error!r}")
                over.set()
                seen.release()

        return run_it

    threads = [
        threading.Thread(target=watched(name, work), daemon=True)
        for name, work in (("writer", write), ("reader", read))
    ]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    interrupted = False
    try:
        _join(threads)
    except KeyboardInterrupt:
        interrupted = True
        over.set()
        seen.release()  # the writer may wait for it
        _join(threads)
    return started, finished, time.perf_counter() - began, deaths, interrupted


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)  # so that Ctrl-C is heard


def delays(result: Result) -> Figure:
    """Median with the 95th percentile, until the read that finds the row began, and ended."""
    made, (axes,) = figure(1, f"from the writer's stamp to the reader, profile {result.profile}")
    owners = list(dict.fromkeys(owner(one) for one in result.series))
    for i, one in enumerate(result.series):
        colour = COLOURS[owners.index(owner(one)) % 8]
        axes.barh(i, one.p50_ms, color=colour, height=0.6)
        axes.plot([one.p50_ms, one.p95_ms], [i, i], color="#333333", linewidth=1.2)
        axes.plot([one.p95_ms], [i], "|", color="#333333", markersize=9)
        axes.text(one.p95_ms, i, f"  {one.p50_ms:.0f}, 95%: {one.p95_ms:.0f}", va="center", size=8)
    labels = [f"{one.system}\nuntil {one.params['until']}" for one in result.series]
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds")
    axes.margins(x=0.25)
    return made


BENCHMARK = Benchmark(
    name="freshness",
    summary="how long until a reader that polls has a row that was appended",
    claim="the artifact's freshness experiment, 500 runs; the paper prints no figure for it",
    deviations=(
        "one machine: writer and reader are two lakes in one process, and share its clock; "
        "those of Spark share its session, which knows of its own commits without asking"
    ),
    parameters=(
        Parameter("runs", 500, 15, "rows, one after the other", least=1),
        Parameter("wait", "published,decided", "published,decided", "how the writer commits"),
        Parameter("peers", "Spark+Delta", "", f"beside LakeVilla: of {', '.join(PEERS)}"),
    ),
    run=measure,
    plots={"delays": delays},
)
