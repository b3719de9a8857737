"""``lakevilla changes``: with --follow it prints version after version, as JSON lines or as
text.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake[Any]:
    lake = lv.connect(tmp_path / "lake")
    lake.create_table("a", [{"id": 1}])
    lake.create_table("s/b", [{"id": 1}])

    def both(txn: lv.Transaction) -> None:
        txn.append("a", [{"id": 2}])
        txn.append("s/b", [{"id": 2}])

    lake.run(both, metadata={"job": "nightly"})
    return lake


def invoke(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, ["changes", *arguments])
    assert result.exit_code == status, result.output
    return result


class Following:
    """A running ``lakevilla changes --follow`` process."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lakevilla.cli", "changes", *arguments, "--follow"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self.process.stdout is not None
        self.lines: Iterator[str] = self.process.stdout

    def interrupt(self) -> tuple[int, str]:
        """Interrupt the process; return its status and its last errors."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


def test_followed_changes_are_one_json_line_a_version_and_ctrl_c_ends_with_status_0(
    lake: lv.Lake[Any],
) -> None:
    following = Following(lake.root, "--since", "2", "--json", "--poll-seconds", "0.05")
    first = json.loads(next(following.lines))
    assert (first["version"], first["since"], first["kind"]) == (3, 2, "transaction")
    assert (first["metadata"], first["entered"], first["left"]) == ({"job": "nightly"}, [], [])
    assert {name: one["total"] for name, one in first["tables"].items()} == {"a": 1, "s/b": 1}
    assert first["tables"]["a"]["rows"][0]["_change_type"] == "insert"
    lake.drop_table("a")
    second = json.loads(next(following.lines))
    assert (second["version"], second["left"], second["tables"]) == (4, ["a"], {})
    status, errors = following.interrupt()
    assert (status, "Traceback" in errors) == (0, False), errors
    # Interrupted right after the line, it may say that the version will be shown again.
    assert re.search(r"continue with --since [34]\b", " ".join(errors.split())), errors


def test_followed_changes_with_a_limit_skip_older_versions_and_show_the_chosen_tables(
    lake: lv.Lake[Any],
) -> None:
    following = Following(lake.root, "--since", "0", "--tables", "s/*", "--limit", "1")
    shown = ""
    while "version 3" not in shown or shown.count("s/b") < 2:
        shown += next(following.lines)
    assert "s/b: 1 row, new in the lake" in shown
    assert "version 1 " not in shown
    assert following.interrupt()[0] == 0


def test_patterns_and_names_select_tables_without_option_follow(lake: lv.Lake[Any]) -> None:
    def tables(*arguments: str) -> set[str]:
        found = invoke(lake.root, "--since", "0", "--json", *arguments)
        return set(json.loads(found.stdout)["tables"])

    assert tables() == tables("--tables", "*") == {"a", "s/b"}
    assert tables("--tables", "s/*") == {"s/b"}
    assert tables("-t", "a", "--tables", "s/*") == {"a", "s/b"}


def test_incompatible_options_of_changes_are_refused(lake: lv.Lake[Any]) -> None:
    for arguments, why in (
        ((), "--since N"),
        (("--follow", "--version", "2"), "no end"),
        (("--since", "0", "--absorb-seconds", "1"), "goes with --follow"),
        (("--follow", "--since", "9"), "newest is 3"),
        (("--follow", "--tables", "x"), "no table 'x'"),
        (("--follow", "--poll-seconds", "0"), "more than 0"),
        (("--follow", "--on", "x"), "no ref 'x'"),
    ):
        found = invoke(lake.root, *arguments, status=2)
        assert why in " ".join(found.stderr.split()), found.stderr
