"""A table's log as this process knows it: the tip, and the entries just before it.

That a log lacks an entry with some number does not prove that the log ends there (design, section
9): log clean-up deletes old entries. If a client creates an entry in the place of a deleted one,
the creation succeeds, but no client sees the entry. So a known tip counts only if this process has
read it, or a later one, within the hour; after that, the process lists the log again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import TypeVar

from lakevilla.errors import CorruptObject, LakeVillaError, TableNotFound, VersionNotFound
from lakevilla.formats.base import Entry, FormatName, TableFormat, TableSnapshot
from lakevilla.global_log.bases import kept_for, load_base
from lakevilla.global_log.head import TableState, application_id
from lakevilla.global_log.refs import KeptTable
from lakevilla.global_log.repo import load_all, load_tables
from lakevilla.lake.context import Context, Tail
from lakevilla.lake.kept_state import kept_snapshot
from lakevilla.lake.missing_tables import missing_table, near_tables
from lakevilla.store.effects import Program, parallel, some_at_once

T = TypeVar("T")

#: The number of tables whose logs stay in memory when a program reads all tables.
_FEW_TABLES = 256
#: The number of entries that are requested in one round.
_AT_ONCE = 64
#: The number of new entries from which on to open the log again costs fewer requests.
_FAR = 64
#: The log retention below which the design requires a LIST instead of a GET.
_SHORT_SECONDS = 2 * 3600.0


def known_tail(context: Context, location: str) -> Tail | None:
    """Return the cached tail if it still counts, as far as no request is needed; else None."""
    tail = context.tails.get(location)
    if tail is None or context.is_anothers(tail):
        return None
    if context.epoch:
        return tail
    age = context.clock.elapsed() - tail.seen_at
    return tail if age < context.settings.trusted_tip_seconds else None


def open_tail(context: Context, location: str, *, missing_ok: bool = False) -> Program[Tail]:
    """Return a table's tail: the cached one if it still counts, else by LIST; don't probe it.

    Raises
    ------
    TableNotFound
        There is no log, unless ``missing_ok``: then the tip is -1.
    """
    if context.epoch:
        return (yield from _tail_on_branch(context, location, missing_ok=missing_ok))
    yield from load_noted(context, location)
    tail = known_tail(context, location)
    name, catalog = _kind(context, location)
    blank = name or context.expected.get(location) or _decided_format(context, location)
    if tail is not None and (tail.tip >= 0 or (missing_ok and tail.snapshot.format == blank)):
        return tail
    started = context.clock.elapsed()
    try:
        at_least = _tip_in_head(context, location)
        snapshot = yield from context.formats.open(location, location, name, catalog, at_least)
    except TableNotFound:
        if catalog or (name and not missing_ok):
            raise  # a catalog can lose a table all of whose files exist
        if not missing_ok:
            raise (yield from missing_table(context, location)) from None
        snapshot = context.formats[blank].blank(location, location, catalog=catalog)
    old = context.tails.get(location)
    if (
        old is not None
        and old.tip == snapshot.version
        and old.tip >= 0
        and old.snapshot.table_id == snapshot.table_id
    ):
        tail = Tail(location, old.tip, old.snapshots, old.entries, started)
    else:
        newest = snapshot.newest
        tail = Tail(
            location,
            snapshot.version,
            {snapshot.version: snapshot},
            # The tip is mostly the lake's own last commit: placing the table then costs no request.
            {} if newest is None else {newest.version: newest},
            seen_at=started,
        )
    return context.keep_tail(tail)


def _kind(context: Context, location: str) -> tuple[FormatName | None, str]:
    """Return the table's format and its pointer in a catalog, by the newest known HEAD.

    A table that was dropped from the lake is still in its catalog. If the user has named a table by
    its catalog, ``context.catalogs`` has its pointer before HEAD has the table.
    """
    state = noted(context, location)
    if state is not None and (state.catalog or not state.dropped):
        return state.format, state.catalog
    catalog = context.catalogs.get(location, "")
    return "iceberg" if catalog else None, catalog


def _decided_format(context: Context, location: str) -> FormatName:
    """Return the format that a table without a log will have, by HEAD's entry; else Delta.

    The entry counts also if the table was dropped before its creation was published.
    """
    state = noted(context, location)
    return "delta" if state is None else state.format


def noted(context: Context, location: str) -> TableState | None:
    """Return the newest known HEAD's entry for a table, even for one that was dropped."""
    tables = None if context.held is None else context.held.head.tables
    return None if tables is None or tables.missing([location]) else tables.get(location)


