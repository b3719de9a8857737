"""Live one life again: ``python -m tests.support.lives 4711``."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from tests.support.lives.life import STEPS, Life, Wrong


def main() -> int:
    """Return exit status 0 if all that clients saw was right, 1 if something was not."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as directory:
        life = Life(int(sys.argv[1]), Path(directory, "lake"))
        try:
            life.run(STEPS)
        except Wrong as error:
            print(f"{life}\n{error}")
            return 1
    print(f"{life}\nall is right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
