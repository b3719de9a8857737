"""Errors name the file and the line of the statement that they befell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import LakeVillaError
from lakevilla.sql.expressions.syntax.places import place_behind

_PLACED = "_lakevilla_placed"


@contextmanager
def placed(source: str | None, line: int, shown: bool = True, column: int = 1) -> Iterator[None]:
    """Errors from inside name the file and the line; those that do already are left as they are.

    ``line`` and ``column``: where the statement begins, of which an error may name a place.
    """
    try:
        yield
    except LakeVillaError as error:
        if not getattr(error, _PLACED, False):
            place_behind(error, line, column)
            if source is not None:
                error.message = f"{source}:{line}: {error.message}"
            elif shown and line > 1:
                error.message = f"line {line}: {error.message}"
            setattr(error, _PLACED, True)
        raise
