"""Cleaning up after those who will never come back (design, section 8).

HEAD moves first: ``floor`` and ``aborted`` fence whoever might still write.
Only then is anything deleted, and only what had been listed before and belongs
to a fenced transaction: a create or a replacement that was under way is
refused, and what was created after the listing is not looked at (hazards 19, 20).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from lakevilla.errors import (
    CorruptObject,
    LakeVillaError,
    StoreError,
    UnsupportedFormat,
    VersionNotFound,
)
from lakevilla.global_log.commits import COMMITS_PREFIX
from lakevilla.global_log.head import PAGES_PREFIX, CommitSummary, Head, find_commit, successor
from lakevilla.global_log.keys import KEYS_PREFIX, is_key_object, load_key_object, put_key
from lakevilla.global_log.leaves import LEAVES_PREFIX
from lakevilla.global_log.repo import (
    commits_since,
    load_page,
    load_tables,
    make_room,
    pages_before,
    rules_table,
)
from lakevilla.ids import is_txn_id, uuid7
from lakevilla.lake.absorb import absorb
from lakevilla.lake.context import Context, Event
from lakevilla.lake.file_names import owner_of
from lakevilla.lake.fitness import needed_files, unpublished
from lakevilla.lake.table_log import open_tail, probe, refresh
from lakevilla.lake.view import pending_parts
from lakevilla.maintenance.stale_places import still_there
from lakevilla.maintenance.unreferenced_leaves import fallen_leaves
from lakevilla.markers.marker import Listed, Marker, marker_key, ticket_of
from lakevilla.markers.repo import load_markers
from lakevilla.results import Finding, Report
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, delete, list_objects, parallel
from lakevilla.store.effects import head as object_info
from lakevilla.sublogs.operations import staged_keys
from lakevilla.sublogs.record import TXNS_PREFIX, record_key
from lakevilla.tables.drop_data import clean_emptied
from lakevilla.tables.nested_tables import is_within, nested_tables
from lakevilla.tables.registration import replace_until_stored

__all__ = ["gc"]

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_COMMIT = re.compile(rf"{COMMITS_PREFIX}/({_UUID})-([0-9a-f]+)\.json")
_LEAF = re.compile(rf"{LEAVES_PREFIX}/\d{{20}}-(?:[0-9a-f]+|named)\.json")
_RECORD = re.compile(rf"{TXNS_PREFIX}/({_UUID})(?:\.json|/.*)")


@dataclass(slots=True)
class _Listed:
    """What was there before HEAD moved."""

    data: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    commits: list[tuple[str, str, str]] = field(default_factory=list)
    records: list[tuple[str, str]] = field(default_factory=list)
    keys: list[ObjectInfo] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    markers: dict[str, list[Listed]] = field(default_factory=dict)


def gc(context: Context, *, dry_run: bool = False) -> Program[Report]:
    """Fence what is too old, then delete what it left, and history past its retention."""
    held = yield from context.head()
    if held is None:
        return Report(True)
    context.refuse_foreign_root()
    if not dry_run:
        context.refuse_unconfirmed("gc")
    yield from load_tables(held.head)
    left_alone = yield from _unreadable(context, held.head)
    listed = yield from _list(context, held.head, left_alone)
    markers = yield from _markers(context, listed.markers)
    # Asked for after markers and HEAD were read: whoever is named there has created its
    # record before, so one that has none now has ended.
    holders = {one.txn for _, _, one in markers} | {r.txn for r in held.head.reserved}
    ended = yield from _without_record(holders)
    history = yield from _history_trouble(held.head)
    if history is not None:
        # What a page that can't be read names is not known: all of the history stays.
        listed.pages.clear()
        listed.commits.clear()
    named = set() if history else (yield from _named_pages(held.head))
    # A page that HEAD does not name may be one whose HEAD is on its way: that
    # replacement is refused once HEAD has moved, and only then it is garbage.
    move = any(key not in named for key in listed.pages)

    def raised(old: Head) -> Program[Head | None]:
        whole = history is None
        return _raised(context, old, left_alone, ended, move=move, whole=whole, dry_run=dry_run)

    damaged = yield from _settle_keys(context, held.head, listed.keys, dry_run=dry_run)
    if dry_run:
        head = yield from raised(held.head)
        head = held.head if head is None else head
    else:
        head = yield from replace_until_stored(context, raised)
    yield from load_tables(head)
    still_named = set() if history else (yield from _named_pages(head))
    old_pages = [key for key in listed.pages if key not in still_named]
    # Without its pages, the commits in HEAD: fewer of the others' leftovers are known as such.
    kept = head.commits if history else (yield from commits_since(head, head.history_start))
    if kept is None:  # another gc is at work: whose they are is for that one to tell
        kept = head.commits
        listed.commits.clear()
    doomed: list[str] = []
    for location, files in listed.data.items():
        doomed.extend((yield from _orphans(context, head, location, files)))
    doomed.extend(_old_commits(head, kept, listed.commits))
    sources = yield from _sources(context, head)
    # Where a pending commit can't be read, what it needs may be any of them.
    for key, txn in listed.records if sources is not None else ():
        over = head.is_fenced(txn) or find_commit(kept, txn) is not None
        if over and key not in (sources or ()):
            doomed.append(key)
    doomed.extend(old_pages)
    doomed.extend((yield from fallen_leaves(context, head, listed.leaves, dry_run=dry_run)))
    ended |= {commit.txn for commit in kept if commit.kind == "transaction"}
    doomed.extend((yield from _void_markers(head, markers, ended)))
    emptied = yield from clean_emptied(context, head, dry_run=dry_run)
    if not dry_run:
        yield from parallel([delete(key) for key in doomed])
        context.notify(Event("gc", None, f"gc deleted {len(doomed)} objects"))
    word = "would be deleted" if dry_run else "was deleted"
    findings = [Finding("note", "garbage", f"{key} {word}", key=key) for key in doomed]
    findings += emptied
    findings += [
        Finding(
            "note",
            "reserved",
            f"the reservation of transaction {one.txn} {'would be' if dry_run else 'was'} taken "
            "out of HEAD",
            txn_id=one.txn,
        )
        for one in held.head.reserved
        if one not in head.reserved
    ]
    findings += [
        Finding("warning", error.kind, f"table {name} was left alone: {error.message}", table=name)
        for name, error in left_alone.items()
    ]
    findings += [
        Finding("warning", error.kind, f"an idempotency key was left alone: {error.message}", key=k)
        for k, error in damaged.items()
    ]
    if history is not None:
        told = f"the lake's history was left alone: {history.message}"
        findings.append(Finding("error", history.kind, told))
    ok = not (left_alone or damaged or history)
    return Report(ok, tuple(findings))


def _unreadable(context: Context, head: Head) -> Program[dict[str, LakeVillaError]]:
    """Tables that can't be read: one of them must not keep the lake from being cleaned."""
    errors = yield from parallel([_trouble(context, head, location) for location in head.tables])
    found = zip(head.tables, errors, strict=True)
    return {location: error for location, error in found if error is not None}


