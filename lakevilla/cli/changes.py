"""``lakevilla changes``: changes since a version, by table; or continuously, by version."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

import lakevilla as lv
from lakevilla.cli.command import Json, Limit, On, Options, Profile, Root, command
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.cli.upkeep import ending
from lakevilla.errors import InvalidOperation

#: The number of commits that may be added between reading the lake and reading its history.
_MEANWHILE = 64


@command
def changes(
    root: Root,
    since: Annotated[
        int | None,
        typer.Option(
            "--since", min=0, help="Changes after this global version. With --follow: default now."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Show version by version, wait for more; Ctrl-C ends it."
        ),
    ] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "--tables",
            "-t",
            help="Of this table, or of those like 'sales/*'; repeatable. Default: of all.",
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option("--version", min=0, help="Up to this global version.")
    ] = None,
    poll_seconds: Annotated[
        float, typer.Option(help="With --follow: how often it checks for new commits.")
    ] = 1.0,
    absorb_seconds: Annotated[
        float | None,
        typer.Option(help="With --follow: how often it includes other clients' commits."),
    ] = None,
    on: On = None,
    limit: Limit = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the rows that changed since a global version, and the value for the next --since.

    With --follow and --json each version is one line.
    """
    output = Output(as_json)
    _refuse_together(since, follow, version, absorb_seconds)
    with open_lake(root, option, profile, on=on) as lake:
        if not follow:
            assert since is not None
            _show_by_table(output, lake, since, version, table, limit)
            return
        start = lake.snapshot().version if since is None else since
        with ending() as end:
            # Stop by an event: an exception raised while a destructor runs would be lost.
            versions = lake.follow(
                start,
                tables=table,
                poll_seconds=poll_seconds,
                absorb_seconds=absorb_seconds,
                stop=end,
            )
            _show_versions(output, versions, start, limit)


def _refuse_together(
    since: int | None,
    follow: bool,
    version: int | None,
    absorb_seconds: float | None,
) -> None:
    """Refuse options that have no meaning together."""
    if since is None and not follow:
        raise InvalidOperation(
            "changes needs --since N, the global version after which it begins (0: all that is "
            "kept), or --follow, which begins now"
        )
    if follow and version is not None:
        raise InvalidOperation("--follow has no end: leave out --version")
    if absorb_seconds is not None and not follow:
        raise InvalidOperation("--absorb-seconds goes with --follow")


def _show_versions(
    output: Output, versions: Iterable[lv.Version], position: int, limit: int | None
) -> None:
    """Show each version as it is committed, until the user interrupts."""
    try:
        for version in versions:
            output.version(version, limit)
            position = version.version
    except KeyboardInterrupt:
        pass  # the user has interrupted twice
    output.aside(f"up to global version {position}: continue with --since {position}")


def _show_by_table(
    output: Output,
    lake: lv.Lake[Any],
    since: int,
    version: int | None,
    requested: list[str] | None,
    limit: int | None,
) -> None:
    with lake.snapshot(version) as state:
        last = state.version
        if since > last:
            raise InvalidOperation(
                f"--since {since} is in the future: the newest global version is {last}"
            )
        is_named = requested and not any(map(_is_pattern, requested))
        touched = [] if is_named else _touched(lake, state, since, last)
        names = touched if not requested else _like(requested, touched)
        found = {name: state.changes(name, since) for name in names}
    if output.as_json:
        tables = {
            name: {"rows": rows.slice(0, limit).to_pylist(), "total": rows.num_rows}
            for name, rows in found.items()
        }
        output.value({"since": since, "version": last, "tables": tables}, "")
        return
    for name, rows in found.items():
        output.line(f"{name}: {rows.num_rows} row{'' if rows.num_rows == 1 else 's'}")
        if rows.num_rows:
            output.frame(rows, limit)
    output.line(f"up to global version {last}: continue with --since {last}")


def _like(requested: list[str], touched: list[str]) -> list[str]:
    """Return the named tables, and the changed tables that match a pattern."""
    names: dict[str, None] = {}
    for text in requested:
        names |= dict.fromkeys(
            [name for name in touched if fnmatchcase(name, text)] if _is_pattern(text) else [text]
        )
    return list(names)


def _is_pattern(text: str) -> bool:
    from lakevilla.api.feed.walk import is_pattern

    return is_pattern(text)


def _touched(lake: lv.Lake[Any], state: lv.Snapshot[Any], since: int, last: int) -> list[str]:
    """Return the tables of a state, by name, that commits after ``since`` have changed."""
    found = lake.history(last - since + _MEANWHILE)
    if len(found) == last - since + _MEANWHILE and found[-1].version > since + 1:
        found = lake.history()  # more commits were made after the state was bound
    entries = [entry for entry in found if since < entry.version <= last]
    touched = {name for entry in entries for name in entry.tables}
    return sorted(touched & state.versions.keys())
