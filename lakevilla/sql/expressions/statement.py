"""Several expressions of one statement, which share their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from lakevilla.sql.expressions.bind import Schemas
from lakevilla.sql.expressions.parse import predicate_with, read_assignments, refuse_unused
from lakevilla.sql.expressions.syntax.sql_nodes import Foreign, Reader, Spellings
from lakevilla.sql.expressions.tree import Expr


class MeaningCheck(Protocol):
    """Raises if trees, or what their texts say otherwise than they do, mean something else."""

    def __call__(
        self, trees: Iterable[Expr], written: Iterable[Expr], schemas: Schemas, alias: str | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Meaning:
    """Whose SQL the texts stand in, and are to mean the same as.

    Attributes
    ----------
    spellings : mapping of str to callable
        Calls that it means otherwise than the language.
    check : MeaningCheck
    """

    spellings: Spellings
    check: MeaningCheck


class StatementExpressions:
    """Parses expressions one by one; ``finish`` refuses parameters that none of them used."""

    def __init__(
        self,
        params: Mapping[str, object] | None = None,
        now: datetime | None = None,
        foreign: Foreign | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        spellings = {} if meaning is None else meaning.spellings
        self._reader = Reader(dict(params or {}), now, foreign, spellings=spellings)
        self._meaning = meaning
        self._trees: list[Expr] = []

    def predicate(self, sql: object) -> Expr:
        """A required predicate."""
        tree = predicate_with(sql, self._reader)
        self._trees.append(tree)
        return tree

    def assignments(self, values: Mapping[str, object]) -> dict[str, Expr]:
        """A ``str`` as SQL, any other Python value as a literal."""
        trees = read_assignments(values, self._reader)
        self._trees += trees.values()
        return trees

    def use(self, names: Iterable[str]) -> None:
        """Count parameters as used that serve elsewhere in the statement."""
        self._reader.used.update(names)

    def finish(self) -> None:
        """Raise if a parameter was given and not used."""
        refuse_unused(self._reader.params, self._reader.used)

    def check(self, schemas: Schemas, alias: str | None = None) -> None:
        """Raise if what was parsed means something else in the SQL in which it stands."""
        if self._meaning is not None:
            self._meaning.check(self._trees, self._reader.written, schemas, alias)