def _trouble(context: Context, head: Head, location: str) -> Program[LakeVillaError | None]:
    """Why a table's log, what is pending, or whose a dropped one is, can't be read."""
    state = head.tables[location]
    try:
        if state.dropped:
            yield from rules_table(location, head)
        else:
            yield from refresh(context, location)
        yield from pending_parts(context, location, state.pending)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error
    return None


def _history_trouble(head: Head) -> Program[LakeVillaError | None]:
    try:
        yield from pages_before(head)
    except StoreError:
        raise
    except VersionNotFound:
        return None  # another gc has let go of it meanwhile
    except LakeVillaError as error:
        return error
    return None


def _list(context: Context, head: Head, left_alone: Container[str]) -> Program[_Listed]:
    listed = _Listed()
    locations = []
    for location, state in head.tables.items():
        # One that was let go may be another lake's by now, whose HEAD alone knows its files.
        if location in left_alone:
            continue
        if not state.dropped or (yield from rules_table(location, head)):
            locations.append(location)
    results = yield from parallel(
        [
            list_objects(COMMITS_PREFIX),
            list_objects(TXNS_PREFIX),
            list_objects(KEYS_PREFIX),
            list_objects(PAGES_PREFIX),
            list_objects(LEAVES_PREFIX),
            *[list_objects(location) for location in locations],
        ]
    )
    for info in results[0]:
        if (found := _COMMIT.fullmatch(info.key)) is not None:
            listed.commits.append((info.key, found[1], found[2]))
    for info in results[1]:
        if (found := _RECORD.fullmatch(info.key)) is not None:
            listed.records.append((info.key, found[1]))
    listed.keys = list(results[2])
    listed.pages = [info.key for info in results[3]]
    listed.leaves = [info.key for info in results[4] if _LEAF.fullmatch(info.key)]
    for location, objects in zip(locations, results[5:], strict=True):
        files = []
        nested = nested_tables(location, [info.key for info in objects], head)
        for info in objects:
            if is_within(info.key, nested):
                continue  # another table's: only its own log tells whether it is needed
            path = info.key.removeprefix(f"{location}/")
            owner = owner_of(path)
            # Those of log-entry committers can't be fenced and are VACUUM's alone.
            if owner is not None and owner[0] == "h":
                files.append((path, owner[1]))
            number = ticket_of(path)
            if number is not None and info.key == marker_key(location, number):
                listed.markers.setdefault(location, []).append(Listed(number, info.token))
        listed.data[location] = files
    return listed


