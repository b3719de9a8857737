"""A table as a relation of DuckDB, and the filters above it."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pyarrow as pa

from lakevilla.arrow.cast import INITIAL_DEFAULT, array
from lakevilla.arrow.cast import default_text as default_of
from lakevilla.engines.base import DataAccess, FilePart, TableInput
from lakevilla.engines.deletes import Deleted, read_deletes
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import Database
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.engines.duckdb.file_system import (
    GivenFiles,
    literally,
    readable_path,
    with_keys,
    without_rows,
)
from lakevilla.engines.duckdb.reading.constants import (
    Constants,
    PartitionKey,
    binary_of,
    constant_sql,
    constants_of,
    constants_within,
    default_text,
    partition_keys,
    written_keys,
)
from lakevilla.engines.duckdb.reading.footers import Called, called_in, field_id, rows_within
from lakevilla.engines.duckdb.sqltext import (
    ABSENT,
    any_of,
    default_sql,
    has_bytes,
    is_bytes,
    quote_name,
    quote_text,
    renamed,
    sql_type,
)
from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.forked import lock
from lakevilla.formats.files import about_rows, file_key, hashes, paths_elsewhere
from lakevilla.formats.iceberg.metadata.schema import names_of
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.sql.expressions.loosen import loosened
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.content import ROUND_BYTES, HashedFile
from lakevilla.store.effects import Program

# -------------------- relation
#
# A table's files as one SQL relation with the table's columns, whatever the files hold.
#
# Files are read through a schema given to ``read_parquet``: a column that an old file lacks is
# NULL, one that was widened since is cast, one that was renamed is found by its physical name or
# field id. If a column may have been cast, filters apply to it above the cast (see ``above``).
# Partition columns are constants from the log, never from paths. Deletion vectors are an anti-join
# on file and row number.
#
# Rows on their way into other files have their lineage too: an id, and the version of the commit
# that last changed them. Both are stored in the row's file, or follow from the file's own numbers
# and the row's place in it (docs/design/0063-row-ids.md).


#: Columns of every relation in addition to the table's own: the file's place in the table input,
#: and the row's place in the file.
FILE, ROW = '"__lakevilla_file"', '"__lakevilla_row"'

# Up to this many combinations of partition values each become a branch of their
# own, in which the values are constants that DuckDB prunes by; beyond, a join.
_BRANCH_LIMIT = 64
# Up to this many footers are read before a query, for its plan.
_FOOTER_LIMIT = 1000
# Up to this many rows are named by their numbers; more are joined, as the time of a condition grows
# with them.
_MOST_NAMED = 1000
# Options for several files, whose footers are all read for their schema, and for a single file,
# which has its own.
_UNION, _ALONE = "union_by_name = true", "union_by_name = false"
# DuckDB reads a single file through a given schema by one thread, and another thread, which has
# nothing to do, spins meanwhile. From this size on, a file without rows is read with it: of
# several files, all threads read. https://github.com/duckdb/duckdb/issues/22178 (it spins)
_SHARED_BYTES = 1 << 20
_AS_TEXT = ", binary_as_string = true"
_VIRTUAL = ("filename", "file_index", "file_row_number")

#: The description of files whose footers were not read.
_AS_IN_TABLE = Called()
_NOTHING_DELETED = Deleted()
#: Files by their constants, their description, and a condition on the numbers of rows.
_Groups = dict[tuple[Constants, Called, str], list[int]]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Options with which ``bind`` reads files; ``where`` is loosened, and applied in the files."""

    uniform: bool
    as_stored: frozenset[str]
    where: Expr | None
    placed: bool
    counted: bool


