"""Iceberg tables without a catalog, beside pyiceberg with its SQL catalog.

Appends of 100 rows to a warm table; and a thousand commits to one table in a local directory, whose
cost and metadata must not grow with their number: the last are timed beside the tenth of young
tables, in turns, because a disk is not equally fast all the time.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import lakevilla as lv
from bench.commits.rows import ROWS
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, chosen
from bench.harness.peers import peer
from bench.harness.turns import take_turns

#: How many commits a young table has.
EARLY = 10
PROPERTIES = {
    "commit.manifest.min-count-to-merge": "100",
    "write.metadata.previous-versions-max": "100",
}
NONE = "LakeVilla, NONE"
HELD = "a table has every row that was appended"


def measure(run: Run) -> None:
    """Each part."""
    parts = {"append": _append, "commits": _commits}
    wanted = chosen("parts", run["parts"], parts)
    if importlib.util.find_spec("pyiceberg") is None:
        # It is more than the peer: LakeVilla's Iceberg tables need it, so no part can run.
        raise NotInstalled("Iceberg tables need pyiceberg: pip install 'lakevilla[bench]'")
    for part in wanted:
        parts[part](run)


class Appends:
    """A lake with Iceberg tables, and how often each was appended to."""

    def __init__(self, root: str, options: dict[str, str]) -> None:
        self.root, self.options = root, options
        self.lake = lv.connect(root, storage_options=options)
        self.count: dict[str, int] = {}

    def create(self, table: str) -> None:
        self.lake.create_table(table, ROWS, format="iceberg", properties=PROPERTIES)
        self.count[table] = 1

    def append(self, table: str) -> None:
        with self.lake.transaction(features=lv.Feature.NONE) as txn:
            txn.append(table, ROWS)
        self.count[table] += 1

    def hold(self, table: str) -> bool:
        """Whether a client that knows nothing of the table finds all its rows."""
        self.lake.close()
        with lv.connect(self.root, storage_options=self.options) as other:
            (row,) = other.sql(f"SELECT count(*) AS n FROM {table}").to_pylist()
        return bool(row["n"] == len(ROWS) * self.count[table])


def _append(run: Run) -> None:
    """Target 2."""
    theirs = peer("pyiceberg", run.places)
    ours = Appends(run.places.root("ours"), run.places.options)
    ours.create("alone")
    systems = {NONE: lambda: ours.append("alone")}
    theirs.create(["alone"], ROWS)
    systems["pyiceberg"] = lambda: theirs.append(["alone"], ROWS)
    params = {"operation": "append"}
    repeats = run.number("repeats")
    take_turns(run, params, systems, repeats=repeats, warm_up=2, settle=ours.lake.close)
    run.check(HELD, ours.hold("alone"))
    append = run.result.find(NONE, **params)
    run.ratio("[2] append / pyiceberg", 0.25, append, run.result.find("pyiceberg", **params))
    if append is not None and append.requests:
        run.target("[2] PUT of an append", 5, [append.requests["put"]], append)


def _commits(run: Run) -> None:
    """A commit late costs what one early does, and metadata stays bounded."""
    commits, pairs = (
        run.number("commits"),
        min(run.number("commits") - 1, 4 * run.number("repeats")),
    )
    directory = run.places.directory / "commits"
    ours = Appends(str(directory), {})
    ours.create("long")
    for number in range(commits - pairs):
        if number % 20 == 0:
            run.advance(f"{number} of {commits} commits to one table")
        ours.append("long")
    early, late = (
        {"operation": "commit, in a directory", "number": number}
        for number in (f"{EARLY}", f"{commits - pairs} to {commits}")
    )
    for number in range(pairs):
        young = f"young{number}"
        ours.create(young)
        for _ in range(EARLY - 1):
            ours.append(young)
        for params, table in ((early, young), (late, "long")):
            once = {NONE: lambda table=table: ours.append(table)}
            take_turns(run, params, once, repeats=1, warm_up=0, counted=False)
    run.check(HELD, ours.hold("long"))
    of, to = (run.result.find(NONE, **params) for params in (late, early))
    run.ratio("a late commit / an early one", 1.5, of, to)
    metadata = _newest_metadata(directory / "long")
    run.target(f"kB of the newest metadata file, {commits} commits", 1000, [metadata])


def _newest_metadata(table: Path) -> float:
    files = list((table / "metadata").glob("*.metadata.json"))
    return max(files, key=lambda path: path.stat().st_mtime).stat().st_size / 1e3


BENCHMARK = Benchmark(
    name="iceberg",
    summary="appends to an Iceberg table beside pyiceberg, and a thousand commits to one",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations="pyiceberg's catalog is a local SQLite file, which costs it no latency",
    parameters=(
        Parameter("parts", "append,commits", "append,commits", "of them"),
        Parameter("repeats", 10, 3, "of an append, and four times as many late commits", least=1),
        Parameter("commits", 1000, 60, "to one table in a local directory", least=20),
    ),
    run=measure,
    plots={
        "medians": lambda result: medians(
            result,
            lambda one: str(one.params["operation"]),
            lambda one: f"{one.system} {one.params.get('number', '')}".strip(),
        ),
    },
    transactions=True,
)
