"""Rebuild a lost HEAD from the evidence in the store (docs/design/0021-head-lost.md).

The rebuild never guesses: a table gets the state that its log has, and no commit is published. The
report lists what could not be determined, and gc and vacuum delete nothing until a user has
confirmed the new HEAD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    VersionNotFound,
)
from lakevilla.formats.base import Entry, FormatName
from lakevilla.formats.sizes import size_from
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import (
    FORMAT_WITH_KEPT,
    HEAD_KEY,
    NOWHERE,
    CommitSummary,
    Head,
    TableState,
    Touch,
    empty_head,
    successor,
    with_policy,
    with_refs,
)
from lakevilla.global_log.head_log import HEADS_PREFIX, head_key, recent_heads, said_of
from lakevilla.global_log.inbox.proposal import clear_inbox
from lakevilla.global_log.keys import HeldKey, KeyRecord, put_key
from lakevilla.global_log.numbered_log import entry_key
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import (
    HeldHead,
    LakeFile,
    load_head,
    load_names,
    load_refs,
    load_tables,
    maps_of,
    store_leaves_of,
)
from lakevilla.lake.context import Context, Tail, refuse_foreign_head
from lakevilla.lake.frozen.mounts import mount_in, mounted_id, places_of
from lakevilla.lake.newer import in_doubt, refuse_older_head
from lakevilla.lake.past import table_entries
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.tables.claims import restore_claims
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.maintenance.left_behind import (
    Decision,
    LeftBehind,
    claim_left,
    look_for,
    refs_left,
)
from lakevilla.results import Finding, Report
from lakevilla.store.base import ABSENT, Condition, Found, Match, Stored, Unknown
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, get, parallel, put
from lakevilla.store.location import is_external

#: The distance of new numbers from the highest number found: the lost HEAD may have had higher
#: ones.
_MARGIN = 1000
#: The number of newest log entries that are searched for ids of published transactions.
_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Beyond:
    """The ids of the lost lake that a user knows, as from a backup, and numbers that it has given.

    With it, no key counts as settled: the tables are to be set back to before its use.
    """

    lakes: frozenset[str]
    sequence: int
    replacement: int


@dataclass(slots=True)
class _Rebuilt:
    """The tables' states by their logs, and the transactions that the logs name.

    ``published`` has, by table, the ids of transactions in its log's entries.
    """

    states: dict[str, TableState] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    published: dict[str, set[str]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def rebuild_head(
    context: Context, *, force: bool = False, beyond: Beyond | None = None
) -> Program[Report]:
    """Rebuild HEAD if it is lost or damaged, or if a client has begun a second lake on the remains.

    With ``force``, HEAD is rebuilt even if it can be read, because the user knows that it is wrong.
    With ``beyond``, also an empty root gets a HEAD.

    Raises
    ------
    InvalidOperation
        HEAD is intact, or no objects of a lake are left, or the lake was copied to this root.
    CorruptObject
        HEAD is a log of objects, some of which are missing.
    StoreError
        Another client has stored a HEAD meanwhile.
    """
    present, condition = yield from _present()
    if force and present is not None:
        # In a copied lake, no claim names this root, so no table would be found.
        refuse_foreign_head(present, context.root)
    if present is not None and present.unconfirmed and not force:
        return _report([_confirmation(present, "was created again already")])
    left = yield from look_for()
    if left.heads and not (present is not None and present.as_log):
        return (yield from _restored_log(context, left, condition))
    if left.heads:
        raise _nothing_to_rebuild()
    if not (yield from context.replaces()) or (present is not None and present.as_log):
        raise CorruptObject(
            f"{HEADS_PREFIX}, which has the HEADs of this lake, has none any more: a client that "
            "has cached one could continue from it concurrently with a new one; restore that "
            "directory from a copy",
            key=HEADS_PREFIX,
        )
    if present is not None and not force:
        _refuse_sound(context, present, {one.lake_id for one in left.ours(context.root).values()})
    return (yield from _rebuilt(context, left, present, present, condition, beyond))


def reset_head(context: Context, number: int) -> Program[Report]:
    """Make an older HEAD, or the present one, the lake's newest state again.

    The new HEAD has that HEAD's names, refs and tables, as far as these still exist; the states of
    the tables are taken from their logs, as in a rebuild. ``number`` is the older HEAD's
    replacement number among the kept HEADs (``global_log.recent_heads``).

    Raises
    ------
    InvalidOperation
        The lake was copied or moved to this root.
    VersionNotFound
        The HEAD with that number is not kept.
    """
    present, condition = yield from _present()
    newest = present
    if present is not None and present.as_log:
        held = yield from load_head()
        newest = None if held is None else held.head
        condition = ABSENT
    if newest is not None:
        refuse_foreign_head(newest, context.root)
    chosen = yield from _kept_head(number, newest)
    left = yield from look_for()
    return (yield from _rebuilt(context, left, newest, chosen, condition))


def _kept_head(number: int, newest: Head | None) -> Program[Head]:
    if newest is not None and newest.replacement == number:
        return newest
    if newest is not None and newest.as_log:
        key = entry_key(HEADS_PREFIX, number)
        found = (yield from get(key)) if number > 0 else (yield from get(HEAD_KEY))
        if isinstance(found, Found):
            return decode(key, found.body, Head)
        raise VersionNotFound(
            f"there is no HEAD {number} in {HEADS_PREFIX}: choose one from 0 to "
            f"{newest.replacement}, which is the newest"
        )
    kept = yield from recent_heads()
    for head in kept:
        if head.replacement == number:
            return head
    there = [*kept, *([] if newest is None else [newest])]
    raise VersionNotFound(
        f"HEAD {number} is not kept: "
        + (f"choose from {said_of(there)}" if there else "none is; `--rebuild-head` needs none")
    )


def _rebuilt(
    context: Context,
    left: LeftBehind,
    present: Head | None,
    chosen: Head | None,
    condition: Condition,
    beyond: Beyond | None = None,
) -> Program[Report]:
    """Store a HEAD rebuilt from the evidence, and from the available HEAD ``chosen``, if there is
    one.
    """
    if beyond is not None:
        left.lakes |= beyond.lakes
        left.sequence = max(left.sequence, beyond.sequence)
        left.made = max(left.made, beyond.replacement)
    known = [head for head in (chosen, present) if head is not None]
    for head in known:
        yield from _include(context, left, head)
    claims = left.ours(context.root)
    former = left.lakes | {claim.lake_id for claim in claims.values()}
    former |= {lake for head in known for lake in (head.lake_id, *head.former)}
    if not (former or left.commits or left.sequence):
        raise InvalidOperation(f"{context.root} holds nothing of a lake: nothing to rebuild")
    rebuilt = yield from _tables(context, left, claims, sorted(former))
    if chosen is not None:
        _keep_tombstones(rebuilt, chosen)
    yield from _look_through_logs(context, left, rebuilt)
    refs, found = yield from refs_left(left, {} if chosen is None else chosen.refs.cached())
    yield from _cover_mounts(context, rebuilt, left.named | claims.keys(), known, refs)
    _keep_unknown(left, rebuilt, present, chosen)
    head = _composed(context, left, rebuilt, present, chosen, tuple(sorted(former)))
    if refs:
        head = with_refs(head, refs)
    if chosen is not None and chosen.is_protected:
        head = with_policy(head, chosen.policy)
    if chosen is not None and chosen.kept:
        format_ = max(head.format, FORMAT_WITH_KEPT)
        head = msgspec.structs.replace(head, format=format_, kept=chosen.kept)
    # Delete proposals: they name replacement numbers that the new HEAD will use again.
    yield from clear_inbox()
    # Their number is not that of the new HEAD: if this client dies here, they must be no sign of a
    # HEAD that was newer than the one that is there, or that a user restores.
    yield from store_leaves_of(maps_of(head), left.made + 1, head.home)
    outcome = yield from put(head_key(head), encode(head), condition)
    if not isinstance(outcome, Stored):
        why = outcome.reason if isinstance(outcome, Unknown) else "another client stored one"
        raise StoreError(f"{HEAD_KEY} was not rebuilt ({why}): check it with `doctor`")
    context.held = HeldHead(head, outcome.token)
    if beyond is None:
        yield from _settle_keys(context, left, rebuilt)
    what = "" if chosen is None or chosen is present else f" and HEAD {chosen.replacement}"
    findings = [_confirmation(head, f"was rebuilt from {len(rebuilt.states)} tables{what}")]
    findings += left.findings + rebuilt.findings + _lost_commits(left, rebuilt)
    findings += _lost_drops(left, rebuilt) + found
    findings += yield from restore_claims(context, head)
    return _report(findings)


def _keep_unknown(
    left: LeftBehind, rebuilt: _Rebuilt, present: Head | None, chosen: Head | None
) -> None:
    """Give the tables what the newest entry found of each needs of clients, and has them keep.

    Their logs do not show it: a client that does not know a need must refuse the table as before
    (docs/design/0087-versions-side-by-side.md).
    """
    heads = [head.tables.cached() for head in (present, chosen) if head is not None]
    for location, state in rebuilt.states.items():
        for states in (*heads, left.states):
            known = states.get(location)
            if known is not None and known.table_id == state.table_id:
                rebuilt.states[location] = msgspec.structs.replace(
                    state, needs=known.needs, kept=known.kept
                )
                break


def _include(context: Context, left: LeftBehind, head: Head) -> Program[None]:
    """Add to the evidence what a readable HEAD names, all of which was decided."""
    try:
        yield from load_tables(head)
        yield from load_names(head)
        yield from load_refs(head)
    except (CorruptObject, VersionNotFound) as error:
        left.findings.append(Finding("warning", error.kind, error.message, key=HEAD_KEY))
    live = {place for place, state in head.tables.cached().items() if not state.dropped}
    # The claims below the root, and those of the named tables elsewhere, were read already.
    elsewhere = sorted(location for location in live - left.named if is_external(location))
    left.named |= live
    for location in elsewhere:
        claim = yield from claim_left(left, location)
        if claim is not None:
            left.claims[location] = claim
    left.sequence = max(left.sequence, head.sequence)
    left.made = max(left.made, head.replacement)
    left.meet_id(head.floor)
    for one in head.commits:
        left.meet_id(one.newest_txn)
    decided = [(one.sequence, one.txn, one.hash) for one in head.commits if one.hash]
    states = head.tables.cached().values()
    decided += [(ref.sequence, ref.txn, ref.hash) for one in states for ref in one.pending]
    for sequence, txn, digest in decided:
        left.meet_id(txn)
        left.decided.setdefault(txn, []).append(Decision(sequence, txn, digest))


def confirm_head(context: Context) -> Program[Report]:
    """Let gc and vacuum delete again, after a user has checked what could not be determined.

    That is the report of a rebuild, or the doubt whether HEAD was set back by one commit.

    Raises
    ------
    CorruptObject
        There is evidence that HEAD was set back, which a confirmation would hide.
    """

    def change(head: Head) -> Program[Head | None]:
        is_doubtful, dead = yield from in_doubt(context, head)
        if not (head.unconfirmed or is_doubtful or dead):
            return None
        aborted = head.aborted if head.unconfirmed else (*head.aborted, *dict.fromkeys(dead))
        now_ms, nonce = context.now_ms(), context.ids.nonce()
        new = successor(head, nonce=nonce, now_ms=now_ms, aborted=aborted)
        return msgspec.structs.replace(new, unconfirmed=False, keys_lost=False)

    held = yield from context.head()
    if held is None:
        return _report([Finding("note", "confirmed", "HEAD waits for no confirmation")])
    yield from load_tables(held.head)
    live = [location for location, state in held.head.tables.cached().items() if not state.dropped]
    yield from refuse_older_head(context, "recover --confirm-head", live, waits=False)
    head = yield from replace_until_stored(context, change)
    if head.replacement == held.head.replacement:
        return _report([Finding("note", "confirmed", "HEAD waits for no confirmation")])
    return _report([Finding("note", "confirmed", "HEAD is confirmed: gc and vacuum may delete")])


def _present() -> Program[tuple[Head | None, Condition]]:
    """Return the stored HEAD, or None if it is unreadable, and the condition for replacing it."""
    outcome = yield from get(HEAD_KEY)
    if not isinstance(outcome, Found):
        return None, ABSENT
    try:
        head = decode(HEAD_KEY, outcome.body, Head)
    except CorruptObject:
        return None, Match(outcome.token)
    return head, Match(outcome.token)


def _refuse_sound(context: Context, present: Head, former: set[str]) -> None:
    strangers = former - {present.lake_id, *present.former}
    if present.root != context.root or not strangers:
        raise _nothing_to_rebuild()
    waiting = [location for location, state in present.tables.cached().items() if state.pending]
    if waiting:
        raise InvalidOperation(
            f"{HEAD_KEY} has decided commits that are not in the log of table {waiting[0]}: "
            "run `lakevilla recover` first, then rebuild again"
        )


def _nothing_to_rebuild() -> InvalidOperation:
    return InvalidOperation(
        f"{HEAD_KEY} exists and can be read: there is nothing to rebuild; `lakevilla doctor` "
        "reports what is wrong, `lakevilla recover` finishes what is pending; `--rebuild-head "
        "--force` rebuilds it anyway, where it is an older copy and no newer one is left"
    )


# -- HEAD as a log ----------------------------------------------------------------


def _restored_log(context: Context, left: LeftBehind, condition: Condition) -> Program[Report]:
    """Store the first HEAD of a log again; the newest one exists, and stays the lake's HEAD."""
    if left.heads != list(range(1, len(left.heads) + 1)):
        missing = next(n for n, present in enumerate(left.heads, 1) if n != present)
        key = entry_key(HEADS_PREFIX, missing)
        raise CorruptObject(
            f"{key} is missing although later ones exist: restore it from a copy, then rebuild "
            "again",
            key=key,
        )
    if condition != ABSENT:
        raise CorruptObject(
            f"{HEAD_KEY} is damaged, or belongs to another log than {HEADS_PREFIX}, and the object "
            "can't be replaced on this store: delete it, then rebuild again",
            key=HEAD_KEY,
        )
    key = entry_key(HEADS_PREFIX, left.heads[-1])
    found = yield from get(key)
    if not isinstance(found, Found):
        raise CorruptObject(f"{key} is missing: restore it from a copy", key=key)
    newest = decode(key, found.body, Head)
    first = empty_head(newest.lake_id, newest.root, context.ids.nonce(), FORMAT, as_log=True)
    outcome = yield from put(HEAD_KEY, encode(first), ABSENT)
    if not isinstance(outcome, Stored):
        raise StoreError(
            f"could not store {HEAD_KEY}, or another client did: check it, and try again"
        )
    context.held = yield from load_head()
    message = (
        f"{HEAD_KEY}, the first of the log of HEADs, was written again; the newest, {key} (global "
        f"version {newest.sequence}), exists: nothing is lost"
    )
    return _report([Finding("note", "head_restored", message, key=HEAD_KEY)])


