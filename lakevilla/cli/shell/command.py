"""The command ``lakevilla shell``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakevilla.cli.command import (
    MaxBytes,
    MaxRows,
    On,
    Options,
    Params,
    Profile,
    Root,
    Timeout,
    command,
    limits_of,
)
from lakevilla.cli.connection import open_lake


@command
def shell(
    root: Root,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    param: Params = None,
    max_rows: MaxRows = None,
    max_bytes: MaxBytes = None,
    timeout: Timeout = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--command", "-c", help="Run this and leave; repeatable.", metavar="TEXT"),
    ] = None,
) -> None:
    """Open a prompt for SQL, with completion and history.

    From a pipe, or with -c, it runs the given statements, up to the first error.
    """
    from lakevilla.cli.shell.loop import run_shell
    from lakevilla.cli.sql.script import values_of

    values = values_of(param)
    with open_lake(root, option, profile) as lake:
        run_shell(lake, on, text, values, limits_of(max_rows, max_bytes, timeout))
