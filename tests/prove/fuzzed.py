"""A note of the input that a layer is at: what ends the process is known to its next turn."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from lakevilla_testing.fuzzing.choices import drawn
from tests.prove.turn import Turn

_NOTES = Path(".cache/prove")
_LENGTH = 64


class Notes:
    """The file with a layer's current input."""

    def __init__(self, layer: str, turn: Turn) -> None:
        self._path, self._turn = _NOTES / f"{layer}.input", turn

    def __enter__(self) -> Notes:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and (left := self._path.read_text().split()):
            kind, seed = left[0], int(left[1])
            text = "the process ended, or was ended, while it was at this input"
            self._turn.failed(seed, self.command(kind, seed), text)
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
