"""Collect garbage: fence old writers, then delete."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.global_log.bases import with_copies
from lakevilla.global_log.head import HEAD_KEY, Head, TableState, find_commit, successor, with_refs
from lakevilla.global_log.head_log import keep_recent, too_old
from lakevilla.global_log.keys import has_versions, load_key_object, put_key
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import (
    commits_since,
    commits_until,
    load_head,
    load_refs,
    load_tables,
    make_room,
)
from lakevilla.ids import started_at, uuid7
from lakevilla.lake.absorb import Absorbed, absorb, moved_to
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.newer import refuse_newer_logs, refuse_older_head
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tables.drop_data import clean_emptied
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.maintenance.gc.garbage import garbage
from lakevilla.maintenance.gc.listing import Listing, look
from lakevilla.results import Finding, Report
from lakevilla.store.base import ObjectInfo
from lakevilla.store.effects import Program, delete, parallel, some_at_once
from lakevilla.store.location import at_home, home_of, key_at

# -------------------- gc
#
# Clean up after clients that will never return (design, section 8).
#
# HEAD advances first: its ``floor`` and ``aborted`` fence every old transaction that might still
# write. Only then are objects deleted, and only objects that were listed before and belong to a
# fenced transaction: so a create or a replacement in flight is refused, and an object that was
# created after the listing is never deleted (hazards 19, 20).
#
# The age of an object is by the store's clock (``maintenance.gc.listing``), not by this client's.
# With ``dry_run`` nothing is deleted, and no object is written to query the store's time.


#: The number of idempotency keys that are read in one round.
_KEYS_AT_ONCE = 64


def gc(context: Context, *, dry_run: bool = False) -> Program[Report]:
    """Fence old transactions, then delete what they have left, and history past its retention."""
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
    first, *later = yield from garbage(context, head, listed, dry_run=dry_run)
    deleted = [key for keys in (first, *later) for key in keys]
    now_ms = int(listed.now * 1000)
    emptied = yield from clean_emptied(context, head, now_ms, dry_run=dry_run)
    if not dry_run:
        yield from parallel([delete(key) for key in [*first, *too_old(listed.recent)]])
        for keys in later:
            yield from parallel([delete(key) for key in keys])
        context.notify(Event("gc", None, f"gc deleted {len(deleted)} objects"))
    word = "would be" if dry_run else "was"
    findings = [
        *(Finding("note", "garbage", f"{key} {word} deleted", key=key) for key in deleted),
        *emptied,
        *_unreserved(held.head, head, word),
        *_left_alone(listed, damaged),
    ]
    trouble = listed.unreadable or damaged or listed.history or listed.unknown
    return Report(not trouble, tuple(findings))


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
    """Return findings on objects that were left unchanged because they could not be read."""
    findings = [
        Finding("warning", error.kind, f"table {name} was skipped: {error.message}", table=name)
        for name, error in listed.unreadable.items()
    ]
    findings += [
        Finding("warning", "elsewhere", f"table {name} was skipped: {why}", table=name)
        for name, why in listed.held_back.items()
    ]
    findings += [
        Finding("warning", error.kind, f"an idempotency key was skipped: {error.message}", key=k)
        for k, error in damaged.items()
    ]
    findings += [
        Finding(
            "warning",
            error.kind,
            f"the ended branch with the directory {home_of(epoch)} was skipped, with the files of "
            f"tables that were made on it, as these tables are not known: {error.message}; or "
            "delete its HEAD, and gc deletes the rest of the directory and leaves these files",
            key=getattr(error, "key", None) or key_at(epoch, HEAD_KEY),
        )
        for epoch, error in listed.unknown.items()
    ]
    if (history := listed.history) is not None:
        message = f"the lake's history was skipped: {history.message}"
        findings.append(Finding("error", history.kind, message))
    return findings


# -------------------- fence
#
# Advance HEAD past old transactions, before gc deletes any of their objects.


def fence(context: Context, old: Head, listed: Listing, *, dry_run: bool) -> Program[Head]:
    """Advance HEAD past old transactions; with ``dry_run``, only return the resulting HEAD."""
    if dry_run:
        moved = yield from _raised(context, old, listed, dry_run=True)
        return old if moved is None else moved
    return (
        yield from replace_until_stored(
            context, lambda head: _raised(context, head, listed, dry_run=False)
        )
    )


def _raised(
    context: Context, head: Head, listed: Listing, *, dry_run: bool
) -> Program[Head | None]:
    """Return HEAD with a higher floor, and without pending commits that are published.

    Reservations of transactions that have ended or are fenced are removed, too. The start of the
    history moves only if all pages can be read. Return None if nothing changes and no page is
    listed that HEAD does not name.
    """
    yield from load_tables(head)
    floor = _floor(context, head, listed)
    history_start, forgotten = head.history_start, head.forgotten
    if listed.history is None:
        history_start, forgotten = yield from _kept_history(context, head, listed)
    absorbed, tables = yield from _published(context, head, listed.unreadable)
    aborted = tuple(txn for txn in head.aborted if txn > floor)
    reserved = tuple(
        one
        for one in head.reserved
        if not (one.txn in listed.ended or one.txn <= floor or one.txn in aborted)
    )
    reached = yield from _reached(head)
    if (
        floor == head.floor
        and history_start == head.history_start
        and not tables
        and aborted == head.aborted
        and reserved == head.reserved
        and not reached
        and not listed.has_stray_pages
    ):
        return None
    page = None if dry_run else (yield from make_room(head, context.ids))
    new = successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=tables,
        sizes=absorbed.sizes,
        floor=floor,
        aborted=aborted,
        history_start=history_start,
        forgotten=forgotten,
        page=page,
        reserved=reserved,
    )
    new = with_refs(new, reached) if reached else new
    return new if dry_run else (yield from with_copies(new))


def _reached(head: Head) -> Program[dict[str, RefEntry | None]]:
    """Return new entries for branches whose own HEADs have advanced since their entries noted them.

    So every client that opens a branch can see if its HEAD was set back to one before this gc.
    """
    yield from load_refs(head)
    branches = {name: one for name, one in head.refs.items() if one.kind == "branch"}
    numbers = yield from parallel([_number_of(entry) for entry in branches.values()])
    seen = zip(branches.items(), numbers, strict=True)
    return {
        name: entry.having_reached(number)
        for (name, entry), number in seen
        if number > entry.reached
    }


def _number_of(entry: RefEntry) -> Program[int]:
    """Return the number of a branch's own HEAD; 0 if it is lost or damaged."""
    try:
        held = yield from at_home(entry.epoch, load_head())
    except (CorruptObject, UnsupportedFormat):
        return 0
    return 0 if held is None else held.head.replacement


