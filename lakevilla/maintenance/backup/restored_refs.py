"""The tags and branches of a restored lake."""

from __future__ import annotations

import msgspec

from lakevilla.branches.branches import LeftAsIs, Next, following, put_first, until_replaced
from lakevilla.branches.change import delete_ref, protect
from lakevilla.branches.rebase import Wanted, moved_to
from lakevilla.errors import CorruptObject, TableNotFound, VersionNotFound
from lakevilla.global_log.bases import Base, load_base, seal_base, store_base
from lakevilla.global_log.head import Head, NameMap, TableMap, TableState, with_refs
from lakevilla.global_log.refs import KeptTable, RefEntry, new_epoch
from lakevilla.global_log.repo import HeldHead, load_refs, load_tables, store_leaves_of
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.states import SeenBase
from lakevilla.maintenance.backup.manifest import SavedRef, StateRef
from lakevilla.maintenance.backup.restored_states import RestoredStates, keep_state
from lakevilla.results import Finding
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program, parallel


def pin_main(context: Context, states: RestoredStates, name: str) -> Program[None]:
    """Make a tag of the lake's own state in the backup, which keeps its files until tables do.

    A commit may bring back only files that HEAD keeps.
    """
    manifest = states.manifest
    saved = SavedRef(
        name,
        "tag",
        manifest.sequence,
        manifest.created_ms,
        context.now_ms(),
        "restore",
        states.tables(),
        manifest.names,
    )
    yield from _restored(context, states, saved)


def restore_refs(context: Context, states: RestoredStates) -> Program[list[Finding]]:
    """Make the tags and branches that the lake lacks, and those that need logs which are lost.

    Any other ref that has the name of one in the backup stays as it is: a branch may have gone on.
    """
    findings = []
    for saved in states.manifest.refs:
        is_lost = _needs_lost_logs(states, saved) or (yield from _is_unreadable(context, saved))
        if is_lost and saved.kind == "branch":
            yield from _end_lost(context, saved)
        if not (yield from _restored(context, states, saved, again=is_lost)):
            message = (
                f"{saved.kind} {saved.name!r} is in the lake, and stays as it is: delete_ref it "
                "and restore again for that of the backup"
            )
            findings.append(Finding("note", "ref_kept", message))
    return findings


def _needs_lost_logs(states: RestoredStates, saved: SavedRef) -> bool:
    """Return whether a table of a ref was made anew, so that its state is not in a log any more."""
    tables = (saved.tables, saved.since)
    return any(
        location in states.remade and states.id_of(location, state) != state.table_id
        for some in tables
        for location, state in some.items()
    )


def _is_unreadable(context: Context, saved: SavedRef) -> Program[bool]:
    """Return whether the lake's ref of this name needs a log that another client made anew."""
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head, [saved.name])
    entry = None if head is None else head.refs.get(saved.name)
    if entry is None:
        return False
    try:
        state = SeenBase((yield from load_base(entry.base)), context)
        yield from state.views(context, sorted((yield from state.tables())))
    except (CorruptObject, TableNotFound, VersionNotFound):
        return True
    return False


def _end_lost(context: Context, saved: SavedRef) -> Program[None]:
    """End a branch that is in the backup, if it is the same, and is based on logs that are lost."""
    held = yield from context.head()
    head = None if held is None else held.head
    yield from load_refs(head, [saved.name])
    entry = None if head is None else head.refs.get(saved.name)
    if entry is None or not (yield from _is_lost(saved, entry, head)):
        return
    if entry.protected:
        yield from protect(context, saved.name, on=False)
    yield from delete_ref(context, saved.name)


def _restored(
    context: Context, states: RestoredStates, saved: SavedRef, *, again: bool = False
) -> Program[bool]:
    """Make one ref; return whether the lake had none of its name.

    ``again``: also if the lake has the same tag, which is based on logs that are lost.
    """
    tried: set[str] = set()

    def step(held: HeldHead | None, entry: RefEntry | None) -> Program[LeftAsIs[bool] | Next[bool]]:
        assert held is not None, "the restore has stored a HEAD"
        if entry is not None and entry.id in tried:
            return LeftAsIs(True)
        replaces = again and saved.kind == "tag" and entry is not None
        if entry is not None and not (replaces and (yield from _is_lost(saved, entry, held.head))):
            return LeftAsIs(False)
        new = following(context, held)
        made = yield from _stored(context, states, saved, held.head, new.replacement)
        tried.add(made.id)
        return Next(with_refs(new, {saved.name: made}), True)

    return (yield from until_replaced(context, saved.name, step))


