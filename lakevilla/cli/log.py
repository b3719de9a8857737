"""The command that shows commits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

import lakevilla as lv
from lakevilla.cli.command import MAIN, Json, On, Options, Profile, Root, command
from lakevilla.cli.commit_lines import Branch, commit_lines, graph_lines
from lakevilla.cli.completion import complete_table
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation


@command
def log(
    root: Root,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="How many, newest first.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            help="The entries of one table's own log instead.",
            autocompletion=complete_table,
        ),
    ] = None,
    graph: Annotated[
        bool, typer.Option("--graph", help="With the commits of each branch, in its own column.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="With times, ids, and each table and operation."),
    ] = False,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the lake's commits, newest first, one in a line, or one table's log entries.

    +1 -2 counts rows: an updated one is one of each.
    """
    output = Output(as_json)
    if graph and (as_json or verbose or table is not None or on not in (None, MAIN)):
        raise InvalidOperation("--graph is for people and shows all branches: leave out the others")
    with open_lake(root, option, profile, on=on) as lake:
        if table is None:
            entries = lake.history(limit)
            if graph:
                output.cut(_graph(lake, entries, limit))
            elif as_json or verbose or not entries:
                output.history(entries)
            else:
                output.cut(commit_lines(entries, datetime.now(UTC)))
            older = entries[-1].version - 1 if entries else 0
        else:
            log_entries = lake.table(table).history(limit)
            output.table_history(log_entries)
            older = log_entries[-1].version if log_entries else 0
        if limit is not None and older > 0:
            output.left_out(older, "older one", most=True)


def _graph(lake: lv.Lake[Any], entries: list[lv.HistoryEntry], limit: int | None) -> list[str]:
    refs = lake.refs()
    branches = [
        Branch(ref, lake.on(ref.name).history(limit))
        for ref in refs
        if ref.kind == "branch" and ref.version != ref.base_version
    ]
    return graph_lines(entries, branches, refs, datetime.now(UTC), limit=limit)
