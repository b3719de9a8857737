"""Absorbing: giving foreign commits their one place in HEAD's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from lakevilla.global_log.head import CommitSummary, Head, TableState, Touch
from lakevilla.global_log.summaries import SUMMARY_BYTES, summarize
from lakevilla.lake.context import Context
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import Placement, place
from lakevilla.store.effects import Program


@dataclass(frozen=True, slots=True)
class Absorbed:
    """Where each table stands, and one ``foreign`` commit for each with hidden versions."""

    placements: dict[str, Placement]
    commits: list[CommitSummary]


def absorb(context: Context, head: Head, tails: Mapping[str, Tail]) -> Program[Absorbed]:
    """Place the tables against ``head``; what ``tails`` hold besides becomes foreign commits.

    Readers who lay hidden versions over HEAD for themselves may disagree on
    their order; from this commit on everybody agrees. The tails are the caller's,
    not the newest that the process knows: a foreign commit that came in after he
    validated must stay behind his own, where publishing looks for it.
    """
    placements: dict[str, Placement] = {}
    commits: list[CommitSummary] = []
    for location, tail in tails.items():
        placement = yield from place(context, head, location, tail)
        placements[location] = placement
        if location in head.tables and placement.hidden:
            sequence = head.sequence + len(commits) + 1
            commits.append(_foreign(sequence, location, placement.hidden, tail))
    return Absorbed(placements, commits)


def moved_to(state: TableState, placement: Placement) -> TableState:
    """A table's state in HEAD once it stands where it was placed."""
    return msgspec.structs.replace(state, published=placement.logged, pending=placement.overlay)


def _foreign(sequence: int, location: str, versions: tuple[int, ...], tail: Tail) -> CommitSummary:
    entries = [tail.entries.get(version) for version in versions]
    known = [entry for entry in entries if entry is not None]
    changes = [entry.change for entry in known]
    columns = tail.snapshot.layout.statistics_schema.names
    opaque = len(known) < len(entries)  # cleaned up: it may have done anything
    touch = Touch(
        published=versions[-1],
        adds=opaque or any(entry.change.adds for entry in known),
        removes=opaque or any(entry.change.removes for entry in known),
        metadata=opaque
        or any(
            entry.change.metadata is not None or entry.change.protocol is not None
            for entry in known
        ),
        data_change=opaque or any(entry.change.changes_data for entry in known),
        first=versions[0],
        summary=None if opaque else summarize(changes, columns, SUMMARY_BYTES),
    )
    return CommitSummary(sequence, 0, "foreign", "", "", {location: touch})