def _is_lost(saved: SavedRef, entry: RefEntry, head: Head | None) -> Program[bool]:
    """Return whether a ref in HEAD is that of the backup, as it was before the restore."""
    if (entry.kind, entry.created_ms) != (saved.kind, saved.created_ms) or head is None:
        return False
    try:
        base = yield from load_base(entry.base)
    except (CorruptObject, VersionNotFound):
        return True
    return base.lake_id != head.lake_id


def _stored(
    context: Context, states: RestoredStates, saved: SavedRef, head: Head, made: int
) -> Program[RefEntry]:
    """Store the base of a ref, and for a branch its HEAD, with the changes made on the branch."""
    epoch = new_epoch(made, context.ids.nonce())
    is_branch = saved.kind == "branch"
    tables = saved.since if is_branch else saved.tables
    base = yield from _base(states, saved, head, epoch, tables)
    yield from store_leaves_of([base.tables, base.names], made)
    ref, body = seal_base(base, made)
    yield from store_base(ref, body)
    entry = RefEntry(
        f"{made}-{context.ids.nonce()[:16]}",
        saved.kind,
        ref,
        saved.created_ms,
        saved.created_by,
        protected=saved.protected,
        metadata=saved.metadata,
        epochs=(epoch,),
        only=saved.only,
    )
    if not is_branch:
        return entry
    shown = yield from _base(states, saved, head, epoch, saved.tables)
    shown = msgspec.structs.replace(shown, tables=_compared(base, shown, saved))
    moved = yield from moved_to(
        context,
        entry,
        base,
        ref,
        SeenBase(base, context),
        SeenBase(shown, context),
        Wanted({}, verb="RESTORE"),
    )
    yield from parallel([put_first(epoch, moved.head), *moved.uploads])
    return _with_epochs(entry, moved.epochs, epoch)


def _compared(base: Base, shown: Base, saved: SavedRef) -> TableMap:
    """Return the entries of a branch's state so that they tell what differs from its base.

    A comparison opens only tables with other entries. One that was made on the branch has no log,
    and a tombstone says that one was dropped there. No object has these entries: the branch's HEAD
    gets a commit with the changes.
    """
    entries = dict(shown.tables.items())
    for location, state in entries.items():
        if location not in saved.since:
            entries[location] = msgspec.structs.replace(state, published=-1)
        elif saved.since[location].hash != saved.tables[location].hash:
            entries[location] = msgspec.structs.replace(state, published=state.published + 1)
    for location, state in base.tables.items():
        if location not in entries:
            entries[location] = msgspec.structs.replace(state, dropped=True)
    return TableMap(entries)


def _with_epochs(entry: RefEntry, named: frozenset[str], epoch: str) -> RefEntry:
    """Return the entry of a branch that names files in the directories of earlier epochs."""
    return msgspec.structs.replace(entry, epochs=(*sorted(named - {epoch}), epoch))


def _base(
    states: RestoredStates,
    saved: SavedRef,
    head: Head,
    epoch: str,
    tables: dict[str, StateRef],
) -> Program[Base]:
    """Return a state of a ref as a base whose tables are all kept separately from their logs."""
    yield from load_tables(head, tables)
    kept: dict[str, KeptTable] = {}
    entries: dict[str, TableState] = {}
    through = saved.sequence if saved.kind == "branch" else None
    for location, state in sorted(tables.items()):
        kept[location] = yield from keep_state(states, epoch, location, state, through)
        now = head.tables.get(location)
        table_id = states.id_of(location, state)
        is_it = now is not None and now.table_id == table_id
        published = max(now.published, 0) if now is not None and is_it else 0
        entries[location] = TableState(table_id, published, format=state.format, view=state.view)
    return Base(
        FORMAT,
        head.lake_id,
        saved.name,
        saved.kind,
        saved.sequence,
        saved.timestamp_ms,
        TableMap(entries),
        NameMap(saved.names),
        epoch=epoch,
        kept=kept,
    )
