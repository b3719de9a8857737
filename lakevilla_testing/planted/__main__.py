"""Run a module or code with a planted bug: ``python -m lakevilla_testing.planted BUG -m MODULE``.

What follows the bug is what follows ``python``: ``-m MODULE ARGUMENTS`` or ``-c CODE``.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from lakevilla_testing.planted.bugs import VARIABLE
from lakevilla_testing.planted.every import planted_by_environment


def main(arguments: Sequence[str]) -> None:
    """Run what the arguments name, with the bug in this process alone."""
    if len(arguments) < 3 or arguments[1] not in ("-m", "-c"):
        sys.exit(__doc__)
    bug, option, what, *others = arguments
    os.environ[VARIABLE] = bug
    planted = planted_by_environment()
    # What is run would plant the bug once more.
    del os.environ[VARIABLE]
    with planted:
        sys.argv = [option, *others]
        if option == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main(sys.argv[1:])
