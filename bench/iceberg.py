"""Iceberg tables: LakeVilla, without a catalog, beside pyiceberg with its SQL catalog.

``python -m bench.iceberg``: appends of 100 rows to a warm table, by one writer and by eight
(threads of one process, or processes), against an S3 server on loopback behind a proxy with
the latency of S3; and a thousand commits to one table in a local directory, whose cost and
metadata must not grow with their number: the last are timed beside the tenth of young tables.
The numbers in brackets are the project's targets.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path

from pyiceberg.exceptions import CommitFailedException

import lakevilla as lv
from bench.harness import Result, Series, Target, interleave, ministack, report
from bench.latency_proxy import LatencyProxy, latency_proxy
from bench.peers import PyIceberg
from bench.smoke import ROWS

WRITERS = 8
#: How many commits a young table has, and how many are timed on young tables and the old one.
EARLY, PAIRS = 10, 40
PROPERTIES = {
    "commit.manifest.min-count-to-merge": "100",
    "write.metadata.previous-versions-max": "100",
}


def lake_with(root: str, table: str, options: dict[str, str] | None = None) -> lv.Lake:
    """A connection to a lake with a table that has rows."""
    lake = lv.connect(root, storage_options=options)
    lake.create_table(table, ROWS, format="iceberg", properties=PROPERTIES, exist_ok=True)
    return lake


def append_alone(lake: lv.Lake, table: str) -> None:
    with lake.transaction(features=lv.Feature.NONE) as txn:
        txn.append(table, ROWS)


def one_writer(directory: Path, proxy: LatencyProxy, repeats: int) -> Result:
    """Target 2."""
    options = proxy.storage_options
    ours = lake_with("s3://lake/ours", "alone", options)
    theirs = PyIceberg(directory / "one.db", "s3://lake/theirs", options)
    theirs.create(["alone"], ROWS)
    append = interleave(
        "s3: append",
        {
            "LakeVilla (NONE)": lambda _: append_alone(ours, "alone"),
            "pyiceberg": lambda _: theirs.append(["alone"], ROWS),
        },
        repeats=repeats,
        warm_up=2,
        reset=proxy.reset,
        count=lambda: proxy.requests,
        settle=ours.close,
    )
    append.ratio("[2] append / pyiceberg", 0.25, "LakeVilla (NONE)", "pyiceberg")
    made = append.of("LakeVilla (NONE)").requests
    append.targets.append(Target("[2] PUT of an append", 5, made.get("PUT", 0)))
    ours.close()
    return append


Write = Callable[[], bool]
THREADS, PROCESSES, PEER = "LakeVilla, threads", "LakeVilla, processes", "pyiceberg"


def writer(system: str, directory: Path, options: dict[str, str]) -> Write:
    """One append; whether it was committed."""
    if system == PEER:
        handle = PyIceberg(directory / "eight.db", "s3://lake/eight", options).handle("alone")

        def append() -> None:
            handle.refresh()
            handle.append(ROWS)
    else:
        lake = lv.connect("s3://lake/eight-ours", storage_options=options)

        def append() -> None:
            with lake.transaction() as txn:
                txn.append("alone", ROWS)

    def write() -> bool:
        try:
            append()
        except (CommitFailedException, lv.ConflictError):
            return False
        return True

    return write


@dataclass(frozen=True)
class Work:
    """What one writer got done."""

    commits: int
    aborts: int
    seconds: float


def busy(write: Write, seconds: float, go: Callable[[], object]) -> Work:
    """Append as fast as it goes, and count how that ends."""
    write()
    go()
    ended: Counter[bool] = Counter()
    started = now = time.perf_counter()
    while now < started + seconds:
        ended[write()] += 1
        now = time.perf_counter()
    return Work(ended[True], ended[False], now - started)


def _process(
    system: str,
    directory: Path,
    options: dict[str, str],
    seconds: float,
    go: multiprocessing.synchronize.Barrier,
    told: Queue[Work],
) -> None:
    told.put(busy(writer(system, directory, options), seconds, go.wait))


def together(system: str, directory: Path, seconds: float, proxy: LatencyProxy) -> list[Work]:
    """Eight writers at once: threads of one process, or processes."""
    options = proxy.storage_options
    if system == THREADS:
        write = writer(system, directory, options)
        meeting = threading.Barrier(WRITERS, action=proxy.reset)
        with ThreadPoolExecutor(WRITERS) as pool:
            tasks = [pool.submit(busy, write, seconds, meeting.wait) for _ in range(WRITERS)]
            return [task.result() for task in tasks]
    context = multiprocessing.get_context("spawn")
    go, told = context.Barrier(WRITERS + 1), context.Queue()
    given = (system, directory, options, seconds, go, told)
    members = [context.Process(target=_process, args=given) for _ in range(WRITERS)]
    for member in members:
        member.start()
    go.wait()
    proxy.reset()
    done = [told.get() for _ in members]
    for member in members:
        member.join()
    return done


def eight_writers(directory: Path, proxy: LatencyProxy, seconds: float, repeats: int) -> Result:
    """Target 5, on one Iceberg table; told as the time of a commit."""
    options = proxy.storage_options
    lake_with("s3://lake/eight-ours", "alone", options).close()
    PyIceberg(directory / "eight.db", "s3://lake/eight", options).create(["alone"], ROWS)
    systems = (THREADS, PROCESSES, PEER)
    result = Result(f"s3: {WRITERS} writers", [Series(system) for system in systems])
    aborts: Counter[str] = Counter()
    for _ in range(repeats):
        for series in result.series:
            done = together(series.system, directory, seconds, proxy)
            commits = max(sum(work.commits for work in done), 1)
            series.requests = {verb: round(n / commits) for verb, n in proxy.requests.items()}
            rate = sum(work.commits / work.seconds for work in done)
            series.seconds.append(1 / rate if rate else seconds)
            aborts[series.system] += sum(work.aborts for work in done)
    for system in (THREADS, PROCESSES):
        result.ratio(f"[5] time of a commit, {system} / pyiceberg", 0.1, system, PEER)
        result.targets.append(Target(f"[5] aborts, {system}", 0, aborts[system]))
    print(f"aborts of pyiceberg: {aborts[PEER]}")
    return result


def thousand(directory: Path, commits: int) -> Result:
    """A commit late costs what one early does, and metadata stays bounded.

    Both are taken in turns, when the one table is old: a disk is not equally fast all the time.
    """
    lake = lake_with(str(directory), "long")
    for _ in range(commits - PAIRS):
        append_alone(lake, "long")
    systems = (f"commit {EARLY}", f"commits {commits - PAIRS} to {commits}")
    early, late = (Series(system) for system in systems)
    for number in range(PAIRS):
        lake.create_table(f"young{number}", ROWS, format="iceberg", properties=PROPERTIES)
        for _ in range(EARLY - 1):
            append_alone(lake, f"young{number}")
        for series, table in ((early, f"young{number}"), (late, "long")):
            started = time.perf_counter()
            append_alone(lake, table)
            series.seconds.append(time.perf_counter() - started)
    lake.close()
    result = Result(f"local: {commits} commits", [early, late])
    result.ratio("a late commit / an early one", 1.5, late.system, early.system)
    metadata = directory / "long" / "metadata"
    newest = max(metadata.glob("v*.metadata.json"), key=lambda path: path.stat().st_mtime)
    result.targets.append(
        Target("KB of the newest metadata file", 1000, newest.stat().st_size / 1e3)
    )
    print(f"{commits} commits: {len(list(metadata.iterdir()))} objects in metadata/")
    return result


def main() -> int:
    """Run the parts asked for; exit status 0 if every target was met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=3, help="of the eight writers")
    parser.add_argument("--seconds", type=float, default=10.0, help="of one such round")
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--parts", default="append,writers,commits")
    parser.add_argument("--profile", default="s3", choices=["zero", "s3", "express"])
    parser.add_argument("--json", type=Path, default=Path("bench/results/iceberg.json"))
    parser.add_argument("--strict", action="store_true", help="exit 1 where a target was missed")
    options = parser.parse_args()
    parts = set(options.parts.split(","))
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="lakevilla-bench-") as name:
        directory = Path(name)
        if parts & {"append", "writers"}:
            with ministack() as endpoint, latency_proxy(endpoint, options.profile) as proxy:
                if "append" in parts:
                    results.append(one_writer(directory, proxy, options.repeats))
                if "writers" in parts:
                    results.append(eight_writers(directory, proxy, options.seconds, options.rounds))
        if "commits" in parts:
            results.append(thousand(directory / "thousand", options.commits))
    parameters = {"repeats": options.repeats, "profile": options.profile, "rows": len(ROWS)}
    met = report(results, options.json, parameters)
    return 1 if options.strict and not met else 0


if __name__ == "__main__":
    sys.exit(main())
