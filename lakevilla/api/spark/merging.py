"""Merges that are described by the calls of Delta's builder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from lakevilla.api.border import with_border
from lakevilla.api.merge import Described, MergeBuilder, columns_of_both
from lakevilla.api.transaction import Transaction
from lakevilla.engines.spark.columns import frame_alias
from lakevilla.engines.spark.rows import is_frame
from lakevilla.errors import InvalidOperation
from lakevilla.results import OperationResult
from lakevilla.settings import shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["SparkMergeBuilder", "described_in", "refuse_mapping"]

#: A clause, as a call of the builder of a transaction.
Clause: TypeAlias = Callable[[MergeBuilder], object]
#: A call of a verb in a transaction, one of its own or the caller's.
Perform: TypeAlias = (
    "Callable[[Callable[[Transaction[DataFrame]], OperationResult]], OperationResult]"
)


@with_border
@dataclass(frozen=True, repr=False)
class SparkMergeBuilder:
    """A merge with the calls of ``delta.tables.DeltaMergeBuilder``; ``execute()`` performs it.

    Each call returns a builder with one clause more. For each row the first clause of its kind
    whose condition is true applies. An unfinished merge has no effect on a lake; a transaction
    refuses to commit with one.
    """

    _perform: Perform
    _table: str
    _alias: str
    _source: DataFrame
    _on: str | Column
    _described: Described
    _clauses: tuple[Clause, ...] = ()
    _evolves: bool = False

    def __repr__(self) -> str:
        count = len(self._clauses)
        return (
            f"<lakevilla.SparkMergeBuilder into {self._table} as {self._alias}, "
            f"{count} clause{'' if count == 1 else 's'}: execute() performs it>"
        )

    def whenMatchedUpdate(
        self, condition: str | Column | None = None, set: Mapping[str, object] | None = None
    ) -> SparkMergeBuilder:
        """Set columns of a row of the table that a row of the source matches.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows for which it is true.
        set : Mapping
            For each column of the table, or field of a struct, an expression as text or Column.
        """
        refuse_mapping("whenMatchedUpdate", condition, set, "set")
        return self._with(lambda merge: merge.when_matched_update(set or {}, condition))

    def whenMatchedUpdateAll(self, condition: str | Column | None = None) -> SparkMergeBuilder:
        """Set all columns of a matched row to those of its row of the source.

        Other columns of the source are left out; the source must have all of the table's. With
        ``withSchemaEvolution`` the table gets the former, and keeps what the source lacks.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows for which it is true.
        """
        return self._with(
            lambda merge: merge.when_matched_update_all(
                condition, self._left_out(merge, "whenMatchedUpdateAll")
            )
        )

    def whenMatchedDelete(self, condition: str | Column | None = None) -> SparkMergeBuilder:
        """Delete a row of the table that a row of the source matches.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows for which it is true.
        """
        return self._with(lambda merge: merge.when_matched_delete(condition))

    def whenNotMatchedInsert(
        self, condition: str | Column | None = None, values: Mapping[str, object] | None = None
    ) -> SparkMergeBuilder:
        """Insert a row for a row of the source that matches none.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows of the source for which it is true.
        values : Mapping
            For each column of the table an expression over the source; the others are NULL.
        """
        refuse_mapping("whenNotMatchedInsert", condition, values, "values")
        return self._with(lambda merge: merge.when_not_matched_insert(values or {}, condition))

    def whenNotMatchedInsertAll(self, condition: str | Column | None = None) -> SparkMergeBuilder:
        """Insert a row of the source that matches none, with all columns of the table.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows of the source for which it is true.
        """
        return self._with(
            lambda merge: merge.when_not_matched_insert_all(
                condition, self._left_out(merge, "whenNotMatchedInsertAll")
            )
        )

    def whenNotMatchedBySourceUpdate(
        self, condition: str | Column | None = None, set: Mapping[str, object] | None = None
    ) -> SparkMergeBuilder:
        """Set columns of a row of the table that no row of the source matches.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows for which it is true.
        set : Mapping
            For each column of the table, or field of a struct, an expression over the table.
        """
        refuse_mapping("whenNotMatchedBySourceUpdate", condition, set, "set")
        return self._with(
            lambda merge: merge.when_not_matched_by_source_update(set or {}, condition)
        )

    def whenNotMatchedBySourceDelete(
        self, condition: str | Column | None = None
    ) -> SparkMergeBuilder:
        """Delete a row of the table that no row of the source matches.

        Parameters
        ----------
        condition : str or Column, optional
            The clause is for the rows for which it is true.
        """
        return self._with(lambda merge: merge.when_not_matched_by_source_delete(condition))

    def withSchemaEvolution(self) -> SparkMergeBuilder:
        """Add columns of the source that clauses set and that the table lacks."""
        return replace(self, _evolves=True)

    def execute(self) -> OperationResult:
        """Perform the merge, and return what it did: ``rows_updated``, ``rows_inserted``, ...

        Raises
        ------
        InvalidOperation
            A clause does not fit the table or the source, or two rows of the source match one row.
        TableNotFound, ConflictError
        """
        self._described.ended = True  # a merge that raises has had no effect
        if not self._clauses:
            raise InvalidOperation(
                f"the merge into {self._table} has no clause: call whenMatchedUpdateAll(), "
                "whenNotMatchedInsertAll() or another before execute()"
            )
        return self._perform(self._executed)

    def _executed(self, txn: Transaction[DataFrame]) -> OperationResult:
        merge = txn.merge(
            self._table,
            self._source,
            self._on,
            source_alias=(frame_alias(self._source) if is_frame(self._source) else None)
            or "source",
            target_alias=self._alias,
            schema_mode="merge" if self._evolves else None,
        )
        for clause in self._clauses:
            clause(merge)
        return merge.execute()

    def _with(self, clause: Clause) -> SparkMergeBuilder:
        return replace(self, _clauses=(*self._clauses, clause))

    def _left_out(self, merge: MergeBuilder, call: str) -> list[str]:
        """Return the source's columns that the table lacks; refuse a source that lacks others."""
        if self._evolves:
            return []
        source, target = columns_of_both(merge)
        lacking = _beyond(target, source)
        if lacking:
            raise InvalidOperation(
                f"{call} of table {self._table} sets all of its columns, and the source has no "
                f"column {lacking[0]}: add it, name the columns to set, or call "
                "withSchemaEvolution()",
                table=self._table,
            )
        return _beyond(source, target)


def described_in(txn: Transaction[DataFrame] | None, table: str) -> Described:
    """Return the note of a merge, without whose end the transaction does not commit."""
    described = Described(table)
    if txn is not None:
        txn._executor.merges.append(described)
    return described


def refuse_mapping(call: str, condition: object, given: object, argument: str) -> None:
    """Refuse assignments that are missing, or that were passed as the condition.

    Raises
    ------
    InvalidOperation
    """
    if isinstance(condition, Mapping):
        raise InvalidOperation(
            f"the condition of {call} comes first, and {shown(condition)} is none: pass "
            f"{argument}={{...}}"
        )
    if not isinstance(given, Mapping) or not given:
        raise InvalidOperation(
            f'{call} needs {argument}={{"column": "expression"}}, not {shown(given)}'
        )


def _beyond(some: list[str], others: list[str]) -> list[str]:
    """Return names that are not among the others, in any case."""
    known = {name.lower() for name in others}
    return [name for name in some if name.lower() not in known]
