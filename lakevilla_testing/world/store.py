"""An object store in memory whose past can be read.

It answers as S3 does: strong conditions, ETags, lists in no useful order. It is a
``lakevilla.store.base.Store``, so the real runner runs against it, and the simulator applies its
single attempts to it. Every change is kept in a journal, from which a stale list is answered.
"""

from __future__ import annotations

import builtins
import hashlib
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from lakevilla.store.base import (
    Absent,
    AnyVersion,
    Condition,
    Failure,
    Found,
    GetOutcome,
    Match,
    Missing,
    ObjectInfo,
    Refused,
    Stored,
    Token,
    Unchanged,
)
from lakevilla.store.effects import (
    CopyObject,
    DeleteObject,
    Effect,
    Get,
    List,
    ListNames,
    Put,
    PutFile,
    Stat,
)

#: The root of a simulated lake.
ROOT = "memory://lake"

#: The result of a single attempt.
Answer = (
    GetOutcome | Stored | Refused | Failure | ObjectInfo | list[ObjectInfo] | tuple[str, ...] | None
)


#: Where stores with S3's interface are known to differ from it: Ceph and others answer 409 to a
#: condition that does not hold, and R2 and others leave the quotes of an ETag out of some answers.
Deviation = Literal["", "409 for 412", "bare tags"]

_CONFLICT = Failure("409", ambiguous=False, conflict=True)
_TOO_SOON = Failure("429", ambiguous=False, throttled=True, of_object=True)


class StoredObject(NamedTuple):
    """An object, and the time of its writing by the store's clock."""

    body: bytes
    token: Token
    modified_seconds: float


class Mutation(NamedTuple):
    """One change of the store: the object at the key before, and after."""

    seconds: float
    key: str
    before: StoredObject | None
    after: StoredObject | None


