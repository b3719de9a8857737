"""Discover tables by their directories, describe the known state, and check names in SQL."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from weakref import ref

from lakevilla.api.client.catalogs import discover_in_catalogs
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import TableNames, resolve
from lakevilla.display import HtmlList, table_html
from lakevilla.errors import InvalidOperation, LakeVillaError, LakeVillaWarning, TableNotFound
from lakevilla.formats.files import TableSize
from lakevilla.formats.iceberg.metadata.file import name_in_catalog
from lakevilla.global_log.head import NOWHERE, Head, TableState, shown_tables
from lakevilla.global_log.repo import glance, load_all, load_tables
from lakevilla.lake.context import Event
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.tables import discovery, registration
from lakevilla.lake.tables.discovery import FoundTable, all_shown
from lakevilla.lake.tables.dotted_names import is_in_lake, path_of
from lakevilla.results import DiscoveredTable
from lakevilla.store.location import is_external, normalise_location, root_location

# -------------------- discovering
#
# Tables under the root that are not in the lake yet: their descriptions and registration.


#: The tables, with their lakes, for which this process has shown a warning.
_WARNED_OF: set[tuple[str, str]] = set()
#: The number of keys that a message lists.
_SHOWN = 5
_LIBRARY = f"{Path(__file__).parents[1]}/"


def discover_tables(client: LakeClient) -> list[DiscoveredTable]:
    """Return the tables under the root that the lake does not have."""
    with client.measured("discover"):
        found = client.run(discovery.discover(client.context))
        in_catalogs = client.run(discover_in_catalogs(client.context))
    # A directory below the root that a catalog keeps is listed by its name there.
    named = {one.location for one in in_catalogs}
    found = [one for one in found if one.location not in named]
    return HtmlList(_discovered(client, one) for one in (*found, *in_catalogs))


def register_named(client: LakeClient, given: Mapping[str, str]) -> list[str]:
    """Register tables, by their names and locations."""
    client.ensure_safe_store()
    found = {key: client.resolve({}, uri, None) for key, uri in given.items()}
    # A table given under the dotted form of its own path is registered under the path.
    locations = {
        location if given[key] == key and location == path_of(key) else key: location
        for key, location in found.items()
    }
    # The paths that each name could mean if it were not registered. This refuses a name that can't
    # be a path; ``register`` refuses a name that is the path of another table.
    own = {
        key: [resolve(client.root, {}, path) for path in (key, path_of(key)) if path is not None]
        for key in locations
    }
    client.run(registration.register(client.context, locations, own))
    return list(locations)


def register_all(client: LakeClient) -> list[str]:
    """Register the tables that ``discover_tables`` finds, and report those that can't be."""
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
    """Return a caller's description of a table that is stored under the root."""
    return DiscoveredTable(
        name=name_in_catalog(found.catalog) if found.catalog else found.location,
        uri=client.uri_of(found.location) if found.location else "",
        format=found.format,
        version=None if found.snapshot is None else found.snapshot.version,
        state=found.state,
        reason=found.reason,
    )


def leave_out(
    client: LakeClient, name: str, message: str, reason: str, *, quiet: bool = False
) -> None:
    """Report that a request leaves out a table, and why."""
    message = f"table {name} is left out: {message}"
    if not quiet:
        _warn_once(client.root, name, message)
    client.notify(Event("left_out", None, message, {"table": name, "reason": reason}))


def tell_left(client: LakeClient, table: str, keys: Sequence[str]) -> None:
    """Report the objects that remain in a directory after its table's data was deleted."""
    if not keys:
        return
    shown = ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" * (len(keys) > _SHOWN))
    message = f"table {table}: {shown} was left in its directory, as it belongs to no table"
    warnings.warn(message, LakeVillaWarning, stacklevel=_callers_level())
    client.notify(Event("left_out", None, message, {"table": table, "keys": list(keys)}))


def tell_missing(client: LakeClient) -> None:
    """Warn that a root on this machine is no directory: the lake has no tables, or is elsewhere."""
    place = root_location(client.root)
    if place.scheme != "file" or os.path.isdir(place.uri):
        return
    _warn_once(
        client.root,
        "",
        f"there is no directory {client.root}: check the root, or make the lake's first table",
    )


def _warn_once(root: str, table: str, message: str) -> None:
    """Show a warning, once per table and process, for users who have set up no log."""
    if (root, table) not in _WARNED_OF:
        _WARNED_OF.add((root, table))
        warnings.warn(message, LakeVillaWarning, stacklevel=_callers_level())


