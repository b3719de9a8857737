"""The calls of Delta's fluent class on tables of a lake: ``SparkTable``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeAlias

import pyarrow as pa

from lakevilla.api.arguments import Hinted, check_number, check_text
from lakevilla.api.border import at_border, with_border
from lakevilla.api.connecting import connect
from lakevilla.api.lake import Lake
from lakevilla.api.spark.executor import SparkExecutor
from lakevilla.api.spark.merging import SparkMergeBuilder, described_in, refuse_mapping
from lakevilla.api.spark.source.classes import lakes_of
from lakevilla.api.table import Table
from lakevilla.api.times import instant
from lakevilla.api.transaction import Transaction
from lakevilla.engines.spark.session import is_session
from lakevilla.errors import InvalidOperation
from lakevilla.results import MergeResult, OperationResult, OptimizeResult, TableHistoryEntry
from lakevilla.settings import shown
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning
from lakevilla.store.location import root_location
from lakevilla.transaction.verbs.read_write import see_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["SparkOptimizeBuilder", "SparkTable"]

#: Where verbs are performed: in transactions of their own, or in one.
Where: TypeAlias = "Lake[DataFrame] | Transaction[DataFrame]"

_CREATES = "the lake creates tables: lake.create_table(name, data_or_schema)"
_CLONES = "the lake does that: lake.clone(source, to), with copy=True for files of its own"
_FEATURES = "the lake does that by properties: txn.alter(name, set_properties={...})"
_ELSEWHERE = {
    "addFeatureSupport": _FEATURES,
    "clone": _CLONES,
    "cloneAtTimestamp": _CLONES,
    "cloneAtVersion": _CLONES,
    "columnBuilder": _CREATES,
    "convertToDelta": "LakeVilla converts no Parquet files: append their rows to a table",
    "create": _CREATES,
    "createIfNotExists": _CREATES,
    "createOrReplace": f"{_CREATES[:-1]}, or_replace=True)",
    "dropFeatureSupport": "LakeVilla takes no feature from a table: use Delta's connector",
    "generate": "LakeVilla writes no symlink manifests",
    "isDeltaTable": "lake.table(name).format says it, and lake.tables() lists the tables",
    "replace": f"{_CREATES[:-1]}, or_replace=True)",
    "upgradeTableProtocol": _FEATURES,
}


class _HintedClass(type):
    """A class whose error for a missing class method names what there is instead."""

    if not TYPE_CHECKING:  # otherwise a type checker would accept every name as an attribute

        def __getattr__(cls, name: str) -> Never:
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            hint = _ELSEWHERE.get(name)
            raise AttributeError(f"{message}: {hint}" if hint else message, name=name, obj=cls)


@with_border
class SparkTable(Hinted, metaclass=_HintedClass):
    """A table with the calls of ``delta.tables.DeltaTable``, which a lake performs.

    ``forName`` and ``forPath`` return one. Of a lake each call is a transaction of its own, and
    runs again after a conflict. Of a transaction all calls take effect together, when it commits.

    Conditions and assignments are text in LakeVilla's language (docs/expressions.md), or Spark
    Columns. In both, columns of the table may be qualified by its alias, which is the last part of
    its name if ``alias`` has not set another.

    Examples
    --------
    >>> stock = lv.SparkTable.forName(lake, "stock").alias("t")
    >>> counted = spark.createDataFrame([("tea", 4), ("jam", 1)], "sku string, qty long")
    >>> merge = stock.merge(counted.alias("s"), "t.sku = s.sku")
    >>> merge = merge.whenMatchedUpdate(set={"qty": "t.qty + s.qty"}).whenNotMatchedInsertAll()
    >>> merge.execute().rows_inserted
    1
    >>> sorted(tuple(row) for row in stock.toDF().collect())
    [('jam', 1), ('tea', 9)]
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {
        **_ELSEWHERE,
        "append": "a transaction does that: txn.append(name, frame)",
        "upsert": "a transaction does that: txn.upsert(name, frame, keys)",
    }

    def __init__(self, where: Where, name: str, alias: str | None = None) -> None:
        if not isinstance(where, Lake | Transaction):
            raise InvalidOperation("a SparkTable is made by SparkTable.forName(lake, name)")
        self._where = where
        self._name = name
        self._alias = alias

    def __repr__(self) -> str:
        alias = "" if self._alias is None else f" as {self._alias}"
        return f"<lakevilla.SparkTable {self._name}{alias} of {self._where!r}>"

    # -- making ------------------------------------------------------------------

    @classmethod
    @at_border
    def forName(cls, lake: Where | SparkSession, tableOrViewName: str) -> SparkTable:
        """Return a table by its name; the first verb looks whether it exists.

        Parameters
        ----------
        lake : Lake, Transaction or SparkSession
            A lake that was connected with ``spark=``, a transaction of one, or the session itself
            if it is connected to exactly one lake.
        tableOrViewName : str
            Its path below the root, a registered name, or its name in a catalog.

        Raises
        ------
        InvalidOperation
            The lake has no Spark session, or the session is connected to no lake, or to several.

        Examples
        --------
        >>> with lake.transaction() as txn:
        ...     stock = lv.SparkTable.forName(txn, "stock")
        ...     _ = stock.update("sku = 'tea'", {"qty": "qty - 1"})
        ...     _ = stock.delete("qty = 0")
        """
        return cls(_where(lake, "forName"), check_text("tableOrViewName", tableOrViewName))

    @classmethod
    @at_border
    def forPath(cls, lake: Where | SparkSession, path: str | os.PathLike[str]) -> SparkTable:
        """Return a table by the path or URI of its directory.

        Parameters
        ----------
        lake : Lake, Transaction or SparkSession
            As for ``forName``; of a session's lakes, the one whose root the path is below.
        path : str or os.PathLike
            A path below the root, or an absolute path or URI.

        Raises
        ------
        InvalidOperation
            As for ``forName``.

        Examples
        --------
        >>> lv.SparkTable.forPath(lake, lake.root + "/stock").toDF().count()
        1
        """
        path = check_text("path", os.fspath(path) if isinstance(path, os.PathLike) else path)
        return cls(_where(lake, "forPath", path), path)

    def alias(self, aliasName: str) -> SparkTable:
        """Return the same table under another alias.

        Parameters
        ----------
        aliasName : str
            Qualifies the table's columns in conditions and assignments.

        Raises
        ------
        InvalidOperation
        """
        return SparkTable(self._where, self._name, check_text("aliasName", aliasName))

    # -- rows --------------------------------------------------------------------

    def toDF(self) -> DataFrame:
        """Return the table's present rows; in a transaction this is a read of it."""
        frame: DataFrame = self._where.read(self._name)
        return frame if self._alias is None else frame.alias(self._alias)

    def update(
        self,
        condition: str | Column | None = None,
        set: Mapping[str, object] | None = None,
    ) -> OperationResult:
        """Set columns of the rows for which the condition is true; of all rows without one.

        Parameters
        ----------
        condition : str or Column, optional
            A predicate.
        set : Mapping
            For each column, or field of a struct, an expression as text or Column. Other values are
            literals.

        Raises
        ------
        InvalidOperation, TableNotFound, ConflictError
        """
        refuse_mapping("update", condition, set, "set")
        where = "true" if condition is None else condition
        return self._perform(
            lambda txn: _done(
                txn._executor.update(self._name, set or {}, where, None, self._called, None)
            )
        )

    def delete(self, condition: str | Column | None = None) -> OperationResult:
        """Delete the rows for which the condition is true; all rows without one.

        Parameters
        ----------
        condition : str or Column, optional
            A predicate.

        Raises
        ------
        InvalidOperation, TableNotFound, ConflictError
        """
        where = "true" if condition is None else condition
        return self._perform(
            lambda txn: _done(txn._executor.delete(self._name, where, None, self._called, None))
        )

    def merge(self, source: DataFrame, condition: str | Column) -> SparkMergeBuilder:
        """Describe a merge; ``execute()`` of the returned builder performs it.

        Parameters
        ----------
        source : DataFrame
            The rows to merge. Their columns are qualified by the frame's own alias,
            ``frame.alias("s")``, and by ``source`` if it has none.
        condition : str or Column
            A predicate over columns of the table and of the source.

        Returns
        -------
        SparkMergeBuilder
            In a transaction it must be executed before the commit.

        Raises
        ------
        InvalidOperation
        """
        if condition is None:
            raise InvalidOperation(
                f"a merge into {self._name} needs a condition over columns of both sides, such as "
                f'"{self._called}.id = s.id"'
            )
        txn = self._where if isinstance(self._where, Transaction) else None
        described = described_in(txn, self._name)
        return SparkMergeBuilder(
            self._perform, self._name, self._called, source, condition, described
        )

    def _perform(
        self, verb: Callable[[Transaction[DataFrame]], OperationResult]
    ) -> OperationResult:
        if isinstance(self._where, Transaction):
            return verb(self._where)
        return self._where.run(verb)

    @property
    def _called(self) -> str:
        """The alias, or what Spark would call the table without one."""
        return self._alias or re.split(r"[/.]", self._name.rstrip("/"))[-1]

    # -- the log, and upkeep -----------------------------------------------------

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the entries of the table's log, newest first.

        The columns are version, timestamp, operation, operationParameters, operationMetrics,
        metadata and txnIds, the transactions of LakeVilla in the entry.

        Parameters
        ----------
        limit : int, optional
            The maximum number of entries.

        Raises
        ------
        InvalidOperation, TableNotFound
        """
        return self._framed(_history(self._of_lake("history").history(limit)))

    def detail(self) -> DataFrame:
        """Return one row that describes the table: its format, id, name, location,
        partitionColumns, numFiles, sizeInBytes and properties.

        Raises
        ------
        InvalidOperation, TableNotFound
        """
        table = self._of_lake("detail")
        executor = table._reading("detail")
        location = executor.resolve(table.name)
        files = executor.run(see_files(executor.state, location, None)).files
        row = {
            "format": table.format,
            "id": executor.state.work.tables[location].snapshot.table_id,
            "name": table.name,
            "location": table.uri,
            "partitionColumns": list(table.partition_by),
            "numFiles": files.num_rows,
            "sizeInBytes": sum(files["size"].to_pylist()),
            "properties": list(table.properties.items()),
        }
        return self._framed(pa.Table.from_pylist([row], schema=_DETAIL))

    def optimize(self) -> SparkOptimizeBuilder:
        """Return the builder of an upkeep of files: ``executeCompaction``, ``executeZOrderBy``.

        Raises
        ------
        InvalidOperation, TableNotFound
        """
        return SparkOptimizeBuilder(self._of_lake("optimize"))

    def vacuum(self, retentionHours: float | None = None) -> list[str]:
        """Delete files that no version within the retention needs; return their paths.

        Parameters
        ----------
        retentionHours : float, optional
            Default: the table's own retention, a week if it has none.

        Raises
        ------
        InvalidOperation, TableNotFound
            Also if the retention is below the table's own.
        """
        return self._of_lake("vacuum").vacuum(retentionHours, dry_run=False)

    def restoreToVersion(self, version: int) -> MergeResult:
        """Set the table back to a version of its own log, by a new commit.

        Parameters
        ----------
        version : int
            As ``history`` lists it.

        Raises
        ------
        InvalidOperation, VersionNotFound, ConflictError
        """
        return self._of_lake("restoreToVersion").restore(check_number("version", version))

    def restoreToTimestamp(self, timestamp: datetime | str) -> MergeResult:
        """Set the table back to its newest version that is not later, by a new commit.

        Parameters
        ----------
        timestamp : datetime or str
            With a zone: a text without one would depend on the machine.

        Raises
        ------
        InvalidOperation, VersionNotFound, ConflictError
        """
        return self._of_lake("restoreToTimestamp").restore(instant(timestamp))

    def _of_lake(self, verb: str) -> Table[DataFrame]:
        if isinstance(self._where, Transaction):
            raise InvalidOperation(
                f"{verb} of table {self._name} is no part of a transaction: call it outside, "
                f"SparkTable.forName(lake, {self._name!r}).{verb}(...)",
                table=self._name,
            )
        return self._where.table(self._name)

    def _framed(self, rows: pa.Table) -> DataFrame:
        assert isinstance(self._where, Lake)
        return self._where._client.engine.given(rows)  # type: ignore[attr-defined, no-any-return]


@with_border
@dataclass(frozen=True)
class SparkOptimizeBuilder:
    """An upkeep of a table's files that ``executeCompaction`` or ``executeZOrderBy`` performs."""

    _table: Table[DataFrame]
    _filter: str | None = None

    def where(self, partitionFilter: str) -> SparkOptimizeBuilder:
        """Leave out other partitions.

        Parameters
        ----------
        partitionFilter : str
            A predicate on partition columns.
        """
        return replace(self, _filter=partitionFilter)

    def executeCompaction(self) -> OptimizeResult:
        """Combine small files, and rewrite those with deleted rows.

        Raises
        ------
        InvalidOperation
        """
        return self._table.optimize(self._filter)

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> OptimizeResult:
        """Rewrite all files, each partition ordered along a Z curve.

        Parameters
        ----------
        *cols : str or list of str
            The columns of the curve.

        Raises
        ------
        InvalidOperation
        """
        named = cols[0] if len(cols) == 1 else cols
        if not named:
            raise InvalidOperation("executeZOrderBy needs columns: name at least one")
        return self._table.optimize(self._filter, z_order_by=named)  # type: ignore[arg-type]


