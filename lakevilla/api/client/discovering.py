"""Tables that are not in the lake yet: what is told of them, and how all come in."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import resolve
from lakevilla.display import HtmlList
from lakevilla.errors import LakeVillaWarning
from lakevilla.lake.context import Event
from lakevilla.lake.tables import discovery, registration
from lakevilla.lake.tables.discovery import FoundTable
from lakevilla.lake.tables.dotted_names import path_of
from lakevilla.results import DiscoveredTable

#: The tables, with their lakes, of which this process has warned.
_WARNED_OF: set[tuple[str, str]] = set()
#: So many keys are named in a message.
_SHOWN = 5
_LIBRARY = f"{Path(__file__).parents[1]}/"


def discover_tables(client: LakeClient) -> list[DiscoveredTable]:
    """The tables under the root that are not in the lake."""
    with client.measured("discover"):
        found = client.run(discovery.discover(client.context))
    return HtmlList(_discovered(client, one) for one in found)


def register_named(client: LakeClient, given: Mapping[str, str]) -> list[str]:
    """Take in tables, by names and where they are."""
    client.ensure_safe_store()
    found = {key: client.resolve({}, uri, None) for key, uri in given.items()}
    # A name that stands for a path is no name beside that.
    locations = {
        place if given[key] == key and place == path_of(key) else key: place
        for key, place in found.items()
    }
    # What the name would mean if it were not registered: a name that no path can have is
    # refused here, and one that is a path already is no name for another table.
    own = {
        key: [resolve(client.root, {}, path) for path in (key, path_of(key)) if path is not None]
        for key in locations
    }
    client.run(registration.register(client.context, locations, own))
    return list(locations)


def register_all(client: LakeClient) -> list[str]:
    """Take in what ``discover_tables`` finds; what is refused is told, and left out."""
    with client.measured("register"):
        found = client.run(discovery.discover(client.context))
        if any(one.state == "new" for one in found):
            client.ensure_safe_store()
        new = client.run(registration.register_found(client.context, found))
    for one in (*found, *new):
        if one.state == "refused":
            leave_out(client, one.location, one.reason, one.kind)
    return [one.location for one in new if one.state == "new"]


def _discovered(client: LakeClient, found: FoundTable) -> DiscoveredTable:
    """What lies under the root as a caller gets it."""
    return DiscoveredTable(
        name=found.location,
        uri=client.uri_of(found.location),
        format=found.format,
        version=None if found.snapshot is None else found.snapshot.version,
        state=found.state,
        reason=found.reason,
    )


def leave_out(
    client: LakeClient, name: str, message: str, reason: str, *, quiet: bool = False
) -> None:
    """Say that a table is left out of what was asked for, and why."""
    message = f"table {name} is left out: {message}"
    if not quiet:
        _warn_once(client.root, name, message)
    client.notify(Event("left_out", None, message, {"table": name, "reason": reason}))


def tell_left(client: LakeClient, table: str, keys: Sequence[str]) -> None:
    """Say what was left in the directory of a table whose data was deleted."""
    if not keys:
        return
    shown = ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" * (len(keys) > _SHOWN))
    message = f"table {table}: {shown} was left, which is none of what tables are made of"
    warnings.warn(message, LakeVillaWarning, stacklevel=_callers_level())
    client.notify(Event("left_out", None, message, {"table": table, "keys": list(keys)}))


def _warn_once(root: str, table: str, message: str) -> None:
    """Show it to a person, who may have set up no log: once a table and process."""
    if (root, table) not in _WARNED_OF:
        _WARNED_OF.add((root, table))
        warnings.warn(message, LakeVillaWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """The ``stacklevel``, as seen from who calls this, of the code that has called the library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        level, frame = level + 1, frame.f_back
    return level
