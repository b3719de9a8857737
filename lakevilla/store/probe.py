"""Does this store honour conditional writes? Asked once, before the first one counts."""

from __future__ import annotations

from typing import NoReturn

from lakevilla.errors import UnsafeStore
from lakevilla.ids import Ids
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Condition,
    Found,
    Match,
    PutOutcome,
    Stored,
    Token,
    Unknown,
)
from lakevilla.store.effects import Delete, Effect, Program, get, parallel, put

__all__ = ["probe", "probe_plain"]


def probe(ids: Ids) -> Program[None]:
    """Check that creates and replacements are conditional in deed.

    Raises
    ------
    UnsafeStore
        The store accepted a write that it had to refuse; the message names the check.
    """
    # In one directory for all: a local one keeps its lock file when the probe is over.
    name = f"_lakevilla/probe/{ids.nonce()}"
    present, absent = f"{name}-present", f"{name}-absent"

    def body() -> bytes:
        return f'{{"probe":"{ids.nonce()}"}}'.encode()

    def must_store(check: str, condition: Condition) -> Program[Token]:
        outcome = yield from put(present, body(), condition)
        if not isinstance(outcome, Stored):
            _unsafe(check, outcome)
        return outcome.token

    def must_refuse(check: str, key: str, condition: Condition) -> Program[None]:
        outcome = yield from put(key, body(), condition)
        # Unknown is no refusal: after a time-out the write may still land.
        if isinstance(outcome, Stored | Unknown):
            _unsafe(check, outcome)

    def checks() -> Program[None]:
        first = yield from must_store("a create of an absent key is stored", ABSENT)
        second, *_ = yield from parallel(
            [
                must_store("a match of the current token is stored", Match(first)),
                must_refuse("a second create is refused", present, ABSENT),
                must_refuse("a match on an absent key is refused", absent, Match(first)),
            ]
        )
        if second == first:
            _unsafe("two writes have two tokens", Stored(first))
        yield from must_refuse("a stale match is refused", present, Match(first))

    clean: list[Effect] = [Delete(present), Delete(absent)]
    try:
        yield from checks()
    except Exception:
        yield from parallel(clean)
        raise
    yield from parallel(clean)


def probe_plain(ids: Ids) -> Program[None]:
    """Check that a plain write is stored and read back: what a store needs to be checked.

    Raises
    ------
    UnsafeStore
        Another body is read back than was written.
    StoreError
        The store does not let us write at all: conditions are not what is wrong.
    """
    key, body = f"_lakevilla/probe/{ids.nonce()}-plain", f'{{"probe":"{ids.nonce()}"}}'.encode()
    yield from put(key, body, ANY)
    seen = yield from get(key)
    yield Delete(key)
    if not isinstance(seen, Found) or seen.body != body:
        raise UnsafeStore(
            "the store failed the check that a write is read back at once, so nothing can be "
            "checked after writing either; use a store with strong consistency"
        )


def _unsafe(check: str, outcome: PutOutcome) -> NoReturn:
    said = f"unknown: {outcome.reason}" if isinstance(outcome, Unknown) else "the opposite"
    raise UnsafeStore(
        f"the store failed the check that {check} ({said}), so two writers could overwrite each "
        "other; use a store, or a version of it, that honours conditional writes, or, if few "
        'write at the same time, connect with conditional_writes="check" (best effort)'
    )
