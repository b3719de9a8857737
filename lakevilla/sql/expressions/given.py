"""What callers give for a predicate: text, or an expression object of another library."""

from __future__ import annotations

from typing import Protocol, TypeAlias


class ColumnLike(Protocol):
    """An expression over columns: a ``Column`` of Spark, on a lake with ``spark=``."""

    def isNull(self) -> object: ...

    def isNotNull(self) -> object: ...


Predicate: TypeAlias = str | ColumnLike
