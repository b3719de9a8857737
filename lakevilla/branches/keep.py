"""Protect the files of tags and branches from the clean-up of other clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from lakevilla.branches.branches import LeftAsIs, Next, find_ref, following, until_replaced
from lakevilla.branches.clones import Copies, keep_clone, removed_since, store_copies
from lakevilla.branches.rebase import Came, Wanted, go_on, refuse_keys, until_it_has
from lakevilla.branches.states import parted
from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    TableNotFound,
)
from lakevilla.formats.files import data_files, files_from_structs
from lakevilla.global_log.bases import Base, load_base, load_base_tables, seal_base, store_base
from lakevilla.global_log.head import with_refs
from lakevilla.global_log.refs import BaseRef, KeptTable, RefEntry, new_epoch
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import Branch, frozen_now
from lakevilla.lake.frozen.frozen import frozen_view
from lakevilla.lake.frozen.states import SeenBase, not_found
from lakevilla.lake.kept_state import kept_object, store_kept, with_files
from lakevilla.lake.newer import refuse_in_doubt, refuse_older_head
from lakevilla.lake.table_log import in_passing, refresh
from lakevilla.lake.view import View
from lakevilla.results import Finding, Report
from lakevilla.store.effects import Program

# -------------------- keep
#
# Protect a ref's files from the clean-up of other clients (docs/design/0037-upkeep.md).
#
# The store copies the files that a table has removed since the ref's state into a directory that
# the ref owns, and the state is stored separately from the table's log. Files that the table still
# has stay where they are, because no client deletes them.


_MAX_RACES = 200


def keep(context: Context, name: str, owner: str = "") -> Program[Report]:
    """Make sure that a ref can be read whatever other clients clean up.

    For a clone, make sure that the tables that were written to need no file of their source.

    Files that the tables remove later are not protected: then it must be called again.

    Raises
    ------
    RefNotFound
    InvalidOperation
        The ref is a branch with committed idempotency keys that are not merged yet.
    """
    _, first = yield from find_ref(context, name)
    signs = yield from refuse_older_head(context, f"keep({name!r})")
    yield from refuse_in_doubt(context, f"keep({name!r})", signs)
    if first.kind == "clone":
        return (yield from keep_clone(context, name, first))
    if first.kind == "branch":
        return (yield from keep_branch(context, name, first, owner))
    entry = yield from _with_epoch(context, name, first)
    for _ in range(_MAX_RACES):
        base = yield from load_base(entry.base)
        found = yield from keep_tables(context, base, entry)
        if found.kept == base.kept:
            return found.report
        new = yield from _stored(
            context, name, entry, msgspec.structs.replace(base, kept=found.kept)
        )
        if new is None:
            return found.report
        # another client has changed the base meanwhile, so most files are copied already
        entry = new
    raise StoreError(f"keep: tag {name!r} was changed by other clients {_MAX_RACES} times in a row")


def _with_epoch(context: Context, name: str, first: RefEntry) -> Program[RefEntry]:
    """Give a ref a directory of its own in HEAD, before anything is stored there; return its entry.

    If files were stored first, gc might take them for the remains of a dead client.
    """

    def owned(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry] | Next[RefEntry]]:
        held, entry = yield from _the_same(name, first, held, entry)
        if entry.epochs:
            return LeftAsIs(entry)
        new = following(context, held)
        epoch = new_epoch(new.replacement, context.ids.nonce())
        entry = msgspec.structs.replace(entry, epochs=(epoch,))
        return Next(with_refs(new, {name: entry}), entry)

    return (yield from until_replaced(context, name, owned))


def _the_same(
    name: str, first: RefEntry, held: HeldHead | None, entry: RefEntry | None
) -> Program[tuple[HeldHead, RefEntry]]:
    """Return the present entry of a ref that was found before. Raises ``RefNotFound``."""
    if held is None or entry is None:
        raise (yield from not_found(None if held is None else held.head, name))
    if entry.id != first.id:
        raise RefNotFound(f"{first.kind} {name!r} was deleted, and another one created meanwhile")
    return held, entry


def _stored(context: Context, name: str, known: RefEntry, base: Base) -> Program[RefEntry | None]:
    """Replace the base of a ref in HEAD by a new one that was made from it.

    Return None if that is done, or the present entry if another client has changed the base
    meanwhile.
    """
    tried: set[str] = set()

    def named(
        held: HeldHead | None, entry: RefEntry | None
    ) -> Program[LeftAsIs[RefEntry | None] | Next[RefEntry | None]]:
        held, entry = yield from _the_same(name, known, held, entry)
        if entry.base.hash in tried:
            return LeftAsIs(None)  # the base was stored in HEAD, and the store's answer lost
        if entry.base != known.base:
            return LeftAsIs(entry)
        new = following(context, held)
        ref, body = seal_base(base, new.replacement)
        yield from store_base(ref, body)
        tried.add(ref.hash)
        entry = msgspec.structs.replace(entry, base=ref)
        return Next(with_refs(new, {name: entry}), None)

    return (yield from until_replaced(context, name, named))


# -------------------- keep branch
#
# Keep a branch: its next epoch is based on copies (docs/design/0037-upkeep.md).
#
# Commits of a branch name files of its base. So the next epoch gets a base that is kept separately
# from the tables' logs, and one commit with the changes made on the branch; both name the copies
# instead of the copied files.


#: The branch's bases and its epoch: copies are valid for these only.
_Mark = tuple[tuple[BaseRef, ...], str]


def keep_branch(context: Context, name: str, first: RefEntry, owner: str) -> Program[Report]:
    """Keep a branch as ``branches.keep.keep`` does; its older versions can't be read afterwards."""
    ready: dict[_Mark, KeptTables] = {}

    def attempt(held: HeldHead, branch: Branch, tried: set[str]) -> Program[Came | None]:
        entry = branch.entry
        since = yield from load_base(entry.bases[-1])
        yield from refuse_keys(branch, since, "keep")
        mark = (entry.bases, entry.epoch)
        present = yield from frozen_now(branch)
        if mark not in ready:
            ready.clear()
            ready[mark] = yield from keep_tables(context, since, entry, present)
            if ready[mark].kept == since.kept:
                return entry, branch.held.head.sequence
            # Copying takes long. Read HEAD and the branch again, because the branch must be closed
            # soon after both are read.
            return None
        found = ready[mark]
        base = yield from parted(msgspec.structs.replace(since, kept=found.kept))
        states = SeenBase(base, context), _Copied(present, context, found.copies)
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
    """The present state of a branch, with the copies in place of the copied files."""

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


