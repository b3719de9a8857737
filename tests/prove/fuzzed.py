"""A note of the input that a layer is at: what ends the process is known to its next turn.

The next turn tries that input again, for a process also ends when its campaign is stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from lakevilla_testing.fuzzing.choices import drawn
from tests.prove.turn import Turn

_NOTES = Path(".cache/prove")
_LENGTH = 64
#: How long an input may take that is tried again, with all imports, in seconds.
_LONGEST = 300.0


def _ended_again(kind: str, seed: int) -> str:
    """Return what is wrong with an input at which a process has ended; "" if it ends well."""
    command = [sys.executable, "-m", "lakevilla_testing.fuzzing", kind, drawn(seed).hex()]
    try:
        again = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return f"the process did not end within {_LONGEST:.0f} seconds"
    if again.returncode == 0:
        return ""
    return f"the process ended with status {again.returncode}\n{again.stdout}{again.stderr}"


class Notes:
    """The file with a layer's current input."""

    def __init__(self, layer: str, turn: Turn) -> None:
        self._path, self._turn = _NOTES / f"{layer}.input", turn

    def __enter__(self) -> Notes:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and (left := self._path.read_text().split()):
            kind, seed = left[0], int(left[1])
            if told := _ended_again(kind, seed):
                self._turn.failed(seed, self.command(kind, seed), told)
        self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        return self

    def begins(self, seed: int, kind: str) -> None:
        os.pwrite(self._file, f"{kind} {seed}".ljust(_LENGTH).encode(), 0)

    def command(self, kind: str, seed: int) -> str:
        return f"python -m lakevilla_testing.fuzzing {kind} {drawn(seed).hex()}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)
