"""The effects that programs yield, and the gates at which programs of one process wait."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from lakevilla.store.base import (
    ANY,
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
# Effects: the requests of protocol code.
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
#: The number of programs of ``some_at_once`` that run at the same time: more than a pool has
#: threads, so that a thread seldom waits for the next request.
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Get:
    """Read; resumes with ``Found``, ``Unchanged`` (only with ``known``) or ``Missing``.

    ``immutable``: the key determines the content, so a cached copy of this process suffices.
    """

    key: str
    known: Token | None = None
    byte_range: tuple[int, int] | None = None
    immutable: bool = False


@dataclass(frozen=True, slots=True)
class Put:
    """Write under a condition; resumes with ``Stored``, ``Refused`` or ``Unknown``.

    Every body under ``Absent`` or ``Match`` carries a nonce: no two writes
    have equal bytes, so a writer recognises its own write. Under ``ANY`` and
    ``NEW`` the outcome is ``Stored`` or an error.
    """

    key: str
    body: bytes
    condition: Condition


@dataclass(frozen=True, slots=True)
class PutFile:
    """Upload a local file to a key that only this writer uses, in parts where it is large."""

    key: str
    path: str


@dataclass(frozen=True, slots=True)
class CopyObject:
    """Have the store copy ``source`` to a key that only this writer uses.

    Resumes with ``Stored``, or with ``Missing`` if the source does not exist.
    """

    key: str
    source: str


@dataclass(frozen=True, slots=True)
class Stat:
    """Describe an object; resumes with ``ObjectInfo`` or ``Missing``."""

    key: str


@dataclass(frozen=True, slots=True)
class List:
    """List all objects below a directory; resumes with ``ObjectInfo`` in a list, sorted by key.

    Only those after the key ``start_after`` are listed, and none after ``until``.
    """

    prefix: str
    start_after: str | None = None
    until: str | None = None


@dataclass(frozen=True, slots=True)
class ListNames:
    """List the names in a directory itself; resumes with a list of names, sorted.

    Names of directories end in a slash: nothing further down is listed.
    """

    prefix: str


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete an object; an absent key is no error."""

    key: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; virtual time under the simulator."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until another program of this process opens the gate, or until the seconds are over."""

    gate: Gate
    seconds: float | None = None


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


def get_immutable(key: str, size: int | None = None) -> Program[Found | Missing]:
    """Return an object that never changes; with ``size``, no more bytes of it are requested."""
    byte_range = None if size is None else (0, size)
    return cast(Found | Missing, (yield Get(key, None, byte_range, immutable=True)))


def put(key: str, body: bytes, condition: Condition) -> Program[PutOutcome]:
    return cast(PutOutcome, (yield Put(key, body, condition)))


def put_file(key: str, path: str) -> Program[None]:
    yield PutFile(key, path)


def copy(source: str, key: str) -> Program[Stored | Missing]:
    return cast(Stored | Missing, (yield CopyObject(key, source)))


def put_all(bodies: Mapping[str, bytes]) -> Program[str | None]:
    """Store objects in one round; return the key of one of which it is not known, if there is one.

    Nobody else writes to their keys.
    """
    outcomes: list[PutOutcome] = yield from parallel(
        [Put(key, body, ANY) for key, body in bodies.items()]
    )
    doubtful = (
        one
        for one, outcome in zip(bodies, outcomes, strict=True)
        if not isinstance(outcome, Stored)
    )
    return next(doubtful, None)


def copy_all(wanted: Sequence[tuple[str, str]]) -> Program[str | None]:
    """Copy sources to keys, some at a time; a missing source ends this, and is returned."""
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


def list_objects(
    prefix: str, start_after: str | None = None, until: str | None = None
) -> Program[Sequence[ObjectInfo]]:
    return cast(Sequence[ObjectInfo], (yield List(prefix, start_after, until)))


def list_names(prefix: str) -> Program[Sequence[str]]:
    return cast(Sequence[str], (yield ListNames(prefix)))


def delete(key: str) -> Program[None]:
    yield DeleteObject(key)


def sleep(seconds: float) -> Program[None]:
    yield Sleep(seconds)


def wait_at(gate: Gate, seconds: float | None = None) -> Program[None]:
    """Wait until the gate opens, for ``seconds`` at most."""
    yield Await(gate, seconds)


def parallel(parts: Iterable[Effect | Program[T]]) -> Program[list[T]]:
    """Return the results of ``parts`` in order; without parts, the runner gets no request."""
    together = tuple(parts)
    if not together:
        return []
    return cast("list[T]", (yield Parallel(together)))


def some_at_once(programs: Iterable[Program[T]]) -> Program[list[T]]:
    """Return the results of ``programs`` in order like ``parallel``, if there may be thousands.

    The next program is taken when one has ended: only those that run need memory. No program may
    wait for another one. After an error, no further program is begun.
    """
    results: dict[int, T] = {}
    waiting = enumerate(programs)
    has_failed = False

    def work(index: int, program: Program[T]) -> Program[None]:
        nonlocal has_failed
        while True:
            try:
                results[index] = yield from program
            except BaseException:
                has_failed = True
                raise
            following = None if has_failed else next(waiting, None)
            if following is None:
                return
            index, program = following

    yield from parallel([work(*one) for one in islice(waiting, _AT_ONCE)])
    return [results[index] for index in range(len(results))]


def exchanged(
    program: Program[T],
    asks: Callable[[Effect], Effect],
    answers: Callable[[Effect, Any], Any] = lambda effect, answer: answer,
) -> Program[T]:
    """Run a program with its effects replaced by ``asks``, and their outcomes by ``answers``."""
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
# Gates: points where the programs of one process wait for each other, without a request.


class Gate:
    """A gate that is shut until a program opens it, and open from then on.

    Safe without a lock: a waiting program's listener is recorded before the gate is checked, and
    the gate is open before the recorded listeners are called, so whichever of the two steps comes
    last calls the listener. Some listeners are called twice, which is harmless. Nothing is removed
    from a list in between, so opening the gate again finishes what Ctrl-C has cut short.
    """

    __slots__ = ("_listeners", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._listeners: list[Callable[[], object]] = []

    def open(self) -> None:
        """Open the gate, and call all listeners."""
        self.is_open = True
        for listener in list(self._listeners):
            listener()

    def when_open(self, listener: Callable[[], object]) -> None:
        """Call ``listener``, from any thread and maybe twice, once the gate is open."""
        self._listeners.append(listener)
        if self.is_open:
            listener()
