"""Examine the refs and the queues of a lake."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lakevilla.branches.clones import unsafe_objects
from lakevilla.deadlock.graph import cycles
from lakevilla.errors import LakeVillaError, StoreError, UnsupportedFormat, VersionNotFound
from lakevilla.global_log.bases import (
    Base,
    copied_base,
    load_base,
    load_base_tables,
    load_copies,
)
from lakevilla.global_log.head import HEAD_KEY, Head, shown_names
from lakevilla.global_log.refs import BASES_PREFIX, BaseRef, RefEntry
from lakevilla.global_log.repo import load_commit, load_head, load_names, load_refs, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import has_ended, has_moved, load_branch
from lakevilla.lake.frozen.frozen import frozen_view, load_states
from lakevilla.lake.newer import commits_on_branches, signs_on_branch
from lakevilla.maintenance.transactions import Places, describe, lease_of, look, waits
from lakevilla.markers.marker import Present, Unreadable, marker_key
from lakevilla.results import Finding, QueuePlace, TableQueue, TransactionInfo
from lakevilla.store.effects import Program, list_objects, parallel, some_at_once
from lakevilla.store.location import at_home, key_at
from lakevilla.sublogs.record import record_key

# -------------------- doctor refs
#
# The doctor's reports on refs: bases that can't be read, and states that are not kept.


#: Bases by what names them, or the error for one that can't be read.
Bases = Mapping[BaseRef, Base | LakeVillaError]


def look_at_refs(context: Context, head: Head) -> Program[list[Finding]]:
    """Check for each ref, and each of its tables, that the state can still be read."""
    yield from load_refs(head)
    entries = head.refs.items()
    bases = yield from _loaded([ref for _, entry in entries for ref in entry.bases], head)
    own = [bases[entry.base] for _, entry in entries]
    readable = [base for base in own if isinstance(base, Base)]
    yield from load_states(context, readable)
    # Listed before the HEADs of the branches are read: these know all commits in the list.
    has_branches = any(entry.kind == "branch" for _, entry in entries)
    commits = (yield from commits_on_branches()) if has_branches else {}
    look = _Look(context, bases, commits, (yield from _at_risk(context, readable)))
    found = yield from some_at_once(_ref(look, name, entry) for name, entry in sorted(entries))
    findings = [finding for some in found for finding in some]
    return findings + (yield from _of_shown_clones(head, bases))


def _at_risk(context: Context, bases: Iterable[Base]) -> Program[dict[Hashable, int]]:
    """Return, by state of a table, how many files of refs other clients may delete.

    Many refs keep the same state of a table. States that can't be read are left out.
    """
    states: dict[Hashable, tuple[Base, str]] = {}
    for base in bases:
        if base.kind != "clone":
            for location in base.tables:
                if base.has(location):
                    states.setdefault(_state(base, location), (base, location))
    found = yield from some_at_once(_unsafe(context, *where) for where in states.values())
    return {
        state: count
        for state, count in zip(states, found, strict=True)
        if not isinstance(count, LakeVillaError)
    }


def _state(base: Base, location: str) -> Hashable:
    """Return the identity of a table's state in a base."""
    state = base.tables[location]
    pending = tuple((ref.txn, ref.hash) for ref in state.pending)
    return location, state.table_id, state.published, pending, base.kept_of(location)


def _unsafe(context: Context, base: Base, location: str) -> Program[int | LakeVillaError]:
    """Return how many files of a state other clients may delete; an error if it can't be read."""
    try:
        view = yield from frozen_view(context, base, location)
        if base.kind == "clone":
            return 0
        return len((yield from unsafe_objects(context, location, view.snapshot)))
    except StoreError:
        raise
    except LakeVillaError as error:
        return error


def _of_shown_clones(head: Head, bases: Bases) -> Program[list[Finding]]:
    """Return findings on unreadable bases of clones, perhaps ended, that refs' bases name."""
    findings: list[Finding] = []
    # By base, the ref that needs it, and the clone to which the base belongs, or "" for the ref
    # itself.
    wanted = {ref: (name, "") for name, entry in head.refs.items() for ref in entry.bases}
    seen = set(wanted)
    while wanted:
        shown: dict[BaseRef, tuple[str, str]] = {}
        for of, (name, clone) in wanted.items():
            base = bases[of]
            if isinstance(base, Base):
                for inner, entry in base.clones.items():
                    shown |= {ref: (name, inner) for ref in entry.bases if ref not in seen}
                    seen.update(entry.bases)
            elif clone:  # a ref's own unreadable base is reported with the ref
                findings.append(_lost(name, f"the base of clone {clone!r}", of, base))
        wanted, bases = shown, (yield from _loaded(shown))
    return findings


