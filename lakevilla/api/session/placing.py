"""Errors of a text of many statements name the one that they befell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import LakeVillaError

__all__ = ["place_error", "placing"]


@contextmanager
def placing(number: int, line: int, *, is_script: bool) -> Iterator[None]:
    """Errors from inside name the statement by its number and line; alone it needs none."""
    try:
        yield
    except LakeVillaError as error:
        if is_script:
            place_error(error, number, line)
        raise
    except Exception as error:
        if is_script:
            error.add_note(f"in statement {number} (line {line})")
        raise


def place_error(error: LakeVillaError, number: int, line: int) -> None:
    """Say in an error which statement it is of; once."""
    place = f"statement {number} (line {line}): "
    if not error.message.startswith("statement "):
        # What the parser says of lines, it counts from where it began to read.
        said = error.message.replace("cannot be read at line", "cannot be read at its line")
        error.message = place + said
        error.args = (error.message, *error.args[1:])
