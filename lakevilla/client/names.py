"""Names: how a caller's table name becomes the one location that identifies the table."""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.errors import InvalidOperation
from lakevilla.store.location import normalise_location, refuse_half_scheme

__all__ = ["resolve"]


def resolve(root: str, names: Mapping[str, str], table: str) -> str:
    """The location of a table: a registered name, a path under the root, or a URI.

    Raises
    ------
    InvalidOperation
        The name is no string, empty, climbs out of the root, or is the lake's own directory.
    """
    if not isinstance(table, str):
        raise InvalidOperation(f"a table is named by a string, not {type(table).__name__}")
    if table in names:
        return names[table]
    refuse_half_scheme(table)
    location = normalise_location(root, table)
    kept = {"_lakevilla", "_delta_log"}.intersection(location.split("/"))
    if kept:
        raise InvalidOperation(
            f"table name {table!r} lies in a directory {kept.pop()}, which holds what lakevilla or "
            "a log keeps: choose another place",
            table=table,
        )
    return location