# -------------------- kept tables
#
# The tables of a ref that are kept separately from their logs: files are copied, states stored.


@dataclass(frozen=True, slots=True)
class KeptTables:
    """The tables that a base keeps separately, the copies just made, and the findings to report."""

    kept: dict[str, KeptTable]
    copies: Mapping[str, Copies]
    findings: tuple[Finding, ...]

    @property
    def report(self) -> Report:
        return Report(all(one.severity == "note" for one in self.findings), self.findings)


def keep_tables(
    context: Context, base: Base, entry: RefEntry, also_shown: Base | None = None
) -> Program[KeptTables]:
    """Keep the tables of a base that have changed since, separately from their logs.

    ``also_shown``: a second state of these tables that the ref shows, whose files are copied, too.
    """
    yield from load_base_tables(base)
    kept = dict(base.kept)
    copies: dict[str, Copies] = {}
    findings: list[Finding] = []
    for location, state in sorted(base.tables.items()):
        if state.dropped:
            continue
        try:
            keeping = _kept_table(context, base, entry, location, also_shown)
            found = yield from in_passing(context, location, keeping)
        except StoreError:
            raise
        except LakeVillaError as error:
            message = f"table {location} can't be kept: {error.message}"
            findings.append(Finding("warning", "ref_lost", message, table=location))
            continue
        if found is not None:
            kept[location], copies[location], copied = found
            message = f"table {location} is kept separately: {copied} files were copied"
            findings.append(Finding("note", "kept", message, table=location))
    for clone in sorted(base.clones):
        message = (
            f"files that clone {clone!r} has from other tables are not copied: other clients' "
            "clean-up of those tables may delete them, so give them a longer retention"
        )
        findings.append(Finding("warning", "ref_at_risk", message))
    return KeptTables(kept, copies, tuple(findings))


def _kept_table(
    context: Context, base: Base, entry: RefEntry, location: str, also_shown: Base | None
) -> Program[tuple[KeptTable, Copies, int] | None]:
    """Keep one table separately if it has changed since, or has removed more files; else None."""
    view = yield from frozen_view(context, base, location)
    snapshots = [view.snapshot]
    if also_shown is not None:
        yield from load_base_tables(also_shown, [location])
        shown_state = also_shown.tables.get(location)
        if (
            shown_state is not None
            and not shown_state.dropped
            and shown_state.table_id == view.snapshot.table_id
        ):
            snapshots.append((yield from frozen_view(context, also_shown, location)).snapshot)
    try:
        tail = yield from refresh(context, location)
    except TableNotFound:
        if base.kept_of(location) is not None:
            return None  # it was restored for the ref alone: no client cleans it up
        raise
    unsafe: dict[str, int] = {}
    for snapshot in snapshots:
        unsafe |= yield from removed_since(tail, snapshot)
    state = base.tables[location]
    if not unsafe:
        has_moved_on = bool(state.pending) or tail.tip != state.published
        if base.kept_of(location) is not None or not has_moved_on:
            return None
    copies = Copies(location, entry, unsafe)
    lists = []
    for snapshot in snapshots:
        files = data_files((yield from snapshot.files()))
        lists.append([copies.file(file) for file in files])
    copied = yield from store_copies(copies)
    table: pa.Table = files_from_structs(lists[0])
    digest, body = kept_object(view.snapshot, table)
    through = base.sequence if entry.kind == "branch" else None
    kept = KeptTable(entry.epoch, digest, through, state.table_id)
    if not (yield from store_kept(kept, body)):
        raise StoreError(f"could not store {kept.key}: keep it again")
    return kept, copies, copied
