"""A process is stopped at a drawn request, past every lease, and goes on after others have worked.

Run as a module, it is the process: ``python -m lakevilla_testing.damage.stops ROOT VERB REQUEST
SAVED``. It sends SIGSTOP to itself before that request, and prints how its verb ended.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from lakevilla.errors import CommitOutcomeUnknown, ForeignConflict, LakeVillaError
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
from lakevilla_testing.damage.cell import (
    SETTINGS,
    Cell,
    check_reads,
    check_restored,
    perform,
    possible_after,
)
from lakevilla_testing.damage.damages import Damage
from lakevilla_testing.damage.kills import WRITING
from lakevilla_testing.damage.scene import Format, HeadForm, Scene, small_objects
from lakevilla_testing.damage.verbs import VERBS, Rows, Verb

#: The settings of those who go on: what is older than this is dead to them.
_IMPATIENT = replace(SETTINGS, max_age_seconds=0.05)
#: The most requests of a verb before which it is stopped.
_MOST_REQUESTS = 60
#: The time after which a process that does not end has failed.
_MOST_SECONDS = 120.0


class _Stopping(WrappedStore):
    """Stop the process before its so manieth request."""

    def __init__(self, inner: Store, request: int) -> None:
        super().__init__(inner)
        self._left = request
        self._lock = threading.Lock()

    def _step(self) -> None:
        with self._lock:
            self._left -= 1
            stops = self._left == 0
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._step()
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self._step()
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self._step()
        return self.inner.put_file(key, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        self._step()
        return self.inner.copy_object(source, key)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        self._step()
        return self.inner.head(key)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        self._step()
        return self.inner.list(prefix, start_after, until)

    def delete(self, key: str) -> Failure | None:
        self._step()
        return self.inner.delete(key)


@dataclass(frozen=True)
class Stop:
    """A verb that is stopped, and the verbs that others perform meanwhile."""

    verb: Verb
    request: int
    others: tuple[Verb, ...]


def draw_stop(seed: int) -> Stop:
    choice = random.Random(seed)
    verb = VERBS[WRITING[seed % len(WRITING)]]
    others = [VERBS[choice.choice(WRITING)] for _ in range(choice.randint(0, 2))]
    work = (*others, VERBS["recover"], VERBS["gc"])
    return Stop(verb, choice.randint(1, _MOST_REQUESTS), work)


def run_stop(scene: Scene, expected: Rows, stop: Stop) -> bool:
    """Run a stop at its scene's root; False if the verb made fewer requests and ended before.

    Raises
    ------
    Broken
        Something happened that must never happen.
    """
    cell = Cell(scene, Damage("no", "damage", {}), stop.others, False, expected)
    with small_objects():
        scene.lay_out()
        process = _begun(scene, stop)
        try:
            was_stopped = os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
            possible = [expected]
            if was_stopped:
                cell.said.append(f"{stop.verb.name}: stopped before request {stop.request}")
                possible = _performed_meanwhile(cell, stop, possible)
                os.kill(process.pid, signal.SIGCONT)
            said, errors = process.communicate(timeout=_MOST_SECONDS)
        finally:
            process.kill()
        how = said.strip()
        cell.said.append(f"{stop.verb.name}: {how}")
        if how.partition(":")[0] not in ("done", "refused", "open"):
            raise cell.breaks(f"{stop.verb.name} ended by itself: {errors[-1000:]}")
        if how != "refused":
            cell.done.append(stop.verb)
            both = possible_after(cell, stop.verb, possible)
            possible = both if how == "done" else possible + both
        check_reads(cell, possible)
        check_restored(cell, possible, [])
    return was_stopped


def _begun(scene: Scene, stop: Stop) -> subprocess.Popen[str]:
    module = "lakevilla_testing.damage.stops"
    given = [str(scene.root), scene.format, scene.head, stop.verb.name, str(stop.request)]
    return subprocess.Popen(
        [sys.executable, "-m", module, *given, scene.saved],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _performed_meanwhile(cell: Cell, stop: Stop, possible: list[Rows]) -> list[Rows]:
    """Let others work while the process is stopped, for longer than its lease."""
    with cell.scene.open(_IMPATIENT) as lake:
        threading.Event().wait(2 * SETTINGS.lease_seconds)
        for verb in stop.others:
            possible = perform(cell, verb, lake, possible)
    # What the stopped verb had decided may be there, and may have come first.
    first = possible_after(cell, stop.verb, [cell.expected])
    for verb in stop.others:
        if verb in cell.done:
            first = possible_after(cell, verb, first)
    return [*possible, *first]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("format", choices=get_args(Format))
    parser.add_argument("head", choices=get_args(HeadForm))
    parser.add_argument("verb", choices=WRITING)
    parser.add_argument("request", type=int)
    parser.add_argument("saved")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    scene = Scene(given.root, given.format, given.head)
    with (
        small_objects(),
        scene.open(SETTINGS, on=lambda store: _Stopping(store, given.request)) as lake,
    ):
        try:
            VERBS[given.verb].run(lake, given.saved)
        except (CommitOutcomeUnknown, ForeignConflict) as error:
            print("open:", error.kind)
        except LakeVillaError:
            print("refused")
        else:
            print("done")


if __name__ == "__main__":
    main()
