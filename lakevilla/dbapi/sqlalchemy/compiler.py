"""Compile statements of SQLAlchemy to LakeVilla's SQL."""

from __future__ import annotations

import re
import warnings
from typing import Any

from sqlalchemy import exc
from sqlalchemy.sql import compiler, sqltypes

from lakevilla.errors import LakeVillaWarning

# -------------------- compiler
#
# Compile statements to LakeVilla's SQL: DuckDB's dialect for queries, its own for writes.


#: Words that DuckDB and LakeVilla reserve, but SQLAlchemy's list lacks.
_RESERVED = frozenset(
    {"anti", "asof", "at", "by", "collation", "columns", "concurrently", "describe", "fetch"}
    | {"generated", "glob", "lambda", "lateral", "map", "pivot", "pivot_longer", "pivot_wider"}
    | {"positional", "qualify", "returning", "semi", "set", "show", "struct", "summarize"}
    | {"tablesample", "try_cast", "unpack", "unpivot", "values", "variadic", "window", "with"}
)


#: The schema of tables whose names have no directory; statements leave it out.
MAIN = "main"


def _schema(table: Any) -> Any:
    return None if table.schema == MAIN else table.schema


class LakeVillaIdentifierPreparer(compiler.IdentifierPreparer):
    """A quoter of names with ``"``; the schema ``main`` is left out."""

    reserved_words = compiler.RESERVED_WORDS | _RESERVED

    schema_for_object = staticmethod(_schema)


