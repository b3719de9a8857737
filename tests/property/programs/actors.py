"""Perform verbs: by a transaction of LakeVilla, and by clients without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from pyiceberg import expressions as iceberg
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.expressions import Not as IcebergNot

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.property.programs.conditions import Every, Joined, Not, Test, Texts, Where
from tests.property.programs.steps import (
    AddColumn,
    Append,
    Create,
    Delete,
    Drop,
    DropColumn,
    Merge,
    Optimize,
    Overwrite,
    RenameColumn,
    Retype,
    Rows,
    Update,
    Upsert,
    Verb,
    schema_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Turns rows into what a verb takes.
Given = Callable[[pa.Table], Any]


def perform(txn: lv.Transaction, verb: Verb, given: Given = lambda rows: rows) -> None:
    """Perform a verb in a transaction of LakeVilla."""
    texts = Texts("language")
    match verb:
        case Create(name, cols, format, partition, properties, or_replace):
            options = {} if or_replace else {"format": format}
            txn.create_table(
                name,
                schema_of(cols),
                partition_by=partition,
                properties=dict(properties),
                or_replace=or_replace,
                **options,
            )
        case Append(name, rows, merges):
            txn.append(name, given(rows.arrow()), schema_mode="merge" if merges else None)
        case Update(name, sets, where):
            assigned = {one.column: texts.assigned(one) for one in sets}
            txn.update(name, assigned, texts.where(where), params=texts.params)
        case Delete(name, where):
            txn.delete(name, texts.where(where), params=texts.params)
        case Upsert(name, rows, key):
            txn.upsert(name, given(rows.arrow()), key)
        case Merge():
            _merge(txn, verb, given)
        case Overwrite(name, rows, None):
            txn.overwrite(name, given(rows.arrow()))
        case Overwrite(name, rows, "dynamic"):
            txn.overwrite(name, given(rows.arrow()), partitions="dynamic")
        case Overwrite(name, rows, where):
            assert where is not None
            assert not isinstance(where, str)
            text = texts.where(where)
            txn.overwrite(name, given(rows.arrow()), text, params=texts.params)
        case AddColumn(name, col):
            txn.alter(name, add_columns=schema_of((col,)))
        case DropColumn(name, column):
            txn.alter(name, drop_columns=[column])
        case RenameColumn(name, column, new):
            txn.alter(name, rename_columns={column: new})
        case Retype(name, column, type_):
            txn.alter(name, change_types={column: type_})
        case Drop(name):
            txn.drop_table(name)


def _merge(txn: lv.Transaction, merge: Merge, given: Given) -> None:
    texts = Texts("language", "t.")
    key = texts.name(merge.key)
    source = Texts("language", "s.")
    deletes = None if merge.deletes is None else texts.where(merge.deletes)
    others = None if merge.deletes_others is None else texts.where(merge.deletes_others)
    builder = txn.merge(
        merge.table,
        given(merge.rows.arrow()),
        f"{key} = {source.name(merge.key)}",
        source_alias="s",
        target_alias="t",
        params=texts.params,
    )
    if deletes is not None:
        builder = builder.when_matched_delete(deletes)
    if merge.updates:
        builder = builder.when_matched_update({c: source.name(c) for c in merge.updates})
    if merge.inserts:
        builder = builder.when_not_matched_insert(
            {col.name: source.name(col.name) for col in merge.rows.cols}
        )
    if others is not None:
        builder = builder.when_not_matched_by_source_delete(others)
    builder.execute()


# -- other clients ------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The directory of a lake, and the clients without LakeVilla that reach its tables."""

    root: Path
    spark: SparkSession | None = None

    def delta(self, table: str) -> DeltaTable:
        return DeltaTable(str(self.root / table))

    def iceberg(self, table: str) -> Any:
        catalog = ObjectStoreCatalog("programs", warehouse=str(self.root))
        return catalog.load_table((table,))

    def by_deltalake(self, verb: Verb) -> None:
        texts = Texts("deltalake")
        table = str(self.root / verb.table)
        match verb:
            case Append(_, rows):
                write_deltalake(table, rows.arrow(), mode="append")
            case Overwrite(_, rows, None):
                write_deltalake(table, rows.arrow(), mode="overwrite")
            case Delete(_, where):
                self.delta(verb.table).delete(texts.where(where))
            case Update(_, sets, where):
                updates = {one.column: texts.assigned(one) for one in sets}
                self.delta(verb.table).update(updates=updates, predicate=texts.where(where))
            case Upsert(_, rows, key):
                merger = self.delta(verb.table).merge(
                    rows.arrow(), f't."{key}" = s."{key}"', source_alias="s", target_alias="t"
                )
                if len(rows.cols) > 1:
                    merger = merger.when_matched_update(
                        {c.name: f's."{c.name}"' for c in rows.cols if c.name != key}
                    )
                merger.when_not_matched_insert(
                    {c.name: f's."{c.name}"' for c in rows.cols}
                ).execute()
            case AddColumn(_, col):
                added = Schema.from_arrow(schema_of((col,))).fields
                self.delta(verb.table).alter.add_columns(added)
            case _:
                raise AssertionError(f"deltalake has no verb for {verb}")

    def by_pyiceberg(self, verb: Verb) -> None:
        table = self.iceberg(verb.table)
        match verb:
            case Append(_, rows):
                table.append(rows.arrow())
            case Overwrite(_, rows, None):
                table.overwrite(rows.arrow())
            case Overwrite(_, rows, "dynamic"):
                table.dynamic_partition_overwrite(rows.arrow())
            case Delete(_, where):
                table.delete(iceberg_where(where))
            case Upsert(_, rows, key):
                table.upsert(rows.arrow(), join_cols=[key])
            case AddColumn(_, col):
                with table.update_schema() as change:
                    change.union_by_name(schema_of((col,)))
            case DropColumn(_, column):
                with table.update_schema() as change:
                    change.delete_column(column)
            case RenameColumn(_, column, new):
                with table.update_schema() as change:
                    change.rename_column(column, new)
            case _:
                raise AssertionError(f"pyiceberg has no verb for {verb}")

    # -- Spark, which reads and writes both formats by SQL ------------------------------------

    def spark_name(self, table: str, format: str) -> str:
        if format == "delta":
            return f"delta.`{self.root / table}`"
        return f"ice.`{self.root.name}`.`{table}`"

    def by_spark(self, verb: Verb, format: str) -> None:
        assert self.spark is not None
        spark, name, texts = self.spark, self.spark_name(verb.table, format), Texts("spark")
        match verb:
            case Append(_, rows):
                view = self._view(rows)
                columns = ", ".join(texts.name(col.name) for col in rows.cols)
                spark.sql(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {view}")
            case Delete(_, where):
                spark.sql(f"DELETE FROM {name} WHERE {texts.where(where)}")
            case Update(_, sets, where):
                assigned = ", ".join(f"{texts.name(s.column)} = {texts.assigned(s)}" for s in sets)
                spark.sql(f"UPDATE {name} SET {assigned} WHERE {texts.where(where)}")
            case Upsert(_, rows, key):
                view, own, new = self._view(rows), Texts("spark", "t."), Texts("spark", "s.")
                sets = ", ".join(
                    f"{own.name(c.name)} = {new.name(c.name)}" for c in rows.cols if c.name != key
                )
                columns = ", ".join(texts.name(c.name) for c in rows.cols)
                values = ", ".join(new.name(c.name) for c in rows.cols)
                matched = f"WHEN MATCHED THEN UPDATE SET {sets} " if sets else ""
                spark.sql(
                    f"MERGE INTO {name} t USING {view} s ON {own.name(key)} = {new.name(key)} "
                    f"{matched}WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
                )
            case AddColumn(_, col):
                kind = spark_type(col.type)
                spark.sql(f"ALTER TABLE {name} ADD COLUMN {texts.name(col.name)} {kind}")
            case DropColumn(_, column):
                spark.sql(f"ALTER TABLE {name} DROP COLUMN {texts.name(column)}")
            case RenameColumn(_, column, new):
                spark.sql(
                    f"ALTER TABLE {name} RENAME COLUMN {texts.name(column)} TO {texts.name(new)}"
                )
            case Retype(_, column, type_):
                spark.sql(
                    f"ALTER TABLE {name} ALTER COLUMN {texts.name(column)} TYPE {spark_type(type_)}"
                )
            case _:
                raise AssertionError(f"Spark has no verb for {verb}")

    def _view(self, rows: Rows) -> str:
        assert self.spark is not None
        frame(self.spark, rows.arrow()).createOrReplaceTempView("given_rows")
        return "given_rows"


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows as a DataFrame, in which a timestamp without a zone stays one."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def spark_type(type_: str) -> str:
    names = {
        "long": "BIGINT",
        "short": "SMALLINT",
        "byte": "TINYINT",
        "integer": "INT",
        "list": "ARRAY<BIGINT>",
        "struct": "STRUCT<a: BIGINT, b: STRING>",
        "map": "MAP<STRING, BIGINT>",
        "deep": "ARRAY<STRUCT<x: DOUBLE, y: ARRAY<STRING>>>",
    }
    return names.get(type_, type_.upper())


_COMPARED: Mapping[str, Any] = {
    "=": iceberg.EqualTo,
    "<>": iceberg.NotEqualTo,
    "<": iceberg.LessThan,
    ">=": iceberg.GreaterThanOrEqual,
    "in": iceberg.In,
}


def iceberg_where(where: Where) -> BooleanExpression:
    """Return a condition as pyiceberg's; only on columns that it compares as SQL does."""
    match where:
        case Every():
            return AlwaysTrue()
        case Joined("and", left, right):
            return And(iceberg_where(left), iceberg_where(right))
        case Joined("or", left, right):
            return Or(iceberg_where(left), iceberg_where(right))
        case Not(inner):
            return IcebergNot(iceberg_where(inner))
        case Test(column, _, "is null"):
            return iceberg.IsNull(column)
        case Test(column, _, "in", values):
            return iceberg.In(column, values)
        case Test(column, _, how, (value,)):
            return _COMPARED[how](column, value)
    raise AssertionError(where)


def optimized(place: Place, step: Optimize) -> None:
    """Let deltalake rewrite a table's files."""
    optimizer = place.delta(step.table).optimize
    if step.z_order:
        optimizer.z_order(list(step.z_order))
    else:
        optimizer.compact()