def _markers(
    context: Context, listed: Mapping[str, list[Listed]]
) -> Program[list[tuple[str, Listed, Marker]]]:
    """The markers of the tables. Those that can't be read are for whoever waits for them."""
    loaded = yield from parallel(
        [load_markers(table, some, context.known_markers()) for table, some in listed.items()]
    )
    return [
        (table, one, marker)
        for table, some in zip(listed, loaded, strict=True)
        for one, marker in some
        if isinstance(marker, Marker)
    ]


def _without_record(txns: Collection[str]) -> Program[set[str]]:
    asked = sorted(txn for txn in txns if is_txn_id(txn))
    infos = yield from parallel([object_info(record_key(txn)) for txn in asked])
    return {txn for txn, info in zip(asked, infos, strict=True) if isinstance(info, Missing)}


def _void_markers(
    head: Head, markers: Iterable[tuple[str, Listed, Marker]], ended: Container[str]
) -> Program[list[str]]:
    """Markers of transactions that can't commit any more, or have.

    They are listed once more: a number that was freed since may be another's by now.
    """
    doomed: dict[str, list[Listed]] = {}
    for table, listed, marker in markers:
        if marker.txn in ended or head.is_fenced(marker.txn):
            doomed.setdefault(table, []).append(listed)
    left = yield from parallel([still_there(table, some) for table, some in doomed.items()])
    return [
        marker_key(table, number)
        for table, numbers in zip(doomed, left, strict=True)
        for number in numbers
    ]


def _raised(
    context: Context,
    head: Head,
    left_alone: Container[str],
    ended: Container[str],
    *,
    move: bool,
    whole: bool,
    dry_run: bool,
) -> Program[Head | None]:
    """HEAD with the floor past what is too old, and without what is published from ``pending``.

    The history begins where it did unless it is ``whole``: all pages can be read.
    Without the reservations of those that have ``ended``, or are fenced, too.
    None if that is HEAD as it is, unless it must ``move``.
    """
    yield from load_tables(head)
    now = context.clock.now()
    oldest = int((now - context.settings.max_age_seconds) * 1000)
    floor = max(head.floor, uuid7(max(oldest, 0), 0)) if oldest > 0 else head.floor
    kept_since = (now - context.settings.outcome_retention_seconds) * 1000
    history_start, forgotten = head.history_start, head.forgotten
    waiting = {ref.sequence for state in head.tables.values() for ref in state.pending}
    old = (yield from commits_since(head, history_start)) if whole else ()
    for commit in old or ():
        # The first commit that is kept: the history begins after the one before it.
        if commit.timestamp_ms >= kept_since or commit.sequence in waiting:
            break
        history_start = commit.sequence
        if commit.kind == "transaction":
            forgotten = max(forgotten, commit.txn)
    live = {
        location: state
        for location, state in head.tables.items()
        if not state.dropped and location not in left_alone
    }
    tails = yield from parallel(
        [open_tail(context, location, missing_ok=True) for location in live]
    )
    tails = yield from parallel([probe(context, tail) for tail in tails])
    absorbed = yield from absorb(context, head, dict(zip(live, tails, strict=True)))
    tables = {
        location: msgspec.structs.replace(
            live[location], published=placement.logged, pending=placement.overlay
        )
        for location, placement in absorbed.placements.items()
    }
    tables = {location: state for location, state in tables.items() if state != live[location]}
    aborted = tuple(txn for txn in head.aborted if txn > floor)
    reserved = tuple(
        one
        for one in head.reserved
        if not (one.txn in ended or one.txn <= floor or one.txn in aborted)
    )
    if (
        floor == head.floor
        and history_start == head.history_start
        and not tables
        and aborted == head.aborted
        and reserved == head.reserved
        and not move
    ):
        return None
    page = None if dry_run else (yield from make_room(head, context.ids))
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=tables,
        floor=floor,
        aborted=aborted,
        history_start=history_start,
        forgotten=forgotten,
        page=page,
        reserved=reserved,
    )


