"""An open shell: at a prompt, or fed from a pipe."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import typer

import lakevilla as lv
from lakevilla.cli.command import INTERRUPTED
from lakevilla.cli.shell.actions import Leave
from lakevilla.cli.shell.desk import Desk
from lakevilla.cli.shell.loop import Shell
from lakevilla.cli.sql.ending import Interrupted, refuse_open
from lakevilla.cli.sql.piped import piped
from lakevilla.errors import InvalidOperation


def run_shell(
    lake: lv.Lake[Any],
    ref: str | None,
    texts: Sequence[str] | None,
    values: Mapping[str, object],
    limits: Mapping[str, Any],
) -> None:
    """Run the texts; without any, what comes in until its end, or until somebody leaves."""
    desk = Desk(lake, ref, values, limits)
    try:
        if texts:
            _run_texts(desk, Shell(desk), [("-c", io.StringIO(text)) for text in texts])
        elif sys.stdin is not None and sys.stdin.isatty():
            _converse(desk, Shell(desk))
        else:
            _run_texts(desk, Shell(desk), [("stdin", piped())])
    finally:
        desk.close()


def _converse(desk: Desk, run: Shell) -> None:
    try:
        from lakevilla.cli.shell.prompt import Prompt
    except ImportError as error:
        raise InvalidOperation(
            f"the prompt needs what is not installed here ({error.name or error}): install "
            "LakeVilla with its extra shell, `pip install 'lakevilla[shell]'`"
        ) from error
    desk.screen.line(f"{desk.lake.root}: \\? lists the commands, Ctrl-D leaves")
    run.converse(Prompt(run.is_complete, lambda: desk.names))


def _run_texts(desk: Desk, run: Shell, texts: Sequence[tuple[str, TextIO]]) -> None:
    try:
        for source, lines in texts:
            run.run_lines(lines, source)
        refuse_open(desk.session)
    except Leave:
        pass
    except Interrupted as stopped:
        desk.screen.aside(str(stopped))
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except UnicodeDecodeError:
        raise InvalidOperation("can't read stdin: it is not UTF-8") from None