# -------------------- where
#
# The lake or transaction that a caller means.


def _where(given: Any, call: str, path: str | None = None) -> Where:
    if isinstance(given, Lake | Transaction):
        executor = given._executor
        kind = executor if isinstance(executor, type) else type(executor)
        if not issubclass(kind, SparkExecutor):
            raise InvalidOperation(
                f"SparkTable.{call} needs Spark, and {given!r} has no session: connect its lake "
                "with spark=, or use the verbs of a transaction"
            )
        return given
    if not is_session(given):
        raise InvalidOperation(
            f"SparkTable.{call} takes a lake that was connected with spark=, a transaction of one, "
            f"or a SparkSession, not {shown(given)}"
        )
    return _lake_of(given, call, path)


def _lake_of(spark: SparkSession, call: str, path: str | None) -> Lake[DataFrame]:
    """Return the lake that a session is connected to; for a path, the one that it is below."""
    lakes = lakes_of(spark)
    found = list(lakes)
    if path is not None and ("://" in path or os.path.isabs(path)):
        uri = f"{root_location(path).uri.rstrip('/')}/"
        above = [root for root in lakes if uri.startswith(f"{root.rstrip('/')}/")]
        found = sorted(above, key=len)[-1:]
    if len(found) != 1:
        known = ", ".join(sorted(lakes)) or "none"
        raise InvalidOperation(
            f"SparkTable.{call}: the session does not say which lake is meant"
            f"{'' if path is None else f' by {path}'} (it is connected to: {known}): connect to "
            "one, lv.connect(root, spark=spark), and pass that lake"
        )
    access = lakes[found[0]]
    place = access.place
    return connect(
        place.root,
        spark=spark,
        storage_options=place.storage_options,
        settings=place.settings,
        conditional_writes=access.conditional_writes,
        catalogs=access.catalogs or None,
        files_outside=place.elsewhere,
    )


