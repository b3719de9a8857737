"""Programs that have to know what lies in the store, whatever is at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any, TypeVar

from lakevilla.store.effects import Effect, Get, Parallel, Program

T = TypeVar("T")


def fresh(program: Program[T]) -> Program[T]:
    """A program that is given no object from the cache."""
    value: Any = None
    error: BaseException | None = None
    try:
        while True:
            try:
                if error is None:
                    effect = program.send(value)
                else:
                    thrown, error = error, None
                    effect = program.throw(thrown)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                value = yield _asked(effect)
            except GeneratorExit:
                raise
            except BaseException as caught:
                error = caught
    finally:
        program.close()


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