def load_noted(context: Context, location: str) -> Program[None]:
    """Load the newest known HEAD's entry for a table.

    Without the entry a client knows neither whether a cached log is still that of HEAD's table, nor
    where to find a log that is not cached.
    """
    held = context.held
    while held is not None:
        if not held.head.tables.missing([location]):
            return
        try:
            yield from load_tables(held.head, [location])
        except VersionNotFound:
            # This process has not read HEAD for so long that gc has deleted the leaf.
            yield from context.head()
            if context.held is held:
                raise
        held = context.held  # another thread may have read a newer HEAD


def probe(context: Context, tail: Tail) -> Program[Tail]:
    """Read the log's entries after the tip until a number is absent: one GET if none is new.

    The entries that HEAD knows to exist, and the number after them, are requested in one round. If
    clean-up may delete an entry within two hours, an absent number never proves that the log ends
    there, and the log is listed each time. On a branch a log does not advance.

    Where more than ``_FAR`` entries are new, the log is opened as by a client that does not know
    it, and the entries in between are not read: that takes as many requests after any time.
    """
    if context.epoch:
        return tail
    listed = None
    if is_cleaned_up_soon(context, tail):
        listed = yield from _opened_again(context, tail)
    known, foreign, beyond, may_open = tail, False, 0, listed is None
    while True:
        started = context.clock.elapsed()
        behind = _tip_in_head(context, tail.location) - tail.tip
        if may_open and max(behind, beyond) > _FAR:
            # HEAD may have become known meanwhile: it is requested in the same round.
            version = _tip_in_head(context, tail.location) if behind > 0 else None
            tail, may_open = (yield from _opened_newer(context, tail, version)), False
        # The entries that HEAD knows; and above them more, the more were found.
        last = max(tail.tip, _tip_in_head(context, tail.location)) + max(1, beyond)
        numbers = range(tail.tip + 1, last + 1)[:_AT_ONCE]
        try:
            entries: list[Entry | None] = yield from parallel(
                [_format(context, tail).entry(tail.snapshot, number) for number in numbers]
            )
        except TableNotFound:
            return (yield from opened_again(context, tail))
        except VersionNotFound:
            # An entry can't be read any more: the newest state includes its changes.
            listed = yield from _opened_again(context, tail)
            break
        there = list(takewhile(lambda entry: entry is not None, entries))
        for entry in there:
            assert entry is not None
            foreign = foreign or not entry.txn_ids
            tail = _advanced(context, tail, entry, started)
            beyond += tail.tip > _tip_in_head(context, tail.location)
        if len(there) < len(entries):
            break
    if listed is not None and listed.version > tail.tip:
        # Clean-up has deleted entries after the known tip: the tip that the LIST showed counts.
        started = context.clock.elapsed()
        return context.keep_tail(
            Tail(tail.location, listed.version, {listed.version: listed}, seen_at=started)
        )
    if foreign and (yield from _is_another_table(context, known)):
        return (yield from opened_again(context, tail))
    return context.keep_tail(tail)


def _opened_newer(context: Context, tail: Tail, version: int | None) -> Program[Tail]:
    """Return the log as opened by a client that does not know it: at a version that HEAD knows to
    exist, or (None) at its newest.

    All versions above a tail that counts are younger than an hour, so clean-up has left them. If no
    newer state of the same table is found, return ``tail``: the entries will show why.
    """
    started = context.clock.elapsed()
    if tail.tip < 0 or tail.snapshot.catalog:
        return tail
    try:
        if version is None:
            opened = yield from _opened_again(context, tail)
        else:
            opened = yield from _format(context, tail).open_at(
                tail.location, tail.location, version
            )
    except (TableNotFound, VersionNotFound, CorruptObject):
        return tail
    if opened.version <= tail.tip or opened.table_id != tail.snapshot.table_id:
        return tail
    entries = dict(tail.entries)
    if opened.newest is not None:
        entries[opened.newest.version] = opened.newest
    return Tail(tail.location, opened.version, {opened.version: opened}, entries, seen_at=started)


