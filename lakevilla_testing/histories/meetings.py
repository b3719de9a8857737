"""Meetings: transactions of two kinds at work on one table at the same time."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from lakevilla.transaction.state.values import Feature
from lakevilla_testing.histories.attempts import World

#: A client without LakeVilla.
FOREIGN = "foreign"

#: Two kinds, in the order of their names: ``("NONE", "R|I")``.
Meeting = tuple[str, str]


def meeting(one: Feature | None, other: Feature | None) -> Meeting:
    """Return the meeting of two clients with these features; None is a client without LakeVilla."""
    first, second = sorted((_name(one), _name(other)))
    return first, second


def meetings(world: World) -> Counter[Meeting]:
    """Count the pairs of transactions that had a table open at the same time.

    Only transactions that have committed in the end count: one that lost may have overlapped with
    others only briefly.
    """
    present: list[tuple[Feature | None, set[str], float, float]] = [
        (None, {table}, began, ended) for table, began, ended in world.foreign_acts
    ]
    present += [
        (a.core.options.features, set(a.core.work.tables), a.record.invoked, a.record.completed)
        for a in world.attempts
        if a.status == "committed" and a.record.completed is not None
    ]
    return Counter(
        meeting(one, other)
        for (one, here, began, ended), (other, there, later, end) in combinations(present, 2)
        if here & there and began < end and later < ended
    )


def _name(features: Feature | None) -> str:
    return FOREIGN if features is None else features.name or "NONE"
