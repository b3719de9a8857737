"""Commands that find tables and add them to the lake."""

from __future__ import annotations

from typing import Annotated

import typer

import lakevilla as lv
from lakevilla.cli.command import (
    FINDINGS,
    MAIN,
    Json,
    On,
    Options,
    Profile,
    Root,
    TableName,
    command,
)
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation

NO_TABLES = (
    "no tables yet: `lakevilla create ROOT NAME id:bigint ...` makes one, and `lakevilla register "
    "ROOT NAME URI` adds one from elsewhere"
)


@command
def tables(
    root: Root,
    registered: Annotated[
        bool, typer.Option("--registered", help="Only tables in the lake: needs fewer requests.")
    ] = False,
    on: On = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the tables in the lake, and those under its root that are not in it yet.

    Exits with 1 if one in the lake can't be opened, and says which.
    """
    left_out: list[str] = []
    with open_lake(root, option, profile, left_out, on=on) as lake:
        rows: list[dict[str, object]] = [
            {
                "name": table.name,
                "format": table.format,
                "version": table.version,
                "state": "guarded" if table.guarded else "in the lake",
                "guarded": table.guarded,
                "uri": table.uri,
            }
            for table in lake.tables()
        ]
        # Tables that are not in the lake are in none of its refs.
        alone = registered or on not in (None, MAIN)
        others = [] if alone else [one for one in lake.discover() if one.state != "dropped"]
    rows += [_not_in_lake(table) for table in others]
    output = Output(as_json)
    if not (rows or left_out or as_json):
        output.line(NO_TABLES)
        return
    output.rows(["name", "format", "version", "state", "uri"], rows)
    for table in others:
        if table.state == "refused":
            output.aside(f"table {table.name}: {table.reason}")
    if not as_json and any(table.state == "in_catalog" for table in others):
        output.line("`lakevilla register ROOT NAME` adds one that is in its catalog alone")
    if not as_json and any(table.state == "new" for table in others):
        output.line("`lakevilla register ROOT --all` adds those that are not in the lake yet")
    if left_out:
        raise typer.Exit(FINDINGS)


def _not_in_lake(table: lv.DiscoveredTable) -> dict[str, object]:
    states = {"new": "not in the lake yet", "in_catalog": "in its catalog"}
    return {
        "name": table.name,
        "format": table.format,
        "version": table.version,
        "state": states.get(table.state, "refused"),
        "guarded": False,
        "uri": table.uri,
        "reason": table.reason,
    }


@command
def register(
    root: Root,
    name: Annotated[
        str | None, typer.Argument(help="The name under which the lake knows the table.")
    ] = None,
    uri: Annotated[
        str | None,
        typer.Argument(help="Where the table is stored; by default NAME below the root."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Instead, add all tables below the root.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Add a table to the lake's transactions, or with --all each one under the root.

    With --all it exits with 1 if one can't be added, and says which.
    """
    if (name is None) == (not every):
        raise InvalidOperation("register takes the NAME of a table, or --all")
    output = Output(as_json)
    left_out: list[str] = []
    with open_lake(root, option, profile, left_out, new=name is not None) as lake:
        if name is not None:
            lake.register(name, uri)
            uri = lake.table(name).uri
            output.value({"name": name, "uri": uri}, f"registered {name}: {uri}")
            return
        names = lake.register(discover=True)
    listed = f": {', '.join(names)}" if names else ": nothing is new"
    output.value({"registered": names}, f"registered {len(names)} tables{listed}")
    if left_out:
        raise typer.Exit(FINDINGS)


@command
def unregister(
    root: Root,
    name: TableName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Remove a table from the lake, also one whose files are gone; files that exist stay."""
    with open_lake(root, option, profile) as lake:
        lake.unregister(name)
    Output(as_json).value({"name": name}, f"unregistered {name}")
