"""Merging: deltalake's builder, ending in a verb of the transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from lakevilla.api.arguments import check_names
from lakevilla.engines.base import MergeClause, MergeKind
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.given import Predicate
from lakevilla.expressions.tree import Column, Expr
from lakevilla.results import OperationResult

__all__ = ["Described", "MergeBuilder"]

Parse = Callable[[object], Expr]
ParseAssignments = Callable[[Mapping[str, object]], dict[str, Expr]]


@dataclass(slots=True)
class Described:
    """A merge into a table that a caller is describing.

    ``ended``: executed, or given up with an error that the caller has seen. ``verb``: what the
    caller calls it.
    """

    table: str
    ended: bool = False
    verb: str = "merge"


def new_columns(
    clauses: Sequence[MergeClause], target: pa.Schema, source: pa.Schema
) -> pa.Schema | None:
    """The source's columns that clauses set and the target lacks; None if there are none."""
    known = {name.lower() for name in target.names}
    assigned = {name.lower() for clause in clauses for name in clause.assignments} - known
    new = [field.with_nullable(True) for field in source if field.name.lower() in assigned]
    return pa.schema(new) if new else None


class MergeBuilder:
    """A merge being described; ``execute()`` performs it.

    The clauses and their arguments are those of ``deltalake.table.TableMerger``:
    for each row the first clause of its kind whose predicate is true applies.
    """

    def __init__(
        self,
        *,
        source_columns: Sequence[str],
        target_columns: Sequence[str],
        source_alias: str,
        parse: Parse,
        parse_assignments: ParseAssignments,
        perform: Callable[[tuple[MergeClause, ...]], OperationResult],
        placing: Callable[[], AbstractContextManager[None]],
        described: Described,
    ) -> None:
        self._source_columns = source_columns
        self._target_columns = target_columns
        self._source_alias = source_alias
        self._parse = parse
        self._parse_assignments = parse_assignments
        self._perform = perform
        self._placing = placing
        self._clauses: list[MergeClause] = []
        self._executed = False
        self._described = described

    def when_matched_update(
        self, updates: Mapping[str, object], predicate: Predicate | None = None
    ) -> Self:
        """Set columns of a target row that a source row matches.

        Parameters
        ----------
        updates : Mapping
            Per column of the target SQL text, or a value.
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add("matched_update", predicate, lambda: self._parse_assignments(updates))

    def when_matched_update_all(
        self, predicate: Predicate | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Set all columns of a matched target row to those of its source row.

        Parameters
        ----------
        predicate : str, optional
            The clause is for the rows for which it is true.
        except_cols : sequence of str, optional
            Columns of the source to leave out.
        """
        return self._add("matched_update", predicate, lambda: self._all(except_cols))

    def when_matched_delete(self, predicate: Predicate | None = None) -> Self:
        """Delete a target row that a source row matches.

        Parameters
        ----------
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add("matched_delete", predicate)

    def when_not_matched_insert(
        self, updates: Mapping[str, object], predicate: Predicate | None = None
    ) -> Self:
        """Insert a row for a source row that matches none.

        Parameters
        ----------
        updates : Mapping
            Per column of the target SQL text, or a value.
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add("not_matched_insert", predicate, lambda: self._parse_assignments(updates))

    def when_not_matched_insert_all(
        self, predicate: Predicate | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert a source row that matches none.

        Parameters
        ----------
        predicate : str, optional
            The clause is for the rows for which it is true.
        except_cols : sequence of str, optional
            Columns of the source to leave out.
        """
        return self._add("not_matched_insert", predicate, lambda: self._all(except_cols))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, object], predicate: Predicate | None = None
    ) -> Self:
        """Set columns of a target row that no source row matches.

        Parameters
        ----------
        updates : Mapping
            Per column of the target SQL text, or a value.
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add(
            "not_matched_by_source_update", predicate, lambda: self._parse_assignments(updates)
        )

    def when_not_matched_by_source_delete(self, predicate: Predicate | None = None) -> Self:
        """Delete a target row that no source row matches.

        Parameters
        ----------
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add("not_matched_by_source_delete", predicate)

    def execute(self) -> OperationResult:
        """Perform the merge."""
        with self._giving_up():
            if self._executed:
                raise InvalidOperation("this merge has been executed already: describe a new one")
            if not self._clauses:
                raise InvalidOperation(
                    "a merge needs at least one clause, such as when_matched_update_all()"
                )
            refuse_unreached(self._clauses)
            result = self._perform(tuple(self._clauses))
        self._executed = self._described.ended = True
        return result

    def _add(
        self,
        kind: MergeKind,
        predicate: Predicate | None,
        assignments: Callable[[], dict[str, Expr]] = dict,
    ) -> Self:
        with self._giving_up():
            condition = None if predicate is None else self._parse(predicate)
            self._clauses.append(MergeClause(kind, condition, assignments()))
        return self

    @contextmanager
    def _giving_up(self) -> Generator[None]:
        """A verb that raises has had no effect, so the commit need not wait for this merge."""
        try:
            with self._placing():
                yield
        except BaseException:
            self._described.ended = True
            raise

    @staticmethod
    def _except(except_cols: object) -> list[str]:
        return [] if except_cols is None else check_names("except_cols", except_cols)

    def _all(self, except_cols: Sequence[str] | None) -> dict[str, Expr]:
        left_out = {name.lower() for name in self._except(except_cols)}
        columns = {name.lower(): name for name in self._target_columns}
        unknown = sorted(
            name
            for name in {*left_out, *(name.lower() for name in self._source_columns)}
            if name not in columns
        )
        if unknown:
            raise InvalidOperation(
                f"column {unknown[0]} of the merge is not a column of its target: "
                f"the target has {', '.join(self._target_columns)}"
            )
        return {
            columns[name.lower()]: Column((name,), self._source_alias)
            for name in self._source_columns
            if name.lower() not in left_out
        }


def refuse_unreached(clauses: Iterable[MergeClause]) -> None:
    """Refuse a clause that stands behind one which takes every row of its sort.

    Raises
    ------
    InvalidOperation
    """
    taken: dict[str, MergeKind] = {}
    for clause in clauses:
        sort = clause.kind.rpartition("_")[0]
        if sort in taken:
            raise InvalidOperation(
                f"when_{clause.kind} is never reached, as when_{taken[sort]} before it takes every "
                "such row: give that one a predicate, or leave one out"
            )
        if clause.predicate is None:
            taken[sort] = clause.kind
