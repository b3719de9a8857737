"""The import path of processes that a test starts."""

from __future__ import annotations

import os
from pathlib import Path


def import_path() -> str:
    """The tests', and what this process was given: another version of PySpark, for instance."""
    given = os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, (str(Path(__file__).parents[3]), given)))
