"""Where two states of the lake may differ in what clones show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakevilla.global_log.head import TableState
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.frozen.mounts import places_of, shown_by
from lakevilla.store.effects import Program


def shown_in_one(
    before: Mapping[str, RefEntry], after: Mapping[str, RefEntry]
) -> Program[set[str]]:
    """The places of all tables that only one of two sets of clones shows, or each another one."""
    ids = {name: entry.id for name, entry in before.items()}
    same = {name for name, entry in after.items() if ids.get(name) == entry.id}
    found: set[str] = set()
    for clones in (before, after):
        others = {name: entry for name, entry in clones.items() if name not in same}
        found |= (yield from shown_by(others)).keys()
    return found


def since_version(clones: Mapping[str, RefEntry], version: int) -> dict[str, RefEntry]:
    """Those of some clones that show at a version."""
    return {name: entry for name, entry in clones.items() if entry.since <= version}


def hidden_in_one(
    clones: Iterable[str], was: Mapping[str, TableState], now: Mapping[str, TableState]
) -> set[str]:
    """The places below clones of which only one of two maps of tables has something to say.

    Be it that a table was dropped: where nothing is said the clone shows it.
    """
    names = set(clones)
    if not names:
        return set()
    return {place for place in was.keys() ^ now.keys() if not names.isdisjoint(places_of(place))}
