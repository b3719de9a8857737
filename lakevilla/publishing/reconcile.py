"""Reconciling: a decided commit that a foreign writer has made unfit is replayed.

The commit is decided, so it can't be undone; the log can't be changed, so it
can't be published as it is. One HEAD replacement puts a ``reconcile`` commit in
the place of the unfit one and of all behind it: their logical operations,
replayed. A ``foreign`` commit before it stands for what the other client did;
others validate against the difference of the two states (``view.net_change``).

Any number of helpers may do this at once: HEAD's replacement picks one of them,
and the others find nothing unfit any more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from lakevilla.errors import LakeVillaError, StoreError, TableNotFound
from lakevilla.formats.base import Change, Snapshot
from lakevilla.formats.fields import Ids
from lakevilla.formats.layout import Layout
from lakevilla.formats.paths import file_key
from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, seal
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    PendingRef,
    TableState,
    Touch,
    application_id,
    successor,
)
from lakevilla.global_log.repo import HeldHead, load_tables, make_room, replace_head
from lakevilla.lake.context import Context, Event
from lakevilla.lake.file_names import file_namer
from lakevilla.lake.fitness import UNREADABLE, first_unfit, gone_for_good, is_lost, unpublished
from lakevilla.lake.net_change import net_change
from lakevilla.lake.row_changes import Verdict, judge, still_fits
from lakevilla.lake.table_log import open_tail, probe, snapshot_at
from lakevilla.lake.tail import Tail
from lakevilla.lake.view import Placement, View, build_view, place
from lakevilla.operations.change_feed import in_one_entry
from lakevilla.operations.perform import check_append_only, perform, performed_as
from lakevilla.store.base import ABSENT, ANY, Stored
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program, Put, parallel, put
from lakevilla.sublogs.binding import Moves, moves, renumber, renumber_read, withdrawn
from lakevilla.sublogs.describe import summed
from lakevilla.sublogs.operations import (
    Append,
    Operation,
    Optimize,
    Overwrite,
    ReadRecord,
    given_files,
    is_blind,
    staged_keys,
)

__all__ = ["decided", "reconcile"]

_MAX_ATTEMPTS = 50
#: Files of a table that are looked for when a replay has failed.
_MOST_LOOKED_FOR = 10_000


@dataclass(slots=True)
class _Replay:
    """The outcome of replaying the pending commits of one table."""

    snapshot: Snapshot
    changes: list[Change] = field(default_factory=list)
    voided: list[tuple[str, str]] = field(default_factory=list)
    metrics: list[dict[str, str]] = field(default_factory=list)
    operation: str = "RECONCILE"
    #: What the reconcile commit stands for: it may become unfit itself.
    operations: list[Operation] = field(default_factory=list)
    #: What their callers had seen: should it be replayed again, that is told too.
    reads: list[ReadRecord] = field(default_factory=list)
    moved: dict[Ids, Ids] = field(default_factory=dict)


def reconcile(
    context: Context, location: str, *, lost: Collection[tuple[str, str]] = ()
) -> Program[Head | None]:
    """Replay what does not fit the table's log any more; returns the HEAD to go on with.

    ``lost`` are the commits (txn, hash) whose objects are gone: they become void.

    None if HEAD could not be replaced in the attempts allowed.
    """
    for _ in range(_MAX_ATTEMPTS):
        held = yield from context.head()
        if held is None:
            return None
        head = held.head
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)
        if state is None or not waiting:
            return head
        commits = yield from decided(context, head, location, waiting, lost)
        parts = [commit.tables[location] for commit in commits]
        unfit = yield from first_unfit(context, head, location, tail, waiting, parts)
        if unfit != 0 and not (tail.tip < 0 and _is_in(waiting[0], lost)):
            return head
        commit, digest, replay = yield from _replayed(
            context, head, location, tail, waiting, commits, lost
        )
        new = yield from _successor(context, held, location, tail, waiting, commit, digest)
        outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            context.remember(HeldHead(new, outcome.token))
            _tell(context, location, waiting, commit, replay)
            return new
        # Another HEAD came first. If it does not hold our commit object, our
        # files are nobody's; they stay for gc, which knows when that is sure.
    return None


def decided(
    context: Context,
    head: Head,
    location: str,
    waiting: Sequence[PendingRef],
    lost: Collection[tuple[str, str]],
) -> Program[list[CommitObject]]:
    """The objects of pending commits; for one that is lost, what is sure of it."""
    state = head.tables[location]
    commits = []
    for ref in waiting:
        if _is_in(ref, lost):
            part = TablePart(state.table_id, Change(), created=state.published < 0)
            commits.append(CommitObject(FORMAT, "", ref.txn, {location: part}))
        else:
            commits.append((yield from context.commit_object(ref.txn, ref.hash)))
    return commits


def _is_in(ref: PendingRef, lost: Collection[tuple[str, str]]) -> bool:
    return (ref.txn, ref.hash) in lost


def _replayed(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    waiting: tuple[PendingRef, ...],
    commits: Sequence[CommitObject],
    gone: Collection[tuple[str, str]],
) -> Program[tuple[CommitObject, str, _Replay]]:
    parts = [commit.tables[location] for commit in commits]
    txn = context.ids.txn_id(above=head.floor)
    state = head.tables[location]
    lost = yield from is_lost(context, head, location, tail)
    replay = _Replay(tail.snapshot)
    if lost:
        reason = f"table {location} was dropped or made anew by another client"
        replay.voided.extend((ref.txn, reason) for ref in waiting)
    elif tail.tip < 0:
        reason = f"the commit that was to make table {location} is gone: {_object_gone(waiting[0])}"
        replay.voided.extend((ref.txn, reason) for ref in waiting)
    elif parts[0].created:
        reason = f"another client made table {location} first"
        replay.voided.extend((ref.txn, reason) for ref in waiting)
    else:
        for index, ref in enumerate(waiting):
            if _is_in(ref, gone):
                replay.voided.append((ref.txn, _object_gone(ref)))
                continue
            made_for = _written_layout(context, tail, waiting[: index + 1], parts[: index + 1])
            yield from _replay_commit(
                context, head, location, txn, commits[index], made_for, replay
            )
    change = Change()
    bodies: dict[str, bytes] = {}
    if replay.changes:
        name = file_namer(context, txn, through_head=True)
        change, bodies = yield from in_one_entry(context, tail.snapshot, replay.changes, name)
    yield from parallel([Put(key, body, ANY) for key, body in bodies.items()])
    table_id = tail.snapshot.table_id if tail.tip >= 0 else state.table_id
    part = TablePart(
        table_id=table_id,
        change=change,
        operation=replay.operation,
        parameters={"replaces": ",".join(ref.txn for ref in waiting)},
        metrics=summed(replay.metrics),
    )
    touched: tuple[str, ...] = ()
    if not lost and tail.tip >= 0:
        if gone:
            # What is void may be in what they have read, and nobody can tell.
            touched = tuple(
                commit.txn
                for commit in commits
                if any(read.table == location for read in commit.reads)
            )
        else:
            touched = yield from _touched_reads(context, head, location, tail, commits)
    # An optimize gives way, and rows that depend on no others come in as they were.
    unmoved = not touched and all(
        isinstance(op, Optimize) or is_blind(op) for op in replay.operations
    )
    quiet = _is_quiet(tail, state.published, application_id(head), unmoved=unmoved)
    commit = CommitObject(
        FORMAT,
        context.ids.nonce(),
        txn,
        {location: part},
        touched_reads=touched,
        quiet=quiet and not replay.voided,
        replaces=tuple((ref.sequence, ref.txn, ref.hash) for ref in waiting),
        voided=tuple(replay.voided),
        operations=tuple(replay.operations),
        reads=tuple(replay.reads),
    )
    digest, body = seal(commit)
    key = commit_key(txn, digest)
    stored = yield from put(key, body, ABSENT)
    if not isinstance(stored, Stored):
        # HEAD must never name an object that may not be there.
        raise StoreError(f"could not store {key}, so {location} stays unpublished: try again")
    context.keep_commit(digest, commit)
    return commit, digest, replay


def _replay_commit(
    context: Context,
    head: Head,
    location: str,
    txn: str,
    commit: CommitObject,
    made_for: Program[Layout],
    replay: _Replay,
) -> Program[None]:
    """Replay one commit's operations on the table; one that can't be is voided here, whole."""
    name = file_namer(context, txn, through_head=True)
    snapshot = replay.snapshot
    changes: list[Change] = []
    operations: list[Operation] = []
    moved: Moves = {location: dict(replay.moved)}
    metrics = []
    read: list[Snapshot] = []
    mine = [operation for operation in commit.operations if operation.table == location]

    def void(reason: str) -> None:
        replay.voided.append((commit.txn, reason))
        for operation in mine:
            replay.moved |= withdrawn(operation)

    given = [file_key(location, f.path) for operation in mine for f in given_files(operation)]
    given += [key for operation in mine for key in staged_keys(operation)]
    gone = yield from gone_for_good(given)
    if gone:
        void(_gone(gone))
        return

    def lookup(other: str) -> Program[Snapshot]:
        if other == location:
            return snapshot
        # One that this very commit creates may have no log yet.
        tail = yield from open_tail(context, other, missing_ok=True)
        view = yield from build_view(context, head, other, tail)
        read.append(view.snapshot)
        return view.snapshot

    try:
        written = yield from made_for
        for operation in mine:
            # Its columns may have other ids than those that were decided before it.
            operation = renumber(operation, moved)
            performed = yield from perform(context, operation, snapshot, name, lookup)
            check_append_only(snapshot, performed)
            again = performed_as(operation, snapshot, performed)
            moved[location] |= moves(operation, again)
            operations.append(again)
            layout = snapshot.apply(performed.change).layout
            if isinstance(operation, Append | Overwrite) and not still_fits(written, layout):
                raise TableNotFound(f"rows written to {location} no longer fit its schema")
            fresh = performed.bodies
            if fresh:
                yield from parallel([Put(key, body, ANY) for key, body in fresh.items()])
            snapshot = snapshot.apply(performed.change)
            changes.append(performed.change)
            metrics.append(performed.metrics)
    except LakeVillaError as error:
        reason = error.message
        if error.kind in UNREADABLE:
            gone = yield from _gone_from([snapshot, *read])
            if not gone:
                raise
            reason = _gone(gone)
        void(reason)
        return
    replay.snapshot = snapshot
    replay.changes.extend(changes)
    replay.metrics.extend(metrics)
    replay.operations.extend(operations)
    replay.moved = moved[location]
    replay.reads.extend(renumber_read(r, moved) for r in commit.reads if r.table == location)


def _gone_from(snapshots: Sequence[Snapshot]) -> Program[list[str]]:
    """The data files of these states that are gone: no replay can ever read them.

    Asked after one has failed, of as many as it takes little to ask for.
    """
    keys: list[str] = []
    for snapshot in snapshots:
        files = yield from snapshot.files()
        paths = files["path"].slice(0, _MOST_LOOKED_FOR).to_pylist()
        keys.extend(file_key(snapshot.location, path) for path in paths)
    return (yield from gone_for_good(keys))


def _gone(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return f"{keys[0]}{more}, which it needs, was deleted by another client"


def _object_gone(ref: PendingRef) -> str:
    return f"its commit object {commit_key(ref.txn, ref.hash)} was deleted by another client"


def _written_layout(
    context: Context, tail: Tail, waiting: Sequence[PendingRef], parts: Sequence[TablePart]
) -> Program[Layout]:
    """What the last of ``waiting`` made its files for.

    The log up to which it was validated, and what was decided before it and is
    not in that log.
    """
    base = min(waiting[-1].base, tail.tip)
    snapshot = yield from snapshot_at(context, tail, base)
    for part in parts:
        snapshot = snapshot.apply(part.change)
    return snapshot.layout


def _touched_reads(
    context: Context,
    head: Head,
    location: str,
    tail: Tail,
    commits: Sequence[CommitObject],
) -> Program[tuple[str, ...]]:
    """The transactions whose observed reads the foreign change touches: told, not undone.

    The log before the first foreign entry is held against the log now, without
    what is replayed: an operation that sets the same value on both would hide
    that the value it was computed from has changed.
    """
    state = head.tables[location]
    before = yield from place(context, head, location, tail, accept_hidden=False)
    base = yield from snapshot_at(context, tail, before.logged)
    old = View(location, state, Placement(before.logged, ()), (), base, base, tail.tip)
    log = tail.snapshot
    new = View(location, state, Placement(tail.tip, ()), (), log, log, tail.tip)
    net = yield from net_change(context, old, new, tail)
    touched: list[str] = []
    for commit in commits:
        for read in commit.reads:
            if read.table == location:
                verdict = yield from judge(context, old, new, net, read.where)
                if verdict is Verdict.CHANGED:
                    touched.append(commit.txn)
                    break
    return tuple(touched)


def _is_quiet(tail: Tail, published: int, application: str, *, unmoved: bool) -> bool:
    """Whether nobody need be told: the foreign entries only moved rows.

    Or changed some, and what is replayed is ``unmoved`` by that.
    """
    for version in range(published + 1, tail.tip + 1):
        entry = tail.entries.get(version)
        if entry is None:
            return False
        if application not in entry.applications and (
            (entry.change.changes_data and not unmoved) or entry.change.metadata is not None
        ):
            return False
    return True


def _successor(
    context: Context,
    held: HeldHead,
    location: str,
    tail: Tail,
    waiting: tuple[PendingRef, ...],
    commit: CommitObject,
    digest: str,
) -> Program[Head]:
    head = held.head
    page = yield from make_room(head, context.ids)
    state = head.tables[location]
    lost = yield from is_lost(context, head, location, tail)
    entries = [tail.entries.get(version) for version in range(state.published + 1, tail.tip + 1)]
    opaque = not entries or None in entries
    foreign = CommitSummary(
        head.sequence + 1,
        0,
        "foreign",
        commit.txn,
        digest,
        {
            location: Touch(
                published=max(tail.tip, -1),
                adds=True,
                removes=True,
                metadata=opaque
                or any(
                    entry.change.metadata is not None or entry.change.protocol is not None
                    for entry in entries
                    if entry is not None
                ),
                first=state.published + 1,
            )
        },
    )
    own = CommitSummary(
        head.sequence + 2,
        0,
        "reconcile",
        commit.txn,
        digest,
        {location: Touch(published=tail.tip, data_change=False)},
        replaces=tuple(ref.sequence for ref in waiting),
    )
    change = commit.tables[location].change
    pending = () if change.is_empty else (PendingRef(own.sequence, commit.txn, digest, tail.tip),)
    table = TableState(
        table_id=commit.tables[location].table_id,
        published=tail.tip,
        pending=pending,
        guarded=tail.tip >= 0 and tail.snapshot.guarded,
        # What stands in its place is nobody's here until `register` claims it: another lake may.
        dropped=state.dropped or lost or tail.tip < 0,
        format=state.format,
        catalog=state.catalog,
    )
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=(foreign, own),
        tables={location: table},
        page=page,
    )


def _tell(
    context: Context,
    location: str,
    waiting: tuple[PendingRef, ...],
    commit: CommitObject,
    replay: _Replay,
) -> None:
    context.notify(
        Event(
            "reconcile",
            commit.txn,
            f"replayed {len(waiting)} commits of {location} on a foreign change"
            + (f"; voided: {replay.voided}" if replay.voided else ""),
            {"table": location, "transactions": [ref.txn for ref in waiting]},
        )
    )