class SimulatedStore:
    """Objects in memory.

    Parameters
    ----------
    now : callable
        The store's clock, in seconds since the epoch.
    content_tags : bool
        ETags are the MD5 of the body, as on several stores: equal bytes then
        pass a ``Match`` meant for an earlier object (ABA). Else no two writes
        share a tag.
    conditional : bool
        If False, the store ignores every condition, as some stores do.
    replaces : bool
        If False, the store refuses every ``Match``: it only creates.
    seconds_between_writes : float
        It takes one write or delete of an object in so many seconds, and answers 429 to more,
        whatever their condition, as GCS does.
    deviation : str
        Its difference from S3: ``409 for 412``; or ``bare tags``, for a PUT that is answered with
        an ETag without the quotes that it has elsewhere.
    """

    def __init__(
        self,
        now: Callable[[], float] = lambda: 0.0,
        *,
        content_tags: bool = False,
        conditional: bool = True,
        replaces: bool = True,
        seconds_between_writes: float = 0.0,
        deviation: Deviation = "",
    ) -> None:
        self.now = now
        self.content_tags = content_tags
        self.conditional = conditional
        self.replaces = replaces
        self.seconds_between_writes = seconds_between_writes
        self.deviation = deviation
        #: How many writes came too soon.
        self.turned_away = 0
        self._changed: dict[str, float] = {}
        self.objects: dict[str, StoredObject] = {}
        self.journal: builtins.list[Mutation] = []
        self._lock = threading.RLock()

    # -------------------------------------------------------- the five verbs

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome:
        found = self.objects.get(_relative(key))
        if found is None:
            return Missing()
        if known is not None and _is_same(known, found.token):
            return Unchanged()
        if byte_range is None:
            return Found(found.body, found.token, len(found.body))
        start, end = byte_range
        body = found.body[start:] if start < 0 else found.body[start:end]
        return Found(body, found.token, len(found.body))

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if isinstance(condition, Match) and not self.replaces:
            reason = "501 NotImplemented: it does not replace under a condition"
            return Failure(reason, ambiguous=False, permanent=True)
        with self._lock:
            if self._is_too_soon(key):
                return _TOO_SOON
            before = self.objects.get(key)
            match condition:
                case Absent():
                    holds = before is None
                case Match(token=token):
                    holds = before is not None and _is_same(before.token, token)
                case AnyVersion():
                    holds = True
            if not holds and self.conditional:
                return _CONFLICT if self.deviation == "409 for 412" else Refused()
            tag = hashlib.md5(body).hexdigest() if self.content_tags else str(len(self.journal))
            after = StoredObject(body, Token(f'"{tag}"'), self.now())
            self.objects[key] = after
            self._note(Mutation(self.now(), key, before, after))
            return Stored(Token(tag) if self.deviation == "bare tags" else after.token)

    def head(self, key: str) -> ObjectInfo | Missing:
        found = self.objects.get(_relative(key))
        return Missing() if found is None else _info(key, found)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> builtins.list[ObjectInfo]:
        with self._lock:
            return _listing(self.objects, prefix, start_after, until)

    def list_names(self, prefix: str) -> tuple[str, ...]:
        start = f"{prefix}/" if prefix else ""
        below = {info.key[len(start) :].partition("/")[:2] for info in self.list(prefix)}
        return tuple("".join(parts) for parts in below)

    def delete(self, key: str) -> Failure | None:
        with self._lock:
            if key in self.objects and self._is_too_soon(key):
                return _TOO_SOON
            before = self.objects.pop(key, None)
            if before is not None:
                self._note(Mutation(self.now(), key, before, None))
            return None

    def put_file(self, key: str, path: str) -> Stored | Failure:
        return _without_condition(self.put(key, Path(path).read_bytes(), AnyVersion()))

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        found = self.get(source)
        if not isinstance(found, Found):
            return Missing()
        return _without_condition(self.put(key, found.body, AnyVersion()))

    def local_path(self, key: str) -> str | None:
        return None

    # ------------------------------------------------------ for the simulator

    def apply(self, attempt: Effect) -> Answer:
        """Answer one single attempt."""
        match attempt:
            case Get(key=key, known=known, byte_range=byte_range):
                return self.get(key, known, byte_range)
            case Put(key=key, body=body, condition=condition):
                return self.put(key, body, condition)
            case PutFile(key=key, path=path):
                return self.put_file(key, path)
            case CopyObject(key=key, source=source):
                return self.copy_object(source, key)
            case Stat(key=key):
                return self.head(key)
            case List(prefix=prefix, start_after=start_after, until=until):
                return self.list(prefix, start_after, until)
            case ListNames(prefix=prefix):
                return self.list_names(prefix)
            case DeleteObject(key=key):
                return self.delete(key)
            case _:
                raise TypeError(f"not a single attempt: {attempt!r}")

    def list_at(
        self,
        seconds: float,
        prefix: str,
        start_after: str | None = None,
        until: str | None = None,
    ) -> builtins.list[ObjectInfo]:
        """Return the list of an earlier time."""
        past: dict[str, StoredObject | None] = {}
        for mutation in reversed(self.journal):
            if mutation.seconds <= seconds:
                break
            past[mutation.key] = mutation.before
        objects = {key: found for key, found in self.objects.items() if key not in past}
        objects.update((key, found) for key, found in past.items() if found is not None)
        return _listing(objects, prefix, start_after, until)

    def copy(self) -> SimulatedStore:
        """Return a copy of the store, so that two runs can continue from it."""
        other = SimulatedStore(
            self.now,
            content_tags=self.content_tags,
            conditional=self.conditional,
            replaces=self.replaces,
            seconds_between_writes=self.seconds_between_writes,
            deviation=self.deviation,
        )
        other._changed = dict(self._changed)
        other.objects = dict(self.objects)
        other.journal = list(self.journal)
        return other

    def dump(self, directory: Path) -> None:
        """Write every object to a file, so that real readers can open the tables."""
        for key, found in self.objects.items():
            path = directory / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(found.body)

    def _is_too_soon(self, key: str) -> bool:
        is_too_soon = self.now() - self._changed.get(key, -math.inf) < self.seconds_between_writes
        self.turned_away += is_too_soon
        return is_too_soon

    def _note(self, mutation: Mutation) -> None:
        self.journal.append(mutation)
        if self.seconds_between_writes:
            self._changed[mutation.key] = mutation.seconds


def _is_same(one: Token, other: Token) -> bool:
    return (one.e_tag or "").strip('"') == (other.e_tag or "").strip('"')


def _without_condition(outcome: Stored | Refused | Failure) -> Stored | Failure:
    assert not isinstance(outcome, Refused), "there is no condition that could not hold"
    return outcome


def _relative(key: str) -> str:
    """Return a key relative to the root, where it was given as a URI."""
    return key.removeprefix(f"{ROOT}/")


def _info(key: str, found: StoredObject) -> ObjectInfo:
    return ObjectInfo(key, len(found.body), found.token, found.modified_seconds)


def _listing(
    objects: dict[str, StoredObject], prefix: str, start_after: str | None, until: str | None
) -> list[ObjectInfo]:
    directory = prefix.rstrip("/") + "/" if prefix else ""
    keys = [key for key in objects if key.startswith(directory)]
    if start_after is not None:
        keys = [key for key in keys if key > start_after]
    if until is not None:
        keys = [key for key in keys if key <= until]
    # In reverse order: a client that relies on the order of a list fails at once.
    keys.sort(reverse=True)
    return [_info(key, objects[key]) for key in keys]
