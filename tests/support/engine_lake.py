"""A lake for engine tests: deltalake makes the tables, and reads the engine's files."""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakevilla import errors
from lakevilla.clock import SystemClock
from lakevilla.engines.base import MergeClause, MergeSpec, Rewrite, TableInput, Written
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.spark import SparkEngine, SparkRows
from lakevilla.engines.spark.rows import spark_schema
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.delta.table_format import DeltaFormat
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ANY, Stored
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import put
from lakevilla.store.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Lake:
    """A directory or bucket, an engine on it, and the verbs of a transaction on one table."""

    def __init__(
        self,
        root: str,
        options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        remote: bool = False,
        spark: SparkSession | None = None,
    ) -> None:
        self.root, self.options = root, dict(options or {})
        self.settings = settings or Settings()
        ids = Ids(SystemClock())
        self.runner = Runner(open_store(root, self.options or None), ids, self.settings)
        data: Any = DataFiles(self.runner)
        embedded = DuckDBEngine(_Remote(data) if remote else data, self.settings, ids)
        self.engine: Any = embedded
        self.spark = spark
        if spark is not None:
            place = LakeAddress(root, self.options or None, self.settings)
            self.engine = SparkEngine(lambda: spark, lambda: place, embedded, ids)
        self.format = DeltaFormat()
        self.name = Names()

    def make(self, name: str, rows: pa.Table, **options: Any) -> None:
        write_deltalake(
            f"{self.root}/{name}", rows, storage_options=self.options or None, **options
        )

    def open(self, name: str) -> DeltaSnapshot:
        return self.runner.run(self.format.open(name, name))

    def input(self, name: str) -> TableInput:
        snapshot = self.open(name)
        return TableInput(snapshot.layout, self.runner.run(snapshot.files()))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows that deltalake reads."""
        table = DeltaTable(f"{self.root}/{name}", storage_options=self.options or None)
        return pa.table(table.to_pyarrow_table()).to_pylist()

    def files(self) -> set[str]:
        """Return all files below the root."""
        return {str(p) for p in Path(self.root).rglob("*") if p.is_file()}

    def scan(
        self, name: str, columns: list[str] | None = None, where: str | None = None
    ) -> pa.Table:
        table = self.input(name)
        condition = None if where is None else predicate(where, table.layout)
        if self.spark is not None:
            return collected(self.engine.frame(table, columns, condition))
        return self.runner.run(self.engine.scan(table, columns, condition)).read_all()

    def append(self, name: str, rows: pa.Table) -> tuple[Written, ...]:
        snapshot = self.open(name)
        reader = self._incoming(rows.cast(snapshot.layout.schema))
        written = self.runner.run(self.engine.write(snapshot.layout, reader, self.name))
        self.commit(name, Rewrite(written=written), "WRITE")
        return written

    def update(self, name: str, assignments: Mapping[str, str], where: str) -> Rewrite:
        table = self.input(name)
        schema = table.layout.schema
        bound = bind_assignments({c: parse_expression(e) for c, e in assignments.items()}, schema)
        return self._apply(
            name,
            self.engine.update(table, bound, predicate(where, table.layout), self.name),
            "UPDATE",
        )

    def delete(self, name: str, where: str) -> Rewrite:
        table = self.input(name)
        program = self.engine.delete(table, predicate(where, table.layout), self.name)
        return self._apply(name, program, "DELETE")

    def merge(self, name: str, source: pa.Table, on: str, *clauses: dict[str, Any]) -> Rewrite:
        table = self.input(name)
        program = self.engine.merge(
            table,
            source.to_reader(),
            merge_spec(table.layout, source.schema, on, clauses),
            self.name,
        )
        return self._apply(name, program, "MERGE")

    def commit(self, name: str, rewrite: Rewrite, operation: str) -> None:
        snapshot = self.open(name)
        for written in rewrite.written:
            self._store(name, written.file.path, written.body)
        for change, body in rewrite.change_files:
            self._store(name, change.path, body)
        change = Change(
            adds=tuple(w.file for w in rewrite.written),
            removes=rewrite.removed,
            change_files=tuple(c for c, _ in rewrite.change_files),
        )
        ready = self.runner.run(
            self.format.prepare(snapshot, change, CommitInfo(operation), 1_700_000_000_000)
        )
        outcome = self.runner.run(put(ready.key, ready.body, ready.condition))
        assert isinstance(outcome, Stored)

    def _apply(self, name: str, program: Any, operation: str) -> Rewrite:
        rewrite: Rewrite = self.runner.run(program)
        if rewrite.written or rewrite.removed:
            self.commit(name, rewrite, operation)
        return rewrite

    def _incoming(self, rows: pa.Table) -> Any:
        if self.spark is None:
            return rows.to_reader()
        frame = self.spark.createDataFrame(rows, spark_schema(rows.schema))
        return SparkRows(frame.coalesce(1), rows.schema)

    def _store(self, name: str, path: str, body: bytes | None) -> None:
        if body is not None:
            self.runner.run(put(f"{name}/{path}", body, ANY))


class Names:
    """Generate names of new files; each process generates different ones."""

    def __init__(self) -> None:
        self._made = itertools.count()
        self._nonce = uuid.uuid4().hex[:8]

    def __call__(self, directory: str) -> str:
        return f"{directory}/new-{next(self._made):05d}-{self._nonce}.parquet".lstrip("/")

    def __reduce__(self) -> tuple[object, ...]:
        return Names, ()


class _Remote:
    """Access to data without local paths, over any store."""

    def __init__(self, data: DataFiles) -> None:
        self._data = data

    def admit(self, keys: Iterable[str], table: str) -> None:
        self._data.admit(keys, table)

    def local_path(self, key: str) -> None:
        return None

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        return self._data.holding(bodies)

    def open_input(self, key: str, size: int | None = None) -> pa.NativeFile:
        return self._data.open_input(key, size)


def collected(frame: DataFrame) -> pa.Table:
    """Return the rows that Spark reads; if Spark raises, its error must name the library's own
    error.
    """
    from pyspark.errors import PySparkException  # A frame exists only if PySpark is installed.

    try:
        return frame.toArrow()
    except PySparkException as error:
        named = re.findall(r"lakevilla\.errors\.(\w+): (.*)", str(error))
        if not named:
            raise
        kind, message = named[-1]
        raise getattr(errors, kind)(message) from error


def predicate(where: str, layout: Layout) -> Expr:
    return bind(parse_predicate(where), layout.schema)


def merge_spec(
    layout: Layout, source: pa.Schema, on: str, clauses: tuple[dict[str, Any], ...]
) -> MergeSpec:
    schemas = {"source": source, "target": layout.schema}
    bound = []
    for clause in clauses:
        condition = clause.get("predicate")
        scope = {"source": source} if clause["kind"] == "not_matched_insert" else schemas
        if clause["kind"].startswith("not_matched_by_source"):
            scope = {"target": layout.schema}
        assignments = bind_assignments(
            {c: parse_expression(e) for c, e in clause.get("set", {}).items()},
            layout.schema,
            scope,
        )
        bound.append(
            MergeClause(
                clause["kind"],
                None if condition is None else bind(parse_predicate(condition), scope),
                assignments,
            )
        )
    return MergeSpec(bind(parse_predicate(on), schemas), "source", "target", tuple(bound))


def ordered(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows as sorted text: to compare multisets."""
    return sorted(repr(sorted(row.items())) for row in rows)


def local(tmp_path: Path, **options: Any) -> Lake:
    return Lake(str(tmp_path), **options)


Make = Callable[..., Lake]
