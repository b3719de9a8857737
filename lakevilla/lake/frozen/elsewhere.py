"""Places beyond the root that the lake itself has named: its tables, and what clones show.

Who may replace HEAD says where the lake's tables are (docs/design/0057-files-elsewhere.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.errors import CorruptObject
from lakevilla.global_log.bases import load_base
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import claim_of, lake_key, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.mounts import load_clones
from lakevilla.store.backends.reach import Reach
from lakevilla.store.effects import Program

#: The end of the key of a table's claim.
_CLAIM = lake_key("")


def find_place(context: Context, reach: Reach, key: str) -> Program[None]:
    """Admit the place of an object that lies in a table of the lake, or in a clone's source.

    Asked only for an object that is not read as things are known: it costs what HEAD's leaves do.
    """
    if key.endswith(_CLAIM):
        # What is read of it is believed only where it names this lake.
        reach.admit(key)
        return
    try:
        held = context.held or (yield from context.head())
    except CorruptObject:
        held = None  # it was lost: what its tables say of themselves is all that is left
    if held is None:
        for place in reach.around(key):
            claim = yield from claim_of(place)
            if claim is not None and claim.root == context.root:
                reach.admit(place)
        return
    places = reach.around(key)
    yield from load_tables(held.head, places)
    admit_known(reach, held.head, places)
    if not reach.holds(key):
        yield from _admit_clones(reach, (yield from load_clones(held.head)))


def places_at_hand(context: Context, reach: Reach) -> tuple[str, ...]:
    """What is read beyond the root, as far as it is known without a request: for a worker."""
    if context.held is not None:
        admit_known(reach, context.held.head)
    return reach.elsewhere


def admit_known(reach: Reach, head: Head, places: list[str] | None = None) -> None:
    """Admit the tables that a HEAD has beyond the root, as far as it is at hand."""
    known = head.tables.at_hand()
    for place in known if places is None else places:
        if known.get(place) is not None:
            reach.admit(place)
    admit_sources(reach, head.refs.at_hand())


def admit_sources(reach: Reach, clones: Mapping[str, RefEntry]) -> None:
    """Admit what clones show, of which their tables name files."""
    for entry in clones.values():
        reach.admit(entry.source)


def _admit_clones(reach: Reach, clones: Mapping[str, RefEntry]) -> Program[None]:
    admit_sources(reach, clones)
    for entry in clones.values():
        base = yield from load_base(entry.base)
        yield from _admit_clones(reach, base.clones)
