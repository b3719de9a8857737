"""Scale: an append, a read and a cold open, beside more files, tables, commits and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import (
    CLIENT_PARAMETERS,
    Client,
    Counts,
    Manner,
    clients_need,
    manner,
    run_clients,
)
from bench.harness.drawing import grid, legend, lines
from bench.harness.needs import Needs
from bench.harness.parameters import Parameter, Value, listed, numbers
from bench.harness.results import Result, Series
from bench.scale.systems import APPENDED, FEATURES, System, maker

GROWS = ("files", "tables", "commits", "clients")
DOES = APPEND, READ, OPEN = "append", "read", "cold open and read"
#: What one file, table or commit takes in the store, its log entries and records included; and
#: while it is made, in this process.
_BYTES_OF_ONE, _MEMORY_OF_ONE = 16 * 1024, 16 * 1024


@dataclass(slots=True)
class _Grown:
    """A system that has its size, and how many rows were appended to it since."""

    name: str
    made: System
    root: str
    opened: Any
    appended: int
    died: bool = False


def measure(run: Run) -> None:
    """Each size in a lake of its own, all systems side by side; they take turns."""
    for grows in GROWS:
        for size in _sizes(run.result.parameters, grows):
            with ExitStack() as stack:
                all_ = [_grown(run, name, grows, size, stack) for name in listed(run["systems"])]
                grown = [one for one in all_ if one is not None]
                for repeat in range(run.number("repeats")):
                    for one in grown:
                        run.advance(f"{one.name}, {size} {grows}, repeat {repeat + 1}")
                        for does in DOES if grows != "clients" else (APPEND,):
                            _measured(run, one, grows, size, does, is_first=repeat == 0)
                for one in grown:
                    if not one.died:
                        holds = one.made.appended() == one.appended
                        run.check("each row that was appended is there, once", holds)
            for one in grown:
                run.places.discard(one.root)


def _grown(run: Run, name: str, grows: str, size: int, stack: ExitStack) -> _Grown | None:
    root = run.places.root(name)
    made = maker(name)(root, run.places.options)
    if grows not in made.grows:
        run.note(f"{name} has no {grows}")
        return None
    run.advance(f"{name}, {size} {grows}: made")
    made.fill(grows, size, run.places.direct_options)
    there = int(grows == "files" and size > APPENDED)
    return _Grown(name, made, root, stack.enter_context(made.open()), there)


def _measured(run: Run, one: _Grown, grows: str, size: int, does: str, *, is_first: bool) -> None:
    clients, how = 1, Manner()
    opens: Callable[[], AbstractContextManager[Any]] = partial(nullcontext, one.opened)
    if grows == "clients":
        clients, how = size, manner(run.result.parameters, str(run.seed))
        if how.as_ == "threads" and one.name == "deltalake":
            how = replace(how, as_="lakes")  # a handle is of one client
        opens = one.made.open
    # What is opened for each repeat is cold again.
    is_cold = is_first or grows == "clients"
    warm_ups = run.number("warm_up") if is_cold and does != OPEN else 0
    work = partial(_work, one.made, does, run.number("operations"))
    client = Client(work, partial(_work, one.made, does, warm_ups))
    measured = run_clients(opens, [client] * clients, how, on_start=run.places.reset)
    params: dict[str, Value] = {"grows": grows, "size": size, "does": does}
    run.add(one.name, params, measured, requests=run.places.count())
    if does == APPEND:
        one.appended += measured.n + warm_ups * clients
        one.died = one.died or bool(measured.deaths)


def _work(made: System, does: str, times: int, opened: Any, counts: Counts) -> Iterator[str]:
    for _ in range(times):
        yield does
        if does == OPEN:
            with made.open() as fresh:
                made.read(fresh, counts)
        else:
            (made.append if does == APPEND else made.read)(opened, counts)


def _sizes(parameters: Mapping[str, Value], grows: str) -> list[int]:
    return [] if parameters[grows] == "no" else numbers(parameters[grows])


def needs(parameters: Mapping[str, Value]) -> Needs:
    """What the largest size takes; and refuses what there is not."""
    for name in listed(parameters["systems"]):
        maker(name)
    largest = {grows: max(_sizes(parameters, grows), default=0) for grows in GROWS}
    clients = largest.pop("clients")
    grows, most = max(largest.items(), key=lambda one: one[1])
    size = Needs(most * _BYTES_OF_ONE, 0, most * _MEMORY_OF_ONE, f"a lake of {most:,} {grows}")
    return size + clients_need(parameters, clients)


def latency(result: Result) -> Figure:
    """Milliseconds of one operation over the size, one panel for each thing that grows."""
    return _drawn(result, "median, ms", lambda one: one.p50_ms)


def requests(result: Result) -> Figure:
    """Requests of one operation over the size."""
    return _drawn(result, "requests", lambda one: sum(one.requests.values()) / _of_last_repeat(one))


def _of_last_repeat(series: Series) -> float:
    return max(series.repeats[-1]["n"], 1)


def _drawn(result: Result, unit: str, of: Callable[[Series], float]) -> Figure:
    """A row for each operation, a column for each thing that grows."""
    columns = [
        grows for grows in GROWS if any(one.params["grows"] == grows for one in result.series)
    ]
    made, rows = grid(len(DOES), len(columns), f"as a lake grows, profile {result.profile}")
    systems = list(dict.fromkeys(one.system for one in result.series))
    for row, does in zip(rows, DOES, strict=True):
        for panel, grows in zip(row, columns, strict=True):
            here = [one for one in result.series if _is(one, grows, does)]
            if not here:
                panel.set_visible(False)
                continue
            sizes = sorted({int(one.params["size"]) for one in here})
            lines(
                panel, sizes, {n: [_at(here, n, size, of) for size in sizes] for n in systems}, ""
            )
            panel.set_xlabel(grows)
        row[0].set_ylabel(f"{does}\n{unit}")
    legend(made, rows[0][0])
    return made


def _is(series: Series, grows: str, does: str) -> bool:
    return (series.params["grows"], series.params["does"]) == (grows, does)


def _at(here: list[Series], system: str, size: int, of: Callable[[Series], float]) -> float:
    for one in here:
        if (one.system, one.params["size"]) == (system, size):
            return float(of(one))
    return float("nan")


BENCHMARK = Benchmark(
    name="scale",
    summary="an append, a read and a cold open beside more files, tables, commits and clients",
    claim=(
        "the paper has no such figure; what a transaction leaves alone should cost it no requests"
    ),
    deviations=(
        "lakes are filled past the latency of the profile; each size is measured in a lake of its "
        "own"
    ),
    parameters=(
        Parameter("files", "10,100,1000", "5,50", "of the table; no: leave out"),
        Parameter("tables", "1,10,100,1000", "1,10", "of the lake; no: leave out"),
        Parameter("commits", "10,100,1000", "5,20", "of the table before; no: leave out"),
        Parameter("clients", "1,4,16", "1,4", "that append at the same time; no: leave out"),
        Parameter(
            "systems", "NONE,R|I,deltalake", "R|I,deltalake", f"of {', '.join(FEATURES)}, deltalake"
        ),
        *CLIENT_PARAMETERS,
        Parameter("operations", 2, 1, "of each kind and client in a repeat", least=1),
        Parameter("warm_up", 2, 1, "operations before, not measured", least=0),
        Parameter("repeats", 5, 2, "of each", least=1),
    ),
    run=measure,
    plots={"latency": latency, "requests": requests},
    needs=needs,
)
