"""Pending commits whose objects are gone: made void, and told (note 19).

What such a commit did can't be read any more, so it can be neither published nor replayed,
and all that is decided behind it waits. Only ``recover`` gives it up, never a writer on its
way: whoever can restore the object gets everything back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakevilla.errors import StoreError, TableNotFound, VersionNotFound
from lakevilla.formats.base import CommitInfo
from lakevilla.global_log.commits import commit_key
from lakevilla.global_log.head import Head, PendingRef
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.fitness import first_unfit, is_lost, unpublished
from lakevilla.lake.publishing.reconcile import decided, reconcile
from lakevilla.lake.table_log import open_tail, opened_again, probe
from lakevilla.lake.tail import Tail
from lakevilla.store.base import Missing, ObjectInfo, Stored
from lakevilla.store.effects import Program, parallel, put
from lakevilla.store.effects import Stat as HeadOf

_MAX_ATTEMPTS = 50


def void_lost(context: Context, head: Head, location: str) -> Program[Head]:
    """Make void what is pending on a table and whose object is gone; the HEAD to go on with.

    Another client may have the object in memory, and be about to publish it. So the log is
    asked first: an entry with which the commit is unfit for all takes the next number. Had
    the commit come before it, it is published, and nothing is lost; else it never will be.
    """
    for _ in range(_MAX_ATTEMPTS):
        yield from load_tables(head, [location])
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)
        lost = yield from _lost(context, waiting)
        if not lost:
            return head
        first = next(i for i, ref in enumerate(waiting) if (ref.txn, ref.hash) in lost)
        made = tail.tip >= 0 and not (yield from is_lost(context, head, location, tail))
        if made and not (yield from _is_unfit(context, head, location, tail, waiting, first, lost)):
            yield from _make_unfit(context, tail, waiting[first].txn)
            continue
        newer = yield from reconcile(context, location, lost=lost)
        if newer is None:
            break
        head = newer
    raise StoreError(
        f"table {location} has a pending commit whose object is gone, and others were always first "
        "to change the table: recover again",
        table=location,
    )


def _lost(context: Context, waiting: Sequence[PendingRef]) -> Program[frozenset[tuple[str, str]]]:
    """Those whose objects are gone.

    An object was stored before HEAD named it, its key is never written twice, and gc deletes
    none that HEAD has as pending: so one that is not there was deleted by somebody else, and
    won't come.
    """
    asked = [ref for ref in waiting if context.known_commit(ref.txn, ref.hash) is None]
    found: list[ObjectInfo | Missing] = yield from parallel(
        [HeadOf(commit_key(ref.txn, ref.hash)) for ref in asked]
    )
    return frozenset(
        (ref.txn, ref.hash)
        for ref, info in zip(asked, found, strict=True)
        if isinstance(info, Missing)
    )


def _is_unfit(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: Sequence[PendingRef],
    first: int,
    lost: Collection[tuple[str, str]],
) -> Program[bool]:
    """Whether an entry makes it unfit whatever it does, so that it is for those who have it."""
    commits = yield from decided(context, head, location, waiting[first : first + 1], lost)
    parts = [commit.tables[location] for commit in commits]
    unfit = yield from first_unfit(context, head, location, tail, waiting[first : first + 1], parts)
    return unfit == 0


def _make_unfit(context: Context, tail: Tail, txn: str) -> Program[None]:
    """Try to put an entry into the log with which nothing fits that was decided before it.

    Whatever becomes of the write, the log tells.
    """
    table_format = context.formats.of(tail.snapshot)
    change = table_format.void_change(tail.snapshot, txn)
    info = CommitInfo("VOID", parameters={"transaction": txn}, nonce=context.ids.nonce())
    try:
        ready = yield from table_format.prepare(tail.snapshot, change, info, context.now_ms())
    except VersionNotFound:
        yield from probe(context, tail)  # what the known tip names is cleaned up
        return
    except TableNotFound:
        yield from opened_again(context, tail)
        return
    outcome = yield from put(ready.key, ready.body, ready.condition)
    if isinstance(outcome, Stored):
        newer = yield from probe(context, tail)
        yield from table_format.announce(newer.snapshot)
