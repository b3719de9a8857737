"""Merging: deltalake's builder, ending in a verb of the transaction."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Self

from lakevilla.api.arguments import check_names
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.tree import Column, Expr
from lakevilla.results import OperationResult
from lakevilla.sublogs.operations import MergeClauseRecord

__all__ = ["Merge"]

Parse = Callable[[str], Expr]
ParseAssignments = Callable[[Mapping[str, object]], dict[str, Expr]]


class Merge:
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
        perform: Callable[[tuple[MergeClauseRecord, ...]], OperationResult],
        placing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._source_columns = source_columns
        self._target_columns = target_columns
        self._source_alias = source_alias
        self._parse = parse
        self._parse_assignments = parse_assignments
        self._perform = perform
        self._placing = placing
        self._clauses: list[MergeClauseRecord] = []
        self._executed = False
        #: Executed, or given up with an error that its user has seen.
        self.ended = False

    def when_matched_update(
        self, updates: Mapping[str, object], predicate: str | None = None
    ) -> Self:
        """Set columns of a target row that a source row matches."""
        return self._add("matched_update", predicate, lambda: self._parse_assignments(updates))

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Set all columns of a matched target row to those of its source row."""
        return self._add("matched_update", predicate, lambda: self._all(except_cols))

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete a target row that a source row matches."""
        return self._add("matched_delete", predicate)

    def when_not_matched_insert(
        self, updates: Mapping[str, object], predicate: str | None = None
    ) -> Self:
        """Insert a row for a source row that matches none."""
        return self._add("not_matched_insert", predicate, lambda: self._parse_assignments(updates))

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert a source row that matches none."""
        return self._add("not_matched_insert", predicate, lambda: self._all(except_cols))

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, object], predicate: str | None = None
    ) -> Self:
        """Set columns of a target row that no source row matches."""
        return self._add(
            "not_matched_by_source_update", predicate, lambda: self._parse_assignments(updates)
        )

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete a target row that no source row matches."""
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
            result = self._perform(tuple(self._clauses))
        self._executed = self.ended = True
        return result

    def _add(
        self,
        kind: str,
        predicate: str | None,
        assignments: Callable[[], dict[str, Expr]] = dict,
    ) -> Self:
        with self._giving_up():
            condition = None if predicate is None else self._parse(predicate)
            self._clauses.append(MergeClauseRecord(kind, condition, assignments()))
        return self

    @contextmanager
    def _giving_up(self) -> Generator[None]:
        """A verb that raises has had no effect, so the commit need not wait for this merge."""
        try:
            with self._placing():
                yield
        except BaseException:
            self.ended = True
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