# -- tables -----------------------------------------------------------------------


def _tables(
    context: Context, left: LeftBehind, claims: dict[str, LakeFile], former: list[str]
) -> Program[_Rebuilt]:
    rebuilt = _Rebuilt()
    for location in sorted(left.named - claims.keys()):
        rebuilt.findings.append(
            Finding(
                "warning",
                "table_left_out",
                f"table {location} was in the lake once, and its lake.json is missing or names "
                "another lake: it was unregistered, or the file was deleted; if it belongs here, "
                "`register` it",
                table=location,
            )
        )
    found = yield from parallel(
        [_table(context, left, location, claim) for location, claim in claims.items()]
    )
    for location, one in zip(claims, found, strict=True):
        if isinstance(one, Finding):
            rebuilt.findings.append(one)
            continue
        rebuilt.tails[location] = one
        dropped = left.left.get(location) == one.snapshot.table_id
        rebuilt.states[location] = TableState(
            one.snapshot.table_id,
            one.tip,
            guarded=one.snapshot.guarded,
            dropped=dropped,
            format=one.snapshot.format,
            catalog=one.snapshot.catalog,
            view=one.snapshot.is_view,
        )
        versions = [one.snapshot.application_version(f"lakevilla/{lake}") for lake in former]
        left.sequence = max([left.sequence, *(version or 0 for version in versions)])
        if dropped:
            message = f"table {location} was dropped from the lake: `register` revives it"
            rebuilt.findings.append(Finding("note", "dropped", message, table=location))
    return rebuilt


