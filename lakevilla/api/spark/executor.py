"""Execute a transaction's verbs by jobs of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakevilla.api.arguments import check_columns, check_number, parameters
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.changing import own_row_test
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.sources import (
    NO_COLUMNS,
    TWO_ROWS,
    key_columns,
    keyed_schema,
    refuse_untyped,
)
from lakevilla.api.merge import Described, MergeBuilder, PlannedMerge
from lakevilla.api.spark.client import SparkClient
from lakevilla.arrow import input
from lakevilla.engines.base import StagedRows, TableInput, projection
from lakevilla.engines.spark import SparkRows
from lakevilla.engines.spark.columns import (
    FrameIds,
    SessionTerms,
    Translator,
    frame_ids,
    is_column,
    read_column,
)
from lakevilla.engines.spark.native import reads_otherwise
from lakevilla.engines.spark.rows import arrow_schema, arrow_types, is_frame, is_spark_schema
from lakevilla.engines.spark.sql import assigned, columns_named, parameters_in, plan_of, run_select
from lakevilla.engines.spark.upkeep.changes import ChangeStep, Comparing
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.files import files_from_structs
from lakevilla.formats.layout import Layout
from lakevilla.global_log.head import CommitSummary
from lakevilla.lake.operations.changes import (
    ADDED,
    CHANGE_COLUMNS,
    DIFFERENCE,
    REMOVED,
    Reading,
    sources_of,
)
from lakevilla.lake.operations.difference import OWN, TableDifference, comparison, sources_between
from lakevilla.lake.operations.feed_rows import RequestedRows, rows_to_read
from lakevilla.results import OperationResult
from lakevilla.sql.expressions.bind import Predicate, Schemas, bind
from lakevilla.sql.expressions.parse import Meaning
from lakevilla.sql.expressions.syntax.sql_nodes import Foreign
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.dml import InsertStatement
from lakevilla.sql.statements.dml import MergeStatement as MergeStatement
from lakevilla.sql.statements.meaning.zones import refuse_other_zone
from lakevilla.sql.statements.select import Dialect, Select
from lakevilla.sublogs.operations import InlineSource, StagedSource
from lakevilla.transaction.state.files import is_created_by, note_created
from lakevilla.transaction.verbs.read_write import append, changes_to_see, layout_of, see_files
from lakevilla.transaction.verbs.replaced_tables import read_again_if_replaced

# -------------------- executor
#
# Transactions of a PySpark driver, which take and return DataFrames.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SparkExecutor"]


class SparkExecutor(Executor["DataFrame"]):
    """An executor that performs a transaction's verbs by Spark jobs; rows are DataFrames."""

    dialect: Dialect = "spark"
    client: SparkClient

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        #: The frames that the transaction has read, with their tables: callers may pass their
        #: columns.
        self._read_frames: list[tuple[str, DataFrame]] = []

    def begin_write(self, name: str, verb: str) -> str:
        location = super().begin_write(name, verb)
        # Tasks store their files at once, so a table that the transaction creates is noted before.
        # For appended and inserted rows, ``incoming`` does that.
        if verb not in ("append", "insert") and is_created_by(self.state, location):
            self.run(note_created(self.state, location))
        return location

    @property
    def meaning(self) -> Meaning | None:
        terms = SessionTerms.of(self.client.spark)
        return None if terms.is_utc else Meaning({}, partial(refuse_other_zone, terms.zone))

    # -- columns as expressions ----------------------------------------------------

    def foreign(self, table: str, alias: str | None = None) -> Foreign | None:
        def read(given: object) -> Expr | None:
            if not is_column(given):
                return None
            location = self.resolve(table)
            read_frames = [(frame, None) for own, frame in self._read_frames if own == location]
            ids = frame_ids(read_frames, f"a frame that this transaction has read from {table}")
            schema = self.run(layout_of(self.state, location, probing=True)).schema
            return self._tree_of(given, schema if alias is None else {alias: schema}, ids)

        return read

    def foreign_of_merge(
        self, location: str, source: object, rows: pa.Schema, aliases: tuple[str, str]
    ) -> Foreign | None:
        def read(given: object) -> Expr | None:
            if not is_column(given):
                return None
            layout = self.run(layout_of(self.state, location, probing=True))
            of_target = [(one, aliases[1]) for own, one in self._read_frames if own == location]
            of_source = [(source, aliases[0])] if is_frame(source) else []
            ids = frame_ids(
                [*of_source, *of_target],
                f"the merge's source, or a frame that this transaction has read from "
                f"{layout.table}",
            )
            return self._tree_of(given, {aliases[0]: rows, aliases[1]: layout.schema}, ids)

        return read

    def _tree_of(self, column: object, schemas: Schemas, ids: FrameIds) -> Expr:
        session = self.client.spark
        terms = SessionTerms.of(session)
        translator = Translator(schemas, terms, ids, self._fixed_now())
        return translator.expression(read_column(column, session))

    # -- reading -----------------------------------------------------------------

    def read(
        self,
        table: str,
        columns: Sequence[str] | None,
        where: Predicate | None,
        params: Mapping[str, object] | None,
        limit: int | None = None,
    ) -> DataFrame:
        """Return rows of a table as a DataFrame; see ``Transaction.read``."""
        most = None if limit is None else check_number("limit", limit)
        with self.kept(), self.verb_scope("read", table):
            self.state.check_open("read")
            columns = check_columns(columns)
            predicate = self.optional_predicate(where, params, table)
            location = self.resolve(table)
            frame = self._frame(location, columns, predicate)
            frame = frame if most is None else frame.limit(most)
            self._read_frames.append((location, frame))
            return frame

    def framed(self, rows: pa.Table) -> DataFrame:
        return self.client.engine.given(rows)

    def _frame(self, location: str, columns: Sequence[str] | None, where: Expr | None) -> DataFrame:
        state = self.state
        table = self.run(
            read_again_if_replaced(state, [location], lambda: see_files(state, location, where))
        )
        self.client.admit_files(table)
        bound = None if where is None else bind(where, table.layout.schema)
        projection(table.layout, columns)  # raises for a missing column, whichever reader is used
        own = any(done.table == location and not done.change.is_empty for done in state.work.done)
        working = state.work.tables[location]

        def by_tasks() -> DataFrame:
            shown, owner = self._shown(location, table), self.id if own else None
            return self.client.engine.frame(table, columns, bound, shown, owner)

        if table.verify:
            self.client.native.refuse_compared(table.layout.table)
            return by_tasks()
        native = self.client.native.frame(
            self.client.spark,
            self.client.uri_of(location),
            working.snapshot.format,
            None if own or working.view.log_version is None else working.view.base.time_travel,
            table.layout.table,
            working.snapshot.table_id,
            reads_otherwise(working.snapshot.metadata, working.snapshot.layout.schema, bound),
            columns,
            bound,
        )
        return by_tasks() if native is None else native

    def _shown(self, location: str, table: TableInput) -> str:
        """Return the text that describes a read in Spark's plan: lake, table, log version, and
        files.
        """
        snapshot = self.state.work.tables[location].snapshot
        size = snapshot.known_size()
        read = f"{table.files.num_rows:,}"
        files = f"{read} files" if size is None else f"{read} of {size.files:,} files"
        at = f"{table.layout.table} version {snapshot.version}"
        return f"lakevilla {self.client.root}: {at}, {files}"

    def _changed(
        self, location: str, since: int, columns: Sequence[str] | None, where: Expr | None
    ) -> DataFrame:
        reading, found = self.run(changes_to_see(self.state, location, since, columns, where))
        return changed(self.client, reading, found)

    @staticmethod
    def rows_changed(client: LakeClient, request: RequestedRows) -> DataFrame:
        assert isinstance(client, SparkClient)
        reading, changes = client.run(rows_to_read(client.context, request))
        return changed(client, reading, [(request.step.commit, change) for change in changes])

    @staticmethod
    def differing(
        client: LakeClient, table: TableDifference, keys: Sequence[str] | None, limit: int | None
    ) -> DataFrame:
        assert isinstance(client, SparkClient)
        rows = differing(client, table, keys)
        return rows if limit is None else rows.limit(limit)

    # -- frames in verbs ---------------------------------------------------------

    def schema_of(self, data_or_schema: object, name: str) -> tuple[pa.Schema, object]:
        if is_spark_schema(data_or_schema):
            return super().schema_of(arrow_types(data_or_schema, name), name)
        if not is_frame(data_or_schema):
            return super().schema_of(data_or_schema, name)
        schema = input.schema_of(arrow_schema(data_or_schema, name), table=name)
        return schema, data_or_schema

    def incoming(
        self, location: str, layout: Layout, data: Any, schema_mode: Literal["merge"] | None
    ) -> tuple[Any, bytes | None]:
        if not is_frame(data):
            return super().incoming(location, layout, data, schema_mode)
        # Errors about the columns' types are raised before a Spark job begins.
        like = arrow_schema(data, layout.table).empty_table()
        reader, columns = super().incoming(location, layout, like, schema_mode)
        if is_created_by(self.state, location):
            # The new table's files are stored before HEAD names the table. This note lets gc find
            # them if the driver dies.
            self.run(note_created(self.state, location))
        return SparkRows(data, reader.schema), columns

    def replacing(self, location: str, data: Any) -> tuple[Any, bytes]:
        if not is_frame(data):
            return super().replacing(location, data)
        table = self.run(layout_of(self.state, location)).table
        reader, columns = super().replacing(location, arrow_schema(data, table).empty_table())
        return SparkRows(data, reader.schema), columns

    def fitted(self, layout: Layout, data: Any) -> Any:
        if not is_frame(data):
            return super().fitted(layout, data)
        reader = super().fitted(layout, arrow_schema(data, layout.table).empty_table())
        return SparkRows(data, reader.schema)

    def merge_rows(
        self, layout: Layout, data: Any, *, widens: bool = False
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        if not is_frame(data):
            return super().merge_rows(layout, data, widens=widens)
        given = arrow_schema(data, layout.table)
        if widens:
            refuse_untyped(given, layout)
        schema = input.schema_of(given, table=layout.table, like=layout.schema)
        return schema, lambda: _stored(self._stage(data, schema, layout.table))

    def keyed_rows(
        self, layout: Layout, data: Any, keys: Sequence[str], *, widens: bool = False
    ) -> tuple[pa.Schema, Callable[[], InlineSource | StagedSource]]:
        if not is_frame(data):
            return super().keyed_rows(layout, data, keys, widens=widens)
        given = arrow_schema(data, layout.table)
        schema = keyed_schema(given, layout, widens=widens)
        input.to_reader(given.empty_table(), table=layout.table, schema=schema)
        columns = key_columns(schema, keys)
        rows = self._stage(data, schema, layout.table, columns)
        if self.client.engine.has_twice(rows, columns, layout.table):
            raise InvalidOperation(TWO_ROWS)
        return schema, lambda: _stored(rows)

    def _source_rows(self, data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
        if is_frame(data):
            raise InvalidOperation(f"{name} is a DataFrame, which is never collected on the driver")
        return super()._source_rows(data, name, like)

    def _stage(
        self, frame: Any, schema: pa.Schema, table: str, keys: Sequence[str] = ()
    ) -> StagedRows:
        """Compute a DataFrame once, and store the rows: a redo must see the same (hazard 25)."""
        prefix = f"_lakevilla/txns/{self.id}/source-"
        rows = self.run(self.client.engine.stage(frame, schema, table, prefix, keys))
        self.state.work.stored.extend(rows.keys)
        return rows

    # -- sql ---------------------------------------------------------------------

    def select(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> DataFrame:
        with self.verb_scope():
            return self._selected(statement, params, views)

    def _selected(
        self, statement: Select, params: Mapping[str, object], views: Mapping[str, object]
    ) -> DataFrame:
        params = parameters(params)
        named = columns_named(statement)
        given = {name: self._given(view) for name, view in views.items()}
        for name, location in self._sql_tables(statement, views).items():
            given[name] = self._frame(location, self._needed(location, named), None)
        return run_select(self.client.spark, statement, given, params)

    def plan(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> str:
        with self.verb_scope(), self._unseen():
            return plan_of(self._selected(statement, params, views))

    def _needed(self, location: str, named: frozenset[str] | None) -> list[str] | None:
        """Return the columns of a table that a query may mean; None if it may mean any of them."""
        if named is None:
            return None
        schema = self.run(layout_of(self.state, location, reading=True)).schema
        return [name for name in schema.names if name.lower() in named] or schema.names[:1]

    def schema_of_query(
        self, statement: Select, params: dict[str, object], views: Mapping[str, object]
    ) -> pa.Schema:
        with self.verb_scope(), self._unseen():
            return arrow_schema(self._selected(statement, params, views), "the query")

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Enter a block whose frames are not computed, so their tables don't count as read."""
        work, reads = self.state.work, dict(self.state.work.reads)
        try:
            yield
        finally:
            work.reads = reads

    def assigned_rows(
        self, layout: Layout, columns: Sequence[str], rows: DataFrame, *, literals: bool
    ) -> Any:
        if len(rows.columns) != len(columns):
            raise InvalidOperation(
                f"the statement names {len(columns)} columns and its query returns "
                f"{len(rows.columns)}: make them match"
            )
        rows = assigned(rows.toDF(*columns), layout.schema)
        data, _ = self.incoming(layout.location, self.bind(layout.location), rows, None)
        return data

    def insert(
        self, statement: InsertStatement, params: dict[str, object], views: Mapping[str, object]
    ) -> OperationResult:
        with self.verb_scope("insert", statement.table):
            location, layout = self.begin_write_into(statement.table, "insert")
            columns = statement.columns or tuple(layout.schema.names)
            rows = self._selected(statement.source, params, views)
            data = self.assigned_rows(layout, columns, rows, literals=False)
            return self.run_verb(append(self.state, location, data))

    def merge_from(
        self,
        statement: MergeStatement,
        params: dict[str, object],
        views: Mapping[str, object],
        meaning: Meaning | None = None,
    ) -> MergeBuilder:
        with self.verb_scope(statement.verb, statement.table):
            location = self.begin_write(statement.table, "merge")
            own_params = parameters_in(statement.source.sql, params)
            source = self._selected(statement.source, own_params, views)
            rows, stored = self.merge_rows(self.bind(location, probing=True), source)
            texts = self.together(params, None, meaning)
            texts.use(own_params)
            condition = texts.predicate(statement.on)
            tables = self._sql_tables(statement.source, views)
            merge = PlannedMerge(
                location,
                rows,
                stored,
                condition,
                (statement.source_alias, statement.target_alias),
                of_own_row=own_row_test(statement, location, tables),
            )
            described = Described(statement.table, verb=statement.verb)
            return self.merge_builder(described, merge, texts)

    def _given(self, data: Any) -> DataFrame:
        """Return rows in the caller's memory as a DataFrame."""
        if is_frame(data):
            frame: DataFrame = data
            return frame
        rows = super()._source_rows(data, "view")
        return self.client.engine.given(rows)


def _stored(rows: StagedRows) -> StagedSource:
    return StagedSource(rows.keys, rows.counts, rows.schema.serialize().to_pybytes())


# -------------------- changed
#
# The rows of a table that commits have changed, as a DataFrame.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changed(
    client: SparkClient, reading: Reading, changes: Iterable[tuple[CommitSummary, Change]]
) -> DataFrame:
    """Return the rows of some changes; tasks read and compare them when the DataFrame is used."""
    steps = [
        ChangeStep(
            commit.sequence,
            commit.timestamp_ms,
            tuple(
                (TableInput(one.layout, files_from_structs(one.files)), one.kind)
                for one in sources_of(reading.layout, change)
            ),
        )
        for commit, change in changes
    ]
    comparing = Comparing(DIFFERENCE, ADDED, REMOVED)
    return client.engine.changes(
        reading.layout, steps, reading.columns, reading.where, comparing, CHANGE_COLUMNS
    )


# -------------------- differing
#
# The rows in which two states of a table differ, as a DataFrame.


if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def differing(client: SparkClient, table: TableDifference, keys: Sequence[str] | None) -> DataFrame:
    """Return the rows of ``state_rows.rows_between``, which tasks compare when they are used."""
    sources = client.run(sources_between(table, keys))
    inputs = tuple(
        (TableInput(one.layout, files_from_structs(one.files)), one.kind) for one in sources
    )
    # Compare the two states as if one commit led from one to the other; its version and time are
    # not shown.
    steps = [ChangeStep(0, 0, inputs)] if inputs else []
    comparing = Comparing(comparison(keys), ADDED, REMOVED, tuple(keys or ()))
    layout = table.snapshot.layout
    return client.engine.changes(layout, steps, None, None, comparing, OWN)
