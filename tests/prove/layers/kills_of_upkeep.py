"""A client dies between any two writes of upkeep and of other verbs, and others go on."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import Broken, rows_of_scene
from lakevilla_testing.damage.kills import kills, run_kill
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
            scene, expected = ready[seed // 2 % len(ready)]
            for kill in kills(seed):
                try:
                    if not turn.goes_on() or not run_kill(scene, expected, kill):
                        break
                except Broken as error:
                    command = f"python -m lakevilla_testing.damage {scene.format} {seed} --kills"
                    turn.failed(seed, command, str(error))
                    break
                turn.count("kills")
                turn.fired("answer lost" if kill.is_stored else "write not sent")
                turn.fired("wrong clock", sum(bool(ahead) for ahead in kill.ahead_seconds))
            turn.count("verbs swept")


if __name__ == "__main__":
    main(run)