def _keep_tombstones(rebuilt: _Rebuilt, chosen: Head) -> None:
    """Mark as dropped the tables that are dropped in an available HEAD, although their logs exist.

    Such a log may be half deleted. A table with another id, created at the place since, is not
    dropped.
    """
    for location, state in chosen.tables.cached().items():
        found = rebuilt.states.get(location)
        if found is None or not state.dropped or found.table_id != state.table_id:
            continue
        rebuilt.states[location] = msgspec.structs.replace(state, pending=())
        # if it is True, a page has said so, and the table is already reported
        if not found.dropped:
            remedy = ": `register` revives it"
            if state.emptying:
                remedy = ", and its data was being deleted: `drop_table` it with its data again"
            message = f"table {location} was dropped from the lake{remedy}"
            rebuilt.findings.append(Finding("note", "dropped", message, table=location))


def _cover_mounts(
    context: Context,
    rebuilt: _Rebuilt,
    locations: AbstractSet[str],
    known: Sequence[Head],
    refs: Mapping[str, RefEntry],
) -> Program[None]:
    """Mark tables that are left out as dropped, where a clone would show its older rows instead.

    Such a table was written since the clone was made. ``register`` revives it.
    """
    clones = {name: entry for name, entry in refs.items() if entry.kind == "clone"}
    for location in sorted(locations - rebuilt.states.keys()):
        form: FormatName = "delta"
        try:
            mount = yield from mount_in(clones, location)
            if mount is None:
                continue
            clone, form = mount.entry, mount.state.format
        except (CorruptObject, VersionNotFound) as error:
            # What the clone shows can't be read, but may be restored after the rebuild.
            clone = next(clones[name] for name in places_of(location) if name in clones)
            message = f"the state that the clone above {location} shows is lost: {error.message}"
            finding = Finding("warning", error.kind, message, table=location, key=clone.base.key)
            rebuilt.findings.append(finding)
        written = next((one for one in known if one.tables.cached().get(location)), None)
        try:
            tail = yield from open_tail(context, location, missing_ok=True)
            if tail.tip < 0 and written is None:
                continue  # nobody has written to it: the clone shows it as it is
            form = tail.snapshot.format if tail.tip >= 0 else form
        except LakeVillaError:
            pass  # it has a log, which can't be read
        table_id = mounted_id(clone.id, location)
        rebuilt.states[location] = TableState(table_id, -1, dropped=True, format=form)


