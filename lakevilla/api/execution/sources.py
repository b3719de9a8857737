"""Rows that users give: frames, files and queries, as verbs take them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.api.alteration import given_schema
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.names import shown_id
from lakevilla.arrow import input
from lakevilla.arrow.cast import ColumnPath, storable, without_nulls
from lakevilla.arrow.nested_fields import narrowed, widened
from lakevilla.arrow.opening import open_data
from lakevilla.engines.staged import to_ipc
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.formats.layout import Layout
from lakevilla.phases import during
from lakevilla.store.base import ANY
from lakevilla.store.effects import put
from lakevilla.sublogs.operations import InlineSource, StagedSource
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import layout_of, layout_with

__all__ = [
    "NO_COLUMNS",
    "TWO_ROWS",
    "frames_go_in_views",
    "identifier",
    "incoming",
    "key_columns",
    "keyed_rows",
    "keyed_schema",
    "merge_rows",
    "replacing",
    "schema_of",
    "source_rows",
    "stored_source",
    "without_frames",
]

# -------------------- sources
#
# Conversion of callers' rows to the schemas, streams and stored sources that verbs take.
# ``Executor`` has a method for each; ``SparkExecutor`` overrides them to take DataFrames as well.


#: Merge sources up to this size are stored in the commit object itself.
_INLINE_BYTES = 64 * 1024
_STAGED_BYTES = 64 * 1024 * 1024
NO_COLUMNS = pa.schema([])
WIDEN_FIRST = "pass schema_mode='merge'"
TWO_ROWS = "the data has two rows for one key; keep one of them"


def incoming(
    client: LakeClient,
    state: TransactionState,
    location: str,
    layout: Layout,
    data: object,
    schema_mode: Literal["merge"] | None,
) -> tuple[pa.RecordBatchReader, bytes | None]:
    """Return rows with the columns of a table, and the new columns that they add to it, or None.

    ``layout`` is the table's layout in the state to which the transaction is bound.
    """
    # Open the data once: a stream can be read only once.
    source = open_data(data)

    def fitted(layout: Layout) -> pa.RecordBatchReader:
        return input.to_reader(
            source, table=layout.table, schema=layout.schema, schema_mode=schema_mode
        )

    try:
        reader = fitted(layout)
    except InvalidOperation:
        # Other clients may have changed the table since it was first read, so that the rows fit
        # now.
        now = client.run(layout_of(state, location, probing=True))
        if now.schema.equals(layout.schema):
            raise
        layout = now
        reader = fitted(layout)
    if reader.schema.equals(layout.schema):
        return reader, None
    columns = reader.schema.serialize().to_pybytes()
    # The format may widen a new column's type: Iceberg's smallest integer type is int.
    layout = client.run(layout_with(state, location, reader.schema))
    return input.to_reader(reader, table=layout.table, schema=layout.schema), columns


def replacing(
    client: LakeClient, state: TransactionState, location: str, data: object
) -> tuple[pa.RecordBatchReader, bytes]:
    """Return rows as ``incoming`` does, for a verb that replaces the table's columns by theirs."""
    source = open_data(data)
    before = client.run(layout_of(state, location, probing=True))
    schema = input.schema_of(source, table=before.table, like=before.schema)
    layout = client.run(layout_with(state, location, schema, replaces_schema=True))
    reader = input.to_reader(source, table=layout.table, schema=layout.schema)
    return reader, schema.serialize().to_pybytes()


def schema_of(data_or_schema: object, name: str) -> tuple[pa.Schema, object]:
    """Return the columns of a new table, and its rows, which are None for a schema alone."""
    schema = given_schema(data_or_schema)
    if schema is not None:
        return input.schema_of(schema, table=name), None
    source = open_data(data_or_schema)
    return input.schema_of(source, table=name), source


def identifier(layout: Layout) -> list[str]:
    """Return a table's identifier fields, the columns by which its metadata identifies rows.

    Raises
    ------
    InvalidOperation
        The table has no identifier fields, or a nested one.
    """
    if not layout.identifier or any(len(path) > 1 for path in layout.identifier):
        spelled = ", ".join(".".join(path) for path in layout.identifier)
        reason = f"has {spelled}, and a nested field can't be a key" if spelled else "has none"
        raise InvalidOperation(
            f"without keys, rows are identified by an Iceberg table's identifier fields, and "
            f"table {layout.table} {reason}: name the key columns, keys=[...]",
            table=layout.table,
        )
    return [path[0] for path in layout.identifier]


def merge_rows(layout: Layout, data: object, *, widens: bool) -> pa.Table:
    """Return the rows of a merge's source, in memory."""
    source = open_data(data)
    if widens:
        refuse_untyped(source.schema, layout)
    return source_rows(source, layout.table, layout.schema)


def keyed_rows(
    client: LakeClient, layout: Layout, data: object, keys: Sequence[str], *, widens: bool
) -> pa.Table:
    """Return rows as ``merge_rows``, after a check that their keys are unique and not null."""
    rows = _materialised(layout, data, widens=widens)
    columns = key_columns(rows.schema, keys)
    for name in columns:
        if rows[name].null_count:
            raise InvalidOperation(f"key column {name} has NULL; a key must have a value")
    if _different(client, rows.select(columns)) != len(rows):
        raise InvalidOperation(TWO_ROWS)
    return rows


def _materialised(layout: Layout, data: object, *, widens: bool) -> pa.Table:
    source = open_data(data)
    if not len(source.schema):
        # the data have no columns, like an empty list, and so no rows
        return layout.schema.empty_table()
    schema = keyed_schema(source.schema, layout, widens=widens)
    rows = source_rows(source, layout.table, schema)
    return input.to_reader(rows, table=layout.table, schema=schema).read_all()


