"""Past states of a lake."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from lakevilla.errors import CorruptObject, TableNotFound, VersionNotFound
from lakevilla.formats.base import Entry, FormatName, TableSnapshot
from lakevilla.formats.sizes import Size
from lakevilla.global_log.bases import load_base_tables
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import (
    HEAD_KEY,
    CommitSummary,
    Head,
    PendingRef,
    TableMap,
    TableState,
    Touch,
    application_id,
)
from lakevilla.global_log.history import KnownHead, Timeline
from lakevilla.global_log.repo import is_forgotten, load_commit, load_tables
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.table_log import (
    entry_at,
    first_entry,
    keep_states,
    kept_entry,
    open_tail,
    probe,
    snapshot_at,
    tail_at_state,
)
from lakevilla.lake.view import Placement, View, build_view, pending_parts
from lakevilla.store.effects import Program, parallel

# -------------------- past
#
# The past: each table's state at a global version, and the content of each commit of the lake.
#
# A table's state at version s is log[..published] and the pending commits, as HEAD named them then.
# The present HEAD names neither, but both can be derived (docs/design/0007-history.md). The first
# commit after s that touches the table shows up to which version the lake had included the log
# before. The lake's ``txn`` action in the log there shows which decided commits that part of the
# log holds. The other decided commits are laid over it from their commit objects. Nothing here
# writes.
#
# On a branch nothing is published, so logs do not advance: its past is the state that the branch
# was made from, and the commits since, all of which its epoch keeps (note 31).


@dataclass(frozen=True, slots=True)
class Past:
    """The lake at one global version, derived from the HEAD ``known``, which is at least as new.

    ``head`` is the HEAD of that version, as far as it is known without a read of a log: in its
    table map, the log up to ``published`` is part of the state, and ``pending`` is empty;
    ``view_at`` finds the pending commits. ``known`` is None for a version of a branch.
    """

    timeline: Timeline
    head: Head
    known: KnownHead | None = None

    @property
    def sequence(self) -> int:
        return self.head.sequence

    def load_now(self, locations: Collection[str] | None = None) -> Program[None]:
        """Load these tables (or all) of the newest HEAD."""
        yield from load_tables(self.timeline.head, locations)


def past_at(
    timeline: Timeline, sequence: int, only: Collection[str] | None = None
) -> Program[Past]:
    """Return the lake at ``sequence``; with ``only``, the part of it that concerns these tables.

    Raises
    ------
    VersionNotFound
        The version is not kept any more, or does not exist yet.
    """
    now = timeline.head
    check_known(timeline, sequence)
    sequence = yield from timeline.settled(sequence)
    known: KnownHead | None = None
    if now.epoch is not None:
        tables = yield from _tables_on_branch(timeline, sequence, only)
    else:
        known = yield from timeline.known_after(sequence)
        if known.is_now:
            yield from load_tables(now, only)
        tables = tables_before(known.tables, known.after(sequence), only)
    own = yield from timeline.at(sequence)
    head = msgspec.structs.replace(
        now,
        sequence=sequence,
        tables=TableMap(tables),
        commits=() if own is None else (own,),
        pages=(),
        reserved=(),
    )
    return Past(timeline, head, known)


def check_known(timeline: Timeline, sequence: int) -> None:
    """Refuse a global version whose state is not known.

    Raises
    ------
    VersionNotFound
    """
    now = timeline.head
    if sequence < now.rebuilt:
        first = max(now.rebuilt, now.history_start)
        raise VersionNotFound(
            f"global version {sequence} is older than the rebuild of {HEAD_KEY}: the lake's "
            f"history begins with version {first}; request that one or a newer one"
        )
    timeline.check(sequence)
    if sequence < now.adopted:
        raise VersionNotFound(
            f"global version {sequence} is of the lake that this one was copied from: its states "
            f"are known here from version {now.adopted} on, where it was adopted"
        )


def _tables_on_branch(
    timeline: Timeline, sequence: int, only: Collection[str] | None
) -> Program[dict[str, TableState]]:
    """Return the tables of a branch at a version, including their ``pending`` commits."""
    base = yield from timeline.base()
    yield from load_base_tables(base, only)
    changed = yield from changed_on_branch(timeline, sequence, only)
    locations = dict.fromkeys([*base.tables, *changed]) if only is None else only
    states = {location: changed.get(location, base.tables.get(location)) for location in locations}
    return {p: state for p, state in states.items() if state is not None and not state.dropped}


def changed_on_branch(
    timeline: Timeline, sequence: int, only: Collection[str] | None = None
) -> Program[dict[str, TableState]]:
    """Return the tables that were changed on a branch up to a version, in their state at it.

    If HEAD has one commit object in place of many pending ones, that object is used unless it
    includes later commits.
    """
    now = timeline.head
    assert now.epoch is not None, "it is a branch's"
    if not now.epoch.begins_with_base:
        return (yield from _as_it_is(now, sequence, only))
    base = yield from timeline.base()
    commits = yield from timeline.after(now.history_start)
    until = [commit for commit in commits if commit.sequence <= sequence]
    touched = {place for one in until for place in one.tables if only is None or place in only}
    yield from parallel([load_base_tables(base, touched), load_tables(now, touched)])
    found: dict[str, TableState] = {}
    pending: dict[str, list[PendingRef]] = {}
    for commit in until:
        for location in touched.intersection(commit.tables):
            touch = commit.tables[location]
            state = found.get(location, base.tables.get(location))
            if touch.left is not None and state is not None:
                state = msgspec.structs.replace(state, dropped=True, pending=())
                pending[location] = []
            if touch.entered is not None:
                known = now.tables.get(location)
                state = TableState(touch.entered, touch.published)
                if known is not None and known.table_id == touch.entered:
                    state = msgspec.structs.replace(
                        state, format=known.format, needs=known.needs, kept=known.kept
                    )
                else:
                    state = yield from _made_as(state, location, commit, now.home)
                pending[location] = []
            if state is None:
                continue
            found[location] = state
            own = pending.setdefault(location, list(state.pending))
            if not state.dropped and (touch.adds or touch.removes or touch.metadata):
                ref = PendingRef(
                    commit.sequence, commit.txn, commit.hash, touch.published, now.home
                )
                own.append(ref)
    later = commits[len(until) :]
    return {
        location: _as_in_head(now.tables.get(location), state, location, pending[location], later)
        for location, state in found.items()
    }


def _as_it_is(
    now: Head, sequence: int, only: Collection[str] | None
) -> Program[dict[str, TableState]]:
    """Return the tables of a branch's newest version, after a rebase was interrupted."""
    assert now.epoch is not None, "it is a branch's"
    if sequence != now.sequence:
        raise VersionNotFound(
            f"branch {now.epoch.name!r}: version {sequence} is not known, as a rebase of the "
            f"branch was interrupted since; request the newest, {now.sequence}"
        )
    yield from load_tables(now, only)
    states = {
        location: now.tables.get(location) for location in (now.tables if only is None else only)
    }
    return {location: state for location, state in states.items() if state is not None}


