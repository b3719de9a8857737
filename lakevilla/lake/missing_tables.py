"""The error for a table that does not exist, with hints on what the name may mean.

A wrong name costs two more LISTs: of the directory that would contain the table, for tables that
are not in the lake yet; and of the location's ``metadata/``, to distinguish a catalog's table from
a directory that is no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from lakevilla.errors import LakeVillaError, TableNotFound
from lakevilla.formats.iceberg.metadata.definition import metadata_directory, metadata_version
from lakevilla.formats.iceberg.metadata.file import name_in_catalog, number_of
from lakevilla.global_log.head import NameMap, TableMap
from lakevilla.global_log.refs import clone_around
from lakevilla.lake.context import Context
from lakevilla.sql.catalog import PREFIX, SCHEMAS, is_reserved
from lakevilla.store.effects import Program, list_names

_OFFERED = 3
#: Extensions of files: SQL turns ``rows.csv`` into ``rows/csv``, whose last part is one of these.
_FILES = frozenset({"parquet", "csv", "tsv", "json", "ndjson", "arrow", "xlsx"})
LISTED = "`tables()` lists the lake's tables, `discover()` those that are not in it yet"


def missing_table(context: Context, location: str) -> Program[TableNotFound]:
    """Return the error for a location without a table that LakeVilla can open by itself.

    Raises
    ------
    InvalidOperation
        There is an Iceberg table, and the package that opens it is not installed.
    """
    if is_reserved(location):
        return TableNotFound(
            f"{location} is a catalog table, which is no table of the lake: only a SELECT "
            "reads it, as in `lake.sql`",
            table=location,
        )
    parent, _, own = location.rpartition("/")
    files = yield from names_in(metadata_directory(location))
    if any(metadata_version(name) is not None for name in files):
        context.formats["iceberg"]  # raises if the package is not installed
    kept = kept_by_a_catalog(context, location, files)
    if kept is not None:
        return TableNotFound(f"table {location} does not exist by itself: {kept}")
    in_parent = yield from names_in(parent)
    message = f"table {location} does not exist"
    if not parent:
        wrong = yield from wrong_root(context, in_parent)
        if wrong is not None:
            return TableNotFound(f"{message}: {wrong}", table=location)
        if _has_no_tables(context) and all(name[0] in "_." for name in in_parent):
            return TableNotFound(
                f"{message}: the lake at {context.root} has no tables; check the root, or make "
                "one by `create_table`",
                table=location,
            )
    if f"{own}/" in in_parent:
        message += ": its directory has neither a Delta log nor Iceberg metadata"
    elif own in in_parent:
        return TableNotFound(
            f"{message}: it is a file, and a table is a directory: read the file, and make a table "
            "of its rows by create_table",
            table=location,
        )
    siblings = [
        f"{parent}/{name[:-1]}" if parent else name[:-1]
        for name in in_parent
        if name.endswith("/") and name[0] not in "_." and name != f"{own}/"
    ]
    hint = _hint(context, location, siblings)
    if own in _FILES and hint == LISTED:
        hint = "a file is no table: make one of its rows by `create_table`"
    return TableNotFound(f"{message}; {hint}", table=location)


def wrong_root(context: Context, names: Sequence[str]) -> Program[str | None]:
    """Return what is wrong with a root that contains ``names``, with a hint; None if it is fine."""
    parent, _, own = context.root.rpartition("/")
    is_table = "_delta_log/" in names
    if "metadata/" in names and not is_table:
        # A schema may be called metadata, too.
        files = yield from names_in("metadata")
        is_table = any(name.endswith(".metadata.json") for name in files)
    if is_table:
        return (
            f"the root {context.root} is a table itself, and a lake is a directory of tables: "
            f"connect to {parent}, where this is table {own}"
        )
    if names or context.held is not None or parent.endswith("/") or not parent:
        return None
    siblings = yield from names_in(parent)
    if f"{own}/" in siblings:
        return None
    if own in siblings:
        return f"the root {context.root} is a file, and a lake is a directory: check the root"
    near = get_close_matches(own, [name[:-1] for name in siblings if name.endswith("/")], _OFFERED)
    hint = f"did you mean {', '.join(f'{parent}/{name}' for name in near)}?" if near else ""
    return f"nothing is at the root {context.root}; {hint or 'check the root'}"


def _has_no_tables(context: Context) -> bool:
    """Return whether the lake has no tables, like one that was made at a mistyped root."""
    return context.held is not None and not context.held.head.tables


def names_in(directory: str) -> Program[Sequence[str]]:
    try:
        return (yield from list_names(directory))
    except LakeVillaError:
        return ()  # a hint is not worth another error


def kept_by_a_catalog(context: Context, location: str, files: Sequence[str]) -> str | None:
    """Return advice if metadata files have names that catalogs give, ``00000-<uuid>``; or None."""
    found = [name for name in files if number_of(name) is not None]
    if not found:
        return None
    newest = f"{metadata_directory(location)}/{max(found)}"
    connect = "connect with catalogs={...} and open or register it by its name there, catalog"
    if context.connected:
        # Only a walk through the catalogs would show which of their tables it is.
        connect = "open or register it by its name there, " + " or ".join(sorted(context.connected))
    return (
        f"it is kept by a catalog ({newest} is its metadata), and only the catalog knows "
        f"its newest version; {connect}.namespace.table"
    )


def catalog_hint(context: Context, name: str) -> str | None:
    """Return a hint for a name with enough dots to mean a catalog's table; else None."""
    catalog, *rest = name.split(".")
    if len(rest) < 2 or "/" in name:
        return None
    if context.connected:
        return f"known catalogs: {', '.join(sorted(context.connected))}"
    return _connect(catalog)