def source_rows(data: object, name: str, like: pa.Schema = NO_COLUMNS) -> pa.Table:
    """Return a statement's rows in memory; messages call them ``name``.

    A column that has only nulls gets its type from ``like``.
    """
    rows = open_data(data)
    schema = input.schema_of(rows, table=name, like=like)
    return input.to_reader(rows, table=name, schema=schema).read_all()


def stored_source(
    client: LakeClient, state: TransactionState, rows: pa.Table
) -> InlineSource | StagedSource:
    """Store rows as a source that a redo, or a helper, can read again (hazard 25)."""
    if rows.nbytes <= _INLINE_BYTES:
        return InlineSource(to_ipc(rows))
    keys, counts = [], []
    for part in _parts(rows):
        # The key has a nonce, so no other attempt and no process that resumes the transaction uses
        # it again: operations whose rows are stored there may have to be redone.
        nonce = client.context.ids.nonce()
        key = f"_lakevilla/txns/{shown_id(state)}/source-{nonce}.arrow"
        with during("data"):
            client.run(put(key, to_ipc(part), ANY))
        state.work.stored.append(key)
        keys.append(key)
        counts.append(part.num_rows)
    columns = rows.schema.serialize().to_pybytes()
    return StagedSource(tuple(keys), tuple(counts), columns)


def refuse_untyped(source: pa.Schema, layout: Layout) -> None:
    """Refuse to add to a table a column or field with only nulls, because it has no type."""
    known = {field.name.lower(): field for field in layout.schema}
    for field in source:
        own = known.get(field.name.lower())
        if own is None and without_nulls(field.type) != field.type:
            raise InvalidOperation(
                f"column {field.name!r} of the data has only nulls, and so no type for a new "
                f"column of table {layout.table}: cast it, or leave it out",
                table=layout.table,
            )
        if own is not None:
            widened(own.type, field.type, ColumnPath(layout.table, own.name))


def keyed_schema(source: pa.Schema, layout: Layout, *, widens: bool) -> pa.Schema:
    """Return the schema of an upsert's rows: those of the table's columns that the data have.

    ``widens``: also columns and fields, at any depth, that only the data have.

    Raises
    ------
    InvalidOperation
        The table lacks a column of the data, or a new column has a type that no table stores.
    """
    if not widens:
        input.refuse_unknown(source.names, layout.schema, layout.table, WIDEN_FIRST)
    given = {field.name.lower(): field for field in source}
    fields = []
    for own in layout.schema:
        field = given.pop(own.name.lower(), None)
        if field is not None:
            kind = own.type
            if widens:
                kind = widened(kind, field.type, ColumnPath(layout.table, own.name))
            fields.append(own.with_type(narrowed(kind, field.type)))
    for field in given.values():
        kind = storable(field.type, ColumnPath(layout.table, field.name))
        fields.append(field.with_type(kind).with_nullable(True))
    return pa.schema(fields)


def _different(client: LakeClient, keys: pa.Table) -> int:
    """Return the number of distinct rows by SQL's equality: NaN equals NaN, and -0.0 equals 0.0."""
    if not any(map(pa.types.is_nested, keys.schema.types)):
        return _different_of_flat(keys)
    sql = "SELECT count(*) AS n FROM (SELECT DISTINCT * FROM keys)"
    found = client.run(client.context.engine.query(sql, {}, {"keys": keys.to_reader()}, {}))
    return int(found["n"][0].as_py())


def _different_of_flat(keys: pa.Table) -> int:
    """Return the number of distinct rows of columns that are not nested, by Arrow alone."""
    for at, column in enumerate(keys.columns):
        if pa.types.is_floating(column.type):
            zero, nan = (pa.scalar(value, column.type) for value in (0.0, math.nan))
            one = pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
            keys = keys.set_column(at, keys.schema.field(at), one)
    return int(keys.group_by(keys.column_names).aggregate([]).num_rows)


def key_columns(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """Return the key columns of an upsert, in the spelling of the data."""
    columns = {name.lower(): name for name in schema.names}
    for name in keys:
        if name.lower() not in columns:
            raise InvalidOperation(
                f"the data has no key column {name}; its columns are {', '.join(schema.names)}: "
                "add it, or name another"
            )
    return [columns[name] for name in dict.fromkeys(key.lower() for key in keys)]


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    count = max(1, -(-rows.nbytes // _STAGED_BYTES))
    length = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length)


# -------------------- frame hint
#
# A hint in the error of a missing table: the caller may mean a frame in a Python variable.
#
# The hint is at the message's end. The command line and DB-API, which take no frames, remove it:
# ``without_frames``.


_SAID = "_frames_said"


@contextmanager
def frames_go_in_views(tables: Mapping[str, str]) -> Iterator[None]:
    """Add, to the error of a missing table, how to pass a frame under the table's name."""
    try:
        yield
    except TableNotFound as error:
        named = [name for name, location in tables.items() if location == error.table]
        if named and named[0].isidentifier() and "did you mean" not in error.message:
            advice = f"; to query a frame, pass views={{{named[0]!r}: {named[0]}}}"
            error.message += advice
            error.args = (error.message,)
            setattr(error, _SAID, advice)
        raise


def without_frames(error: LakeVillaError) -> str:
    """Return an error's message without the hint on frames."""
    said: str = getattr(error, _SAID, "")
    return error.message.removesuffix(said)