def next_entry(context: Context, tail: Tail) -> Program[Tail]:
    """Return the tail, extended by the next entry if that exists: one GET.

    If one GET does not suffice, as when the next entry is not the lake's own, call ``probe``.
    """
    if (
        context.epoch
        or tail.tip < 0
        or tail.snapshot.catalog
        or is_cleaned_up_soon(context, tail)
        or _tip_in_head(context, tail.location) > tail.tip
    ):
        return (yield from probe(context, tail))
    started = context.clock.elapsed()
    try:
        entry = yield from _format(context, tail).entry(tail.snapshot, tail.tip + 1)
    except (TableNotFound, VersionNotFound):
        return (yield from probe(context, tail))
    if entry is None:
        return tail
    if not entry.txn_ids:
        return (yield from probe(context, tail))
    return context.keep_tail(_advanced(context, tail, entry, started))


def in_passing(context: Context, location: str, read: Program[T]) -> Program[T]:
    """Run ``read`` on a table, for a program that reads all tables, and then forget its log.

    A log that was cached before stays cached. So does any log while few logs are cached, because
    the next program may need it.
    """
    was_known = location in context.tails
    try:
        return (yield from read)
    finally:
        if not was_known and len(context.tails) > _FEW_TABLES:
            context.tails.pop(location, None)


def opened_again(context: Context, tail: Tail) -> Program[Tail]:
    """Forget the known log, which is another table's, and return the tail of the present log."""
    context.tails.pop(tail.location, None)
    return (yield from open_tail(context, tail.location, missing_ok=True))


def _opened_again(context: Context, tail: Tail) -> Program[TableSnapshot]:
    catalog = tail.snapshot.catalog
    return (yield from _format(context, tail).open(tail.location, tail.location, catalog=catalog))


def is_cleaned_up_soon(context: Context, tail: Tail) -> bool:
    """Return whether clean-up may delete entries of the log within two hours of their creation."""
    if tail.tip < 0:
        return False
    return _format(context, tail).log_retention_seconds(tail.snapshot) < _SHORT_SECONDS


def _format(context: Context, tail: Tail) -> TableFormat:
    return context.formats.of(tail.snapshot)


def _advanced(context: Context, tail: Tail, entry: Entry, seen_at: float) -> Tail:
    return tail.extended(entry, _format(context, tail).advance(tail.snapshot, entry), seen_at)


def _tip_in_head(context: Context, location: str) -> int:
    """Return the version up to which the newest known HEAD knows the log's entries; -1 if none."""
    state = _state(context, location)
    return -1 if state is None else state.published


def _pending(context: Context, tail: Tail) -> int:
    state = _state(context, tail.location)
    return 0 if state is None else len(state.pending)


def _state(context: Context, location: str) -> TableState | None:
    state = noted(context, location)
    return None if state is None or state.dropped else state


def _is_another_table(context: Context, tail: Tail) -> Program[bool]:
    """Return whether another client made the table again, with a longer log than the known one.

    An entry never changes under its number. So if the entry at the known tip has changed, the log
    belongs to another table, with all entries that were found after it. ``probe`` checks this after
    it has read the new entries; the next ``probe`` finds what is added later. The check costs a
    request, so it is made only if new entries are foreign; a table that LakeVilla has created again
    has another id in HEAD.
    """
    known = tail.entries.get(tail.tip)
    if known is None:
        return False
    try:
        entry = yield from _format(context, tail).entry(tail.snapshot, tail.tip)
    except VersionNotFound:
        return True  # unknown: count it as another table's, so that the log is opened again
    return entry is not None and entry != known