def _orphans(
    context: Context, head: Head, location: str, files: Collection[tuple[str, str]]
) -> Program[list[str]]:
    """Files of fenced transactions that no entry of the log, and nothing pending, names."""
    # A table may have come into HEAD, inside of this one's directory, since the files were listed.
    nested = nested_tables(location, (), head)
    candidates = {
        path
        for path, txn in files
        if head.is_fenced(txn) and not is_within(f"{location}/{path}", nested)
    }
    if not candidates:
        return []
    tail = yield from open_tail(context, location, missing_ok=True)
    tail = yield from probe(context, tail)
    # Who publishes what is pending stores manifests first, in the name of the last transaction:
    # they may be on their way. Once it is published that number is taken. A dropped table keeps
    # its pending commits for ever: the log tells which of them are published.
    waiting = {ref.txn for ref in unpublished(head, location, tail)}
    candidates -= {path for path, txn in files if path.endswith(".avro") and txn in waiting}
    named: set[str] = set()
    if tail.tip >= 0:
        live = yield from tail.snapshot.files()
        named.update(live["path"].to_pylist())
        named.update((yield from context.formats.of(tail.snapshot).named_in_log(tail.snapshot)))
    state = head.tables[location]
    named |= yield from needed_files(context, location, state.pending)
    return [f"{location}/{path}" for path in sorted(candidates - named)]


def _sources(context: Context, head: Head) -> Program[set[str] | None]:
    """The sources of pending merges: a foreign change may yet ask for a replay (hazard 25).

    None if a pending commit can't be read.
    """
    keys: set[str] = set()
    for state in head.tables.values():
        for ref in state.pending:
            try:
                commit = yield from context.commit_object(ref.txn, ref.hash)
            except (CorruptObject, UnsupportedFormat):
                return None
            keys.update(key for operation in commit.operations for key in staged_keys(operation))
    return keys


def _old_commits(
    head: Head, kept: tuple[CommitSummary, ...], listed: Iterable[tuple[str, str, str]]
) -> list[str]:
    """Commit objects of fenced ids that neither the history nor ``pending`` names."""
    named = {(commit.txn, commit.hash) for commit in kept}
    named |= {(ref.txn, ref.hash) for state in head.tables.values() for ref in state.pending}
    return [
        key for key, txn, digest in listed if head.is_fenced(txn) and (txn, digest) not in named
    ]


def _named_pages(head: Head) -> Program[set[str]]:
    """The pages that a HEAD reaches within the history that it keeps.

    Those that another gc has let go of since are named by nobody any more.
    """
    keys = set()
    ref = head.page
    while ref is not None and ref.last_sequence > head.history_start:
        try:
            page = yield from load_page(ref)
        except VersionNotFound:
            break
        keys.add(ref.key)
        ref = page.previous
    return keys


def _settle_keys(
    context: Context, head: Head, keys: Iterable[ObjectInfo], *, dry_run: bool
) -> Program[dict[str, LakeVillaError]]:
    """Write into an application's key object what HEAD knows of its last use.

    It must be known when the history that proves it goes: a pair is kept for ever.
    Those that can't be read are returned, with the reason.
    """
    damaged: dict[str, LakeVillaError] = {}
    for info in keys:
        try:
            held = None if not is_key_object(info.key) else (yield from load_key_object(info.key))
        except (CorruptObject, UnsupportedFormat) as error:
            damaged[info.key] = error
            continue
        if held is None:
            continue
        record = held.record
        if dry_run or record.version is None or record.committed == record.version:
            continue
        try:
            commits = yield from commits_since(head, record.sequence)
        except (CorruptObject, UnsupportedFormat):
            continue  # the history that proves it can't be read, so none of it goes
        if commits is not None and find_commit(commits, record.txn) is not None:
            settled = msgspec.structs.replace(
                record, nonce=context.ids.nonce(), committed=record.version
            )
            # Refused: a new use has read the old record and settles it itself.
            yield from put_key(info.key, held, settled)
    return damaged
