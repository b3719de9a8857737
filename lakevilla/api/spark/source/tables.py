"""A table's rows at one state of the lake: bound once, cut into bins, read in the workers.

Everything that is kept between two calls is pickled, as Spark makes them in different
processes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakevilla.api.client.client import LakeClient
from lakevilla.api.spark.source.access import Access, access_to, lake_at, opened, reaching
from lakevilla.api.spark.source.filters import pushed, together
from lakevilla.api.spark.source.options import ReadOptions
from lakevilla.engines.base import TableInput, projection
from lakevilla.engines.spark.bins import Bins, in_bins
from lakevilla.engines.spark.rows import (
    arrow_types,
    as_declared,
    may_be_null_beyond,
    spark_schema,
    spark_types,
)
from lakevilla.engines.spark.tasks import ScanTask, only_bin, rows_of
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.lake.frozen.elsewhere import places_at_hand
from lakevilla.lake.pinned import Pin, pin, pinned
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "Bound",
    "ahead",
    "bound",
    "bound_to",
    "declared",
    "partitions",
    "push",
    "rows",
    "scan",
    "takes_filters",
]


#: Files that are found where only a table's columns are asked for: some milliseconds, 300 KB.
_FEW_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A reader's options, and the state of the lake that they mean from now on."""

    access: Access
    options: ReadOptions
    pin: Pin
    version: int
    schema: pa.Schema
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Scan:
    """What the tasks of one read need, but for their files; ``shown`` is what Spark was told."""

    access: Access
    pin: Pin
    layout: Layout
    columns: tuple[str, ...]
    shown: pa.Schema
    partitions: int
    where: Expr | None


def bound(lakes: bytes, options: Mapping[str, str]) -> bytes:
    """The state that a reader sees: the same one for all that is read of it later."""
    return pickle.dumps(bound_to(lakes, ReadOptions.of(options)))


def bound_to(lakes: bytes, asked: ReadOptions) -> Bound:
    """As ``bound``, not pickled."""
    access = access_to(lakes, asked.lake, asked.files_outside)
    with lake_at(access, asked.version, asked.timestamp, asked.ref) as executor:
        head = executor.state_of_lake()
        view = executor.look(asked.table)
        access = reaching(access, places_at_hand(executor.state.context, executor.client.reach))
    layout = view.snapshot.layout
    schema = projection(layout, asked.columns)
    where = None if asked.where is None else bind(parse_predicate(asked.where), layout.schema)
    version = 0 if head is None else head.sequence
    return Bound(access, asked, pin(view), version, schema, where)


def scan(state: bytes, schema: StructType) -> bytes:
    """A read of the columns in ``schema``; those of the state, unless its user has named some.

    Raises
    ------
    InvalidOperation
        The table has no such columns.
    """
    held: Bound = pickle.loads(state)
    client = opened(held.access)
    layout = client.run(pinned(client.context, held.pin)).layout
    columns = declared(held.options.table, schema, layout.schema)
    tasks = held.options.partitions or held.access.tasks
    shown = arrow_types(schema, held.options.table)
    whole = Scan(held.access, held.pin, layout, columns, shown, tasks, held.where)
    return pickle.dumps(whole)


def ahead(state: bytes, schema: StructType) -> tuple[bytes, list[bytes]] | None:
    """As ``scan``, with the files of each task; None where the table is not known to have few.

    A frame may never be read, and what is found travels with it.
    """
    held: Bound = pickle.loads(state)
    count = _files(opened(held.access), held.pin)
    if count is None or count > _FEW_FILES:
        return None
    whole = scan(state, schema)
    return whole, partitions(whole)


def _files(client: LakeClient, pin: Pin) -> int | None:
    """About how many files the table has, as its log or HEAD says without a list of them."""
    known = client.run(pinned(client.context, pin)).known_size()
    if known is not None:
        return known.files
    held = client.context.held
    state = None if held is None else held.head.tables.get(pin.location)
    return None if state is None or state.size is None else state.size.files


def takes_filters(state: bytes) -> bool:
    """Whether filters that Spark pushes are taken: where it keeps them apart, or as it was told.

    Spark 4 plans a read once for all uses of a DataFrame, with the filters that were pushed
    last: ``df.where(a).union(df.where(b))`` reads what matches b, twice. Spark 5 plans for each.
    """
    import pyspark

    held: Bound = pickle.loads(state)
    if held.options.pushdown is None:
        return int(pyspark.__version__.partition(".")[0]) >= 5
    return held.options.pushdown


def declared(table: str, schema: StructType, there: pa.Schema) -> tuple[str, ...]:
    """The names of the columns that Spark expects; they must be there, with their types."""
    names = tuple(field.name for field in schema.fields)
    missing = [name for name in names if name not in there.names]
    if missing:
        raise InvalidOperation(
            f"table {table}: there is no column {', '.join(missing)}; its columns are "
            f"{', '.join(there.names)}",
            table=table,
        )
    kept = pa.schema([there.field(name) for name in names])
    for asked, has in zip(schema.fields, spark_schema(kept).fields, strict=True):
        if asked.dataType.simpleString() != has.dataType.simpleString():
            raise InvalidOperation(
                f"table {table}: column {asked.name} is {has.dataType.simpleString()}, not "
                f"{asked.dataType.simpleString()} as the reader's schema says: leave the schema "
                "out, and cast the column",
                table=table,
            )
    for asked, has in zip(arrow_types(schema, table), spark_types(kept), strict=True):
        if may_be_null_beyond(asked, has):
            raise InvalidOperation(
                f"table {table}: column {asked.name} may be NULL, and the reader's schema says "
                "NOT NULL, by which Spark would leave rows out: leave the schema out",
                table=table,
            )
    return names


def push(state: bytes, filters: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """The read of the rows for which ``filters`` are true, and those that Spark must apply."""
    whole: Scan = pickle.loads(state)
    where, left = pushed(filters, whole.layout.schema)
    return pickle.dumps(replace(whole, where=together([whole.where, where]))), left


def partitions(state: bytes) -> list[bytes]:
    """The files to be read, an Arrow stream for each task."""
    whole: Scan = pickle.loads(state)
    client = opened(whole.access)

    def files() -> Program[pa.Table]:
        snapshot = yield from pinned(client.context, whole.pin)
        return (yield from snapshot.files(whole.where))

    found = client.run(files())
    if not found.num_rows:
        return []
    return list(in_bins(TableInput(whole.layout, found), whole.partitions).files)


def rows(state: bytes, files: bytes) -> Iterator[pa.RecordBatch]:
    """The rows in some of the files, in the worker that this runs in."""
    whole: Scan = pickle.loads(state)
    bins = Bins(whole.layout, (files,))
    task = ScanTask(whole.access.place, bins, whole.columns, whole.where)
    for batch in rows_of(pickle.dumps(task), iter([only_bin()])):
        yield as_declared(batch, whole.shown)
