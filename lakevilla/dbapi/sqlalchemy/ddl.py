"""Tables of SQLAlchemy as CREATE TABLE: what a lake does not check is not said to be checked."""

from __future__ import annotations

import re
import warnings
from typing import Any

from sqlalchemy import exc
from sqlalchemy.sql import compiler

from lakevilla.errors import LakeVillaWarning

#: Instead of an index: a statement that does nothing.
_NOTHING = "SELECT 1 AS no_index"
_CREATE = re.compile(r"CREATE TABLE ")


class LakeVillaDDLCompiler(compiler.DDLCompiler):
    """CREATE TABLE, DROP TABLE and comments.

    ``Table(..., lakevilla_format="iceberg", lakevilla_partition_by=["day"],
    lakevilla_properties={...})`` say what else a table of a lake has. With the dialect's
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
                f"column {column.name}: nothing counts up in a lake: give the value in each INSERT"
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
            properties["comment"] = table.comment  # as COMMENT ON TABLE has it
        if properties:
            pairs = properties.items()
            listed = ", ".join(f"{self._text(k)} = {self._text(str(v))}" for k, v in pairs)
            text += f" TBLPROPERTIES ({listed})"
        return text

    def _partition(self, column: str) -> str:
        return column if "(" in column else self.preparer.quote(column)

    def _text(self, value: str) -> str:
        return "'" + value.replace("'", "''") + "'"

    # -- what nothing checks -----------------------------------------------------

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
        return _NOTHING  # files are found by their statistics

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

    # -- what is not there -------------------------------------------------------

    def visit_create_schema(self, create: Any, **kw: Any) -> str:
        raise exc.CompileError(
            "a schema is the directory in a table's name: it is there with its first table"
        )

    def visit_drop_schema(self, drop: Any, **kw: Any) -> str:
        raise exc.CompileError("a schema is the directory in a table's name: drop its tables")

    def visit_create_view(self, element: Any, **kw: Any) -> str:
        raise exc.CompileError("a lake keeps tables alone: use a subquery, or create_table_as")

    def visit_create_sequence(self, create: Any, prefix: Any = None, **kw: Any) -> str:
        raise exc.CompileError("nothing counts up in a lake: give the value in each INSERT")

    def visit_drop_sequence(self, drop: Any, **kw: Any) -> str:
        raise exc.CompileError("a lake has no sequences")
