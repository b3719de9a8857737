"""Tables that clones show, and the locations outside the root at which the lake may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blake3 import blake3

from lakevilla.errors import CorruptObject
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.leaves import HIGHEST
from lakevilla.global_log.refs import RefEntry, is_at
from lakevilla.global_log.repo import claim_of, fetch_leaves, lake_key, load_refs, load_tables
from lakevilla.ids import uuid_of
from lakevilla.lake.context import Context
from lakevilla.store.backends.reach import Reach
from lakevilla.store.effects import Program

# -------------------- mounts
#
# Clones: directories that show the tables of another directory, in the state of a base.
#
# A clone is a mount. If HEAD's own map has no entry for a table at or below a clone's name, the
# table is the one below ``source`` in the clone's base; of several clones, the one with the longest
# name counts (docs/design/0039-clones.md). An entry in HEAD's map, even a tombstone, overrides
# clones.


@dataclass(frozen=True, slots=True)
class Mount:
    """A table that a clone shows: the clone, and the table's place in the clone's base.

    ``state`` is the table's entry in that base, or, if a clone shows it there, in that clone's
    base.
    """

    name: str
    entry: RefEntry
    base: Base
    source: str
    state: TableState


def clones_of(head: Head | None) -> dict[str, RefEntry]:
    """Return the clones of a HEAD, by name; its refs must be cached."""
    if head is None or not head.refs:
        return {}
    return {name: one for name, one in head.refs.items() if one.kind == "clone"}


def load_clones(head: Head | None) -> Program[dict[str, RefEntry]]:
    """Return the clones of a HEAD, by name; fetch its refs if they are not cached."""
    yield from load_refs(head)
    return clones_of(head)


def mounted_id(entry_id: str, location: str) -> str:
    """Return the id that a table which a clone shows gets by its first write.

    The id is computed from the clone and the location, so that all clients use the same id.
    """
    return uuid_of(blake3(f"{entry_id} {location}".encode()).digest(length=16))


def mount_of(head: Head | None, location: str) -> Program[Mount | None]:
    """Return the clone that shows a table at a location; None if HEAD's map has an entry there."""
    if head is None or not head.refs:
        return None
    yield from load_tables(head, [location])
    if head.tables.get(location) is not None:
        return None
    return (yield from mounted_at(head, location))


def is_there_in(head: Head, location: str) -> Program[bool]:
    """Return whether a HEAD has a table at a location, or a clone shows one."""
    yield from load_tables(head, [location])
    state = head.tables.get(location)
    if state is None:
        return (yield from mount_of(head, location)) is not None
    return not state.dropped


def mounted_at(head: Head, location: str) -> Program[Mount | None]:
    """Return the clone that shows a table at a location, without a check of HEAD's own map."""
    locations = places_of(location)
    yield from load_refs(head, locations)
    refs = ((place, head.refs.get(place)) for place in locations)
    known = {place: ref for place, ref in refs if ref is not None and ref.kind == "clone"}
    return (yield from mount_in(known, location))


def mount_in(clones: Mapping[str, RefEntry], location: str) -> Program[Mount | None]:
    """Return the one of ``clones`` that shows a table at a location, or None."""
    for name in places_of(location):
        entry = clones.get(name)
        if entry is None:
            continue
        base = yield from load_base(entry.base)
        source = f"{entry.source}{location[len(name) :]}"
        state = yield from state_in(base, source)
        return None if state is None else Mount(name, entry, base, source, state)
    return None


def state_in(base: Base, location: str) -> Program[TableState | None]:
    """Return a table's entry in a base or, if a clone shows the table there, in the clone's base.

    None if the base has no such table.
    """
    if not base.covers(location):
        return None
    yield from load_base_tables(base, [location])
    state = base.tables.get(location)
    if state is not None:
        return None if state.dropped else state
    found = yield from mount_in(base.clones, location)
    return None if found is None else found.state


def places_of(location: str) -> list[str]:
    """Return a location and the directories above it, the longest first."""
    locations = [location]
    while "/" in locations[-1]:
        locations.append(locations[-1].rpartition("/")[0])
    return locations


def mounted_between(head: Head | None, first: str, last: str) -> Program[dict[str, TableState]]:
    """Return the tables that clones show from ``first`` to before ``last``, sorted by location.

    Tables that have an entry in HEAD's own map are left out.
    """
    clones = yield from load_clones(head)
    if head is None or not clones:
        return {}
    found = yield from _between(clones, first, last)
    yield from load_tables(head, found)
    return {
        location: state for location, state in found.items() if head.tables.get(location) is None
    }


