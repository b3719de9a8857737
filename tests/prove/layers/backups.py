"""Drawn lakes that are backed up beside other clients, damaged, and restored."""

from __future__ import annotations

import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.drawn_backups import DrawnBackup


def run(turn: Turn) -> None:
    """Draw, back up and restore lakes until the turn ends."""
    while turn.goes_on():
        seed = turn.next_seed()
        with TemporaryDirectory() as directory:
            drawn = DrawnBackup(seed, Path(directory))
            try:
                drawn.run()
            except Exception:
                command = f"python -m tests.prove.layers.backups --seed {seed} --seconds 1"
                turn.failed(seed, command, traceback.format_exc())
        turn.count("lakes restored")
        for kind, many in drawn.fired.items():
            turn.fired(kind, many)


if __name__ == "__main__":
    main(run)