def _table(
    context: Context, left: LeftBehind, location: str, claim: LakeFile
) -> Program[Tail | Finding]:
    noted = left.states.get(location)
    catalog = claim.catalog or ("" if noted is None else noted.catalog)
    if catalog:
        context.catalogs[location] = catalog
    context.tails.pop(location, None)
    try:
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
    except LakeVillaError as error:
        message = f"table {location} is left out: {error.message}; then `register` takes it in"
        return Finding("error", error.kind, message, table=location)
    if tail.tip < 0:
        message = (
            f"table {location} is left out: it has no log; it was dropped with its data, or was "
            "created and not yet published"
        )
        return Finding("warning", "table_left_out", message, table=location)
    return tail


def _look_through_logs(context: Context, left: LeftBehind, rebuilt: _Rebuilt) -> Program[None]:
    """Find the ids in the logs of the tables that commit objects name."""
    wanted = {location for _, commit in left.commits for location in commit.tables}
    wanted &= rebuilt.tails.keys()
    for location in sorted(wanted):
        try:
            entries: list[Entry] = yield from table_entries(context, location, _ENTRIES)
        except LakeVillaError as error:
            message = f"the log of table {location} could not be searched: {error.message}"
            rebuilt.findings.append(Finding("warning", error.kind, message, table=location))
            continue
        rebuilt.published[location] = {txn for entry in entries for txn in entry.txn_ids}


