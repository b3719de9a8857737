"""Run one cell again: ``python -m lakevilla_testing.damage delta 4711``."""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path
from typing import get_args

from lakevilla_testing.damage.cell import draw, rows_of_scene, run_cell
from lakevilla_testing.damage.scene import Format, make_scene


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lakevilla_testing.damage", description=__doc__)
    parser.add_argument("format", choices=get_args(Format))
    parser.add_argument("seed", type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        scene = make_scene(Path(directory, "lake"), given.format)
        cell = draw(scene, rows_of_scene(scene), given.seed)
        run_cell(cell)
        print(cell)


if __name__ == "__main__":
    main()
