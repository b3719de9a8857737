"""Types of columns as SQLAlchemy's, and what of their values is not as it expects."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlalchemy import types
from sqlalchemy.types import TypeEngine

from lakevilla.dbapi.types import type_code
from lakevilla.sql.expressions.types import arrow_type


class LakeVillaNumeric(types.Numeric[Any]):
    """Decimals; where DuckDB has computed a double, as it does in a division, what that prints."""

    def result_processor(self, dialect: Any, coltype: Any) -> Callable[[Any], Any]:
        if not self.asdecimal:
            return lambda value: None if value is None else float(value)
        return lambda value: Decimal(repr(value)) if type(value) is float else value


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
    """The type that a table's schema calls so, as DESCRIBE has it: ``long``, ``array<string>``."""
    return type_of(type_code(arrow_type(name)))


def type_of(name: str) -> TypeEngine[Any]:
    """The type of a code as in ``Cursor.description``; ``NullType`` for structs and maps."""
    if name == "TIMESTAMP WITH TIME ZONE":
        return types.TIMESTAMP(timezone=True)
    if name.endswith("[]"):
        return _array(name)
    if (digits := _DECIMAL.fullmatch(name)) is not None:
        return types.NUMERIC(int(digits[1]), int(digits[2]))
    known = _PLAIN.get(name)
    return types.NullType() if known is None else known()


def _array(name: str) -> TypeEngine[Any]:
    element = name.rstrip("[]")
    found = type_of(element)
    if isinstance(found, types.NullType):
        return found
    return types.ARRAY(found, dimensions=(len(name) - len(element)) // 2)