# -- the new HEAD -----------------------------------------------------------------


def _composed(
    context: Context,
    left: LeftBehind,
    rebuilt: _Rebuilt,
    present: Head | None,
    chosen: Head | None,
    former: tuple[str, ...],
) -> Head:
    sequence = left.sequence + _MARGIN
    made = max(left.made + _MARGIN, sequence)
    as_log = present is not None and present.as_log
    if present is not None and as_log:
        made = present.replacement + 1  # in a log of HEADs, no number may be skipped
    # Above all ids found, and above those that were not found, by any clock that is not ahead.
    floor = context.ids.txn_id(above=left.newest_id)
    base = Head(
        format=FORMAT,
        lake_id=context.ids.uuid(),
        root=context.root,
        nonce="",
        replacement=made - 1,
        sequence=sequence - 1,
        floor=floor,
        forgotten=floor,
        history_start=sequence - 1,
        former=former,
        rebuilt=sequence,
        unconfirmed=True,
        as_log=as_log,
        keys_lost=not left.has_remains,
    )
    touches = {
        location: Touch(published=state.published, metadata=True, data_change=False)
        for location, state in rebuilt.states.items()
        if not state.dropped
    }
    commit = CommitSummary(sequence, 0, "register", context.ids.txn_id(above=floor), "", touches)
    return successor(
        base,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=[commit],
        tables={**_tombstones(chosen, rebuilt), **rebuilt.states},
        names=_names(left, rebuilt, chosen),
        sizes={
            location: size_from(tail.snapshot.known_size())
            for location, tail in rebuilt.tails.items()
        },
    )


