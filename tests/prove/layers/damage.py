"""Any object of a lake lost, truncated or set back, under clients and their commands."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import Broken, draw, rows_of_scene, run_cell
from lakevilla_testing.damage.scene import Format, make_scene
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        scenes = [make_scene(Path(directory, one), one) for one in get_args(Format)]
        ready = [(scene, rows_of_scene(scene)) for scene in scenes]
        while turn.goes_on():
            seed = turn.next_seed()
            scene, expected = ready[seed % len(ready)]
            cell = draw(scene, expected, seed)
            turn.count("damaged lakes")
            turn.fired(cell.damage.how)
            try:
                run_cell(cell)
            except Broken as error:
                command = f"python -m lakevilla_testing.damage {scene.format} {seed}"
                turn.failed(seed, command, str(error))
            turn.count("commands on them", len(cell.said))
            turn.count("commands refused by name", len(cell.said) - len(cell.done))


if __name__ == "__main__":
    main(run)
