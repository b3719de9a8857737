"""The files of a test run are kept in memory if there is room, and are deleted with it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import in_memory


def config(basetemp: str | None = None) -> Any:
    return SimpleNamespace(getoption=lambda name: basetemp, stash=pytest.Stash())


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(in_memory, "MEMORY", tmp_path)
    monkeypatch.setattr(in_memory, "ROOM", 0)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", os.environ.get("TMPDIR", ""))
    return tmp_path


def test_a_test_run_has_its_own_directory_until_it_ends(memory: Path) -> None:
    run = config()
    in_memory.pytest_configure(run)
    (made,) = memory.iterdir()
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(made)
    in_memory.pytest_unconfigure(run)
    assert not list(memory.iterdir())


def test_directories_of_killed_test_runs_are_removed(memory: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, running = (
        memory / f"{in_memory.PREFIX}{process}-x" for process in (ended.pid, os.getppid())
    )
    for directory in (left, running):
        directory.mkdir()
    in_memory.pytest_configure(config())
    assert not left.exists()
    assert running.exists()


def test_no_directory_is_created_without_room_in_memory_or_if_the_user_gives_one(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory.pytest_configure(config("/elsewhere"))
    monkeypatch.setattr(in_memory, "ROOM", 1 << 80)
    in_memory.pytest_configure(config())
    monkeypatch.setattr(in_memory, "MEMORY", memory / "missing")
    in_memory.pytest_configure(config())
    assert not list(memory.iterdir())
