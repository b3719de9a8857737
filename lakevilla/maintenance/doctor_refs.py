"""What the doctor tells of refs: bases that can't be read, and states that are not kept."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.branches.copies import unsafe_objects
from lakevilla.errors import LakeVillaError, StoreError
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_commit, load_head, load_refs, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import has_ended, has_moved, load_branch
from lakevilla.lake.frozen.frozen import frozen_view
from lakevilla.lake.newer import signs_on_branch
from lakevilla.lake.view import View
from lakevilla.results import Finding
from lakevilla.store.effects import Program, parallel
from lakevilla.store.home import at_home, key_at


def look_at_refs(context: Context, head: Head) -> Program[list[Finding]]:
    """Each ref, each table of it: can its state still be put together?"""
    yield from load_refs(head)
    found = yield from parallel(
        [_ref(context, name, entry) for name, entry in sorted(head.refs.items())]
    )
    return [finding for some in found for finding in some]


def without_idle_risks(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, but for files at risk of a state that is lost already."""
    every = list(findings)
    lost = [one for one in every if one.kind == "ref_lost"]

    def is_idle(one: Finding) -> bool:
        ref = one.message.partition(" needs ")[0]
        return one.kind == "ref_at_risk" and any(
            of.table == one.table and f"in {ref} any more" in of.message for of in lost
        )

    return [one for one in every if not is_idle(one)]


def _ref(context: Context, name: str, entry: RefEntry) -> Program[list[Finding]]:
    try:
        base = yield from load_base(entry.base)
        yield from load_base_tables(base)
    except StoreError:
        raise
    except LakeVillaError as error:
        message = f"{entry.kind} {name!r} can't be read: {error.message}"
        return [Finding("error", error.kind, message, key=entry.base.key)]
    trouble = (yield from _head_of(name, entry)) if entry.kind == "branch" else []
    live = [location for location in base.tables if base.has(location)]
    found = yield from parallel([_table(context, base, name, location) for location in live])
    return [*trouble, *(finding for finding in found if finding is not None)]


def _head_of(name: str, entry: RefEntry) -> Program[list[Finding]]:
    """What is wrong with a branch's own HEAD, and with what it names."""
    key = key_at(entry.life, HEAD_KEY)
    try:
        held = yield from load_branch(name, entry)
        yield from load_tables(held.head)
        states = held.head.tables.values()
        refs = {ref for state in states for ref in state.pending if ref.life == entry.life}
        yield from parallel([load_commit(ref.txn, ref.hash, ref.life) for ref in refs])
        older = yield from _older_head(name, held.head)
    except StoreError:
        raise
    except LakeVillaError as error:
        message = f"branch {name!r} can't be read: {error.message}"
        return [Finding("error", error.kind, message, key=key)]
    if has_moved(held):
        message = f"a rebase of branch {name!r} was cut off: `recover` finishes that"
        return [Finding("warning", "ref_moved", message, key=key)]
    if has_ended(held):
        message = f"branch {name!r} was deleted, and is still named: `recover` finishes that"
        return [Finding("warning", "ref_ended", message, key=key)]
    return older


def _older_head(name: str, head: Head) -> Program[list[Finding]]:
    """Whether commit objects of a branch show that its own HEAD is an older one."""
    signs = yield from signs_on_branch(head)
    newer = signs.against(head)
    key = key_at(head.home, HEAD_KEY)
    if newer is None and not signs.in_doubt:
        return []
    held = yield from at_home(head.home, load_head())
    if held is None or held.head.replacement != head.replacement:
        return []  # it goes on while it is looked at
    at = f"{key} (version {head.sequence} of branch {name!r})"
    if newer is not None:
        message = f"{at} was set back: {newer} was stored after a newer one: restore the newest"
        return [Finding("error", "corrupt_object", message, key=key)]
    message = (
        f"{at} knows nothing of {signs.in_doubt[0]}: its transaction has died or is at work, or "
        "the branch was set back by one commit, and the newest HEAD of it is to be restored"
    )
    return [Finding("warning", "ref_in_doubt", message, key=key)]


def _table(context: Context, base: Base, name: str, location: str) -> Program[Finding | None]:
    risk = None
    try:
        view = yield from frozen_view(context, base, location)
        if base.kind != "clone":
            risk = yield from _risk(context, base, name, view)
    except StoreError:
        raise
    except LakeVillaError as error:
        return Finding("warning", "ref_lost", error.message, table=location)
    return risk


def _risk(context: Context, base: Base, name: str, view: View) -> Program[Finding | None]:
    """That the table has removed what a ref needs, which other clients may clean up."""
    unsafe = yield from unsafe_objects(context, view.location, view.snapshot)
    if not unsafe:
        return None
    return Finding(
        "note",
        "ref_at_risk",
        f"{base.kind} {name!r} needs {len(unsafe)} files that table {view.location} has removed "
        f"since: VACUUM of other clients deletes them after its retention; `lakevilla keep ROOT "
        f"{name}` copies them",
        table=view.location,
    )