def _made_as(
    state: TableState, location: str, commit: CommitSummary, epoch: str
) -> Program[TableState]:
    """Return a table in the format of its creation: HEAD has another table at this location."""
    made = yield from load_commit(commit.txn, commit.hash, epoch)
    metadata = made.tables[location].change.metadata or {}
    kind: FormatName = "delta" if "schemaString" in metadata else "iceberg"
    return msgspec.structs.replace(state, format=kind)


def _as_in_head(
    now: TableState | None,
    state: TableState,
    location: str,
    pending: Sequence[PendingRef],
    later: Sequence[CommitSummary],
) -> TableState:
    """Return a table's state before the commits in ``later``.

    Its pending commits are those in HEAD that are not later, and the further ones in ``pending``.
    """
    known: tuple[PendingRef, ...] = ()
    size = None
    if now is not None and now.table_id == state.table_id and not state.dropped:
        known = _no_later(now.pending, later)
        size = _size_before(now, location, later)
    last = known[-1].sequence if known else -1
    rest = (ref for ref in pending if ref.sequence > last)
    changed = max([state.changed, *(ref.sequence for ref in pending)])
    return msgspec.structs.replace(state, pending=(*known, *rest), size=size, changed=changed)


def _no_later(
    pending: Sequence[PendingRef], later: Sequence[CommitSummary]
) -> tuple[PendingRef, ...]:
    """Return the pending commits before the first of the later commits."""
    first = later[0].sequence if later else None
    return tuple(ref for ref in pending if first is None or ref.sequence < first)


