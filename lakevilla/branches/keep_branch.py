"""Keeping a branch: its next life stands on copies (docs/design/0037-upkeep.md).

A branch has commits that name the files of its base. So its next life has both anew: its base as
it is kept apart, and what was done on the branch with the copies in the place of what was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from lakevilla.branches.copies import Copies
from lakevilla.branches.entries import following
from lakevilla.branches.kept_tables import KeptTables, keep_tables
from lakevilla.branches.moved import Wanted
from lakevilla.branches.next_life import Came, go_on, refuse_keys, until_it_has
from lakevilla.branches.states import parted
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import data_files
from lakevilla.global_log.bases import load_base
from lakevilla.global_log.refs import BaseRef, RefEntry
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch, frozen_now
from lakevilla.lake.frozen.states import SeenBase
from lakevilla.lake.kept_state import with_files
from lakevilla.lake.view import View
from lakevilla.results import Report
from lakevilla.store.effects import Program

#: What a branch is, as far as what is copied for it depends on it.
_Mark = tuple[tuple[BaseRef, ...], str]


def keep_branch(context: Context, name: str, first: RefEntry, owner: str) -> Program[Report]:
    """As ``refs.keep.keep``; older versions of the branch can't be read afterwards."""
    ready: dict[_Mark, KeptTables] = {}

    def attempt(held: HeldHead, branch: Branch, tried: set[str]) -> Program[Came | None]:
        entry = branch.entry
        since = yield from load_base(entry.bases[-1])
        yield from refuse_keys(branch, since, "keep")
        mark = (entry.bases, entry.life)
        was = yield from frozen_now(branch)
        if mark not in ready:
            ready.clear()
            ready[mark] = yield from keep_tables(context, since, entry, was)
            if ready[mark].kept == since.kept:
                return entry, branch.held.head.sequence
            # Copies take long: the branch is closed only by who has looked at both just before.
            return None
        found = ready[mark]
        base = yield from parted(msgspec.structs.replace(since, kept=found.kept))
        states = SeenBase(base, context), _Copied(was, context, found.copies)
        new = following(context, held)
        wanted = Wanted({}, owner=owner, verb="KEEP")
        return (yield from go_on(context, held, branch, new, base, states, wanted, tried))

    yield from until_it_has(context, name, attempt, refuse_other=_refuse_other, first=first.id)
    ((_, found),) = ready.items()
    return found.report


def _refuse_other(name: str, entry: RefEntry) -> None:
    if entry.kind != "branch":
        raise InvalidOperation(f"branch {name!r} is a {entry.kind} by now: keep it again")


@dataclass(frozen=True, slots=True)
class _Copied(SeenBase):
    """What a branch shows, with copies in the place of the files that were copied."""

    copies: Mapping[str, Copies]

    def _view(self, context: Context, location: str) -> Program[View | None]:
        view = yield from SeenBase._view(self, context, location)
        copies = self.copies.get(location)
        state = self.base.tables.get(location)
        if view is None or copies is None or state is None:
            return view
        files = data_files((yield from view.snapshot.files()))
        moved = [copies.file(file) for file in files]
        snapshot = with_files(context, location, state, view.snapshot, moved)
        return View(location, state, view.placement, view.parts, view.base, snapshot, view.probed)
