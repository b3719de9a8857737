"""Read a table by Spark's data source, and open lakes in Spark's processes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakevilla.api.client.catalogs import mount_catalogs
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.run import begin_transaction
from lakevilla.api.spark.source.options import ReadOptions
from lakevilla.engines.base import TableInput, projection
from lakevilla.engines.spark.rows import (
    arrow_types,
    as_declared,
    may_be_null_beyond,
    spark_schema,
    spark_types,
)
from lakevilla.engines.spark.tasks import Bins, LakeAddress, ScanTask, in_bins, only_bin, rows_of
from lakevilla.errors import InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.formats.views import refuse_view
from lakevilla.lake.frozen.mounts import known_places
from lakevilla.lake.past import Pin, pin, pinned
from lakevilla.settings import Settings
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Column, Expr
from lakevilla.sql.expressions.values import literal
from lakevilla.store.backends.endpoints import azure_account
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.reach import Reach, outside_paths
from lakevilla.store.effects import Program
from lakevilla.store.location import account_of, in_account, refuse_half_scheme, root_location

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
    "Access",
    "access_to",
    "roots_of",
    "goes_on",
    "lake_at",
    "opened",
    "opened_on",
    "reaching",
    "pushed",
    "together",
]

# -------------------- tables
#
# A table's rows in one state of the lake: bound once, divided into bins, read in the workers.
#
# Everything that one call passes to the next is pickled, because Spark calls in different
# processes.


if TYPE_CHECKING:
    from pyspark.sql.types import StructType


#: The most files that are listed when only columns are requested: some milliseconds, 300 KB.
_FEW_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A reader's options, and the state of the lake to which they are bound."""

    access: Access
    options: ReadOptions
    pin: Pin
    version: int
    schema: pa.Schema
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Scan:
    """All that the tasks of one read need, except their files.

    ``shown`` is the schema of the batches that Spark expects.
    """

    access: Access
    pin: Pin
    layout: Layout
    columns: tuple[str, ...]
    shown: pa.Schema
    partitions: int
    where: Expr | None


def bound(lakes: bytes, options: Mapping[str, str]) -> bytes:
    """Return the pickled state to which a reader is bound, for all its later calls."""
    return pickle.dumps(bound_to(lakes, ReadOptions.of(options, roots_of(lakes))))


def bound_to(lakes: bytes, read_options: ReadOptions) -> Bound:
    """Return the state as ``bound`` does, but not pickled."""
    access = access_to(lakes, read_options.lake, read_options.files_outside)
    with lake_at(
        access, read_options.version, read_options.timestamp, read_options.ref
    ) as executor:
        head = executor.state_of_lake()
        view = executor.look(read_options.table)
        access = reaching(access, known_places(executor.state.context, executor.client.reach))
    layout = view.snapshot.layout
    schema = projection(layout, read_options.columns)
    where = (
        None
        if read_options.where is None
        else bind(read_options.predicate(read_options.where), layout.schema)
    )
    version = 0 if head is None else head.sequence
    return Bound(access, read_options, pin(view), version, schema, where)


def scan(state: bytes, schema: StructType) -> bytes:
    """Return a read of the columns in ``schema``.

    These are the columns of the state, unless the user has given a schema.

    Raises
    ------
    InvalidOperation
        The table has no such columns.
    """
    source: Bound = pickle.loads(state)
    client = opened(source.access)
    layout = client.run(pinned(client.context, source.pin)).layout
    columns = declared(source.options.table, schema, layout.schema)
    tasks = source.options.partitions or source.access.tasks
    shown = arrow_types(schema, source.options.table)
    whole = Scan(source.access, source.pin, layout, columns, shown, tasks, source.where)
    return pickle.dumps(whole)


def ahead(state: bytes, schema: StructType) -> tuple[bytes, list[bytes]] | None:
    """Return ``scan``'s result and the files of each task; None if there may be many files.

    The frame may never be read, and the list of files is pickled with it.
    """
    source: Bound = pickle.loads(state)
    count = _files(opened(source.access), source.pin)
    if count is None or count > _FEW_FILES:
        return None
    whole = scan(state, schema)
    return whole, partitions(whole)


def _files(client: LakeClient, pin: Pin) -> int | None:
    """Return about how many files the table has, from its log or HEAD, without listing them."""
    known = client.run(pinned(client.context, pin)).known_size()
    if known is not None:
        return known.files
    held = client.context.held
    state = None if held is None else held.head.tables.get(pin.location)
    return None if state is None or state.size is None else state.size.files


