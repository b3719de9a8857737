"""The record of a campaign: each turn that has ended, a line in a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.prove.layers import LAYERS, Layer
from tests.prove.turn import Failure, Report

_WIDEST = max(len(layer.name) for layer in LAYERS)


@dataclass(frozen=True)
class Ended:
    """A turn that has ended."""

    layer: str
    #: The commit that was tested, with "+" if files were changed besides.
    commit: str
    #: When it ended, in seconds since 1970.
    when: float
    #: How long it took.
    seconds: float
    first_seed: int
    report: Report


@dataclass(frozen=True)
class Total:
    """What all turns of a layer have done together."""

    turns: int
    seconds: float
    next_seed: int
    searched: Counter[str]
    fired: Counter[str]
    failures: Sequence[Failure]
    reached: Mapping[str, int]
    left_out: str


def load(path: Path) -> list[Ended]:
    """Return the turns of a campaign so far; a line that was cut off counts as not written.

    A layer that could not run then has its turn again: what it needs may be there now.
    """
    if not path.exists():
        return []
    turns = []
    for line in path.read_text().splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        report = found["report"]
        report["failures"] = [Failure(**failure) for failure in report["failures"]]
        if not report["left_out"]:
            turns.append(Ended(**{**found, "report": Report(**report)}))
    return turns


def add(path: Path, turn: Ended) -> None:
    """Append a turn to the record."""
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a") as file:
        # A line that a kill has cut off takes no other with it.
        file.write(("" if whole else "\n") + json.dumps(asdict(turn)) + "\n")


def total(turns: Iterable[Ended], layer: str) -> Total:
    """Return what the turns of a layer have done together."""
    searched: Counter[str] = Counter()
    fired: Counter[str] = Counter()
    failures: list[Failure] = []
    reached: dict[str, int] = {}
    seconds, count, next_seed, left_out = 0.0, 0, 0, ""
    for turn in turns:
        if turn.layer == layer:
            searched.update(turn.report.searched)
            fired.update(turn.report.fired)
            failures += turn.report.failures
            for what, many in turn.report.reached.items():
                reached[what] = max(many, reached.get(what, 0))
            seconds += turn.seconds
            count += 1
            next_seed = max(next_seed, turn.report.next_seed)
            left_out = turn.report.left_out
    return Total(count, seconds, next_seed, searched, fired, failures, reached, left_out)


def next_layer(
    layers: Sequence[Layer], turns: Sequence[Ended], others: Sequence[str]
) -> Layer | None:
    """Return the layer that has had least time for its share, except ``others``.

    One that can't run here has its turn once.
    """
    totals = {layer.name: total(turns, layer.name) for layer in layers}
    waiting = [
        layer for layer in layers if layer.name not in others and not totals[layer.name].left_out
    ]
    return min(waiting, key=lambda layer: totals[layer.name].seconds / layer.share, default=None)


def line(layer: str, done: Total) -> str:
    """Return a layer's line: how long, what was searched, which faults fired, what failed."""
    if done.left_out:
        return f"{layer:{_WIDEST}} left out: {done.left_out}"
    parts = [f"{many:,} {what}" for what, many in sorted(done.searched.items())]
    if done.fired:
        parts.append(f"{done.fired.total():,} faults of {len(done.fired)} kinds")
    found = f"{'; '.join(parts)}: all right" if parts else "nothing searched yet: give it more time"
    if done.failures:
        found = f"{'; '.join(parts) or 'nothing searched'}: {len(done.failures)} FAILED"
    return f"{layer:{_WIDEST}} {done.seconds / 60:6.1f} min: {found}"


def counts(layers: Sequence[Layer], turns: Sequence[Ended]) -> str:
    """Return what each layer has searched, and what failed in it, as a table in Markdown."""
    rows = []
    for layer in layers:
        done = total(turns, layer.name)
        searched = "; ".join(f"{many:,} {what}" for what, many in sorted(done.searched.items()))
        fired = f"{done.fired.total():,} of {len(done.fired)} kinds" if done.fired else "none"
        searched = searched or (f"left out: {done.left_out}" if done.left_out else "nothing yet")
        minutes = f"{done.seconds / 60:,.0f}"
        rows.append(f"| `{layer.name}` | {minutes} | {searched} | {fired} | {len(done.failures)} |")
    head = "| layer | minutes | searched | faults that fired | failures |\n|---|---|---|---|---|"
    return "\n".join((head, *rows))
