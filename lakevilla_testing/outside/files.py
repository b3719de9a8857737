"""Histories of the simulator as files, for other people's checkers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from lakevilla_testing.checks.history import Recorded
from lakevilla_testing.checks.known_bad import KNOWN_BAD
from lakevilla_testing.histories import campaign, lists
from lakevilla_testing.outside.elle import to_edn
from lakevilla_testing.outside.events import promised
from lakevilla_testing.outside.porcupine import can_check, to_lines

Format = Literal["elle", "porcupine"]
#: Short histories of lists alone; those of ``run`` and ``replay``, which have everything; or those
#: that a checker must reject, which have no seeds.
Kind = Literal["lists", "everything", "known-bad"]


def write_all(kind: Kind, form: Format, seeds: Iterable[int], directory: Path) -> Counter[str]:
    """Write the histories of seeds, and return how many there are of each level of isolation.

    A history of which nothing was promised is ``not written``; so is one for Porcupine that was
    promised less than it checks.
    """
    counts: Counter[str] = Counter()
    if kind == "known-bad":
        for name, bad in KNOWN_BAD.items():
            write(bad.recorded, form, directory / kind / name.replace(" ", "-"))
            counts[kind] += 1
        return counts
    for seed in seeds:
        recorded = record(kind, seed)
        if recorded is None or (form == "porcupine" and not can_check(recorded)):
            counts["not written"] += 1
            continue
        level = promised(recorded)
        counts[level] += 1
        write(recorded, form, directory / level / f"{kind}-{seed}")
    return counts


def record(kind: Kind, seed: int) -> Recorded | None:
    """Run a history; return what its clients did and read, also if an invariant does not hold."""
    if kind == "lists":
        return lists.replay(seed)[0].recorded
    return campaign.replay(seed)[0].recorded


def write(recorded: Recorded, form: Format, stem: Path) -> Path:
    """Write a history into the file whose name begins with a stem, and return that file."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    to_text, ending = (to_edn, ".edn") if form == "elle" else (to_lines, ".jsonl")
    path = stem.with_name(stem.name + ending)
    path.write_text("".join(f"{line}\n" for line in to_text(recorded)))
    return path
