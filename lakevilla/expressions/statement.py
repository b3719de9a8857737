"""Several expressions of one statement, which share their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lakevilla.expressions.parse import predicate_with, read_assignments, refuse_unused
from lakevilla.expressions.syntax.sql_nodes import Foreign, Reader
from lakevilla.expressions.tree import Expr


class StatementExpressions:
    """Parses expressions one by one; ``finish`` refuses parameters that none of them used."""

    def __init__(
        self,
        params: Mapping[str, object] | None = None,
        now: datetime | None = None,
        foreign: Foreign | None = None,
    ) -> None:
        self._reader = Reader(dict(params or {}), now, foreign)

    def predicate(self, sql: object) -> Expr:
        """A required predicate."""
        return predicate_with(sql, self._reader)

    def assignments(self, values: Mapping[str, object]) -> dict[str, Expr]:
        """A ``str`` as SQL, any other Python value as a literal."""
        return read_assignments(values, self._reader)

    def use(self, names: Iterable[str]) -> None:
        """Count parameters as used that serve elsewhere in the statement."""
        self._reader.used.update(names)

    def finish(self) -> None:
        """Raise if a parameter was given and not used."""
        refuse_unused(self._reader.params, self._reader.used)
