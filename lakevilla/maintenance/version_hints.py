"""Hints: whether other clients' readers are pointed at a table's newest version.

A client writes the hint after the version, which counts without it: one that dies between the
two, or whose write comes late, leaves a hint that is behind. LakeVilla does not mind; readers
that believe a hint show an old state until the next commit.
"""

from __future__ import annotations

from collections.abc import Collection

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import is_lost
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tail import Tail
from lakevilla.results import Finding
from lakevilla.store.effects import Program, parallel

#: How often a hint is written, while others commit or the store refuses.
_ATTEMPTS = 3


def announce_tables(
    context: Context, head: Head, leave_out: Collection[str | None]
) -> Program[list[Finding]]:
    """Point the hints of the lake's tables at their newest versions, where they are behind."""
    locations = [
        location
        for location, state in head.tables.items()
        # Delta's readers have no hint, nor have a catalog's: they need not even be opened.
        if state.format == "iceberg"
        and not (state.catalog or state.dropped or location in leave_out)
    ]
    found = yield from parallel([_announce(context, head, location) for location in locations])
    return [finding for some in found for finding in some]


def report_behind(context: Context, tail: Tail) -> Program[list[Finding]]:
    """What there is to tell of the hint of a table whose newest version is ``tail``'s."""
    if tail.tip < 0 or (yield from context.formats.of(tail.snapshot).is_announced(tail.snapshot)):
        return []
    return [
        Finding(
            "warning",
            "unannounced",
            f"the hint of table {tail.location} does not name version {tail.tip}, the newest, and "
            "some other clients believe it: `lakevilla recover` writes it",
            table=tail.location,
        )
    ]


def _announce(context: Context, head: Head, location: str) -> Program[list[Finding]]:
    """Write the hint until it is not behind the version that is the newest after that.

    Safe beside other writers because the log is looked at once more after each write: either
    nothing is newer than what was written, and whoever commits next announces it himself, after
    this; or something is, and a hint that was set back here is set right here.
    """
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        if (yield from is_lost(context, head, location, tail)):
            return []
        for _ in range(_ATTEMPTS):
            behind = yield from report_behind(context, tail)
            if not behind:
                return []
            yield from context.formats.of(tail.snapshot).announce(tail.snapshot)
            tail = yield from probe(context, tail)
        return (yield from report_behind(context, tail))
    except LakeVillaError as error:
        # Nothing that is decided waits for it; what is wrong with the table the doctor tells.
        return [Finding("warning", error.kind, error.message, table=location)]