def tables_before(
    now: TableMap, later: Sequence[CommitSummary], only: Collection[str] | None
) -> dict[str, TableState]:
    """Return the tables (``only`` these, if given) that were in the lake before ``later``.

    ``later`` has commits, oldest first. The tables' leaves in ``now`` must be cached.
    """
    logged: dict[str, int] = {}
    ids: dict[str, str | None] = {}
    for commit in later:
        for location, touch in commit.tables.items():
            if only is not None and location not in only:
                continue
            logged.setdefault(location, _logged_before(touch))
            if touch.left is not None or touch.entered is not None:
                ids.setdefault(location, touch.left)
    for location in now if only is None else only:
        state = now.get(location)
        if state is None:
            continue
        logged.setdefault(location, state.published)
        ids.setdefault(location, None if state.dropped else state.table_id)
    return {
        location: _state_before(now, location, table_id, logged[location], later)
        for location, table_id in sorted(ids.items())
        if table_id is not None
    }


def _state_before(
    now: TableMap, location: str, table_id: str, published: int, later: Sequence[CommitSummary]
) -> TableState:
    state = now.get(location)
    if state is None:
        return TableState(table_id, published)
    touches = [one.tables[location] for one in later if location in one.tables]
    is_same = not any(touch.metadata or touch.entered or touch.left for touch in touches)
    return TableState(
        table_id,
        published,
        guarded=state.guarded and is_same,
        format=state.format,
        catalog=state.catalog,
        size=_size_before(state, location, later),
        changed=state.changed if not later or state.changed < later[0].sequence else 0,
        view=state.view,
        needs=state.needs,
        kept=state.kept,
    )


def _size_before(state: TableState, location: str, later: Sequence[CommitSummary]) -> Size | None:
    """Return the table's size before the commits in ``later``, by subtracting their growth."""
    size = state.size
    for commit in later:
        touch = commit.tables.get(location)
        if size is None or touch is None:
            continue
        if touch.left is not None or touch.entered is not None:
            return None
        size += -touch.growth
    return None if size is None or size.is_unknown else size.possible


def _logged_before(touch: Touch) -> int:
    """Return a log version that HEAD had included before a commit.

    If the commit absorbed foreign entries, this is the version before the ``first`` of them. All
    other entries up to ``published`` are the lake's own, of commits that were decided before.
    """
    return touch.published if touch.first is None else touch.first - 1


def view_at(context: Context, past: Past, location: str) -> Program[View]:
    """Return a table's state at a global version.

    Raises
    ------
    TableNotFound
        The table was not in the lake at that version.
    VersionNotFound
        The table's log, or a commit that was pending then, is not kept any more.
    """
    state = past.head.tables.get(location)
    if state is None or state.dropped:
        yield from open_tail(context, location)  # a wrong name raises an error with near names
        raise TableNotFound(
            f"table {location} was not in the lake at global version {past.sequence}: choose a "
            "version at which it was",
            table=location,
        )
    try:
        if past.head.epoch is not None:
            tail = yield from tail_at_state(context, location, state)
            return (yield from build_view(context, past.head, location, tail))
        try:
            return (yield from _view(context, past, location, state))
        except VersionNotFound:
            derived = yield from _by_newest(past, location)
            if derived is None:
                raise
            return (yield from _view(context, derived, location, derived.head.tables[location]))
    except VersionNotFound as error:
        # ``not_kept`` names the only remedy, a newer global version: cut others off the reason.
        why = error.message.partition("; request")[0].partition(": request")[0]
        raise not_kept(past, location, why) from error


