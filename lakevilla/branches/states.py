"""The states of which refs are made, and checks that these are still kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from lakevilla.errors import LakeVillaError, StoreError, TableNotFound, VersionNotFound
from lakevilla.global_log.bases import Base, load_base_tables
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    NameMap,
    TableMap,
    TableState,
    successor,
    timestamp_of_newest,
)
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import RefEntry, RefKind, is_at
from lakevilla.global_log.repo import (
    fetch_leaves,
    load_all,
    load_tables,
    load_tables_below,
    make_room,
    rules_table,
)
from lakevilla.lake.absorb import absorb as take_in
from lakevilla.lake.absorb import moved_to
from lakevilla.lake.context import Context, Event, Tail
from lakevilla.lake.frozen.frozen import beyond
from lakevilla.lake.frozen.kept import AT_ANY_TIME, kept_by_clones, outside
from lakevilla.lake.frozen.mounts import clones_of, mounted, mounted_in_base
from lakevilla.lake.frozen.mounts import mounted as shown_by_head
from lakevilla.lake.frozen.states import called_by, that_fit, tombstones_then
from lakevilla.lake.missing_tables import near_tables
from lakevilla.lake.newer import refuse_newer_logs
from lakevilla.lake.past import Past, not_kept, past_at, view_at
from lakevilla.lake.table_log import refresh
from lakevilla.lake.tables.dropped import is_emptied
from lakevilla.lake.view import View
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program, Stat, parallel

# -------------------- states
#
# The state of which a ref is made, and whether all of it is still kept.
#
# The state of the HEAD that is replaced is kept, and so are the states of its refs. An older
# version of the lake counts as kept if all its files exist, and no vacuum that HEAD knows may
# delete them.


def now(head: Head, name: str, kind: RefKind) -> Base:
    """Return the state of a HEAD as the base of a ref, without reading any object of a table.

    All refs of the HEAD must be cached.
    """
    return Base(
        FORMAT,
        head.lake_id,
        name,
        kind,
        head.sequence,
        timestamp_of_newest(head),
        head.tables,
        head.names,
        clones=clones_of(head),
    )


def at_time(context: Context, head: Head, base: Base, timestamp_ms: int) -> Program[Base]:
    """Return the newest version up to a time; errors are those of ``at_version``."""
    version = yield from Timeline.of(head).by(timestamp_ms)
    return (yield from at_version(context, head, base, version))


def at_version(context: Context, head: Head, base: Base, version: int) -> Program[Base]:
    """Return the state of an older version of the lake.

    A table that no later commit has changed has its entry in HEAD. The state of any other table is
    read from its log, and its files are checked.

    Raises
    ------
    VersionNotFound
        The version is not kept any more, or a vacuum may be deleting files of it.
    """
    if version == head.sequence:
        return base
    past = yield from past_at(Timeline.of(head), version)
    later = yield from past.timeline.after(past.sequence)
    yield from load_tables(head)
    touched = {location for commit in later for location in commit.tables}
    changed = [place for place in past.head.tables if place in touched]
    clones = {name: one for name, one in base.clones.items() if one.since <= past.sequence}
    states = yield from parallel(
        [_kept_state(context, head, past, location, later, clones) for location in changed]
    )
    kept = {place: head.tables[place] for place in past.head.tables if place not in touched}
    own = past.head.commits[-1].timestamp_ms if past.head.commits else 0
    dropped = yield from tombstones_then(past)
    return msgspec.structs.replace(
        base,
        sequence=past.sequence,
        timestamp_ms=own,
        tables=TableMap({**dropped, **kept, **dict(zip(changed, states, strict=True))}),
        clones=clones,
    )


def chosen(base: Base, patterns: Sequence[str]) -> Program[Base]:
    """Return a base with only the tables whose name or path matches one of the patterns.

    Raises ``InvalidOperation`` if a pattern matches no table.
    """
    mounted = yield from mounted_in_base(base)
    kept = yield from fitting(base.tables, base.names, "tables", patterns, mounted)
    own = {location: base.tables[location] for location in sorted(kept) if location not in mounted}
    # Mark as dropped the tables that clones show and that were not requested, or were dropped
    # there.
    hidden = {location: one for location, one in mounted.items() if location not in kept}
    hidden |= {
        location: one for location, one in base.tables.items() if one.dropped and base.clones
    }
    ended = {
        location: msgspec.structs.replace(one, dropped=True) for location, one in hidden.items()
    }
    return msgspec.structs.replace(
        base,
        tables=TableMap({**ended, **own}),
        names=NameMap(
            {name: location for name, location in base.names.items() if location in kept}
        ),
        kept={location: kept_at for location, kept_at in base.kept.items() if location in kept},
    )


def below_source(head: Head, base: Base, source: str) -> Program[Base]:
    """Return the part of a base that a clone of ``source`` shows; it keeps no other tables.

    Raises
    ------
    TableNotFound
        There is no table at ``source`` or below it.
    """
    clones = {
        name: one for name, one in base.clones.items() if is_at(name, source) or is_at(source, name)
    }
    base = msgspec.structs.replace(
        base,
        source=source,
        names=NameMap(),
        clones=clones,
        kept={
            location: kept_at for location, kept_at in base.kept.items() if is_at(location, source)
        },
    )
    yield from load_base_tables(base, [source])
    yield from fetch_leaves(base.tables, base.tables.missing_below(f"{source}/"))
    own = (
        location
        for location in base.tables.cached()
        if is_at(location, source) and base.has(location)
    )
    if next(own, None) is None and not (yield from mounted_in_base(base)):
        yield from load_all(head)
        meant = near_tables(source, head.tables, head.names)
        raise TableNotFound(
            f"clone: there is no table at {source} or below it in global version "
            f"{base.sequence}{meant}; one that is only stored there joins the lake by `register`",
            table=source,
        )
    return base


def parted(base: Base) -> Program[Base]:
    """Return, of a base that keeps tables separately from their logs, one for a branch's commits.

    For such a table, the branch's HEAD must have as pending only the commits after the kept state,
    because a branch's programs apply all pending commits to that state.
    """
    yield from load_base_tables(base, base.kept)
    states: dict[str, TableState] = {}
    kept = dict(base.kept)
    for location in base.kept:
        state, kept_at = base.tables.get(location), base.kept_of(location)
        if state is None or kept_at is None:
            del kept[location]
            continue
        states[location] = msgspec.structs.replace(state, pending=beyond(kept_at, state))
        through = base.sequence if kept_at.through is None else kept_at.through
        kept[location] = msgspec.structs.replace(kept_at, through=through, table_id=state.table_id)
    return msgspec.structs.replace(base, tables=base.tables.updated(states), kept=kept)


def those_that_fit(head: Head, patterns: Sequence[str]) -> Program[tuple[str, ...] | None]:
    """Return the patterns that match a table of a HEAD; None if no patterns are given."""
    if not patterns:
        return None
    yield from load_all(head)
    live = [location for location, state in head.tables.items() if not state.dropped]
    live += yield from shown_by_head(head)
    called = set().union(*called_by(live, head.names).values())
    return tuple(p for p in patterns if any(fnmatchcase(name, p) for name in called))


def fitting(
    tables: TableMap,
    names: NameMap,
    argument: str,
    patterns: Sequence[str],
    mounted: Iterable[str] = (),
) -> Program[set[str]]:
    """Return the locations of the tables that match one of the patterns; errors as of ``chosen``.

    ``mounted`` are the locations of tables that clones show.
    """
    yield from fetch_leaves(tables, tables.missing())
    yield from fetch_leaves(names, names.missing())
    live = [location for location, state in tables.items() if not state.dropped]
    return that_fit(called_by([*live, *mounted], names), patterns, argument)


def _kept_state(
    context: Context,
    head: Head,
    past: Past,
    location: str,
    later: Sequence[CommitSummary],
    clones: Mapping[str, RefEntry],
) -> Program[TableState]:
    """Return the entry for HEAD of a table's older state; refuse one that may not be kept."""
    state = head.tables.get(location)
    if is_emptied(state):
        raise not_kept(past, location, "its data was deleted")
    if state is not None and state.dropped and not (yield from rules_table(location, head)):
        raise not_kept(past, location, "it was released by `unregister`")
    view = yield from view_at(context, past, location)
    _refuse_replaced(head, past, view, later)
    yield from _refuse_vacuumed(context, past, view, None if state is None else state.vacuumed_ms)
    yield from _refuse_unkept_files(context, clones, past, view)
    known = past.head.tables[location]
    return TableState(
        known.table_id,
        view.placement.logged,
        pending=view.placement.overlay,
        guarded=view.guarded,
        format=known.format,
        catalog=known.catalog,
        size=known.size,
        view=view.snapshot.is_view,
        needs=known.needs,
        kept=known.kept,
    )


