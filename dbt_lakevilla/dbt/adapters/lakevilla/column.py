"""Columns, with DuckDB's names of types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dbt.adapters.base import Column


@dataclass
class LakeVillaColumn(Column):
    """A column; text has any length, so no type has to be made wider."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {"STRING": "VARCHAR", "TEXT": "VARCHAR"}

    @property
    def data_type(self) -> str:
        return self.dtype

    @classmethod
    def string_type(cls, size: int) -> str:
        return "VARCHAR"

    @classmethod
    def numeric_type(cls, dtype: str, precision: object, scale: object) -> str:
        return dtype if precision is None else f"{dtype}({precision},{scale or 0})"

    def can_expand_to(self, other_column: Column) -> bool:
        return False

    def is_integer(self) -> bool:
        return self.dtype.upper() in {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "INT", "HUGEINT"}

    def is_numeric(self) -> bool:
        return self.dtype.upper().startswith(("DECIMAL", "NUMERIC"))

    def is_float(self) -> bool:
        return self.dtype.upper() in {"FLOAT", "DOUBLE", "REAL"}
