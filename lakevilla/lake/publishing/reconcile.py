"""Reconciling: perform a decided commit again that a foreign writer has made unfit.

The commit is decided, so it can't be undone; it does not fit the log, so it can't be published
unchanged. One replacement of HEAD puts a ``reconcile`` commit in place of the unfit commit and of
all pending ones after it: it has the result of their operations, performed again. A ``foreign``
commit before it stands for the changes of the foreign writer; other transactions validate against
the difference of the two states (``row_changes.net_change``).

Any number of clients may reconcile at once: only one of them replaces HEAD, and the others then
find no unfit commit any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lakevilla.formats.base import Change
from lakevilla.formats.sizes import NOTHING, UNKNOWN, Size, growth_by_others, growth_of, size_from
from lakevilla.global_log.commits import CommitObject, TablePart
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
from lakevilla.lake.applicability import first_unfit, is_lost, refuse_shorter_log, unpublished
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.publishing.replay_pending import (
    NONE_REJECTED,
    Replay,
    is_among,
    replay_pending,
)
from lakevilla.lake.table_log import forget_if_gone, open_tail, probe
from lakevilla.store.base import Stored
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program

_MAX_ATTEMPTS = 50


def reconcile(
    context: Context,
    location: str,
    *,
    lost: Collection[tuple[str, str]] = (),
    rejected: Mapping[tuple[str, str], str] = NONE_REJECTED,
    gives_up: bool = False,
) -> Program[Head | None]:
    """Reconcile a table whose first pending commit is unfit; return the HEAD to continue with.

    ``lost`` are the commits (txn, hash) whose objects were deleted: they are cancelled. So are
    those that the table's catalog has ``rejected``, with the reasons. ``gives_up``: see
    ``publish_table``.

    None if HEAD could not be replaced in the attempts allowed.
    """
    for _ in range(_MAX_ATTEMPTS):
        held = yield from context.head()
        if held is None:
            return None
        head = held.head
        yield from load_tables(head, [location])
        state = head.tables.get(location)
        # A known log may be gone by now, with the files of a commit that would be void for that.
        yield from forget_if_gone(context, location)
        tail = yield from open_tail(context, location, missing_ok=True)
        tail = yield from probe(context, tail)
        waiting = unpublished(head, location, tail)
        if state is None or not waiting:
            return head
        if not gives_up:
            yield from refuse_shorter_log(context, head, location, tail)
        commits = yield from decided(context, head, location, waiting, lost)
        parts = [commit.tables[location] for commit in commits]
        unfit = yield from first_unfit(context, head, location, tail, waiting, parts)
        if unfit != 0 and not (tail.tip < 0 and is_among(waiting[0], lost)):
            return head
        commit, digest, replay = yield from replay_pending(
            context, head, location, tail, waiting, commits, lost, rejected
        )
        undone = _undone(parts, waiting, lost)
        new = yield from _successor(context, held, location, tail, waiting, commit, digest, undone)
        outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            context.remember(HeldHead(new, outcome.token))
            _tell(context, location, waiting, commit, replay)
            return new
        # Another HEAD was stored first. If no HEAD names our commit object, gc deletes its files
        # once its id is fenced.
    return None


def decided(
    context: Context,
    head: Head,
    location: str,
    waiting: Sequence[PendingRef],
    lost: Collection[tuple[str, str]],
) -> Program[list[CommitObject]]:
    """Return the objects of pending commits; for a lost one, an object without operations."""
    state = head.tables[location]
    commits = []
    for ref in waiting:
        if is_among(ref, lost):
            part = TablePart(state.table_id, Change(), created=state.published < 0)
            commits.append(CommitObject(FORMAT, "", ref.txn, {location: part}))
        else:
            commits.append((yield from context.commit_object(ref.txn, ref.hash)))
    return commits


def _undone(
    parts: Sequence[TablePart], waiting: Sequence[PendingRef], lost: Collection[tuple[str, str]]
) -> Size:
    """Return the change of the table's size if all pending commits were undone."""
    if any(is_among(ref, lost) for ref in waiting):
        return UNKNOWN  # the object was deleted, so the commit's changes are unknown
    return sum((-growth_of(part.change) for part in parts), NOTHING)


def _successor(
    context: Context,
    held: HeldHead,
    location: str,
    tail: Tail,
    waiting: tuple[PendingRef, ...],
    commit: CommitObject,
    digest: str,
    undone: Size,
) -> Program[Head]:
    head = held.head
    page = yield from make_room(head, context.ids)
    state = head.tables[location]
    lost = yield from is_lost(context, head, location, tail)
    foreign = CommitSummary(
        head.sequence + 1,
        0,
        "foreign",
        commit.txn,
        digest,
        {location: _by_others(tail, state.published, application_id(head))},
    )
    change = commit.tables[location].change
    growth = undone + growth_of(change)
    own = CommitSummary(
        head.sequence + 2,
        0,
        "reconcile",
        commit.txn,
        digest,
        {location: Touch(published=tail.tip, data_change=False, grown=growth)},
        replaces=tuple(ref.sequence for ref in waiting),
    )
    pending = () if change.is_empty else (PendingRef(own.sequence, commit.txn, digest, tail.tip),)
    table = TableState(
        table_id=commit.tables[location].table_id,
        published=tail.tip,
        pending=pending,
        guarded=tail.tip >= 0 and tail.snapshot.guarded,
        # If another table is at this location now, it is in no lake until a lake registers it.
        dropped=state.dropped or lost or tail.tip < 0,
        format=state.format,
        catalog=state.catalog,
        released_by=state.released_by,
        view=tail.tip >= 0 and tail.snapshot.is_view,
    )
    known = size_from(tail.snapshot.known_size()) + growth_of(change)
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=(foreign, own),
        tables={location: table},
        page=page,
        sizes={location: known} if known.is_exact else None,
    )


def _by_others(tail: Tail, published: int, application: str) -> Touch:
    """Return the foreign changes of the table since ``published``; if unknown, any change."""
    entries = [tail.entries.get(version) for version in range(published + 1, tail.tip + 1)]
    known = [entry.change for entry in entries if entry is not None]
    is_opaque = not entries or len(known) < len(entries)
    # The growth by the lake's own entries was added in HEAD when they were decided.
    others = [one for one in entries if one is not None and application not in one.applications]
    grown = sum((growth_by_others(one.change) for one in others), NOTHING)
    return Touch(
        published=max(tail.tip, -1),
        adds=True,
        removes=True,
        metadata=is_opaque
        or any(change.metadata is not None or change.protocol is not None for change in known),
        first=published + 1,
        grown=UNKNOWN if is_opaque else grown,
    )


def _tell(
    context: Context,
    location: str,
    waiting: tuple[PendingRef, ...],
    commit: CommitObject,
    replay: Replay,
) -> None:
    context.notify(
        Event(
            "reconcile",
            commit.txn,
            f"replayed {len(waiting)} commits of {location} on a foreign change"
            + (f"; cancelled: {replay.voided}" if replay.voided else ""),
            {"table": location, "transactions": [ref.txn for ref in waiting]},
        )
    )
