"""Statements that tell of the lake."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from lakevilla.engines.sql.reader import TokenReader
from lakevilla.errors import InvalidOperation

_SHOWN = ("TABLES",)


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW; ``like`` is a pattern of LIKE for the names."""

    what: str
    like: str | None = None


def show(reader: TokenReader) -> Show:
    """After SHOW."""
    what = reader.name().upper()
    if what not in _SHOWN:
        near = get_close_matches(what, _SHOWN, 1)
        meant = f"did you mean SHOW {near[0]}? " if near else ""
        raise InvalidOperation(
            f"SHOW {what} is not supported in sql; {meant}there are "
            f"{', '.join(f'SHOW {one}' for one in _SHOWN)}"
        )
    return Show(what.lower(), reader.string() if reader.accept("LIKE") else None)
