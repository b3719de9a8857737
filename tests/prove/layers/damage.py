"""Any object of a lake lost, truncated or set back, under clients and their commands."""

from __future__ import annotations

import tempfile
import warnings
from itertools import product
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import Broken, draw, rows_of_scene, run_cell
from lakevilla_testing.damage.scene import Format, HeadForm, make_scene
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        scenes = [
            make_scene(Path(directory, format, head), format, head)
            for head, format in product(get_args(HeadForm), get_args(Format))
        ]
        ready = [(scene, rows_of_scene(scene)) for scene in scenes]
        while turn.goes_on():
            seed = turn.next_seed()
            scene, expected = ready[seed % len(ready)]
            cell = draw(scene, expected, seed)
            turn.count("damaged lakes")
            turn.fired(cell.damage.how)
            if scene.head == "log":
                turn.count("of them, lakes whose HEAD is a log")
            try:
                run_cell(cell)
            except Broken as error:
                command = f"python -m lakevilla_testing.damage {scene.name} {seed}"
                turn.failed(seed, command, str(error))
            turn.count("commands on them", len(cell.said))
            turn.count("commands refused by name", len(cell.said) - len(cell.done))


if __name__ == "__main__":
    main(run)
