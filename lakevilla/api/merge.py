"""Merges in a transaction, described by deltalake's builder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, Self

import pyarrow as pa

from lakevilla.api.arguments import check_names
from lakevilla.api.border import with_border
from lakevilla.arrow.cast import ColumnPath
from lakevilla.arrow.nested_fields import widened
from lakevilla.engines.base import MergeClause, MergeKind
from lakevilla.errors import InvalidOperation
from lakevilla.results import OperationResult
from lakevilla.sql.expressions.assignments import FILL_FIELDS, filled, path_in, spelled
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.sql.expressions.parse import StatementExpressions
from lakevilla.sql.expressions.syntax.slips import naming_quotes
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, other_meaning
from lakevilla.sublogs.operations import Source

__all__ = [
    "Described",
    "MergeBuilder",
    "OfOwnRow",
    "PlannedMerge",
    "columns_of_both",
    "meaning_of",
    "new_columns",
    "of_no_row",
    "set_from",
]

#: A test whether a column is set to a value that the source has computed from the table's rows.
OfOwnRow = Callable[[str], bool]


def of_no_row(_: str) -> bool:
    """Return False for all columns: the source's rows are the caller's own, of no table."""
    return False


@dataclass(slots=True)
class Described:
    """A merge into a table that a caller is describing.

    ``ended``: the merge was executed, or has raised an error to the caller. ``verb``: the verb that
    the caller has used.
    """

    table: str
    ended: bool = False
    verb: str = "merge"


@dataclass(frozen=True, slots=True)
class PlannedMerge:
    """A merge into a table, complete except for its clauses.

    Attributes
    ----------
    location : str
        The table's location.
    rows : pyarrow.Schema
        The columns of the source.
    stored : callable
        Stores the rows of the source, and returns them as the source of an operation.
    on : Expr
    aliases : tuple of str
        The alias of the source, and that of the table.
    widens : bool
        Whether the table gets new columns for the source's columns that clauses set and it lacks.
    within : Expr, optional
        As in the operation ``Merge``.
    of_own_row : callable
        The test whether the source has computed a column's value from the table's own rows.
    """

    location: str
    rows: pa.Schema
    stored: Callable[[], Source]
    on: Expr
    aliases: tuple[str, str]
    widens: bool = False
    within: Expr | None = None
    of_own_row: OfOwnRow = of_no_row

    def schemas(self, target: pa.Schema) -> dict[str, pa.Schema]:
        """Return the columns that expressions of the merge may name, by the two aliases."""
        return dict(zip(self.aliases, (self.rows, target), strict=True))


class Merging(Protocol):
    """The part of an executor that performs a described merge."""

    def verb_scope(self, verb: str, table: str | None) -> AbstractContextManager[None]: ...
    def naming_errors(self, verb: str, table: str | None) -> AbstractContextManager[None]: ...
    def merge(self, merge: PlannedMerge, clauses: tuple[MergeClause, ...]) -> OperationResult: ...


def new_columns(
    clauses: Sequence[MergeClause],
    target: pa.Schema,
    source: pa.Schema,
    *,
    source_alias: str,
    table: str,
) -> pa.Schema | None:
    """Return the source's columns that clauses set, and that, or some fields of which, the target
    lacks.

    Return None if there are none.
    """
    known = {field.name.lower(): field for field in target}
    own = {field.name.lower(): field for field in source}
    found: dict[str, pa.Field] = {}
    for clause in clauses:
        for name, value in clause.assignments.items():
            key = name.lower()
            if key not in known and key not in own:
                key = ".".join(path_in(key) or ())  # the name is written in quotes
            taken = own.get(_taken(value, source_alias).lower())
            if key not in known and key in own:
                found[key] = own[key].with_nullable(True)
            elif key in known and taken is not None:
                now = found.get(key, known[key])
                kind = widened(now.type, taken.type, ColumnPath(table, now.name))
                found[key] = now.with_type(kind)
    new = [field for key, field in found.items() if key not in known or field != known[key]]
    return pa.schema(new) if new else None


def _taken(value: Expr, source_alias: str) -> str:
    """Return the name of the source's column if a value is just that column, else ``""``."""
    if isinstance(value, Call) and value.name == FILL_FIELDS:
        value = value.args[0]
    if not isinstance(value, Column):
        return ""
    path = value.path if value.table is None else (value.table, *value.path)
    return path[1] if len(path) == 2 and path[0].lower() == source_alias.lower() else ""