def takes_filters(state: bytes) -> bool:
    """Return whether the reader takes filters that Spark pushes.

    The option ``pushdown`` decides; without it, only Spark 5 is safe. Spark 4 plans a read once for
    all uses of a DataFrame, with the filters that were pushed last:
    ``df.where(a).union(df.where(b))`` reads the rows that match b, twice. Spark 5 plans each use
    separately.
    """
    # See docs/upstream.md, "A Python source reads by the filter of another frame".
    import pyspark

    source: Bound = pickle.loads(state)
    if source.options.pushdown is None:
        return int(pyspark.__version__.partition(".")[0]) >= 5
    return source.options.pushdown


def declared(table: str, schema: StructType, table_schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that Spark expects, after a check of their names and types."""
    names = tuple(field.name for field in schema.fields)
    missing = [name for name in names if name not in table_schema.names]
    if missing:
        raise InvalidOperation(
            f"table {table}: there is no column {', '.join(missing)}; its columns are "
            f"{', '.join(table_schema.names)}",
            table=table,
        )
    kept = pa.schema([table_schema.field(name) for name in names])
    for expected, has in zip(schema.fields, spark_schema(kept).fields, strict=True):
        if expected.dataType.simpleString() != has.dataType.simpleString():
            raise InvalidOperation(
                f"table {table}: column {expected.name} is {has.dataType.simpleString()}, not "
                f"{expected.dataType.simpleString()} as the reader's schema says: leave the schema "
                "out, and cast the column",
                table=table,
            )
    for expected, has in zip(arrow_types(schema, table), spark_types(kept), strict=True):
        if may_be_null_beyond(expected, has):
            raise InvalidOperation(
                f"table {table}: column {expected.name} may be NULL, and the reader's schema says "
                "NOT NULL, by which Spark would leave rows out: leave the schema out",
                table=table,
            )
    return names


def push(state: bytes, filters: Sequence[Any]) -> tuple[bytes, list[Any]]:
    """Return the read narrowed by the filters that LakeVilla can apply, and the other filters."""
    whole: Scan = pickle.loads(state)
    where, left = pushed(filters, whole.layout.schema)
    return pickle.dumps(replace(whole, where=together([whole.where, where]))), left


def partitions(state: bytes) -> list[bytes]:
    """Return the files to be read, one Arrow stream for each task."""
    whole: Scan = pickle.loads(state)
    client = opened(whole.access)

    def files() -> Program[pa.Table]:
        snapshot = yield from pinned(client.context, whole.pin)
        return (yield from snapshot.files(whole.where))

    found = client.run(files())
    refuse_view(whole.layout, "read")
    if not found.num_rows:
        return []
    return list(in_bins(TableInput(whole.layout, found), whole.partitions).files)


def rows(state: bytes, files: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some of the files, in the worker that runs this."""
    whole: Scan = pickle.loads(state)
    bins = Bins(whole.layout, (files,))
    task = ScanTask(whole.access.place, bins, whole.columns, whole.where)
    for batch in rows_of(pickle.dumps(task), iter([only_bin()])):
        yield as_declared(batch, whole.shown)


# -------------------- access
#
# Lakes that processes of a Spark session can open: the arguments of ``connect``, by root.


@dataclass(frozen=True, slots=True)
class Access:
    """The arguments by which another process opens a lake; the ``repr`` shows no secret.

    ``tasks``: the number of tasks at a time for which a table is cut, if a read sets none.
    ``catalogs``: the properties of the catalogs that the session was connected with, by name.
    """

    place: LakeAddress
    conditional_writes: Literal["require", "check"] = "require"
    tasks: int = 32
    catalogs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


def roots_of(lakes: bytes) -> list[str]:
    """Return the roots of a pickled mapping of roots to accesses."""
    return list(pickle.loads(lakes))


def access_to(lakes: bytes, root: str, files_outside: Sequence[str] = ()) -> Access:
    """Return the session's access to a lake; without one, an access with default settings.

    ``lakes`` is a pickled mapping of roots to accesses. ``files_outside``: directories outside of
    the root in which files may be read.
    """
    refuse_half_scheme(root)
    uri = root_location(root).uri
    if uri.startswith("memory:"):
        raise InvalidOperation(
            f"the lake {uri} lives in the memory of one process, and Spark reads in others: "
            "use a directory or an object store"
        )
    known: dict[str, Access] = pickle.loads(lakes)
    access = known.get(uri) or _in_its_account(known, uri)
    access = access or Access(LakeAddress(uri, None, Settings()))
    reach = Reach(uri, [*access.place.elsewhere, *outside_paths(files_outside)])
    return reaching(access, reach.elsewhere)


def reaching(access: Access, elsewhere: tuple[str, ...]) -> Access:
    """Return an access whose processes may also read files in the places ``elsewhere``."""
    return replace(access, place=replace(access.place, elsewhere=elsewhere))


def opened(access: Access) -> LakeClient:
    """Return a process's client of a lake, the same for all calls, because it caches the lake's
    state.
    """
    return _opened(pickle.dumps(access))


def opened_on(access: Access, ref: str | None) -> LakeClient:
    """Return the client bound to a ref; for None, the client of the lake itself."""
    client = opened(access)
    return client if ref is None else client.on(ref)


def goes_on(access: Access, ref: str | None) -> bool:
    """Return whether a ref gets new versions, like a branch and the lake itself, unlike a tag."""
    return opened_on(access, ref).at is None


@contextmanager
def lake_at(
    access: Access,
    version: int | None = None,
    timestamp: datetime | None = None,
    ref: str | None = None,
) -> Iterator[Executor]:
    """Enter a read-only transaction, bound like ``lake.snapshot``; ``ref``: as for ``lake.on``."""
    client = opened_on(access, ref)
    executor: Executor = begin_transaction(client, Executor, read_only=True)
    if version is not None or timestamp is not None:
        executor.bind_to(version, timestamp)
    try:
        yield executor
    finally:
        executor.abort()


def _in_its_account(known: Mapping[str, Access], uri: str) -> Access | None:
    """Return the access to a lake on Azure whose location is given without its account."""
    place = root_location(uri)
    for root, access in known.items():
        if place != (lake := root_location(root)) == in_account(place, account_of(lake)):
            return access
    return None


@lru_cache(maxsize=8)
def _opened(pickled: bytes) -> LakeClient:
    access: Access = pickle.loads(pickled)
    place = access.place
    store = open_store(place.root, place.storage_options, settings=place.settings)
    for outside in place.elsewhere:
        store.name(outside)
    reach = Reach(store.root.uri, place.elsewhere, azure_account(place.storage_options))
    mount_catalogs(store, access.catalogs, place.settings, reach.admit)
    return LakeClient(
        store.root.uri,
        store,
        settings=place.settings,
        conditional_writes=access.conditional_writes,
        catalogs=access.catalogs,
        reach=reach,
    )


# -------------------- filters
#
# Spark's filters as predicates of LakeVilla, if both mean the same for every value.


_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "StringStartsWith": "starts_with",
    "StringEndsWith": "ends_with",
    "StringContains": "contains",
}


