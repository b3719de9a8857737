"""What completion asks of a lake."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lakevilla.cli.shell.completing.words import RESERVED

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column as it is offered."""

    name: str
    type: str


class Names(Protocol):
    """The names of a lake. A call may take a moment: it may have to look."""

    def tables(self, prefix: str) -> Sequence[str]:
        """The tables whose names begin so, with slashes."""

    def columns(self, table: str) -> Sequence[NamedColumn]:
        """Those of a table, by its name with slashes; none if there is no such table."""

    def refs(self) -> Sequence[str]:
        """Branches and tags."""

    def files(self, prefix: str) -> Sequence[str]:
        """The paths of this machine that begin so; a directory ends with a slash."""


def quoted(name: str) -> str:
    """One part of a name as SQL takes it."""
    if _PLAIN.fullmatch(name) and name.lower() not in RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def dotted(table: str) -> str:
    """The name of a table as SQL takes it."""
    return ".".join(map(quoted, table.split("/")))