class LakeVillaCompiler(compiler.SQLCompiler):
    """The compiler of SELECT, INSERT, UPDATE and DELETE."""

    def visit_column(self, column: Any, *args: Any, **kw: Any) -> str:
        text: str = super().visit_column(column, *args, **kw)
        table = column.table
        schema = None if table is None else self.preparer.schema_for_object(table)
        # In UPDATE and DELETE, columns are qualified by the last part of the table's name.
        if schema and (self.isupdate or self.isdelete):
            text = text.removeprefix(f"{self.preparer.quote_schema(schema)}.")
        return text

    def bindparam_string(self, name: str, *args: Any, **kw: Any) -> str:
        plain = _plain_name(name)
        if plain != name and not kw.get("escaped_from"):
            kw["escaped_from"], name = name, plain
        return super().bindparam_string(name, *args, **kw)

    def limit_clause(self, select: Any, **kw: Any) -> str:
        text = ""
        if select._limit_clause is not None:
            text += "\n LIMIT " + self.process(select._limit_clause, **kw)
        if select._offset_clause is not None:
            text += "\n OFFSET " + self.process(select._offset_clause, **kw)
        return text

    def fetch_clause(self, select: Any, *args: Any, **kw: Any) -> str:
        options = select._fetch_clause_options or {}
        if options.get("with_ties") or options.get("percent"):
            raise exc.CompileError("LakeVilla has no FETCH ... WITH TIES or PERCENT: use rank()")
        found: str = super().fetch_clause(select, *args, **kw)  # type: ignore[no-untyped-call]
        return found

    def for_update_clause(self, select: Any, **kw: Any) -> str:
        """Return no FOR UPDATE clause: the reads of a serializable transaction are validated
        anyway.
        """
        return ""

    def visit_empty_set_expr(self, element_types: Any, **kw: Any) -> str:
        nulls = ", ".join("NULL" for _ in element_types or [None])
        return f"SELECT {nulls} WHERE 1 != 1"

    def visit_bitwise_xor_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"xor({self.process(binary.left, **kw)}, {self.process(binary.right, **kw)})"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp("regexp_matches", binary, kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT {self._regexp('regexp_matches', binary, kw)}"

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return self._regexp("regexp_replace", binary, kw)

    def _regexp(self, function: str, binary: Any, kw: dict[str, Any]) -> str:
        parts = [self.process(binary.left, **kw), self.process(binary.right, **kw)]
        if (flags := binary.modifiers["flags"]) is not None:
            parts.append(self.render_literal_value(flags, sqltypes.STRINGTYPE))
        return f"{function}({', '.join(parts)})"


def _plain_name(name: str) -> str:
    """Return a parameter's name as ``:name`` allows it: a letter or ``_``, then word characters."""
    plain = "".join(one if one.isalnum() or one == "_" else f"_{ord(one):x}_" for one in name)
    return (
        plain if plain[:1] == "_" or (plain[:1].isalpha() and plain[:1].isascii()) else f"p_{plain}"
    )


class LakeVillaTypeCompiler(compiler.GenericTypeCompiler):
    """The compiler of column types; lengths are left out, because tables don't store them."""

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return "FLOAT" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_REAL(self, type_: Any, **kw: Any) -> str:
        return "FLOAT"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            return f"DECIMAL(38, {10 if type_.scale is None else type_.scale})"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:
        return self.visit_NUMERIC(type_, **kw)

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        """Return the timestamp type without a zone, for Python's datetimes without a zone.

        LakeVilla's type ``timestamp`` is a point in time.
        """
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP WITHOUT TIME ZONE"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        return self.visit_TIMESTAMP(type_, **kw)

    def visit_VARCHAR(self, type_: Any, **kw: Any) -> str:
        if getattr(type_, "collation", None):
            raise exc.CompileError("LakeVilla compares text byte by byte: leave collation out")
        return "VARCHAR"

    def visit_CHAR(self, type_: Any, **kw: Any) -> str:
        return self.visit_VARCHAR(type_, **kw)

    def visit_NCHAR(self, type_: Any, **kw: Any) -> str:
        return self.visit_VARCHAR(type_, **kw)

    def visit_NVARCHAR(self, type_: Any, **kw: Any) -> str:
        return self.visit_VARCHAR(type_, **kw)

    def visit_TEXT(self, type_: Any, **kw: Any) -> str:
        return self.visit_VARCHAR(type_, **kw)

    def visit_CLOB(self, type_: Any, **kw: Any) -> str:
        return self.visit_VARCHAR(type_, **kw)

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_UUID(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_JSON(self, type_: Any, **kw: Any) -> str:
        return "VARCHAR"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:
        return self.process(type_.item_type) + "[]" * (type_.dimensions or 1)


# -------------------- ddl
#
# Compile CREATE TABLE without the constraints that a lake does not check.


#: The statement in place of CREATE INDEX, which does nothing.
_NOTHING = "SELECT 1 AS no_index"
_CREATE = re.compile(r"CREATE TABLE ")


class LakeVillaDDLCompiler(compiler.DDLCompiler):
    """The compiler of CREATE TABLE, DROP TABLE and comments.

    ``Table(..., lakevilla_format="iceberg", lakevilla_partition_by=["day"],
    lakevilla_properties={...})`` set the further options of a table of a lake. With the dialect's
    ``create_or_replace`` each CREATE TABLE is CREATE OR REPLACE TABLE, as with
    ``Table(..., prefixes=["OR REPLACE"])``.
    """

    def visit_create_table(self, create: Any, **kw: Any) -> str:
        text: str = super().visit_create_table(create, **kw)  # type: ignore[no-untyped-call]
        if not self.dialect.create_or_replace or create.if_not_exists:  # type: ignore[attr-defined]
            return text
        return _CREATE.sub("CREATE OR REPLACE TABLE ", text, count=1)

    def get_column_specification(self, column: Any, **kwargs: Any) -> str:
        if column.computed is not None:
            raise exc.CompileError(
                f"column {column.name}: LakeVilla computes no columns: compute it in each INSERT"
            )
        if column.identity is not None:
            raise exc.CompileError(
                f"column {column.name}: a lake has no autoincrement: give the value in each INSERT"
            )
        text = super().get_column_specification(column, **kwargs)
        if column.comment is not None:
            text += f" COMMENT {self._text(column.comment)}"
        return text

    def post_create_table(self, table: Any) -> str:
        options = table.dialect_options["lakevilla"]
        text = ""
        if options["format"] is not None:
            text += f" USING {options['format']}"
        if options["partition_by"]:
            columns = options["partition_by"]
            columns = [columns] if isinstance(columns, str) else columns
            text += f" PARTITIONED BY ({', '.join(map(self._partition, columns))})"
        properties = dict(options["properties"] or {})
        if table.comment is not None:
            properties["comment"] = table.comment  # the property that COMMENT ON TABLE sets
        if properties:
            pairs = properties.items()
            listed = ", ".join(f"{self._text(k)} = {self._text(str(v))}" for k, v in pairs)
            text += f" TBLPROPERTIES ({listed})"
        return text

    def _partition(self, column: str) -> str:
        return column if "(" in column else self.preparer.quote(column)

    def _text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    # -- unchecked constraints ---------------------------------------------------

    def visit_primary_key_constraint(self, constraint: Any, **kw: Any) -> str:
        return None  # type: ignore[return-value]  # left out: each mapped class has one

    def visit_foreign_key_constraint(self, constraint: Any, **kw: Any) -> str:
        return self._left_out("FOREIGN KEY", constraint)

    def visit_unique_constraint(self, constraint: Any, **kw: Any) -> str:
        return self._left_out("UNIQUE", constraint)

    def visit_create_index(self, create: Any, **kw: Any) -> str:  # type: ignore[override]
        index = create.element
        if index.unique:
            self._left_out("UNIQUE INDEX", index)
        return _NOTHING  # a lake has no indexes: files are selected by their statistics

    def visit_drop_index(self, drop: Any, **kw: Any) -> str:
        return _NOTHING

    def _left_out(self, what: str, constraint: Any) -> str:
        columns = ", ".join(column.name for column in constraint.columns)
        warnings.warn(
            f"table {constraint.table.name}: {what} ({columns}) is left out, since a lake does not "
            "check it",
            LakeVillaWarning,
            stacklevel=2,
        )
        return None  # type: ignore[return-value]

    # -- missing features --------------------------------------------------------

    def visit_create_sequence(self, create: Any, prefix: Any = None, **kw: Any) -> str:
        raise exc.CompileError("a lake has no autoincrement: give the value in each INSERT")

    def visit_drop_sequence(self, drop: Any, **kw: Any) -> str:
        raise exc.CompileError("a lake has no sequences")
