"""The command that gives lakes a name on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from lakevilla.cli.command import Json, Options, Profile, command
from lakevilla.cli.connection import connected, storage_options
from lakevilla.cli.lakes import NamedLake, give_name, lake_names, named_lake, take_name
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation
from lakevilla.store.location import is_external, parse_location

_COLUMNS = ["name", "root", "profile", "options"]


@command
def config(
    name: Annotated[str | None, typer.Argument(help="The name: letters, digits, . _ -")] = None,
    lake: Annotated[
        str | None, typer.Argument(metavar="[ROOT]", help="Give the name to this lake.")
    ] = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the name; the lake stays as it is.")
    ] = False,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Show the lakes that have a name on this machine, or name one with its options.

    Commands take the name for a ROOT: `lakevilla tables prod`. Values of options are never shown.
    """
    output = Output(as_json)
    if delete:
        if name is None or lake is not None or option or profile is not None:
            raise InvalidOperation("config --delete takes the name of a lake, and nothing else")
        take_name(name)
        output.value({"deleted": name}, f"{name} is no name of a lake any more")
        return
    if lake is None:
        if option or profile is not None:
            raise InvalidOperation("options are stored with a lake: config takes NAME and ROOT")
        _show(output, lake_names() if name is None else [name])
        return
    given = storage_options(option)
    made = NamedLake(_whole(lake), given, profile)
    connected(made).close()  # refuses misspelt options, before a command meets them
    give_name(str(name), made)
    output.value(_shown(str(name), made), f"{name} is {made.root}")


def _show(output: Output, names: list[str]) -> None:
    if not (names or output.as_json):
        output.line("no lake has a name yet: `lakevilla config NAME ROOT` gives it one")
        return
    output.rows(_COLUMNS, [_shown(name, named_lake(name)) for name in names])


def _shown(name: str, lake: NamedLake) -> dict[str, object]:
    """Return a named lake without the values of its options, which may be secrets."""
    return {
        "name": name,
        "root": lake.root,
        "profile": lake.profile,
        "options": sorted(lake.options) or None,
    }


def _whole(root: str) -> str:
    """Return a root that is the same from each working directory."""
    if re.match(r"[^/]+://[^/@]*:[^/@]*@", root):
        raise InvalidOperation(
            "the root has a password in it, which commands would show: give it by --option"
        )
    if is_external(root):
        parse_location(root)  # refuses an unknown scheme
        return root
    return str(Path(root).expanduser().absolute())
