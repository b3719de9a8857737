"""The search for rows of a merge's source that concern files of its target, by keys alone.

It is for a source that is too large to be read by every task that has files of the target. The keys
of the files are sufficient: the columns that the merge condition uses. Rows and keys are divided by
a hash of the values that must be equal, so each part of either side can be processed alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakevilla.engines.base import MergeSpec
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database, stream
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.failures import Tap, translated
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.sqltext import column_of, name_list, quote_name
from lakevilla.engines.duckdb.writing.merge import NUMBER
from lakevilla.formats.layout import Layout
from lakevilla.sql.expressions.tree import Call, Cast, Column, Expr, columns

#: A hash of the values that must be equal: rows and keys with the same hash may match.
HASH = pa.field("__lakevilla_hash", pa.uint64())
#: The part of the target that a key belongs to.
PART = pa.field("__lakevilla_part", pa.int32())


@dataclass(frozen=True, slots=True)
class Keys:
    """The target's columns that a merge condition uses, and columns of both that must be equal."""

    columns: tuple[str, ...]
    target: tuple[str, ...]
    source: tuple[str, ...]


def keys_of(spec: MergeSpec, target: pa.Schema, source: pa.Schema) -> Keys | None:
    """Return the keys of a merge; None if its condition requires no plain columns to be equal."""
    key_columns = {one.path[0] for one in columns(spec.on) if one.table == spec.target_alias}
    schemas: dict[str | None, pa.Schema] = {spec.target_alias: target, spec.source_alias: source}
    pairs = []
    for term in _terms(spec.on):
        if not (isinstance(term, Call) and term.name in ("=", "<=>") and len(term.args) == 2):
            continue
        plain = [_column_in(one, schemas) for one in term.args]
        sides = {one.table: one.path[0] for one in plain if one is not None}
        if set(sides) != {spec.target_alias, spec.source_alias}:
            continue
        mine, given = sides[spec.target_alias], sides[spec.source_alias]
        if _hashed_alike(target.field(mine).type, source.field(given).type):
            pairs.append((mine, given))
    if not pairs:
        return None
    wanted = tuple(name for name in target.names if name in key_columns)
    return Keys(wanted, *(tuple(side) for side in zip(*pairs, strict=True)))


def _column_in(value: Expr, schemas: Mapping[str | None, pa.Schema]) -> Column | None:
    """Return the column of which an operand consists; whole numbers may also be cast to another
    size.

    A column in any other cast has equal values where the column itself differs: texts '1' and '01'.
    """
    is_cast = isinstance(value, Cast) and value.type in ("byte", "short", "integer", "long")
    column = value.arg if isinstance(value, Cast) and is_cast else value
    if not isinstance(column, Column) or len(column.path) != 1:
        return None
    if is_cast and not pa.types.is_integer(schemas[column.table].field(column.path[0]).type):
        return None
    return column


def _terms(on: Expr) -> Iterator[Expr]:
    if isinstance(on, Call) and on.name == "and":
        for one in on.args:
            yield from _terms(one)
    else:
        yield on


def _hashed_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether equal values of both types have one hash; whole numbers are hashed in one
    size.

    This is false for floats, which have two zeros.
    """
    if pa.types.is_integer(one) and pa.types.is_integer(other):
        return True
    return one == other and not (pa.types.is_floating(one) or pa.types.is_nested(one))


def keys_in(
    database: Database, files: Files, names: Sequence[str], equal: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return the distinct keys in some files, with their hash."""
    cursor = database.cursor()
    schema = pa.schema([*(files.layout.schema.field(name) for name in names), HASH])
    sql = (
        f"SELECT k.*, {_hash('k', equal, schema)} AS {quote_name(HASH.name)} FROM "
        f"(SELECT DISTINCT {name_list(names)} FROM ({files.bind(cursor)})) AS k"
    )
    return stream(cursor, sql, schema, files.layout.table)


