"""``lakevilla bench``: list, run, report, cost and compare."""

from __future__ import annotations

import datetime
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.harness import targets
from bench.harness.benchmark import Benchmark, NotInstalled
from bench.harness.parameters import WrongParameter, settled
from bench.harness.results import COLUMNS, BrokenResult, Result, load
from bench.harness.running import draw, execute
from bench.harness.store.own_store import OwnStore
from bench.harness.store.places import check_profile
from bench.harness.store.server import ServerNotStarted
from bench.registry import MODULES, benchmark
from bench.report import compare, markdown, page
from bench.report.columns import telling
from bench.report.costs import columns, costs, stores

#: Results lie here, one directory a benchmark, unless ``--output`` names another.
RESULTS = Path("bench/results")

# Options of `run` that `compare` hands on to it: both explain them in the same words.
_Parameters = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="See `list`."),
]
_Quick = Annotated[bool, typer.Option(help="Within a minute: to try, not to publish.")]
_Seed = Annotated[int, typer.Option(min=0, help="Of all that is drawn.")]
_Profile = Annotated[
    str | None,
    typer.Option(
        help="Latency of the store: local (a local directory), zero (an S3 server on loopback "
        "without added latency), s3 or express (that server, as slow as these stores). "
        "Each benchmark has a default of its own."
    ),
]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
_out, _err = Console(), Console(stderr=True)
if not _out.is_terminal:
    _out = Console(width=160)  # whole lines in a file


def main(arguments: list[str]) -> int:
    """Exit status: 0 well, 1 ``broken`` of a result says what went wrong, 2 it could not run."""
    # As Ctrl-C: what was measured is kept, and no server or client is left behind.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(arguments, prog_name="lakevilla bench", standalone_mode=True)
    except (WrongParameter, NotInstalled, ServerNotStarted) as error:
        _err.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


@app.command("list")
def list_(
    names: Annotated[
        list[str] | None, typer.Argument(help="Benchmarks; all if none is named.")
    ] = None,
) -> None:
    """Show the benchmarks and their parameters."""
    # None is shown when another is refused.
    for found in [benchmark(name) for name in dict.fromkeys(names or MODULES)]:
        figure = f" ({found.paper_figure})" if found.paper_figure else ""
        _out.print(f"[bold]{found.name}[/]{figure}  {found.summary}", highlight=False)
        for one in found.parameters:
            _out.print(
                f"    {one.name} = {one.whole!r} (quick: {one.quick!r})  {one.help}",
                markup=False,
                highlight=False,
            )


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(help="Benchmarks, as `list` names them.")],
    parameter: _Parameters = None,
    quick: _Quick = False,
    seed: _Seed = 1,
    profile: _Profile = None,
    store: Annotated[
        str | None,
        typer.Option(help="An empty place of your own to run on: s3://bucket/path, a directory."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="A storage option of --store."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="An empty directory for the results.")] = None,
) -> None:
    """Run benchmarks; each leaves result.json and plots in a directory."""
    given = _pairs("--parameter", parameter)
    own = None if store is None else OwnStore(store, _pairs("--option", option))
    if own is None and option:
        raise WrongParameter("--option is of a store of your own: name it with --store")
    if own is not None and profile is not None:
        raise WrongParameter(f"--profile {profile} and --store {store}: choose one of them")
    found = [benchmark(name) for name in dict.fromkeys(names)]
    for one in found:  # none has run when another is refused
        settled(one.parameters, given, quick=quick)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
    well, missing = True, False
    for one in found:
        directory = (output or RESULTS / stamp) / one.name
        try:
            result = _run(one, directory, given, seed, profile, own, quick)
        except NotInstalled as error:
            _err.print(f"error: {error}; {one.name} was left out", style="red", markup=False)
            missing = True
            continue
        _show(result)
        _out.print(f"{directory}/result.json and plots", highlight=False, soft_wrap=True)
        well = well and result.ok
        if result.interrupted:
            raise typer.Exit(130)
    if missing or not well:
        raise typer.Exit(2 if missing else 1)


def _run(
    one: Benchmark,
    directory: Path,
    given: Mapping[str, str],
    seed: int,
    profile: str | None,
    store: OwnStore | None,
    quick: bool,
) -> Result:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=_err, transient=True) as progress:
        task = progress.add_task(one.name)
        return execute(
            one,
            directory,
            given=given,
            seed=seed,
            profile=profile,
            store=store,
            quick=quick,
            advance=lambda what: progress.update(task, description=f"{one.name}: {what}"),
        )


def _pairs(what: str, texts: list[str] | None) -> dict[str, str]:
    pairs = [(text, *text.partition("=")) for text in texts or ()]
    for text, _, equals, _ in pairs:
        if not equals:
            raise WrongParameter(f"{what} takes NAME=VALUE, not {text!r}")
    return {name: value for _, name, _, value in pairs}


