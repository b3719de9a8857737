"""Verify the objects with a hash of their content in their names: leaves, pages, bases, commits.

Each object is read from the store, even if it is cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lakevilla.errors import LakeVillaError, StoreError, VersionNotFound
from lakevilla.global_log.bases import load_base, load_base_tables
from lakevilla.global_log.commits import commit_key, digest_of, read_commit
from lakevilla.global_log.head import CommitSummary, Head, Page, PageRef, TableMap
from lakevilla.global_log.leaves import LeafMap
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import fetch_sound, load_page, maps_of
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import load_branch
from lakevilla.meter import note
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, parallel
from lakevilla.store.location import at_home, key_at

#: The number of objects that are requested in one round.
_AT_ONCE = 64
_REMEDY = "restore it from a copy, or run `lakevilla doctor`, which says what it was used for"


@dataclass(frozen=True, slots=True)
class _Named:
    """An object that another one names by its hash; ``txn``: that of a commit object.

    ``is_spare``: without the object, clients need more requests, and lose nothing.
    """

    key: str
    hash: str
    txn: str | None = None
    is_spare: bool = False


def look_at_named_objects(context: Context, head: Head) -> Program[list[Finding]]:
    """Check all objects that HEAD names, and those that its refs and branches name in turn."""
    named, findings = yield from _all_named(head)
    found = yield from _looked_at(named)
    absent = {finding.key for finding in found if finding.kind == "missing_object"}
    if absent:
        # A missing object is no error if a newer HEAD does not name it any more.
        held = yield from context.head()
        if held is not None and held.head.replacement != head.replacement:
            still_named, _ = yield from _all_named(held.head)
            absent &= {one.key for one in still_named}
            found = [f for f in found if f.kind != "missing_object" or f.key in absent]
    return [*findings, *found]


def _all_named(head: Head) -> Program[tuple[list[_Named], list[Finding]]]:
    """Return the objects that HEAD, refs and branches name, and findings on unreadable parts."""
    named: dict[str, _Named] = {}
    findings: list[Finding] = []

    def take(found: Iterable[_Named]) -> None:
        named.update((one.key, one) for one in found)

    yield from fetch_sound(head)  # damaged leaves are reported when they are checked themselves
    take((yield from _named_by(head, findings)))
    for name, entry in sorted(head.refs.cached().items()):
        take((yield from _named_by_ref(name, entry, findings)))
    return list(named.values()), findings


def _named_by(head: Head, findings: list[Finding]) -> Program[list[_Named]]:
    """Return the objects that one HEAD names; must run at that HEAD's home."""
    named = [one for found in maps_of(head) for one in _leaves(found)]
    copies = {ref.key for ref in head.copies.refs}
    named = [replace(one, is_spare=one.key in copies) for one in named]
    commits = list(head.commits)
    refs = list(head.pages)
    while refs:
        refs = [ref for ref in refs if ref.last_sequence > head.history_start]
        pages = yield from parallel([_page(head, ref, findings) for ref in refs])
        found = [page for page in pages if page is not None]
        commits.extend(commit for page in found for commit in page.commits)
        refs = [ref for page in found for ref in page.older]
    named += [_of_commit(one, head.home) for one in commits if one.hash and _is_kept(one, head)]
    return named + list(_pending(head.tables))


def _page(head: Head, ref: PageRef, findings: list[Finding]) -> Program[Page | None]:
    """Return a page; None if gc has released it, or if it can't be read, which is a finding."""
    try:
        page = yield from load_page(ref)
    except VersionNotFound:
        return None
    except StoreError:
        raise
    except LakeVillaError as error:
        key = key_at(head.home, ref.key)
        message = error.message.replace(ref.key, key)
        findings.append(Finding("error", error.kind, message, key=key))
        return None
    note(files=1)
    return page


def _is_kept(commit: CommitSummary, head: Head) -> bool:
    return commit.sequence > head.history_start


def _of_commit(commit: CommitSummary, epoch: str) -> _Named:
    return _Named(commit_key(commit.txn, commit.hash, epoch), commit.hash, commit.txn)


def _leaves(found: LeafMap[Any]) -> Iterator[_Named]:
    return (_Named(ref.key, ref.hash) for ref in found.refs)


def _pending(tables: TableMap) -> Iterator[_Named]:
    for state in tables.cached().values():
        for ref in state.pending:
            yield _Named(commit_key(ref.txn, ref.hash, ref.epoch), ref.hash, ref.txn)


def _named_by_ref(name: str, entry: RefEntry, findings: list[Finding]) -> Program[list[_Named]]:
    """Return the objects that a ref names: bases, their leaves and commits; of a branch also its
    HEAD's.
    """
    named: list[_Named] = []
    for ref in entry.bases:
        named.append(_Named(ref.key, ref.hash))
        try:
            base = yield from load_base(ref)
            named += [*_leaves(base.tables), *_leaves(base.names)]
            named += [_Named(kept.key, kept.hash) for kept in base.kept.values()]
            yield from load_base_tables(base)
            named += _pending(base.tables)
        except StoreError:
            raise
        except LakeVillaError:
            continue  # the damaged object is reported when it is checked itself
    if entry.kind == "branch":
        try:
            held = yield from load_branch(name, entry)
            yield from at_home(entry.epoch, fetch_sound(held.head))
            named += yield from at_home(entry.epoch, _named_by(held.head, findings))
        except StoreError:
            raise
        except LakeVillaError as error:
            key = getattr(error, "key", None)
            message = f"branch {name!r} can't be read: {error.message}"
            findings.append(Finding("error", error.kind, message, key=key))
    return named


def _looked_at(named: list[_Named]) -> Program[list[Finding]]:
    findings: list[Finding] = []
    for first in range(0, len(named), _AT_ONCE):
        found = yield from parallel([_look(one) for one in named[first : first + _AT_ONCE]])
        findings.extend(finding for finding in found if finding is not None)
    return findings


def _look(named: _Named) -> Program[Finding | None]:
    outcome = yield from get(named.key)
    note(files=1)
    if named.is_spare:
        is_sound = isinstance(outcome, Found) and digest_of(outcome.body) == named.hash
        message = (
            f"{named.key} is lost: bases of refs are read by themselves, not from their copies"
        )
        return None if is_sound else Finding("note", "corrupt_object", message, key=named.key)
    if not isinstance(outcome, Found):
        message = f"{named.key} is missing although HEAD, or one of its refs, names it: {_REMEDY}"
        return Finding("error", "missing_object", message, txn_id=named.txn, key=named.key)
    if named.txn is None and digest_of(outcome.body) != named.hash:
        message = f"the content of {named.key} does not match the hash in its name: {_REMEDY}"
        return Finding("error", "corrupt_object", message, key=named.key)
    if named.txn is not None:
        try:
            read_commit(named.key, outcome.body)
        except LakeVillaError as error:
            return Finding("error", error.kind, error.message, txn_id=named.txn, key=named.key)
    return None
