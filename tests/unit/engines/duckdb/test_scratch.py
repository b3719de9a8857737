"""Directories for temporary files: those of dead processes are removed, those of live ones stay."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lakevilla.engines.duckdb import database as scratch

_SPILLS = """
import sys, time
from lakevilla.engines.duckdb.database import scratch_directory
owner = type("Owner", (), {})()
directory = scratch_directory(owner)
open(directory + "/spilled", "w").write("rows")
print(directory, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make directories below ``tmp_path``, where none counts as just being made."""
    monkeypatch.setattr(scratch, "_MAKING_SECONDS", 0.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


class Owner:
    pass


def spilling(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Begin a process that has spilled rows; return it and its directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SPILLS],
        env={**os.environ, "TMPDIR": str(parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_the_directory_of_a_killed_process_is_removed_by_the_next_process(
    parent: Path, ended_by: signal.Signals
) -> None:
    process, left = spilling(parent)
    process.send_signal(ended_by)
    process.wait(60)
    assert (left / "spilled").exists()
    owner = Owner()
    own = scratch.scratch_directory(owner)
    assert [str(path) for path in parent.iterdir()] == [own]


def test_the_directory_of_a_live_process_stays(parent: Path) -> None:
    process, used = spilling(parent)
    try:
        owner = Owner()
        scratch.scratch_directory(owner)
        assert (used / "spilled").exists()
    finally:
        process.kill()
        process.wait(60)


def test_a_directory_is_removed_with_its_owner_and_is_private(parent: Path) -> None:
    owner = Owner()
    directory = scratch.scratch_directory(owner)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    del owner
    assert not list(parent.iterdir())


def test_foreign_directories_files_and_links_with_such_a_name_stay(
    parent: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "lock").touch()
    (parent / "lakevilla-link").symlink_to(elsewhere)
    (parent / "lakevilla-without-lock").mkdir()
    (parent / "lakevilla-file").touch()
    (parent / "lakevilla-linked-lock").mkdir()
    (parent / "lakevilla-linked-lock" / "lock").symlink_to(elsewhere / "lock")
    (parent / "another").mkdir()
    before = sorted(parent.iterdir())
    scratch.remove_abandoned(str(parent))
    assert sorted(parent.iterdir()) == before
    assert (elsewhere / "lock").exists()


def test_a_directory_that_was_just_made_stays_until_its_process_has_locked_it(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_MAKING_SECONDS", 60.0)
    (parent / "lakevilla-new").mkdir()
    (parent / "lakevilla-new" / "lock").touch()
    scratch.remove_abandoned(str(parent))
    assert (parent / "lakevilla-new" / "lock").exists()
