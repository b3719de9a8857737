"""One turn of a layer: what it is to search, until when, and what it has found."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

#: The environment variable that names the bug to plant, for a campaign that must turn red.
PLANTED_BUG = "LAKEVILLA_PLANTED"
#: The time between two writes of a turn's report, in seconds.
_BETWEEN_WRITES = 5.0
#: A turn ends after so many failures: more of them say no more.
MOST_FAILURES = 5
#: The most characters of a failure's text that a report keeps.
_LONGEST_TEXT = 8_000


@dataclass(frozen=True)
class Failure:
    """A failure, with the command that repeats it from the repository's root."""

    seed: int
    command: str
    text: str
    #: The seconds of processor that the turn had taken, with those of processes that have ended.
    processor_seconds: float = 0.0


@dataclass
class Report:
    """What a turn has done so far."""

    #: The seeds that the turn has taken are from its first one up to this one, exclusive.
    next_seed: int
    searched: dict[str, int] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    #: How far the search has come, such as the lines that it has reached.
    reached: dict[str, int] = field(default_factory=dict)
    #: Why the layer can't run here, such as "Java is missing".
    left_out: str = ""


class Turn:
    """A layer's turn, which ends after so many seconds.

    The report is in a file and is written again while the layer works: a turn that is killed still
    counts.
    """

    def __init__(
        self, seed: int, seconds: float, report: Path, most_failures: int = MOST_FAILURES
    ) -> None:
        #: The turn ends after so many failures.
        self.most_failures = most_failures
        self._until = time.monotonic() + seconds
        self._path = report
        self._written = float("-inf")
        self._searched: Counter[str] = Counter()
        self._fired: Counter[str] = Counter()
        self._reached: dict[str, int] = {}
        self._first_seed = seed
        self.report = Report(seed)

    def goes_on(self) -> bool:
        """Return whether the turn goes on: time is left, and it has not failed often.

        Ask between items of at most a few seconds. Each turn takes one seed, however long its layer
        has prepared: ``--seed 7 --seconds 1`` repeats seed 7.
        """
        self.write_at_times()
        has_time = time.monotonic() < self._until or self.report.next_seed == self._first_seed
        return has_time and len(self.report.failures) < self.most_failures

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def next_seed(self) -> int:
        """Return a seed that no turn of this layer has had before."""
        self.report.next_seed += 1
        return self.report.next_seed - 1

    def count(self, what: str, many: int = 1) -> None:
        """Count what was searched, such as histories."""
        self._searched[what] += many

    def fired(self, fault: str, many: int = 1) -> None:
        """Count a fault that really fired, by its kind."""
        if many:
            self._fired[fault] += many

    def reached(self, what: str, many: int) -> None:
        """Note how far a search has come that goes on where earlier turns have stopped."""
        self._reached[what] = max(many, self._reached.get(what, 0))

    def failed(self, seed: int, command: str, text: str) -> None:
        """Record a failure. ``command`` repeats it from the repository's root."""
        if bug := os.environ.get(PLANTED_BUG):
            # Most programs plant nothing by themselves.
            command = command.replace("python -", f"python -m lakevilla_testing.planted {bug} -", 1)
        took = sum(os.times()[:4])
        self.report.failures.append(Failure(seed, command, text[-_LONGEST_TEXT:], took))
        self.write()

    def leave_out(self, reason: str) -> None:
        """Say why the layer can't run here, such as "Java is missing"."""
        self.report.left_out = reason

    def write(self) -> None:
        """Write the report so far."""
        self.report.searched = dict(self._searched)
        self.report.fired = dict(self._fired)
        self.report.reached = dict(self._reached)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self.report)))
        os.replace(part, self._path)
        self._written = time.monotonic()

    def write_at_times(self) -> None:
        """Write the report so far, if that was not done in the last seconds."""
        if time.monotonic() - self._written > _BETWEEN_WRITES:
            self.write()


def read_report(path: Path) -> Report:
    """Return the report of a turn that has ended, or was killed."""
    found = json.loads(path.read_text())
    found["failures"] = [Failure(**failure) for failure in found["failures"]]
    return Report(**found)
