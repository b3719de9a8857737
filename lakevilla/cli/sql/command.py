"""The command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import lakevilla as lv
from lakevilla.cli.command import (
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
from lakevilla.errors import InvalidOperation


@command
def sql(
    root: Root,
    query: Annotated[str, typer.Argument(help='The statement, or "-" to read it from stdin.')],
    write: Annotated[
        bool, typer.Option("--write", help="Allow INSERT, UPDATE, DELETE and MERGE, and commit.")
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
    """Run one statement: a SELECT over one consistent state of all tables, or a write."""
    text = sys.stdin.read() if query == "-" else query
    output = Output(as_json, form)
    if write and (version is not None or timestamp is not None):
        raise InvalidOperation("the past can't be written: leave out --write, or the version")
    with open_lake(root, option, profile, on=on) as lake:
        if not write:
            with lake.snapshot(version, moment(timestamp)) as state:
                output.frame(state.sql(text), limit)
            return
        with lake.transaction() as txn:
            result = txn.sql(text)
        if not isinstance(result, lv.OperationResult):
            output.frame(result, limit)
            return
        counts = {
            name: getattr(result, name)
            for name in ("rows_matched", "rows_inserted", "rows_updated", "rows_deleted")
        }
        version = None if txn.result is None else txn.result.global_version
        if as_json:
            output.rows([], [{"id": txn.id, "global_version": version, **counts}])
            return
        listed = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        output.line(f"committed {txn.id} as global version {version}: {listed}")
