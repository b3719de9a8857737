"""The command."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import typer

import lakevilla as lv
from lakevilla.cli.command import (
    INTERRUPTED,
    Json,
    Limit,
    On,
    Options,
    Profile,
    Root,
    Timestamp,
    Version,
    command,
    moment,
)
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.cli.rendering.look import Format
from lakevilla.cli.sql.ending import Interrupted
from lakevilla.cli.sql.placing import placed
from lakevilla.cli.sql.script import Script, ScriptRun, read_script
from lakevilla.errors import InvalidOperation


@command
def sql(
    root: Root,
    query: Annotated[
        str | None,
        typer.Argument(help='Statements, or "-" for those of stdin, as without an argument.'),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE", help="Run the statements of a file; several."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Allow statements that write, and commit each of them.")
    ] = False,
    atomic: Annotated[
        bool, typer.Option("--atomic", help="With --write: commit all of them at the end, or none.")
    ] = False,
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
    scripts = _scripts(query, file)
    with open_lake(root, option, profile, on=on) as lake:
        if version is not None or timestamp is not None:
            _read_past(lake, scripts, version, moment(timestamp), output, limit)
            return
        run = ScriptRun(lake, output, limit, write=write, atomic=atomic)
        try:
            run.run(scripts)
        except Interrupted as interrupted:
            output.aside(str(interrupted))
            raise typer.Exit(INTERRUPTED) from None


def _scripts(query: str | None, files: list[str] | None) -> list[Script]:
    if files:
        if query is not None:
            raise InvalidOperation("sql takes statements or files, not both: leave one of them out")
        return [read_script(file) for file in files]
    if query is None and sys.stdin.isatty():
        raise InvalidOperation(
            "sql takes statements, or a file by -f; `lakevilla shell` is for typing them"
        )
    return [read_script("-")] if query in (None, "-") else [Script(query or "")]


def _read_past(
    lake: lv.Lake[Any],
    scripts: list[Script],
    version: int | None,
    when: datetime | None,
    output: Output,
    limit: int | None,
) -> None:
    session = lake.session()
    with lake.snapshot(version, when) as state:
        for script in scripts:
            for statement in session.statements(script.text):
                with placed(script.name, statement.line):
                    output.frame(state.sql(statement.text), limit)
