"""External catalogs of a client, and the names that they give to tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.formats.iceberg.metadata.definition import place_of
from lakevilla.formats.iceberg.metadata.file import decode_pointer, name_in_catalog, pointer_key
from lakevilla.global_log.head import TableState, shown_names
from lakevilla.global_log.repo import load_all
from lakevilla.lake.context import Context
from lakevilla.lake.tables.discovery import FoundTable
from lakevilla.results import Report
from lakevilla.settings import Settings, shown
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_names, parallel, some_at_once
from lakevilla.store.location import normalise_location

# -------------------- catalogs
#
# Catalogs of a lake: the one to which a table's name belongs, and the table's location.


if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: By name, pyiceberg catalogs, or the properties from which ``load_catalog`` makes one.
Catalogs = Mapping[str, "Catalog | Mapping[str, str]"]


def check_catalogs(catalogs: object) -> Catalogs:
    """Return the ``catalogs`` that a caller gives, checked. Raises ``InvalidOperation``."""
    if catalogs is None:
        return {}
    if not isinstance(catalogs, Mapping):
        raise InvalidOperation(
            "catalogs maps names to pyiceberg catalogs, or to their properties: "
            'catalogs={"prod": {"type": "rest", "uri": "https://..."}}'
        )
    for name, catalog in catalogs.items():
        if not isinstance(name, str) or not name or "." in name or "/" in name:
            raise InvalidOperation(
                f"catalog name {shown(name)} must be a string without '.' and '/', since tables "
                "are named catalog.namespace.table"
            )
        if not isinstance(catalog, Mapping) and not hasattr(catalog, "load_table"):
            raise InvalidOperation(
                f"catalog {name!r} is no pyiceberg catalog and no mapping of properties, but a "
                f"{type(catalog).__name__}"
            )
    return {name: _texts(given) for name, given in catalogs.items()}


def _texts(given: Catalog | Mapping[str, str]) -> Catalog | Mapping[str, str]:
    """Return properties as text, with local paths made absolute for other processes."""
    if not isinstance(given, Mapping):
        return given
    return {
        key: os.path.abspath(value) if isinstance(value, os.PathLike) else value
        for key, value in given.items()
    }


def mount_catalogs(
    store: LakeStore, catalogs: Catalogs, settings: Settings, admit: Callable[[str], object]
) -> None:
    """Have the store read and write the pointers of these catalogs' tables in the catalogs.

    ``admit`` is called with each directory that a catalog names for a table or its metadata.
    """
    if not catalogs:
        return
    try:
        from lakevilla.formats.iceberg.catalog.store import CatalogStore
    except ImportError as error:
        raise InvalidOperation(
            f"catalogs need a package that is not installed ({error}): "
            "`pip install lakevilla[iceberg]`"
        ) from error
    seconds = settings.request_timeout_seconds
    store.mount(CatalogStore(catalogs, timeout_seconds=seconds, admit=admit))


def pickled(catalogs: Catalogs) -> dict[str, dict[str, Any]]:
    """Return the catalogs as properties, from which another process can load them."""
    return {
        name: dict(given) if isinstance(given, Mapping) else _properties(given)
        for name, given in catalogs.items()
    }


def _properties(catalog: Catalog) -> dict[str, Any]:
    kind = type(catalog)
    return {**catalog.properties, "py-catalog-impl": f"{kind.__module__}.{kind.__qualname__}"}


def pointer_of(catalogs: Catalogs, table: object) -> str | None:
    """Return the pointer of the table that ``catalog.namespace.table`` names; None for other names.

    Statements spell the name with slashes, so a catalog hides a directory of the same name.
    """
    if not isinstance(table, str):
        return None
    catalog, *identifier = table.split("/" if "/" in table else ".")
    if catalog not in catalogs or len(identifier) < 2 or not all(identifier):
        return None
    return pointer_key(catalog, identifier)


def locate(context: Context, pointer: str, table: str) -> Program[str]:
    """Return the location of a catalog's table, and note its pointer for later requests.

    Raises ``TableNotFound``.
    """
    outcome = yield from get(pointer)
    if not isinstance(outcome, Found):
        raise TableNotFound(
            f"table {table} does not exist in its catalog: LakeVilla creates no tables in "
            "catalogs, so create it by the catalog",
            table=table,
        )
    uri = place_of(decode_pointer(outcome.body).location).uri
    location = normalise_location(context.root, uri)
    context.catalogs[location] = pointer
    return location


def discover_in_catalogs(context: Context) -> Program[list[FoundTable]]:
    """Return the tables of connected catalogs that are not in the lake, by name.

    A namespace costs two requests of the catalog, a table that is not in the lake two, and the
    reading of its metadata. A catalog or namespace that can't be listed is ``refused`` itself.
    """
    if not context.connected:
        return []
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_all(head)
    tables = {} if head is None else head.tables.cached()
    in_lake = {state.catalog for state in tables.values() if state.catalog and not state.dropped}
    pointers: list[str] = []
    refused: list[FoundTable] = []
    level = [pointer_key(name, ()) for name in sorted(context.connected)]
    while level:
        listed = yield from parallel([_listed(place) for place in level])
        refused += [one for one in listed if isinstance(one, FoundTable)]
        below = [place for one in listed if not isinstance(one, FoundTable) for place in one]
        level = [place.removesuffix("/") for place in below if place.endswith("/")]
        pointers += [place for place in below if not place.endswith("/")]
    new = sorted(set(pointers) - in_lake)
    found = yield from some_at_once(_found_in_catalog(context, pointer) for pointer in new)
    return [*refused, *(one for one in found if one is not None)]


def _listed(place: str) -> Program[list[str] | FoundTable]:
    """Return the pointers below a namespace, those of namespaces with a slash behind them."""
    try:
        names = yield from list_names(place)
    except LakeVillaError as error:
        return FoundTable("", "refused", error.message, error.kind, "iceberg", catalog=place)
    return [f"{place}/{name}" for name in names]


def _found_in_catalog(context: Context, pointer: str) -> Program[FoundTable | None]:
    """Return a table of a catalog; None if it was dropped there since it was listed."""
    name = name_in_catalog(pointer)
    location = ""
    try:
        location = yield from locate(context, pointer, name)
        snapshot = yield from context.formats.open(location, location, "iceberg", pointer)
    except TableNotFound:
        return None
    except LakeVillaError as error:
        return FoundTable(
            location, "refused", error.message, error.kind, "iceberg", catalog=pointer
        )
    reason = f"is in a catalog: `register('{name}')` adds it"
    return FoundTable(location, "in_catalog", reason, "", "iceberg", snapshot, catalog=pointer)


# -------------------- catalog names
#
# Names of catalogs' tables in messages: a message gives the catalog's name, not the location.


def catalog_names(context: Context) -> dict[str, str]:
    """Return the names of the catalogs' tables that this process knows, by location."""
    names = {location: name_in_catalog(key) for location, key in context.catalogs.items()}
    if context.held is not None:
        shown = shown_names(context.held.head)
        tables = context.held.head.tables.cached()
        names |= {
            location: name for location, name in shown.items() if _is_catalogs(tables.get(location))
        }
    return names


def _is_catalogs(state: TableState | None) -> bool:
    return state is not None and bool(state.catalog)


def name_in_error(error: LakeVillaError, names: Mapping[str, str]) -> None:
    """Replace a table's location in an error by its name in a catalog."""
    for location, name in names.items():
        if error.table in (location, name):
            error.message = _renamed(error.message, location, name)
            error.args = (error.message,)
            error.table = name
            return


def named_report(report: Report, names: Mapping[str, str]) -> Report:
    """Return a report whose findings name the catalogs' tables by their names in the catalogs."""
    findings = tuple(
        replace(
            one,
            table=names[one.table],
            message=_renamed(one.message, one.table, names[one.table]),
        )
        if one.table is not None and one.table in names
        else one
        for one in report.findings
    )
    return replace(report, findings=findings)


def _renamed(message: str, location: str, name: str) -> str:
    whole = rf"\btable ('?){re.escape(location)}\1(?![\w/.-])"
    return re.sub(whole, lambda found: f"table {found[1]}{name}{found[1]}", message)
