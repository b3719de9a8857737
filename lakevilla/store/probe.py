"""A check whether a store honours conditional writes, made once, before the first one counts."""

from __future__ import annotations

from lakevilla.errors import StoreError, UnsafeStore
from lakevilla.ids import Ids
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Condition,
    Found,
    Match,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unknown,
)
from lakevilla.store.effects import DeleteObject, Effect, Program, get, parallel, put, sleep
from lakevilla.store.location import PROBES_PREFIX
from lakevilla.store.readback import SECONDS_BETWEEN_WRITES

#: So often a request is made again that the store's limit of writes has kept it from answering.
_MOST_LIMITED = 8
#: So many probes are made whose answers are lost.
_MOST_LOST = 3


def probe(ids: Ids, seconds_between_writes: float = 0.0) -> Program[bool]:
    """Check that creates really are conditional; return whether replacements are, too.

    Nothing is safe without conditional creates. A store without conditional replacements may ignore
    the condition, or turn it down: in both cases nothing is replaced there.

    Parameters
    ----------
    seconds_between_writes : float
        The time between two writes of one object that the store takes.

    Raises
    ------
    UnsafeStore
        The store accepted a create that it had to refuse; the message names the check.
    StoreError
        It does not allow writes, or its behaviour can't be determined.
    """
    for _ in range(_MOST_LOST):
        try:
            return (yield from _probe_once(ids, seconds_between_writes))
        except _AnswerLost as lost:
            error = lost.error
    raise error


class _AnswerLost(Exception):
    """The store may have taken a write, or not: a probe of other objects can tell.

    ``error`` is raised if it can't.
    """

    def __init__(self, error: StoreError | UnsafeStore) -> None:
        super().__init__(error)
        self.error = error


def _probe_once(ids: Ids, seconds_between_writes: float) -> Program[bool]:
    # One directory serves all probes: a local one keeps its lock file when the probe is over.
    name = f"{PROBES_PREFIX}{ids.nonce()}"
    present, absent = f"{name}-present", f"{name}-absent"

    def body() -> bytes:
        return f'{{"probe":"{ids.nonce()}"}}'.encode()

    def must_store(check: str, condition: Condition) -> Program[Token]:
        outcome = yield from _answered(present, body(), condition)
        if isinstance(outcome, Unknown):
            raise _AnswerLost(_unsafe(check, f"unknown: {outcome.reason}"))
        if not isinstance(outcome, Stored):
            raise _unsafe(check, "the opposite")
        return outcome.token

    def must_refuse(check: str, key: str, condition: Condition) -> Program[None]:
        outcome = yield from _answered(key, body(), condition)
        if isinstance(outcome, Unknown):
            # No refusal: after a time-out the write may still land.
            raise _AnswerLost(_unsafe(check, f"unknown: {outcome.reason}"))
        if isinstance(outcome, Stored):
            raise _unsafe(check, "the opposite")

    def match(key: str, token: Token) -> Program[Stored | Refused | None]:
        """Return None if the store reports that it does not know such a request."""
        try:
            outcome = yield from _answered(key, body(), Match(token))
        except StoreError as error:
            if not error.permanent:
                raise
            return None
        if isinstance(outcome, Unknown):
            raise _AnswerLost(
                StoreError(
                    f"could not find out whether the store replaces under a condition "
                    f"({outcome.reason}): try again"
                )
            )
        return outcome

    def checks() -> Program[bool]:
        first = yield from must_store("a create of an absent key is stored", ABSENT)
        yield from sleep(seconds_between_writes)
        second, on_absent = yield from parallel([match(present, first), match(absent, first)])
        yield from sleep(seconds_between_writes)
        _, stale = yield from parallel(
            [must_refuse("a second create is refused", present, ABSENT), match(present, first)]
        )
        is_new = isinstance(second, Stored) and second.token != first
        return is_new and isinstance(on_absent, Refused) and isinstance(stale, Refused)

    try:
        replaces = yield from checks()
    except Exception:
        yield from _delete_if_allowed([present, absent])
        raise
    yield from parallel([DeleteObject(present), DeleteObject(absent)])
    return replaces


def _delete_if_allowed(keys: list[str]) -> Program[None]:
    """Delete objects after an error: a client without rights has to know first what it lacked."""
    deletions: list[Effect] = [DeleteObject(key) for key in keys]
    try:
        yield from parallel(deletions)
    except StoreError as error:
        if not error.permanent:
            raise


def _answered(key: str, body: bytes, condition: Condition) -> Program[PutOutcome]:
    """Return the store's own answer: a limit of writes says nothing about conditions."""
    for _ in range(_MOST_LIMITED):
        outcome = yield from put(key, body, condition)
        if not (isinstance(outcome, Refused) and outcome.limited):
            return outcome
        yield from sleep(SECONDS_BETWEEN_WRITES)
    raise StoreError(
        "could not find out whether the store honours conditional writes, as it answered "
        f"{_MOST_LIMITED} of them with 429: try again"
    )


def probe_plain(ids: Ids) -> Program[None]:
    """Check that a plain write is stored and read back: check mode requires this of a store.

    Raises
    ------
    UnsafeStore
        The body that is read back differs from the one written.
    StoreError
        The store allows no write at all: conditions are not the problem.
    """
    key, body = f"{PROBES_PREFIX}{ids.nonce()}-plain", f'{{"probe":"{ids.nonce()}"}}'.encode()
    yield from put(key, body, ANY)
    seen = yield from get(key)
    yield DeleteObject(key)
    if not isinstance(seen, Found) or seen.body != body:
        raise UnsafeStore(
            "the store failed the check that a write is read back at once, so nothing can be "
            "checked after writing either; use a store with strong consistency"
        )


def _unsafe(check: str, said: str) -> UnsafeStore:
    return UnsafeStore(
        f"the store failed the check that {check} ({said}), so two writers could overwrite each "
        "other; use a store, or a version of it, that honours conditional writes, or, if few "
        'write at the same time, connect with conditional_writes="check" (best effort)'
    )