def _view(context: Context, past: Past, location: str, state: TableState) -> Program[View]:
    """Return the view for ``view_at``; its errors state only the reason, without a remedy."""
    whole = yield from _alone(context, past, location, state)
    if whole is not None:
        return _viewed(location, state, state.published, whole, state.published)
    tail = yield from open_tail(context, location, missing_ok=True)
    if tail.tip < state.published:
        tail = yield from probe(context, tail)
    if tail.tip < state.published:
        raise VersionNotFound(f"its log ends at version {tail.tip}")
    known = context.past_states.pop(location, None)
    if known is not None and known.version <= tail.tip and known.table_id == tail.snapshot.table_id:
        keep_states(context, tail, {known.version: known})
        tail = context.tails.get(location, tail)
    opening = snapshot_at(context, tail, state.published)
    whole = yield from _whole_in_log(past, location, state.published, opening)
    if whole is not None:
        return _viewed(location, state, state.published, whole, tail.tip)
    application = application_id(past.head)
    logged, done, probed = state.published, None, False
    entry: Entry | None = None
    while True:
        if logged < tail.tip:
            # Before a state is read, walk to the last entry that has only commits of that time: the
            # state at an earlier entry may not be kept any more.
            entry = yield from entry_at(context, tail, logged + 1)
            sequence = None if entry is None else entry.applications.get(application)
            if sequence is not None and sequence <= past.sequence:
                logged, done, entry = logged + 1, sequence, None
                continue
        base = yield from snapshot_at(context, tail, logged)
        if done is None:
            done = base.application_version(application)
        waiting = yield from _decided(past, location, -1 if done is None else done)
        if not waiting or logged < tail.tip or probed:
            break
        tail, probed = (yield from probe(context, tail)), True
    if past.head.history_start:
        yield from _refuse_replaced(past, location, -1 if done is None else done)
        if tail.snapshot.application_version(application) != done:
            yield from _refuse_forgotten(context, past, tail, logged, waiting)
    overlay, parts = yield from _parts(context, waiting, location)
    return _viewed(location, state, logged, base, tail.tip, overlay, parts)


def _viewed(
    location: str,
    state: TableState,
    logged: int,
    base: TableSnapshot,
    tip: int,
    overlay: tuple[PendingRef, ...] = (),
    parts: tuple[TablePart, ...] = (),
) -> View:
    snapshot = base
    for part in parts:
        snapshot = snapshot.apply(part.change)
    if snapshot.table_id != state.table_id:
        raise VersionNotFound(
            f"the table was dropped and created again since (id {state.table_id} then, id "
            f"{snapshot.table_id} now)"
        )
    return View(location, state, Placement(logged, overlay), parts, base, snapshot, tip)


def _alone(
    context: Context, past: Past, location: str, state: TableState
) -> Program[TableSnapshot | None]:
    """Return the log's state at ``published`` if that is all, and no log of the table was read yet.

    A client that needs one old state reads that one alone, and not the newest. One that needs more
    of them reads the newest, too, which shows where the log ends. None where any doubt is left.
    """
    if location in context.tails or state.published < 0:
        return None
    known = context.past_states.get(location)
    if known is not None and (known.version, known.table_id) != (state.published, state.table_id):
        return None
    opening = _opened_alone(context, location, state) if known is None else _given(known)
    return (yield from _whole_in_log(past, location, state.published, opening))


def _opened_alone(context: Context, location: str, state: TableState) -> Program[TableSnapshot]:
    try:
        found = yield from context.formats[state.format].open_at(
            location, location, state.published, catalog=state.catalog
        )
    except TableNotFound as error:
        raise VersionNotFound(error.message, table=location) from error
    if found.table_id != state.table_id:
        raise VersionNotFound("another table is at the location", table=location)
    context.past_states[location] = found
    return found


def _given(state: TableSnapshot) -> Program[TableSnapshot]:
    yield from ()
    return state


def _whole_in_log(
    past: Past, location: str, logged: int, opening: Program[TableSnapshot]
) -> Program[TableSnapshot | None]:
    """Return the log's state at ``logged`` if it has all commits up to the version; else None.

    Then no entry after it needs to be read. If the log has none of the forgotten commits after it,
    none of them was pending. The state is read only if the table's last commit known up to the
    version was validated against an earlier one, so that its entry may be in it.
    """
    assert past.known is not None, "a branch's states have their pending commits"
    own = [c for c in past.known.commits if c.sequence <= past.sequence and location in c.tables]
    if own and own[-1].tables[location].published >= logged:
        return None
    try:
        base = yield from opening
    except (VersionNotFound, CorruptObject):
        return None  # a later state may be kept
    done = base.application_version(application_id(past.head))
    if done is None or done < max(past.head.adopted, past.head.history_start):
        return None
    return None if (yield from _decided(past, location, done)) else base