@app.command()
def report(
    directory: Annotated[
        Path | None, typer.Argument(help="Results; those of bench/results if none is named.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The page, in HTML, or in Markdown if it ends in .md; "
            "report.html beside the results if none is named."
        ),
    ] = None,
) -> None:
    """Draw every result again, on one page beside what the paper says."""
    # Beside its results, the page of one directory does not replace the page of another.
    output = output or (directory or RESULTS) / "report.html"
    found, left_out = _newest(directory or RESULTS)
    parts = []
    for one, result, path in found:
        try:
            parts.append((one, result, draw(one, result, path.parent)))
        except Exception as error:
            # One picture of many: a run that was cut short may lack what it draws.
            left_out.append(f"{path}: no picture of it can be drawn: {error!r}")
            parts.append((one, result, []))
    if output.is_dir():
        raise WrongParameter(f"--output {output} is a directory: name the page")
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix == ".md":
        markdown.write(output, [(one, result) for one, result, _ in parts])
    else:
        page.write(output, parts, left_out)
    _left_out(left_out)
    _out.print(str(output), highlight=False, soft_wrap=True)
    if left_out:
        raise typer.Exit(1)


@app.command()
def cost(
    directory: Annotated[
        Path | None, typer.Argument(help="Results; those of bench/results if none is named.")
    ] = None,
) -> None:
    """Show what a million transactions cost, at public prices, by the requests of each result."""
    found, left_out = _newest(directory or RESULTS)
    prices, source = stores()
    shown = 0
    for one, result, _ in found:
        counted = costs(result) if one.transactions else []
        if counted:
            _out.print(f"[bold]{one.name}[/], profile {result.profile}", highlight=False)
            _out.print(_table(columns(prices), [line.cells(prices) for line in counted]))
            shown += 1
    _left_out(left_out)
    if not shown:
        counting = ", ".join(name for name in MODULES if benchmark(name).transactions)
        raise WrongParameter(
            f"no result below {directory or RESULTS} has counted the requests of transactions: "
            f"these benchmarks do, unless on --profile local or --store: {counting}"
        )
    _out.print(source, highlight=False, soft_wrap=True)
    if left_out:
        raise typer.Exit(1)


@app.command("compare")
def compare_(
    base: Annotated[str, typer.Argument(help="A revision, such as main~5.")],
    names: Annotated[list[str], typer.Argument(help="Benchmarks.")],
    parameter: _Parameters = None,
    quick: _Quick = False,
    seed: _Seed = 1,
    profile: _Profile = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each takes its turn.")] = 3,
) -> None:
    """Time this tree and a revision's library in turn, with the benchmarks of this tree."""
    given = _pairs("--parameter", parameter)
    if profile:
        check_profile(profile)
    for name in names:  # refused before a worktree is made
        one = benchmark(name)
        one.needs(settled(one.parameters, given, quick=quick))
    options = [item for text in parameter or () for item in ("-p", text)]
    options += ["--seed", str(seed), *(["--quick"] if quick else [])]
    options += ["--profile", profile] if profile else []
    pairs = compare.in_turn(base, names, options, rounds, lambda what: _err.print(what))
    _out.print(_table(compare.columns(base), compare.rows(pairs)))
    if quick:
        _out.print(compare.QUICK, highlight=False, style="yellow")


def _newest(directory: Path) -> tuple[list[tuple[Benchmark, Result, Path]], list[str]]:
    """The newest of each benchmark, profile and parameters, and why others were left out."""
    found: dict[tuple[str, str, str], tuple[Benchmark, Result, Path]] = {}
    left_out = []
    paths = sorted(directory.rglob("result.json"))
    if not paths:
        raise WrongParameter(f"no result.json below {directory}: `lakevilla bench run` leaves one")
    for path in paths:
        try:
            result = load(path)
            one = benchmark(result.benchmark)
        except (BrokenResult, WrongParameter) as error:
            left_out.append(f"{path}: {error}" if isinstance(error, WrongParameter) else str(error))
            continue
        key = one.name, result.profile, repr(result.parameters)
        if key not in found or found[key][1].began <= result.began:
            found[key] = one, result, path
    order = list(MODULES)
    return sorted(found.values(), key=lambda part: order.index(part[0].name)), left_out


def _left_out(reasons: list[str]) -> None:
    for why in reasons:
        _err.print(f"left out: {why}", style="red", markup=False, soft_wrap=True)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without the columns that are empty in each row."""
    top, *lines = telling(head, rows)
    table = Table(*top, box=box.SIMPLE_HEAD)
    for line in lines:
        table.add_row(*line)
    return table


def _show(result: Result) -> None:
    _out.print(_table(COLUMNS, [one.cells() for one in result.series]))
    if result.targets:
        _out.print(_table(targets.COLUMNS, [one.cells() for one in result.targets]))
    for name, holds in result.checks.items():
        _out.print(f"[green]✓[/] {name}" if holds else f"[bold red]✗ {name}[/]", highlight=False)
    for died in result.died:
        _out.print(died, highlight=False, markup=False, style="red")
    for what in result.idle:
        idle = f"no operation was done: {what}"
        _out.print(idle, highlight=False, markup=False, style="red")
    for note in result.notes:
        _out.print(note, highlight=False, markup=False, style="yellow")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
