"""Ctrl-C in the middle of a program, at a chosen request."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from lakevilla.store.effects import Program

T = TypeVar("T")

#: Whether the interrupted request was never sent, or has taken effect without an answer.
Moment = Literal["before", "after"]


def interrupted(program: Program[T], number: int, instant: Moment) -> Program[T]:
    """Run ``program``, interrupted at its effect of that number (from 1), if it has so many.

    ``KeyboardInterrupt`` is raised where the program waits, as by the runner, and the program's
    handlers for it run. The parts of a ``Parallel`` are one effect.
    """
    answer: Any = None
    error: BaseException | None = None
    count = 0
    while True:
        try:
            effect = program.send(answer) if error is None else program.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        count += 1
        answer, error = None, None
        if count == number and instant == "before":
            error = KeyboardInterrupt()
            continue
        try:
            answer = yield effect
        except Exception as raised:
            error = raised
        if count == number:
            answer, error = None, KeyboardInterrupt()
