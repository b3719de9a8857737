"""Commands on refs: make, list, protect and delete tags, branches and clones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Annotated, Any

import typer

import lakevilla as lv
from lakevilla.cli.command import Json, Options, Profile, Root, command, pair
from lakevilla.cli.completion import complete_ref
from lakevilla.cli.connection import open_lake
from lakevilla.cli.output import Output
from lakevilla.cli.reading import state, time_hint
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN

RefName = Annotated[
    str,
    typer.Argument(help="The ref, as `lakevilla refs` lists it.", autocompletion=complete_ref),
]
NewName = Annotated[str, typer.Argument(help="Its name: letters, digits and . _ - /.")]
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
        "--table",
        "-t",
        metavar="PATTERN",
        help="Only tables with this name, or a pattern such as 'sales/*'; repeatable.",
    ),
]
Absorb = Annotated[
    list[str] | None,
    typer.Option(
        "--absorb",
        metavar="PATTERN",
        help=(
            "Include other clients' commits to these tables first. Default: all tables, if there "
            "are at most 256."
        ),
    ),
]
Protected = Annotated[
    bool, typer.Option("--protected", help="Refuse to delete it before `lakevilla unprotect`.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="KEY=VALUE", help="What `lakevilla refs` shows about it."),
]

_COLUMNS = [
    "name",
    "kind",
    "version",
    "base_version",
    "created",
    "created_by",
    "protected",
    "merged",
    "metadata",
]


@command
def tag(
    root: Root,
    name: NewName,
    at: At = None,
    tables: Tables = None,
    absorb: Absorb = None,
    protected: Protected = False,
    metadata: Metadata = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the tag, and release what it alone has kept.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Give a state of all tables a name, and keep it until the tag is deleted."""
    output = Output(as_json)
    given = _Given(at, tables, absorb, protected, metadata)
    with open_lake(root, option, profile) as lake:
        if delete:
            _delete(lake, "tag", name, given)
            output.value({"deleted": name}, f"tag {name} is deleted")
            return
        made = given.make(lake.tag, name)
    output.value(shown_ref(made), f"tag {name} keeps global version {made.version}")


@command
def branch(
    root: Root,
    name: NewName,
    at: At = None,
    tables: Tables = None,
    absorb: Absorb = None,
    protected: Protected = False,
    metadata: Metadata = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the branch, with all commits on it.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Begin a branch, on which commands with --on write without changing main, or delete one."""
    output = Output(as_json)
    given = _Given(at, tables, absorb, protected, metadata)
    with open_lake(root, option, profile) as lake:
        if delete:
            _delete(lake, "branch", name, given)
            output.value({"deleted": name}, f"branch {name} is deleted")
            return
        made = given.make(lake.branch, name)
    output.value(shown_ref(made), f"branch {name} begins at global version {made.base_version}")


@command
def clone(
    root: Root,
    source: Annotated[str, typer.Argument(help="A table, or a directory of tables.")],
    to: Annotated[str | None, typer.Argument(help="A free path; also the clone's name.")] = None,
    at: At = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the files, into tables that need no clone.")
    ] = False,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete", help="Delete the clone of that name: its tables are no longer shown."
        ),
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show tables at another place, to be written to there; no file is copied."""
    output = Output(as_json)
    with open_lake(root, option, profile) as lake:
        if delete:
            _delete(lake, "clone", source, _Given(at or to, None, None, copy, None))
            output.value({"deleted": source}, f"clone {source} is deleted")
            return
        if to is None:
            raise InvalidOperation("clone takes a source, and the path where it is to be shown")
        with time_hint(at):
            made = lake.clone(source, to, None if at is None else state(at, "--at"), copy=copy)
    what = "copied" if copy else "shown"
    text = f"{source} of global version {made.version} is {what} at {made.name}"
    output.value(shown_ref(made), text)


@command
def refs(
    root: Root, option: Options = None, profile: Profile = None, as_json: Json = False
) -> None:
    """Show the refs of the lake: states that have a name and are kept."""
    with open_lake(root, option, profile) as lake:
        found, is_protected = lake.refs(), lake.is_main_protected()
    output = Output(as_json)
    if is_protected:
        output.aside(f"{MAIN} is protected: it takes only merges and upkeep")
    if not (found or as_json):
        output.line(
            "no refs yet: `lakevilla tag ROOT NAME` makes a tag, `lakevilla branch` a branch"
        )
        return
    if as_json:
        output.rows(_COLUMNS, map(shown_ref, found))
        return
    lines = list(map(_line, found))
    # Leave out columns without any value, to have more room for the others.
    filled = [name for name in lines[0] if any(line[name] not in (None, "") for line in lines)]
    output.rows(filled, lines)


@command
def protect(
    root: Root,
    name: RefName,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Refuse to delete a ref from now on; main: to write it except by merges."""
    with open_lake(root, option, profile) as lake:
        if name == MAIN:
            lake.protect_main()
            text = f"{MAIN} is protected: it takes only merges and upkeep"
            Output(as_json).value({"protected": name}, text)
            return
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
    """Let a ref be deleted again; main: be written by all transactions."""
    with open_lake(root, option, profile) as lake:
        if name == MAIN:
            lake.protect_main(on=False)
            Output(as_json).value({"unprotected": name}, f"{MAIN} takes all transactions")
            return
        lake.protect(name, on=False)
    Output(as_json).value({"unprotected": name}, f"{name} can be deleted")


@dataclass(frozen=True)
class _Given:
    """The given arguments for a new ref."""

    at: str | None
    tables: list[str] | None
    absorb: list[str] | None
    protected: bool
    metadata: list[str] | None

    @property
    def is_anything(self) -> bool:
        others = (self.tables, self.absorb, self.protected, self.metadata)
        return self.at is not None or any(others)

    def make(self, verb: Callable[..., lv.Ref], name: str) -> lv.Ref:
        """Make the ref, by ``lake.tag`` or ``lake.branch``."""
        metadata = dict(pair(text, "--metadata", "=") for text in self.metadata or ())
        with time_hint(self.at):
            return verb(
                name,
                None if self.at is None else state(self.at, "--at"),
                tables=self.tables or None,
                absorb=self.absorb or None,
                protected=self.protected,
                metadata=metadata,
            )


def _delete(lake: lv.Lake[Any], kind: str, name: str, given: _Given) -> None:
    """Delete a ref; refuse one of another kind."""
    if given.is_anything:
        raise InvalidOperation(f"{kind} --delete takes the name of the {kind}, and nothing else")
    for ref in lake.refs():
        if ref.name == name and ref.kind != kind:
            raise InvalidOperation(
                f"{name!r} is a {ref.kind}, so nothing is deleted: `lakevilla {ref.kind} ROOT "
                f"{name} --delete` deletes it"
            )
    lake.delete_ref(name)


def shown_ref(ref: lv.Ref) -> dict[str, object]:
    """Return a ref as the commands show it."""
    return {column: getattr(ref, column) for column in _COLUMNS}


def _line(ref: lv.Ref) -> dict[str, object]:
    """Return a ref's most important fields, which fit on a line of a terminal."""
    return {
        "name": ref.name,
        "kind": ref.kind,
        "version": ref.version,
        "base": ref.base_version,
        "merged": ref.merged,
        "created": f"{ref.created.astimezone(UTC):%Y-%m-%d %H:%M}Z",
        "protected": "yes" if ref.protected else "",
        "metadata": ", ".join(f"{key}={value}" for key, value in ref.metadata.items()),
    }
