"""The inbox in the store: proposals are put there, listed, read, and cleared away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.head import Head
from lakevilla.global_log.inbox.proposal import (
    INBOX_PREFIX,
    MOST_BYTES,
    Proposal,
    is_over,
    number_of,
    oldest_key,
    read_proposal,
)
from lakevilla.store.base import ABSENT, Found, ObjectInfo, PutOutcome
from lakevilla.store.effects import Program, delete, get, list_objects, parallel, put

#: Proposals that are looked at in one replacement of HEAD: so many commits as that takes.
_MOST_READ = 64


def propose(key: str, body: bytes) -> Program[PutOutcome]:
    """Put a proposal there. Whatever the store answers, from here on it may be taken."""
    return (yield from put(key, body, ABSENT))


def list_proposals(number: int) -> Program[list[str]]:
    """The keys of proposals that may still be taken where HEAD has this number or a later one."""
    infos = yield from list_objects(INBOX_PREFIX, oldest_key(number))
    return [info.key for info in infos if _may_be_read(info)]


def _may_be_read(info: ObjectInfo) -> bool:
    return number_of(info.key) is not None and info.size <= MOST_BYTES


def read_proposals(
    head: Head, keys: Iterable[str], known: Mapping[str, Proposal | None]
) -> Program[dict[str, Proposal | None]]:
    """Those that may be in the HEAD that follows ``head``; None for what can't be read.

    What is damaged, or of a format that is not known, is another's to see to: its owner commits
    without it. ``known`` are those that were read before.
    """
    wanted = [key for key in keys if _fits(head, key)][:_MOST_READ]
    missing = [key for key in wanted if key not in known]
    read = yield from parallel([_read(key) for key in missing])
    found = {**known, **dict(zip(missing, read, strict=True))}
    return {key: found[key] for key in wanted}


def _fits(head: Head, key: str) -> bool:
    number = number_of(key)
    return number is not None and number <= head.replacement and not is_over(number, head)


def _read(key: str) -> Program[Proposal | None]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        return None
    try:
        return read_proposal(key, outcome.body)
    except (CorruptObject, UnsupportedFormat):
        return None


def clear_inbox() -> Program[None]:
    """Delete all that is there."""
    infos = yield from list_objects(INBOX_PREFIX)
    yield from parallel([delete(info.key) for info in infos])
