"""Errors of a text of many statements name the one that they befell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import LakeVillaError
from lakevilla.sql.expressions.syntax.places import place_behind, place_within
from lakevilla.sql.statements.script.cutting import ScriptStatement

__all__ = ["place_error", "placing"]


@contextmanager
def placing(number: int, source: ScriptStatement, *, is_script: bool) -> Iterator[None]:
    """Errors from inside name the statement by its number and line; alone it needs none.

    What can't be read is told by its line and column in the whole text.
    """
    try:
        yield
    except LakeVillaError as error:
        if not error.message.startswith("statement "):
            place_within(error, source.text)
            place_behind(error, source.line, source.column)
            if is_script:
                place_error(error, number, source.line)
        raise
    except Exception as error:
        if is_script:
            error.add_note(f"in statement {number} (line {source.line})")
        raise


def place_error(error: LakeVillaError, number: int, line: int) -> None:
    """Say in an error which statement it is of."""
    error.message = f"statement {number} (line {line}): {error.message}"
    error.args = (error.message, *error.args[1:])
