"""Delta's own ``DeltaTable``, of its connector's jar, by the calls of ``delta.tables``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


class DeltaTable:
    """A table that Delta changes: conditions and values are Columns or text of Spark SQL."""

    def __init__(self, spark: SparkSession, path: str, alias: str) -> None:
        self._spark = spark
        tables = spark._jvm.io.delta.tables.DeltaTable
        self._table = tables.forPath(spark._jsparkSession, path).alias(alias)

    def update(self, condition: Any = None, set: Mapping[str, Any] | None = None) -> None:
        self._table.update(*_given(condition), self._values(set))

    def delete(self, condition: Any = None) -> None:
        self._table.delete(*_given(condition))

    def merge(self, source: Any, condition: Any) -> Merge:
        return Merge(self, self._table.merge(source._jdf, _column(condition)))

    def _values(self, given: Mapping[str, Any] | None) -> Any:
        values = self._spark._jvm.java.util.HashMap()
        for name, value in (given or {}).items():
            values.put(name, _column(value))
        return values


class Merge:
    """Delta's builder of a merge."""

    def __init__(self, table: DeltaTable, builder: Any) -> None:
        self._table, self._builder = table, builder

    def whenMatchedUpdate(self, condition: Any = None, set: Any = None) -> Merge:
        return self._with(self._when("Matched", condition).update(self._table._values(set)))

    def whenMatchedUpdateAll(self, condition: Any = None) -> Merge:
        return self._with(self._when("Matched", condition).updateAll())

    def whenMatchedDelete(self, condition: Any = None) -> Merge:
        return self._with(self._when("Matched", condition).delete())

    def whenNotMatchedInsert(self, condition: Any = None, values: Any = None) -> Merge:
        return self._with(self._when("NotMatched", condition).insert(self._table._values(values)))

    def whenNotMatchedInsertAll(self, condition: Any = None) -> Merge:
        return self._with(self._when("NotMatched", condition).insertAll())

    def whenNotMatchedBySourceUpdate(self, condition: Any = None, set: Any = None) -> Merge:
        clause = self._when("NotMatchedBySource", condition)
        return self._with(clause.update(self._table._values(set)))

    def whenNotMatchedBySourceDelete(self, condition: Any = None) -> Merge:
        return self._with(self._when("NotMatchedBySource", condition).delete())

    def withSchemaEvolution(self) -> Merge:
        return self._with(self._builder.withSchemaEvolution())

    def execute(self) -> None:
        self._builder.execute()

    def _when(self, kind: str, condition: Any) -> Any:
        return getattr(self._builder, f"when{kind}")(*_given(condition))

    def _with(self, builder: Any) -> Merge:
        return Merge(self._table, builder)


def _given(condition: Any) -> list[Any]:
    return [] if condition is None else [_column(condition)]


def _column(given: Any) -> Any:
    return (F.expr(given) if isinstance(given, str) else given)._jc