def _floor(context: Context, head: Head, listed: Listing) -> str:
    """Return the new floor: the id up to which transactions are too old to commit.

    The floor stays below the ids of transactions that may have committed in a HEAD that was lost.
    """
    oldest = int((listed.now - context.settings.max_age_seconds) * 1000)
    oldest = min([oldest, *(int(started_at(txn) * 1000) - 1 for txn in listed.in_doubt)])
    return max(head.floor, uuid7(max(oldest, 0), 0)) if oldest > 0 else head.floor


def _kept_history(context: Context, head: Head, listed: Listing) -> Program[tuple[int, str]]:
    """Return the commit after which the kept history begins, and the last forgotten id.

    A commit's time is by its writer's clock, which may be slow. So its object must be old enough by
    the store's clock as well, since it was stored just before the commit; an object that was stored
    after the listing counts as young.
    """
    kept_since = listed.now - context.settings.outcome_retention_seconds
    start, forgotten = head.history_start, head.forgotten
    waiting = {ref.sequence for state in head.tables.values() for ref in state.pending}
    for commit in (yield from commits_since(head, start)) or ():
        # Stop at the first commit to be kept; the history then begins after the one before it.
        written = listed.written.get((commit.txn, commit.hash), 0.0)
        is_kept = max(commit.timestamp_ms / 1000, written) >= kept_since
        if is_kept or commit.sequence in waiting or commit.sequence > listed.sequence:
            break
        start = commit.sequence
        if commit.kind == "transaction":
            forgotten = max(forgotten, commit.newest_txn)
    return start, forgotten


def _published(
    context: Context, head: Head, left_alone: Container[str]
) -> Program[tuple[Absorbed, dict[str, TableState]]]:
    """Return tables whose logs are ahead of HEAD, and the foreign commits absorbed from them."""
    live = {
        location: state
        for location, state in head.tables.items()
        if not state.dropped and location not in left_alone
    }
    tails = yield from some_at_once(_newest(context, location) for location in live)
    absorbed = yield from absorb(context, head, dict(zip(live, tails, strict=True)))
    tables = {
        location: moved_to(live[location], placement)
        for location, placement in absorbed.placements.items()
    }
    changed = {
        location: state
        for location, state in tables.items()
        if state != live[location] or location in absorbed.sizes
    }
    return absorbed, changed


def _newest(context: Context, location: str) -> Program[Tail]:
    tail = yield from open_tail(context, location, missing_ok=True)
    return (yield from probe(context, tail))


def settle_keys(
    context: Context, head: Head, keys: Iterable[ObjectInfo], *, dry_run: bool
) -> Program[dict[str, LakeVillaError]]:
    """Record in key objects with versions that their last use has committed, as the history shows.

    A pair of an application and its version is kept for ever, so this must be recorded before the
    history that proves it is deleted. Return the keys that can't be read, with the errors.
    """
    damaged: dict[str, LakeVillaError] = {}
    names = [info.key for info in keys if has_versions(info.key)]
    for first in range(0, len(names), _KEYS_AT_ONCE):
        some = names[first : first + _KEYS_AT_ONCE]
        errors = yield from parallel([_settle(context, head, name, dry_run) for name in some])
        found = zip(some, errors, strict=True)
        damaged.update({name: error for name, error in found if error is not None})
    return damaged


def _settle(
    context: Context, head: Head, name: str, dry_run: bool
) -> Program[LakeVillaError | None]:
    """Record in one key object that its last use has committed; return why it can't be read."""
    try:
        held = yield from load_key_object(name)
    except (CorruptObject, UnsupportedFormat) as error:
        return error
    if held is None:
        return None
    record = held.record
    if dry_run or record.version is None or record.committed == record.version:
        return None
    try:
        commits = yield from commits_until(head, record.sequence, record.txn)
    except (CorruptObject, UnsupportedFormat):
        return None  # no history is deleted while a page of it can't be read
    if commits is not None and find_commit(commits, record.txn) is not None:
        settled = msgspec.structs.replace(
            record, nonce=context.ids.nonce(), committed=record.version
        )
        # Refused if a new use of the key has read the old record; that use records the same.
        yield from put_key(name, held, settled)
    return None
