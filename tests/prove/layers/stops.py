"""Real processes that are stopped at a drawn request, past every lease, and go on."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import Broken, rows_of_scene
from lakevilla_testing.damage.scene import Format, make_scene
from lakevilla_testing.damage.stops import draw_stop, run_stop
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        scenes = [make_scene(Path(directory, one), one) for one in get_args(Format)]
        ready = [(scene, rows_of_scene(scene)) for scene in scenes]
        while turn.goes_on():
            seed = turn.next_seed()
            scene, expected = ready[seed // 2 % len(ready)]
            try:
                if run_stop(scene, expected, draw_stop(seed)):
                    turn.fired("process stopped")
            except Broken as error:
                command = f"python -m lakevilla_testing.damage {scene.format} {seed} --stops"
                turn.failed(seed, command, str(error))
            turn.count("processes")


if __name__ == "__main__":
    main(run)