def is_made_again(context: Context, location: str) -> Program[bool]:
    """Return whether another client deleted the known log or made a new one; if so, forget it.

    Callers check this only after an error: it costs a LIST and a round of reads. If the present log
    can't be read, return False.
    """
    tail, past = context.tails.get(location), context.past_states.pop(location, None)
    if tail is None and past is not None:
        tail = Tail(location, past.version, {past.version: past})
    if tail is None or tail.tip < 0 or context.epoch:
        return False
    try:
        now = yield from _opened_again(context, tail)
    except TableNotFound:
        made_again = True
    except LakeVillaError:
        return False
    else:
        made_again = now.version < tail.tip or now.table_id != tail.snapshot.table_id
    if made_again:
        context.tails.pop(location, None)
    return made_again


def forget_if_gone(context: Context, location: str) -> Program[None]:
    """Forget a known log whose newest known entry does not exist any more: one GET.

    A probe for the next entry would not find that out.
    """
    tail = context.tails.get(location)
    if tail is None or tail.tip < 0 or context.epoch:
        return
    if (yield from kept_entry(context, tail, tail.tip)) is None:
        context.tails.pop(location, None)


def refresh(context: Context, location: str) -> Program[Tail]:
    """Return the table's tail as of now: by one GET if the known tip still counts, else by LIST."""
    if context.epoch:
        return (yield from _tail_on_branch(context, location, missing_ok=True))
    yield from load_noted(context, location)
    tail = known_tail(context, location)
    if tail is None:
        return (yield from open_tail(context, location, missing_ok=True))
    return (yield from probe(context, tail))


def look_above(
    context: Context, location: str, *, head_is_newest: bool = False, most: int = _AT_ONCE
) -> Program[bool]:
    """Check a log for entries that HEAD does not know: one GET if there are none.

    Unlike ``refresh``, skip the entries that HEAD knows: validation may not need them. Return
    whether the log has a commit of the lake that the newest known HEAD does not know. If so, the
    known HEAD is old: the caller reads HEAD and calls again with ``head_is_newest``, and then all
    entries are read. The first round requests at most ``most`` entries for the pending commits: one
    entry may hold many commits.
    """
    if context.epoch:
        return False
    tail = known_tail(context, location)
    if tail is None or is_cleaned_up_soon(context, tail):
        yield from refresh(context, location)
        return False
    started = context.clock.elapsed()
    tip_in_head = _tip_in_head(context, tail.location)
    first = max(tail.tip, tip_in_head) + 1
    # HEAD lags behind publishing: commits that are pending in HEAD mostly are in the log by now.
    last = first if tip_in_head < first - 1 else first + min(_pending(context, tail), most)
    numbers = range(first, last + 1)
    try:
        entries: list[Entry | None] = yield from parallel(
            [_format(context, tail).entry(tail.snapshot, number) for number in numbers]
        )
    except (TableNotFound, VersionNotFound):
        yield from probe(context, tail)
        return False
    head = None if context.held is None else context.held.head
    for entry in entries:
        if entry is None:
            return False
        sequence = None if head is None else entry.applications.get(application_id(head))
        if head is None or sequence is None:
            break
        if entry.version == tail.tip + 1:
            # No entry in between is missing: publishing need not read this one again.
            tail = _advanced(context, tail, entry, started)
            context.keep_tail(tail)
        if sequence > head.sequence and not head_is_newest:
            return True
    yield from probe(context, tail)
    return False


def entry_at(context: Context, tail: Tail, version: int) -> Program[Entry | None]:
    """Return an entry at or below the tip; None if it can no longer be read."""
    assert 0 <= version <= tail.tip, (version, tail.tip)
    known = tail.entries.get(version)
    if known is not None:
        return known
    entry = yield from kept_entry(context, tail, version)
    if entry is not None:
        _keep(context, tail, {version: entry})
    return entry


