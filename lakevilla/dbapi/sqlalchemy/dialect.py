"""The SQLAlchemy dialect, and the reflection of tables."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import exc, text, types
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.schema import Table
from sqlalchemy.types import TypeEngine

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.arrow.input import schema_of
from lakevilla.dbapi.cursor import rows_written
from lakevilla.dbapi.sqlalchemy.compiler import (
    MAIN,
    LakeVillaCompiler,
    LakeVillaDDLCompiler,
    LakeVillaIdentifierPreparer,
    LakeVillaTypeCompiler,
)
from lakevilla.dbapi.sqlalchemy.urls import connect_arguments
from lakevilla.dbapi.types import type_code
from lakevilla.sql.expressions.types import arrow_type

# -------------------- reflection
#
# SQLAlchemy's types for columns, and conversions of values that differ from what it expects.


class LakeVillaNumeric(types.Numeric[Any]):
    """Decimals; a double that DuckDB has computed becomes the number that DuckDB prints."""

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        if not self.asdecimal:
            return lambda value: None if value is None else float(value)
        return lambda value: Decimal(repr(value)) if type(value) is float else value


class Nested(types.UserDefinedType[Any]):
    """A column of structs, maps, or lists of these, whose values are dicts and lists.

    Parameters
    ----------
    name
        The type in SQL, such as ``STRUCT(a BIGINT, b VARCHAR)[]``.
    """

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **kw: Any) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Nested({self.name!r})"


def types_of(frame: object) -> dict[str, TypeEngine[Any]]:
    """Return the types of a frame's columns, for ``dtype=`` where pandas writes it by SQL.

    pandas declares a column of lists or structs as text; with these types the table has what the
    frame has. polars passes them on: ``engine_options={"dtype": types_of(frame)}``.

    Parameters
    ----------
    frame
        A polars or pandas frame, an Arrow table, or anything else that ``txn.append`` takes.

    Raises
    ------
    InvalidOperation
        A column has a type that a lake does not store.
    """
    return {field.name: type_of(type_code(field.type)) for field in schema_of(frame)}


_PLAIN: dict[str, type[TypeEngine[Any]]] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.SMALLINT,
    "SMALLINT": types.SMALLINT,
    "INTEGER": types.INTEGER,
    "BIGINT": types.BIGINT,
    "FLOAT": types.REAL,
    "DOUBLE": types.DOUBLE,
    "VARCHAR": types.VARCHAR,
    "BLOB": types.BLOB,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def column_type_of(name: str) -> TypeEngine[Any]:
    """Return the type for a type name of DESCRIBE, such as ``long`` or ``array<string>``."""
    return type_of(type_code(arrow_type(name)))


def type_of(name: str) -> TypeEngine[Any]:
    """Return the type for a code of ``Cursor.description``."""
    if name == "TIMESTAMP WITH TIME ZONE":
        return types.TIMESTAMP(timezone=True)
    if name.endswith("[]"):
        return _array(name)
    if (digits := _DECIMAL.fullmatch(name)) is not None:
        return types.NUMERIC(int(digits[1]), int(digits[2]))
    if name.startswith(("STRUCT(", "MAP(")):
        return Nested(name)
    known = _PLAIN.get(name)
    return types.NullType() if known is None else known()


def _array(name: str) -> TypeEngine[Any]:
    element = name.rstrip("[]")
    found = type_of(element)
    if isinstance(found, types.NullType):
        return found
    if isinstance(found, Nested):
        return Nested(name)
    return types.ARRAY(found, dimensions=(len(name) - len(element)) // 2)


# -------------------- dialect
#
# The dialect: a lake's capabilities, the connection to it, and the reflection of its tables.


#: LakeVilla's isolation levels, by SQLAlchemy's names.
_LEVELS = {
    "SERIALIZABLE": "serializable",
    "SNAPSHOT": "snapshot",
    "WRITE SERIALIZABLE": "write-serializable",
}
_AUTOCOMMIT = "AUTOCOMMIT"
#: The prefix of a CHECK constraint's name in DESCRIBE DETAIL.
_CHECK = "check "


class LakeVillaExecutionContext(default.DefaultExecutionContext):
    """An execution context that reads a write's row count only if the program reads it.

    A count that was read is validated against the commits of other clients.
    """

    _rowcount: int | None
    _written: Any = None

    def post_exec(self) -> None:
        cursor: Any = self.cursor
        if cursor.description is None:
            self._written, self._rowcount = cursor.operations, -1

    @property
    def rowcount(self) -> int:
        if self._written is None:
            found: int = super().rowcount
            return found
        return rows_written(self._written)


class LakeVillaDialect(default.DefaultDialect):
    """The dialect of ``create_engine("lakevilla:///path")``; an engine's connections share one
    ``Lake``.

    ``create_engine(..., create_or_replace=True)``: tables are made by CREATE OR REPLACE TABLE, so
    that names of dropped tables can be used again.
    """

    name = "lakevilla"
    driver = "dbapi"
    default_paramstyle = "named"
    statement_compiler = LakeVillaCompiler
    ddl_compiler = LakeVillaDDLCompiler
    type_compiler_cls = LakeVillaTypeCompiler
    preparer = LakeVillaIdentifierPreparer
    execution_ctx_cls = LakeVillaExecutionContext
    construct_arguments = [  # noqa: RUF012 (as the base class has it)
        (Table, {"format": None, "partition_by": None, "properties": None}),
    ]

    colspecs = {  # noqa: RUF012 (as the base class has it)
        types.Float: types.Float,  # in SQLAlchemy 2.0, Float is a subclass of Numeric
        types.Numeric: LakeVillaNumeric,
    }

    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_enum = False
    supports_native_uuid = False
    supports_multivalues_insert = True
    supports_empty_insert = False
    supports_default_values = False
    supports_default_metavalue = False
    supports_sequences = False
    supports_identity_columns = False
    supports_comments = True
    inline_comments = True
    supports_alter = False
    supports_sane_rowcount = True
    supports_sane_multi_rowcount = True
    postfetch_lastrowid = False
    insert_returning = update_returning = delete_returning = False
    use_insertmanyvalues = False
    cte_follows_insert = True
    div_is_floordiv = False
    default_schema_name = MAIN
    max_identifier_length = 255

    def __init__(self, create_or_replace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.create_or_replace = create_or_replace
        self._lakes: dict[str, lv.Lake[Any]] = {}
        self._lock = threading.Lock()

    # -- connections -------------------------------------------------------------

    @classmethod
    def import_dbapi(cls) -> Any:
        return dbapi

    def create_connect_args(self, url: URL) -> tuple[Sequence[Any], dict[str, Any]]:
        return (), connect_arguments(url)

    def connect(self, *args: Any, **options: Any) -> Any:
        own = {name: options.pop(name) for name in ("isolation", "autocommit") if name in options}
        lake = options.pop("lake", None)
        if lake is None:
            raise exc.ArgumentError(
                "the URL names no lake: write lakevilla:///path or lakevilla+s3://bucket/prefix, "
                'or pass an open one by connect_args={"lake": lake}'
            )
        if not isinstance(lake, lv.Lake):
            with self._lock:
                if lake not in self._lakes:
                    self._lakes[lake] = self.loaded_dbapi.connect(lake, **options).lake
                lake = self._lakes[lake]
        return dbapi.connect(lake, fail_on_error=True, **own)

    def is_disconnect(self, e: Exception, connection: Any, cursor: Any) -> bool:
        return connection is not None and connection.closed

    # -- transactions ------------------------------------------------------------

    def get_isolation_level_values(self, dbapi_connection: Any) -> Any:
        return [*_LEVELS, _AUTOCOMMIT]

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return self.get_isolation_level(dbapi_conn)

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        if dbapi_connection.autocommit:
            return _AUTOCOMMIT
        own = dbapi_connection.isolation or "serializable"
        return next(name for name, value in _LEVELS.items() if value == own)

    def set_isolation_level(self, dbapi_connection: Any, level: str) -> None:
        dbapi_connection.autocommit = level == _AUTOCOMMIT
        if level != _AUTOCOMMIT:
            dbapi_connection.isolation = _LEVELS[level]

    def detect_autocommit_setting(self, dbapi_connection: Any) -> bool:
        return bool(dbapi_connection.autocommit)

    # -- contents ----------------------------------------------------------------

    def _get_default_schema_name(self, connection: Any) -> str:
        return MAIN

    @reflection.cache
    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        found = connection.execute(
            text("SELECT schema_name FROM information_schema.schemata ORDER BY schema_name")
        )
        return list(found.scalars())

    @reflection.cache
    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        found = connection.execute(
            text(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = :schema "
                "AND table_type = 'BASE TABLE' ORDER BY table_name"
            ),
            {"schema": schema or MAIN},
        )
        return list(found.scalars())

    @reflection.cache
    def has_table(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        self._ensure_has_table_connection(connection)
        found = connection.execute(
            text(
                "SELECT table_name FROM information_schema.tables "
                "WHERE table_schema = :schema AND table_name = :name"
            ),
            _place(table_name, schema),
        )
        return found.first() is not None

    def has_sequence(self, *args: Any, **kw: Any) -> bool:
        return False

    @reflection.cache
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        rows = self._described(connection, "DESCRIBE", table_name, schema, kw)
        return [
            {
                "name": name,
                "type": column_type_of(kind),
                "nullable": nullable,
                "default": None,
                "comment": comment,
            }
            for name, kind, nullable, _, comment in rows
        ]

    @reflection.cache
    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        rows = self._described(connection, "DESCRIBE DETAIL", table_name, schema, kw)
        return {"text": dict(rows.all()).get("comment")}

    @reflection.cache
    def get_check_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        rows = self._described(connection, "DESCRIBE DETAIL", table_name, schema, kw)
        return [
            {"name": item.removeprefix(_CHECK), "sqltext": text}
            for item, text in rows
            if item.startswith(_CHECK)
        ]

    def _described(
        self, connection: Any, what: str, table_name: str, schema: str | None, kw: Any
    ) -> Any:
        self._there(connection, table_name, schema, kw)
        place = _place(table_name, schema)
        path = place["name"] if place["schema"] == MAIN else f"{place['schema']}/{place['name']}"
        quoted = self.identifier_preparer.quote_identifier(path)
        return connection.exec_driver_sql(f"{what} {quoted}")

    def _there(self, connection: Any, table_name: str, schema: str | None, kw: Any) -> None:
        if not self.has_table(connection, table_name, schema, **kw):
            raise exc.NoSuchTableError(table_name if schema is None else f"{schema}.{table_name}")

    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._there(connection, table_name, schema, kw)
        return {"name": None, "constrained_columns": []}

    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._there(connection, table_name, schema, kw)
        return []

    def get_indexes(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._there(connection, table_name, schema, kw)
        return []

    def get_unique_constraints(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._there(connection, table_name, schema, kw)
        return []

    @reflection.cache
    def get_view_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        found = connection.execute(
            text(
                "SELECT table_name FROM information_schema.views WHERE table_schema = :schema "
                "ORDER BY table_name"
            ),
            {"schema": schema or MAIN},
        )
        return list(found.scalars())

    @reflection.cache
    def get_view_definition(
        self, connection: Any, view_name: str, schema: str | None = None, **kw: Any
    ) -> str:
        found = connection.execute(
            text(
                "SELECT view_definition FROM information_schema.views "
                "WHERE table_schema = :schema AND table_name = :name"
            ),
            _place(view_name, schema),
        ).scalar()
        if found is None:
            raise exc.NoSuchTableError(view_name if schema is None else f"{schema}.{view_name}")
        return str(found)

    def get_temp_table_names(
        self, connection: Any, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return []

    def get_temp_view_names(
        self, connection: Any, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return []


def _place(table_name: str, schema: str | None) -> dict[str, str]:
    """Return a table's schema and name in ``information_schema``, where directories are schemas."""
    if schema is None or schema == MAIN:
        directory, _, name = table_name.rpartition("/")
        return {"schema": directory or MAIN, "name": name}
    return {"schema": schema, "name": table_name}
