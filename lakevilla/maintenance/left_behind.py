"""Collect the objects that are left of a lake whose HEAD is lost."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject, read_commit
from lakevilla.global_log.head import (
    HEAD_KEY,
    NOWHERE,
    PAGES_PREFIX,
    Head,
    NameMap,
    Page,
    TableMap,
    TableState,
)
from lakevilla.global_log.head_log import HEADS_PREFIX, RECENT_PREFIX, recent_heads
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.global_log.keys import KEYS_PREFIX, HeldKey, is_key_object, load_key_object
from lakevilla.global_log.leaves import LEAVES_PREFIX, Leaf, is_mark, made_of
from lakevilla.global_log.refs import (
    BASES_PREFIX,
    BaseRef,
    RefEntry,
    RefMap,
    number_of_epoch,
    parts_of,
)
from lakevilla.global_log.repo import PREFIXES, LakeFile, claim_of, load_head
from lakevilla.ids import NO_TXN
from lakevilla.results import Finding
from lakevilla.store.base import Found, ObjectInfo
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects, parallel
from lakevilla.store.location import HOMES_PREFIX, at_home, is_external, key_at

# -------------------- left behind
#
# The evidence in the store of a lake without a HEAD (docs/design/0021-head-lost.md).
#
# This module only reads the evidence; ``rebuild_head`` draws conclusions.


T = TypeVar("T")

#: The number of objects that are requested in one round.
_AT_ONCE = 64
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_NUMBERED = re.compile(r"/(\d{20})[.-]")
_CLAIM = "/_lakevilla/lake.json"


@dataclass(frozen=True, slots=True)
class Decision:
    """A commit that a page names, and that was therefore decided."""

    sequence: int
    txn: str
    hash: str


@dataclass(slots=True)
class LeftBehind:
    """The evidence, as it is stored.

    ``heads`` are the numbers of the HEADs after the first one, if HEAD is a log. ``made`` is the
    largest number of a replacement that any object names, ``sequence`` the largest of a commit,
    ``newest_id`` the largest transaction id. ``states`` and ``names`` have each table's and each
    name's entry in the newest leaf that has one. ``left`` has, by table, the id of the table that
    left the lake, or None if it entered, by the newest page that says so. ``lakes`` are the ids of
    lakes in bases and copies of HEADs: each was the lake at this root, or the lake from which it
    was copied. ``has_remains``: objects of a lake exist besides the tables.
    """

    heads: list[int] = field(default_factory=list)
    claims: dict[str, LakeFile] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    commits: list[tuple[str, CommitObject]] = field(default_factory=list)
    decided: dict[str, list[Decision]] = field(default_factory=dict)
    keys: list[tuple[str, HeldKey]] = field(default_factory=list)
    states: dict[str, TableState] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    left: dict[str, str | None] = field(default_factory=dict)
    made: int = 0
    sequence: int = 0
    newest_id: str = NO_TXN
    bases: dict[BaseRef, Base] = field(default_factory=dict)
    lakes: set[str] = field(default_factory=set)
    has_remains: bool = False
    findings: list[Finding] = field(default_factory=list)

    def ours(self, root: str) -> dict[str, LakeFile]:
        """Return the claims that name a lake at ``root``, by table."""
        return {location: claim for location, claim in self.claims.items() if claim.root == root}

    def meet_id(self, txn: str) -> None:
        self.newest_id = max(self.newest_id, txn)


def look_for() -> Program[LeftBehind]:
    """Read the evidence: LIST the whole root, and read each small object of the lake once."""
    left = LeftBehind()
    listed = yield from list_objects("")
    for info in listed:
        for txn in _ID.findall(info.key):
            left.meet_id(txn)
    by_prefix = {
        prefix: [info for info in listed if info.key.startswith(f"{prefix}/")]
        for prefix in PREFIXES
    }
    left.heads = sorted(_numbers(by_prefix[HEADS_PREFIX]))
    numbered = [*by_prefix[LEAVES_PREFIX], *by_prefix[BASES_PREFIX], *by_prefix[RECENT_PREFIX]]
    numbered += [info for info in listed if info.key.startswith((INBOX_PREFIX, HOMES_PREFIX))]
    left.has_remains = any(by_prefix.values())
    left.made = max([*_numbers(numbered), *left.heads, 0])
    yield from _read_pages(left, by_prefix[PAGES_PREFIX])
    yield from _read_leaves(left, by_prefix[LEAVES_PREFIX])
    yield from _read_commits(left, by_prefix[COMMITS_PREFIX])
    yield from _read_keys(left, by_prefix[KEYS_PREFIX])
    yield from _read_bases(left, by_prefix[BASES_PREFIX])
    for head in (yield from recent_heads()):
        left.lakes.update((head.lake_id, *head.former))
    within = [info.key.removesuffix(_CLAIM) for info in listed if info.key.endswith(_CLAIM)]
    elsewhere = [location for location in sorted(left.named) if is_external(location)]
    locations = [*within, *elsewhere]
    claims = yield from _in_rounds([claim_left(left, location) for location in locations])
    left.claims = {w: c for w, c in zip(locations, claims, strict=True) if c is not None}
    return left


def _numbers(infos: Iterable[ObjectInfo]) -> list[int]:
    found = (_NUMBERED.search(info.key) for info in infos)
    return [int(match[1]) for match in found if match is not None]


def _in_rounds(programs: Sequence[Program[T]]) -> Program[list[T]]:
    found: list[T] = []
    for first in range(0, len(programs), _AT_ONCE):
        found.extend((yield from parallel(programs[first : first + _AT_ONCE])))
    return found


def _read(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[list[tuple[str, bytes]]]:
    keys = [info.key for info in infos]
    outcomes = yield from _in_rounds([get(key) for key in keys])
    return [
        (key, outcome.body)
        for key, outcome in zip(keys, outcomes, strict=True)
        if isinstance(outcome, Found)
    ]


def _damaged(left: LeftBehind, key: str, error: LakeVillaError) -> None:
    """Note a damaged object; raise the error if a newer LakeVilla has written the object."""
    if isinstance(error, UnsupportedFormat):
        raise error
    message = f"{error.message}; its content is left out"
    left.findings.append(Finding("warning", error.kind, message, key=key))


def _read_pages(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    pages = []
    for key, body in (yield from _read(left, infos)):
        try:
            pages.append(decode(key, body, Page))
        except (CorruptObject, UnsupportedFormat) as error:
            _damaged(left, key, error)
    for page in sorted(pages, key=lambda page: page.commits[-1].sequence if page.commits else 0):
        for commit in page.commits:
            left.sequence = max(left.sequence, commit.sequence)
            left.meet_id(commit.newest_txn)
            if commit.hash:
                decision = Decision(commit.sequence, commit.txn, commit.hash)
                left.decided.setdefault(commit.txn, []).append(decision)
            for location, touch in commit.tables.items():
                left.named.add(location)
                if touch.entered is not None:
                    left.left[location] = None
                elif touch.left is not None:
                    left.left[location] = touch.left


def _read_leaves(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    leaves = [info for info in infos if not is_mark(info.key)]
    # Read the newest leaf last, so that its entries win. The rebuild does not rely on them alone.
    for key, body in (yield from _read(left, sorted(leaves, key=lambda info: made_of(info.key)))):
        try:
            states, names = _entries(key, body)
        except (CorruptObject, UnsupportedFormat) as error:
            _damaged(left, key, error)
            continue
        left.names.update(names)
        left.states.update(states)
        left.named.update(states, set(names.values()) - {NOWHERE})
        for state in states.values():
            for ref in state.pending:
                left.sequence = max(left.sequence, ref.sequence)
                left.meet_id(ref.txn)


class _CopiesLeaf(msgspec.Struct, frozen=True):
    """A leaf of copies of bases."""

    format: int
    entries: dict[str, Base]


def _entries(key: str, body: bytes) -> tuple[dict[str, TableState], dict[str, str]]:
    """Return the entries of a leaf of tables or names, which its key does not distinguish."""
    try:
        tables: Leaf[TableState] = decode(key, body, TableMap.leaf)
        return tables.entries, {}
    except CorruptObject:
        pass
    try:
        names: Leaf[str] = decode(key, body, NameMap.leaf)
        return {}, names.entries
    except CorruptObject:
        pass
    try:
        # The leaf is one of refs, whose bases have the same information.
        decode(key, body, RefMap.leaf)
    except CorruptObject:
        decode(key, body, _CopiesLeaf)
    return {}, {}


def _read_commits(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    for key, body in (yield from _read(left, infos)):
        try:
            commit = read_commit(key, body)
        except (CorruptObject, UnsupportedFormat) as error:
            _damaged(left, key, error)
            continue
        left.commits.append((key, commit))
        for txn, _ in commit.by_member():
            left.meet_id(txn)
        left.sequence = max(left.sequence, commit.after)
        left.named.update(commit.tables)


def _read_keys(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    for info in infos:
        if not is_key_object(info.key):
            continue
        try:
            held = yield from load_key_object(info.key)
        except (CorruptObject, UnsupportedFormat) as error:
            _damaged(left, info.key, error)
            continue
        if held is not None:
            left.keys.append((info.key, held))
            left.sequence = max(left.sequence, held.record.sequence)
            left.meet_id(held.record.txn)


def _read_bases(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    for key, body in (yield from _read(left, infos)):
        parts = parts_of(key)
        if parts is None:
            continue
        made, digest = parts
        try:
            base = decode(key, body, Base)
            ref = BaseRef(made, digest, base.sequence, base.timestamp_ms)
            yield from load_base(ref)  # checks the content against the hash in its name
        except LakeVillaError as error:
            message = f"a ref is left out: {error.message}"
            left.findings.append(Finding("warning", error.kind, message, key=key))
            continue
        left.bases[ref] = base
        left.lakes.add(base.lake_id)


def claim_left(left: LeftBehind, location: str) -> Program[LakeFile | None]:
    """Return the claim of a table; None, and a finding, if it is damaged."""
    try:
        return (yield from claim_of(location))
    except (CorruptObject, UnsupportedFormat) as error:
        _damaged(left, location, error)
        return None


# -------------------- refs left
#
# The refs of a lost HEAD, whose names are in their bases (docs/design/0021-head-lost.md).


def refs_left(
    left: LeftBehind, known: Mapping[str, RefEntry]
) -> Program[tuple[dict[str, RefEntry], list[Finding]]]:
    """Return the refs, each from its newest base, and the findings on them.

    A deleted ref that gc has not cleaned up yet returns, because keeping too much loses nothing.
    Bases are used whatever lake id they have: HEAD may have been lost more than once, and neither a
    rebuild nor an adoption stores bases again. ``known`` are the entries in an available HEAD,
    which determine all of a ref but its base.
    """
    refs: dict[str, RefEntry] = {}
    findings: list[Finding] = []
    heads = yield from _heads_of_epochs()
    for ref, base in sorted(left.bases.items(), key=lambda one: one[0].key):
        entry = RefEntry(
            f"{ref.made}-{ref.hash[:16]}", base.kind, ref, base.timestamp_ms, "rebuild"
        )
        if base.kind == "clone":
            entry = msgspec.structs.replace(entry, source=base.source, since=base.sequence)
        found = _of_branch(entry, base, heads, left.bases) if base.epoch else entry
        if found is not None:  # None if the ref was never made, or has ended
            refs[base.name] = found
    findings += [
        Finding(
            "warning",
            "ref_lost",
            f"branch {base.name!r} is left out: the HEAD of its epoch is missing or damaged "
            f"({key_at(base.epoch, HEAD_KEY)}); if it was in use, restore that from a copy before "
            "`lakevilla recover ROOT --confirm-head`, and rebuild again with `--force`",
            key=ref.key,
        )
        for ref, base in left.bases.items()
        if base.epoch and base.epoch not in heads and base.name not in {*refs, *known}
    ]
    for name in sorted(known.keys() - refs.keys()):
        lost = known[name]
        message = f"{lost.kind} {name!r} is left out: the object that kept its state is missing"
        findings.append(Finding("warning", "ref_lost", message, key=lost.base.key))
    for name, entry in sorted(refs.items()):
        same = _as_known(known.get(name), entry)
        if same is not None:
            refs[name] = same
            continue
        findings.append(
            Finding(
                "warning",
                "ref_found",
                f"{entry.kind} {name!r} of global version {entry.base.sequence} was found again, "
                f"without its protection and metadata: delete_ref({name!r}) if it had been deleted "
                "before",
                key=entry.base.key,
            )
        )
    return refs, findings


def _as_known(known: RefEntry | None, found: RefEntry) -> RefEntry | None:
    """Return the available HEAD's entry, updated by the ref that was found, if both are the same
    ref.
    """
    if known is None or known.kind != found.kind:
        return None
    if found.kind != "branch":
        # Only HEAD names the directory in which `keep` has stored files of a tag or clone. A tag or
        # clone that was kept later has a newer base with the same state.
        old_base, new_base = known.base, found.base
        same = (old_base.sequence, old_base.timestamp_ms) == (
            new_base.sequence,
            new_base.timestamp_ms,
        )
        if not same or known.source != found.source:
            return None
        return msgspec.structs.replace(known, base=new_base)
    if known.base == found.base and known.epoch == found.epoch:
        return msgspec.structs.replace(known, epochs=found.epochs, synced=found.synced)
    if known.id == found.id:
        return msgspec.structs.replace(
            known, base=found.base, epochs=found.epochs, synced=found.synced, reached=0
        )
    return None


def _heads_of_epochs() -> Program[dict[str, Head]]:
    """Return the readable HEADs of branches' epochs, by epoch."""
    listed = yield from list_objects(HOMES_PREFIX)
    names = {info.key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0] for info in listed}
    heads = {}
    for epoch in sorted(name for name in names if number_of_epoch(name) is not None):
        try:
            held = yield from at_home(epoch, load_head())
        except CorruptObject:
            continue
        if held is not None:
            heads[epoch] = held.head
    return heads