def _by_newest(past: Past, location: str) -> Program[Past | None]:
    """Return the table at the version as it follows from the newest HEAD; None if it does already.

    The HEAD of a page may name a state of the log that has been cleaned up since, where the newest
    HEAD leads to a later log version that shows the same. And it does not say what gc has deleted.
    """
    if past.known is None or past.known.is_now:
        return None
    known = yield from past.timeline.newest_known(past.sequence)
    yield from past.load_now([location])
    found = tables_before(known.tables, known.after(past.sequence), [location])
    head = msgspec.structs.replace(past.head, tables=TableMap(found))
    return Past(past.timeline, head, known) if location in found else None


def _decided(past: Past, location: str, published: int) -> Program[list[PendingRef]]:
    """Return the table's commits up to the version that are above ``published``, in order.

    Commits that a ``reconcile`` commit up to the version has replaced are left out. All commits
    from before the lake's adoption are left out, too: they were published before the adoption.
    """
    assert past.known is not None, "a branch's states have their pending commits"
    start = max(published, past.head.adopted, past.head.history_start)
    if start >= past.sequence:
        return []
    later = past.known.after(past.sequence)
    state = past.known.tables.get(location)
    if state is not None and not any(location in commit.tables for commit in later):
        # Until that HEAD nothing has happened to the table, so it has what was pending.
        return [ref for ref in state.pending if start < ref.sequence <= past.sequence]
    commits, pending = yield from _commits_until(past, location, start)
    so_far = [c for c in commits if location in c.tables]
    replaced = {sequence for commit in so_far for sequence in commit.replaces}
    refs = [_as_pending(c, location) for c in so_far if c.hash and c.kind != "foreign"]
    return [ref for ref in (*pending, *refs) if ref.sequence not in replaced]


def _as_pending(commit: CommitSummary, location: str) -> PendingRef:
    return PendingRef(commit.sequence, commit.txn, commit.hash, commit.tables[location].published)


def _commits_until(
    past: Past, location: str, start: int
) -> Program[tuple[Sequence[CommitSummary], list[PendingRef]]]:
    """Return the commits after ``start`` up to the version, and what of them was pending before.

    If many commits are between, they are read only from an earlier HEAD on, which names those that
    were pending in it: all others up to it were in the log that the version includes.
    """
    known, timeline = past.known, past.timeline
    assert known is not None, "a branch's states have their pending commits"
    commits = list(known.commits)
    first = past.sequence + 1 if known.first is None else known.first
    while start + 1 < first:
        earlier = yield from timeline.described(first - 1)
        if earlier is None or earlier.first is None:
            return (yield from timeline.between(start, past.sequence)), []
        state = earlier.tables.get(location)
        last = earlier.commits[-1].sequence
        if last <= past.sequence:
            since = [c for c in commits if last < c.sequence <= past.sequence]
            touches = [c.tables[location] for c in since if location in c.tables]
            if state is None or any(t.left or t.entered for t in touches):
                return (yield from timeline.between(start, past.sequence)), []
            return since, [ref for ref in state.pending if start < ref.sequence]
        commits[:0] = [c for c in earlier.commits if c.sequence < first]
        first = earlier.first
    return [c for c in commits if start < c.sequence <= past.sequence], []


def _next_own(
    context: Context, tail: Tail, logged: int, last: int, application: str
) -> Program[Entry | None]:
    """Return the lake's first log entry above ``logged``; foreign entries may be in between."""
    found = yield from first_entry(
        context,
        tail,
        range(logged + 1, min(last, tail.tip) + 1),
        lambda entry: entry is None or application in entry.applications,
    )
    return None if found is None else found[1]


