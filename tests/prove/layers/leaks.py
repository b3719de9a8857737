"""Transactions without end in one process: what it holds must not grow with their number."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.leaks import TIDY, lake_in, leaks, sampled

#: A turn with fewer clean-ups is too short for a slope: caches of the process still fill up.
_SAMPLES = 16


def run(turn: Turn) -> None:
    seed = turn.next_seed()
    with tempfile.TemporaryDirectory() as directory, lake_in(Path(directory)) as lake:
        samples = sampled(lake, turn.goes_on, TIDY)
    turn.count("transactions", samples[-1][0] if samples else 0)
    if len(samples) < _SAMPLES:
        return
    if grows := leaks(samples):
        command = "python -m tests.prove.layers.leaks --seconds 600"
        turn.failed(seed, command, f"each transaction adds {grows}; {samples[0]} {samples[-1]}")


if __name__ == "__main__":
    main(run)