def _of_branch(
    entry: RefEntry, base: Base, heads: Mapping[str, Head], bases: Container[BaseRef]
) -> RefEntry | None:
    """Return the entry of the branch with this base, with all epochs that it may have had.

    A base that is newer than its epoch's base is the branch's state at its last merge. Return None
    if the branch has ended, or the base does not belong to its present epoch.
    """
    epochs = {name: head.epoch for name, head in heads.items() if head.epoch is not None}
    own = epochs.get(base.epoch)
    if own is None:
        return None
    family = [name for name, epoch in epochs.items() if epoch.ref_id == own.ref_id]
    newest = _present(family, heads)
    if newest is None:
        return None
    epoch = epochs[newest]
    was_its_state = own.closed or base.epoch == newest
    if entry.base != epoch.base and not (was_its_state and entry.base.made > epoch.base.made):
        return None  # it is the base of an earlier epoch, or of a change that was not completed
    others = {*family, *epoch.earlier} - {newest}
    entry = msgspec.structs.replace(entry, id=epoch.ref_id, epochs=(*sorted(others), newest))
    if entry.base != epoch.base and epoch.base in bases:
        # The branch's commits are relative to the epoch's base, which is therefore needed as well.
        entry = msgspec.structs.replace(entry, base=epoch.base, synced=entry.base)
    return entry


def _present(family: Sequence[str], heads: Mapping[str, Head]) -> str | None:
    """Return the last epoch of a branch, the one with the highest number; None if it was deleted.

    Open epochs with commits of their own come first. If there are none, the newest open epoch is
    taken: all but one of the open epochs were made by attempts to rebase that lost their race, so
    they differ only in the lake's state on which they are based, and no client has committed on
    them. If no epoch is open, a rebase was interrupted, and the last closed epoch is taken.
    """
    epochs = {name: heads[name].epoch for name in family}
    closed = {name: epoch.closed for name, epoch in epochs.items() if epoch is not None}
    if "deleted" in closed.values():
        return None
    is_open = [name for name in family if not closed[name]]
    used = [name for name in is_open if heads[name].replacement > 0]
    return max(used or is_open or family, default=None)