def pushed(filters: Iterable[Any], schema: pa.Schema) -> tuple[Expr | None, list[Any]]:
    """Return the filters that LakeVilla can apply as one bound predicate, and the other filters."""
    taken = []
    left = []
    for one in filters:
        expr = _predicate(one, schema)
        if expr is None:
            left.append(one)
        else:
            taken.append(expr)
    return together(taken), left


def together(predicates: Iterable[Expr | None]) -> Expr | None:
    """Combine bound predicates by AND; None if there are none."""
    whole: Expr | None = None
    for one in predicates:
        if one is not None:
            whole = one if whole is None else Call("and", (whole, one))
    return whole


def _predicate(one: Any, schema: pa.Schema) -> Expr | None:
    expr = _translated(one, schema)
    if expr is None:
        return None
    try:
        return bind(expr, schema)
    except InvalidOperation:
        return None  # LakeVilla does not compare these types; Spark has its own rules


def _translated(one: Any, schema: pa.Schema) -> Expr | None:
    name = type(one).__name__
    if name == "Not":
        inner = _translated(one.child, schema)
        return None if inner is None else Call("not", (inner,))
    if len(one.attribute) != 1 or one.attribute[0] not in schema.names:
        return None
    column = Column((one.attribute[0],))
    if name == "IsNull":
        return Call("is_null", (column,))
    if name == "IsNotNull":
        return Call("not", (Call("is_null", (column,)),))
    type_ = schema.field(one.attribute[0]).type
    values: Sequence[Any] = one.value if name == "In" else [one.value]
    if not all(_fits(value, type_) for value in values):
        return None
    if name == "In":
        return Call("in", (column, *(literal(value) for value in values)))
    if name not in _COMPARISONS:
        return None
    return Call(_COMPARISONS[name], (column, literal(one.value)))


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Return whether Spark and LakeVilla compare a value with a column of this type in the same
    way.
    """
    kinds = pa.types
    if isinstance(value, bool):
        return bool(kinds.is_boolean(type_))
    if isinstance(value, int):
        return bool(kinds.is_integer(type_) or kinds.is_decimal(type_))
    if isinstance(value, Decimal):
        return bool(kinds.is_decimal(type_)) and value.is_finite()
    if isinstance(value, float):
        return bool(kinds.is_floating(type_)) and math.isfinite(value)
    if isinstance(value, str):
        return bool(kinds.is_string(type_) or kinds.is_large_string(type_))
    if isinstance(value, datetime):
        # Compared with a column with a zone, a time without a zone would depend on the session's
        # zone.
        return bool(kinds.is_timestamp(type_)) and (value.tzinfo is None) == (type_.tz is None)
    return isinstance(value, date) and bool(kinds.is_date(type_))
