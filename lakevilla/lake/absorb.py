"""Absorb foreign commits that HEAD does not know: give them a place in HEAD's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from lakevilla.formats.sizes import (
    NOTHING,
    UNKNOWN,
    Size,
    counted,
    growth_by_others,
    growth_of,
    size_from,
)
from lakevilla.global_log.head import CommitSummary, Head, TableState, Touch
from lakevilla.global_log.summaries import SUMMARY_BYTES, summarize
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.view import Placement, build_view, place
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The placement of each table, and one ``foreign`` commit for each table with hidden versions.

    ``sizes`` has the sizes of tables whose size HEAD does not know, or whose growth the ``foreign``
    commit does not state; a table is left out if cached objects don't show its size.
    """

    placements: dict[str, Placement]
    commits: list[CommitSummary]
    sizes: dict[str, Size]


def absorb(context: Context, head: Head, tails: Mapping[str, Tail]) -> Program[Absorbed]:
    """Place tables by ``head``; make commits of the log versions that ``head`` does not know.

    Readers that lay hidden versions over HEAD on their own may disagree on their order; from the
    ``foreign`` commits on, all readers see the same order. ``tails`` are the logs against which the
    caller has validated, not the newest that the process knows: a foreign commit that was added
    after the validation must come after the caller's own commit, and publishing checks for that.
    """
    placements: dict[str, Placement] = {}
    commits: list[CommitSummary] = []
    sizes: dict[str, Size] = {}
    for location, tail in tails.items():
        placement = yield from place(context, head, location, tail)
        placements[location] = placement
        known = head.tables.get(location)
        growth = NOTHING
        # Log entries of a table that is not in the lake are part of no version of the lake.
        if known is not None and not known.dropped and placement.hidden:
            sequence = head.sequence + len(commits) + 1
            commit = _foreign(sequence, location, placement.hidden, tail)
            growth = commit.tables[location].growth
            commits.append(commit)
        if known is None or known.size is None or not growth.is_exact:
            size = measured(context, tail, placement)
            if not size.is_unknown:
                sizes[location] = size
    return Absorbed(placements, commits, sizes)


def measured(context: Context, tail: Tail, placement: Placement) -> Size:
    """Return the size of a table in its placement; unknown if cached objects don't show it."""
    snapshot = tail.snapshots.get(placement.logged)
    if snapshot is None:
        return UNKNOWN
    size = size_from(snapshot.known_size())
    for ref in placement.overlay:
        commit = context.known_commit(ref.txn, ref.hash)
        if commit is None or size.is_unknown:
            return UNKNOWN
        size += growth_of(commit.tables[tail.location].change)
    return size


def counted_sizes(
    context: Context, head: Head, tail: Tail, absorbed: Absorbed
) -> Program[dict[str, Size]]:
    """Return the sizes of ``absorbed``; count the table's files if its exact size is not known.

    For callers that read the list of the table's files anyhow.
    """
    state = head.tables[tail.location]
    growth = sum((commit.tables[tail.location].growth for commit in absorbed.commits), NOTHING)
    known = absorbed.sizes.get(tail.location)
    if known is None and state.size is not None:
        known = state.size + growth
    if known is not None and known.is_exact:
        return absorbed.sizes
    view = yield from build_view(context, head, tail.location, tail)
    return {tail.location: counted((yield from view.snapshot.files()))}


def moved_to(state: TableState, placement: Placement) -> TableState:
    """Return HEAD's entry for a table, with the published and pending commits of a placement."""
    return msgspec.structs.replace(state, published=placement.logged, pending=placement.overlay)


def _foreign(sequence: int, location: str, versions: tuple[int, ...], tail: Tail) -> CommitSummary:
    entries = [tail.entries.get(version) for version in versions]
    known = [entry for entry in entries if entry is not None]
    changes = [entry.change for entry in known]
    columns = tail.snapshot.layout.statistics_schema.names
    opaque = len(known) < len(entries)  # an entry was cleaned up: it may have made any change
    grown = UNKNOWN if opaque else sum((growth_by_others(one) for one in changes), NOTHING)
    touch = Touch(
        published=versions[-1],
        adds=opaque or any(entry.change.adds for entry in known),
        removes=opaque or any(entry.change.removes for entry in known),
        metadata=opaque or any(entry.change.defines for entry in known),
        data_change=opaque or any(entry.change.changes_data for entry in known),
        first=versions[0],
        summary=None if opaque else summarize(changes, columns, SUMMARY_BYTES),
        grown=None if grown.is_unknown else grown,
    )
    return CommitSummary(sequence, 0, "foreign", "", "", {location: touch})