def _refuse_replaced(head: Head, past: Past, view: View, later: Sequence[CommitSummary]) -> None:
    """Refuse a state with replaced pending commits: gc may delete a fenced one's files."""
    replaced = {sequence for commit in later for sequence in commit.replaces}
    for ref in view.placement.overlay:
        if ref.sequence in replaced and head.is_fenced(ref.txn):
            raise not_kept(past, view.location, f"commit {ref.sequence} was replaced since")


def _refuse_unkept_files(
    context: Context, clones: Mapping[str, RefEntry], past: Past, view: View
) -> Program[None]:
    """Refuse a state with files of other tables, unless clones in the base keep all of them.

    Only these clones are part of the base: any other ref that keeps the files may be deleted.
    """
    needed = yield from context.formats.of(view.snapshot).objects_of(view.snapshot)
    foreign = outside(context, needed)
    if not foreign:
        return
    kept = yield from kept_by_clones(context, clones, view.location)
    if not foreign <= kept:
        why = f"{min(foreign - kept)} belongs to another table, and no clone keeps it any more"
        raise not_kept(past, view.location, why)


def _refuse_vacuumed(
    context: Context, past: Past, view: View, vacuumed_ms: int | None
) -> Program[None]:
    """Refuse a state if files of it are missing, or a vacuum that HEAD knows may delete them.

    This client derives from the newest log which files that vacuum keeps, as the vacuum does. It
    uses no clock: ``vacuumed_ms`` and the times in the log are the same for both. Age limits of
    Iceberg's refs, which the vacuum compares with its own clock, keep no file here.
    """
    location = view.location
    table_format = context.formats.of(view.snapshot)
    try:
        needed = yield from table_format.objects_of(view.snapshot)
    except VersionNotFound as error:
        raise not_kept(past, location, error.message.partition("; request")[0]) from error
    tail = yield from refresh(context, location)
    named_now: Collection[str] = ()
    if tail.tip >= 0:
        newest = tail.snapshot
        if vacuumed_ms is not None:
            newest = table_format.without_expired(newest, vacuumed_ms, AT_ANY_TIME)
            kept = yield from table_format.named_objects(newest, vacuumed_ms)
            if not needed <= kept:
                raise not_kept(past, location, f"{min(needed - kept)} was vacuumed, or may be")
        named_now = yield from table_format.objects_of(newest)
    unlisted = sorted(key for key in needed if key not in named_now and "://" not in key)
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for key in unlisted])
    for key, info in zip(unlisted, infos, strict=True):
        if isinstance(info, Missing):
            raise not_kept(past, location, f"{key} was removed")


