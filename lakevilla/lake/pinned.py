"""A table's state as a note that another process can open: which log version, and what is over it.

Log entries and commit objects never change, so the note stands for the same rows for as
long as their files are kept, whatever is committed meanwhile.
"""

from __future__ import annotations

import msgspec

from lakevilla.errors import CorruptObject, VersionNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.global_log.head import PendingRef
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import open_tail, probe, snapshot_at
from lakevilla.lake.view import View, pending_parts
from lakevilla.store.effects import Program


class Pin(msgspec.Struct, frozen=True):
    """What tells a state: log[..logged], and the decided commits laid over it."""

    location: str
    table_id: str
    logged: int
    overlay: tuple[PendingRef, ...] = ()


def pin(view: View) -> Pin:
    """The note for a state without changes of a transaction's own."""
    placement = view.placement
    return Pin(view.location, view.snapshot.table_id, placement.logged, placement.overlay)


def pinned(context: Context, pin: Pin) -> Program[TableSnapshot]:
    """The state that a note tells of.

    Raises
    ------
    VersionNotFound
        It is not kept any more, or another table is there by now.
    """
    snapshot = yield from _opened(context, pin)
    if snapshot.table_id != pin.table_id:
        # What is cached may be the log of a table that was there before.
        context.tails.pop(pin.location, None)
        snapshot = yield from _opened(context, pin)
    if snapshot.table_id != pin.table_id:
        raise VersionNotFound(
            f"table {pin.location} was created again since it was loaded: load it again",
            table=pin.location,
        )
    return snapshot


def _opened(context: Context, pin: Pin) -> Program[TableSnapshot]:
    tail = yield from open_tail(context, pin.location, missing_ok=True)
    if tail.tip < pin.logged:
        tail = yield from probe(context, tail)
    if tail.tip < pin.logged:
        raise VersionNotFound(
            f"the log of table {pin.location} ends at version {tail.tip}, and it was loaded at "
            f"version {pin.logged}: load it again",
            table=pin.location,
        )
    snapshot = yield from snapshot_at(context, tail, pin.logged)
    try:
        parts = yield from pending_parts(context, pin.location, pin.overlay)
    except CorruptObject as error:
        # Published long ago, so gc has let go of it: the log tells it, and not this state.
        raise VersionNotFound(
            f"table {pin.location} is not kept as it was loaded: {error.message}; load it again",
            table=pin.location,
        ) from error
    for part in parts:
        snapshot = snapshot.apply(part.change)
    return snapshot
