"""A client dies between any two of its writes, and other clients, with wrong clocks, go on.

The same lake as for damages, and the same checks: what a dead client has done is there as a whole
or not at all, the next one can do the same or something else, and upkeep finds no fault.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from lakevilla.errors import LakeVillaError
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from lakevilla_testing.damage.cell import (
    SETTINGS,
    Cell,
    check_reads,
    check_restored,
    perform,
    possible_after,
)
from lakevilla_testing.damage.damages import Damage
from lakevilla_testing.damage.scene import DAY, Scene, WrongClock, small_objects
from lakevilla_testing.damage.verbs import VERBS, Rows, Verb

T = TypeVar("T")

#: The verbs that write.
WRITING = tuple(name for name, verb in VERBS.items() if verb.kind != "look" or name == "adopt")
#: How far the clock of a client is ahead, in seconds.
CLOCKS = (0.0, 3600.0, -3600.0, 8 * DAY, -8 * DAY, 40 * DAY)
_NO_DAMAGE = Damage("no", "damage", {})


class Death(BaseException):
    """An error that stands for the end of a process."""


class Dying(WrappedStore):
    """The store of a client that dies after so many writes.

    Attributes
    ----------
    met : bool
        Whether the client has met its end.
    """

    def __init__(self, inner: Store, writes: int, *, is_stored: bool) -> None:
        super().__init__(inner)
        self._left, self._is_stored = writes, is_stored
        self._lock = threading.Lock()
        self.met = False

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._refuse_the_dead()
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        return self._write(lambda: self.inner.put(key, body, condition))

    def put_file(self, key: str, path: str) -> Stored | Failure:
        return self._write(lambda: self.inner.put_file(key, path))

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        return self._write(lambda: self.inner.copy_object(source, key))

    def delete(self, key: str) -> Failure | None:
        return self._write(lambda: self.inner.delete(key))

    def _refuse_the_dead(self) -> None:
        if self.met:
            raise Death

    def _write(self, write: Callable[[], T]) -> T:
        with self._lock:
            self._refuse_the_dead()
            self.met = self._left == 0
            self._left -= 1
        if self.met and not self._is_stored:
            raise Death
        answer = write()
        if self.met:
            raise Death
        return answer


@dataclass(frozen=True)
class Kill:
    """A verb that dies at a write, and the verb that another client performs then.

    Attributes
    ----------
    writes : int
        The number of writes before the end.
    is_stored : bool
        Whether one more write takes effect, and only its answer is lost.
    ahead_seconds : tuple of float
        The clocks of the dying client and of the others.
    """

    verb: Verb
    then: Verb
    writes: int
    is_stored: bool
    ahead_seconds: tuple[float, float]


def kills(seed: int) -> Iterator[Kill]:
    """Yield a kill at each write of a drawn verb, without an end."""
    choice = random.Random(seed)
    verb = VERBS[WRITING[seed % len(WRITING)]]
    then = choice.choice([verb, VERBS[choice.choice(WRITING)]])
    if verb.kind == "rebuild":
        then = verb  # a rebuild that has begun must be finished (docs/reliability.md)
    clocks = choice.choice(CLOCKS), choice.choice(CLOCKS)
    writes = 0
    while True:
        yield Kill(verb, then, writes, False, clocks)
        yield Kill(verb, then, writes, True, clocks)
        writes += 1


def run_kill(scene: Scene, expected: Rows, kill: Kill) -> bool:
    """Run a kill at its scene's root; False if the verb ended before that write.

    Raises
    ------
    Broken
        Something happened that must never happen.
    """
    cell = Cell(scene, _NO_DAMAGE, [kill.then], False, expected)
    dying, others = (WrongClock(seconds) for seconds in kill.ahead_seconds)
    with small_objects():
        scene.lay_out()
        stores: list[Dying] = []

        def on(store: Store) -> Store:
            stores.append(Dying(store, kill.writes, is_stored=kill.is_stored))
            return stores[-1]

        lake = scene.open(SETTINGS, clock=dying, on=on)
        try:
            kill.verb.run(lake, scene.saved)
        except Death:
            pass
        except LakeVillaError:
            pass  # a refusal, or the end of a thread
        with suppress(Death):
            lake.close()
        if not stores[-1].met:
            return False
        end = "answered" if kill.is_stored else "sent"
        cell.said.append(f"{kill.verb.name}: died, write {kill.writes + 1} was not {end}")
        cell.done.append(kill.verb)
        possible = [expected, *possible_after(cell, kill.verb, [expected])]
        with scene.open(SETTINGS, clock=others) as lake:
            possible = perform(cell, kill.then, lake, possible)
        check_reads(cell, possible)
        check_restored(cell, possible, [], clock=others)
    return True
