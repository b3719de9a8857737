"""Lakes and transactions of a PySpark driver: DataFrames in, DataFrames out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakevilla.api.arguments import check_columns
from lakevilla.api.lake import Lake
from lakevilla.api.merge import Merge
from lakevilla.api.transaction import Transaction
from lakevilla.api.transaction_base import ALTER_FIRST, NO_COLUMNS, TWO_ROWS, key_columns
from lakevilla.arrow import input as frames
from lakevilla.clock import SystemClock
from lakevilla.engines.base import Engine, StagedRows, projection
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.spark import SparkEngine, SparkRows
from lakevilla.engines.spark.native import NativeReader, reads_otherwise
from lakevilla.engines.spark.rows import arrow_schema, arrow_types, is_frame, is_spark_schema
from lakevilla.engines.spark.session import STOPPED, is_stopped
from lakevilla.engines.spark.sql import columns_named, parameters_in, run_select
from lakevilla.engines.spark.tasks import Place
from lakevilla.engines.sql.select import Dialect, Select
from lakevilla.engines.sql.statement import Insert
from lakevilla.engines.sql.statement import Merge as MergeStatement
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.bind import bind
from lakevilla.expressions.tree import Expr
from lakevilla.ids import Ids
from lakevilla.lake.context import Event
from lakevilla.results import OperationResult
from lakevilla.sublogs.operations import InlineSource, StagedSource
from lakevilla.transaction.state import transaction as core
from lakevilla.transaction.verbs.read_write import append, layout_of, see_files
from lakevilla.transaction.verbs.replaced_tables import seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkLake", "SparkReader", "SparkTransaction"]

#: How a DataFrame of unchanged data is read.
SparkReader = Literal["auto", "native", "python"]

#: The session of the frame that a stream has handed to this thread's batch.
_BESIDE: ContextVar[SparkSession | None] = ContextVar("session", default=None)


class SparkLake(Lake["DataFrame"]):
    """A lake whose rows are the DataFrames of a Spark session; made by ``lakevilla.connect``.

    Verbs take DataFrames, and whatever an embedded lake takes; ``read`` and ``sql``
    return DataFrames.
    """

    def __init__(
        self,
        root: str,
        *args: Any,
        spark: SparkSession | None,
        workers: Callable[[], Place],
        reader: SparkReader,
        **options: Any,
    ) -> None:
        self._spark = spark
        self._workers = workers
        super().__init__(root, *args, **options)
        self.native = NativeReader(reader, workers, self._could_not_read)

    @property
    def spark(self) -> SparkSession:
        """The session that frames come from.

        Raises
        ------
        InvalidOperation
            It was stopped; or the lake came out of a pickle, without one.
        """
        session = _BESIDE.get() or self._spark
        if session is None:
            raise InvalidOperation(
                "this lake was unpickled, and a Spark session is never pickled with one: "
                "connect again with spark="
            )
        if is_stopped(session):
            raise InvalidOperation(STOPPED)
        return session

    @contextmanager
    def beside(self, frame: Any) -> Iterator[None]:
        """A block in which frames come from the session of ``frame``."""
        token = _BESIDE.set(frame.sparkSession if is_frame(frame) else None)
        try:
            yield
        finally:
            _BESIDE.reset(token)

    def begun(self, state: core.Transaction, **options: Any) -> SparkTransaction:
        """A transaction's state in the hands of its user."""
        return SparkTransaction(self, state, **options)

    @property
    def engine(self) -> SparkEngine:
        """The engine, as what it is."""
        engine = self.context.engine
        assert isinstance(engine, SparkEngine)
        return engine

    def _engine(self, embedded: DuckDBEngine) -> Engine:
        return SparkEngine(lambda: self.spark, self._workers, embedded, Ids(SystemClock()))

    def _could_not_read(self, table: str, reason: str) -> None:
        told = (
            f"table {table} is read by LakeVilla's own reader, as Spark's connector could not: "
            f"{reason}"
        )
        self._notify(Event("reader", None, told, {"table": table, "reason": reason}))