def entries_at(
    context: Context, tail: Tail, versions: Iterable[int]
) -> Program[list[Entry | None]]:
    """Return entries like ``entry_at``; request all that are not cached in one round."""
    wanted = list(versions)
    missing = [version for version in wanted if version not in tail.entries]
    read = yield from some_at_once(kept_entry(context, tail, version) for version in missing)
    found = {entry.version: entry for entry in read if entry is not None}
    if found:
        _keep(context, tail, found)
    known = {**tail.entries, **found}
    return [known.get(version) for version in wanted]


def first_entry(
    context: Context,
    tail: Tail,
    versions: range,
    is_wanted: Callable[[Entry | None], bool],
) -> Program[tuple[int, Entry | None] | None]:
    """Return the first version with a wanted entry, and the entry; None if there is none.

    ``is_wanted`` is called for each version in order, with None for an entry that can't be read any
    more. The first round requests one entry, and each further round four times as many, since the
    first one is mostly wanted.
    """
    width = 1
    while versions:
        some, versions = versions[:width], versions[width:]
        entries = yield from entries_at(context, tail, some)
        for version, entry in zip(some, entries, strict=True):
            if is_wanted(entry):
                return version, entry
        width = min(4 * width, _AT_ONCE)
    return None


def _keep(context: Context, tail: Tail, found: dict[int, Entry]) -> None:
    """Cache entries of a tail's log, unless another log is in its place by now."""
    current = context.tails.get(tail.location, tail)
    if current.tip >= max(found) and _is_same_log(current, tail):
        below = {v: e.described_alone() if v < current.tip else e for v, e in found.items()}
        entries = {**current.entries, **below}
        context.keep_tail(dataclasses.replace(current, entries=entries))


def kept_entry(context: Context, tail: Tail, version: int) -> Program[Entry | None]:
    """Return an entry, read from the store; None if it was cleaned up or is damaged.

    The state at the tip was read without this entry: so a damaged entry does no more harm than one
    that was cleaned up.
    """
    try:
        return (yield from _format(context, tail).entry(tail.snapshot, version))
    except (VersionNotFound, CorruptObject):
        return None


def snapshot_at(context: Context, tail: Tail, version: int) -> Program[TableSnapshot]:
    """Return the table's own state at a version at or below the tip."""
    known = tail.snapshots.get(version)
    if known is not None:
        return known
    catalog = tail.snapshot.catalog
    if version == -1:
        return _format(context, tail).blank(tail.location, tail.location, catalog=catalog)
    try:
        snapshot = yield from _format(context, tail).open_at(
            tail.location, tail.location, version, catalog=catalog
        )
    except TableNotFound as error:
        raise VersionNotFound(
            f"table {tail.location} has no version {version}: {error.message}", table=tail.location
        ) from error
    keep_states(context, tail, {version: snapshot})
    return snapshot


def load_snapshots(context: Context, tail: Tail, versions: Iterable[int]) -> Program[None]:
    """Cache the table's own states at several versions, which ``snapshot_at`` then returns.

    They are read together, so that states after the same checkpoint share its content. A state that
    can't be read is left out: for it, ``snapshot_at`` raises an error.
    """
    missing = {v for v in versions if 0 <= v <= tail.tip and v not in tail.snapshots}
    if len(missing) < 2 or tail.snapshot.catalog:
        return
    table_format = _format(context, tail)
    found = yield from table_format.open_several(tail.location, tail.location, missing)
    keep_states(context, tail, found)


def keep_states(context: Context, tail: Tail, found: Mapping[int, TableSnapshot]) -> None:
    """Cache states of a tail's log, unless another log is in its place by now."""
    current = context.tails.get(tail.location, tail)
    if found and _is_same_log(current, tail):
        snapshots = {**current.snapshots, **found}
        context.keep_tail(dataclasses.replace(current, snapshots=snapshots))


