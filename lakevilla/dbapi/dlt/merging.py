"""The merges of dlt: its SQL, whose statements are performed by a transaction's verbs.

dlt generates the statements of each merge strategy. They read the package's rows under names that
no table of the lake has. What they insert is streamed to new files; what they delete, update or
merge is a statement of the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlglot
from dlt.common.destination import PreparedTableSchema
from dlt.destinations.sql_client import SqlClientBase
from dlt.destinations.sql_jobs import SqlMergeFollowupJob
from sqlglot import exp

from lakevilla.api.transaction import Transaction
from lakevilla.dbapi.dlt.sql_client import STAGED
from lakevilla.dbapi.dlt.staged import StagedRows, quoted
from lakevilla.errors import InvalidOperation

__all__ = ["Merging"]


class MergeJob(SqlMergeFollowupJob):
    """dlt's SQL of merges, with quoted names of temporary tables: a table may be named ``a b``."""

    @classmethod
    def _new_temp_table_name(cls, *given: Any) -> str:
        return quoted(super()._new_temp_table_name(*given))


class Merging:
    """The statements of merges, performed in one transaction.

    Parameters
    ----------
    txn : Transaction
    staged : StagedRows
        Has the package's rows under the names of ``names``.
    names : Mapping of str to str
        The staged table of each table, by the table's name in dlt.
    dataset : str
        The directory of the tables.
    """

    def __init__(
        self,
        txn: Transaction[pa.Table],
        staged: StagedRows,
        names: Mapping[str, str],
        dataset: str,
    ) -> None:
        self._txn, self._staged, self._dataset = txn, staged, dataset
        self._names = names
        self._own = set(names.values())

    def merge(self, chain: Sequence[PreparedTableSchema], client: SqlClientBase) -> None:
        """Merge the rows of a root table, and of the tables that are nested in it."""
        for text in MergeJob.generate_sql(chain, client):
            statement = sqlglot.parse_one(text.strip().rstrip(";"), dialect="duckdb")
            self._perform(statement.transform(self._as_here))

    def _as_here(self, node: exp.Expr) -> exp.Expr:
        """Return a table of dlt's staging dataset as the staged table that stands for it.

        A column is named by its table alone, without the dataset.
        """
        if isinstance(node, exp.Column) and node.db:
            return exp.column(node.this, node.args["table"])
        if isinstance(node, exp.Table) and node.db == STAGED:
            staged = exp.to_table(quoted(self._names[node.name]), dialect="duckdb")
            return exp.alias_(staged, node.alias, table=True) if node.alias else staged
        return node

    def insert(self, table: str, columns: Sequence[str], query: exp.Expr) -> None:
        """Append the rows of a query to a table of the lake."""
        location = self._location(table)
        target = schema_in(self._txn, location)
        text = self._readable(query).sql("duckdb")
        fitted = self._staged.fitted(columns, text, target)
        self._txn.append(location, self._staged.reader(fitted))

    def _perform(self, statement: exp.Expr) -> None:
        match statement:
            case exp.Create(this=exp.Table() as made, expression=exp.Query() as query):
                self._staged.add_query(made.name, self._readable(query).sql("duckdb"))
                self._own.add(made.name)
            case exp.Insert(this=exp.Schema() as into, expression=exp.Query() as query):
                columns = [column.name for column in into.expressions]
                self.insert(into.this.name, columns, query)
            case exp.Delete() | exp.Update() | exp.Merge():
                self._txn.sql(statement.sql("duckdb"), views=self._views(statement))
            case _:
                raise InvalidOperation(
                    f"dlt merges by a statement that this destination does not know: "
                    f"{statement.sql('duckdb')[:200]}; report it, with the version of dlt"
                )

    def _views(self, statement: exp.Expr) -> dict[str, Any]:
        """Return the columns of staged tables that a statement names, in memory."""
        used = _names_in(statement)
        return {
            name: self._staged.table(
                f"SELECT {', '.join(self._used_of(name, used))} FROM {quoted(name)}"
            )
            for name in {table.name for table in _tables_in(statement)} & self._own
        }

    def _used_of(self, name: str, used: set[str]) -> list[str]:
        columns = list(self._staged.columns(f"SELECT * FROM {quoted(name)}"))
        return [quoted(column) for column in columns if column.lower() in used] or [
            quoted(columns[0])
        ]

    def _readable(self, query: exp.Expr) -> exp.Expr:
        """Return the query over staged tables alone: what it reads of the lake is staged, too."""
        query, used = query.copy(), _names_in(query)
        for table in list(_tables_in(query)):
            if not table.db:
                continue
            name = f"_dlt_read_{table.name}"
            self._read(self._location(table.name), name, used)
            read = exp.to_table(quoted(name), dialect="duckdb")
            table.replace(exp.alias_(read, table.alias or table.name, table=True))
        return query

    def _read(self, location: str, name: str, used: set[str]) -> None:
        columns = schema_in(self._txn, location).names
        read = [column for column in columns if column.lower() in used] or columns[:1]
        self._staged.add_rows(name, self._txn.scan(location, read))

    def _location(self, table: str) -> str:
        return f"{self._dataset}/{table}"


def schema_in(txn: Transaction[pa.Table], location: str) -> pa.Schema:
    """Return the columns of a table in the transaction's state; no row of it counts as read."""
    return txn.read(location, where="false").schema


def _tables_in(statement: exp.Expr) -> Iterator[exp.Table]:
    return statement.find_all(exp.Table)


def _names_in(statement: exp.Expr) -> set[str]:
    return {name.name.lower() for name in statement.find_all(exp.Identifier)}