class SparkTransaction(Transaction["DataFrame"]):
    """A transaction whose frames are those of Spark."""

    dialect: Dialect = "spark"
    _lake: SparkLake

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> DataFrame:
        """Rows of a table as a DataFrame, own changes included.

        They become part of the transaction when this is called, with the ``where`` given
        here: what a later ``filter`` leaves out is not known. Spark reads them when the
        frame is used, at the versions that the transaction is bound to. A frame that holds
        the transaction's own changes is of use until it ends; another as long as the files
        are kept.

        Parameters
        ----------
        table : str
        columns : sequence of str, optional
            All columns if not given.
        where : str, optional
            A predicate; the narrower it is, the fewer commits conflict with it.
        params : Mapping, optional
            Values of ``:name`` in ``where``.

        Raises
        ------
        TableNotFound, InvalidOperation, ConflictError
        """
        with self._alone("read", table):
            self._core.check_open("read")
            columns = check_columns(columns)
            predicate = self._optional_predicate(where, params)
            return self._frame(self._resolve(table), columns, predicate)

    def _framed(self, rows: pa.Table) -> DataFrame:
        return self._lake.engine.given(rows)

    def _frame(self, location: str, columns: Sequence[str] | None, where: Expr | None) -> DataFrame:
        state = self._core
        table = self._run(seen(state, [location], lambda: see_files(state, location, where)))
        bound = None if where is None else bind(where, table.layout.schema)
        projection(table.layout, columns)  # whoever reads them: refused here or not at all
        own = any(done.table == location and not done.change.is_empty for done in state.done)
        working = state.tables[location]
        native = self._lake.native.frame(
            self._lake.spark,
            self._lake.uri_of(location),
            working.snapshot.format,
            None if own or working.view.log_version is None else working.view.base.time_travel,
            table.layout.table,
            working.snapshot.table_id,
            reads_otherwise(working.snapshot.metadata, working.snapshot.layout.schema),
            columns,
            bound,
        )
        return self._lake.engine.frame(table, columns, bound) if native is None else native

    # -- what verbs do with frames -----------------------------------------------

    def _schema_of(self, data_or_schema: object, name: str) -> tuple[pa.Schema, object]:
        if is_spark_schema(data_or_schema):
            return super()._schema_of(arrow_types(data_or_schema, name), name)
        if not is_frame(data_or_schema):
            return super()._schema_of(data_or_schema, name)
        schema = frames.schema_of(arrow_schema(data_or_schema, name), table=name)
        # Spark calls a column NOT NULL that merely happens to have none, such as a literal.
        return pa.schema([field.with_nullable(True) for field in schema]), data_or_schema

    def _incoming(
        self, location: str, data: Any, schema_mode: Literal["merge"] | None
    ) -> tuple[Any, bytes | None]:
        if not is_frame(data):
            return super()._incoming(location, data, schema_mode)
        table = self._run(layout_of(self._core, location)).table
        # All that can be told from the types is told before a job begins.
        like = arrow_schema(data, table).empty_table()
        reader, columns = super()._incoming(location, like, schema_mode)
        return SparkRows(data, reader.schema), columns

    def _merge_rows(
        self, location: str, data: Any
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        if not is_frame(data):
            return super()._merge_rows(location, data)
        layout = self._run(layout_of(self._core, location, probing=True))
        given = arrow_schema(data, layout.table)
        schema = frames.schema_of(given, table=layout.table, like=layout.schema)
        return schema, lambda: _stored(self._stage(data, schema, layout.table))

    def _keyed_rows(
        self, location: str, data: Any, keys: Sequence[str]
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        if not is_frame(data):
            return super()._keyed_rows(location, data, keys)
        layout = self._run(layout_of(self._core, location, probing=True))
        given = arrow_schema(data, layout.table)
        frames.refuse_unknown(given.names, layout.schema, layout.table, ALTER_FIRST)
        frames.to_reader(given.empty_table(), table=layout.table, schema=layout.schema)
        names = {name.lower() for name in given.names}
        schema = pa.schema([f for f in layout.schema if f.name.lower() in names])
        columns = key_columns(schema, keys)
        rows = self._stage(data, schema, layout.table, columns)
        if self._lake.engine.has_twice(rows, columns, layout.table):
            raise InvalidOperation(TWO_ROWS)
        return schema, lambda: _stored(rows)

    def _source_rows(self, data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
        if is_frame(data):
            raise InvalidOperation(f"{name} is a DataFrame, which is never brought to the driver")
        return super()._source_rows(data, name, like)

    def _stage(
        self, frame: Any, schema: pa.Schema, table: str, keys: Sequence[str] = ()
    ) -> StagedRows:
        """Run a DataFrame once, and keep its rows: a redo must see the same ones (hazard 25)."""
        prefix = f"_lakevilla/txns/{self.id}/source-"
        rows = self._run(self._lake.engine.stage(frame, schema, table, prefix, keys))
        self._core.stored.extend(rows.keys)
        return rows

    # -- sql ---------------------------------------------------------------------

    def _select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> DataFrame:
        with self._alone():
            return self._selected(statement, params, views)

    def _selected(
        self, statement: Select, params: Mapping[str, object], views: Mapping[str, object]
    ) -> DataFrame:
        named = columns_named(statement)
        given = {name: self._given(view) for name, view in views.items()}
        for name, location in self._sql_tables(statement, views).items():
            given[name] = self._frame(location, self._needed(location, named), None)
        return run_select(self._lake.spark, statement, given, params)

    def _needed(self, location: str, named: frozenset[str] | None) -> list[str] | None:
        """The columns of a table that a query can mean; all of them if it may mean any."""
        if named is None:
            return None
        schema = self._run(layout_of(self._core, location, reading=True)).schema
        return [name for name in schema.names if name.lower() in named] or schema.names[:1]

    def _insert(
        self, statement: Insert, params: dict[str, object], views: Mapping[str, object]
    ) -> OperationResult:
        with self._alone("insert", statement.table):
            location = self._written(statement.table, "insert")
            layout = self._run(layout_of(self._core, location, probing=True))
            columns = statement.columns or tuple(layout.schema.names)
            rows = self._selected(statement.source, params, views)
            if len(rows.columns) != len(columns):
                raise InvalidOperation(
                    f"the statement names {len(columns)} columns and its query returns "
                    f"{len(rows.columns)}: make them match"
                )
            data, _ = self._incoming(location, rows.toDF(*columns), None)
            return self._done(append(self._core, location, data))

    def _merge_from(
        self, statement: MergeStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> Merge:
        with self._alone("merge", statement.table):
            location = self._written(statement.table, "merge")
            mine = parameters_in(statement.source.sql, params)
            rows, stored = self._merge_rows(location, self._selected(statement.source, mine, views))
            together = self._together(params)
            together.use(mine)
            return self._merge_builder(
                statement.table,
                location,
                rows,
                stored,
                together.predicate(statement.on),
                together,
                (statement.source_alias, statement.target_alias),
            )

    def _given(self, data: Any) -> DataFrame:
        """Rows that the caller holds, as a DataFrame."""
        if is_frame(data):
            frame: DataFrame = data
            return frame
        rows = super()._source_rows(data, "view")
        return self._lake.engine.given(rows)


def _stored(rows: StagedRows) -> StagedSource:
    return StagedSource(rows.keys, rows.counts, rows.schema.serialize().to_pybytes())