def _tombstones(chosen: Head | None, rebuilt: _Rebuilt) -> dict[str, TableState]:
    """Return a HEAD's entries of dropped tables of which no log is left."""
    if chosen is None:
        return {}
    return {
        location: msgspec.structs.replace(state, pending=())
        for location, state in chosen.tables.cached().items()
        if state.dropped and location not in rebuilt.states
    }


def _names(left: LeftBehind, rebuilt: _Rebuilt, chosen: Head | None) -> dict[str, str | None]:
    names = {} if chosen is None else dict(chosen.names.cached().items())
    names.update((name, location) for name, location in left.names.items() if name not in names)
    for location, claim in left.claims.items():
        for name in claim.aliases:
            names.setdefault(name, location)
        if claim.renamed:
            names.setdefault(location, NOWHERE)
    live = {location for location, state in rebuilt.states.items() if not state.dropped}
    kept: dict[str, str | None] = {
        name: location
        for name, location in names.items()
        if (name if location == NOWHERE else location) in live
    }
    return kept


# -- undetermined outcomes --------------------------------------------------------


def _lost_commits(left: LeftBehind, rebuilt: _Rebuilt) -> list[Finding]:
    """Return a finding for each transaction with a commit object that is not in a table's log.

    A member of a combined commit that lost its race may have committed with another commit object.
    """
    findings = []
    found: dict[str, tuple[str, CommitObject]] = {}
    for key, commit in left.commits:
        found[commit.txn] = key, commit
    missing = {txn: _lacking(left, rebuilt, commit) for txn, (_, commit) in found.items()}
    done = {
        one
        for txn, (_, commit) in found.items()
        for one, _ in commit.by_member()
        if not missing[txn]
    }
    for txn, (key, commit) in sorted(found.items()):
        lacking = missing[txn]
        sure = txn in left.decided or len(lacking) < len(_changed(commit))
        ids = [one for one, _ in commit.by_member() if sure or one not in done]
        if not lacking or not ids:
            continue
        performs = f" with transactions {', '.join(ids)}" if commit.members else ""
        what = "was decided" if sure else "may have been decided, or have lost its race"
        findings.append(
            Finding(
                "error" if sure else "warning",
                "unpublished" if sure else "maybe_decided",
                f"transaction {txn}{performs} {what}, and is not in the log of table "
                f"{', '.join(lacking)} as far as that was searched: it is not published; if its "
                f"changes are missing there, run it again ({key} has its operations)",
                table=lacking[0],
                txn_id=txn,
                key=key,
            )
        )
    return findings


