"""Planted bugs of backups and restores (docs/design/0084-backup.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import KeptTable, RefEntry
from lakevilla.maintenance.backup import backup, restore, restored_states
from lakevilla.maintenance.backup.manifest import StateRef
from lakevilla.results import Finding
from lakevilla.store.effects import Program
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(for_histories=False)
def backups_keep_nothing() -> Iterator[None]:
    """The tag that keeps what a backup copies is gone before the first copy."""
    pinned = backup._pinned

    def at_once(context: Any, name: str, *given: Any) -> Program[tuple[RefEntry, Head]]:
        found = yield from pinned(context, name, *given)
        yield from backup.unpin(context, name)
        return found

    with instead(pinned, at_once):
        yield


@planted(for_histories=False)
def restored_without_a_fence() -> Iterator[None]:
    """A lake is set back under the id that it has."""

    def fenced(*_: Any) -> Program[list[Finding]]:
        yield from ()
        return []

    with instead(restore._fenced, fenced):
        yield


@planted(for_histories=False)
def tables_made_anew_keep_their_ids() -> Iterator[None]:
    """A table whose log begins again has the id of the table whose log was lost."""

    def id_of(_: Any, location: str, state: StateRef) -> str:
        return state.table_id

    with attribute(restored_states.RestoredStates, "id_of", id_of):
        yield


@planted(for_histories=False)
def changes_of_restored_branches_forgotten() -> Iterator[None]:
    """A restored branch's base counts as having what was committed on the branch."""
    keep_state = restored_states.keep_state

    def without_end(*given: Any) -> Program[KeptTable]:
        return (yield from keep_state(*given[:4]))

    with instead(keep_state, without_end):
        yield