def _refuse_forgotten(
    context: Context, past: Past, tail: Tail, logged: int, waiting: Sequence[PendingRef]
) -> Program[None]:
    """Refuse a version if a commit that was pending at it is not known any more.

    gc may have deleted the object of a commit that was still pending at this version, if it was
    published much later. The lake's next log entry shows that: it names a commit that is neither
    in the history after this version, nor known as pending at it. If the version is derived from a
    HEAD of its time, entries above those that HEAD included hold only what was pending in it.
    """
    known = past.known
    assert known is not None
    last = tail.tip
    if not known.is_now:
        state = known.tables.get(tail.location)
        last = -1 if state is None else state.published
    following = yield from _next_own(context, tail, logged, last, application_id(past.head))
    if following is None:
        return
    txns = {ref.txn for ref in waiting} | {one.txn for one in known.after(past.sequence)}
    if not txns.issuperset(following.txn_ids):
        raise VersionNotFound("what was pending then is forgotten")


def _refuse_replaced(past: Past, location: str, published: int) -> Program[None]:
    """Refuse a version if a later ``reconcile`` commit has replaced a commit that is forgotten.

    That commit was pending at this version, and the log does not show its changes. A HEAD of that
    time that is older than the ``reconcile`` commit has it as pending.
    """
    yield from ()
    assert past.known is not None
    start = past.head.history_start
    state = past.known.tables.get(location)
    pending = () if state is None or past.known.is_now else state.pending
    later = past.known.after(past.sequence)
    replaced = [n for commit in later if location in commit.tables for n in commit.replaces]
    waiting = [ref.sequence for ref in pending if ref.sequence > published]
    if any(sequence <= start for sequence in (*replaced, *waiting)):
        raise VersionNotFound("what was pending then is forgotten")


def _parts(
    context: Context, waiting: Sequence[PendingRef], location: str
) -> Program[tuple[tuple[PendingRef, ...], tuple[TablePart, ...]]]:
    overlay, parts = [], []
    objects = yield from parallel([recorded(context, ref) for ref in waiting])
    for ref, found in zip(waiting, objects, strict=True):
        part = found.tables.get(location)
        if part is not None and not part.change.is_empty:
            overlay.append(ref)
            parts.append(part)
    return tuple(overlay), tuple(parts)


def recorded(context: Context, commit: CommitSummary | PendingRef) -> Program[CommitObject]:
    """Return the object of a commit that is kept.

    Raises
    ------
    VersionNotFound
        gc has deleted it meanwhile.
    """
    try:
        return (yield from context.commit_object(commit.txn, commit.hash))
    except CorruptObject:
        if (yield from is_forgotten(commit.sequence)):
            raise VersionNotFound(
                f"global version {commit.sequence} is not kept any more: request a newer one",
                txn_id=commit.txn,
            ) from None
        raise


