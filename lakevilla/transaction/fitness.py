"""Fitness: which pending commits are not in the log yet, and which no longer fit it."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.global_log.commits import TablePart
from lakevilla.global_log.head import Head, PendingRef, application_id
from lakevilla.store.effects import Program
from lakevilla.transaction.context import Context
from lakevilla.transaction.tail import Tail, entry_at
from lakevilla.transaction.view import breaks, changes_contract, is_another

__all__ = ["first_unfit", "is_lost", "unpublished"]


def is_lost(context: Context, head: Head, location: str, tail: Tail) -> Program[bool]:
    """Whether the table that HEAD means is gone: its log was deleted, or made anew."""
    state = head.tables[location]
    if state.published < 0:
        return False
    return tail.tip < 0 or (yield from is_another(context, state, tail))


def unpublished(head: Head, location: str, tail: Tail) -> tuple[PendingRef, ...]:
    """The commits of the table that HEAD decided and the known log does not hold."""
    state = head.tables.get(location)
    if state is None:
        return ()
    if tail.tip < 0:
        return state.pending
    done = tail.snapshot.application_version(application_id(head))
    return tuple(ref for ref in state.pending if done is None or ref.sequence > done)


def first_unfit(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: Sequence[PendingRef],
    parts: Sequence[TablePart],
) -> Program[int | None]:
    """The first of ``waiting`` that a foreign entry has made unfit, if any.

    A commit is unfit from the first entry on that removes one of its files or
    breaks its metadata; a later entry that brings the file back (RESTORE)
    changes nothing (hazard 31), so entries are looked at one by one.
    """
    if (yield from is_lost(context, head, location, tail)):
        return 0
    application = application_id(head)
    for index, (ref, part) in enumerate(zip(waiting, parts, strict=True)):
        for version in range(ref.base + 1, tail.tip + 1):
            entry = yield from entry_at(context, tail, version)
            if entry is None:
                gone = yield from tail.snapshot.missing(
                    [removed.ref for removed in part.change.removes]
                )
                if gone:
                    return index
                break
            if application in entry.applications:
                continue
            if breaks(entry, (yield from changes_contract(context, tail, entry)), part):
                return index
    return None
