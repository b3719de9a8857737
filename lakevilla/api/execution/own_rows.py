"""Whether what a merge sets a column to was computed of the row that it sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakevilla.sql.statements.dml import MergeStatement

#: Tells it of a column that is set to something of the source.
OfOwnRow = Callable[[str], bool]


def of_no_row(_: str) -> bool:
    """Rows that the caller gives are values of his."""
    return False


def own_row_test(statement: MergeStatement, location: str, tables: Mapping[str, str]) -> OfOwnRow:
    """By a statement, and by the ``tables`` that its query reads, at their locations.

    Where the statement does not tell, a query over the table itself may have computed all of it.
    """
    if statement.computed is None:
        reads_itself = location in tables.values()
        return lambda column: reads_itself
    named = {column.lower() for column in statement.computed}
    return lambda column: column.lower() in named