def not_kept(past: Past, location: str, why: str) -> VersionNotFound:
    return VersionNotFound(
        f"table {location} is not kept as of global version {past.sequence}: {why}; request a "
        "newer version",
        table=location,
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A commit in the lake's history; ``commit`` is None if its content is in tables' logs."""

    summary: CommitSummary
    commit: CommitObject | None


def recorded_commits(
    context: Context, limit: int | None, last: int | None = None
) -> Program[list[Recorded]]:
    """Return the newest commits, up to ``last`` if given, newest first; objects in one round."""
    held = yield from context.head()
    if held is None:
        return []
    summaries = yield from Timeline.of(held.head).newest(limit, last)
    found = yield from recorded_objects(context, summaries)
    return [
        Recorded(summary, found.get(summary.sequence))
        for summary in summaries
        # A commit whose object gc has deleted meanwhile is not part of the history any more.
        if found.get(summary.sequence, summary) is not None
    ]


def recorded_objects(
    context: Context, summaries: Sequence[CommitSummary]
) -> Program[dict[int, CommitObject | None]]:
    """Return the objects of commits by sequence, in one round; None for those gc has deleted."""
    named = [summary for summary in summaries if summary.hash and summary.kind != "foreign"]
    objects = yield from parallel([_kept_object(context, summary) for summary in named])
    return {s.sequence: commit for s, commit in zip(named, objects, strict=True)}


def _kept_object(context: Context, summary: CommitSummary) -> Program[CommitObject | None]:
    try:
        return (yield from recorded(context, summary))
    except VersionNotFound:
        return None


def table_entries(
    context: Context,
    location: str,
    limit: int | None,
    last: int | None = None,
    *,
    changes: bool = True,
) -> Program[list[Entry]]:
    """Return the table's log entries up to ``last``, newest first, as far back as kept.

    Without ``changes`` an entry may lack its changes, where the newest state describes the rest of
    it without a request.
    """
    tail = yield from open_tail(context, location)
    tail = yield from probe(context, tail)
    found: list[Entry] = []
    version = tail.tip if last is None else min(last, tail.tip)
    oldest = -1 if limit is None else max(-1, version - limit)
    known: Mapping[int, Entry] = {}
    if not changes and tail.tip >= 0:
        table_format = context.formats.of(tail.snapshot)
        known = table_format.described(tail.snapshot, range(oldest + 1, version + 1))
    width = 1
    while version > oldest:
        wanted = range(version, max(oldest, version - width), -1)
        missing = [v for v in wanted if v not in known]
        read = yield from parallel([kept_entry(context, tail, v) for v in missing])
        entries = {**known, **dict(zip(missing, read, strict=True))}
        for entry in [entries[v] for v in wanted]:
            if entry is None:
                return found  # the log was cleaned up from here on back
            found.append(entry)
        version = wanted[-1] - 1
        width = min(width * 4, _MOST_AT_ONCE)
    return found


#: The number of log entries that are requested in one round.
_MOST_AT_ONCE = 64


# -------------------- pinned
#
# A table's state as a note that another process can open: a log version, and the commits over it.
#
# Log entries and commit objects never change. So a note means the same rows as long as their files
# are kept, whatever is committed meanwhile.


class Pin(msgspec.Struct, frozen=True):
    """A note that identifies a table's state: log[..logged], and decided commits laid over it.

    ``catalog`` is the key of the pointer that leads to the log of a table in a catalog.
    """

    location: str
    table_id: str
    logged: int
    overlay: tuple[PendingRef, ...] = ()
    catalog: str = ""


def pin(view: View) -> Pin:
    """Return the note for a state that has no uncommitted changes of a transaction."""
    logged, overlay = view.placement.logged, view.placement.overlay
    shown = view.snapshot
    return Pin(view.location, shown.table_id, logged, overlay, shown.catalog)


def pinned(context: Context, pin: Pin) -> Program[TableSnapshot]:
    """Return the state that a note identifies.

    Raises
    ------
    VersionNotFound
        The state is not kept any more, or another table has the location by now.
    """
    if pin.catalog:
        context.catalogs.setdefault(pin.location, pin.catalog)
    snapshot = yield from _opened(context, pin)
    if snapshot.table_id != pin.table_id:
        # The cached log may be that of an earlier table.
        context.tails.pop(pin.location, None)
        snapshot = yield from _opened(context, pin)
    if snapshot.table_id != pin.table_id:
        raise VersionNotFound(
            f"table {pin.location} was created again since it was loaded: load it again",
            table=pin.location,
        )
    return snapshot


def _opened(context: Context, pin: Pin) -> Program[TableSnapshot]:
    tail = yield from open_tail(context, pin.location, missing_ok=True)
    if tail.tip < pin.logged:
        tail = yield from probe(context, tail)
    if tail.tip < pin.logged:
        raise VersionNotFound(
            f"the log of table {pin.location} ends at version {tail.tip}, and it was loaded at "
            f"version {pin.logged}: load it again",
            table=pin.location,
        )
    snapshot = yield from snapshot_at(context, tail, pin.logged)
    try:
        parts = yield from pending_parts(context, pin.location, pin.overlay)
    except CorruptObject as error:
        # gc has deleted a commit object, long after its publication: the log has the commit's
        # changes, but not this state.
        raise VersionNotFound(
            f"table {pin.location} is not kept as it was loaded: {error.message}; load it again",
            table=pin.location,
        ) from error
    for part in parts:
        snapshot = snapshot.apply(part.change)
    return snapshot
