"""The command that measures a lake for monitoring."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from lakevilla.cli.command import Json, Options, Profile, Root, command
from lakevilla.cli.connection import open_lake
from lakevilla.cli.lakes import lake_of
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.gauges import LakeMetrics
from lakevilla.store.location import refuse_half_scheme, root_location


@command
def metrics(
    root: Root,
    form: Annotated[
        Literal["prometheus", "json"], typer.Option("--format", "-F", help="How they are written.")
    ] = "prometheus",
    textfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.prom",
            help="Replace this file, which node_exporter reads, instead of printing.",
        ),
    ] = None,
    tables: Annotated[
        int, typer.Option(min=0, help="So many tables get numbers of their own.")
    ] = 100,
    option: Options = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Measure the lake for monitoring, by ten requests or so: Prometheus text, or JSON.

    If the lake can't be read, lakevilla_up is 0, and the status is 2.
    """
    is_json = as_json or form == "json"
    if is_json and textfile is not None:
        raise InvalidOperation("--textfile is Prometheus' text: leave out --format json and --json")
    place = _place(root)
    try:
        with open_lake(root, option, profile) as lake:
            found = lake.metrics(tables=tables)
    except LakeVillaError:
        _write(LakeMetrics.unreadable(place), is_json, textfile)
        raise
    _write(found, is_json, textfile)


def _place(root: str) -> str:
    """Return the root as a lake that can be read has it.

    Raises
    ------
    InvalidOperation
        It is no place, or has credentials in it, which a label would show.
    """
    given = lake_of(root).root
    refuse_half_scheme(given)
    return root_location(given).uri


def _write(found: LakeMetrics, is_json: bool, textfile: Path | None) -> None:
    if is_json:
        print(json.dumps({"lake": found.root, "metrics": found.values}, allow_nan=False))
    elif textfile is None:
        print(found.prometheus(), end="")
    else:
        _replace(textfile, found.prometheus())


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole, as its reader may read it at any time."""
    if path.suffix != ".prom":
        raise InvalidOperation(f"--textfile {path}: node_exporter reads files that end in .prom")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise InvalidOperation(
            f"--textfile {path} can't be written: {error.strerror}: make its directory, and let "
            "this user write there"
        ) from None
