"""A table that is not there: what was meant by its name, as far as can be told.

From what is known already: a wrong name costs one LIST more, to tell the directory of a
catalog's table from one that is no table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from lakevilla.errors import StoreError, TableNotFound
from lakevilla.formats.iceberg.metadata.paths import metadata_directory
from lakevilla.formats.iceberg.metadata.pointer import identifier_of, number_of
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program, list_objects

__all__ = ["missing_table"]

_OFFERED = 3


def missing_table(context: Context, location: str) -> Program[TableNotFound]:
    """The error for a location at which there is no table that LakeVilla can open by itself."""
    metadata = f"{metadata_directory(location)}/v<N>.metadata.json"
    kept = yield from _kept_by_a_catalog(location)
    message = (
        f"there is no table {location}: it is at most a directory that is no table, with neither "
        f"{location}/_delta_log nor {metadata}; {_hint(context, location)}"
    )
    return TableNotFound(kept or message, table=location)


def _kept_by_a_catalog(location: str) -> Program[str | None]:
    """What to do about a directory with metadata files as catalogs call them, ``00000-<uuid>``."""
    directory = metadata_directory(location)
    try:
        listed = yield from list_objects(directory, f"{directory}/0")
    except StoreError:
        return None  # the better message is not worth another error
    found = [info.key for info in listed if number_of(info.key) is not None]
    if not found:
        return None
    return (
        f"there is no table to be opened at {location} itself: it is kept by a catalog "
        f"({max(found)} is its metadata), which alone knows its newest version; connect with "
        "catalogs={...} and open or register it by its name there, "
        "catalog.namespace.table"
    )


def _hint(context: Context, location: str) -> str:
    in_catalogs = [] if context.held is None else list(_in_catalogs(context))
    known = [] if context.held is None else list(_known(context))
    dotted = location.strip("/").replace("/", ".")
    catalog, *rest = dotted.split(".")
    of_lake = {name.partition(".")[0] for name in in_catalogs}
    if rest and catalog in of_lake - set(context.connected):
        return _connect(catalog)
    known += [name for name in in_catalogs if name.partition(".")[0] in context.connected]
    near = _near(location, known)
    hints = [f"did you mean {', '.join(near)}?"] if near else []
    is_dotted = "." in location and "/" not in location
    if is_dotted and len(rest) > 1:
        if context.connected:
            hints.append(f"known catalogs: {', '.join(sorted(context.connected))}")
        else:
            hints.append(_connect(catalog))
    elif is_dotted and not near:
        hints.append(f"a path has slashes: {location.replace('.', '/')}")
    return "; ".join(hints) or (
        "give a path under the root, a registered name or a URI (`tables()` lists the lake's), or "
        "make it by `create_table`"
    )


def _connect(catalog: str) -> str:
    return (
        "a table in a catalog is opened by a lake that is connected to it: "
        f"`lakevilla.connect(..., catalogs={{{catalog!r}: ...}})`"
    )


def _known(context: Context) -> Iterator[str]:
    """Names and paths of the lake's tables, as far as HEAD is at hand."""
    assert context.held is not None
    head = context.held.head
    tables = head.tables.at_hand()
    there = {location for location, state in tables.items() if not state.dropped}
    names = head.names.at_hand()
    yield from (name for name, location in names.items() if location in there)
    yield from sorted(
        location for location in there - {*names.values()} if not tables[location].catalog
    )


def _in_catalogs(context: Context) -> Iterator[str]:
    """The lake's tables that catalogs keep, by their names there."""
    assert context.held is not None
    for state in context.held.head.tables.at_hand().values():
        if state.catalog and not state.dropped:
            catalog, identifier = identifier_of(state.catalog)
            yield ".".join((catalog, *identifier))


def _near(location: str, known: Sequence[str]) -> list[str]:
    """What is called so but for slashes and dots, or ends so, or is spelt nearly so."""
    plain = {name: name.strip("/").replace("/", ".").lower() for name in known}
    wanted = location.strip("/").replace("/", ".").lower()
    same = [name for name, text in plain.items() if text == wanted]
    ending = [name for name, text in plain.items() if text.endswith(f".{wanted}")]
    texts = {text: name for name, text in reversed(plain.items())}
    texts |= {text.rpartition(".")[2]: name for text, name in texts.items()} | texts
    spelt = [texts[text] for text in get_close_matches(wanted, list(texts), _OFFERED, 0.75)]
    return (same or ending or list(dict.fromkeys(spelt)))[:_OFFERED]
