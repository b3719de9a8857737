"""Lives of drawn lakes with branches, tags, clones, keys, upkeep and losses, beside a model."""

from __future__ import annotations

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.lives.life import STEPS, Life, Wrong


def run(turn: Turn) -> None:
    warnings.simplefilter("ignore")
    while turn.goes_on():
        seed = turn.next_seed()
        with TemporaryDirectory() as directory:
            life = Life(seed, Path(directory, "lake"))
            try:
                life.run(STEPS)
            except Wrong as error:
                command = f"python -m tests.support.lives {seed}"
                turn.failed(seed, command, f"{life}\n{error}")
        turn.count("lives")
        turn.count("steps", len(life.told))
        for kind in (
            "lose_head",
            "head_goes_back",
            "branch_goes_back",
            "vacuum_dies",
            "unpublished",
        ):
            turn.fired(kind.replace("_", " "), life.done[kind])


if __name__ == "__main__":
    main(run)
