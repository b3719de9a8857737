"""The trace of a simulation: one line for each request."""

from __future__ import annotations

import zlib
from typing import NamedTuple

from lakevilla.store.base import Failure, Found
from lakevilla.store.effects import DeleteObject, Effect, List, ListNames, Put, Stat
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.store import Answer

#: The verbs of a store whose effects have names of their own.
_VERBS = {Stat: "head", DeleteObject: "delete"}


class Line(NamedTuple):
    """One request of the trace."""

    seconds: float
    client: str
    verb: str
    key: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.seconds:12.3f}  {self.client:<10} {self.verb:<12} {self.key}  {self.outcome}"


def verb_of(attempt: Effect) -> str:
    if isinstance(attempt, Put):
        return f"put {type(attempt.condition).__name__.lower()[:6]}"
    return _VERBS.get(type(attempt), type(attempt).__name__.lower())


def key_of(attempt: Effect) -> str:
    return (
        attempt.prefix + "/"
        if isinstance(attempt, List | ListNames)
        else getattr(attempt, "key", "")
    )


def outcome_of(attempt: Effect, answer: Answer, fault: Fault | None) -> str:
    match answer:
        case Failure(reason=reason):
            text = reason
        case Found(body=body, size=size):
            text = f"found {size} {zlib.crc32(body):08x}"
        case list():
            text = f"{len(answer)} keys"
        case None:
            text = "ok"
        case _:
            text = type(answer).__name__.lower()
    if isinstance(attempt, Put):
        text += f" ({len(attempt.body)} {zlib.crc32(attempt.body):08x})"
    return text if fault is None or isinstance(answer, Failure) else f"{text} [{fault}]"
