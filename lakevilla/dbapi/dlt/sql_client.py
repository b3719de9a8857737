"""The SQL client of the destination: dlt's queries through ``lakevilla.dbapi``."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import sqlglot
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.destinations.exceptions import (
    DatabaseTerminalException,
    DatabaseTransientException,
    DatabaseUndefinedRelation,
)
from dlt.destinations.sql_client import DBApiCursorImpl, SqlClientBase
from sqlglot import exp

from lakevilla import dbapi
from lakevilla.dbapi.connection import Connection
from lakevilla.dbapi.dlt.configuration import LakeVillaClientConfiguration

__all__ = ["LakeVillaSqlClient", "STAGED"]

#: The dataset of the tables that exist only while a package is loaded: its own files.
STAGED = "_dlt_staged"


class LakeVillaCursor(DBApiCursorImpl):
    """A cursor whose rows stay in Arrow."""

    def iter_arrow(self, chunk_size: int | None = None) -> Generator[pa.Table]:
        """Yield the rows as tables of at most ``chunk_size`` rows."""
        rows = self.native_cursor.fetch_arrow_table()
        if not chunk_size:
            yield rows
            return
        for start in range(0, rows.num_rows, chunk_size):
            yield rows.slice(start, chunk_size)


class LakeVillaSqlClient(SqlClientBase):
    """A connection to the lake; a dataset is a schema, which is a directory of tables."""

    dbapi = dbapi

    def __init__(
        self,
        dataset_name: str,
        config: LakeVillaClientConfiguration,
        capabilities: DestinationCapabilitiesContext,
    ) -> None:
        super().__init__(None, dataset_name, STAGED, capabilities)
        self._config = config
        self._connection: Connection | None = None

    # -- connection --------------------------------------------------------------

    @property
    def native_connection(self) -> Connection | None:
        """The connection; None while it is closed."""
        return self._connection

    def open_connection(self) -> Connection:
        """Open the connection, in which each statement is a transaction by itself."""
        if self._connection is None:
            self._connection = dbapi.connect(self._config.lake(), autocommit=True)
        return self._connection

    def close_connection(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def begin_transaction(self) -> Iterator[LakeVillaSqlClient]:
        """Make the statements of the block one transaction."""
        connection = self.open_connection()
        with _as_dlt_says():
            connection.autocommit = False
            try:
                yield self
                connection.commit()
            finally:
                connection.rollback()
                connection.autocommit = True

    def commit_transaction(self) -> None:
        """Commit the open transaction."""
        with _as_dlt_says():
            self.open_connection().commit()

    def rollback_transaction(self) -> None:
        """Undo the open transaction."""
        self.open_connection().rollback()

    # -- statements --------------------------------------------------------------

    def execute_sql(self, sql: str, *args: Any, **kwargs: Any) -> list[tuple[Any, ...]] | None:
        """Run a statement; return its rows, or None if it has none."""
        with self.execute_query(sql, *args, **kwargs) as cursor:
            return None if cursor.description is None else list(cursor.fetchall())

    @contextmanager
    def execute_query(self, query: str, *args: Any, **kwargs: Any) -> Iterator[LakeVillaCursor]:
        """Run a statement, whose values are written ``%s`` or ``:name``."""
        values: dict[str, Any] = dict(kwargs)
        if args:
            query, values = self._to_named_paramstyle(query, args)
        text = in_dataset(query, self.fully_qualified_dataset_name())
        with _as_dlt_says():
            cursor = self.open_connection().cursor()
            cursor.execute(text, values or None)
            with cursor:
                yield LakeVillaCursor(cursor)

    def has_dataset(self) -> bool:
        """Return whether the lake has the dataset's schema, or a table in it."""
        rows = self.execute_sql(
            "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", self._name()
        )
        return bool(rows)

    def create_dataset(self) -> None:
        """Create the dataset's schema, unless the lake has it."""
        self.execute_sql(f"CREATE SCHEMA IF NOT EXISTS {self.fully_qualified_dataset_name()}")

    def _name(self) -> str:
        return str(self.fully_qualified_dataset_name(quote=False))

    @staticmethod
    def _make_database_exception(error: Exception) -> Exception:
        if not isinstance(error, dbapi.Error):
            return error
        if error.kind in ("table_not_found", "schema_not_found"):
            return DatabaseUndefinedRelation(error)  # type: ignore[no-any-return]
        if isinstance(error, dbapi.OperationalError):
            return DatabaseTransientException(error)  # type: ignore[no-any-return]
        return DatabaseTerminalException(error)  # type: ignore[no-any-return]


def in_dataset(query: str, dataset: str) -> str:
    """Return a query whose tables without a schema are those of a dataset, else unchanged."""
    try:
        statements = sqlglot.parse(query, dialect="duckdb")
    except sqlglot.ParseError:
        return query  # the lake raises an error that says more
    starts: set[int] = set()
    for statement in statements:
        if statement is None:
            continue
        for table in statement.find_all(exp.Table):
            if isinstance(table.this, exp.Identifier) and not table.db and not _is_cte(table):
                starts.add(table.this.meta.get("start", -1))
    for start in sorted(starts - {-1}, reverse=True):
        query = f"{query[:start]}{dataset}.{query[start:]}"
    return query


def _is_cte(table: exp.Table) -> bool:
    """Return whether a table is one of WITH: of one before it, of its own, or of a query around."""
    name = table.name.lower()
    inner: exp.Expr = table
    while (outer := inner.parent) is not None:
        if isinstance(outer, exp.With):
            before = outer.expressions if outer.recursive else outer.expressions[: inner.index]
            if name in {one.alias.lower() for one in before}:
                return True
        elif (
            (given := outer.args.get("with_") or outer.args.get("with")) is not None
            and given is not inner
            and name in {one.alias.lower() for one in given.expressions}
        ):
            return True
        inner = outer
    return False


@contextmanager
def _as_dlt_says() -> Iterator[None]:
    """Convert errors of the connection to those that dlt tells apart."""
    try:
        yield
    except dbapi.Error as error:
        raise LakeVillaSqlClient._make_database_exception(error) from error
