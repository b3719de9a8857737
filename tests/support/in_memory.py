"""Keep the files of a run in memory, where the system has room for them.

A local store syncs each file that it writes, and a disk takes milliseconds for that: a third of the
time of the contracts. A run with pytest's ``--basetemp`` writes there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
#: The free memory that a run must find. A run uses less, but Spark's sessions need memory, too.
ROOM = 8 << 30
PREFIX = "lv-tests-"
DIRECTORY = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)  # before pytest chooses its own directory
def pytest_configure(config: pytest.Config) -> None:
    """Make the run's directory, which its workers inherit with the environment."""
    if hasattr(config, "workerinput") or config.getoption("basetemp") or not has_room():
        return
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not is_alive(int(left.name.removeprefix(PREFIX).partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY)
    config.stash[DIRECTORY] = directory
    os.environ["TMPDIR"] = tempfile.tempdir = directory


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the directory; a failed test is run again by itself to examine its files."""
    if (directory := config.stash.get(DIRECTORY, None)) is not None:
        shutil.rmtree(directory, ignore_errors=True)


def has_room() -> bool:
    """Return whether a file system in memory has enough room."""
    return os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM


def is_alive(process: int) -> bool:
    """Return whether a process of this number runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
