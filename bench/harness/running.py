"""One benchmark run from its start to its files; Ctrl-C keeps what was measured."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bench.harness.benchmark import Benchmark, Run
from bench.harness.drawing import mark_quick, save
from bench.harness.needs import check_needs
from bench.harness.parameters import WrongParameter, settled
from bench.harness.results import Result, this_machine, versions
from bench.harness.store.own_store import OwnStore, on_own_store
from bench.harness.store.places import LOCAL, check_profile, places


def execute(
    benchmark: Benchmark,
    output: Path,
    *,
    given: Mapping[str, str],
    seed: int,
    profile: str | None = None,
    store: OwnStore | None = None,
    quick: bool = False,
    advance: Callable[[str], None] = lambda what: None,
) -> Result:
    """Run a benchmark, and leave ``result.json`` and its plots in ``output``.

    It runs on a server that is started for it, with the latency of ``profile``, or on ``store``.
    """
    if output.is_dir() and any(output.iterdir()):
        raise WrongParameter(f"{output} is not empty: choose another directory with --output")
    parameters = settled(benchmark.parameters, given, quick=quick)
    place = profile or benchmark.profile if store is None else store.uri
    needs = benchmark.needs(parameters)
    if store is None:
        check_profile(place)
        check_needs(needs, in_memory=place != LOCAL)
    else:
        check_needs(replace(needs, data_bytes=0), in_memory=False)
    result = Result(
        benchmark.name,
        seed,
        place,
        quick,
        parameters,
        datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        this_machine(),
        versions(),
    )
    if store is not None:
        result.notes.append("on a store of your own, whose requests are not counted")
    try:
        # Now, and not when there is something to be lost.
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongParameter(f"{output} can't be made: {error}: name another --output") from error
    with places(place, quick=quick) if store is None else on_own_store(store) as made:
        try:
            benchmark.run(Run(result, made, advance))
        except KeyboardInterrupt:
            result.interrupted = True
            result.notes.append("interrupted: some series are shorter than others, or missing")
        except Exception as error:
            if result.series:
                result.notes.append(f"ended by an error, other series are missing: {error}")
                result.save(output)
            raise
        result.save(output)
    draw(benchmark, result, output)
    return result


def draw(benchmark: Benchmark, result: Result, directory: Path) -> list[Path]:
    """Draw what was measured; the pictures, as PNG."""
    drawn = []
    for name, plot in benchmark.plots.items() if result.series else ():
        path = directory / f"{benchmark.name}-{name}"
        made = plot(result)
        if result.quick:
            mark_quick(made)
        save(made, path)
        drawn.append(path.with_suffix(".png"))
    return drawn
