"""The results as one page of Markdown: for each run the command, its figures, its targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.harness import targets
from bench.harness.benchmark import Benchmark
from bench.harness.results import COLUMNS, Result
from bench.report.columns import telling
from bench.report.command import command
from bench.report.costs import columns, costs, stores


def write(path: Path, parts: Sequence[tuple[Benchmark, Result]]) -> None:
    """Write the page."""
    sections = [_section(benchmark, result) for benchmark, result in parts]
    head = [
        "# Results",
        "Each table is from the run whose command stands above it; `lakevilla bench report` wrote "
        "this page. `docs/performance.md` has what to expect.",
        "A value with two others in brackets is a median, with the least and the most of the "
        "repeats. n is of all repeats, requests of the last one. Times hold for the machine that "
        "is named; ratios within a table and requests hold elsewhere, too.",
    ]
    path.write_text("\n\n".join([*head, *sections]) + "\n")


def _section(benchmark: Benchmark, result: Result) -> str:
    counted = costs(result) if benchmark.transactions else []
    parts = [
        f"## {result.title}",
        f"{benchmark.summary[0].upper()}{benchmark.summary[1:]}. The paper: {benchmark.claim}.",
        f"Deviations: {benchmark.deviations}.",
        f"`{command(benchmark, result)}`",
        *(f"**{what[0].upper()}{what[1:]}.**" for what in result.broken),
        *([f"Checked: {'; '.join(result.held)}."] if result.held else []),
        *result.remarks,
        _table(COLUMNS, (one.cells() for one in result.series)),
        *(
            [_table(targets.COLUMNS, (one.cells() for one in result.targets))]
            if result.targets
            else []
        ),
    ]
    if counted:
        prices, source = stores()
        parts += [
            "What a million transactions cost:",
            _table(columns(prices), (one.cells(prices) for one in counted)),
            source,
        ]
    return "\n\n".join([*parts, f"{result.began[:10]}; {result.made_with}."])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table without the columns that say nothing in each row."""
    top, *lines = telling(head, rows, nothing=("", "0"))
    table = [top, ["---"] * len(top), *lines]
    return "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in table)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
