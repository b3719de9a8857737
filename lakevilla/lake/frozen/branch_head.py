"""The HEAD of a branch, found by its entry in the lake's HEAD (docs/design/0031-branches.md)."""

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
    """A branch: its name, its entry in the lake's HEAD, and its own HEAD."""

    name: str
    entry: RefEntry
    held: HeldHead


def load_branch(name: str, entry: RefEntry) -> Program[HeldHead]:
    """Return the HEAD of a branch that the lake's HEAD names; the branch may be closed.

    Raises
    ------
    CorruptObject
        The HEAD is missing, damaged, or that of another branch.
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
    """Raise ``CorruptObject`` if a branch's HEAD is older than ``reached`` in the lake's HEAD."""
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
    """Return a branch; raise ``RefNotFound`` if it was deleted, or the errors of ``load_branch``.

    A branch that is being rebased is returned with the last state of its old epoch.
    """
    held = yield from load_branch(name, entry)
    if has_ended(held):
        raise ended(name)
    return Branch(name, entry, held)


def frozen_now(branch: Branch) -> Program[Base]:
    """Return a branch's present state as a base. Its refs, which are clones, must be cached."""
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
    """Return a branch's state at one of its versions, as a base. Run this at the branch's home.

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
    """Return whether no client can commit in this epoch of a branch any more."""
    return held.head.epoch is not None and bool(held.head.epoch.closed)


def has_ended(held: HeldHead) -> bool:
    """Return whether the branch was deleted."""
    return held.head.epoch is not None and held.head.epoch.closed == "deleted"


def has_moved(held: HeldHead) -> bool:
    """Return whether the branch continues in another epoch, which may not exist yet."""
    return held.head.epoch is not None and held.head.epoch.closed == "moved"


def ended(name: str) -> RefNotFound:
    """Return the error for a branch that was deleted."""
    return RefNotFound(f"branch {name!r} was deleted: check `refs()`")
