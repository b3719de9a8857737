"""The source rows of an operation: stored ones, or those of a query over tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from lakevilla.arrow.unkept import refuse_unkept
from lakevilla.engines.base import StagedRows, TableInput
from lakevilla.errors import CorruptObject
from lakevilla.formats.base import TableSnapshot
from lakevilla.lake.context import Context
from lakevilla.phases import during
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import Call, Expr, Literal, all_of
from lakevilla.sql.expressions.values import value_of
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get
from lakevilla.sublogs.operations import InlineSource, QuerySource, Source, StagedSource

#: A function that returns the state of a table, for INSERT ... SELECT and merges from a query.
Lookup = Callable[[str], Program[TableSnapshot]]


def read_source(
    context: Context,
    source: Source,
    lookup: Lookup,
    own: tuple[str, Expr] | None = None,
    *,
    columns_alone: bool = False,
) -> Program[pa.Table]:
    """Return the rows of a stored source, or of a query on the states that ``lookup`` returns.

    Parameters
    ----------
    context : Context
    source : Source
    lookup : callable
    own : tuple of str and Expr, optional
        A table's location and a condition: the query needs only rows of this table for which the
        condition is true.
    columns_alone : bool
        True if only the columns of a query are needed, and no rows.
    """
    match source:
        case InlineSource(ipc=ipc):
            return pa.ipc.open_stream(ipc).read_all()
        case StagedSource(keys=keys):
            tables = []
            for key in keys:
                outcome = yield from get(key)
                if not isinstance(outcome, Found):
                    raise CorruptObject(
                        f"{key}, the source of a merge, is missing: it can't be redone", key=key
                    )
                tables.append(pa.ipc.open_stream(outcome.body).read_all())
            return pa.concat_tables(tables)
        case QuerySource():
            params = {key: _constant(value) for key, value in source.params.items()}
            inputs = yield from _looked_at(context, source, params, lookup, own)
            views = {}
            for alias, view in source.views.items():
                rows = yield from read_source(context, view, lookup)
                views[alias] = rows.to_reader()
            sql = without_rows(source.sql) if columns_alone else source.sql
            found = yield from context.engine.query(sql, inputs, views, params)
            refuse_unkept(found.schema, None)
            return found


def _looked_at(
    context: Context,
    source: QuerySource,
    params: Mapping[str, object],
    lookup: Lookup,
    own: tuple[str, Expr] | None,
) -> Program[dict[str, TableInput]]:
    """Return the files that a query has to read, by the query's names for their tables.

    The conditions that exclude files are derived from the query's text each time: in a redo,
    columns may have other types, with which a condition may mean something else.
    """
    states = {}
    for alias, location in source.tables.items():
        states[alias] = yield from lookup(location)
    within: Mapping[str, Expr] = {}
    if any(may_have_many_files(state) for state in states.values()):
        schemas = {alias: state.layout.schema for alias, state in states.items()}
        within = context.engine.rows_within(source.sql, params, schemas)
    inputs = {}
    for alias, state in states.items():
        terms = [within[alias]] if alias in within else []
        if own is not None and own[0] == source.tables[alias]:
            terms.append(own[1])
        where = all_of([bind(term, state.layout.schema) for term in terms])
        with during("metadata", state.layout.location):
            files = yield from state.files(where)
        inputs[alias] = TableInput(state.layout, files)
    return inputs


def may_have_many_files(snapshot: TableSnapshot) -> bool:
    """Return whether a table may have several files, so that a condition may exclude some."""
    size = snapshot.known_size()
    return size is None or size.files > 1


def without_rows(sql: str) -> str:
    """Return a query with the same columns as ``sql`` and no rows."""
    return f"SELECT * FROM (\n{sql}\n) LIMIT 0"


def staged_rows(source: StagedSource) -> StagedRows:
    """Return a stored source in the form that engines take."""
    schema = pa.ipc.read_schema(pa.py_buffer(source.columns))
    return StagedRows(source.keys, source.counts, schema)


def _constant(value: Expr) -> object:
    """Return the Python value of a stored parameter."""
    if isinstance(value, Literal):
        return value_of(value)
    assert isinstance(value, Call), value
    return [_constant(item) for item in value.args]
