"""Appends and opens beside deltalake and DuckLake, in a directory and on the run's store.

Each appends 100 rows to warm tables. The numbers in brackets are those of the project's targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import lakevilla as lv
from bench.commits.rows import ROWS, rows_in
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, chosen
from bench.harness.peers.deltalake import Deltalake
from bench.harness.peers.ducklake import DuckLake
from bench.harness.store.places import LOCAL
from bench.harness.turns import take_turns
from bench.size.million import open_table

WIDE = 8  # tables in the wide transaction
COMMITS = 10  # of the table that is opened cold
NONE = "LakeVilla, NONE"
DECIDED, PUBLISHED = "LakeVilla, decided", "LakeVilla, published"
PARTS = ("directory", "store")
#: Whether LakeVilla waits for the disk, and its targets: of deltalake's append, of DuckLake's
#: transaction over two tables.
DURABLE = {"on": (0.7, 0.55), "off": (0.4, 0.4)}


class LakeVilla:
    """LakeVilla as a user has it: one connection, warm tables."""

    def __init__(self, root: str, options: Mapping[str, str], *, durable: bool = True) -> None:
        self.root, self.options = root, dict(options)
        settings = lv.Settings(durable_files=durable)
        self.lake = lv.connect(root, storage_options=self.options, settings=settings)
        self.appends: dict[str, int] = {}

    def create(self, tables: Sequence[str]) -> None:
        with self.lake.transaction() as txn:
            for table in tables:
                txn.create_table(table, ROWS)
                self.appends[table] = 1

    def append_alone(self, table: str) -> None:
        with self.lake.transaction(features=lv.Feature.NONE) as txn:
            txn.append(table, ROWS)
        self.appends[table] += 1

    def append(
        self, tables: Sequence[str], wait: Literal["published", "decided"] = "published"
    ) -> None:
        with self.lake.transaction(wait=wait) as txn:
            for table in tables:
                txn.append(table, ROWS)
        for table in tables:
            self.appends[table] += 1

    def settle(self) -> None:
        """Wait for the background; the lake goes on to work."""
        self.lake.close()

    def holds_all(self) -> bool:
        """Whether each table's log has every row of each append that returned."""
        self.lake.close()
        return all(
            rows_in(f"{self.root}/{table}", self.options) == len(ROWS) * count
            for table, count in self.appends.items()
        )


def measure(run: Run) -> None:
    """Each part, its systems in turn."""
    for part in chosen("parts", run["parts"], PARTS):
        (_directory if part == "directory" else _store)(run)


def _directory(run: Run) -> None:
    """Target 11: a local directory, without a server in between.

    LakeVilla with and without waiting for the disk takes turns with the others. Deltalake never
    waits for it, DuckLake for its catalog alone.
    """
    base, tables = run.places.directory / "beside", ["alone", "a", "b"]
    base.mkdir()
    durable = chosen("durable", run["durable"], DURABLE)
    ours = {how: LakeVilla(str(base / how), {}, durable=how == "on") for how in durable}
    for lake in ours.values():
        lake.create(tables)
    theirs = Deltalake(str(base / "theirs"), {})
    theirs.create(tables, ROWS)

    def settle() -> None:
        for lake in ours.values():
            lake.settle()

    in_turns = partial(
        take_turns,
        run,
        repeats=4 * run.number("repeats"),
        warm_up=3,
        settle=settle,
        counted=False,
    )
    one, two = {"operation": "directory: append"}, {"operation": "directory: 2 tables"}
    systems: dict[str, Callable[[], object]] = {
        f"{NONE}, durable {how}": partial(lake.append_alone, "alone") for how, lake in ours.items()
    }
    in_turns(one, {**systems, "deltalake": lambda: theirs.append(["alone"], ROWS)})
    systems = {
        f"{PUBLISHED}, durable {how}": partial(lake.append, ["a", "b"])
        for how, lake in ours.items()
    }
    systems["deltalake, not atomic"] = lambda: theirs.append(["a", "b"], ROWS)
    close = _with_ducklake(run, systems, str(base / "duck"), {}, ["a", "b"])
    in_turns(two, systems)
    close()
    find = run.result.find
    for how, lake in ours.items():
        _check(run, lake)
        of_append, of_two = DURABLE[how]
        run.ratio(
            f"[11] append in a directory, durable {how} / deltalake",
            of_append,
            find(f"{NONE}, durable {how}", **one),
            find("deltalake", **one),
        )
        run.ratio(
            f"[11] 2 tables in a directory, durable {how} / DuckLake",
            of_two,
            find(f"{PUBLISHED}, durable {how}", **two),
            find("DuckLake", **two),
        )


