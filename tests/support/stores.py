"""Stores that fail, die, wait or refuse, as a test requires; and the keys that tests name."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from tests.support.inside import inside


class InterruptedStore(WrappedStore):
    """Call ``meanwhile`` once, before the first PUT of a key for which ``before`` is true."""

    def __init__(
        self, inner: Store, before: Callable[[str], bool], meanwhile: Callable[[], object]
    ) -> None:
        super().__init__(inner)
        self._before = before
        self._meanwhile: Callable[[], object] | None = meanwhile
        self._lock = threading.Lock()

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self._before(key):
            with self._lock:
                meanwhile, self._meanwhile = self._meanwhile, None
                if meanwhile is not None:
                    meanwhile()
        return self.inner.put(key, body, condition)

    @property
    def happened(self) -> bool:
        return self._meanwhile is None


class Closed(WrappedStore):
    """Refuse every PUT of a key for which ``closed`` is true.

    If it refuses log entries, decided commits are left to other clients to publish.
    """

    def __init__(self, inner: Store, closed: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self.closed = closed

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self.closed(key):
            return Failure("turned down", ambiguous=False, permanent=True)
        return self.inner.put(key, body, condition)


class Dying(WrappedStore):
    """Let the process die after ``writes`` writes: the store performs and answers no later request.

    Attributes
    ----------
    died : bool
        Whether the process has died.
    """

    class Death(BaseException):
        """An error that stands for the end of the process."""

    def __init__(self, inner: Store, writes: int) -> None:
        super().__init__(inner)
        self._left = writes
        self._lock = threading.Lock()
        self.died = False

    def _ask(self, *, writing: bool) -> None:
        with self._lock:
            self.died = self.died or (writing and self._left == 0)
            if self.died:
                raise Dying.Death
            self._left -= writing

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._ask(writing=False)
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self._ask(writing=True)
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self._ask(writing=True)
        return self.inner.put_file(key, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        self._ask(writing=True)
        return self.inner.copy_object(source, key)

    def delete(self, key: str) -> Failure | None:
        self._ask(writing=True)
        return self.inner.delete(key)


@contextmanager
def interrupted(
    lake: lv.Lake, before: Callable[[str], bool], meanwhile: Callable[[], object]
) -> Iterator[None]:
    """Let the first PUT that ``before`` accepts wait until ``meanwhile`` has run."""
    inner = inside(lake).store
    store = InterruptedStore(inner, before, meanwhile)
    inside(lake).store = store
    try:
        yield
    finally:
        inside(lake).store = inner
    assert store.happened, "the timestamp never came"


@contextmanager
def unpublished(
    lake: lv.Lake, closed: Callable[[str], bool] = lambda key: "/_delta_log/" in key
) -> Iterator[None]:
    """Let commits within the block be decided without a log entry, as if their client had died."""
    inner = inside(lake).store
    inside(lake).store = Closed(inner, closed)
    try:
        yield
    finally:
        inside(lake).store = inner


class Later(SystemClock):
    """A clock that is ``ahead_seconds`` ahead; ``of`` makes a lake and its store use it."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self.written: dict[str, float] = {}

    def now(self) -> float:
        return super().now() + self.ahead_seconds

    def elapsed(self) -> float:
        return super().elapsed() + self.ahead_seconds

    def of(self, lake: lv.Lake) -> None:
        inside(lake).clock = self
        inside(lake).store = _Dated(inside(lake).store, self)


class _Dated(WrappedStore):
    """Show the times of writes by the clock that a test has moved."""

    def __init__(self, inner: Store, later: Later) -> None:
        super().__init__(inner)
        self._later = later

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        outcome = self.inner.put(key, body, condition)
        self._note(key, outcome)
        return outcome

    def put_file(self, key: str, path: str) -> Stored | Failure:
        outcome = self.inner.put_file(key, path)
        self._note(key, outcome)
        return outcome

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        outcome = self.inner.copy_object(source, key)
        self._note(key, outcome)
        return outcome

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        outcome = self.inner.head(key)
        return self._dated(outcome) if isinstance(outcome, ObjectInfo) else outcome

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        outcome = self.inner.list(prefix, start_after, until)
        return outcome if isinstance(outcome, Failure) else [self._dated(one) for one in outcome]

    def _note(self, key: str, outcome: object) -> None:
        if isinstance(outcome, Stored):
            self._later.written[key] = self._later.ahead_seconds

    def _dated(self, info: ObjectInfo) -> ObjectInfo:
        seconds = info.modified_seconds + self._later.written.get(info.key, 0.0)
        return dataclasses.replace(info, modified_seconds=seconds)


def listed(store: Store, prefix: str) -> list[ObjectInfo]:
    found = store.list(prefix)
    assert isinstance(found, list)
    return found


def is_head(key: str) -> bool:
    return key == "_lakevilla/HEAD.json"


def is_entry(table: str) -> Callable[[str], bool]:
    """Return whether a key is a log entry of the table, or a metadata file."""
    logs = (f"{table}/_delta_log/", f"{table}/metadata/v")
    return lambda key: key.startswith(logs) and key.endswith(".json")
