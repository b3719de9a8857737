"""Commands about refs: tags and branches are made, listed, protected and deleted."""

from __future__ import annotations

from typing import Annotated

import typer

import lakevilla as lv
from lakevilla.cli.command import (
    Json,
    Options,
    Profile,
    Root,
    command,
    pair,
)
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.cli.states import state, time_hint
from lakevilla.errors import InvalidOperation

RefName = Annotated[str, typer.Argument(help="The ref, as `lakevilla refs` lists it.")]

Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="What `lakevilla refs` tells of it."),
]

_COLUMNS = [
    "name",
    "kind",
    "version",
    "base_version",
    "created",
    "created_by",
    "protected",
    "metadata",
]


At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="STATE",
        help="A global version, a time (2026-01-31T12:00:00Z) or another ref. Default: now.",
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        "-t",
        metavar="PATTERN",
        help="Only tables that are called so, as 'sales/*'; several: of each.",
    ),
]
Absorb = Annotated[
    list[str] | None,
    typer.Option(
        "--absorb",
        metavar="PATTERN",
        help="Look at these tables for commits of other clients first. Default: at all, if they "
        "are at most 256.",
    ),
]
Protected = Annotated[
    bool, typer.Option("--protected", help="Refuse to delete it before `lakevilla unprotect`.")
]


@command
def tag(
    root: Root,
    name: Annotated[str, typer.Argument(help="The tag: letters, digits and . _ - /.")],
    at: At = None,
    tables: Tables = None,
    absorb: Absorb = None,
    protected: Protected = False,
    metadata: Metadata = None,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="Let go of the tag, and of what it alone has kept."),
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Give a state of all tables a name, and keep it until the tag is deleted."""
    with open_lake(root, option, profile) as lake:
        if delete:
            _delete(lake, "tag", name, (at, tables, absorb, protected, metadata), as_json)
            return
        with time_hint(at):
            made = lake.tag(
                name,
                None if at is None else state(at, "--at"),
                tables=tables or None,
                absorb=absorb or None,
                protected=protected,
                metadata=_pairs(metadata),
            )
    said = f"tag {name} keeps global version {made.version}"
    Output(as_json).value(_shown(made), said)


@command
def branch(
    root: Root,
    name: Annotated[str, typer.Argument(help="The branch: letters, digits and . _ - /.")],
    at: At = None,
    tables: Tables = None,
    absorb: Absorb = None,
    protected: Protected = False,
    metadata: Metadata = None,
    delete: Annotated[
        bool,
        typer.Option("--delete", help="End the branch, with all that was committed on it."),
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Begin a branch: the tables, to be written where nobody else sees it."""
    with open_lake(root, option, profile) as lake:
        if delete:
            _delete(lake, "branch", name, (at, tables, absorb, protected, metadata), as_json)
            return
        with time_hint(at):
            made = lake.branch(
                name,
                None if at is None else state(at, "--at"),
                tables=tables or None,
                absorb=absorb or None,
                protected=protected,
                metadata=_pairs(metadata),
            )
    said = f"branch {name} begins at global version {made.version}"
    Output(as_json).value(_shown(made), said)


def _delete(lake: lv.Lake, kind: str, name: str, others: tuple[object, ...], as_json: bool) -> None:
    if any(others):
        raise InvalidOperation(f"{kind} --delete takes the name of the {kind}, and nothing else")
    found = [ref.kind for ref in lake.refs() if ref.name == name]
    if found and found != [kind]:
        raise InvalidOperation(
            f"{name!r} is a {found[0]}: `lakevilla {found[0]} ROOT {name} --delete` lets go of it"
        )
    lake.delete_ref(name)
    Output(as_json).value({"deleted": name}, f"{kind} {name} is deleted")


def _pairs(metadata: list[str] | None) -> dict[str, str]:
    return dict(pair(text, "--metadata", "=") for text in metadata or ())


@command
def refs(
    root: Root, option: Options = None, profile: Profile = None, as_json: Json = False
) -> None:
    """Show the tags and branches of the lake."""
    with open_lake(root, option, profile) as lake:
        found = lake.refs()
    output = Output(as_json)
    if not (found or as_json):
        output.line(
            "no refs yet: `lakevilla tag ROOT NAME` or `lakevilla branch ROOT NAME` makes one"
        )
        return
    output.rows(_COLUMNS, map(_shown, found))


@command
def protect(
    root: Root,
    name: RefName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Refuse to delete a ref from now on."""
    with open_lake(root, option, profile) as lake:
        lake.protect(name)
    Output(as_json).value({"protected": name}, f"{name} is protected: it can't be deleted")


@command
def unprotect(
    root: Root,
    name: RefName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Let a ref be deleted again."""
    with open_lake(root, option, profile) as lake:
        lake.protect(name, on=False)
    Output(as_json).value({"unprotected": name}, f"{name} can be deleted")


def _shown(ref: lv.Ref) -> dict[str, object]:
    return {column: getattr(ref, column) for column in _COLUMNS}
