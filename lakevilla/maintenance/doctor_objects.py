"""What the doctor tells of single objects: commit objects, keys, and whose a table is."""

from __future__ import annotations

from collections.abc import Container, Iterable

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.global_log.commits import COMMITS_PREFIX, commit_key, read_commit
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.keys import KEYS_PREFIX, KeyRecord
from lakevilla.global_log.repo import LakeFile, commits_since, lake_key
from lakevilla.lake.context import Context
from lakevilla.results import Finding
from lakevilla.store.base import Found
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program, get, list_objects, parallel

#: Commit objects asked for in one round.
_AT_ONCE = 64


def look_at_objects(
    context: Context, head: Head, tables: Iterable[str], known: Container[str]
) -> Program[list[Finding]]:
    """Commit objects that are missing or damaged, keys that can't be read, whose ``tables`` are.

    Those ``known`` have been told of already.
    """
    findings = yield from _commits(context, head, known)
    listed = yield from list_objects(KEYS_PREFIX)
    found = yield from parallel(
        [
            *[_key(info.key) for info in listed],
            *[_lake_file(context, head, location) for location in tables],
        ]
    )
    findings.extend(finding for finding in found if finding is not None)
    return findings


def _commits(context: Context, head: Head, known: Container[str]) -> Program[list[Finding]]:
    # A commit object is stored before HEAD names it, so a LIST after HEAD was read has it.
    there = {info.key for info in (yield from list_objects(COMMITS_PREFIX))}
    kept = [one for one in (yield from _kept(head)) if _key_of(one) not in known]
    read = [one for one in kept if _key_of(one) in there]
    findings: list[Finding] = []
    for first in range(0, len(read), _AT_ONCE):
        found = yield from parallel([_commit(one) for one in read[first : first + _AT_ONCE]])
        findings.extend(finding for finding in found if finding is not None)
    missing = [one for one in kept if _key_of(one) not in there]
    return findings + ((yield from _missing(context, head, missing)) if missing else [])


def _commit(commit: CommitSummary) -> Program[Finding | None]:
    """Read again, though it may be cached: what counts is what lies in the store."""
    key = _key_of(commit)
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None  # gc has let it go since it was listed
    try:
        read_commit(key, outcome.body)
    except LakeVillaError as error:
        message = f"commit {commit.sequence} of the lake can't be looked at or redone any more"
        return Finding(
            "error", error.kind, f"{error.message}; {message}", txn_id=commit.txn, key=key
        )
    return None


def _missing(
    context: Context, head: Head, missing: Iterable[CommitSummary]
) -> Program[list[Finding]]:
    # Unless gc has let the history go since.
    held = yield from context.head()
    begins = head.history_start if held is None else held.head.history_start
    return [
        Finding(
            "error",
            "corrupt_object",
            f"{_key_of(one)} is missing although commit {one.sequence} of the lake is kept: "
            "restore it from a copy, or that commit can't be looked at or redone any more; where "
            "it is not published, `lakevilla recover` makes it void",
            txn_id=one.txn,
            key=_key_of(one),
        )
        for one in missing
        if one.sequence > begins
    ]


def _kept(head: Head) -> Program[list[CommitSummary]]:
    """The commits of the history that have objects; those in HEAD if its pages can't be read."""
    try:
        commits = yield from commits_since(head, head.history_start)
    except (CorruptObject, UnsupportedFormat):  # told of with the history
        commits = None
    if commits is None:
        commits = tuple(one for one in head.commits if one.sequence > head.history_start)
    return [one for one in commits if one.hash]


def _key_of(commit: CommitSummary) -> str:
    return commit_key(commit.txn, commit.hash)


def _key(key: str) -> Program[Finding | None]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    try:
        decode(key, outcome.body, KeyRecord)
    except LakeVillaError as error:
        message = f"an idempotency key can't be read: {error.message}"
        return Finding("error", error.kind, message, key=key)
    return None


def _lake_file(context: Context, head: Head, location: str) -> Program[Finding | None]:
    """``lake.json`` keeps other lakes off: without it one may take the table."""
    key = lake_key(location)
    outcome = yield from get(key)
    try:
        owner = decode(key, outcome.body, LakeFile) if isinstance(outcome, Found) else None
    except LakeVillaError as error:
        message = f"{error.message}; or delete it, and `lakevilla recover` writes it again"
        return Finding("error", error.kind, message, table=location, key=key)
    if owner is None or not owner.lake_id:
        held = yield from context.head()
        if held is None or location not in held.head.tables or held.head.tables[location].dropped:
            return None  # let go since HEAD was read
        what = "is missing" if owner is None else "names no lake"
        message = f"{key} {what}, so another lake may take table {location}"
        remedy = "`lakevilla recover` writes it again"
        return Finding("error", "lake_file", f"{message}: {remedy}", table=location, key=key)
    if not owner.names(head):
        return Finding(
            "error",
            "lake_file",
            f"table {location} is claimed by the lake at {owner.root} (id {owner.lake_id}) too: "
            "`unregister` it in one of them, before both write it",
            table=location,
            key=key,
        )
    return None
