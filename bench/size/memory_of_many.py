"""The memory of a client that asks for a few of many tables, or goes through all of them.

Each step runs in a process of its own. The tables are real ones of one file each, whose log has two
entries: upkeep and ``keep`` open every one of them.
"""

from __future__ import annotations

from bench.harness.benchmark import Benchmark, Run
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, Value, numbers
from bench.size.own_process import in_own_process

_MODULE = "bench.size.work_on_many"
#: By what a step is called: the function, and whether it takes the number of tables, or a task.
STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "connect, and look at the history": ("connect", ()),
    "lakevilla_tables, ten by a prefix": ("prefix", ("count",)),
    "lakevilla_tables, all": ("everything", ()),
    "keep a tag, three tables changed": ("keep_again", ()),
    "maintain: optimize": ("maintain", ("optimize",)),
    "maintain: vacuum": ("maintain", ("vacuum",)),
}


def measure(run: Run) -> None:
    """Each number of tables in a lake of its own, in a local directory."""
    for count in numbers(run["tables"]):
        _measure(run, count, str(run.places.directory / f"lake-{count}"))


def _measure(run: Run, count: int, root: str) -> None:
    run.advance(f"{count:,} tables are made")
    made = in_own_process(_MODULE, "make", root, count)
    tagged = in_own_process(_MODULE, "keep", root, 3, count)
    deaths = made.measured.deaths + tagged.measured.deaths
    run.check(f"{count:,} tables were made", not deaths)
    for step, (function, arguments) in STEPS.items():
        run.advance(f"{count:,} tables: {step}")
        given = [count if argument == "count" else argument for argument in arguments]
        own = in_own_process(_MODULE, function, root, *given)
        params: dict[str, Value] = {"tables": count, "step": step}
        run.add("LakeVilla", params, own.measured, figures=own.figures)


BENCHMARK = Benchmark(
    name="memory_of_many",
    summary="the memory of a client that asks for few of many tables, or goes through all",
    claim="none: the paper's lakes have one table to 128",
    deviations="the tables are copies of one, with ids of their own",
    parameters=(Parameter("tables", "1000,4000", "50", "in a lake"),),
    run=measure,
    plots={
        "steps": lambda result: medians(
            result,
            lambda one: str(one.params["step"]),
            lambda one: f"{int(one.params['tables']):,} tables",
        ),
    },
)
