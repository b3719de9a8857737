"""Ctrl-C at any request of any verb leaves the lake as it was before the verb, or as after it."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from typing import Literal

import lakevilla as lv
from lakevilla.store.effects import Effect
from lakevilla_testing.fuzzing.lakes import KINDS, lake_of, opened, saved_in, store_of
from lakevilla_testing.fuzzing.verbs import ROW, rows, verbs_of
from lakevilla_testing.world.store import SimulatedStore
from tests.support.inside import inside
from tests.support.search import first_seed, how_many


@dataclass
class Interruption:
    """Ctrl-C at one effect of the thread that runs a verb, before or after its request."""

    at: int
    moment: Literal["before", "after"] = "before"
    seen: int = 0

    def strike(self, lake: lv.Lake) -> None:
        perform, thread = inside(lake).perform, threading.get_ident()

        def performed(effect: Effect) -> object:
            if threading.get_ident() != thread:
                return perform(effect)
            self.seen += 1
            number = self.seen
            if number == self.at and self.moment == "before":
                raise KeyboardInterrupt
            answer = perform(effect)
            if number == self.at:
                raise KeyboardInterrupt
            return answer

        inside(lake).perform = performed


def run(store: SimulatedStore, verb: str, kind: str, interruption: Interruption) -> str:
    """Run a verb by a client of its own; return how it ended."""
    with opened(store) as lake:
        interruption.strike(lake)
        try:
            verbs_of()[verb](lake, saved_in(kind))
        except KeyboardInterrupt:
            return "interrupted"
        except lv.CommitOutcomeUnknown:
            return "unknown"
    return "ended"


def state(store: SimulatedStore) -> object:
    with opened(store, 7, 200.0) as lake:
        try:
            return rows(lake)
        except lv.TableNotFound:
            return "renamed"


def test_a_verb_that_is_interrupted_anywhere_has_happened_or_not() -> None:
    for seed in range(first_seed(), first_seed() + how_many(2, whole=15, soak=20_000)):
        draw = random.Random(seed)
        kind, verb = draw.choice(KINDS), draw.choice(list(verbs_of()))
        sound, done, torn = (store_of(lake_of(kind)) for _ in range(3))
        count = Interruption(0)
        assert run(done, verb, kind, count) == "ended"
        strikes = Interruption(draw.randint(1, count.seen), draw.choice(["before", "after"]))
        ended = run(torn, verb, kind, strikes)
        told = f"seed {seed}: {verb} of {kind}, {strikes} of {count.seen}"
        found = state(torn)
        assert found in (state(sound), state(done)), told
        assert ended in ("interrupted", "unknown", "ended"), told
        with opened(torn, 8, 400.0) as lake:
            lake.recover()
            lake.run(lambda txn, name="t2" if found == "renamed" else "t": txn.append(name, [ROW]))
            assert lake.doctor(files=True).ok, told
