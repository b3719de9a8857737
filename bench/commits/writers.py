"""Writers at once, on one table and on eight: LakeVilla beside deltalake and pyiceberg.

Every writer appends 100 rows a transaction, as fast as it can, or updates a row of its own in a
file that all share. One whose commit is refused tries again, and goes on until its last one is in.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

import lakevilla as lv
from bench.commits import writers_plots
from bench.commits.rows import rows_in
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Client, Counts, Manner, run_clients
from bench.harness.parameters import Parameter, Value, chosen, numbers
from bench.harness.results import Series
from bench.size.many_tables import newest

ROWS = pa.table({"id": range(100), "n": [0] * 100})
THREADS, PROCESSES = "LakeVilla, threads", "LakeVilla, processes"
Format = Literal["delta", "iceberg"]
#: Who can write a format, and how its writers run.
SYSTEMS: dict[Format, dict[str, str]] = {
    "delta": {THREADS: "threads", PROCESSES: "processes", "deltalake": "processes"},
    "iceberg": {THREADS: "threads", PROCESSES: "processes", "pyiceberg": "processes"},
}
COMMITTED = "committed"
HELD = "the table has each commit of LakeVilla's writers, once"


@dataclass(frozen=True, slots=True)
class Shape:
    """What writers do, and on what."""

    system: str
    format: Format
    work: str
    tables: int
    writers: int

    @property
    def params(self) -> dict[str, Value]:
        return {
            "format": self.format,
            "work": self.work,
            "tables": self.tables,
            "writers": self.writers,
        }


@dataclass(frozen=True, slots=True)
class Opens:
    """What a client opens: it may be in a process of its own."""

    shape: Shape
    root: str
    options: dict[str, str]
    catalog: Path

    @contextmanager
    def __call__(self) -> Iterator[Callable[[int], bool]]:
        """One attempt of a writer, by its number; whether it was committed."""
        if self.shape.system == "deltalake":
            yield _of_deltalake(self)
        elif self.shape.system == "pyiceberg":
            yield _of_pyiceberg(self)
        else:
            with lv.connect(self.root, storage_options=self.options) as lake:
                yield lambda number: _commit(lake, self.shape, number)


def _commit(lake: lv.Lake, shape: Shape, number: int) -> bool:
    table = f"t{number % shape.tables}"
    try:
        with lake.transaction() as txn:
            if shape.work == "append":
                txn.append(table, ROWS)
            else:
                txn.update(table, {"n": "n + 1"}, f"id = {number}")
    except lv.ConflictError:
        return False
    return True


def _of_deltalake(opens: Opens) -> Callable[[int], bool]:
    handles: dict[str, deltalake.DeltaTable] = {}

    def attempt(number: int) -> bool:
        uri = f"{opens.root}/t{number % opens.shape.tables}"
        if uri not in handles:
            handles[uri] = deltalake.DeltaTable(uri, storage_options=opens.options or None)
        try:
            if opens.shape.work == "append":
                deltalake.write_deltalake(handles[uri], ROWS, mode="append")
            else:
                handles[uri].update_incremental()
                handles[uri].update(updates={"n": "n + 1"}, predicate=f"id = {number}")
        except CommitFailedError:
            return False
        return True

    return attempt


def _of_pyiceberg(opens: Opens) -> Callable[[int], bool]:
    from pyiceberg.exceptions import CommitFailedException

    from bench.harness.peers.pyiceberg import PyIceberg

    peer = PyIceberg(opens.catalog, opens.root, opens.options)

    def attempt(number: int) -> bool:
        handle = peer.handle(f"t{number % opens.shape.tables}")
        handle.refresh()
        try:
            handle.append(ROWS)
        except CommitFailedException:
            return False
        return True

    return attempt


@dataclass(frozen=True, slots=True)
class Writer:
    """One writer, for some seconds or for one commit."""

    number: int
    seconds: float

    def __call__(self, attempt: Callable[[int], bool], counts: Counts) -> Iterator[str]:
        until = time.perf_counter() + self.seconds
        while True:
            yield COMMITTED
            while not attempt(self.number):
                counts.aborts += 1
            counts.facts.append(COMMITTED)
            if time.perf_counter() >= until:
                return


def measure(run: Run) -> None:
    """Each shape by each system, in turns."""
    found = shapes(run)
    if importlib.util.find_spec("pyiceberg") is None:
        # LakeVilla's Iceberg tables need it, too.
        found = [shape for shape in found if shape.format != "iceberg"]
        run.note("Iceberg was left out: it needs pyiceberg: pip install 'lakevilla[bench]'")
    for repeat in range(run.number("repeats")):
        for shape in found:
            run.advance(f"{shape.system}, {_described(shape)}, repeat {repeat + 1}")
            _once(run, shape)
    _targets(run, max(numbers(run["writers"])))


def shapes(run: Run) -> list[Shape]:
    """What is measured: only threads, which commit together, for each number of writers."""
    known = ("threads", "processes", "deltalake", "pyiceberg")
    writers, systems = numbers(run["writers"]), chosen("systems", run["systems"], known)
    found = []
    for format_ in cast(list[Format], chosen("formats", run["formats"], SYSTEMS)):
        for work in chosen("work", run["work"], ("append", "update")):
            for tables in numbers(run["tables"]):
                narrow = tables == 1 or (format_ == "delta" and work == "append")
                if not narrow or (format_ == "iceberg" and work == "update"):
                    continue
                for count in writers:
                    for system in SYSTEMS[format_]:
                        alone = system == THREADS and format_ == "delta" and work == "append"
                        if (count == max(writers) or alone) and (
                            system.removeprefix("LakeVilla, ") in systems
                        ):
                            found.append(Shape(system, format_, work, tables, count))
    return found


def _once(run: Run, shape: Shape) -> None:
    root, options = run.places.root("writers"), run.places.options
    opens = Opens(shape, root, options, run.places.file("catalog.db"))
    _create(opens)
    is_ours = shape.system.startswith("LakeVilla")
    before = _replacements(opens) if is_ours else 0
    crew = [
        Client(Writer(number, float(run["seconds"])), warm_up=Writer(number, 0.0))
        for number in range(shape.writers)
    ]
    how = Manner(SYSTEMS[shape.format][shape.system], seed=f"{run.seed}")
    measured = run_clients(opens, crew, how, on_start=run.places.reset)
    requests = run.places.count()
    commits = len(measured.counts.facts)
    figures = {"requests_a_commit": sum(requests.values()) / max(measured.n, 1)}
    if is_ours and not measured.deaths and not measured.interrupted:
        replaced = max(_replacements(opens) - before, 1)
        figures["commits_a_replacement"] = commits / replaced
        run.check(HELD, _count(opens) == commits)
    run.add(shape.system, shape.params, measured, requests=requests, figures=figures)


def _create(opens: Opens) -> None:
    names = [f"t{number}" for number in range(opens.shape.tables)]
    if opens.shape.system == "deltalake":
        for name in names:
            uri = f"{opens.root}/{name}"
            deltalake.write_deltalake(uri, ROWS, storage_options=opens.options or None)
    elif opens.shape.system == "pyiceberg":
        from bench.harness.peers.pyiceberg import PyIceberg

        PyIceberg(opens.catalog, opens.root, opens.options).create(names, ROWS)
    else:
        connected = lv.connect(opens.root, storage_options=opens.options)
        with connected as lake, lake.transaction() as txn:
            for name in names:
                txn.create_table(name, ROWS, format=opens.shape.format)


def _replacements(opens: Opens) -> int:
    with lv.connect(opens.root, storage_options=opens.options) as lake:
        return newest(lake).replacement


def _count(opens: Opens) -> float:
    """How many commits there are in the tables, as a client finds them that knows nothing yet."""
    shape, tables = opens.shape, [f"t{number}" for number in range(opens.shape.tables)]
    if shape.format == "delta" and shape.work == "append":
        rows = sum(rows_in(f"{opens.root}/{table}", opens.options) for table in tables)
        return rows / len(ROWS) - len(tables)
    what = "sum(n)" if shape.work == "update" else f"count(*) / {len(ROWS)} - 1"
    with lv.connect(opens.root, storage_options=opens.options) as lake:
        return sum(
            float(lake.sql(f"SELECT {what} AS n FROM {table}").to_pylist()[0]["n"])
            for table in tables
        )


def _targets(run: Run, writers: int) -> None:
    """Target 5, on one table that all append to."""

    def find(system: str, format_: str) -> Series | None:
        return run.result.find(system, format=format_, work="append", tables=1, writers=writers)

    for format_, peer, share in (("delta", "deltalake", 1 / 3), ("iceberg", "pyiceberg", 0.1)):
        for system in (THREADS, PROCESSES):
            ours = find(system, format_)
            name = f"[5] {format_}, {writers} writers: commits a second, {peer} / {system}"
            run.ratio(name, share, find(peer, format_), ours, "per_s")
            if ours is not None:
                aborts = f"[5] {format_}, {writers} writers: aborts of {system}"
                run.target(aborts, 0, [ours.aborts], ours)
    threads = find(THREADS, "delta")
    if threads is not None:
        between = [1000 / rate for rate in threads.of_repeats("per_s")]
        run.target(
            f"[5] ms from commit to commit of {writers} threads", 1000 / 30, between, threads
        )
        if any(threads.requests.values()):
            requests = threads.of_repeats("requests_a_commit")
            run.target(f"[5] requests a commit of {writers} threads", 6, requests, threads)


def _described(shape: Shape) -> str:
    return ", ".join(f"{key} {value}" for key, value in shape.params.items())


BENCHMARK = Benchmark(
    name="writers",
    summary="writers at once, as threads and as processes, beside deltalake and pyiceberg",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations=(
        "a writer whose commit is refused tries again, and its time goes on; deltalake's and "
        "pyiceberg's writers are processes; pyiceberg's catalog is a local SQLite file"
    ),
    parameters=(
        Parameter(
            "writers", "1,4,8", "1,2", "at the same time; less than the most as threads only"
        ),
        Parameter("tables", "1,8", "1", "that they share; Iceberg and updates on 1 only"),
        Parameter("work", "append,update", "append", "append 100 rows, or update one"),
        Parameter("formats", "delta,iceberg", "delta,iceberg", "of the tables"),
        Parameter(
            "systems",
            "threads,processes,deltalake,pyiceberg",
            "threads,processes,deltalake,pyiceberg",
            "threads and processes are LakeVilla's",
        ),
        Parameter("seconds", 10.0, 1.5, "of each", least=0.0),
        Parameter("repeats", 5, 1, "of each", least=1),
    ),
    run=measure,
    plots={"throughput": writers_plots.throughput, "together": writers_plots.together},
    transactions=True,
)
