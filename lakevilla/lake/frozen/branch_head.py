"""The HEAD of a branch, as the lake's HEAD names it (docs/design/0031-branches.md)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lakevilla.errors import CorruptObject, RefNotFound
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import HEAD_KEY, timestamp_of_newest
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import KeptTable, RefEntry
from lakevilla.global_log.repo import HeldHead, load_head, load_refs
from lakevilla.lake.frozen.mounts import clones_of
from lakevilla.lake.past import changed_on_branch
from lakevilla.store.codec import FORMAT
from lakevilla.store.effects import Program
from lakevilla.store.location import at_home, key_at


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch by its name in the lake's HEAD, and by its own HEAD."""

    name: str
    entry: RefEntry
    held: HeldHead


def load_branch(name: str, entry: RefEntry) -> Program[HeldHead]:
    """Return the HEAD of a branch that the lake's HEAD names; the branch may be closed.

    Raises
    ------
    CorruptObject
        The HEAD is missing, damaged, or another branch's.
    """
    key = key_at(entry.epoch, HEAD_KEY)
    remedy = f"restore it from a copy, or delete_ref({name!r})"
    try:
        held = yield from at_home(entry.epoch, load_head())
    except CorruptObject as error:
        message = f"the HEAD of branch {name!r}: {error.message.partition('; ')[0]}; {remedy}"
        raise CorruptObject(message, key=key) from error
    if held is None:
        raise CorruptObject(
            f"{key} is missing although the lake has branch {name!r}: {remedy}", key=key
        )
    epoch = held.head.epoch
    if epoch is None or epoch.id != entry.epoch or epoch.ref_id != entry.id:
        raise CorruptObject(
            f"{key} is not the HEAD of branch {name!r}: it was replaced by hand; {remedy}", key=key
        )
    refuse_set_back(name, entry, held)
    yield from load_refs(held.head)
    return held


def refuse_set_back(name: str, entry: RefEntry, held: HeldHead) -> None:
    """Raise ``CorruptObject`` where a branch's HEAD is older than the lake has seen it."""
    if held.head.replacement < entry.reached:
        key = key_at(entry.epoch, HEAD_KEY)
        raise CorruptObject(
            f"{key} (version {held.head.sequence} of branch {name!r}, replacement "
            f"{held.head.replacement}) was set back, as by an old backup: the lake has seen "
            f"replacement {entry.reached} of it; restore the newest copy of it, or "
            f"delete_ref({name!r}) to end the branch",
            key=key,
        )


def open_branch(name: str, entry: RefEntry) -> Program[Branch]:
    """Return a branch that has not ended. Raises ``RefNotFound``, and as ``load_branch``.

    A branch that is being rebased shows its last state, which no client changes any more.
    """
    held = yield from load_branch(name, entry)
    if has_ended(held):
        raise ended(name)
    return Branch(name, entry, held)


def frozen_now(branch: Branch) -> Program[Base]:
    """Return what a branch shows, as a base. Its refs, which are clones, are cached."""
    head = branch.held.head
    kept: dict[str, KeptTable] = {}
    if head.epoch is not None and head.epoch.separate_bases:
        kept = (yield from load_base(head.epoch.base)).kept
    return Base(
        FORMAT,
        head.lake_id,
        branch.name,
        "branch",
        head.sequence,
        timestamp_of_newest(head),
        head.tables,
        head.names,
        epoch=branch.entry.epoch,
        kept=kept,
        origin=branch.entry.epoch,
        clones=clones_of(head),
    )


def branch_at(branch: Branch, version: int) -> Program[Base]:
    """Return what a branch showed at a version of its own. Runs at the branch's home.

    Raises ``VersionNotFound``.
    """
    timeline = Timeline.of(branch.held.head)
    timeline.check(version)
    base = yield from timeline.base()
    own = yield from timeline.at(version)
    changed = yield from changed_on_branch(timeline, version)
    shown = yield from frozen_now(branch)
    return msgspec.structs.replace(
        shown,
        sequence=version,
        timestamp_ms=base.timestamp_ms if own is None else own.timestamp_ms,
        tables=base.tables.updated(changed),
    )


def is_closed(held: HeldHead) -> bool:
    """Return whether this epoch of a branch takes no commits any more."""
    return held.head.epoch is not None and bool(held.head.epoch.closed)


def has_ended(held: HeldHead) -> bool:
    """Return whether the branch was deleted."""
    return held.head.epoch is not None and held.head.epoch.closed == "deleted"


def has_moved(held: HeldHead) -> bool:
    """Return whether the branch continues in another epoch, which may not have been made yet."""
    return held.head.epoch is not None and held.head.epoch.closed == "moved"


def ended(name: str) -> RefNotFound:
    """Return the error for a branch that is being deleted."""
    return RefNotFound(f"branch {name!r} was deleted: check `refs()`")
