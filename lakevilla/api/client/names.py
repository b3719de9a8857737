"""Resolve a caller's table name to the location that identifies the table."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.global_log.head import NOWHERE, NameMap
from lakevilla.settings import shown
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Store
from lakevilla.store.location import (
    is_external,
    normalise_location,
    refuse_half_scheme,
    root_location,
)


class TableNames(Iterator[str]):
    """An iterator over names; ``unused`` is their number until the first name is taken."""

    def __init__(self, names: Iterable[str]) -> None:
        found = list(names)
        self.unused: int | None = len(found)
        self._names = iter(found)

    def __next__(self) -> str:
        self.unused = None
        return next(self._names)


def resolve(root: str, names: Mapping[str, str], table: str, *, also_renamed: bool = False) -> str:
    """Return the location of a table: a registered name, a path under the root, or a URI.

    ``also_renamed``: accept a path although its table has another name by now.

    Raises
    ------
    InvalidOperation
        The name is no string, is empty, leads out of the root, or into the lake's own directory.
    TableNotFound
        The table at that path was renamed, so the path does not name it any more.
    """
    if not isinstance(table, str):
        raise InvalidOperation(no_name(table))
    if names.get(table, NOWHERE) != NOWHERE:
        return names[table]
    refuse_half_scheme(table)
    location = normalise_location(root, table)
    kept = {"_lakevilla", "_delta_log"}.intersection(location.split("/"))
    if kept:
        raise InvalidOperation(
            f"table name {table!r} is in a directory {kept.pop()}, which is reserved for "
            "lakevilla and for logs: choose another name",
            table=table,
        )
    if not (also_renamed or is_external(table)) and names.get(location) == NOWHERE:
        raise TableNotFound(renamed(names, table, location), table=table)
    return location


def named(store: Store, location: str) -> str:
    """Allow access to the store of a location that the caller itself has named; return it."""
    if isinstance(store, LakeStore):
        store.name(location)
    return location


def refuse_outside(root: str, table: str, location: str) -> None:
    """Refuse to create a table at a path without scheme outside of the root, or behind a link.

    Such a path is mostly a mistyped name with a leading slash. Raises ``InvalidOperation``.
    """
    if is_external(location) and table.startswith("/"):
        raise InvalidOperation(
            f"table name {table!r} is a path outside of the lake's root {root}: leave out the "
            f"first slash ({table.lstrip('/')!r} is below the root), or give "
            f"{'file://' + table!r} if that path is meant",
            table=table,
        )
    refuse_link(root, table, location)


def refuse_link(root: str, table: str, location: str) -> None:
    """Refuse to create or delete a table whose path below the root leads out of it by a link.

    Raises ``InvalidOperation``.
    """
    if not is_external(location) or is_external(table) or root_location(root).scheme != "file":
        return
    # A name in a catalog, and a registered name, never equals such a path.
    paths = (f"{root.rstrip('/')}/{one}" for one in (table, table.replace(".", "/")))
    if any(os.path.realpath(path) == location for path in paths):
        raise InvalidOperation(
            f"table name {table!r} leads out of the lake's root {root} by a link, to {location}: "
            f"give {'file://' + location!r} if that path is meant",
            table=table,
        )


def renamed(names: Mapping[str, str], table: str, location: str) -> str:
    """Return the message for a path whose table was renamed."""
    known = names.cached() if isinstance(names, NameMap) else names
    now = [name for name, place in known.items() if place == location]
    return (
        f"table {table} does not exist: it was renamed"
        f"{f' to {now[0]}' if now else ', `tables()` lists the names'}"
    )


def no_name(table: object) -> str:
    """Return the message for a value that can't be a table's name."""
    message = f"a table is named by a string, not {shown(table)}"
    if isinstance(table, os.PathLike):
        message += "; the name of a table under the root is its path there, such as 'sales/orders'"
    elif isinstance(name := getattr(table, "name", None), str):
        message += f": pass its name, {name!r}"
    elif isinstance(table, list | tuple | Mapping) or hasattr(table, "__arrow_c_stream__"):
        message += ": name one table; the data comes after its name"
    return message