def hashed(
    database: Database, rows: pa.RecordBatchReader, equal: Sequence[str], table: str
) -> Iterator[pa.RecordBatch]:
    """Return rows with the hash of their keys."""
    cursor = database.cursor()
    tap = Tap(rows.schema, rows)
    cursor.register("__lakevilla_source", tap.reader)
    schema = rows.schema.append(HASH)
    sql = (
        f"SELECT s.*, {_hash('s', equal, schema)} AS {quote_name(HASH.name)} "
        "FROM __lakevilla_source AS s"
    )
    return stream(cursor, sql, schema, table, (tap,))


def _hash(alias: str, equal: Sequence[str], schema: pa.Schema) -> str:
    values = []
    for name in equal:
        value = column_of(alias, (name,))
        is_whole = pa.types.is_integer(schema.field(name).type)
        values.append(f"CAST({value} AS BIGINT)" if is_whole else value)
    return f"hash({', '.join(values)})"


class Routing:
    """Keys and source rows of some hashes, to assign each row to parts of the target, or to none.

    ``source`` are the columns of the rows, numbered.
    """

    def __init__(
        self,
        database: Database,
        layout: Layout,
        spec: MergeSpec,
        names: Sequence[str],
        source: pa.Schema,
    ) -> None:
        self._table = layout.table
        self._cursor: duckdb.DuckDBPyConnection = database.cursor(watched=False)
        self._source = source
        keys = pa.schema([*(layout.schema.field(name) for name in names), PART])
        self._schemas = {spec.source_alias: source, spec.target_alias: layout.schema}

        def column(path: tuple[str, ...], table: str | None) -> str:
            return column_of("s" if table == spec.source_alias else "t", path)

        self._on = to_duckdb(spec.on, self._schemas, column=column)
        for name, schema in (("keys", keys), ("source", source)):
            self._cursor.register("__lakevilla_none", schema.empty_table())
            self._cursor.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM __lakevilla_none")

    def add(self, name: str, rows: pa.Table) -> None:
        """Add rows to the tables ``keys`` or ``source``."""
        with translated(self._table):
            self._cursor.register("__lakevilla_some", rows)
            self._cursor.execute(f"INSERT INTO {name} SELECT * FROM __lakevilla_some")
            self._cursor.unregister("__lakevilla_some")

    def pair(self) -> None:
        """Find which rows concern which parts, after all rows and keys are added."""
        number, part = quote_name(NUMBER.name), quote_name(PART.name)
        with translated(self._table):
            ((keys, rows),) = self._cursor.execute(
                "SELECT (SELECT count(*) FROM keys), (SELECT count(*) FROM source)"
            ).fetchall()
            sides = ["keys AS t", "source AS s"]
            if rows > keys:  # the smaller one last: it is kept in memory
                sides.reverse()
            self._cursor.execute(
                f"CREATE TEMP TABLE routes AS SELECT DISTINCT t.{part} AS part, "
                f"s.{number} AS number FROM {sides[0]} JOIN {sides[1]} ON {self._on}"
            )

    def routed(self) -> Iterator[pa.RecordBatch]:
        """Return each row once for each part that has a key equal to the row's, with that part."""
        schema = self._source.append(PART)
        sql = (
            f"SELECT s.*, r.part AS {quote_name(PART.name)} FROM source AS s "
            f"JOIN routes AS r ON r.number = s.{quote_name(NUMBER.name)}"
        )
        return stream(self._cursor, sql, schema, self._table)

    def unmatched(self) -> pa.RecordBatchReader:
        """Return the rows that match no key, without their numbers."""
        rest = pa.schema(list(self._source)[:-1])
        number = quote_name(NUMBER.name)
        sql = (
            f"SELECT {name_list(rest.names)} FROM source AS s "
            f"ANTI JOIN routes AS r ON r.number = s.{number}"
        )
        rows: Iterable[pa.RecordBatch] = stream(self._cursor, sql, rest, self._table)
        return pa.RecordBatchReader.from_batches(rest, rows)

    def close(self) -> None:
        for name in ("keys", "source", "routes"):
            self._cursor.execute(f"DROP TABLE IF EXISTS {name}")
        self._cursor.close()
