"""Run one seed again: ``python -m lakevilla_testing.damage delta 4711``.

``--kills``: a client that dies at each of its writes; ``--stops``: a process that is stopped.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import draw, rows_of_scene, run_cell
from lakevilla_testing.damage.kills import kills, run_kill
from lakevilla_testing.damage.scene import Format, HeadForm, make_scene
from lakevilla_testing.damage.stops import draw_stop, run_stop


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lakevilla_testing.damage", description=__doc__)
    parser.add_argument("format", choices=get_args(Format))
    parser.add_argument("seed", type=int)
    parser.add_argument("--head", choices=get_args(HeadForm), default="replaced")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--kills", action="store_true")
    how.add_argument("--stops", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        scene = make_scene(Path(directory, "lake"), given.format, given.head)
        expected = rows_of_scene(scene)
        if given.kills:
            for kill in kills(given.seed):
                if not run_kill(scene, expected, kill):
                    break
                print(kill)
        elif given.stops:
            stop = draw_stop(given.seed)
            run_stop(scene, expected, stop)
            print(stop)
        else:
            cell = draw(scene, expected, given.seed)
            run_cell(cell)
            print(cell)


if __name__ == "__main__":
    main()
