"""The rows that tables must hold after each step: pure functions over Arrow; DuckDB computes
conditions and values, one expression at a time and without its optimizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tests.property.programs.conditions import Every, Texts, Where, sql_type
from tests.property.programs.steps import (
    AddColumn,
    Append,
    Col,
    Create,
    Delete,
    Drop,
    DropColumn,
    Format,
    Merge,
    Overwrite,
    RenameColumn,
    Retype,
    Rows,
    Update,
    Upsert,
    Verb,
    schema_of,
)


class Inapplicable(Exception):
    """A step that has no meaning for these tables: a shorter program leaves it out."""


class Untold(Exception):
    """The oracle can't tell the rows that a step has left: the program ends here."""


@dataclass(frozen=True)
class Table:
    format: Format
    cols: tuple[Col, ...]
    rows: pa.Table
    partition: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    #: Whether its files may be of several partition specs.
    respecced: bool = False

    def col(self, name: str) -> Col:
        for col in self.cols:
            if col.name == name:
                return col
        raise Inapplicable(f"there is no column {name!r}")

    def with_rows(self, *parts: pa.Table) -> Table:
        return replace(self, rows=pa.concat_tables(parts).combine_chunks())


#: Tables by name.
State = Mapping[str, Table]


@dataclass(frozen=True)
class World:
    """The tables of a lake, and of its branches: as they were made or last merged, and now."""

    main: State
    branches: Mapping[str, tuple[State, State]]

    def at(self, branch: str | None) -> State:
        if branch is None:
            return self.main
        if branch not in self.branches:
            raise Inapplicable(f"there is no branch {branch}")
        return self.branches[branch][1]

    def changed(self, branch: str | None, state: State) -> World:
        if branch is None:
            return replace(self, main=state)
        base, _ = self.branches[branch]
        return replace(self, branches={**self.branches, branch: (base, state)})


# -- verbs --------------------------------------------------------------------------------


def applied(state: State, verb: Verb) -> State:
    """Return the tables after a verb."""
    if isinstance(verb, Create):
        old = state.get(verb.table)
        if (old is not None) != verb.or_replace:
            raise Inapplicable("the table is there, or is not there")
        format = old.format if old is not None else verb.format
        empty = schema_of(verb.cols).empty_table()
        changed = old is not None and (old.respecced or old.partition != verb.partition)
        made = Table(format, verb.cols, empty, verb.partition, verb.properties, changed)
        return {**state, verb.table: made}
    if verb.table not in state:
        raise Inapplicable(f"there is no table {verb.table}")
    if isinstance(verb, Drop):
        return {name: table for name, table in state.items() if name != verb.table}
    return {**state, verb.table: _changed(state[verb.table], verb)}


def _changed(table: Table, verb: Verb) -> Table:
    match verb:
        case Append(_, rows, merges):
            if merges:
                table = _widened(table, rows.cols)
            return table.with_rows(table.rows, fitted(table, rows))
        case Update(_, sets, where):
            mask = holding(table.rows, where)
            values = {one.column: (Texts("duckdb").assigned(one), one.type) for one in sets}
            for one in sets:
                table.col(one.column)
            return replace(table, rows=_set(table.rows, mask, values))
        case Delete(_, where):
            return table.with_rows(table.rows.filter(pc.invert(holding(table.rows, where))))
        case Upsert(_, rows, key):
            merge = Merge(verb.table, rows, key, None, (), True, None)
            others = tuple(col.name for col in rows.cols if col.name != key)
            return _merged(table, replace(merge, updates=others))
        case Merge():
            return _merged(table, verb)
        case Overwrite():
            return _overwritten(table, verb)
        case _:
            return _altered(table, verb)


def _altered(table: Table, verb: Verb) -> Table:
    match verb:
        case AddColumn(_, col):
            return _widened(table, (col,))
        case DropColumn(_, column):
            table.col(column)
            if column in table.partition or len(table.cols) == 1:
                raise Inapplicable("a table keeps its partitions")
            cols = tuple(col for col in table.cols if col.name != column)
            return replace(table, cols=cols, rows=table.rows.drop_columns([column]))
        case RenameColumn(_, column, new):
            old = table.col(column)
            if any(col.name.lower() == new.lower() for col in table.cols):
                raise Inapplicable(f"there is a column {new}")
            cols = tuple(replace(c, name=new) if c == old else c for c in table.cols)
            partition = tuple(new if name == column else name for name in table.partition)
            rows = table.rows.rename_columns([c.name for c in cols])
            return replace(table, cols=cols, rows=rows, partition=partition)
        case Retype(_, column, type_):
            old = table.col(column)
            at = table.cols.index(old)
            new_col = Col(column, type_)
            new = pc.cast(table.rows.column(at), new_col.arrow.type)
            cols = (*table.cols[:at], new_col, *table.cols[at + 1 :])
            return replace(table, cols=cols, rows=table.rows.set_column(at, new_col.arrow, new))
    raise AssertionError(verb)


