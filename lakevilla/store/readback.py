"""Retries, and read-backs that find the outcome of a write whose answer is in doubt.

``expand`` turns one effect of a program into single attempts; its driver
(the runner with a store, the simulator with its faults) answers each with the result of
one request. Nothing here does I/O.

A conditional write is in doubt when its answer is missing, or is a refusal that may come from this
client's own write (a gateway repeats requests too). Every such body carries a nonce, so the body at
the key decides: if its bytes are equal, this client wrote it. ``classify``, a pure function, judges
the object at the key.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from lakevilla.errors import StoreError
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import (
    Absent,
    AnyVersion,
    Failure,
    Found,
    GetOutcome,
    Match,
    ObjectInfo,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unchanged,
    Unknown,
)
from lakevilla.store.effects import (
    CopyObject,
    DeleteObject,
    Get,
    List,
    ListNames,
    Put,
    PutFile,
    Sleep,
    Stat,
)
from lakevilla.store.location import PROBES_PREFIX

#: The requests to a store. Inside ``expand`` each is one attempt.
Request = Get | Put | PutFile | CopyObject | Stat | List | ListNames | DeleteObject

#: The time between two writes of one object that a store with a limit of this takes (GCS).
SECONDS_BETWEEN_WRITES = 1.0

#: Yields single attempts, is sent what ``Store`` returned for them (None for a
#: ``Sleep``), and returns the value that is sent to the program that yielded the effect.
Attempts = Generator[Request | Sleep, Any, Any]


def expand(effect: Request, ids: Ids, settings: Settings) -> Attempts:
    """Return the attempts that carry out ``effect``.

    Raises
    ------
    StoreError
        The request failed for good. For a conditional write this means that
        nothing was written; where that is not sure the outcome is ``Unknown``.
    """
    backoff = Backoff(ids, settings)
    match effect:
        case Put(condition=Absent() | Match()):
            return noting_limit(_write(effect, backoff))
        case _:
            return repeat(effect, backoff)


@dataclass(slots=True)
class Backoff:
    """A counter of attempts that spaces them: full jitter, so losers of one race spread out."""

    ids: Ids
    settings: Settings
    attempts: int = 0

    def exhausted(self) -> bool:
        """Count one more failed attempt; return True when it was the last one allowed."""
        self.attempts += 1
        return self.attempts >= self.settings.retry_limit

    def pause(self, failure: Failure | None = None) -> Sleep:
        if failure is not None and failure.of_object:
            # The object takes a write once a second: to ask sooner is in vain, and so is later.
            return Sleep(SECONDS_BETWEEN_WRITES * (0.6 + 0.6 * self.ids.jitter()))
        step = self.attempts + (2 if failure is not None and failure.throttled else 0)
        longest = self.settings.retry_base_seconds * 2.0 ** max(0, step - 1)
        return Sleep(min(self.settings.retry_cap_seconds, longest) * self.ids.jitter())


def repeat(effect: Request, backoff: Backoff) -> Attempts:
    """Make requests that may simply be repeated: reads, deletes, and writes under ``ANY``.

    Repeating a write under ``ANY`` is safe because its key has one writer and
    one body: an early attempt that lands late stores the same bytes.
    """
    while True:
        outcome = yield effect
        if not isinstance(outcome, Failure):
            if isinstance(effect, List):
                # No store promises an order (S3 Express has none).
                return sorted(cast(Sequence[ObjectInfo], outcome), key=lambda info: info.key)
            return sorted(outcome) if isinstance(effect, ListNames) else outcome
        if outcome.permanent or backoff.exhausted():
            raise failed(effect, outcome, backoff)
        yield backoff.pause(outcome)


def noting_limit(attempts: Attempts) -> Attempts:
    """Carry out attempts at a write, and note in its outcome whether a limit of writes was met."""
    limited = False
    answer: Any = None
    while True:
        try:
            attempt = attempts.send(answer)
        except StopIteration as end:
            outcome: PutOutcome = end.value
            if limited and not isinstance(outcome, Unknown):
                return replace(outcome, limited=True)
            return outcome
        answer = yield attempt
        limited = limited or (isinstance(answer, Failure) and answer.of_object)


def _write(effect: Put, backoff: Backoff) -> Attempts:
    """Make a conditional write: attempt it, and read the key whenever the answer leaves a doubt.

    ``may_have_landed`` is the memory of this function: it is set by the first
    attempt that may have taken effect and never cleared, because such a write
    may land at any time until the key can no longer take it.
    """
    may_have_landed = False
    while True:
        answer: Stored | Refused | Failure = yield effect
        if isinstance(answer, Stored):
            return answer
        is_last = False
        if isinstance(answer, Failure):
            may_have_landed = may_have_landed or answer.ambiguous
            is_last = answer.permanent or backoff.exhausted()
            if is_last and (may_have_landed or answer.conflict):
                # The conflicting write may be this very write, sent twice by a gateway.
                return (yield from _last_look(effect, answer.reason))
            if not answer.of_object:
                if is_last:
                    raise failed(effect, answer, backoff)
                yield backoff.pause(answer)
                if not (answer.ambiguous or answer.conflict):
                    # The store refused it before it processed it (429, no connection): there is
                    # nothing to find.
                    continue
            # Else the object has just been written, mostly by another client: then the read shows
            # at once that the race is lost, which the same write would learn a second later.
        seen: GetOutcome | Failure = yield Get(effect.key)
        if isinstance(seen, Failure):
            # The read-back failed. Repeating the write is as safe as a read: the store stores the
            # same bytes under the same condition, or refuses.
            reason = f"{_reason(answer)}, and the key could not be read back: {seen.reason}"
            if seen.permanent or backoff.exhausted():
                return Unknown(reason)
            yield backoff.pause(seen)
            continue
        verdict = classify(effect, may_have_landed, seen)
        if verdict != "again":
            return verdict
        if isinstance(answer, Refused):
            # The store refused the write, but the condition holds for the object read: it changed
            # in between.
            if backoff.exhausted():
                return Unknown("refused, although the condition held when the key was read back")
            yield backoff.pause()
        elif answer.of_object:
            if is_last:
                raise failed(effect, answer, backoff)
            yield backoff.pause(answer)


def _last_look(effect: Put, reason: str) -> Generator[Request | Sleep, Any, PutOutcome]:
    """Read the key after the last attempt: this may still settle the outcome of the attempts."""
    seen: GetOutcome | Failure = yield Get(effect.key)
    if not isinstance(seen, Failure):
        verdict = classify(effect, True, seen)
        if verdict != "again":
            return verdict
    return Unknown(reason)


def classify(effect: Put, may_have_landed: bool, seen: GetOutcome) -> PutOutcome | Literal["again"]:
    """Return the outcome of a conditional write, judged by the object at its key.

    ``may_have_landed``: some attempt may have taken effect, now or later.
    ``again``: make the same write again; it decides.
    """
    assert not isinstance(effect.condition, AnyVersion)
    assert not isinstance(seen, Unchanged), "a read-back knows no token"
    if isinstance(seen, Found) and seen.body == effect.body:
        # Safe because no two writes have equal bytes.
        return Stored(seen.token)
    if isinstance(effect.condition, Absent):
        if isinstance(seen, Found):
            # Another client's object. It is safe to report ``Refused`` even after an attempt in
            # doubt: log entries and commit objects are never overwritten. If this client's object
            # had been stored first it would be here, and the store refuses a late attempt because
            # of the object that is here. The few keys that are created empty and replaced later
            # (HEAD, a record, a bound key) decide nothing by being created: their creator continues
            # with the object that it finds there.
            return Refused(seen)
        # No object: not yet, or not any more. The same create decides.
        return "again"
    if isinstance(seen, Found) and same_object(seen.token, effect.condition.token):
        # The object to be replaced is still there: the write has not taken effect so far, and the
        # same write again either takes effect or conflicts with the late attempt.
        return "again"
    if may_have_landed:
        # Another client's object, or none: this client's object may have been stored in between and
        # replaced since. Only a client that reads the result can determine this.
        return Unknown(
            "the object has changed since, and this client's own write may have been in between"
        )
    if isinstance(seen, Found):
        return Refused(seen)
    # A match on an absent key never holds, whatever the store has answered.
    return Refused()


def same_object(one: Token, other: Token) -> bool:
    """Return whether two tokens name the same state of an object.

    Versions decide where both tokens have one (GCS), else ETags, whose quotes some stores leave out
    of some answers (R2); a token without either is equal to nothing.
    """
    if one.version is not None and other.version is not None:
        return one.version == other.version
    return one.e_tag is not None and one.e_tag.strip('"') == (other.e_tag or "").strip('"')


def _reason(answer: Refused | Failure) -> str:
    return answer.reason if isinstance(answer, Failure) else "refused"


_VERBS: dict[type, str] = {
    Get: "get",
    Put: "put",
    PutFile: "upload",
    CopyObject: "copy to",
    Stat: "head",
    List: "list",
    ListNames: "list",
    DeleteObject: "delete",
}


def describe(effect: Request) -> str:
    """Return the request for a message: verb and key, without possible secrets in a URI."""
    key = effect.prefix if isinstance(effect, List | ListNames) else effect.key
    if key.startswith(PROBES_PREFIX):
        key = f"{PROBES_PREFIX}..."  # the name of its object has no meaning
    if "://" in key:
        key = re.sub(r"://[^/@]*@(?!.*\.dfs\.)", "://", key).partition("?")[0]
    return f"{_VERBS[type(effect)]} {key!r}"


def failed(effect: Request, failure: Failure, backoff: Backoff) -> StoreError:
    """Return the error of a request that failed for good.

    A fault of the store as a whole is reported without the object that happened to be first.
    """
    if failure.of_store:
        once = failure.permanent or backoff.attempts == 1
        tried = "" if once else f"; tried {backoff.attempts} times"
        return StoreError(f"{failure.reason}{tried}", permanent=failure.permanent)
    if failure.permanent:
        return StoreError(
            f"the store rejected {describe(effect)}: {failure.reason}",
            permanent=True,
            rejected=failure.rejected,
        )
    return StoreError(
        f"{describe(effect)} failed {backoff.attempts} times, last with: {failure.reason}; "
        f"check that the store can be reached, or raise settings.retry_limit, and run it again"
    )
