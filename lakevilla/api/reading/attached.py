"""Tables of a snapshot as views of the caller's DuckDB connection.

DuckDB does not read the data files in these views: the connection's settings (time zone, collation)
would change the results of casts and comparisons, and DuckDB knows neither deleted rows nor renamed
columns. The connection requests rows of some columns, and LakeVilla's own reader returns them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from lakevilla.api.arguments import check_columns, check_text
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.views import expanded, is_view
from lakevilla.api.reading import arrow_filters
from lakevilla.engines.base import projection
from lakevilla.engines.duckdb.attaching import (
    AttachedView,
    Relation,
    as_relation,
    connection_of,
    show_tables,
)
from lakevilla.sql.expressions.bind import Predicate, bind
from lakevilla.sql.expressions.tree import Call, Expr
from lakevilla.sql.statements.select import quoted, select_of

__all__ = ["attach", "relation_of"]


class Pulled:
    """A scanner for DuckDB: a reader of rows, which are filtered when DuckDB pulls them.

    Arrow's own scanner reads ahead in another thread. After a query that needed only the first
    rows, that thread could still run Python code of LakeVilla's reader when the interpreter ends,
    and the process would abort.
    """

    # https://github.com/duckdb/duckdb/issues/20715

    def __init__(self, rows: pa.RecordBatchReader, names: Sequence[str], filter: Any) -> None:
        self._rows, self._names, self._filter = rows, names, filter

    @property
    def projected_schema(self) -> pa.Schema:
        return pa.schema([self._rows.schema.field(name) for name in self._names])

    def to_reader(self) -> pa.RecordBatchReader:
        if self._filter is None:
            return self._rows
        kept = (batch.filter(self._filter).select(self._names) for batch in self._rows)
        return pa.RecordBatchReader.from_batches(self.projected_schema, kept)


class Rows(pyarrow.dataset.Dataset):  # type: ignore[misc]
    """Rows in a transaction's state, which DuckDB reads as an Arrow dataset: by ``scanner``."""

    # The base class has no usable constructor, and no state of its own.
    _opening: threading.Lock
    _schema: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pyarrow.dataset.Expression | None = None,
        **options: object,
    ) -> Pulled:
        """Return a scanner of some columns, for the rows that pass Arrow's filter.

        From its version 2 on, DuckDB does not request the columns that only the filter reads.
        """
        names = (self._schema.names if columns is None else columns) or self._schema.names[:1]
        read = list(names)
        if filter is not None:
            filtered = arrow_filters.columns_of(filter, self._schema)
            read += [name for name in filtered if name not in names]
        # Several threads of DuckDB call this at once; a transaction belongs to one thread at a
        # time.
        with self._opening:
            rows = self._read(read, filter)
        return Pulled(rows, names, filter)

    def _read(
        self, names: Sequence[str], filter: pyarrow.dataset.Expression | None
    ) -> pa.RecordBatchReader:
        """Return the columns' rows, at least those that pass the filter."""
        raise NotImplementedError


class TableRows(Rows):
    """The rows of a table."""

    def __init__(
        self,
        executor: Executor[Any],
        table: str,
        opening: threading.Lock,
        columns: Sequence[str] | None = None,
        where: Expr | None = None,
    ) -> None:
        self._executor, self._table, self._opening = executor, table, opening
        layout = executor.look(table).snapshot.layout
        self._schema = projection(layout, columns)
        self._where = where
        if where is not None:
            bind(where, layout.schema)  # raise an error here, and not in a later query of DuckDB

    def _read(
        self, names: Sequence[str], filter: pyarrow.dataset.Expression | None
    ) -> pa.RecordBatchReader:
        pushed = None if filter is None else arrow_filters.translated(filter, self._schema)
        given = [one for one in (self._where, pushed) if one is not None]
        where = Call("and", tuple(given)) if len(given) == 2 else next(iter(given), None)
        return self._executor.scan_where(self._table, names, where)


class ViewRows(Rows):
    """The rows of a view. Each read runs the view's query, whose rows are in memory."""

    def __init__(self, executor: Executor[Any], view: str, opening: threading.Lock) -> None:
        self._executor, self._opening = executor, opening
        text = f"SELECT * FROM {quoted(view.replace('.', '/'))}"
        self._query = expanded(executor, select_of(text), ())
        self._schema = executor.columns(self._query, {}, {})

    def _read(
        self, names: Sequence[str], filter: pyarrow.dataset.Expression | None
    ) -> pa.RecordBatchReader:
        rows: pa.Table = self._executor.select(self._query, {}, {})
        return rows.select(names).to_reader()


def attach(
    executor: Executor[Any],
    connection: object,
    tables: str | Sequence[str] | Mapping[str, str] | None,
    names: Sequence[str],
) -> None:
    """Make views of the given tables, or of all ``names`` if none are given.

    See ``Snapshot.attach``.
    """
    target = connection_of(connection)
    opening = threading.Lock()
    show_tables(
        target,
        executor.client.root,
        [
            AttachedView(
                view,
                () if isinstance(tables, Mapping) else _parts(view),
                ViewRows(executor, table, opening)
                if executor.dialect == "duckdb" and is_view(executor, table)
                else TableRows(executor, table, opening),
            )
            for view, table in _chosen(tables, names).items()
        ],
    )


def relation_of(
    executor: Executor[Any],
    table: str,
    columns: Sequence[str] | None,
    where: Predicate | None,
    params: Mapping[str, object] | None,
    connection: object,
) -> Relation:
    """Return a table's rows as a relation of the connection; see ``Table.to_duckdb``."""
    predicate = executor.optional_predicate(where, params, table)
    rows = TableRows(executor, table, threading.Lock(), check_columns(columns), predicate)
    return as_relation(connection_of(connection), rows)


def _chosen(
    tables: str | Sequence[str] | Mapping[str, str] | None, names: Sequence[str]
) -> Mapping[str, str]:
    """Return the chosen tables by the names of their views."""
    if tables is None:
        return {name: name for name in names}
    if isinstance(tables, str):
        tables = [tables]
    chosen = tables if isinstance(tables, Mapping) else {name: name for name in tables}
    for name in (*chosen, *chosen.values()):
        check_text("tables", name)
    return chosen


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a name ``a/b`` or ``a.b``, for a second view ``a.b`` as in SQL."""
    parts = tuple(name.replace(".", "/").split("/"))
    return parts if len(parts) in (2, 3) and all(parts) else ()