def _loaded(refs: Iterable[BaseRef], head: Head | None = None) -> Program[Bases]:
    """Return bases with the leaves of their tables, or the error for each that can't be read.

    A base that ``head`` has a copy of is not read if a LIST shows its object with the right length:
    ``verify`` reads the objects themselves.
    """
    copies = {} if head is None else (yield from load_copies(head))
    listed = (yield from list_objects(BASES_PREFIX)) if copies else []
    stored = {info.key: info.size for info in listed}
    loaded: dict[BaseRef, Base | LakeVillaError] = {}
    rest: dict[BaseRef, Program[Base | LakeVillaError]] = {}
    for ref in dict.fromkeys(refs):
        copy = copies.get(ref.name)
        is_there = copy is not None and stored.get(ref.key) == len(bytes(copy))
        base = copied_base(copies, ref) if is_there else None
        if base is None or base.tables.refs:
            rest[ref] = _base(ref, base)
        else:
            loaded[ref] = base
    loaded.update(zip(rest, (yield from parallel(rest.values())), strict=True))
    return loaded


def _base(ref: BaseRef, copied: Base | None = None) -> Program[Base | LakeVillaError]:
    try:
        base = (yield from load_base(ref)) if copied is None else copied
        yield from load_base_tables(base)
    except StoreError:
        raise
    except LakeVillaError as error:
        return error
    return base


def _lost(name: str, what: str, ref: BaseRef, error: LakeVillaError) -> Finding:
    """Return the finding of a base that ``name`` needs besides its own, and that can't be read."""
    why = error.message
    if isinstance(error, VersionNotFound):
        why = f"{ref.key} is missing: restore it from a copy, or delete_ref({name!r})"
    message = f"{what}, which {name!r} needs, can't be read: {why}"
    return Finding("error", "corrupt_object", message, key=ref.key)


def without_idle_risks(findings: Iterable[Finding]) -> list[Finding]:
    """Drop findings on files at risk that belong to a state which is already lost."""
    every = list(findings)
    lost = [one for one in every if one.kind == "ref_lost"]

    def is_idle(one: Finding) -> bool:
        ref = one.message.partition(" needs ")[0]
        return one.kind == "ref_at_risk" and any(
            of.table == one.table and f"in {ref} any more" in of.message for of in lost
        )

    return [one for one in every if not is_idle(one)]


@dataclass(frozen=True, slots=True)
class _Look:
    """Bases, the commit objects on branches by epoch, and the result of ``_at_risk``."""

    context: Context
    bases: Bases
    commits: Mapping[str, list[str]]
    at_risk: Mapping[Hashable, int]


def _ref(look: _Look, name: str, entry: RefEntry) -> Program[list[Finding]]:
    bases = look.bases
    base = bases[entry.base]
    if not isinstance(base, Base):
        message = f"{entry.kind} {name!r} can't be read: {base.message}"
        return [Finding("error", base.kind, message, key=entry.base.key)]
    findings: list[Finding] = []
    for ref in entry.bases[1:]:
        merged = bases[ref]
        if not isinstance(merged, Base):
            findings.append(_lost(name, "the state of the last merge", ref, merged))
    if entry.kind == "branch":
        findings += yield from _head_of(name, entry, look.commits.get(entry.epoch, []))
    live = [location for location in base.tables if base.has(location)]
    counts: dict[str, int | LakeVillaError | None]
    counts = {location: look.at_risk.get(_state(base, location)) for location in live}
    # The error for a state that can't be read names the ref, and a clone's are read by itself.
    rest = [location for location, count in counts.items() if count is None]
    read = yield from parallel([_unsafe(look.context, base, location) for location in rest])
    counts.update(zip(rest, read, strict=True))
    for location, count in counts.items():
        if isinstance(count, LakeVillaError):
            findings.append(Finding("warning", "ref_lost", count.message, table=location))
        elif count:
            findings.append(_risk(base, name, location, count))
    return findings


