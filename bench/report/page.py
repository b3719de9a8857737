"""The report: one HTML page with each figure beside what the paper says of it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from bench.harness import targets
from bench.harness.benchmark import Benchmark
from bench.harness.results import COLUMNS, Result
from bench.report.columns import telling
from bench.report.command import command
from bench.report.costs import columns, costs, stores

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0 }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left }
img { max-width: 100% } code { background: #f4f4f4; padding: .1rem .3rem }
h2 { margin-top: 3rem; border-top: 1px solid #ddd; padding-top: 1rem } h3 { font-size: 1rem }
.bad { color: #b00020; font-weight: 600 } .note { color: #8a5a00 } .wide { overflow-x: auto }
td { white-space: nowrap } pre { white-space: pre-wrap; background: #f4f4f4; padding: .5rem }
"""


def write(
    path: Path,
    parts: Sequence[tuple[Benchmark, Result, Sequence[Path]]],
    left_out: Sequence[str] = (),
) -> None:
    """Write the page; pictures are within it."""
    # Numbered: a quick run and a whole one of a benchmark have one name and one profile.
    contents = "".join(
        f"<li><a href='#result-{number}'>{escape(result.title)}</a>, "
        f"{escape(benchmark.summary)}</li>"
        for number, (benchmark, result, _) in enumerate(parts)
    )
    sections = "\n".join(_section(number, *part) for number, part in enumerate(parts))
    path.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>LakeVilla benchmarks</title><style>{_STYLE}</style>"
        f"<h1>LakeVilla benchmarks</h1>\n"
        + "".join(f"<p class=bad>{escape(why)}</p>" for why in left_out)
        + f"<ul>{contents}</ul>{_targets(parts)}\n{sections}\n</html>\n"
    )


def _targets(parts: Sequence[tuple[Benchmark, Result, Sequence[Path]]]) -> str:
    """All targets of all results, before everything else."""
    rows = [
        ((result.title, *one.cells()), one.met) for _, result, _ in parts for one in result.targets
    ]
    if not rows:
        return ""
    body = "".join(f"<tr{'' if met else ' class=bad'}>{_cells(cells)}</tr>" for cells, met in rows)
    head = _cells(("benchmark", *targets.COLUMNS), "th")
    return f"<h2>Targets</h2><div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _section(number: int, benchmark: Benchmark, result: Result, pictures: Sequence[Path]) -> str:
    return "\n".join(
        [
            f"<h2 id='result-{number}'>{escape(result.title)}</h2>"
            f"<p>{escape(benchmark.summary)}.</p>",
            f"<p><b>The paper:</b> {escape(benchmark.claim)}.</p>",
            f"<p><b>Deviations:</b> {escape(benchmark.deviations)}.</p>",
            *(f"<p class=bad>{escape(text)}</p>" for text in result.broken),
            *(f"<p class=note>{escape(text)}</p>" for text in result.remarks),
            *([f"<p>Checked: {escape('; '.join(result.held))}.</p>"] if result.held else []),
            *(_picture(path) for path in pictures),
            _table(COLUMNS, (one.cells() for one in result.series)),
            _costs(benchmark, result),
            f"<pre><code>{escape(command(benchmark, result))}</code></pre>",
            f"<p>{escape(result.began)}; {escape(result.made_with)}</p>",
        ]
    )


def _costs(benchmark: Benchmark, result: Result) -> str:
    found = costs(result) if benchmark.transactions else []
    if not found:
        return ""
    prices, source = stores()
    table = _table(columns(prices), (one.cells(prices) for one in found))
    return f"<h3>What a million transactions cost</h3>{table}<p>{escape(source)}</p>"


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<p><img alt='{escape(path.stem)}' src='data:image/png;base64,{data}'></p>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table without the columns that are empty in each row."""
    top, *lines = telling(head, rows)
    body = "".join(f"<tr>{_cells(line)}</tr>" for line in lines)
    return f"<div class=wide><table><tr>{_cells(top, 'th')}</tr>{body}</table></div>"


def _cells(texts: Iterable[str], tag: str = "td") -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)