# -------------------- included
#
# Foreign commits in the logs, absorbed by the replacement of HEAD that makes a ref.
#
# So the ref shows what readers of the logs see now, and its tables' states are the newest log
# versions: it needs no older version of a log, which other clients may clean up.


#: With more tables, the ref is made from HEAD alone: reading each log would cost more than the ref
#: itself.
MOST_TABLES = 256


def with_logs(
    context: Context,
    head: Head,
    tables: Sequence[str] | None = None,
    absorb: Sequence[str] | None = None,
    below: str | None = None,
) -> Program[Head]:
    """Return the HEAD that follows ``head``, with the foreign commits in its tables' logs absorbed.

    The logs are read after ``head``. So a vacuum that replaced HEAD before keeps the files that are
    live in them, and a vacuum that replaces HEAD later sees the ref.

    Parameters
    ----------
    tables : sequence of str, optional
        Patterns of the tables that the ref must have.
    absorb : sequence of str, optional
        Patterns of the tables whose logs are read. If not given, the logs of those tables that the
        ref must have and other clients can write, unless there are more than ``MOST_TABLES``.
    below : str, optional
        The ref must have the tables at this place and below it.
    """
    if below is None:
        looked_at = yield from _looked_at(context, head, tables, absorb)
    else:
        looked_at = yield from _below(context, head, below)
    tails = yield from parallel([_log(context, location) for location in looked_at])
    yield from refuse_newer_logs(context, head, _found(tails).values())
    absorbed = yield from take_in(context, head, _found(tails))
    moved_states = {}
    for location, placement in absorbed.placements.items():
        state = head.tables[location]
        moved = moved_to(state, placement)
        if moved != state:
            moved_states[location] = moved
    page = (yield from make_room(head, context.ids)) if absorbed.commits else None
    return successor(
        head,
        nonce=context.ids.nonce(),
        now_ms=context.now_ms(),
        commits=absorbed.commits,
        tables=moved_states,
        sizes=absorbed.sizes,
        page=page,
    )