def _callers_level() -> int:
    """Return the ``stacklevel`` with which a warning points to the caller of the library."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARY):
        level, frame = level + 1, frame.f_back
    return level


# -------------------- glance
#
# A summary of the lake for shells and notebooks, from cached state and at most one GET.
#
# It binds no transaction, and no decision depends on it.


def summary(head: Head | None) -> str:
    """Return the number of a state and of its tables, as text; empty for None."""
    if head is None:
        return ""
    count = sum(not table.dropped for table in head.tables.cached().values())
    more = " and more" if head.tables.missing() else ""
    return f", version {head.sequence}, {count} table{'' if count == 1 else 's'}{more}"


def place_of(client: LakeClient) -> str:
    """Return, as text, the ref to which a client is bound, and the summary of the known state."""
    return f"{ref_of(client)}{summary(known_head(client))}"


def ref_of(client: LakeClient) -> str:
    """Return, as text for a repr, the ref to which a client is bound; empty for the lake itself."""
    if client.branch is not None:
        return f" on branch {client.branch!r}"
    return "" if client.at is None else f" at {client.at.base.kind} {client.at.name!r}"


def known_head(client: LakeClient) -> Head | None:
    """Return HEAD as this client has last read it; None if it has not read HEAD."""
    client = client.newest()
    if client.at is not None:
        return client.at.head
    return None if client.context.held is None else client.context.held.head


def tables_html(caption: str, client: LakeClient, head: Head | None) -> str:
    """Return a state's tables as HTML, as far as their leaves are cached."""
    if head is None:
        return table_html(caption, (), ())
    rows = [
        (
            name,
            head.tables[location].format,
            _version(client, location, head.tables[location]),
            "guarded" if head.tables[location].guarded else "",
            client.uri_of(location),
        )
        for name, location in shown_tables(head).items()
    ]
    return table_html(caption, ("table", "format", "version", "", "uri"), rows)


def _version(client: LakeClient, location: str, table: TableState) -> str:
    """Return a table's log version as text, with "≥" where it is only a lower bound.

    Foreign commits may be in the log before the place of the pending commits.
    """
    version = table.published + len(table.pending)
    tail = client.context.tails.get(location)
    exact = not table.pending or (tail is not None and tail.tip == version)
    return str(version) if exact else f"≥ {version}"


def table_names(client: LakeClient) -> TableNames:
    """Return the present names of the lake's tables, in the order of a listing."""
    head = client.head()
    if head is None:
        tell_missing(client)
    else:
        client.run(load_all(head))
    listing = TableNames([] if head is None else client.run(all_shown(head)))
    client.listing = ref(listing)
    return listing


def table_count(client: LakeClient) -> int:
    """Return the number of tables that the lake has now.

    ``list(lake)`` creates an iterator and then requests the length as a hint. An iterator from
    which nothing was taken yet gives its length, which saves a request.
    """
    begun = None if client.listing is None else client.listing()
    unused = None if begun is None else begun.unused
    return table_names(client).unused or 0 if unused is None else unused


def has_table(client: LakeClient, name: object) -> bool:
    """Return whether the lake has a table of that name, in any spelling of the name."""
    if not isinstance(name, str):
        return False
    try:
        location = client.location_of(name)
    except (InvalidOperation, TableNotFound):
        return False
    head = known_head(client)
    if head is None:
        return False
    client.run(load_tables(head, [location]))
    state = head.tables.get(location)
    if state is None:
        return client.run(mount_of(head, location)) is not None
    return not state.dropped


def lake_html(client: LakeClient) -> str:
    """Return the lake's present state as HTML, by one GET; if that fails, the known state."""
    note, client = "", client.newest()
    if client.at is not None:
        return tables_html(f"lake {client.root}{place_of(client)}", client, client.at.head)
    try:
        # A user waits for this display, so an unreachable store is reported without retries.
        held = client.runner.without_retries().run(glance(client.context.held))
        head = None if held is None else held.head
        note = summary(head) or ", nothing was committed yet"
    except LakeVillaError as error:
        head = known_head(client)
        note = f"{summary(head)}; cannot be read now: {error.message}"
    return tables_html(f"lake {client.root}{ref_of(client)}{note}", client, head)


def known_size(client: LakeClient, uri: str, version: int | None) -> TableSize | None:
    """Return the size of a table at a version, if it is cached."""
    prefix = f"{client.root.rstrip('/')}/"
    tail = client.context.tails.get(uri.removeprefix(prefix))
    if tail is None or version is None or version not in tail.snapshots:
        return None
    return tail.snapshots[version].known_size()


# -------------------- sql names
#
# Names of tables in statements: SQL reads and writes only tables of the lake.


def refuse_places(client: LakeClient, table: str, known: Container[str] = ()) -> None:
    """Refuse a table's name in a statement if it is a place outside of the root.

    A table of the lake that is stored outside of the root may be named as ``tables`` lists it.
    ``known``: locations that the transaction's caller has already opened in Python.

    Raises
    ------
    InvalidOperation
    """
    if client.settings.sql_uris:
        return
    for spelled in filter(None, (table, path_of(table))):
        try:
            location = normalise_location(client.root, spelled)
        except InvalidOperation:
            continue  # not a place: the look-up of the name raises the error
        if (
            is_external(location)
            and location not in known
            and not _is_the_lakes(client, table, location)
        ):
            raise InvalidOperation(
                f"{table!r} is a path or a URI, and SQL reads and writes only tables of the lake: "
                f"give it a name by lake.register('name', {table!r}), or connect with "
                "settings=lakevilla.Settings(sql_uris=True) if all users that write SQL here may "
                "read and write everything that this process can",
                table=table,
            )


def _is_the_lakes(client: LakeClient, table: str, location: str) -> bool:
    """Return whether the lake has a table with that name or at that location."""
    head = client.head()
    if client.names(head, table).get(table, NOWHERE) != NOWHERE:
        return True
    client.run(load_tables(head, [location]))
    return is_in_lake(head, location)