@dataclass(frozen=True)
class Files:
    """The files of a table input, or some of them, ready to be queried.

    ``partitions`` are the partitions into which the rows would be written now; None where a file's
    rows may belong to several. ``constants`` are the values that all rows of a file have in columns
    that are not in it. ``origins`` are, where rows have ids, those of each file's first row and the
    version of the commit that added the file; None where the log has not assigned them yet.
    ``lineage`` are the columns that the relation then has too. ``name`` is the prefix of the
    ``helpers``, tables that ``bind`` registers on a cursor.
    """

    layout: Layout
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    partitions: tuple[PartitionKey | None, ...]
    constants: tuple[Constants, ...]
    deleted: Deleted
    name: str
    chosen: tuple[int, ...]
    within: tuple[frozenset[int], ...] = ()
    parts: tuple[FilePart | None, ...] = ()
    rows: tuple[tuple[int, ...], ...] | None = None
    origins: tuple[tuple[int | None, int | None], ...] = ()
    lineage: tuple[pa.Field, ...] = ()
    stats: pa.ChunkedArray | None = dataclasses.field(default=None, repr=False, compare=False)
    called: dict[str, Called] = dataclasses.field(default_factory=dict, repr=False)
    helpers: set[str] = dataclasses.field(default_factory=set, repr=False)

    def only(self, ordinals: Iterable[int]) -> Files:
        """Return some of the files; their places stay unchanged."""
        return replace(self, chosen=tuple(ordinals))

    def bytes(self) -> int:
        return sum(self.read_bytes(i) for i in self.chosen)

    def read_bytes(self, ordinal: int) -> int:
        """Return about how many bytes of a file are read."""
        part = self.parts[ordinal] if self.parts else None
        return self.sizes[ordinal] if part is None else self.sizes[ordinal] // part.count

    def is_uniform(self, cursor: duckdb.DuckDBPyConnection) -> bool:
        """Return whether the files have exactly the table's columns, and so are read without a
        given schema.

        The check reads their footers. DuckDB's planner then gets the files' statistics, which a
        given schema hides.
        """
        layout = self.layout
        fields = [layout.physical.field(i) for i in data_columns(layout)]
        if (
            not self.chosen
            or not fields
            or layout.by_field_id
            or len(self.chosen) > _FOOTER_LIMIT
            or any(field.name in _VIRTUAL or nan_within_lists(field.type) for field in fields)
        ):
            return False
        self._look(cursor)
        if any(self._called(ordinal).kinds is not None for ordinal in self.chosen):
            return False
        want = ", ".join(f"CAST(NULL AS {sql_type(f.type)})" for f in fields)
        wanted = [row[1] for row in cursor.execute(f"DESCRIBE SELECT {want}").fetchall()]
        # Qualify names: an unqualified "user", which no file holds, is a function of DuckDB's.
        names = ", ".join(f"s.{quote_name(field.name)}" for field in fields)
        for members in self._read_together(cursor):
            have = f"DESCRIBE SELECT {names} FROM {self._read(members, _UNION)} AS s"
            try:
                types = [row[1] for row in cursor.execute(have).fetchall()]
            except duckdb.BinderException:
                return False  # all of these lack a column
            if types != wanted:
                return False
        return True

    def _read_together(self, cursor: duckdb.DuckDBPyConnection) -> list[list[int]]:
        """Return the files that ``bind`` passes to one ``read_parquet``, in groups."""
        groups: _Groups = {}
        for ordinal in self.chosen:
            key = self.constants[ordinal], self._called(ordinal), self._rows(cursor, ordinal)
            groups.setdefault(key, []).append(ordinal)
        if self._are_branches(groups):
            return list(groups.values())
        return list(_but_for_constants(groups).values())

    def _are_branches(self, groups: _Groups) -> bool:
        """Return whether each group is read on its own, whatever its constants are."""
        return len(groups) <= _BRANCH_LIMIT or not self.layout.partition_by

    def as_stored(self, cursor: duckdb.DuckDBPyConnection) -> frozenset[str]:
        """Return columns that no file has in another type, though files might; this reads the
        footers.
        """
        layout = self.layout
        doubtful = [
            i
            for i in data_columns(layout)
            if may_be_narrower(layout.physical.field(i).type)
            and not pa.types.is_nested(layout.physical.field(i).type)
        ]
        if not self.chosen or not doubtful or len(self.chosen) > _FOOTER_LIMIT:
            return frozenset()
        paths = (self.paths[i] for i in self.chosen)
        found = stored_as(cursor, layout, paths, doubtful)
        return frozenset(layout.schema.field(i).name for i in found)

    def bind(
        self,
        cursor: duckdb.DuckDBPyConnection,
        *,
        where: Expr | None = None,
        uniform: bool = False,
        as_stored: frozenset[str] = frozenset(),
        placed: bool = True,
        counted: bool = False,
        lineage: bool = False,
    ) -> str:
        """Return the relation's SQL; its helper tables are registered on ``cursor``.

        Rows for which ``where``, bound, is not true may be left out. Unless it is ``placed``, the
        relation has the table's columns alone: then DuckDB need not count rows. If it is
        ``counted``, the planner gets the number of rows from the table's log; for ``uniform`` files
        it knows it from their footers. With ``lineage``, it also has the columns of the layout's
        ``lineage``, if there are any.
        """
        if lineage and self.layout.lineage:
            return self._with_lineage().bind(cursor, where=where)
        if not placed and (self.deleted.are_joined or self._are_rows_joined):
            sql = self.bind(
                cursor, where=where, uniform=uniform, as_stored=as_stored, counted=counted
            )
            return f"SELECT * EXCLUDE ({FILE}, {ROW}) FROM ({sql})"
        if not self.chosen:
            return self._empty(placed)
        self._look(cursor)
        reading = _Reading(uniform, as_stored, self._loosened(where), placed, counted)
        groups: _Groups = {}
        for ordinal in self.chosen:
            called, constants = self._called(ordinal), self.constants[ordinal]
            if self.layout.known_as is not None:
                constants = tuple(one for one in constants if one[0] in called.lacks)
                self._check_held(ordinal, called)
            groups.setdefault((constants, called, self._rows(cursor, ordinal)), []).append(ordinal)
        if self._are_branches(groups):
            sql = " UNION ALL ".join(
                self._select(members, self._spelled(constants), reading, called=own, rows=rows)
                for (constants, own, rows), members in groups.items()
            )
        else:
            alike = _but_for_constants(groups)
            sql = " UNION ALL ".join(
                self._joined(cursor, sorted(members), number, reading, called, rows)
                for number, ((called, rows), members) in enumerate(alike.items())
            )
        return self._without_deleted(cursor, sql)

    def _with_lineage(self) -> Files:
        # A file in which columns are found by id is described otherwise: see ``called_in``.
        layout = self.layout
        called = {} if layout.by_field_id and layout.known_as is None else self.called
        return replace(self, lineage=layout.lineage, called=called)

    def _look(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Read the footers that are needed and were not read yet."""
        fresh = [self.paths[i] for i in self.chosen if self.paths[i] not in self.called]
        named = bool(self.lineage)
        self.called.update(called_in(cursor, self.layout, fresh, named=named))

    def _rows(self, cursor: duckdb.DuckDBPyConnection, ordinal: int) -> str:
        """Return a condition on the numbers of rows that are read; empty if all are read."""
        part = self.parts[ordinal] if self.parts else None
        conditions = []
        if part is not None:
            conditions.append(rows_within(cursor, self.paths[ordinal], part, self.layout.table))
        if self.rows is not None and not self._are_rows_joined:
            places = ", ".join(map(str, self.rows[ordinal])) or "NULL"
            conditions.append(f"file_row_number IN ({places})")
        if deleted := self.deleted.few.get(ordinal):
            conditions.append(f"file_row_number NOT IN ({', '.join(map(str, deleted))})")
        return " AND ".join(conditions)

    @property
    def _are_rows_joined(self) -> bool:
        """Return whether there are too many ``rows`` to name them in a condition."""
        return self.rows is not None and sum(map(len, self.rows)) > _MOST_NAMED

    def _called(self, ordinal: int) -> Called:
        return self.called.get(self.paths[ordinal], _AS_IN_TABLE)

    def _check_held(self, ordinal: int, called: Called) -> None:
        """Refuse a file that lacks values which no default and no partition value replaces."""
        supplied = {column for column, _ in (*self.layout.defaults, *self.constants[ordinal])}
        path = with_keys(self.paths[ordinal])
        for column in sorted(called.lacks - supplied):
            field = self.layout.schema.field(column)
            if not field.nullable and default_of(field, INITIAL_DEFAULT) is None:
                raise CorruptObject(
                    f"column {column} of table {self.layout.table} is required, and data file "
                    f"{path} does not hold it: restore the file, or let the column "
                    f"be NULL there with alter(drop_not_null=[{column!r}])",
                    table=self.layout.table,
                )
        if not called.lacks_within.isdisjoint(self.within[ordinal]):
            raise UnsupportedTableFeature(
                f"table {self.layout.table} is partitioned by a field of a struct that data file "
                f"{path} does not hold: LakeVilla does not fill it in; rewrite the "
                "file with the client that wrote it",
                table=self.layout.table,
            )

    def _without_deleted(self, cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
        if self.rows is not None and self._are_rows_joined:
            files = np.repeat(np.arange(len(self.rows)), [len(one) for one in self.rows])
            rows = np.concatenate([np.asarray(one, np.int64) for one in self.rows])
            wanted = self._help(cursor, "wanted", pa.table({"file": files, "row": rows}))
            sql = (
                f"SELECT s.* FROM ({sql}) AS s SEMI JOIN {wanted} AS w "
                f"ON s.{FILE} = w.file AND s.{ROW} = w.row"
            )
        if self.deleted.positions is not None:
            deleted = self._help(cursor, "deleted", self.deleted.positions)
            sql = (
                f"SELECT s.* FROM ({sql}) AS s ANTI JOIN {deleted} AS d "
                f"ON s.{FILE} = d.file AND s.{ROW} = d.row"
            )
        for number, one in enumerate(self.deleted.equality):
            helper = self._help(cursor, f"equal{number}", one.rows)
            agree = " AND ".join(
                f"s.{quote_name(column)} IS NOT DISTINCT FROM e.{quote_name(column)}"
                for column in one.rows.schema.names
            )
            places = ", ".join(map(str, one.ordinals))
            sql = (
                f"SELECT s.* FROM ({sql}) AS s ANTI JOIN {helper} AS e "
                f"ON {agree} AND s.{FILE} IN ({places})"
            )
        return sql

    def _help(self, cursor: duckdb.DuckDBPyConnection, suffix: str, rows: pa.Table) -> str:
        name = f"{self.name}_{suffix}"
        cursor.register(name, rows)
        self.helpers.add(name)
        return name

    def _spelled(self, constants: Constants) -> dict[str, str]:
        """Return the values of columns that are in no file, or not in all: SQL by column."""
        layout = self.layout
        found = {}
        for column, value in (*layout.defaults, *constants):
            index = layout.schema.get_field_index(column)
            if column in layout.partition_by:
                found[column] = constant_sql(value, layout.schema.field(index).type)
            else:
                found[column] = default_text(value, layout.physical.field(index).type)
        return found

    def _select(
        self,
        members: Sequence[int],
        partitions: dict[str, str],
        reading: _Reading,
        join: str = "",
        called: Called = _AS_IN_TABLE,
        rows: str = "",
    ) -> str:
        layout = self.layout
        columns, entries = [], []
        inner_names: dict[str, str] = {}
        for index, (field, physical) in enumerate(zip(layout.schema, layout.physical, strict=True)):
            if field.name in layout.partition_by:
                columns.append(f"{partitions[field.name]} AS {quote_name(field.name)}")
                continue
            # Inner names that no column of a user can have: a table may well
            # have a column called "filename", which DuckDB gives a meaning.
            inner = quote_name(physical.name) if reading.uniform else f"__lakevilla_c{index}"
            missing = partitions.get(field.name, "NULL")
            name = None
            if called.names is not None:
                name = called.names[index] or f"{ABSENT}{index}"
            if called.kinds is not None:
                physical = physical.with_type(called.kinds[index])
            entries.append(_schema_entry(layout, inner, physical, missing, name))
            inner_names[field.name] = inner
            value = _value(inner, physical.type, field, called, reading)
            columns.append(f"{value} AS {quote_name(field.name)}")
        if self.lineage:
            self._add_lineage(entries, columns, members, called)
        if not entries:
            entries.append(
                "'__lakevilla_none': {'name': '__lakevilla_none', 'type': 'BOOLEAN', "
                "'default_value': NULL}"
            )
        if reading.placed:
            columns += [f"{_place(members)} AS {FILE}", f"file_row_number AS {ROW}"]
        read_options = f"schema = MAP {{{', '.join(entries)}}}"
        if reading.counted:
            read_options += f", explicit_cardinality = {self._about_rows(members)}"
        if reading.uniform:
            read_options = _UNION if len(members) > 1 else _ALONE
        conditions = [rows] if rows else []
        if reading.where is not None:
            where = to_duckdb(reading.where, layout.schema, lambda path, _: inner_names[path[0]])
            conditions.append(f"({where})")
        if conditions:
            join += f" WHERE {' AND '.join(conditions)}"
        return f"SELECT {', '.join(columns)} FROM {self._read(members, read_options)}{join}"

    def _about_rows(self, members: Sequence[int]) -> int:
        stats = None if self.stats is None else self.stats.take(array(members, pa.int64()))
        return about_rows(stats, [self.sizes[i] for i in members])

    def _add_lineage(
        self, entries: list[str], columns: list[str], members: Sequence[int], called: Called
    ) -> None:
        """Add the columns of the lineage to the schema that is read, and to the relation's."""
        firsts, versions = zip(*(self.origins[i] for i in members), strict=True)
        inherited = (row_id(_of_file(firsts)), _of_file(versions))
        for number, (field, value) in enumerate(zip(self.lineage, inherited, strict=True)):
            inner = f"__lakevilla_lineage{number}"
            name = None if called.names is None else field.name
            if name is not None and self.layout.known_as is not None:
                # An Iceberg file without field ids has no such column: its writer knew no lineage.
                name = f"__lakevilla_absent_{name}"
            entries.append(_schema_entry(self.layout, inner, field, "NULL", name))
            columns.append(f"{coalesced(inner, value)} AS {quote_name(field.name)}")

    def _loosened(self, where: Expr | None) -> Expr | None:
        """Return ``where`` loosened for the files; ``where`` itself applies above the cast."""
        layout = self.layout
        if where is None:
            return None
        kinds = {
            layout.schema.field(i).name: layout.physical.field(i).type for i in data_columns(layout)
        }
        columns = {
            name
            for name, kind in kinds.items()
            if not pa.types.is_nested(kind) and (may_have_nan(kind) or may_be_narrower(kind))
        }
        return loosened(where, columns)

    def _read(self, members: Sequence[int], read_options: str) -> str:
        named = [self.paths[i] for i in members]
        has_schema = read_options.startswith("schema")
        if has_schema and len(members) == 1 and self.sizes[members[0]] >= _SHARED_BYTES:
            named.append(without_rows())
        paths = ", ".join(map(quote_text, named))
        # Text of old Hive and Impala files has no annotation: DuckDB would write its bytes out. In
        # a table that has columns of bytes, the footers show which is text (``Called.kinds``).
        text = "" if any(map(has_bytes, self.layout.physical.types)) else _AS_TEXT
        return f"read_parquet([{paths}], {read_options}, hive_partitioning = false{text})"

    def _joined(
        self,
        cursor: duckdb.DuckDBPyConnection,
        members: Sequence[int],
        number: int,
        reading: _Reading,
        called: Called,
        rows: str,
    ) -> str:
        columns: dict[str, pa.Array] = {"place": pa.array(range(len(members)), pa.uint64())}
        partitions = {}
        for index, column in enumerate(self.layout.partition_by):
            kind = self.layout.schema.field(column).type
            values = [self.constants[i][index][1] for i in members]
            if is_bytes(kind):
                columns[f"p{index}"] = pa.array([binary_of(v) for v in values], pa.binary())
            else:
                columns[f"p{index}"] = pa.array([v or None for v in values], pa.string())
            partitions[column] = f"CAST(h.p{index} AS {sql_type(kind)})"
        helper = self._help(cursor, f"partitions{number}", pa.table(columns))
        join = f" JOIN {helper} AS h ON file_index = h.place"
        return self._select(members, partitions, reading, join, called, rows)

    def _empty(self, placed: bool) -> str:
        columns = [
            f"CAST(NULL AS {sql_type(f.type)}) AS {quote_name(f.name)}"
            for f in (*self.layout.schema, *self.lineage)
        ]
        if placed:
            columns += [f"CAST(NULL AS BIGINT) AS {FILE}", f"CAST(NULL AS BIGINT) AS {ROW}"]
        return f"SELECT {', '.join(columns)} WHERE false"


def _value(
    inner: str, kind: pa.DataType, field: pa.Field, called: Called, reading: _Reading
) -> str:
    """Return a column's values, from the column ``inner`` that files are read as."""
    if field.name in called.lacks and pa.types.is_struct(field.type):
        return default_sql(field)
    value = renamed(inner, kind, field.type)
    if (
        may_have_nan(kind)
        or has_bytes(kind)
        or (may_be_narrower(kind) and field.name not in reading.as_stored)
    ):
        value = above(value)
    return above_lists(value) if nan_within_lists(kind) else value


def _but_for_constants(groups: _Groups) -> dict[tuple[Called, str], list[int]]:
    """Return the groups that differ in more than their constants."""
    alike: dict[tuple[Called, str], list[int]] = {}
    for (_, called, rows), members in groups.items():
        alike.setdefault((called, rows), []).extend(members)
    return alike


def _place(members: Sequence[int]) -> str:
    """Return the place, in the table input, of the file that a row belongs to."""
    if len(members) == 1:
        return f"CAST({members[0]} AS BIGINT)"
    if members[-1] - members[0] == len(members) - 1:
        return f"CAST(file_index + {members[0]} AS BIGINT)"
    listed = ", ".join(map(str, members))
    return f"CAST([{listed}][CAST(file_index + 1 AS BIGINT)] AS BIGINT)"


def _of_file(values: Sequence[int | None]) -> str:
    """Return the number of the file that a row belongs to, given those of the files in order."""
    texts = ["NULL" if value is None else str(value) for value in values]
    if len(set(texts)) == 1:
        return f"CAST({texts[0]} AS BIGINT)"
    return f"CAST([{', '.join(texts)}][CAST(file_index + 1 AS BIGINT)] AS BIGINT)"


def row_id(first: str) -> str:
    """Return the id that a row inherits: that of the file's first row, and the row's place in it.

    Deleted rows count: a row keeps its place.
    """
    return f"{first} + file_row_number"


def coalesced(stored: str, inherited: str) -> str:
    """Return what is stored with a row, or else what it inherits; NULL where neither is known."""
    return f"coalesce({stored}, {inherited})"


def read_files(
    data: DataAccess, table: TableInput, name: str, given: GivenFiles | None = None
) -> Program[Files]:
    """Return the files of ``table`` with their deletion vectors, which are read now.

    If ``given`` is passed, it makes the names of the files.
    """
    data.admit(paths_elsewhere(table.files), table.layout.table)
    deleted = yield from read_deletes(table)
    return whole_files(data, table, name, deleted, given)


def whole_files(
    data: DataAccess,
    table: TableInput,
    name: str,
    deleted: Deleted = _NOTHING_DELETED,
    given: GivenFiles | None = None,
) -> Files:
    """Return the files of ``table`` with all their rows except those that are ``deleted``."""
    layout, files = table.layout, table.files
    keys = [file_key(layout.location, path) for path in files.column("path").to_pylist()]
    sizes = files.column("size").to_pylist()
    if given is None:
        paths = [readable_path(data, key, size) for key, size in zip(keys, sizes, strict=True)]
    else:
        times = files.column("modification_time").to_pylist()
        paths = list(map(given.give, keys, sizes, times))
    partitions = partition_keys(table)
    return Files(
        layout=layout,
        paths=tuple(paths),
        sizes=tuple(sizes),
        partitions=tuple(written_keys(table) if layout.known_as is not None else partitions),
        constants=tuple(constants_of(table, partitions)),
        deleted=deleted,
        name=f"__lakevilla_{name}",
        chosen=tuple(range(len(paths))),
        within=constants_within(table),
        parts=table.parts,
        rows=table.rows,
        origins=origins_of(files) if layout.lineage else (),
        stats=files.column("stats"),
    )


def origins_of(files: pa.Table) -> tuple[tuple[int | None, int | None], ...]:
    """Return, of each file, the id of its first row and the version of the commit that added it.

    Both are None for a file whose commit is not in the table's log yet: the entry will assign them,
    and another client may be first, so they are not guessed.
    """
    columns = (files.column(name) for name in ("base_row_id", "default_row_commit_version"))
    return tuple(zip(*(column.to_pylist() for column in columns), strict=True))


def data_columns(layout: Layout) -> list[int]:
    """Return the places of the columns that files hold: all except the partition columns."""
    return [i for i, f in enumerate(layout.schema) if f.name not in layout.partition_by]


def _schema_entry(
    layout: Layout, inner: str, physical: pa.Field, missing: str, name: str | None
) -> str:
    """Return the entry of a column in the schema of ``read_parquet``.

    ``missing``: the value of rows of a file that lacks the column; ``name``: the column's name in a
    file that has no field ids.
    """
    if layout.by_field_id and name is None:
        key = str(field_id(physical))
    else:
        key = quote_text(name or physical.name)
    return (
        f"{key}: {{'name': {quote_text(inner)}, 'type': {quote_text(sql_type(physical.type))}, "
        f"'default_value': {missing}}}"
    )


# -------------------- above
#
# Columns to which filters apply above the result of the reader, and not in the file.
#
# DuckDB pushes a filter into ``read_parquet``, through the cast from the file's type to the
# table's, and compares there; it also checks the file's statistics first, which leave NaN out. The
# first makes ``x <= 1.6`` of whole numbers ``x <= 2``, the second makes ``x > 5`` of NaN false and
# ``x <= 5`` true. So no filter reaches a column that a file may hold in a type to which a constant
# must be rounded, or that may hold NaN; ``expressions.loosen`` says which conditions may.
# https://github.com/duckdb/duckdb/issues/24900 (constants)
# https://github.com/duckdb/duckdb/issues/25521 (NaN)
#
# Nor does a filter reach a column of bytes: DuckDB (1.5.5) searches a file's Bloom filter for bytes
# as it would print them, with a backslash, and skips all files that hold the value.
# https://github.com/duckdb/duckdb/pull/23829
#
# Nor does a filter reach any column where a statement has ``x IS DISTINCT FROM c`` together with
# another comparison of ``x``. For an OR of comparisons of one column with constants, DuckDB (1.5.5)
# checks statistics, those of a row group in a file as well as those of its own tables. These treat
# ``x IS DISTINCT FROM c`` as ``x <> c``: DuckDB skips row groups whose values are all NULL, or
# ``c`` and NULL. See ``closed.Admission``.
# https://github.com/duckdb/duckdb/issues/25992


def above(sql: str) -> str:
    """Return SQL of the same value, past which DuckDB pushes no filter and no statistics."""
    return f"CASE WHEN {sql} IS NULL THEN NULL ELSE {sql} END"


def above_lists(sql: str) -> str:
    """Return SQL of the same value, also without statistics of its lists and maps.

    In DuckDB 2, statistics of values within lists pass ``above``. ``greatest`` of one value returns
    that value, and DuckDB knows no bounds of it.
    """
    return f"greatest({sql})"


def all_above(sql: str, names: Iterable[str]) -> str:
    """Return SQL of the same rows, past whose columns DuckDB pushes no filter and no statistics."""
    columns = (f"{above(quote_name(name))} AS {quote_name(name)}" for name in names)
    return f"SELECT {', '.join(columns)} FROM ({sql})"


def may_be_narrower(kind: pa.DataType) -> bool:
    """Return whether files may store the type, or one within it, as one that can't hold all
    constants.

    This is false for whole numbers: a constant beyond the file's type is not cast.
    """
    return any_of(kind, lambda leaf: pa.types.is_decimal(leaf) or pa.types.is_timestamp(leaf))


def may_have_nan(kind: pa.DataType) -> bool:
    """Return whether the type, or one within it, has NaN; a file may store it in a
    narrower type.
    """
    return any_of(kind, pa.types.is_floating)


def nan_within_lists(kind: pa.DataType) -> bool:
    """Return whether NaN may be in a list or a map, whose statistics pass ``above``."""
    if pa.types.is_struct(kind):
        return any(nan_within_lists(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_nested(kind)) and may_have_nan(kind)


def stored_as(
    cursor: duckdb.DuckDBPyConnection, layout: Layout, paths: Iterable[str], places: Sequence[int]
) -> list[int]:
    """Return those of the given columns, none nested, that each file lacks or has in the table's
    type.
    """
    if layout.by_field_id and names_of(layout.properties, layout.table) is not None:
        return []  # a file may have any names for them
    listed = ", ".join(map(quote_text, paths))
    key = "field_id" if layout.by_field_id else "name"
    types = ", ".join(
        f"(SELECT typeof(CAST(NULL AS {sql_type(layout.physical.field(i).type)})))" for i in places
    )
    (wanted,) = cursor.execute(f"SELECT {types}").fetchall()
    types_in_files: dict[int | str, set[str]] = {}
    query = f"SELECT DISTINCT {key}, duckdb_type FROM parquet_schema([{listed}])"
    for name, type_ in cursor.execute(query).fetchall():
        types_in_files.setdefault(name, set()).add(type_)
    # By name, a field of a struct may be taken for the column: at worst, its filters stay above.
    fields = [layout.physical.field(i) for i in places]
    own = [field_id(field) if layout.by_field_id else field.name for field in fields]
    return [
        index
        for index, name, type_ in zip(places, own, wanted, strict=True)
        if types_in_files.get(name, set()) <= {type_}
    ]


# -------------------- compared
#
# Files that are compared with their hashes before they are read.
#
# Whole files are compared. Files of a store are copied to this machine first, into the engine's
# private directory, so that the rows are read from the very bytes that were compared.


def in_turn(
    data: DataAccess, database: Database, table: TableInput, files: Files
) -> Iterator[Files]:
    """Yield some of the files at a time, each compared while it is current: a scan keeps no more.

    A file without a hash is read as usual.
    """
    for group in _groups(files):
        with compared(data, database, table, files.only(group)) as some:
            yield some


@contextmanager
def compared(
    data: DataAccess,
    database: Database,
    table: TableInput,
    files: Files,
    named: Callable[[str, int, str], str] | None = None,
) -> Iterator[Files]:
    """Return a block in which the chosen files exist, each compared with its hash if it has one.

    ``named`` returns the name of a copy, by its key, size and path, where names are given.
    """
    layout = table.layout
    keys, found = table.files["path"].to_pylist(), hashes(table.files)
    chosen = [
        (
            place,
            HashedFile(
                file_key(layout.location, keys[place]), files.sizes[place], content, layout.table
            ),
        )
        for place in files.chosen
        if (content := found[place]) is not None
    ]
    paths = list(files.paths)
    with data.compared([file for _, file in chosen], database.directory) as local:
        for (place, file), path in zip(chosen, local, strict=True):
            if data.local_path(file.key) is None:
                paths[place] = (
                    literally(path) if named is None else named(file.key, file.size, path)
                )
        yield replace(files, paths=tuple(paths), called={}, helpers=set())


def _groups(files: Files) -> Iterator[list[int]]:
    """Yield consecutive files of about one round; a larger file alone."""
    group: list[int] = []
    size = 0
    for index in files.chosen:
        if group and size + files.sizes[index] > ROUND_BYTES:
            yield group
            group, size = [], 0
        group.append(index)
        size += files.sizes[index]
    if group:
        yield group


# -------------------- given
#
# The files of tables for SQL of users, under names that only a statement over them knows.


#: The most files of all tables together: some hundred bytes are kept for each.
_MOST_FILES = 100_000
#: This many bytes of a table's deletes count as one more file.
_BYTES_OF_A_FILE = 256


class GivenTables:
    """``Files`` of tables as they were last requested: the same object while a table is the same.

    They include the deletes: vectors and delete files never change, and a table with other ones is
    not the same. Threads need no lock for them: if one thread replaces the object of another, the
    new object is as good.

    Names of files are kept for longer: queries with other conditions leave other files of a table,
    and the data that was read of a file is found by its name alone.
    """

    def __init__(self, data: DataAccess, ids: Ids) -> None:
        self._data = data
        self.names = GivenFiles(data, ids.nonce)
        self._known: dict[str, tuple[Layout, pa.Table, Files]] = {}
        self._numbers = count()
        self._lock = lock()
        #: The names, in the order of their last use: the most recent is the last.
        self._held: OrderedDict[str, None] = OrderedDict()

    def files(self, table: TableInput) -> Program[Files]:
        """Return the files of ``table``."""
        location = table.layout.location
        known = self._known.get(location)
        if known is not None and known[0] is table.layout and _same(known[1], table.files):
            return known[2]
        files = yield from self.unkept_files(table)
        self._known.pop(location, None)
        self._known[location] = (table.layout, table.files, files)
        self._drop_oldest()
        self._hold(files.paths)
        return files

    def unkept_files(self, table: TableInput) -> Program[Files]:
        """Return the files of ``table``, which are not kept for the next caller."""
        name = f"table{next(self._numbers)}"
        return (yield from read_files(self._data, table, name, self.names))

    def _hold(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._held[name] = None
                self._held.move_to_end(name)
            while len(self._held) > _MOST_FILES:
                self._held.popitem(last=False)

    def _drop_oldest(self) -> None:
        known = list(self._known.items())
        weight = sum(_weight(files) for _, (_, _, files) in known)
        for location, (_, _, files) in known:
            if weight <= _MOST_FILES:
                return
            self._known.pop(location, None)
            weight -= _weight(files)

    def forget(self) -> None:
        """Keep no table's files any more."""
        self._known.clear()
        with self._lock:
            self._held.clear()


def _weight(files: Files) -> int:
    """Return the number of files as which a table's files and deletes count."""
    return len(files.paths) + files.deleted.nbytes // _BYTES_OF_A_FILE


def _same(one: pa.Table, other: pa.Table) -> bool:
    # A log with a checkpoint makes the table of its files again for each caller.
    return one is other or bool(one.equals(other))