def _head_of(name: str, entry: RefEntry, commits: Sequence[str]) -> Program[list[Finding]]:
    """Return findings on a branch's own HEAD, and on the objects that it names.

    ``commits`` are the keys of the commit objects that were stored on the branch.
    """
    key = key_at(entry.epoch, HEAD_KEY)
    try:
        held = yield from load_branch(name, entry)
        yield from load_tables(held.head)
        states = held.head.tables.values()
        refs = {ref for state in states for ref in state.pending if ref.epoch == entry.epoch}
        yield from parallel([load_commit(ref.txn, ref.hash, ref.epoch) for ref in refs])
        older = yield from _older_head(name, held.head, commits)
    except StoreError:
        raise
    except LakeVillaError as error:
        message = f"branch {name!r} can't be read: {error.message}"
        return [Finding("error", error.kind, message, key=key)]
    epoch = held.head.epoch
    if epoch is not None and epoch.base not in entry.bases:
        base = yield from _base(epoch.base)
        if not isinstance(base, Base):
            return [_lost(name, "the base of its HEAD", epoch.base, base)]
    if has_moved(held):
        message = f"a rebase of branch {name!r} was interrupted: `recover` finishes it"
        return [Finding("warning", "ref_moved", message, key=key)]
    if has_ended(held):
        message = f"branch {name!r} was deleted, and HEAD still names it: `recover` removes it"
        return [Finding("warning", "ref_ended", message, key=key)]
    return older


def _older_head(name: str, head: Head, commits: Sequence[str]) -> Program[list[Finding]]:
    """Return a finding if commit objects on a branch show that its HEAD was set back."""
    if not commits:
        return []
    signs = yield from signs_on_branch(head, commits)
    newer = signs.against(head)
    key = key_at(head.home, HEAD_KEY)
    if newer is None and not signs.in_doubt:
        return []
    held = yield from at_home(head.home, load_head())
    if held is None or held.head.replacement != head.replacement:
        return []  # clients are committing on the branch during the check
    at = f"{key} (version {head.sequence} of branch {name!r})"
    if newer is not None:
        message = f"{at} was set back: {newer} belongs to a newer HEAD: restore the newest one"
        return [Finding("error", "corrupt_object", message, key=key)]
    message = (
        f"{at} does not contain {signs.in_doubt[0]}: its transaction has died or is still "
        "running, or the branch was set back by one commit: then restore its newest HEAD"
    )
    return [Finding("warning", "ref_in_doubt", message, key=key)]


def _risk(base: Base, name: str, location: str, unsafe: int) -> Finding:
    """Return the finding of a ref that needs files which its table has removed."""
    return Finding(
        "note",
        "ref_at_risk",
        f"{base.kind} {name!r} needs {unsafe} files that table {location} has removed "
        f"since: VACUUM of other clients deletes them after its retention; `lakevilla keep ROOT "
        f"{name}` copies them",
        table=location,
    )


# -------------------- doctor queues
#
# The doctor's reports on queues: places, waits, and objects that can't be read.


@dataclass(frozen=True, slots=True)
class QueueReport:
    """The doctor's report on queues and saved transactions."""

    findings: tuple[Finding, ...]
    queues: tuple[TableQueue, ...]
    cycles: tuple[tuple[str, ...], ...]


def report_queues(context: Context, head: Head) -> Program[QueueReport]:
    """Examine all queues and records, without any change or wait."""
    places = yield from look(context, head)
    known = yield from describe(context, head, places.records)
    yield from load_names(head)
    names = shown_names(head)
    reserved: dict[str, list[str]] = {}
    for reservation in head.reserved:
        for table in reservation.tables:
            reserved.setdefault(table, []).append(reservation.txn)
    queues = [
        TableQueue(
            names.get(table, table),
            tuple(
                _place(table, present, places, known) for present in places.markers.get(table, ())
            ),
            tuple(reserved.get(table, ())),
        )
        for table in sorted(places.markers.keys() | reserved.keys())
    ]
    rings = cycles(waits(head, places.records))
    findings = [
        *_unreadable(places),
        *_reservations(head, known),
        *_cycles(rings),
        *_markers(queues),
        *_silent(context, places, known, queues),
        *_saved(places, known),
    ]
    return QueueReport(tuple(findings), tuple(queues), tuple(rings))


def _place(
    table: str, present: Present, places: Places, known: Mapping[str, TransactionInfo]
) -> QueuePlace:
    listed, marker = present
    key = marker_key(table, listed.number)
    if isinstance(marker, Unreadable):
        return QueuePlace(listed.number, "unreadable", key)
    info = known.get(marker.txn)
    if info is None:
        unread = marker.txn in places.records.unreadable
        return QueuePlace(
            listed.number, "unreadable" if unread else "void", key, marker.txn, marker.access
        )
    return QueuePlace(
        listed.number, info.state, key, info.id, marker.access, info.owner, info.waits_for
    )


