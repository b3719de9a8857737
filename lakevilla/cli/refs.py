"""Commands about refs: tags are made, listed, protected and deleted."""

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

_COLUMNS = ["name", "kind", "version", "created", "created_by", "protected", "metadata"]


@command
def tag(
    root: Root,
    name: Annotated[str, typer.Argument(help="The tag: letters, digits and . _ - /.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STATE",
            help="A global version, a time (2026-01-31T12:00:00Z) or another ref. Default: now.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--tables",
            "-t",
            metavar="PATTERN",
            help="Only tables that are called so, as 'sales/*'; several: of each.",
        ),
    ] = None,
    absorb: Annotated[
        list[str] | None,
        typer.Option(
            "--absorb",
            metavar="PATTERN",
            help="Look at these tables for commits of other clients first. Default: at all, if "
            "they are at most 256.",
        ),
    ] = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Refuse to delete it before `lakevilla unprotect`.")
    ] = False,
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
    output = Output(as_json)
    with open_lake(root, option, profile) as lake:
        if delete:
            if at is not None or tables or absorb or protected or metadata:
                raise InvalidOperation("tag --delete takes the name of the tag, and nothing else")
            lake.delete_ref(name)
            output.value({"deleted": name}, f"tag {name} is deleted")
            return
        given = dict(pair(text, "--metadata", "=") for text in metadata or ())
        with time_hint(at):
            made = lake.tag(
                name,
                None if at is None else state(at, "--at"),
                tables=tables or None,
                absorb=absorb or None,
                protected=protected,
                metadata=given,
            )
    output.value(_shown(made), f"tag {name} keeps global version {made.version}")


@command
def refs(
    root: Root, option: Options = None, profile: Profile = None, as_json: Json = False
) -> None:
    """Show the refs of the lake: states that have a name and are kept."""
    with open_lake(root, option, profile) as lake:
        found = lake.refs()
    output = Output(as_json)
    if not (found or as_json):
        output.line("no refs yet: `lakevilla tag ROOT NAME` makes one")
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
