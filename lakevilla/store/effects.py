"""The effects that programs yield, and the gate of how many run at once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from lakevilla.store.base import (
    Condition,
    Found,
    GetOutcome,
    Missing,
    ObjectInfo,
    PutOutcome,
    Stored,
    Token,
)

# -------------------- effects
#
# Effects: what protocol code asks for.
#
# A protocol function is a generator. It yields effects and is sent their
# outcomes; it does no I/O itself, so that the same code runs against a real
# store and under the simulator::
#
#     def create(key: str, body: bytes) -> Program[bool]:
#         outcome = yield from put(key, body, ABSENT)
#         return isinstance(outcome, Stored)
#
# ``yield from`` with the typed helpers below keeps ``mypy --strict`` useful;
# yielding an effect itself is the same thing without types.


T = TypeVar("T")

_COPIES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Get:
    """Read; resumes with ``Found``, ``Unchanged`` (only with ``known``) or ``Missing``.

    ``immutable``: the key tells the content, so what this process has of it will do.
    """

    key: str
    known: Token | None = None
    byte_range: tuple[int, int] | None = None
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Write under a condition; resumes with ``Stored``, ``Refused`` or ``Unknown``.

    Every body under ``Absent`` or ``Match`` carries a nonce: that no two writes
    have equal bytes is how one recognises one's own. Under ``ANY`` and
    ``NEW`` it is ``Stored`` or an error.
    """

    key: str
    body: bytes
    condition: Condition


@dataclass(frozen=True, slots=True)
class PutFile:
    """Upload a local file to a key that only this writer uses, in parts where large."""

    key: str
    path: str


@dataclass(frozen=True, slots=True)
class CopyObject:
    """Have the store copy ``source`` to a key that only this writer uses.

    Resumes with ``Stored``, or with ``Missing`` where there is no such source.
    """

    key: str
    source: str


@dataclass(frozen=True, slots=True)
class Stat:
    """Describe; resumes with ``ObjectInfo`` or ``Missing``."""

    key: str


@dataclass(frozen=True, slots=True)
class List:
    """List everything below a directory; resumes with a list of ``ObjectInfo``, sorted by key."""

    prefix: str
    start_after: str | None = None


@dataclass(frozen=True, slots=True)
class ListNames:
    """List what lies in a directory itself; resumes with a list of names, sorted.

    Those of directories end in a slash: nothing is listed that lies further down.
    """

    prefix: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete; an absent key is fine."""

    key: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; virtual time under the simulator."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until another program of this process opens the gate."""

    gate: Gate


@dataclass(frozen=True, slots=True)
class Parallel:
    """Run parts at the same time; resumes with their results in order.

    A part is an effect or another program. The first error is raised after all
    parts have ended.
    """

    parts: tuple[Effect | Program[Any], ...]


_OfStore = Get | Put | PutFile | CopyObject | Stat | List | ListNames | DeleteObject
Effect = _OfStore | Sleep | Await | Parallel
Program = Generator[Effect, Any, T]


def get(
    key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
) -> Program[GetOutcome]:
    return cast(GetOutcome, (yield Get(key, known, byte_range)))


def get_immutable(key: str) -> Program[Found | Missing]:
    return cast(Found | Missing, (yield Get(key, immutable=True)))


def put(key: str, body: bytes, condition: Condition) -> Program[PutOutcome]:
    return cast(PutOutcome, (yield Put(key, body, condition)))


def put_file(key: str, path: str) -> Program[None]:
    yield PutFile(key, path)


def copy(source: str, key: str) -> Program[Stored | Missing]:
    return cast(Stored | Missing, (yield CopyObject(key, source)))


def copy_all(wanted: Sequence[tuple[str, str]]) -> Program[str | None]:
    """Copy sources to keys, some at a time; the first source that is missing, which ends it."""
    for first in range(0, len(wanted), _COPIES_AT_ONCE):
        some = wanted[first : first + _COPIES_AT_ONCE]
        outcomes: list[Stored | Missing] = yield from parallel(
            [copy(source, key) for source, key in some]
        )
        for (source, _), outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, Missing):
                return source
    return None


def stat(key: str) -> Program[ObjectInfo | Missing]:
    return cast(ObjectInfo | Missing, (yield Stat(key)))


def list_objects(prefix: str, start_after: str | None = None) -> Program[Sequence[ObjectInfo]]:
    return cast(Sequence[ObjectInfo], (yield List(prefix, start_after)))


def list_names(prefix: str) -> Program[Sequence[str]]:
    return cast(Sequence[str], (yield ListNames(prefix)))


def delete(key: str) -> Program[None]:
    yield DeleteObject(key)


def sleep(seconds: float) -> Program[None]:
    yield Sleep(seconds)


def wait_at(gate: Gate) -> Program[None]:
    yield Await(gate)


def parallel(parts: Iterable[Effect | Program[T]]) -> Program[list[T]]:
    """Results of ``parts`` in order; nothing is asked of the runner for none, one runs inline."""
    together = tuple(parts)
    if not together:
        return []
    return cast("list[T]", (yield Parallel(together)))


def exchanged(
    program: Program[T],
    asks: Callable[[Effect], Effect],
    answers: Callable[[Effect, Any], Any] = lambda effect, answer: answer,
) -> Program[T]:
    """A program that yields other effects, and is sent what ``answers`` makes of their outcomes."""
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                if error is None:
                    effect = program.send(value)
                else:
                    thrown, error = error, None
                    effect = program.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = answers(effect, (yield asks(effect)))
            except GeneratorExit:
                raise
            except BaseException as caught:
                error = caught
    finally:
        program.close()


# -------------------- gate
#
# Gates: where the programs of one process wait for each other, without a request.


class Gate:
    """Shut until somebody opens it, and open from then on.

    Safe without a lock: whoever waits is noted before the gate is looked at, and the
    gate is open before those noted are told, so whichever of the two comes last tells.
    Some are told twice, which is all the same to them. Nothing is taken out of a
    list in between, so that opening it anew finishes what Ctrl-C has cut short.
    """

    __slots__ = ("_listeners", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._listeners: list[Callable[[], object]] = []

    def open(self) -> None:
        """Let everybody through."""
        self.is_open = True
        for listener in list(self._listeners):
            listener()

    def when_open(self, listener: Callable[[], object]) -> None:
        """Call ``tell``, from any thread and maybe twice, once the gate is open."""
        self._listeners.append(listener)
        if self.is_open:
            listener()