def _store(run: Run) -> None:
    """Targets 1, 3 and 6: a store behind a latency."""
    options, wide = run.places.options, [f"wide{number}" for number in range(WIDE)]
    ours = LakeVilla(run.places.root("ours"), options)
    theirs = Deltalake(run.places.root("deltalake"), options)
    run.advance("tables are made")
    ours.create(["alone", *wide])
    theirs.create(["alone", *wide, "cold"], ROWS)
    for _ in range(COMMITS - 1):
        theirs.append(["cold"], ROWS)
    in_turns = partial(
        take_turns, run, repeats=run.number("repeats"), warm_up=1, settle=ours.settle
    )
    in_turns(
        {"operation": "append"},
        {
            NONE: lambda: ours.append_alone("alone"),
            "deltalake": lambda: theirs.append(["alone"], ROWS),
        },
    )
    systems: dict[str, Callable[[], object]] = {
        DECIDED: lambda: ours.append(wide, "decided"),
        PUBLISHED: lambda: ours.append(wide),
        "deltalake, not atomic": lambda: theirs.append(wide, ROWS),
    }
    close = _with_ducklake(run, systems, run.places.root("duck"), options, wide)
    in_turns({"operation": f"{WIDE} tables"}, systems)
    close()
    in_turns(
        {"operation": f"cold open, {COMMITS} commits"},
        {
            "LakeVilla": lambda: open_table(theirs.root, "cold", options),
            "deltalake": lambda: theirs.open_cold("cold"),
        },
    )
    _check(run, ours)
    _targets_of_store(run)


def _targets_of_store(run: Run) -> None:
    find = run.result.find
    one, wide = {"operation": "append"}, {"operation": f"{WIDE} tables"}
    cold = {"operation": f"cold open, {COMMITS} commits"}
    run.ratio("[1] append / deltalake", 0.45, find(NONE, **one), find("deltalake", **one))
    decided = find(DECIDED, **wide)
    run.ratio("[3] 8 tables, decided / DuckLake", 0.35, decided, find("DuckLake", **wide))
    run.ratio(
        "[3] 8 tables, decided / deltalake", 0.08, decided, find("deltalake, not atomic", **wide)
    )
    if run.places.profile == LOCAL:
        run.note("requests are not counted in a directory: their targets need --profile s3 or zero")
        return
    append, published = find(NONE, **one), find(PUBLISHED, **wide)
    opened, theirs = find("LakeVilla", **cold), find("deltalake", **cold)
    if append is None or published is None or opened is None or theirs is None:
        return
    run.target("[1] requests of an append", 3, [sum(append.requests.values())], append)
    run.target("[3] PUT of 8 tables", 2 * WIDE + 2, [published.requests["put"]], published)
    reads = sum(published.requests[verb] for verb in ("get", "head", "list"))
    run.target("[3] GET of 8 tables", WIDE + 1, [reads], published)
    half = sum(theirs.requests.values()) / 2
    run.target("[6] requests of a cold open", half, [sum(opened.requests.values())], opened)


def _with_ducklake(
    run: Run,
    systems: dict[str, Callable[[], object]],
    root: str,
    options: Mapping[str, str],
    tables: Sequence[str],
) -> Callable[[], None]:
    """Put DuckLake among the systems, if it is installed; how it is closed."""
    try:
        duck = DuckLake(run.places.file("ducklake.db"), root, options)
    except (NotInstalled, RuntimeError) as error:
        run.note(f"DuckLake was left out: {error}")
        return lambda: None
    duck.create(tables, ROWS)
    systems["DuckLake"] = lambda: duck.append(tables, ROWS)
    return duck.close


def _check(run: Run, ours: LakeVilla) -> None:
    run.check("the log of each table has every row that was appended", ours.holds_all())


BENCHMARK = Benchmark(
    name="smoke",
    summary="appends to one table and to several, and a cold open, beside deltalake and DuckLake",
    claim="none: these are the project's own targets, whose numbers stand in brackets",
    deviations=(
        "deltalake has no transaction over tables: it commits to one after the other, not "
        "atomically; DuckLake's catalog is a local file, which costs it no latency"
    ),
    parameters=(
        Parameter("parts", "directory,store", "directory,store", f"of {', '.join(PARTS)}"),
        Parameter(
            "durable",
            "on,off",
            "on,off",
            f"whether LakeVilla waits for a directory's disk, of {', '.join(DURABLE)}",
        ),
        Parameter("repeats", 5, 2, "of each, and four times as many in a directory", least=1),
    ),
    run=measure,
    plots={
        "medians": lambda result: medians(result, lambda one: str(one.params["operation"])),
    },
    transactions=True,
)