def _done(result: OperationResult | OtherMeaning) -> OperationResult:
    assert isinstance(result, OperationResult)  # only statements of SQL may mean something else
    return result


# -------------------- frames
#
# What a lake says of a table, in the columns of Delta.


_TEXTS = pa.map_(pa.string(), pa.string())
_HISTORY = pa.schema(
    {
        "version": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "operation": pa.string(),
        "operationParameters": _TEXTS,
        "operationMetrics": _TEXTS,
        "metadata": _TEXTS,
        "txnIds": pa.list_(pa.string()),
    }
)
_DETAIL = pa.schema(
    {
        "format": pa.string(),
        "id": pa.string(),
        "name": pa.string(),
        "location": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "numFiles": pa.int64(),
        "sizeInBytes": pa.int64(),
        "properties": _TEXTS,
    }
)


def _history(entries: Sequence[TableHistoryEntry]) -> pa.Table:
    rows = [
        {
            "version": entry.version,
            "timestamp": entry.timestamp,
            "operation": entry.operation,
            "operationParameters": _texts(entry.parameters),
            "operationMetrics": _texts(entry.metrics),
            "metadata": _texts(entry.metadata),
            "txnIds": list(entry.txn_ids),
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=_HISTORY)


def _texts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    return [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in values.items()
    ]
