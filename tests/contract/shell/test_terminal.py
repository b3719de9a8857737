"""The shell in a terminal, as a user runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import lakevilla as lv

CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"
ENDLESS = "SELECT count(*) FROM range(100_000_000_000) a, range(1000) b;"


@pytest.fixture
def terminal(root: str, tmp_path: Path) -> Iterator[pexpect.spawn]:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": "",
        "TERM": "xterm",
        "PAGER": "cat",
    }
    child = pexpect.spawn(
        sys.executable,
        ["-m", "lakevilla.cli", "shell", root],
        env=environment,
        dimensions=(24, 80),
        timeout=60,
        encoding="utf-8",
    )
    yield child
    child.close(force=True)


@pytest.mark.night
def test_ctrl_c_interrupts_the_statement_and_ctrl_d_ends_the_shell(
    terminal: pexpect.spawn, root: str, tmp_path: Path
) -> None:
    terminal.expect_exact("warehouse=>")
    terminal.send(f"BEGIN;{ENTER}")
    terminal.expect_exact("warehouse*=>")
    terminal.send(f"DELETE FROM stock WHERE sku = 'tea';{ENTER}")
    terminal.expect_exact("1 row deleted")
    terminal.expect_exact("warehouse*=>")
    terminal.send(f"{ENDLESS}{ENTER}")
    terminal.expect_exact("sql: ")  # the progress is shown, so the statement runs
    terminal.send(CTRL_C)
    terminal.expect_exact("the transaction is still open")
    terminal.expect_exact("warehouse*=>")
    terminal.send(f"SELECT sku FROM half typed{CTRL_C}")
    terminal.expect_exact("warehouse*=>")
    terminal.send(f"SELECT sku, 6 * 7 AS answer FROM stock;{ENTER}")
    terminal.expect(r"jam +42")
    terminal.expect_exact("warehouse*=>")
    terminal.send(CTRL_D)
    terminal.expect_exact("rolled back transaction")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert (terminal.exitstatus, terminal.signalstatus) == (0, None)
    assert lv.connect(root).sql("SELECT count(*) AS n FROM stock").to_pylist() == [{"n": 2}]
    history = tmp_path / ".local" / "state" / "lakevilla" / "history"
    assert "half typed" not in history.read_text()
    assert "answer" in history.read_text()