def rebase(context: Context, state: TableSnapshot) -> None:
    """Derive the cached states of a log from ``state``, which is one of them and needs less memory.

    Cached states of older versions are forgotten, since they would keep that memory in use.
    """
    location, table_format = state.location, context.formats.of(state)
    tail = context.tails.get(location)
    if tail is None or tail.tip < state.version or tail.snapshot.table_id != state.table_id:
        return
    snapshots = {state.version: state}
    for version in range(state.version + 1, tail.tip + 1):
        entry = tail.entries.get(version)
        if entry is None:
            return
        state = snapshots[version] = table_format.advance(state, entry)
    context.keep_tail(dataclasses.replace(tail, snapshots=snapshots))


def _is_same_log(current: Tail, tail: Tail) -> bool:
    """Return whether both are logs of the same table.

    If a table was created again, entries and states of the old log are not cached for the new one.
    """
    return current.snapshot.table_id == tail.snapshot.table_id


def _tail_on_branch(context: Context, location: str, *, missing_ok: bool) -> Program[Tail]:
    """Return a table's log as far as a branch has it; the tip is -1 for a table created there.

    Commits on a branch are not published, and entries that clients append to the tables' logs do
    not belong to the branch. So for the branch's programs a log ends with the version that the
    branch's base knew.

    Raises
    ------
    TableNotFound
        The branch has no such table, unless ``missing_ok``.
    VersionNotFound
        Another client's clean-up has deleted a part of the log that the branch needs.
    """
    held = context.held
    assert held is not None, "a branch is opened by its HEAD"
    head, epoch = held.head, held.head.epoch
    assert epoch is not None, "a context with a life has that branch's HEAD"
    yield from load_tables(head, [location])
    state = head.tables.get(location)
    if state is None and not missing_ok:
        yield from load_all(head)
        meant = near_tables(location, head.tables, head.names)
        raise TableNotFound(
            f"table {location} is not on branch {epoch.name!r}: it was not in the lake at global "
            f"version {epoch.base.sequence}, from which the branch was created{meant}; "
            f"`rebase({epoch.name!r})` on the lake adds tables that have joined it since",
            table=location,
        )
    return (yield from tail_at_state(context, location, state))


def tail_at_state(context: Context, location: str, state: TableState | None) -> Program[Tail]:
    """Return a table's log as far as a branch's state has it; ``state`` None: it lacks the table.

    Raises
    ------
    VersionNotFound
        Another client's clean-up has deleted a part of the log that the branch needs.
    """
    known = context.tails.get(location)
    kept = None if state is None else (yield from _kept_by_base(context, location, state))
    if kept is not None:
        assert state is not None
        if known is not None and known.tip == state.published:
            return known
        snapshot = yield from kept_snapshot(context, location, state, kept)
        return context.keep_tail(Tail(location, state.published, {state.published: snapshot}))
    if state is None or state.published < 0:
        format_name = context.expected.get(location, "delta") if state is None else state.format
        if known is not None and known.tip < 0 and known.snapshot.format == format_name:
            return known
        blank = context.formats[format_name].blank(location, location)
        return context.keep_tail(Tail(location, -1, {-1: blank}))
    assert context.held is not None, "a branch is opened by its HEAD"
    epoch = context.held.head.epoch
    assert epoch is not None, "a context with a life has that branch's HEAD"
    if known is not None and known.tip == state.published:
        return known
    try:
        snapshot = yield from context.formats[state.format].open_at(
            location, location, state.published, catalog=state.catalog
        )
    except (TableNotFound, VersionNotFound) as error:
        yield from context.refuse_ended()
        why = error.message.partition("; request")[0].partition(": request")[0]
        raise VersionNotFound(
            f"table {location} can't be read on branch {epoch.name!r} any more: {why}; the "
            "clean-up of other clients does not know branches (docs/branches.md lists what each "
            "of them keeps)",
            table=location,
        ) from error
    return context.keep_tail(Tail(location, state.published, {state.published: snapshot}))


def _kept_by_base(context: Context, location: str, state: TableState) -> Program[KeptTable | None]:
    """Return where the branch's base keeps a table's state, if separate from the table's log."""
    epoch = None if context.held is None else context.held.head.epoch
    if epoch is None or not epoch.separate_bases:
        return None
    base = yield from load_base(epoch.base)
    return kept_for(base.kept, location, state)