def _changed(commit: CommitObject) -> list[str]:
    return [location for location, part in commit.tables.items() if not part.change.is_empty]


def _lacking(left: LeftBehind, rebuilt: _Rebuilt, commit: CommitObject) -> list[str]:
    """Return the changed tables in whose logs a commit was not found."""
    return [
        location
        for location in _changed(commit)
        if not _is_published(left, rebuilt, location, commit.txn)
    ]


def _lost_drops(left: LeftBehind, rebuilt: _Rebuilt) -> list[Finding]:
    """Report tables in the lake again although a commit object, but no page, drops them."""
    findings = []
    for _, commit in sorted(left.commits, key=lambda held: held[1].txn):
        for location, part in commit.tables.items():
            state = rebuilt.states.get(location)
            if not part.dropped or state is None or state.dropped:
                continue
            if part.table_id == state.table_id:
                findings.append(
                    Finding(
                        "warning",
                        "maybe_dropped",
                        f"table {location} is in the lake, and transaction {commit.txn} drops it: "
                        "it is not known whether that was decided, and the table not registered "
                        "since; if it was dropped, `drop_table` it again",
                        table=location,
                        txn_id=commit.txn,
                    )
                )
    return list(dict.fromkeys(findings))  # a commit that was redone has several commit objects


def _is_published(left: LeftBehind, rebuilt: _Rebuilt, location: str, txn: str) -> bool:
    if txn in rebuilt.published.get(location, ()):
        return True
    tail = rebuilt.tails.get(location)
    if tail is None:
        return False
    newest = _published_up_to(left, tail)
    return any(decision.sequence <= newest for decision in left.decided.get(txn, ()))


def _published_up_to(left: LeftBehind, tail: Tail) -> int:
    lakes = {claim.lake_id for claim in left.claims.values()}
    versions = [tail.snapshot.application_version(f"lakevilla/{lake}") for lake in lakes]
    return max((version for version in versions if version is not None), default=-1)


def _settle_keys(context: Context, left: LeftBehind, rebuilt: _Rebuilt) -> Program[None]:
    """Record in key objects that their last use has committed, if a log or a page shows that."""
    published = set().union(*rebuilt.published.values()) | left.decided.keys()
    for name, last in left.keys:
        record = last.record
        done = record.txn in published or _is_applied(rebuilt, record)
        if not done or (record.committed is not None and record.committed == record.version):
            continue
        yield from _settle(context, name, last)


def _is_applied(rebuilt: _Rebuilt, record: KeyRecord) -> bool:
    """Return whether a table's log has the version of an application (Delta's ``txn`` action)."""
    if record.version is None:
        return False
    versions = [tail.snapshot.application_version(record.key) for tail in rebuilt.tails.values()]
    return any(version is not None and version >= record.version for version in versions)


def _settle(context: Context, name: str, last: HeldKey) -> Program[None]:
    committed = 0 if last.record.version is None else last.record.version
    record = msgspec.structs.replace(last.record, nonce=context.ids.nonce(), committed=committed)
    # Refused if a new use of the key has read the old record; it has found the same.
    yield from put_key(name, last, record)


def _confirmation(head: Head, what: str) -> Finding:
    return Finding(
        "warning" if head.unconfirmed else "note",
        "head_rebuilt",
        f"{HEAD_KEY} {what}: lake {head.lake_id} begins with global version {head.rebuilt}; read "
        "which commits could not be recovered, then `lakevilla recover ROOT --confirm-head`: "
        "until then gc and vacuum delete nothing",
        key=HEAD_KEY,
    )


def _report(findings: list[Finding]) -> Report:
    return Report(all(finding.severity == "note" for finding in findings), tuple(findings))
