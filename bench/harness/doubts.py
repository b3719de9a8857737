"""How often validation could not tell from HEAD alone that what a transaction relies on stands.

HEAD says of each commit what it wrote, in short. Where that leaves a doubt, a round of requests
goes to commit objects, or to the table's new state.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from lakevilla.store.effects import Parallel

_VALIDATE: Any = import_module("lakevilla.transaction.validation.validate")


@dataclass
class Doubts:
    """Transactions that others had overtaken on a table that they rely on, and those in doubt.

    ``overtaken`` and ``doubtful`` hold their ids.
    """

    overtaken: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, txn: str, *, doubtful: bool) -> None:
        with self._lock:
            self.overtaken.add(txn)
            if doubtful:
                self.doubtful.add(txn)


@contextmanager
def counted() -> Iterator[Doubts]:
    """A block in which the transactions of this process are counted."""
    is_cleared, doubts = _VALIDATE.is_cleared, Doubts()

    def watched(txn: Any, head: Any, location: str, tail: Any) -> Generator[Any, Any, bool]:
        program, requests = is_cleared(txn, head, location, tail), 0
        answer: Any = None
        while True:
            try:
                effect = program.send(answer)
            except StopIteration as end:
                cleared = bool(end.value)
                doubts.note(txn.id, doubtful=requests > 0 or not cleared)
                return cleared
            requests += len(effect.parts) if isinstance(effect, Parallel) else 1
            answer = yield effect

    _VALIDATE.is_cleared = watched
    try:
        yield doubts
    finally:
        _VALIDATE.is_cleared = is_cleared