@with_border
class MergeBuilder:
    """A builder that describes a merge; ``execute()`` performs it.

    The clauses and their arguments are those of ``deltalake.table.TableMerger``:
    for each row the first clause of its kind whose predicate is true applies.
    """

    def __init__(
        self,
        executor: Merging,
        described: Described,
        merge: PlannedMerge,
        target: pa.Schema,
        texts: StatementExpressions,
    ) -> None:
        self._executor = executor
        self._described = described
        self._merge = merge
        self._target = target
        self._texts = texts
        self._clauses: list[MergeClause] = []
        self._written: dict[str, object] = {}
        self._executed = False

    def when_matched_update(
        self, updates: Mapping[str, object], predicate: Predicate | None = None
    ) -> Self:
        """Set columns of a target row that a source row matches.

        Parameters
        ----------
        updates : Mapping
            Per column of the target, or field of a struct (``"s.a"``), SQL text or a value.
        predicate : str, optional
            The clause is for the rows for which it is true.
        """
        return self._add("matched_update", predicate, lambda: self._read(updates))

    def when_matched_update_all(
        self, predicate: Predicate | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Set all columns of a matched target row to those of its source row.

        Columns and struct fields that the source lacks stay unchanged. Lists and maps are replaced.

        Parameters
        ----------
        predicate : str, optional
            The clause is for the rows for which it is true.
        except_cols : sequence of str, optional
            Columns of the source to leave out.
        """
        return self._add("matched_update", predicate, lambda: self._updated(except_cols))

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
        return self._add("not_matched_insert", predicate, lambda: self._read(updates))

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
        return self._add("not_matched_insert", predicate, lambda: self._inserted(except_cols))

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
        return self._add("not_matched_by_source_update", predicate, lambda: self._read(updates))

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
        described = self._described
        with self._giving_up():
            self._refuse_incomplete()
            with (
                naming_quotes(self._written),
                self._executor.verb_scope(described.verb, described.table),
            ):
                self._texts.finish()
                result = self._executor.merge(self._merge, tuple(self._clauses))
        self._executed = described.ended = True
        return result

    def _refuse_incomplete(self) -> None:
        if self._executed:
            raise InvalidOperation("this merge has been executed already: describe a new one")
        if not self._clauses:
            raise InvalidOperation(
                "a merge needs at least one clause, such as when_matched_update_all()"
            )
        refuse_unreached(self._clauses)

    def _add(
        self,
        kind: MergeKind,
        predicate: Predicate | None,
        assignments: Callable[[], dict[str, Expr]] = dict,
    ) -> Self:
        with self._giving_up():
            condition = None if predicate is None else self._texts.predicate(predicate)
            self._clauses.append(MergeClause(kind, condition, assignments()))
        return self

    def _read(self, updates: Mapping[str, object]) -> dict[str, Expr]:
        if isinstance(updates, Mapping):  # a value of any other type is refused by ``assignments``
            self._written.update(updates)
        with naming_quotes(self._written):
            return self._texts.assignments(updates)

    @contextmanager
    def _giving_up(self) -> Generator[None]:
        """Mark the merge as ended if the block raises an error.

        A verb that raises has had no effect, so the commit need not refuse this merge as
        unfinished.
        """
        try:
            with self._executor.naming_errors(self._described.verb, self._described.table):
                yield
        except BaseException:
            self._described.ended = True
            raise

    @staticmethod
    def _except(except_cols: object) -> list[str]:
        return [] if except_cols is None else check_names("except_cols", except_cols)

    def _updated(self, except_cols: Sequence[str] | None) -> dict[str, Expr]:
        """Return the assignments to all columns; structs keep fields that the source's structs
        lack.
        """
        return {
            spelled((name,)): set_from(one, name, self._target, self._merge.aliases)
            for name, one in self._all(except_cols).items()
        }

    def _inserted(self, except_cols: Sequence[str] | None) -> dict[str, Expr]:
        return {
            spelled((name,)): Column((one.name,), self._merge.aliases[0])
            for name, one in self._all(except_cols).items()
        }

    def _all(self, except_cols: Sequence[str] | None) -> dict[str, pa.Field]:
        """Return the source's columns by their names in the target, without the excepted ones."""
        left_out = {name.lower() for name in self._except(except_cols)}
        columns = {name.lower(): name for name in self._target.names}
        source = self._merge.rows
        if self._merge.widens:
            columns = {name.lower(): name for name in source.names} | columns
        given = {name.lower() for name in source.names}
        unknown = sorted((given - left_out - columns.keys()) | (left_out - given - columns.keys()))
        if unknown:
            raise InvalidOperation(
                f"column {unknown[0]} of the merge is not a column of its target: "
                f"the target has {', '.join(self._target.names)}"
            )
        return {
            columns[one.name.lower()]: one for one in source if one.name.lower() not in left_out
        }


def meaning_of(builder: MergeBuilder) -> OtherMeaning | None:
    """Return the expression of a merge that has another meaning in a SELECT; None if none has.

    LakeVilla's own expressions can't perform such a statement of ``sql``.
    """
    with builder._giving_up():
        builder._refuse_incomplete()
        with naming_quotes(builder._written):
            builder._texts.finish()
            return other_meaning(builder._texts, builder._merge.schemas(builder._target))


def columns_of_both(builder: MergeBuilder) -> tuple[list[str], list[str]]:
    """Return the names of the columns of a merge's source, and of its table's."""
    return list(builder._merge.rows.names), list(builder._target.names)


def set_from(source: pa.Field, name: str, target: pa.Schema, aliases: tuple[str, str]) -> Expr:
    """Return the value that sets a column from the source; a struct keeps fields that it lacks."""
    value = Column((source.name,), aliases[0])
    index = target.get_field_index(name)
    if index < 0 or not pa.types.is_struct(target.field(index).type):
        return value
    return filled(value, Column((name,), aliases[1]))


def refuse_unreached(clauses: Iterable[MergeClause]) -> None:
    """Refuse a clause that no row reaches, because a clause of its kind before it takes all rows.

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
