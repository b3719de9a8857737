"""Cleaning up after those who will never come back (design, section 8).

HEAD moves first: ``floor`` and ``aborted`` fence whoever might still write.
Only then is anything deleted, and only what had been listed before and belongs
to a fenced transaction: a create or a replacement that was under way is
refused, and what was created after the listing is not looked at (hazards 19, 20).

How old anything is tells the store's own time (``store_time``), not this client's clock; where
nothing is deleted (``dry_run``), nothing is written to ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import Head
from lakevilla.global_log.recent_heads import keep_recent, too_old
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context, Event
from lakevilla.lake.newer import refuse_newer_logs, refuse_older_head
from lakevilla.lake.tables.drop_data import clean_emptied
from lakevilla.maintenance.gc.fence import fence, settle_keys
from lakevilla.maintenance.gc.garbage import garbage
from lakevilla.maintenance.gc.listing import Listing, look
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program, delete, parallel


def gc(context: Context, *, dry_run: bool = False) -> Program[Report]:
    """Fence what is too old, then delete what it left, and history past its retention."""
    held = yield from context.head()
    if held is None:
        return Report(True)
    context.refuse_foreign_root()
    if not dry_run:
        context.refuse_unconfirmed("gc")
    yield from load_tables(held.head)
    signs = yield from refuse_older_head(context, "gc")
    listed = yield from look(context, held.head, dry_run=dry_run)
    yield from refuse_newer_logs(context, held.head, context.tails.values())
    listed.leave_alone(signs.doubtful())
    if not (dry_run or listed.in_doubt):
        yield from keep_recent(held.head)
    damaged = yield from settle_keys(context, held.head, listed.keys, dry_run=dry_run)
    head = yield from fence(context, held.head, listed, dry_run=dry_run)
    yield from load_tables(head)
    first, last = yield from garbage(context, head, listed, dry_run=dry_run)
    doomed = [*first, *last]
    now_ms = int(listed.now * 1000)
    emptied = yield from clean_emptied(context, head, now_ms, dry_run=dry_run)
    if not dry_run:
        yield from parallel([delete(key) for key in [*first, *too_old(listed.recent)]])
        yield from parallel([delete(key) for key in last])
        context.notify(Event("gc", None, f"gc deleted {len(doomed)} objects"))
    word = "would be" if dry_run else "was"
    findings = [
        *(Finding("note", "garbage", f"{key} {word} deleted", key=key) for key in doomed),
        *emptied,
        *_unreserved(held.head, head, word),
        *_left_alone(listed, damaged),
    ]
    return Report(not (listed.unreadable or damaged or listed.history), tuple(findings))


def _unreserved(old: Head, head: Head, word: str) -> list[Finding]:
    return [
        Finding(
            "note",
            "reserved",
            f"the reservation of transaction {one.txn} {word} taken out of HEAD",
            txn_id=one.txn,
        )
        for one in old.reserved
        if one not in head.reserved
    ]


def _left_alone(listed: Listing, damaged: Mapping[str, LakeVillaError]) -> list[Finding]:
    """What could not be read, and so was not touched."""
    findings = [
        Finding("warning", error.kind, f"table {name} was left alone: {error.message}", table=name)
        for name, error in listed.unreadable.items()
    ]
    findings += [
        Finding("warning", "elsewhere", f"table {name} was left alone: {why}", table=name)
        for name, why in listed.held_back.items()
    ]
    findings += [
        Finding("warning", error.kind, f"an idempotency key was left alone: {error.message}", key=k)
        for k, error in damaged.items()
    ]
    if (history := listed.history) is not None:
        message = f"the lake's history was left alone: {history.message}"
        findings.append(Finding("error", history.kind, message))
    return findings
