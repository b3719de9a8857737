"""Planted bugs of clones (docs/design/0039-clones.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.branches import clones as ending
from lakevilla.global_log import bases
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.frozen import kept, mounts
from lakevilla.lake.frozen import kept as still_kept
from lakevilla.lake.tables import overlaps as mount_places
from lakevilla.store.effects import Program, parallel
from lakevilla.transaction.redo import rebase
from lakevilla.transaction.validation import checks as mounted
from lakevilla_testing.planted.bugs import instead, nothing, planted


@planted(for_histories=False)
def detached_from_what_was_deleted() -> Iterator[None]:
    """A client does not check whether the HEAD that it replaces still has the clone."""
    with instead(mounted.still_mounted, nothing):
        yield


@planted(for_histories=False)
def cloned_under_the_same_name() -> Iterator[None]:
    """A client takes a clone that was made again under the same name for the earlier one."""
    original = mounted.still_mounted

    def still_mounted(txn: Any, head: Any, view: Any, state: Any) -> Program[Any]:
        found = yield from original(txn, head, view, state)
        if state is None and (yield from mounts.mounted_at(head, view.location)) is not None:
            return None
        return found

    with instead(original, still_mounted):
        yield


@planted(for_histories=False)
def ended_under_a_detached_table() -> Iterator[None]:
    """A clone can be ended although its tables name files of their source."""

    def refuses_none(*_: Any) -> Program[None]:
        yield from ()

    with instead(ending._refuse_needed, refuses_none):
        yield


@planted(for_histories=False)
def clones_hold_nothing() -> Iterator[None]:
    """Clean-ups read only the bases of tags and branches."""

    def load(head: Any) -> Program[dict[Any, Any]]:
        yield from load_refs(head)
        entries = [entry for entry in head.refs.values() if entry.kind != "clone"]
        wanted = dict.fromkeys(base for entry in entries for base in entry.bases)
        loaded = yield from parallel([bases.load_base(ref) for ref in wanted])
        return dict(zip(wanted, loaded, strict=True))

    with instead(bases.load_bases_by_ref, load):
        yield


@planted(for_histories=False)
def clones_in_tags_forgotten() -> Iterator[None]:
    """A tag keeps the files of its own map of tables, and not those that the clones in it show."""

    def load(head: Any) -> Program[dict[Any, Any]]:
        yield from load_refs(head)
        wanted = dict.fromkeys(base for entry in head.refs.values() for base in entry.bases)
        loaded = yield from parallel([bases.load_base(ref) for ref in wanted])
        return dict(zip(wanted, loaded, strict=True))

    with instead(bases.load_bases_by_ref, load):
        yield


@planted(for_histories=False)
def created_under_a_clone() -> Iterator[None]:
    """A client that creates a table checks only HEAD's own map, and not the clones."""
    with instead(mount_places.shown_by_clones, nothing):
        yield


@planted(for_histories=False)
def mounted_over_a_table() -> Iterator[None]:
    """A client that makes a clone does not check what exists in the HEAD that is replaced."""
    with instead(mount_places.refuse_place, nothing):
        yield


@planted(for_histories=False)
def restored_from_a_clone_that_ended() -> Iterator[None]:
    """Files of another table may return, even if they are not kept."""

    def refuse_let_go(*_: Any) -> Program[bool]:
        yield from ()
        return False

    def none(*_: Any) -> set[str]:
        return set()

    with instead(still_kept._refuse_unkept_files, refuse_let_go), instead(kept.outside, none):
        yield


@planted(for_histories=False)
def kept_by_the_clone_in_a_tag() -> Iterator[None]:
    """Files of another table may return if a clone keeps them that only a tag shows."""
    original = still_kept.kept_by_clones

    def kept_by_clones(context: Any, clones: Any, location: str) -> Program[set[str]]:
        found = yield from bases.load_bases(context.held.head)
        shown = {name: one for base in found for name, one in base.clones.items()}
        return (yield from original(context, {**shown, **clones}, location))

    with instead(original, kept_by_clones):
        yield


@planted(for_histories=False)
def detached_twice() -> Iterator[None]:
    """A client that finds that another client has created the table creates it once more."""

    def keep(*_: Any) -> None:
        return None

    with instead(rebase._let_others_detach, keep):
        yield