def _unreadable(places: Places) -> Iterable[Finding]:
    for table, error in places.failed.items():
        yield Finding("error", error.kind, error.message, table=table)
    for table, markers in places.markers.items():
        for listed, marker in markers:
            if isinstance(marker, Unreadable):
                key = marker_key(table, listed.number)
                error = marker.error
                yield Finding(_severity(error), error.kind, error.message, table=table, key=key)
    for txn, error in places.records.unreadable.items():
        key = record_key(txn)
        yield Finding(_severity(error), error.kind, error.message, txn_id=txn, key=key)


def _severity(error: LakeVillaError) -> Literal["warning", "error"]:
    # An object that a newer LakeVilla has written is not an error of the lake.
    return "warning" if isinstance(error, UnsupportedFormat) else "error"


def _reservations(head: Head, known: Mapping[str, TransactionInfo]) -> Iterable[Finding]:
    for reservation in head.reserved:
        info = known.get(reservation.txn)
        alive = (
            ""
            if info is not None
            else "; it has no record any more, so no transaction waits for it"
        )
        tables = ", ".join(reservation.tables)
        what = (
            f"{tables}: reserved for the next commit of an Iceberg client ({reservation.txn})"
            if reservation.guest
            else f"transaction {reservation.txn} has reserved {tables}"
        )
        yield Finding(
            "note",
            "reserved",
            f"{what}: other transactions on these tables let it commit first{alive}",
            txn_id=reservation.txn,
        )


def _cycles(rings: Iterable[tuple[str, ...]]) -> Iterable[Finding]:
    for ring in rings:
        yield Finding(
            "note",
            "cycle",
            f"transactions {', '.join(ring)} wait for each other: the youngest, {ring[-1]}, gives "
            "way at its next check, within a third of its lease",
            txn_id=ring[-1],
        )


def _markers(queues: Iterable[TableQueue]) -> Iterable[Finding]:
    for queue in queues:
        void = [place for place in queue.places if place.state == "void"]
        if void:
            yield Finding(
                "note",
                "void",
                f"{len(void)} places in the queue of table {queue.table} are void, because their "
                "transactions have ended: no transaction waits for them, and `lakevilla recover` "
                "deletes them",
                table=queue.table,
                key=void[0].key,
            )


def _silent(
    context: Context,
    places: Places,
    known: Mapping[str, TransactionInfo],
    queues: Iterable[TableQueue],
) -> Iterable[Finding]:
    """Return notes on transactions that have not renewed their record for their lease.

    The store's clock is compared with this client's clock, so a note is only a hint.
    """
    queued = {place.txn_id for queue in queues for place in queue.places}
    queued |= {txn for queue in queues for txn in queue.reserved_by}
    for txn, info in known.items():
        since = context.clock.now() - places.records.listed[txn].modified_seconds
        lease = lease_of(context, places.records.records[txn])
        if txn in queued and since > lease:
            yield Finding(
                "note",
                "silent",
                f"transaction {txn} ({info.owner}) holds places and has not renewed its record "
                f"for {since:.0f} s, by the store's clock; its lease is {lease:g} s: if its "
                "client is dead, transactions that wait for it release its places, and so does "
                "`lakevilla recover`",
                txn_id=txn,
                key=record_key(txn),
            )


def _saved(places: Places, known: Mapping[str, TransactionInfo]) -> Iterable[Finding]:
    for txn, info in known.items():
        if info.state == "committed":
            yield Finding(
                "note",
                "ended",
                f"transaction {txn} has committed and its record is still there: `lakevilla gc` "
                "deletes it",
                txn_id=txn,
                key=record_key(txn),
            )
        elif info.state == "aborted":
            yield Finding(
                "note",
                "ended",
                f"transaction {txn} was aborted and its record is still there: its owner deletes "
                "it when it notices, or `lakevilla gc`",
                txn_id=txn,
                key=record_key(txn),
            )
        elif places.records.records[txn].sublog:
            yield Finding(
                "note",
                "saved",
                f"transaction {txn} is saved: `lake.resume` continues it, "
                "`lakevilla abort` ends it",
                txn_id=txn,
                key=record_key(txn),
            )