def _hint(context: Context, location: str, siblings: Sequence[str]) -> str:
    clone = _clone_around(context, location)
    if clone is not None:
        return (
            f"clone {clone!r} shows a table of its source there, if there is one, and it has no "
            "log and no versions before its first write"
        )
    in_catalogs = [] if context.held is None else list(_in_catalogs(context))
    known = [] if context.held is None else list(_known(context))
    if location in known:
        return "a table was given this name since the transaction began: run it again"
    catalog, *rest = location.strip("/").replace("/", ".").split(".")
    of_lake = {name.partition(".")[0] for name in in_catalogs}
    if rest and catalog in of_lake - set(context.connected):
        return _connect(catalog)
    known += [name for name in in_catalogs if name.partition(".")[0] in context.connected]
    noted = set() if context.held is None else set(context.held.head.tables.cached())
    catalog_tables = [PREFIX + kind for kind in SCHEMAS] if location.startswith(PREFIX) else []
    locations = [place for place in siblings if place not in noted]
    near = near_names(location, [*known, *catalog_tables, *locations])
    return f"did you mean {', '.join(near)}? {LISTED}" if near else LISTED


def _clone_around(context: Context, location: str) -> str | None:
    """Return the clone at or above a location, as far as HEAD is cached."""
    refs = {} if context.held is None else context.held.head.refs.cached()
    return clone_around((name for name, one in refs.items() if one.kind == "clone"), location)


def _connect(catalog: str) -> str:
    return (
        "a table in a catalog is opened by a lake that is connected to it: "
        f"`lakevilla.connect(..., catalogs={{{catalog!r}: ...}})`"
    )


def _known(context: Context) -> Iterator[str]:
    """Yield names and paths of the lake's tables, as far as HEAD is cached."""
    assert context.held is not None
    head = context.held.head
    tables = head.tables.cached()
    there = {location for location, state in tables.items() if not state.dropped}
    names = head.names.cached()
    yield from (name for name, location in names.items() if location in there)
    yield from sorted(
        location for location in there - {*names.values()} if not tables[location].catalog
    )


def _in_catalogs(context: Context) -> Iterator[str]:
    """Yield the names in catalogs of the lake's tables that catalogs keep."""
    assert context.held is not None
    for state in context.held.head.tables.cached().values():
        if state.catalog and not state.dropped:
            yield name_in_catalog(state.catalog)


def near_tables(location: str, tables: TableMap, names: NameMap) -> str:
    """Return the end of a message with the cached live tables that a wrong name may mean, or ""."""
    live = {place for place, state in tables.cached().items() if not state.dropped}
    called = [name for name, place in names.cached().items() if place in live]
    near = near_names(location, [*called, *sorted(live)])
    return f"; did you mean {', '.join(near)}?" if near else ""


def near_names(location: str, known: Sequence[str]) -> list[str]:
    """Return known names near to a location: equal, else ending in it, else similar.

    Dots count as slashes, and letters are compared without their case.
    """
    plain = {name: name.strip("/").replace("/", ".").lower() for name in known}
    wanted = location.strip("/").replace("/", ".").lower()
    same = [name for name, text in plain.items() if text == wanted]
    ending = [name for name, text in plain.items() if text.endswith(f".{wanted}")]
    texts = {text: name for name, text in reversed(plain.items())}
    texts |= {text.rpartition(".")[2]: name for text, name in texts.items()} | texts
    spelt = [texts[text] for text in get_close_matches(wanted, list(texts), _OFFERED, 0.75)]
    return (same or ending or list(dict.fromkeys(spelt)))[:_OFFERED]
