"""What a transaction takes of the processor and of memory, by phase: without a store's latency."""

from __future__ import annotations

import gc
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa
from matplotlib.figure import Figure

import lakevilla as lv
from bench.commits.rows import ROWS, rows_in
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, closed_loop
from bench.harness.drawing import figure, legend, stacked
from bench.harness.parameters import Parameter
from bench.harness.results import Result
from bench.harness.store.places import LOCAL
from bench.ycsb_lh.phases import COLOURS
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.location import root_location

TABLES = ("one", "two")
#: Outside of any phase: arguments, names, parsing, rows into files and out of DuckDB.
REST = "the rest"
_PROCESSOR, _ALL_THREADS = "cpu_ms", "cpu_ms_of_all_threads"
_PEAK, _KEPT = "peak_kb", "kept_kb"


class ThreadClock:
    """The processor's time that one thread has used, in the place of the machine's clock."""

    def __init__(self) -> None:
        self.thread = 0

    @property
    def is_read_by_its_thread(self) -> bool:
        return threading.get_ident() == self.thread

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return time.thread_time() if self.is_read_by_its_thread else 0.0


class Phased:
    """A lake in a directory, with what each phase of its transactions takes of the processor.

    It does not wait for the disk, so the thread that asks for a request carries it out: what
    that takes is in the phase too.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.spent: dict[str, float] = {}
        self.clock = ThreadClock()
        settings = lv.Settings(durable_files=False)
        store = open_store(root, settings=settings)
        client = LakeClient(root_location(root).uri, store, settings=settings, on_event=self._hear)
        client.phase_clock = self.clock
        self.lake: Lake[pa.Table] = Lake(client)
        with self.lake.transaction() as txn:
            for table in TABLES:
                txn.create_table(table, ROWS)

    def _hear(self, event: lv.Event) -> None:
        if event.kind == "phase" and self.clock.is_read_by_its_thread:
            phase, seconds = str(event.detail["phase"]), event.detail["own_seconds"]
            assert isinstance(seconds, float)
            self.spent[phase] = self.spent.get(phase, 0.0) + seconds

    def append(self) -> None:
        with self.lake.transaction() as txn:
            txn.append("one", ROWS)

    def append_alone(self) -> None:
        with self.lake.transaction(features=lv.Feature.NONE) as txn:
            txn.append("one", ROWS)

    def update(self) -> None:
        with self.lake.transaction() as txn:
            txn.update("two", {"price": "price + 1"}, where="id = 7")

    def append_to_both(self) -> None:
        with self.lake.transaction() as txn:
            for table in TABLES:
                txn.append(table, ROWS)

    def select(self) -> None:
        with self.lake.transaction() as txn:
            txn.sql("SELECT count(*), sum(price) FROM two WHERE id < 50")


OPERATIONS: dict[str, Callable[[Phased], None]] = {
    "append": Phased.append,
    "append, NONE": Phased.append_alone,
    "update of one row": Phased.update,
    "append to 2 tables": Phased.append_to_both,
    "SELECT": Phased.select,
}
#: How many batches it adds to each table.
_ADDED = {"append": (1, 0), "append, NONE": (1, 0), "append to 2 tables": (1, 1)}


def measure(run: Run) -> None:
    """Each operation in turns, so many times warm; then again for its memory.

    Each has a lake of its own: appends would make a SELECT's table longer.
    """
    transactions, traced = run.number("transactions"), run.number("traced")
    lakes = {name: Phased(str(run.places.directory / f"lake{n}")) for n, name in _numbered()}
    done = dict.fromkeys(OPERATIONS, 0)

    def times(name: str, count: int) -> None:
        for _ in range(count):
            OPERATIONS[name](lakes[name])
        done[name] += count

    for name in OPERATIONS:
        run.advance(f"{name}: it is warmed up")
        times(name, run.number("warm_up"))
    for turn in range(run.number("repeats")):
        for name in OPERATIONS:
            run.advance(f"{name}, turn {turn + 1}")
            _once(run, name, lakes[name], partial(times, name), transactions, traced)
    for name, lake in lakes.items():
        lake.lake.close()
        added = _ADDED.get(name, (0, 0))
        for table, per_transaction in zip(TABLES, added, strict=True):
            wanted = len(ROWS) * (1 + per_transaction * done[name])
            run.check(
                "the log of each table has every row that was appended",
                rows_in(f"{lake.root}/{table}", {}) == wanted,
            )


def _numbered() -> list[tuple[int, str]]:
    return list(enumerate(OPERATIONS))


def _once(
    run: Run,
    name: str,
    lake: Phased,
    times: Callable[[int], None],
    transactions: int,
    traced: int,
) -> None:
    took: list[tuple[float, float]] = []

    def client(counts: Counts) -> Iterator[str]:
        lake.clock.thread = threading.get_ident()
        for _ in range(transactions):
            before = time.thread_time(), time.process_time()
            yield name
            times(1)
            after = time.thread_time(), time.process_time()
            took.append((after[0] - before[0], after[1] - before[1]))

    lake.spent.clear()
    measured = closed_loop([client])
    count = max(len(took), 1)
    own, all_threads = (sum(one[part] for one in took) * 1000 / count for part in (0, 1))
    phases = {f"{name}/{phase}": 1000 * s / count for phase, s in lake.spent.items()}
    phases[f"{name}/{REST}"] = own - sum(phases.values())
    peak, kept = _memory(times, traced)
    figures = {_PROCESSOR: own, _ALL_THREADS: all_threads, _PEAK: peak, _KEPT: kept}
    run.add("LakeVilla", {"operation": name}, measured, phases_ms=phases, figures=figures)
    in_phases = own - phases[f"{name}/{REST}"]
    run.check("phases have a part of what the thread has spent", 0 < in_phases < own)


def _memory(times: Callable[[int], None], count: int) -> tuple[float, float]:
    """Kilobytes of Python's memory: at most beyond what was there, and what a transaction keeps."""
    tracemalloc.start()
    try:
        times(1)
        gc.collect()
        peaks, start = [], tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            times(1)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        gc.collect()
        kept = (tracemalloc.get_traced_memory()[0] - start) / max(count, 1)
    finally:
        tracemalloc.stop()
    return max(peaks, default=0) / 1024, kept / 1024


def phases(result: Result) -> Figure:
    """Processor time of a transaction, one bar an operation, its phases stacked."""
    made, (axes,) = figure(1, "processor time of a warm transaction by phase")
    shown = result.series
    names = [str(one.params["operation"]) for one in shown]
    parts = {
        phase: [
            one.phases_ms.get(f"{name}/{phase}", 0.0)
            for one, name in zip(shown, names, strict=True)
        ]
        for phase in COLOURS
    }
    stacked(axes, names, parts, COLOURS)
    axes.set_ylabel("ms of processor time: medians of the repeats' means")
    legend(made, axes, {phase for phase, ms in parts.items() if max(ms, default=0.0) >= 0.01})
    return made


BENCHMARK = Benchmark(
    name="cpu_phases",
    summary="processor time and memory of a warm append, update, 2-table transaction and SELECT",
    claim="none: where LakeVilla's own time goes, without a store's latency",
    deviations=(
        "a local directory without `fsync`, so that all requests stay in the thread that is "
        "measured; listening to phases takes some microseconds for each of them"
    ),
    parameters=(
        Parameter("transactions", 300, 40, "of each in a repeat", least=1),
        Parameter("warm_up", 50, 10, "of each before, not measured", least=1),
        Parameter("traced", 20, 5, "of each in a repeat whose memory is traced, apart", least=1),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"phases": phases},
    profile=LOCAL,
)
