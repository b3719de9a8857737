"""The history file: its path, its permissions, and the statements that are not written to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.history import FileHistory

from lakevilla.cli.shell.prompt import MOST_BYTES, history_file, is_kept, opened


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/home/a"}, "/home/a/.local/state/lakevilla/history"),
        ({"HOME": "/home/a", "XDG_STATE_HOME": "/s"}, "/s/lakevilla/history"),
        ({"HOME": "/home/a", "XDG_STATE_HOME": "s"}, "/home/a/.local/state/lakevilla/history"),
        ({"HOME": "/home/a", "LAKEVILLA_HISTORY": "/tmp/h"}, "/tmp/h"),
        ({"HOME": "/home/a", "LAKEVILLA_HISTORY": ""}, None),
        ({}, None),
    ],
)
def test_the_history_file_is_stored_where_xdg_specifies(
    environment: dict[str, str], expected: str | None
) -> None:
    assert history_file(environment) == (None if expected is None else Path(expected))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT 1;", True),
        (" SELECT 1;", False),
        ("SELECT * FROM users WHERE Password = 'x';", False),
        ("SET aws_secret_access_key = 'x';", False),
        ("INSERT INTO t VALUES ('api-token', 'x');", False),
        ("  \n", False),
    ],
)
def test_lines_that_may_hold_a_secret_are_not_written_to_the_history(text: str, kept: bool) -> None:
    assert is_kept(text) is kept


def test_the_history_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lakevilla" / "history"
    assert opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_an_unwritable_history_path_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not opened(tmp_path / "file" / "history")


def test_a_history_file_that_has_grown_long_is_cut_to_its_newer_half(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = FileHistory(path)
    long = "SELECT\n" + "x" * 1000
    for number in range(MOST_BYTES // 1000 + 10):
        history.store_string(f"{long} -- {number}")
    assert opened(path)
    kept = list(FileHistory(path).load_history_strings())
    assert kept[0].endswith(f"-- {MOST_BYTES // 1000 + 9}")
    assert MOST_BYTES // 2500 < len(kept) < MOST_BYTES // 1500
    assert all(text.startswith(long) for text in kept)
    assert path.stat().st_mode & 0o777 == 0o600
