"""A soak: many commits by several processes, with upkeep, must leave nothing behind that grows.

The run has periods of the same number of commits. Between two of them all clients rest, what the
last period has made superfluous is deleted, and what is left is measured. So each figure belongs to
the same state of a lake, however fast the machine is. The first quarter is a warm-up; over the last
three quarters each figure must stay where it is.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import obstore
from deltalake import DeltaTable
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value
from bench.harness.results import Result
from bench.harness.store.places import LOCAL
from bench.size.steady_client import PROPERTIES, SCHEMA, TABLES, Period, serve, settings


class Limit(NamedTuple):
    """How much of a figure may be added over the last three quarters.

    Attributes
    ----------
    part : float
        Of the figure itself.
    least : float
        In any case; for figures that are small, or that an allocator moves.
    """

    figure: str
    part: float
    least: float


#: By the pattern of a figure's name; the first that fits counts. Commits that meet each other make
#: requests again, and a page of HEAD's history or a checkpoint may or may not be due at a period's
#: end.
LIMITS = (
    Limit("memory_mb of *", 0.06, 12),
    Limit("requests_per_commit", 0.06, 0.5),
    Limit("upkeep_per_round", 0.1, 20),
    Limit("head_kb", 0.06, 4),
    # Copies of HEAD, one for each page: a short run does not come to the 16 that are kept.
    Limit("objects in _lakevilla/recent", 0.06, 16),
    Limit("kb in _lakevilla/recent", 0.1, 16 * 64),
    # Up to a hundred small manifests of an Iceberg table wait to be merged.
    Limit("objects in */metadata", 0.06, 30),
    Limit("kb in */metadata", 0.1, 256),
    Limit("objects in *", 0.06, 12),
    Limit("kb in *", 0.1, 24),
)


def measure(run: Run) -> None:
    """All periods, and then each figure over the last three quarters of them."""
    root, periods = run.places.root("steady"), run.number("periods")
    retention = float(run["retention_seconds"])
    _make_tables(run, root, retention)
    figures: list[dict[str, float]] = []
    with _clients(run, root, retention) as pipes:
        each = max(1, run.number("commits") // periods // len(pipes))
        for period in range(periods):
            run.advance(f"period {period + 1} of {periods}: {each * len(pipes):,} commits")
            for pipe in pipes:
                pipe.send((period, each))
            done = [_received(pipe) for pipe in pipes]
            deaths = [f"client {n}: {one.death}" for n, one in enumerate(done) if one.death]
            measured = Measured(seconds=max(one.seconds for one in done), deaths=deaths)
            for one in done:
                for _ in range(one.commits):
                    measured.record("transaction", one.seconds / one.commits)
            run.check("no client died", not deaths)
            if deaths:
                run.add("LakeVilla", {"period": period + 1}, measured)
                return
            found = _cost(done) | _rest(run, root, retention, period, done)
            figures.append(found)
            params: dict[str, Value] = {"period": period + 1}
            run.add("LakeVilla", params, measured, figures=found)
    for name in sorted(set().union(*figures)):
        _check_flat(run, name, [one.get(name, 0.0) for one in figures])


def _make_tables(run: Run, root: str, retention: float) -> None:
    given = run.places.options or None
    with lv.connect(root, storage_options=given, settings=settings(retention)) as lake:
        for name, kind in TABLES.items():
            lake.create_table(name, SCHEMA, format=kind, properties=PROPERTIES[kind])


@contextmanager
def _clients(run: Run, root: str, retention: float) -> Iterator[list[Connection]]:
    """Start the processes; none is left when the block ends."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    try:
        for number in range(run.number("processes")):
            pipe, theirs = context.Pipe()
            every = float(run["maintain_seconds"])
            arguments = (theirs, root, run.places.options, number, every, retention, run.seed)
            process = context.Process(target=serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            pipes.append(pipe)
            processes.append(process)
        yield pipes
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join(30)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()


def _received(pipe: Connection) -> Period:
    try:
        done: Period = pipe.recv()
    except EOFError:
        return Period(death="its process has ended")
    return done


def _cost(done: Sequence[Period]) -> dict[str, float]:
    """Return what commits and upkeep have cost, and the memory of each process."""
    commits = sum(one.commits for one in done)
    found = {
        "requests_per_commit": sum(one.requests for one in done) / commits,
        "cpu_ms_per_commit": 1000 * sum(one.cpu_seconds for one in done) / commits,
    }
    found |= {f"memory_mb of client {n}": one.memory / 1e6 for n, one in enumerate(done)}
    return found


def _rest(
    run: Run, root: str, retention: float, period: int, done: Sequence[Period]
) -> dict[str, float]:
    """Delete what is superfluous by now, and measure what is left.

    The formats keep what is superfluous for days, and the tables' properties say that it is for
    seconds here. ``maintain`` vacuums and collects garbage once a day: the same verbs are called.
    """
    given = run.places.options or None
    with lv.connect(root, storage_options=given, settings=settings(retention)) as lake:
        expected: Counter[str] = Counter()
        for one in done:
            expected.update(one.appended)
        for name in TABLES:
            lake.run(lambda txn, name=name: txn.delete(name, f"period < {period}"))
            rows = lake.table(name).read(columns=["n"]).num_rows
            run.check("each row of the period is there once, and no other", rows == expected[name])
            lake.table(name).optimize()
        # What was removed just now has to be older than the retention.
        time.sleep(retention + 1)
        runner = lake._client.runner
        with runner.requests.counting() as made:
            for report in (lake.maintain(), lake.gc()):
                _check_report(run, "upkeep finds nothing wrong", report, ok=report.ok)
            for name in TABLES:
                lake.table(name).vacuum(
                    retention / 3600, dry_run=False, enforce_retention_duration=False
                )
        report = lake.doctor()
        _check_report(run, "the doctor finds nothing wrong", report, ok=report.ok)
    for name, kind in TABLES.items():
        if kind == "delta":  # LakeVilla leaves the clean-up of logs to other clients
            table = DeltaTable(f"{root}/{name}", storage_options=given)
            table.create_checkpoint()
            table.cleanup_metadata()
    return {"upkeep_per_round": float(made.total), **_sizes(run, root)}


def _check_report(run: Run, name: str, report: lv.Report, *, ok: bool) -> None:
    run.check(name, ok)
    for finding in () if ok else report.findings:
        run.note(f"{name}: {finding.kind}: {finding.message}")


def _sizes(run: Run, root: str) -> dict[str, float]:
    """Return the number and size of objects, by directory."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    found: dict[str, float] = {}
    for batch in obstore.list(run.places.objects(root)):
        for one in batch:
            path = one["path"].split("/")
            if path[-1] == "HEAD.json":
                found["head_kb"] = one["size"] / 1000
            where = "/".join(part for part in path[:-1][:2] if "=" not in part)
            count[where] += 1
            size[where] += one["size"]
    found |= {f"objects in {where}": float(number) for where, number in count.items()}
    found |= {f"kb in {where}": number / 1000 for where, number in size.items()}
    return found


def _check_flat(run: Run, name: str, values: Sequence[float]) -> None:
    """Check that a figure does not rise over the last three quarters, by a line through them."""
    limit = next((one for one in LIMITS if fnmatchcase(name, one.figure)), None)
    late = list(values)[len(values) // 4 :]
    if len(late) < 3:
        run.note("too few periods: nothing was compared")
        return
    rise, error = rise_of(late)
    mean = statistics.fmean(late)
    told = f"{rise:+,.1f} over the last three quarters, with a standard error of {error:,.1f}"
    run.note(f"{name}: {mean:,.1f} on average, {told}")
    if limit is not None:
        run.check(f"flat: {name}", rise <= max(limit.part * mean, limit.least, 2 * error))


def rise_of(values: Sequence[float]) -> tuple[float, float]:
    """Return how much a line through the values, at least three, rises, and its standard error.

    Some figures go up and down by more than their limit from period to period, as what is merged or
    deleted a hundred at a time.
    """
    places = range(len(values))
    slope, start = statistics.linear_regression(places, values)
    rest = sum((value - start - slope * place) ** 2 for place, value in enumerate(values))
    spread = sum((place - statistics.fmean(places)) ** 2 for place in places)
    error = (rest / (len(values) - 2) / spread) ** 0.5
    return slope * (len(values) - 1), error * (len(values) - 1)


def _drawn(figures: str, unit: str, result: Result) -> Figure:
    """Draw a figure of each period."""
    return medians(
        result,
        lambda one: figures,
        lambda one: f"{one.params['period']}",
        figure=figures,
        unit=unit,
    )


BENCHMARK = Benchmark(
    name="steady",
    summary="a soak: memory, requests, HEAD, logs and directories stay flat through many commits",
    claim="none: these are the project's own checks",
    deviations=(
        "log entries, snapshots and removed files are deleted after seconds, not after days; "
        "all clients rest while that is done; their caches are small, so that they are full soon"
    ),
    parameters=(
        Parameter("commits", 100_000, 160, "of all processes", least=1),
        Parameter("processes", 4, 2, "that commit", least=1),
        Parameter("periods", 20, 8, "between which all is measured", least=1),
        Parameter("maintain_seconds", 60.0, 2.0, "between two calls of maintain", least=0),
        Parameter("retention_seconds", 20.0, 3.0, "for which old files are kept", least=1),
    ),
    run=measure,
    plots={
        "requests": partial(_drawn, "requests_per_commit", "requests a commit"),
        "head": partial(_drawn, "head_kb", "KB of HEAD"),
    },
    profile=LOCAL,
    needs=lambda parameters: Needs(
        disk_bytes=2 << 30,
        memory_bytes=int(parameters["processes"]) * (300 << 20),
        why="several processes at one lake",
    ),
)
