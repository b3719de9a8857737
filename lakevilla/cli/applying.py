"""Commands that compare two states of a lake, and return to an earlier one."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from lakevilla.cli.command import Json, Limit, Options, Profile, Root, TableName, command
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.cli.reading import state, time_hint
from lakevilla.cli.refs import shown_ref
from lakevilla.errors import InvalidOperation
from lakevilla.results import MergeResult

_STATE = "A global version, a time such as 2026-01-31T12:00:00Z, or the name of a ref."

Tables = Annotated[
    list[str] | None,
    typer.Option("--table", "-t", help="Only this table, or those like 'sales/*'; repeatable."),
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="TABLE=COLUMN[,COLUMN]",
        help="The columns that identify a table's rows: then single rows are compared.",
    ),
]
OnConflict = Annotated[
    Literal["error", "ours", "theirs"],
    typer.Option(
        "--on-conflict", help="Which side wins where other transactions changed the same rows."
    ),
]
OnEqual = Annotated[
    Literal["conflict", "keep"],
    typer.Option(
        "--on-equal",
        help="keep: a row for which both sides have computed the same counts as changed once.",
    ),
]
Members = Annotated[
    Literal["all"] | None,
    typer.Option("--members", help="all: also if several transactions share the version."),
]


@command
def diff(
    root: Root,
    before: Annotated[str, typer.Argument(help=_STATE)],
    after: Annotated[
        str, typer.Argument(help="The same. Default: the lake's present state.")
    ] = "main",
    table: Tables = None,
    rows: Annotated[
        str | None, typer.Option("--rows", metavar="TABLE", help="Show the rows of this table.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A column that identifies its rows; repeatable."),
    ] = None,
    limit: Limit = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show which tables differ in two states of the lake; with --rows, which rows."""
    output = Output(as_json)
    with open_lake(root, option, profile) as lake, time_hint(before, after):
        found = lake.diff(state(before, "A"), state(after, "B"), tables=table)
        frame = found.tables if rows is None else found.rows(rows, key)
    output.frame(frame, limit)


@command
def rollback(
    root: Root,
    to: Annotated[str, typer.Argument(help=_STATE)],
    table: Tables = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Return the tables to an earlier state, by a new commit; no data is copied."""
    with open_lake(root, option, profile) as lake, time_hint(to):
        _show(lake.rollback(state(to, "TO"), tables=table), as_json)


@command
def revert(
    root: Root,
    version: Annotated[int, typer.Argument(help="The commit, by its global version.")],
    table: Tables = None,
    key: Keys = None,
    on_conflict: OnConflict = "error",
    on_equal: OnEqual = "conflict",
    members: Members = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Undo one commit, and leave the commits after it."""
    with open_lake(root, option, profile) as lake:
        found = lake.revert(
            version,
            tables=table,
            keys=_keys(key),
            on_conflict=on_conflict,
            on_equal=on_equal,
            members=members,
        )
    _show(found, as_json)


@command
def cherry_pick(
    root: Root,
    version: Annotated[
        str, typer.Argument(help="The commit, by its global version; one of a branch as etl@57.")
    ],
    table: Tables = None,
    key: Keys = None,
    on_conflict: OnConflict = "error",
    on_equal: OnEqual = "conflict",
    members: Members = None,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Apply one commit again; no data is copied."""
    with open_lake(root, option, profile) as lake:
        found = lake.cherry_pick(
            int(version) if version.isascii() and version.isdigit() else version,
            tables=table,
            keys=_keys(key),
            on_conflict=on_conflict,
            on_equal=on_equal,
            members=members,
        )
    _show(found, as_json)


@command
def restore(
    root: Root,
    table: TableName,
    to: Annotated[
        str,
        typer.Argument(
            help="A version of the table's own log (`lakevilla versions`), a time such as "
            "2026-01-31T12:00:00Z, or the name of a ref."
        ),
    ],
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Return one table to an earlier state, by a new commit; no data is copied."""
    with open_lake(root, option, profile) as lake, time_hint(to):
        _show(lake.table(table).restore(state(to, "TO")), as_json)


@command
def merge(
    root: Root,
    branch: Annotated[str, typer.Argument(help="The branch, as `lakevilla refs` lists it.")],
    table: Tables = None,
    key: Keys = None,
    on_conflict: OnConflict = "error",
    on_equal: OnEqual = "conflict",
    fast_forward_only: Annotated[
        bool,
        typer.Option("--fast-forward-only", help="Refuse tables that the lake has changed since."),
    ] = False,
    isolation: Annotated[
        Literal["snapshot", "serializable"],
        typer.Option(
            "--isolation",
            help="serializable: refuse it where the lake has changed what was read on the branch.",
        ),
    ] = "snapshot",
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check", metavar="SELECT", help="A SELECT of one boolean that must hold; repeatable."
        ),
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the branch then, unless it has new commits.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Apply the changes of a branch to the lake; no data is copied."""
    with open_lake(root, option, profile) as lake:
        found = lake.merge(
            branch,
            tables=table,
            keys=_keys(key),
            on_conflict=on_conflict,
            on_equal=on_equal,
            fast_forward_only=fast_forward_only,
            isolation=isolation,
            checks=check or (),
            delete=delete,
        )
    _show(found, as_json)


@command
def rebase(
    root: Root,
    branch: Annotated[str, typer.Argument(help="The branch, as `lakevilla refs` lists it.")],
    key: Keys = None,
    on_conflict: OnConflict = "error",
    on_equal: OnEqual = "conflict",
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Continue a branch from the lake's present state; no data is copied."""
    with open_lake(root, option, profile) as lake:
        ref = lake.rebase(branch, keys=_keys(key), on_conflict=on_conflict, on_equal=on_equal)
    text = f"branch {branch} continues from global version {ref.base_version}, as {ref.version}"
    Output(as_json).value(shown_ref(ref), text)


def _show(result: MergeResult, as_json: bool) -> None:
    number = "nothing to do" if result.version is None else f"global version {result.version}"
    tables = ", ".join(f"{name} {outcome}" for name, outcome in sorted(result.tables.items()))
    Output(as_json).value(result, f"{result.merged}: {number}{f' ({tables})' if tables else ''}")


def _keys(given: list[str] | None) -> dict[str, list[str]] | None:
    if given is None:
        return None
    keys = {}
    for text in given:
        table, equals, columns = text.partition("=")
        if not (table and equals and columns):
            raise InvalidOperation(f"--key {text!r}: write it as TABLE=COLUMN, or TABLE=ONE,OTHER")
        keys[table] = columns.split(",")
    return keys
