"""What a call should not have done: raised a raw error, or taken too much time or memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lakevilla as lv
from lakevilla_testing.fuzzing.bounds import Meter


@dataclass(frozen=True)
class Fault:
    """What a call should not have done."""

    what: str
    verb: str
    text: str


def faults_of(
    verb: str, call: Callable[[], Any], allowed: tuple[type[Exception], ...] = ()
) -> tuple[list[Fault], Any, bool]:
    """Make a call. Return its faults, its result, and whether it has raised an error.

    ``allowed`` errors may be raised besides the library's.
    """
    found: list[Fault] = []
    result: Any = None
    raised: BaseException | None = None
    with Meter() as meter:
        try:
            result = call()
        except Exception as error:
            raised = error
            if not isinstance(error, (lv.LakeVillaError, *allowed)):
                text = "".join(traceback.format_exception(error))
                found.append(Fault(f"a raw {type(error).__name__}", verb, text))
    if meter.excess:
        found.append(Fault(meter.excess, verb, repr(raised)))
    return found, result, raised is not None
