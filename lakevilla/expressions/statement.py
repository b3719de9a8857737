"""Several expressions of one statement, which share their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lakevilla.errors import InvalidOperation
from lakevilla.expressions.parse import Reader, parse_with, read_assignments, required
from lakevilla.expressions.tree import Expr

__all__ = ["Together"]


class Together:
    """Parses expressions one by one; ``finish`` refuses parameters that none of them used."""

    def __init__(
        self, params: Mapping[str, object] | None = None, now: datetime | None = None
    ) -> None:
        self._reader = Reader(dict(params or {}), now)

    def predicate(self, sql: str | None) -> Expr:
        """A required predicate."""
        return parse_with(required(sql), self._reader)

    def assignments(self, values: Mapping[str, object]) -> dict[str, Expr]:
        """A ``str`` as SQL, any other Python value as a literal."""
        return read_assignments(values, self._reader)

    def use(self, names: Iterable[str]) -> None:
        """Count parameters as used that serve elsewhere in the statement."""
        self._reader.used.update(names)

    def finish(self) -> None:
        """Raise if a parameter was given and not used."""
        unused = sorted(set(self._reader.params) - self._reader.used)
        if unused:
            raise InvalidOperation(
                f"parameter :{unused[0]} is not used: leave it out, or write it in an expression"
            )