def _widened(table: Table, cols: tuple[Col, ...]) -> Table:
    known = {col.name.lower() for col in table.cols}
    for col in cols:
        if col.name.lower() not in known:
            nulls = pa.nulls(table.rows.num_rows, col.arrow.type)
            rows = table.rows.append_column(col.arrow, nulls)
            table = replace(table, cols=(*table.cols, col), rows=rows)
    return table


def fitted(table: Table, rows: Rows) -> pa.Table:
    """Return rows with the table's columns: NULL where they have none."""
    given = rows.arrow()
    names = {col.name: col for col in rows.cols}
    for name, col in names.items():
        if table.col(name) != col:
            raise Inapplicable(f"column {name} has another type")
    arrays = [
        given.column(col.name).combine_chunks()
        if col.name in names
        else pa.nulls(given.num_rows, col.arrow.type)
        for col in table.cols
    ]
    return pa.Table.from_arrays(arrays, schema=schema_of(table.cols))


def _merged(table: Table, merge: Merge) -> Table:
    source = merge.rows.arrow()
    for col in merge.rows.cols:
        if table.col(col.name) != col:
            raise Inapplicable(f"column {col.name} has another type")
    keys = source.column(merge.key).to_pylist()
    if len(set(keys)) != len(keys) or None in keys:
        raise Inapplicable("a key is there twice")
    places = {key: at for at, key in enumerate(keys)}
    own = table.rows.column(merge.key).to_pylist()
    found = [places.get(key) for key in own]
    matched = pa.array([at is not None for at in found], pa.bool_())
    deleted = pa.array([False] * len(own), pa.bool_())
    if merge.deletes is not None:
        deleted = pc.and_(matched, holding(table.rows, merge.deletes))
    updated = pc.and_(matched, pc.invert(deleted))
    if merge.deletes_others is not None:
        others = pc.and_(pc.invert(matched), holding(table.rows, merge.deletes_others))
        deleted = pc.or_(deleted, others)
    rows = table.rows
    for name in merge.updates:
        at = table.cols.index(table.col(name))
        new = source.column(name).take(pa.array(found, pa.int64()))
        rows = rows.set_column(at, table.cols[at].arrow, chosen(updated, new, rows.column(at)))
    kept = rows.filter(pc.invert(deleted))
    if not merge.inserts:
        return table.with_rows(kept)
    fresh = pa.array([key not in set(own) for key in keys], pa.bool_())
    return table.with_rows(kept, fitted(table, merge.rows).filter(fresh))


def _overwritten(table: Table, verb: Overwrite) -> Table:
    new = fitted(table, verb.rows)
    if verb.where is None:
        return table.with_rows(new)
    if verb.where != "dynamic":
        if not all(holding(new, verb.where).to_pylist()):
            raise Inapplicable("a row does not satisfy the condition")
        return table.with_rows(table.rows.filter(pc.invert(holding(table.rows, verb.where))), new)
    if not table.partition:
        raise Inapplicable("the table has no partitions")
    replaced = set(_keys(new, table.partition))
    kept = pa.array([key not in replaced for key in _keys(table.rows, table.partition)], pa.bool_())
    return table.with_rows(table.rows.filter(kept), new)


def _keys(rows: pa.Table, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    if not columns:
        return [()] * rows.num_rows
    return list(zip(*(map(plain, rows.column(name).to_pylist()) for name in columns), strict=True))


# -- values -------------------------------------------------------------------------------


def holding(rows: pa.Table, where: Where) -> pa.Array:
    """Return for each row whether the condition is true."""
    if isinstance(where, Every):
        return pa.array([True] * rows.num_rows, pa.bool_())
    found = computed(rows, f"({Texts('duckdb').where(where)}) IS TRUE")
    return found


def _set(rows: pa.Table, mask: pa.Array, values: Mapping[str, tuple[str, str]]) -> pa.Table:
    changed = rows
    affected = rows.filter(mask)
    places = pc.cumulative_sum(pc.cast(mask, pa.int64())).to_pylist()
    taken = pa.array(
        [at - 1 if yes else None for at, yes in zip(places, mask.to_pylist(), strict=True)],
        pa.int64(),
    )
    for name, (text, type_) in values.items():
        new = computed(affected, f"CAST({text} AS {sql_type(type_, 'duckdb')})")
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)
        spread = new.cast(field.type).take(taken)
        changed = changed.set_column(at, field, chosen(mask, spread, rows.column(at)))
    return changed


