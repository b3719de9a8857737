"""Histories as JSON lines, for the program in ``porcupine/``, which checks them with Porcupine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakevilla_testing.checks.history import ListAppend, Operation, Recorded
from lakevilla_testing.outside.events import promised, spans

#: The program's source, a Go module.
SOURCE = Path(__file__).with_name("porcupine")
#: What Porcupine says of a history; ``Unknown``: it has not decided in the time that it was given.
Said = Literal["Ok", "Illegal", "Unknown"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What Porcupine says of a file: of each key by itself, and of whole transactions."""

    file: str
    transactions: int
    keys: Said
    whole: Said


def can_check(recorded: Recorded) -> bool:
    """Return whether a history was promised to be linearizable, which is what Porcupine checks."""
    return promised(recorded) == "strict-serializable"


def to_lines(recorded: Recorded) -> Iterator[str]:
    """Yield a history, a transaction a line; those that were told that they are aborted are not
    there: they must have had no effect.

    ``return`` is -1 where the client got no answer.
    """
    for span in spans(recorded):
        if span.txn.status != "aborted":
            line = {
                "name": span.txn.name,
                "client": span.process,
                "call": span.invoked,
                "return": -1 if span.ended is None else span.ended,
                "operations": [_operation(one) for one in span.operations],
            }
            yield json.dumps(line)


def _operation(operation: Operation) -> dict[str, object]:
    if isinstance(operation, ListAppend):
        return {"append": operation.key, "value": operation.value}
    return {"read": operation.key, "values": list(operation.values)}


def ask(program: Path, files: Sequence[Path], seconds: float = 10.0) -> list[Answer]:
    """Have the program check files, each for so many seconds at most."""
    ran = subprocess.run(
        [str(program), "-seconds", str(seconds), *map(str, files)],
        capture_output=True,
        text=True,
    )
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{program} ends with {ran.returncode}: {ran.stderr.strip()}")
    return [Answer(**json.loads(line)) for line in ran.stdout.splitlines()]