def mounted_below(head: Head | None, place: str) -> Program[dict[str, TableState]]:
    """Return the tables that clones show below a directory."""
    return (yield from mounted_between(head, f"{place}/", f"{place}/{HIGHEST}"))


def mounted(head: Head | None) -> Program[dict[str, TableState]]:
    """Return all tables that clones show."""
    return (yield from mounted_between(head, "", HIGHEST))


def shown_by(clones: Mapping[str, RefEntry]) -> Program[dict[str, TableState]]:
    """Return all tables that ``clones`` show, without a check of any map of tables."""
    return (yield from _between(clones, "", HIGHEST))


def mounted_in_base(base: Base) -> Program[dict[str, TableState]]:
    """Return the tables that the clones of a base show and that its own map does not have."""
    found = yield from _between(base.clones, "", HIGHEST)
    yield from load_base_tables(base, found)
    return {
        location: state
        for location, state in found.items()
        if base.covers(location) and base.tables.get(location) is None
    }


def tables_below(base: Base, source: str) -> Program[dict[str, TableState]]:
    """Return the tables of a base at a location and below it."""
    until = f"{source}/{HIGHEST}"
    yield from fetch_leaves(base.tables, base.tables.missing_between(source, until))
    own = base.tables.within(source, until)
    found = {location: state for location, state in own.items() if is_at(location, source)}
    nested: Mapping[str, TableState] = {}
    if base.clones:
        nested = yield from _between(base.clones, source, until)
    shown = {location: state for location, state in nested.items() if is_at(location, source)}
    return {location: one for location, one in {**shown, **found}.items() if not one.dropped}


def _between(
    clones: Mapping[str, RefEntry], first: str, last: str
) -> Program[dict[str, TableState]]:
    found: dict[str, TableState] = {}
    for name, entry in clones.items():
        if name >= last or f"{name}/{HIGHEST}" < first:
            continue
        base = yield from load_base(entry.base)
        there = yield from tables_below(base, entry.source)
        moved = {f"{name}{location[len(entry.source) :]}": one for location, one in there.items()}
        for location, state in moved.items():
            if first <= location < last:
                found[location] = _as_made(state, mounted_id(entry.id, location))
    return dict(sorted(found.items()))


def _as_made(state: TableState, table_id: str) -> TableState:
    """Return the entry of HEAD for a table that a clone shows, as its first write would make it."""
    return TableState(
        table_id, -1, format=state.format, size=state.size, view=state.view, needs=state.needs
    )


# -------------------- elsewhere
#
# Locations outside the root that the lake itself names: its tables, and the sources of clones.
#
# A client that may replace HEAD decides where the lake's tables are
# (docs/design/0057-files-elsewhere.md).


#: The end of the key of a table's claim.
_CLAIM = lake_key("")


def find_place(context: Context, reach: Reach, key: str) -> Program[None]:
    """Admit the location of an object if it is in a table of the lake, or in a clone's source.

    This is called only for an object whose location was not admitted yet: it may cost a read of
    HEAD's leaves.
    """
    if key.endswith(_CLAIM):
        # A claim may be read anywhere: it counts only if it names this lake.
        reach.admit(key)
        return
    try:
        held = context.held or (yield from context.head())
    except CorruptObject:
        held = None  # HEAD was lost: only the claims of its tables are left
    if held is None:
        for location in reach.around(key):
            claim = yield from claim_of(location)
            if claim is not None and claim.root == context.root:
                reach.admit(location)
        return
    locations = reach.around(key)
    yield from load_tables(held.head, locations)
    admit_known(reach, held.head, locations)
    if not reach.holds(key):
        yield from _admit_clones(reach, (yield from load_clones(held.head)))


def known_places(context: Context, reach: Reach) -> tuple[str, ...]:
    """Return the admitted locations outside the root, for a worker process, without a request."""
    if context.held is not None:
        admit_known(reach, context.held.head)
    return reach.elsewhere


def admit_known(reach: Reach, head: Head, locations: list[str] | None = None) -> None:
    """Admit the tables of a HEAD outside the root, as far as HEAD is cached."""
    known = head.tables.cached()
    for location in known if locations is None else locations:
        if known.get(location) is not None:
            reach.admit(location)
    admit_sources(reach, head.refs.cached())


def admit_sources(reach: Reach, clones: Mapping[str, RefEntry]) -> None:
    """Admit the sources of clones: the tables that a clone shows name files in its source."""
    for entry in clones.values():
        reach.admit(entry.source)


def _admit_clones(reach: Reach, clones: Mapping[str, RefEntry]) -> Program[None]:
    admit_sources(reach, clones)
    for entry in clones.values():
        base = yield from load_base(entry.base)
        yield from _admit_clones(reach, base.clones)
