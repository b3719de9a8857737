"""The command ``lakevilla sql``."""

from __future__ import annotations

from typing import Annotated

import typer

from lakevilla.cli.command import (
    INTERRUPTED,
    Json,
    Limit,
    MaxBytes,
    MaxRows,
    On,
    Options,
    Params,
    Profile,
    Root,
    Timeout,
    Timestamp,
    Version,
    command,
    limits_of,
    parse_time,
)
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation
from lakevilla.values import Format


@command
def sql(
    root: Root,
    query: Annotated[
        str | None,
        typer.Argument(help='Statements, or "-" for those of stdin, as without an argument.'),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Run the statements of a file; repeatable."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Allow statements that write, and commit each of them.")
    ] = False,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="With --write: commit all of them at the end, or none.")
    ] = False,
    param: Params = None,
    max_rows: MaxRows = None,
    max_bytes: MaxBytes = None,
    timeout: Timeout = None,
    version: Version = None,
    timestamp: Timestamp = None,
    limit: Limit = None,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    form: Annotated[
        Format,
        typer.Option("--format", "-F", help="How rows are written; in pipes nothing is cut."),
    ] = "table",
    as_json: Json = False,
) -> None:
    """Run SQL: queries over one consistent state of all tables, or with --write any statements.

    It ends at the first error, and names the file and line. To type statements: `lakevilla shell`.
    """
    output = Output(as_json, form)
    if write and (version is not None or timestamp is not None):
        raise InvalidOperation("the past can't be written: leave out --write, or the version")
    if atomic and not write:
        raise InvalidOperation("--atomic is about writes: add --write")
    from lakevilla.cli.sql.script import read_past, run_scripts, scripts_of, values_of

    scripts, values = scripts_of(query, file), values_of(param)
    limits = limits_of(max_rows, max_bytes, timeout)
    with open_lake(root, option, profile, on=on) as lake:
        if version is not None or timestamp is not None:
            read_past(lake, scripts, values, version, parse_time(timestamp), output, limit, limits)
        elif not run_scripts(
            lake, scripts, values, output, limit, limits, write=write, atomic=atomic
        ):
            raise typer.Exit(INTERRUPTED)
