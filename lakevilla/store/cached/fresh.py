"""Programs that have to know what lies in the store, whatever is at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import TypeVar

from lakevilla.store.effects import Effect, Get, Parallel, Program, exchanged

T = TypeVar("T")


def fresh(program: Program[T]) -> Program[T]:
    """A program that is given no object from the cache."""
    return exchanged(program, _asked)


def _asked(effect: Effect) -> Effect:
    if isinstance(effect, Parallel):
        return Parallel(
            tuple(
                fresh(part) if isinstance(part, Generator) else _asked(part)
                for part in effect.parts
            )
        )
    if isinstance(effect, Get) and effect.immutable:
        return dataclasses.replace(effect, immutable=False)
    return effect