def _looked_at(
    context: Context, head: Head, tables: Sequence[str] | None, absorb: Sequence[str] | None
) -> Program[list[str]]:
    """Return the tables whose logs are read."""
    if absorb is not None:
        if not absorb:
            return []  # an empty list excludes all logs
        return sorted((yield from fitting(head.tables, head.names, "absorb", absorb)))
    if tables is not None:
        shown = yield from mounted(head)
        fit = yield from fitting(head.tables, head.names, "tables", tables, shown)
        found = sorted(fit - shown.keys())
    elif head.tables.missing() or len(head.tables) > MOST_TABLES:
        return _none(context)
    else:
        yield from load_tables(head)
        found = [location for location, state in head.tables.items() if not state.dropped]
    open_to_others = [location for location in found if not head.tables[location].guarded]
    return open_to_others if len(open_to_others) <= MOST_TABLES else _none(context)


def _below(context: Context, head: Head, location: str) -> Program[list[str]]:
    yield from load_tables(head, [location])
    yield from load_tables_below(head, f"{location}/")
    there = [one for one in head.tables.cached() if is_at(one, location)]
    states = {one: head.tables[one] for one in sorted(there)}
    open_to_others = [p for p, one in states.items() if not (one.dropped or one.guarded)]
    return open_to_others if len(open_to_others) <= MOST_TABLES else _none(context)


def _none(context: Context) -> list[str]:
    context.notify(
        Event(
            "left_out",
            None,
            f"the ref has more than {MOST_TABLES} tables, so no log was read: commits of other "
            "clients since a transaction last wrote a table are not in it; absorb= names the "
            "tables whose logs are read",
            {"tables": MOST_TABLES},
        )
    )
    return []


def _log(context: Context, location: str) -> Program[Tail | None]:
    """Return a table's present log; None, and an event, if it can't be read."""
    try:
        return (yield from refresh(context, location))
    except StoreError:
        raise
    except LakeVillaError as error:
        context.notify(
            Event(
                "left_out",
                None,
                f"table {location} is in the ref in the state that HEAD names, since its log "
                f"can't be read: {error.message}",
                {"table": location, "reason": error.message},
            )
        )
        return None


def _found(tails: Iterable[Tail | None]) -> dict[str, Tail]:
    return {tail.location: tail for tail in tails if tail is not None and tail.tip >= 0}
