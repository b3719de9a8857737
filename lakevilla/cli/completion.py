"""Completion by a shell of the names of lakes, tables and refs in the words of a command."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from lakevilla.cli.connection import open_lake
from lakevilla.cli.lakes import lake_names
from lakevilla.errors import LakeVillaError

if TYPE_CHECKING:
    import lakevilla as lv

#: The most tables that one completion lists.
_MOST = 1000


def complete_root(incomplete: str) -> list[str]:
    """Return the names of lakes that begin so; the shell itself completes directories."""
    return [name for name in lake_names() if name.startswith(incomplete)]


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables that begin so, in the lake of the words before."""
    return _names(ctx, incomplete, lambda lake: lake.tables(limit=_MOST, details=False))


def complete_ref(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the refs that begin so, in the lake of the words before."""
    return _names(ctx, incomplete, lambda lake: lake.refs())


def _names(ctx: typer.Context, incomplete: str, listed: Callable[[lv.Lake[Any]], Any]) -> list[str]:
    """Return names in a lake; none if it can't be read, since a prompt is no place for errors."""
    given = ctx.params
    arguments = (given.get("root") or "", given.get("option"), given.get("profile"))
    try:
        with (
            contextlib.redirect_stderr(io.StringIO()),
            open_lake(*arguments, on=given.get("on")) as lake,
        ):
            found = [one.name for one in listed(lake)]
    except (LakeVillaError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]
