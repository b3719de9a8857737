"""Errors name the file and the line of the statement that they befell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import LakeVillaError

_PLACED = "_lakevilla_placed"


@contextmanager
def placed(source: str | None, line: int, shown: bool = True) -> Iterator[None]:
    """Errors from inside name the file and the line; those that do already are left as they are."""
    try:
        yield
    except LakeVillaError as error:
        if not getattr(error, _PLACED, False):
            if source is not None:
                error.message = f"{source}:{line}: {error.message}"
            elif shown and line > 1:
                error.message = f"line {line}: {error.message}"
            setattr(error, _PLACED, True)
        raise
