"""Evidence: all that a lake without its HEAD still tells (docs/design/0021-head-lost.md).

It is only read here, and nothing is inferred: ``rebuild_head`` does that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject, read_commit
from lakevilla.global_log.head import NOWHERE, PAGES_PREFIX, NameMap, Page, TableMap, TableState
from lakevilla.global_log.head_log import HEADS_PREFIX
from lakevilla.global_log.inbox.proposal import INBOX_PREFIX
from lakevilla.global_log.keys import KEYS_PREFIX, HeldKey, is_key_object, load_key_object
from lakevilla.global_log.leaves import LEAVES_PREFIX, Leaf, is_mark, made_of
from lakevilla.global_log.recent_heads import RECENT_PREFIX
from lakevilla.global_log.refs import BASES_PREFIX, RefMap
from lakevilla.global_log.remains import PREFIXES
from lakevilla.global_log.repo import LakeFile, claim_of
from lakevilla.ids import NO_TXN
from lakevilla.results import Finding
from lakevilla.store.base import Found, ObjectInfo
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects, parallel
from lakevilla.store.home import HOMES_PREFIX
from lakevilla.store.location import is_external

T = TypeVar("T")

#: Objects asked for in one round.
_AT_ONCE = 64
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_NUMBERED = re.compile(r"/(\d{20})[.-]")
_CLAIM = "/_lakevilla/lake.json"


@dataclass(frozen=True, slots=True)
class Decision:
    """A commit that a page names: it was in HEAD, so it was decided."""

    sequence: int
    txn: str
    hash: str


@dataclass(slots=True)
class LeftBehind:
    """What was found, as it lies there.

    ``heads`` are the numbers of later HEADs of a log. ``made`` is the largest number of a
    replacement, ``sequence`` of a commit, ``newest_id`` the largest id that anything names.
    ``states`` and ``names`` are what the newest leaf says that tells of a table, or a name.
    ``left`` has, by table, the last page's word on whether it was let go. ``has_remains``: there
    is more than the tables.
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
    has_remains: bool = False
    findings: list[Finding] = field(default_factory=list)

    def ours(self, root: str) -> dict[str, LakeFile]:
        """The tables that are claimed for a lake at ``root``."""
        return {location: claim for location, claim in self.claims.items() if claim.root == root}

    def meet_id(self, txn: str) -> None:
        self.newest_id = max(self.newest_id, txn)


def look_for() -> Program[LeftBehind]:
    """Read what is left: a LIST of the whole root, and each small object of the lake once."""
    left = LeftBehind()
    listed = yield from list_objects("")
    for info in listed:
        for txn in _ID.findall(info.key):
            left.meet_id(txn)
    of = {
        prefix: [info for info in listed if info.key.startswith(f"{prefix}/")]
        for prefix in PREFIXES
    }
    left.heads = sorted(_numbers(of[HEADS_PREFIX]))
    numbered = [*of[LEAVES_PREFIX], *of[BASES_PREFIX], *of[RECENT_PREFIX]]
    numbered += [info for info in listed if info.key.startswith((INBOX_PREFIX, HOMES_PREFIX))]
    left.has_remains = any(of.values())
    left.made = max([*_numbers(numbered), *left.heads, 0])
    yield from _read_pages(left, of[PAGES_PREFIX])
    yield from _read_leaves(left, of[LEAVES_PREFIX])
    yield from _read_commits(left, of[COMMITS_PREFIX])
    yield from _read_keys(left, of[KEYS_PREFIX])
    within = [info.key.removesuffix(_CLAIM) for info in listed if info.key.endswith(_CLAIM)]
    elsewhere = [location for location in sorted(left.named) if is_external(location)]
    places = [*within, *elsewhere]
    claims = yield from _in_rounds([_claim(left, location) for location in places])
    left.claims = {w: c for w, c in zip(places, claims, strict=True) if c is not None}
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
    """Raises what a newer LakeVilla wrote: nobody here can tell what it means."""
    if isinstance(error, UnsupportedFormat):
        raise error
    message = f"{error.message}; what it says is left out"
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
            left.meet_id(commit.txn)
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
    # The newest last: its word stands. Nothing that must be right rests on it.
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


def _entries(key: str, body: bytes) -> tuple[dict[str, TableState], dict[str, str]]:
    """What a leaf holds: its key does not say of which map it is."""
    try:
        tables: Leaf[TableState] = decode(key, body, TableMap.leaf)
        return tables.entries, {}
    except CorruptObject:
        pass
    try:
        names: Leaf[str] = decode(key, body, NameMap.leaf)
        return {}, names.entries
    except CorruptObject:
        # Of refs: their bases tell.
        decode(key, body, RefMap.leaf)
        return {}, {}


def _read_commits(left: LeftBehind, infos: Iterable[ObjectInfo]) -> Program[None]:
    for key, body in (yield from _read(left, infos)):
        try:
            commit = read_commit(key, body)
        except (CorruptObject, UnsupportedFormat) as error:
            _damaged(left, key, error)
            continue
        left.commits.append((key, commit))
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


def _claim(left: LeftBehind, location: str) -> Program[LakeFile | None]:
    try:
        return (yield from claim_of(location))
    except (CorruptObject, UnsupportedFormat) as error:
        _damaged(left, location, error)
        return None
