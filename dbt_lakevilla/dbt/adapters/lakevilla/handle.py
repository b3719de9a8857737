"""A session on a lake, as dbt uses the connections of databases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

import lakevilla as lv
from lakevilla.dbapi.types import ColumnDescription, Rows, columns_of
from lakevilla.errors import InvalidOperation

_COMMENTS = r"(?:\s|/\*.*?\*/|--[^\n]*\n)*"
#: What the macro ``create_table_as`` writes for a temporary table.
_TEMPORARY = re.compile(
    rf'{_COMMENTS}create\s+temporary\s+table\s+"(?P<name>[^"]+)"\s+as\s+(?P<query>.*)',
    re.IGNORECASE | re.DOTALL,
)
_END = re.compile(
    rf"{_COMMENTS}(?P<word>commit|end|rollback|abort)\s*;?\s*(?:/\*.*?\*/)?\s*",
    re.IGNORECASE | re.DOTALL,
)


class Handle:
    """One thread's way to the lake: a session, and the temporary tables of its transaction.

    A temporary table is the Arrow table of its query, under a name that later statements use. It
    is no table of the lake, costs no request, and ends with the transaction.
    """

    def __init__(self, lake: lv.Lake[pa.Table], isolation: Any) -> None:
        self.lake = lake
        self.temporaries: dict[str, pa.Table] = {}
        self._isolation = isolation
        self._session = lake.session(isolation=isolation)

    def begin(self, metadata: Mapping[str, str]) -> None:
        """Begin a transaction, which notes these in the lake's history."""
        self._session.close()
        self._session = self.lake.session(isolation=self._isolation, metadata=dict(metadata))
        self._session.sql("BEGIN")

    def commit(self) -> None:
        """Commit the transaction, if there is one."""
        self.temporaries.clear()
        if self._session.transaction is not None:
            self._session.sql("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if there is one."""
        self.temporaries.clear()
        if self._session.transaction is not None:
            self._session.sql("ROLLBACK")

    def close(self) -> None:
        """Undo the transaction, if there is one, and end the session."""
        self.temporaries.clear()
        self._session.close()

    def cursor(self) -> Cursor:
        """Return a cursor for one statement."""
        return Cursor(self)

    def run(self, text: str, views: Mapping[str, object] | None = None) -> pa.Table | None:
        """Run a text, and return the rows of its last query."""
        if (end := _END.fullmatch(text)) is not None:
            return self.commit() if end["word"].lower() in ("commit", "end") else self.rollback()
        if (temporary := _TEMPORARY.fullmatch(text)) is not None:
            self.temporaries[temporary["name"]] = self._rows(temporary["query"].strip(), views)
            return None
        result = self._session.sql(text, None, self._named_in(text, views))
        return result if isinstance(result, pa.Table) else None

    def with_text_for_null(self, query: str) -> str:
        """Return a query whose columns of type null are text, as Postgres makes them.

        No table has columns of that type. DuckDB 2 gives it to those of ``null`` alone; DuckDB 1
        makes them integers.
        """
        found = self._session.statements(query)
        if len(found) != 1:
            return query
        inner = f"(\n{found[0].text}\n) as typed"
        schema = self._rows(f"select * from {inner} limit 0", None).schema
        names = [field.name.replace('"', '""') for field in schema if pa.types.is_null(field.type)]
        if not names:
            return query
        casts = ", ".join(f'cast("{name}" as varchar) as "{name}"' for name in names)
        return f"select * replace ({casts}) from {inner}"

    def drop(self, name: str) -> None:
        """Forget a temporary table."""
        self.temporaries.pop(name, None)

    def _rows(self, query: str, views: Mapping[str, object] | None) -> pa.Table:
        rows = self._session.sql(query, None, self._named_in(query, views))
        if not isinstance(rows, pa.Table):
            raise InvalidOperation(
                f"a temporary table is made by a query, and this is none: {query}"
            )
        return rows

    def _named_in(self, text: str, views: Mapping[str, object] | None) -> dict[str, object]:
        named = {name: rows for name, rows in self.temporaries.items() if name in text}
        return {**named, **(views or {})}


class Cursor:
    """The rows of one statement, as PEP 249 has them."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._rows: Rows | None = None

    @property
    def description(self) -> tuple[ColumnDescription, ...] | None:
        """The columns of the rows; None if the statement was no query."""
        return None if self._rows is None else columns_of(self._rows.schema)

    @property
    def rowcount(self) -> int:
        """The number of rows of a query; -1 for other statements, whose counts nobody reads."""
        return -1 if self._rows is None else self._rows.count

    def execute(self, text: str, bindings: object = None) -> None:
        """Run a statement."""
        if bindings:
            raise InvalidOperation("statements of dbt have no parameters here: write the values")
        rows = self._handle.run(text)
        self._rows = None if rows is None else Rows(rows)

    def fetchone(self) -> tuple[object, ...] | None:
        """Return the next row."""
        return next(iter(self.fetchmany(1)), None)

    def fetchmany(self, count: int) -> list[tuple[object, ...]]:
        """Return the next rows."""
        return [] if self._rows is None else self._rows.take(count)

    def fetchall(self) -> list[tuple[object, ...]]:
        """Return all rows that are left."""
        return [] if self._rows is None else self._rows.take(None)

    def close(self) -> None:
        """Free the rows."""
        self._rows = None
