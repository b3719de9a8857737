"""What queues cost, and what they buy.

A transaction that updates k tables with and without Feature.CT; the time from one transaction's
end to the commit of the one behind it; clients that all read, compute and write one row; and a
long transaction among short ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from matplotlib.figure import Figure

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Counts, Measured, closed_loop
from bench.harness.drawing import COLOURS, figure, medians
from bench.harness.features import features
from bench.harness.parameters import Parameter, chosen, numbers
from bench.harness.results import Result
from bench.harness.turns import take_turns

FEATURES = features("R|I", "R|CT", "R|CT|I")
ROWS = pa.table({"id": range(100), "n": [0] * 100})
#: Who reads, computes and writes one row: so many with these features, in their turn or not.
CROWDS: Mapping[str, tuple[tuple[int, str, bool], ...]] = {
    "4 optimistic": ((4, "R|I", False),),
    "4 in queues": ((4, "R|CT|I", False),),
    "4 in turn": ((4, "R|CT|I", True),),
    "2 in turn, 2 optimistic": ((2, "R|CT|I", True), (2, "R|I", False)),
}
HELD = "no change of the row is lost"
PARTS = ("cost", "hand-over", "one row", "long")


def measure(run: Run) -> None:
    """Each part."""
    parts: dict[str, Callable[[Run], None]] = dict(
        zip(PARTS, (_cost, _hand_over, _one_row, _long), strict=True)
    )
    for part in chosen("parts", run["parts"], PARTS):
        parts[part](run)


def _lake(run: Run, tables: int) -> str:
    root = run.places.root("queues")
    with lv.connect(root, storage_options=run.places.options) as lake, lake.transaction() as txn:
        for number in range(tables):
            txn.create_table(f"t{number}", ROWS)
    return root


def _connect(run: Run, root: str, on_event: Callable[[lv.Event], None] | None = None) -> lv.Lake:
    return lv.connect(root, storage_options=run.places.options, on_event=on_event)


def update(lake: lv.Lake, features: lv.Feature, tables: int, row: int = 0) -> None:
    """Change a row in each table."""
    with lake.transaction(features) as txn:
        for number in range(tables):
            txn.update(f"t{number}", {"n": "n + 1"}, f"id = {row}")


def _cost(run: Run) -> None:
    """Uncontended: time and requests of each choice of features, taking turns."""
    for tables in numbers(run["tables"]):
        with _connect(run, _lake(run, tables)) as lake:
            take_turns(
                run,
                {"part": "update, uncontended", "tables": tables},
                {
                    name: partial(update, lake, features, tables)
                    for name, features in FEATURES.items()
                },
                repeats=run.number("repeats"),
                settle=lake.close,
            )


def _hand_over(run: Run) -> None:
    """From the end of one transaction to the commit of the one that waits for it."""
    for repeat in range(run.number("repeats")):
        run.advance(f"hand-over, repeat {repeat + 1}")
        waits = threading.Event()
        ended: list[float] = []

        def heard(event: lv.Event, waits: threading.Event = waits) -> None:
            if event.kind == "waiting":
                waits.set()

        root = _lake(run, 1)
        with _connect(run, root) as lake, _connect(run, root, heard) as other:
            first = lake.transaction(FEATURES["R|CT|I"])
            first.update("t0", {"n": "n + 1"}, "id = 0")

            def behind(other: lv.Lake = other, ended: list[float] = ended) -> None:
                update(other, FEATURES["R|CT|I"], 1, row=1)
                ended.append(time.perf_counter())

            thread = threading.Thread(target=behind, daemon=True)
            thread.start()
            waits.wait(30)
            first.commit()
            freed = time.perf_counter()
            thread.join()
        measured = Measured(deaths=[] if ended else ["the transaction behind did not commit"])
        if ended:
            measured.seconds = ended[0] - freed
            measured.record("hand-over", measured.seconds)
        run.add("R|CT|I", {"part": "hand-over", "tables": 1}, measured)


def _one_row(run: Run) -> None:
    """Clients that read one row, compute and write it: what each kind of them comes to."""
    for crowd, kinds in CROWDS.items():
        run.advance(f"one row: {crowd}")
        _crowd(run, crowd, kinds)


def _crowd(run: Run, crowd: str, kinds: Sequence[tuple[int, str, bool]]) -> None:
    root = _lake(run, 1)
    until = time.perf_counter() + float(run["seconds"])
    given_up: list[bool] = []

    def client(counts: Counts, features: lv.Feature, in_turn: bool) -> Iterator[str]:
        with _connect(run, root) as lake:
            while time.perf_counter() < until:
                yield "change"
                while not _changed(lake, features, in_turn):
                    counts.aborts += 1
                    if time.perf_counter() > until:
                        given_up.append(True)
                        break

    work = [
        partial(client, features=FEATURES[name], in_turn=in_turn)
        for many, name, in_turn in kinds
        for _ in range(many)
    ]
    done = closed_loop(work)
    commits = done.n - len(given_up)
    run.add(crowd, {"part": "one row"}, done, figures={"commits": commits})
    _check(run, root, commits, done)


def _changed(lake: lv.Lake, features: lv.Feature, in_turn: bool) -> bool:
    try:
        with lake.transaction(features) as txn:
            if in_turn:
                txn.take_turn("t0")
            seen = txn.read("t0", where="id = 0")["n"][0].as_py()
            txn.update("t0", {"n": seen + 1}, "id = 0")
    except lv.ConflictError:
        return False
    return True


def _check(run: Run, root: str, changes: int, done: Measured) -> None:
    with _connect(run, root) as lake:
        found = lake.read("t0", where="id = 0")["n"][0].as_py()
    if not done.deaths:
        run.check(HELD, found == changes)


def _long(run: Run) -> None:
    """A transaction that takes its time on a row that short ones change as well."""
    for name in ("R|CT|I", "R|I"):
        run.advance(f"a long transaction, {name}")
        _long_one(run, name)


def _long_one(run: Run, name: str) -> None:
    root, features, stop = _lake(run, 2), FEATURES[name], threading.Event()
    attempts, short = [0], [0, 0]

    def storm(counts: Counts, number: int) -> Iterator[str]:
        with _connect(run, root) as lake:
            while not stop.is_set():
                yield "short"
                lake.run(_short, features=features, attempts=1000)
                short[number] += 1

    def long(txn: lv.Transaction) -> None:
        attempts[0] += 1
        seen = txn.read("t0", where="id = 0")["n"][0].as_py()
        time.sleep(float(run["thinks_seconds"]))
        txn.update("t1", {"n": seen}, "id = 0")
        txn.update("t0", {"n": seen + 1}, "id = 0")

    def one(counts: Counts) -> Iterator[str]:
        try:
            with _connect(run, root) as lake:
                yield "long"
                lake.run(long, features=features, attempts=1000)
        finally:
            stop.set()

    done = closed_loop([one, lambda counts: storm(counts, 0), lambda counts: storm(counts, 1)])
    only = Measured(seconds=done.seconds, deaths=done.deaths)
    only.histograms = {kind: found for kind, found in done.histograms.items() if kind == "long"}
    figures = {"attempts": attempts[0], "short_commits": sum(short)}
    run.add(name, {"part": "a long one beside short ones"}, only, figures=figures)
    _check(run, root, sum(short) + 1, done)


def _short(txn: lv.Transaction) -> None:
    txn.update("t0", {"n": "n + 1"}, "id = 0")


def cost(result: Result) -> Figure:
    """What a place in the queue costs nobody who waits, and how fast it is handed over."""
    only = replace(result, series=[one for one in result.series if "tables" in one.params])
    return medians(only, lambda one: one.described.removeprefix("part "))


def one_row(result: Result) -> Figure:
    """Commits of clients that all change one row, and conflicts that they ran into."""
    found = [one for one in result.series if one.params["part"] == "one row"]
    made, (axes,) = figure(1, f"one row, read, computed and written, profile {result.profile}")
    for i, one in enumerate(found):
        for high, name, hatch in (
            (one.figures["commits"], "commits", ""),
            (one.aborts, "conflicts", "//"),
        ):
            place = i + (0.2 if hatch else -0.2)
            colour = COLOURS[5] if hatch else COLOURS[0]
            bar = axes.bar(place, high, 0.38, color=colour, label=name if not i else None)
            axes.bar_label(bar, fmt="%g", fontsize=7)
    axes.set_xticks(range(len(found)), [one.system.replace(", ", ",\n") for one in found], size=8)
    axes.set_ylabel(f"in {result.parameters['seconds']:g} seconds")
    axes.legend(frameon=False)
    return made


BENCHMARK = Benchmark(
    name="queues",
    summary="what places in queues cost, and what they buy",
    claim="Figures 7a and 14: markers cost reads 20% and writes about nothing",
    deviations="all clients are lakes of one process",
    parameters=(
        Parameter("parts", "cost,hand-over,one row,long", "cost,hand-over,one row", "of them"),
        Parameter("tables", "1,2,8", "1,2", "in a transaction"),
        Parameter("repeats", 15, 2, "of cost and hand-over", least=1),
        Parameter("seconds", 20.0, 3.0, "of each crowd on one row", least=0.1),
        Parameter("thinks_seconds", 1.0, 0.3, "between the long one's read and its write"),
    ),
    run=measure,
    plots={"cost": cost, "one-row": one_row},
)
