"""What runs in Spark's workers says so where LakeVilla is missing there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

#: Precedes the reason, in a message that comes out of a worker.
LACKS = "LakeVilla is missing: "


def importer(module: str) -> Callable[[], Any]:
    """A function that imports a module of LakeVilla in the process that calls it.

    It is pickled by its value, as functions within functions are, so it can tell what
    is not there.
    """
    lacks = LACKS
    here = sys.modules["lakevilla"].__version__
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"

    def imported() -> Any:
        import importlib
        import sys

        try:
            found = importlib.import_module(module)
        except ImportError as error:
            raise RuntimeError(
                f"{lacks}the Python of Spark's workers ({sys.executable}) can't import it "
                f"({error}): install lakevilla for Python {python} there, or set PYSPARK_PYTHON "
                "to an interpreter that has it, before the session starts"
            ) from None
        there = sys.modules["lakevilla"].__version__
        if there != here:
            raise RuntimeError(
                f"{lacks}the Python of Spark's workers ({sys.executable}) has version {there}, "
                f"and this driver {here}: install the same on both"
            )
        return found

    return imported