def chosen(mask: pa.Array, new: Any, old: Any) -> pa.Array:
    """Return ``new`` where the mask is true, else ``old``; of any type."""
    both = pa.chunked_array([*_chunks(new), *_chunks(old)], type=old.type).combine_chunks()
    count = len(mask)
    places = [at if yes else count + at for at, yes in enumerate(mask.to_pylist())]
    return both.take(pa.array(places, pa.int64()))


def _chunks(array: Any) -> list[pa.Array]:
    return array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def computed(rows: pa.Table, text: str) -> pa.Array:
    """Return the value of an expression for each row, in their order.

    Raises
    ------
    Inapplicable
        It has none, or names a column that is not there.
    """
    if not rows.num_rows:
        rows = pa.table({name: rows.column(name) for name in rows.column_names})
    connection = _database()
    connection.register("given", rows)
    try:
        found = connection.sql(f"SELECT {text} AS v FROM given").to_arrow_table()
    except duckdb.Error as error:
        raise Inapplicable(str(error)) from error
    finally:
        connection.unregister("given")
    return found.column(0).combine_chunks()


@cache
def _database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("PRAGMA disable_optimizer")
    return connection


# -- comparison ---------------------------------------------------------------------------

#: A multiset of rows.
Bag = Counter[tuple[Any, ...]]


def bag(rows: pa.Table) -> Bag:
    columns = [[plain(value) for value in column.to_pylist()] for column in rows.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def plain(value: Any) -> Any:
    """Return a value that equals only the same: NaN itself, and -0.0 not 0.0."""
    if isinstance(value, float):
        return ("float", repr(value))
    if isinstance(value, dict):
        return tuple((name, plain(part)) for name, part in value.items())
    if isinstance(value, list):
        parts = tuple(map(plain, value))
        is_map = bool(value) and all(isinstance(part, tuple) for part in value)
        return ("map", tuple(sorted(parts, key=repr))) if is_map else parts
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def unsigned(rows: Bag) -> Bag:
    """Return a multiset in which all zeros are one: changes from one to the other are not told."""
    found: Bag = Counter()
    for row, many in rows.items():
        found[_unsigned(row)] += many
    return found


def _unsigned(value: Any) -> Any:
    if isinstance(value, tuple):
        return ("float", "0.0") if value == ("float", "-0.0") else tuple(map(_unsigned, value))
    return value


def rows_of(bag_: Bag, cols: tuple[Col, ...], *tables: pa.Table) -> pa.Table:
    """Return the rows of a multiset, taken from tables that have them."""
    wanted = Counter(bag_)
    parts = []
    for table in tables:
        places = []
        for at, key in enumerate(_keys(table, tuple(col.name for col in cols))):
            if wanted[key] > 0:
                wanted[key] -= 1
                places.append(at)
        parts.append(table.take(pa.array(places, pa.int64())))
    assert not +wanted
    return pa.concat_tables(parts).combine_chunks()


def carried_over(base: Table, changed: Table, onto: Table) -> Table:
    """Return a table with the changes of rows from ``base`` to ``changed``.

    Raises
    ------
    Inapplicable
        The tables have other columns, or a row that has gone is not there.
    """
    if base.cols == onto.cols == changed.cols[: len(base.cols)]:
        base, onto = (_widened(table, changed.cols) for table in (base, onto))
    if not base.cols == changed.cols == onto.cols:
        raise Inapplicable("columns have changed")
    old, new, now = bag(base.rows), bag(changed.rows), bag(onto.rows)
    gone, come = old - new, new - old
    if gone - now:
        raise Inapplicable("a row that has gone is not there")
    result = now - gone + come
    return replace(onto, rows=rows_of(result, onto.cols, onto.rows, changed.rows))


def shape(type_: pa.DataType) -> str:
    """Return a type without what readers spell as they like: nullability, names of elements."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"list<{shape(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{shape(type_.key_type)}, {shape(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {shape(field.type)}' for field in type_)}>"
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    names = {"large_string": "string", "large_binary": "binary", "string_view": "string"}
    names["binary_view"] = "binary"
    return names.get(str(type_), str(type_))


def shapes(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(field.name, shape(field.type)) for field in schema]
