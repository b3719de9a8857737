"""Reading and replacing HEAD and what hangs on it: programs over the store."""

from __future__ import annotations

import msgspec

from lakevilla.errors import CommitOutcomeUnknown, CorruptObject, InvalidOperation, StoreError
from lakevilla.global_log.commits import CommitObject, commit_key, read_commit
from lakevilla.global_log.head import (
    HEAD_KEY,
    CommitSummary,
    Head,
    Page,
    PageRef,
    commits_after,
    empty_head,
    overfull,
    split_page,
)
from lakevilla.ids import Ids
from lakevilla.store.base import (
    ABSENT,
    Found,
    Match,
    Missing,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unchanged,
    Unknown,
)
from lakevilla.store.effects import Program, get, put
from lakevilla.sublogs.codec import FORMAT, decode, encode

__all__ = [
    "HeldHead",
    "LakeFile",
    "claim_table",
    "commits_since",
    "create_head",
    "head_found",
    "lake_key",
    "load_commit",
    "load_head",
    "load_page",
    "make_room",
    "pages_before",
    "replace_head",
    "rules_table",
]


class HeldHead(msgspec.Struct, frozen=True):
    """A HEAD with the token under which it may be replaced."""

    head: Head
    token: Token


class LakeFile(msgspec.Struct, frozen=True):
    """``<table>/_lakevilla/lake.json``: the one lake whose HEAD rules the table."""

    format: int
    nonce: str
    lake_id: str
    root: str


def load_head(known: HeldHead | None = None) -> Program[HeldHead | None]:
    """The newest HEAD, or None if there is none. An unchanged ``known`` one costs no body."""
    outcome = yield from get(HEAD_KEY, None if known is None else known.token)
    match outcome:
        case Unchanged():
            assert known is not None
            return known
        case Missing():
            return None
        case Found(body=body, token=token):
            return HeldHead(decode(HEAD_KEY, body, Head), token)


def create_head(ids: Ids, root: str) -> Program[HeldHead]:
    """The lake's HEAD, made empty if it was absent. Whoever loses the race reads the winner's."""
    for _ in range(8):
        head = empty_head(ids.uuid(), root, ids.nonce(), FORMAT)
        outcome = yield from put(HEAD_KEY, encode(head), ABSENT)
        if isinstance(outcome, Stored):
            return HeldHead(head, outcome.token)
        held = yield from load_head()
        if held is not None:
            return held
    raise StoreError(f"could neither create nor read {HEAD_KEY}: check the store and try again")


def replace_head(held: HeldHead, successor: Head) -> Program[PutOutcome]:
    """One conditional write: the lake's commit point."""
    assert successor.replacement == held.head.replacement + 1
    assert successor.nonce != held.head.nonce
    return (yield from put(HEAD_KEY, encode(successor), Match(held.token)))


def head_found(outcome: PutOutcome) -> HeldHead | None:
    """The HEAD that a refused replacement has met, where its read-back saw one.

    As good as reading it now: it was read after our write was refused.
    """
    if not isinstance(outcome, Refused) or outcome.current is None:
        return None
    return HeldHead(decode(HEAD_KEY, outcome.current.body, Head), outcome.current.token)


def make_room(head: Head, ids: Ids) -> Program[PageRef | None]:
    """Move the oldest commits of ``head`` to a page if it is full.

    Returns the page to name in its successor, None if there is room. The page is
    immutable and hash-named by nonce; one that loses the race is an orphan
    for gc, and nothing else.
    """
    if not overfull(head):
        return None
    page = split_page(head, ids.nonce(), FORMAT)
    first, last = page.commits[0], page.commits[-1]
    ref = PageRef(page.nonce, first.sequence, last.sequence, first.timestamp_ms, last.timestamp_ms)
    outcome = yield from put(ref.key, encode(page), ABSENT)
    if isinstance(outcome, Unknown):
        raise StoreError(f"could not store {ref.key} ({outcome.reason}): try again")
    return ref


def load_page(ref: PageRef) -> Program[Page]:
    outcome = yield from get(ref.key)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"{ref.key} is missing: the lake's history before commit {ref.last_sequence} is lost; "
            "run `lakevilla doctor`",
            key=ref.key,
        )
    page = decode(ref.key, outcome.body, Page)
    sequences = [commit.sequence for commit in page.commits]
    if page.nonce != ref.hash or sequences != list(
        range(ref.first_sequence, ref.last_sequence + 1)
    ):
        raise CorruptObject(
            f"{ref.key} is not the page of commits {ref.first_sequence} to {ref.last_sequence} "
            "that HEAD names: restore it from a copy, or run `lakevilla doctor`",
            key=ref.key,
        )
    return page


def pages_before(head: Head) -> Program[list[Page]]:
    """All pages still kept, newest first."""
    pages: list[Page] = []
    ref = head.page
    # The history begins after ``history_start``: gc deletes pages that end there.
    while ref is not None and ref.last_sequence > head.history_start:
        page = yield from load_page(ref)
        pages.append(page)
        ref = page.previous
    return pages


def commits_since(head: Head, sequence: int) -> Program[tuple[CommitSummary, ...] | None]:
    """All commits after ``sequence``, from HEAD and as many pages as it takes.

    None if some are no longer kept: then nothing may be inferred about them.
    """
    recent = commits_after(head, sequence)
    if recent is not None:
        return recent
    if sequence < head.history_start:
        return None
    found: tuple[CommitSummary, ...] = head.commits
    ref = head.page
    while ref is not None and ref.last_sequence > sequence:
        page = yield from load_page(ref)
        found = (*page.commits, *found)
        ref = page.previous
    if found and found[0].sequence > sequence + 1:
        return None
    return tuple(commit for commit in found if commit.sequence > sequence)


def load_commit(txn: str, digest: str) -> Program[CommitObject]:
    """A commit object that HEAD names: it was stored before HEAD was."""
    key = commit_key(txn, digest)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise CorruptObject(
            f"{key} is missing although HEAD names it: restore it from a copy, "
            "or run `lakevilla doctor`",
            key=key,
        )
    return read_commit(key, outcome.body)


def lake_key(location: str) -> str:
    """Where a table says which lake rules it."""
    return f"{location}/_lakevilla/lake.json"


def claim_table(location: str, head: Head, ids: Ids) -> Program[None]:
    """Make ``lake.json`` say that this lake rules the table, or refuse a table of another lake."""
    key = lake_key(location)
    ours = LakeFile(FORMAT, ids.nonce(), head.lake_id, head.root)
    outcome = yield from put(key, encode(ours), ABSENT)
    match outcome:
        case Stored():
            return
        case Refused():
            yield from check_lake(location, head)
        case Unknown(reason=reason):
            raise CommitOutcomeUnknown(
                f"could not settle whether {key} was stored ({reason}): try again", table=location
            )


def check_lake(location: str, head: Head | None) -> Program[None]:
    """Refuse a table that belongs to another lake. No file, no owner."""
    key = lake_key(location)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return
    owner = decode(key, outcome.body, LakeFile)
    if head is None or owner.lake_id != head.lake_id:
        raise InvalidOperation(
            f"table {location} belongs to the lake at {owner.root} (id {owner.lake_id}): "
            "connect there, or let it go with `unregister` there first",
            table=location,
        )


def rules_table(location: str, head: Head) -> Program[bool]:
    """Whether ``lake.json`` names this lake."""
    key = lake_key(location)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return False
    return decode(key, outcome.body, LakeFile).lake_id == head.lake_id
