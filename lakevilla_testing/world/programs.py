"""Conversion of an effect, or of a program, to a program."""

from __future__ import annotations

from types import GeneratorType
from typing import Any, cast

from lakevilla.store.effects import Effect, Program


def as_program(part: Effect | Program[Any]) -> Program[Any]:
    """Return a part of a ``Parallel`` as a program."""
    return part if isinstance(part, GeneratorType) else _single(cast(Effect, part))


def _single(effect: Effect) -> Program[Any]:
    return (yield effect)
