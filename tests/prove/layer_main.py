"""The process of one turn: a layer's module calls ``main(run)``."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.prove.turn import MOST_FAILURES, PLANTED_BUG, Turn


def main(run: Callable[[Turn], None]) -> None:
    """Run a layer as the arguments say, with the planted bug of the environment, if it names one.

    An error of the layer itself is a failure of its turn.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--report", type=Path, default=Path(os.devnull))
    parser.add_argument("--first", action="store_true", help="end at the first failure")
    given = parser.parse_args()
    shown = given.report == Path(os.devnull)
    report = Path(f"/tmp/turn-{os.getpid()}.json") if shown else given.report
    most = 1 if given.first else MOST_FAILURES
    turn = Turn(given.seed, given.seconds, report, most)
    with ExitStack() as planted:
        _plant(planted, os.environ.get(PLANTED_BUG, ""))
        try:
            run(turn)
        except Exception:
            name = Path(sys.argv[0]).stem
            command = f"python -m tests.prove.layers.{name} --seed {given.seed}"
            turn.failed(given.seed, command, traceback.format_exc())
    turn.write()
    if shown:
        print(report.read_text())
        report.unlink()
    sys.exit(1 if turn.report.failures else 0)


def _plant(planted: ExitStack, name: str) -> None:
    if name:
        from lakevilla_testing.planted.every import PLANTED

        planted.enter_context(PLANTED[name].plant())
