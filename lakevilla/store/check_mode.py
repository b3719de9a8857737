"""Checks in the place of conditions, for a store that has no conditional writes.

The paper's fallback (module #1, "continuous checks for object stores without
atomic requests"): check whether the condition holds, write unconditionally, and
check again and again whether the own object is still there. ``expand_checked`` is to a
runner what ``expand`` is where the store decides; every PUT that it yields is plain.

The reason for n sequential checks on each side, and not one: let W be ``check_reads`` times
``check_interval_seconds``, and let every write land within W of its writer's last
read of the key. Consider two writers that both saw the condition hold. The one that lands
second does so within W of the time at which the first one landed, and the first one checks until
after that. So at most one of them reports ``Stored`` (as in Fischer's algorithm for
mutual exclusion). In the same way an object that has been stored for W is not overwritten any
more by a client that read the key before the object was stored. Hence n reads after a write, and
n reads before a client relies on an object that another client may just have written.

A write that lands later than W after its read breaks this, and nothing here can
detect it: the mode is best effort. ``docs/design/0006-check-mode.md`` says what it promises.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import (
    ANY,
    Absent,
    AnyVersion,
    Condition,
    Failure,
    Found,
    GetOutcome,
    Match,
    Missing,
    PutOutcome,
    Refused,
    Stored,
    Token,
    Unchanged,
    Unknown,
)
from lakevilla.store.effects import Get, Put, Sleep
from lakevilla.store.readback import (
    Attempts,
    Backoff,
    Request,
    expand,
    failed,
    noting_limit,
    repeat,
    same_object,
)

#: True for keys whose objects decide something, so that they must have settled first.
ReliedOn = Callable[[str], bool]


def expand_checked(effect: Request, ids: Ids, settings: Settings, relied_on: ReliedOn) -> Attempts:
    """Return the attempts that carry out ``effect`` on a store without conditional writes.

    Parameters
    ----------
    relied_on : callable
        Keys whose objects are read for a while before they are returned.

    Raises
    ------
    StoreError
        As ``expand``.
    """
    backoff = Backoff(ids, settings)
    match effect:
        case Put(condition=Absent() | Match()):
            return noting_limit(_write(effect, backoff, relied_on))
        case Get(byte_range=None) if relied_on(effect.key):
            return _settled(effect, backoff)
        case _:
            return expand(effect, ids, settings)


def _write(effect: Put, backoff: Backoff, relied_on: ReliedOn) -> Attempts:
    """Check the key, write, and check while a client that checked earlier may still write."""
    may_have_landed = False
    pause: Sleep | None = None
    while True:
        seen: GetOutcome | Failure = yield Get(effect.key)
        if isinstance(seen, Failure):
            if seen.permanent or backoff.exhausted():
                if may_have_landed:
                    return Unknown(f"the key could not be read back: {seen.reason}")
                raise failed(effect, seen, backoff)
            yield backoff.pause(seen)
            continue
        if _is_ours(effect, seen):
            # An earlier attempt has landed: one of this effect, or one of an earlier
            # effect that ended ``Unknown`` and is repeated with the same bytes.
            break
        if not _holds(effect.condition, seen):
            if may_have_landed:
                # This client's object may have been stored and replaced, or may still be stored and
                # stay.
                return Unknown(
                    "another client's object is stored, and this client's own write may have "
                    "preceded it, or may still replace it"
                )
            return (yield from _refused(effect, seen, backoff, relied_on))
        if pause is not None:
            # It takes no write yet: wait, and look again, as the write must follow its look in W.
            yield pause
            pause = None
            continue
        answer: Stored | Refused | Failure = yield Put(effect.key, effect.body, ANY)
        if not isinstance(answer, Failure):
            break
        may_have_landed = may_have_landed or answer.ambiguous
        if answer.permanent or backoff.exhausted():
            if not may_have_landed:
                raise failed(effect, answer, backoff)
            seen = yield Get(effect.key)
            if not _is_ours(effect, seen):
                return Unknown(answer.reason)
            break
        if answer.of_object:
            # Look first: another client has written the object a moment ago, and reads are free.
            pause = backoff.pause(answer)
        else:
            yield backoff.pause(answer)
    return (yield from _stays(effect, backoff, relied_on))


def _stays(
    effect: Put, backoff: Backoff, relied_on: ReliedOn
) -> Generator[Request | Sleep, Any, PutOutcome]:
    """Check that the stored object stays while a client that checked before may still
    overwrite it.
    """
    token: Token | None = None
    for _ in range(backoff.settings.check_reads):
        yield Sleep(backoff.settings.check_interval_seconds)
        while isinstance(seen := (yield Get(effect.key, token)), Failure):
            if seen.permanent or backoff.exhausted():
                return Unknown(f"stored, but it could not be read back: {seen.reason}")
            yield backoff.pause(seen)
        if isinstance(seen, Unchanged):
            continue
        if _is_ours(effect, seen):
            token = seen.token
            continue
        if isinstance(effect.condition, Absent) and isinstance(seen, Found):
            # Another client has overwritten the object, because it created the key at the same
            # time. It is safe to report ``Refused``: no client that has read a log entry or a
            # commit object replaces it, so the other object is not based on this one, which is lost
            # for good. The keys that are created empty and replaced later (HEAD, a record, a bound
            # key) are an exception: their creator continues with the object that it finds.
            return (yield from _refused(effect, seen, backoff, relied_on))
        # Another client has replaced or removed the object: either without having read it, or on
        # top of it. Only a client that reads the result can determine which.
        return Unknown("it was stored, and another client's object has replaced it since")
    assert token is not None, "the first look has found it"
    return Stored(token)


def _refused(
    effect: Put, seen: GetOutcome, backoff: Backoff, relied_on: ReliedOn
) -> Generator[Request | Sleep, Any, Refused]:
    """Report another client's object at the key; the caller continues with it, so it must have
    settled.
    """
    if not isinstance(seen, Found):
        return Refused()
    if relied_on(effect.key):
        seen = yield from _stable(effect.key, seen, backoff)
    return Refused(seen if isinstance(seen, Found) else None)


def _settled(effect: Get, backoff: Backoff) -> Attempts:
    """Read an object that will be relied on.

    A read that is unchanged since ``known`` costs no more than in other modes: an object that the
    caller knows has settled before, or is its own write, which was checked for as long.
    """
    seen: GetOutcome = yield from repeat(effect, backoff)
    if isinstance(seen, Found):
        return (yield from _stable(effect.key, seen, backoff))
    return seen


def _stable(
    key: str, seen: Found, backoff: Backoff
) -> Generator[Request | Sleep, Any, Found | Missing]:
    """Return the object at the key once it has not changed for n reads.

    After ``retry_limit`` changes in a row the present object is returned: a reader that waited
    longer would starve, and a client that writes on top of it checks again.
    """
    settings = backoff.settings
    changes, reads = 0, 0
    while reads < settings.check_reads:
        yield Sleep(settings.check_interval_seconds)
        read: GetOutcome = yield from repeat(Get(key, seen.token), backoff)
        if isinstance(read, Missing):
            return read
        reads += 1
        if isinstance(read, Found) and read.body != seen.body:
            seen, reads, changes = read, 0, changes + 1
            if changes >= settings.retry_limit:
                break
    return seen


def _holds(condition: Condition, seen: GetOutcome) -> bool:
    assert not isinstance(condition, AnyVersion)
    if isinstance(condition, Absent):
        return isinstance(seen, Missing)
    return isinstance(seen, Found) and same_object(seen.token, condition.token)


def _is_ours(effect: Put, seen: GetOutcome | Failure) -> bool:
    # Safe because no two writes have equal bytes.
    return isinstance(seen, Found) and seen.body == effect.body
