"""A closed database: statements reach the given tables alone."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import pyarrow as pa

from lakevilla.arrow.unkept import as_in_duckdb
from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.database import MOST_FILES, Database, asked, heard
from lakevilla.engines.duckdb.failures import Tap, translated
from lakevilla.engines.duckdb.file_system import STORE_URL, GivenFiles
from lakevilla.engines.duckdb.reading.constants import Constants
from lakevilla.engines.duckdb.reading.relation import FILE, Files, all_above
from lakevilla.engines.duckdb.sqltext import name_list, quote_name, quote_text
from lakevilla.engines.statistics import running
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.forked import lock, not_closed_in_child
from lakevilla.formats.files import rows_in
from lakevilla.formats.layout import Layout
from lakevilla.sql.statements.select import PURE_TABLE_FUNCTIONS, is_reaching, remembered

# -------------------- closed
#
# Databases in which SQL of users runs: closed to all but the files that they are given.
#
# One database is kept for a lake and process, with a connection for each statement at once: what it
# has read stays in its memory, and views are made again only where a table has changed. A statement
# that is not plainly one SELECT of tables has a database of its own, which is dropped with it. See
# ``docs/design/0026-one-closed-database.md``.


#: Rows that are fetched between two checks for Ctrl-C.
_ROWS_AT_ONCE = 100_000

_CLOSING = (
    # A query opens its files more than once: to plan, and to run.
    "SET parquet_metadata_cache = true",
    # A name belongs to one file with one content (``GivenFiles``): nothing has to be checked again.
    "SET validate_external_file_cache = 'NO_VALIDATION'",
    f"SET allowed_directories = ['{STORE_URL}']",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


class ClosedDatabases:
    """The database that is kept, and separate databases for one statement each."""

    def __init__(self, database: Database, files: GivenFiles) -> None:
        self._database = database
        self._files = files
        self._lock = lock()
        self._kept: _Kept | None = None
        #: The results of ``admission_of``, which depend on the text alone.
        self.admission_of = remembered(self._admission_of)

    @contextmanager
    def session(self, *, shared: bool) -> Iterator[ClosedSession]:
        """Return a connection to the kept database, or to a database for this block alone."""
        if not shared:
            with _of_its_own(ClosedSession(self._connect())) as session, _watched(session):
                yield session
            return
        kept = self._open()
        try:
            with kept.session() as session, _watched(session):
                yield session
        except (duckdb.FatalException, duckdb.InternalException):
            self._forget(kept)  # DuckDB runs no other statement in it
            raise

    def close(self) -> None:
        """Release the kept database, with all that it caches; another is made when it is needed."""
        with self._lock:
            self._kept = None

    def _open(self) -> _Kept:
        kept = self._kept
        if kept is not None and kept.owner == os.getpid():
            if self._files.made - kept.made <= MOST_FILES:
                return kept
            self._forget(kept)  # statements that run in it finish in it
        with self._lock:
            if self._kept is None or self._kept.owner != os.getpid():
                self._kept = _Kept(self._connect(), self._files.made)
            return self._kept

    def _connect(self) -> duckdb.DuckDBPyConnection:
        connection = self._database.another(self._files)
        with translated(None):
            for statement in _CLOSING:
                connection.execute(statement)
        return connection

    def _forget(self, kept: _Kept) -> None:
        with self._lock:
            if self._kept is kept:
                self._kept = None

    def _admission_of(self, sql: str, references: frozenset[Parts]) -> Admission:
        with self._open().connection.cursor() as cursor:
            return admission_of(cursor, sql, references)


class _Kept:
    """A database and its sessions; ``made``: the number of file names made before the database."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, made: int) -> None:
        self.owner, self.made = os.getpid(), made
        self.connection = connection
        self._numbers = count()
        self._idle: list[ClosedSession] = []

    @contextmanager
    def session(self) -> Iterator[ClosedSession]:
        """Return an unused session, preferring the last used one, which shows most of the requested
        tables.

        So there are as many sessions as statements at once. This counts statements that run within
        another statement: a generator in ``views`` may query the lake.
        """
        try:
            session = self._idle.pop()
        except IndexError:
            session = self._another()
        try:
            with session.in_use():
                yield session
        finally:
            if not session.is_closed:
                self._idle.append(session)

    def _another(self) -> ClosedSession:
        session = ClosedSession(not_closed_in_child(self.connection.cursor()))
        # Names of two parts are views there. Other connections can name them, and see nothing
        # through them: they are views of temporary views.
        own = quote_name(f"__lakevilla_{next(self._numbers)}")
        with translated(None):
            session.connection.execute(f"ATTACH ':memory:' AS {own}; USE {own}")
        return session


class ClosedSession:
    """A connection to a closed database, and the tables that it shows.

    A table is a temporary view, which no other connection can name.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.is_closed = False
        self._views: dict[str, _View] = {}
        self._loaded = LoadedTables(connection)
        self._catalogs: set[str] = set()
        self._passing: list[Callable[[], object]] = []

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Return a block for one statement; at its end, views that only this statement may see are
        dropped.
        """
        try:
            yield
            self._pass()
        except (duckdb.Error, LakeVillaError):
            self._pass()  # DuckDB has ended the statement, and accepts another
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, even while a statement runs in it."""
        self.is_closed = True
        self.connection.interrupt()  # closing waits for threads, which Ctrl-C has not stopped
        self.connection.close()

    def attach(self, catalogs: Set[str]) -> None:
        """Attach catalogs of these names, which names of three parts begin with.

        A name of two parts that begins so is in the catalog, too: a schema of the same name would
        be ambiguous.
        """
        for name in catalogs - self._catalogs:
            self.connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quote_name(name)}")
        self._catalogs |= catalogs

    def show(
        self, path: str, files: Files, spelled: set[Parts], *, planned: bool, above: bool
    ) -> None:
        """Show a table under its path, and under each spelling of it.

        ``planned``: the planner gets the information of the files' footers. ``above``: filters
        apply to all columns above their files.
        """
        view = self._views.get(path.lower())
        if view is None or not view.shows(path, files, planned, above):
            sql = self._relation(path, files, planned)
            if above:
                sql = all_above(sql, files.layout.schema.names)
            self._replace(path, f"VIEW {quote_name(path)} AS {sql}")
            view = _View(path, files, planned, above)
            self._views[path.lower()] = view
            if files.helpers:
                self._passing.append(lambda: self._forget(path, set(files.helpers)))
        self._spell(path, spelled - view.spelled)
        view.spelled |= spelled

    def _relation(self, path: str, files: Files, planned: bool) -> str:
        connection = self.connection
        files, loaded = self._loaded.take(path.lower(), files, lambda one: self.hide({one}))
        if loaded and not files.chosen:
            return loaded
        uniform = planned and files.is_uniform(connection)
        as_stored = files.as_stored(connection)
        sql = files.bind(
            connection, uniform=uniform, as_stored=as_stored, placed=False, counted=True
        )
        return f"{sql} UNION ALL {loaded}" if loaded else sql

    def show_rows(
        self, path: str, rows: pa.RecordBatchReader, spelled: set[Parts], *, above: bool
    ) -> None:
        """Copy rows: a statement may read them twice, and a stream returns them once.

        ``above``: filters apply to all columns above the copy.
        """
        copy = f"__lakevilla_copy {path}" if above else path
        tap = Tap(rows.schema, rows)
        stream = "__lakevilla_stream"
        self.connection.register(stream, tap.reader)
        try:
            with translated(None, (tap,)):
                self._replace(copy, f"TABLE {quote_name(copy)} AS FROM {stream}")
        finally:
            self.connection.unregister(stream)
        self._passing.append(lambda: self._drop("TABLE", copy))
        if above:
            sql = all_above(f"FROM {quote_name(copy)}", rows.schema.names)
            self._replace(path, f"VIEW {quote_name(path)} AS {sql}")
            self._passing.append(lambda: self._drop("VIEW", path))
        self._spell(path, spelled)

    def hide(self, names: Set[str]) -> None:
        """Drop the views of these names, which have another meaning in the next statement."""
        for name in names & self._views.keys():
            self._drop("VIEW", name)
            del self._views[name]

    def run(self, sql: str, params: Mapping[str, object]) -> pa.Table:
        """Return the rows of a SELECT."""
        return heard(self.connection, lambda: self._rows(sql, params))

    def _rows(self, sql: str, params: Mapping[str, object]) -> pa.Table:
        answer = asked(self.connection, sql, params)
        types = [kind for _, kind, *_ in answer.description or ()]
        batches: list[pa.RecordBatch] = []
        statement, count, size = running(), 0, 0
        # DuckDB 2 accepts no other statement while a result is open.
        with answer.to_arrow_reader(_ROWS_AT_ONCE) as reader:
            schema = reader.schema
            # Fetch in several calls: one call would notice Ctrl-C only when it has all rows, if
            # they fit in memory.
            for batch in reader:
                batches.append(batch)
                if statement is not None:
                    count, size = count + batch.num_rows, size + batch.nbytes
                    statement.check(count, size)
        rows = pa.Table.from_batches(batches, schema)
        noted = as_in_duckdb(schema, types)
        return rows if noted is schema else rows.cast(noted)

    def _pass(self) -> None:
        while self._passing:
            self._passing.pop()()

    def _replace(self, path: str, definition: str) -> None:
        self.hide({path.lower()})
        self.connection.execute(f"CREATE OR REPLACE TEMP {definition}")

    def _drop(self, kind: str, name: str) -> None:
        self.connection.execute(f"DROP {kind} temp.main.{quote_name(name)}")

    def _forget(self, path: str, helpers: set[str]) -> None:
        self.hide({path.lower()})
        for name in helpers:
            self.connection.unregister(name)

    def _spell(self, path: str, spelled: set[Parts]) -> None:
        """Create views whose names have several parts."""
        for parts in spelled:
            if len(parts) == 1:
                continue
            within = parts[:-1]
            if len(parts) == 2 and parts[0].lower() in self._catalogs:
                within = (parts[0], "main")
            schema = ".".join(map(quote_name, within))
            self.connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            self.connection.execute(
                f"CREATE OR REPLACE VIEW {schema}.{quote_name(parts[-1])} AS "
                f"FROM temp.main.{quote_name(path)}"
            )


class _View:
    """The table that a view shows, and the spellings of its name that have views."""

    def __init__(self, path: str, files: Files, planned: bool, above: bool) -> None:
        # Keep no strong reference: names of files that no statement requests any more are of no
        # use.
        self._path, self._files = path, weakref.ref(files)
        self._planned, self._above = planned, above
        self.spelled: set[Parts] = set()

    def shows(self, path: str, files: Files, planned: bool, above: bool) -> bool:
        # Compare identity: ``GivenTables`` returns the same object while the table is the same.
        same = self._path == path and self._files() is files
        return same and self._planned >= planned and self._above == above


@contextmanager
def _watched(session: ClosedSession) -> Iterator[None]:
    """Return a block that ends when the time of its statement is over.

    A connection is watched only within the block: the next statement in it may belong to any
    caller.
    """
    statement = running()
    if statement is None:
        yield
        return
    statement.watch(session.connection)
    try:
        yield
        statement.check()
    finally:
        statement.leave(session.connection)


@contextmanager
def _of_its_own(session: ClosedSession) -> Iterator[ClosedSession]:
    try:
        yield session
    finally:
        session.close()


def refuse_twins(paths: Mapping[str, object]) -> None:
    """Refuse tables that DuckDB can't distinguish.

    Raises
    ------
    InvalidOperation
        Two names differ only by case.
    """
    known: dict[str, str] = {}
    for path in paths:
        other = known.setdefault(path.lower(), path)
        if other != path:
            raise InvalidOperation(
                f"sql names {other} and {path}, which differ only by case and are one name in "
                "SQL: read one of them before, and pass it in views by another name"
            )


# -------------------- loaded
#
# Rows of small files that a session keeps, so that its statements do not read them again.
#
# A transaction that appends and selects in turn makes a small file with each append. DuckDB opens
# each file of a table for each statement: to describe it, to plan, and to run. So the session
# copies the rows of small files into a temporary table, as the relation of these files returns
# them, and reads only the other files.


#: A small file has at most so many bytes: DuckDB fetches as many with a footer, so all rows of a
#: small file take no request that a statement on one of its columns does not take.
_SMALL_BYTES = 16 * 1024
#: A small file has at most so many rows: a few bytes of Parquet may hold any number of them.
_SMALL_ROWS = 2048
#: Fewer small files than this are read each time.
_FEW_FILES = 4
#: The number of files whose rows one statement may copy.
_FILES_AT_ONCE = 1000
#: No rows are copied while temporary tables, those of other sessions too, take more than this.
_MOST_BYTES = 64 * 1024 * 1024
#: The bytes are counted again after so many files.
_UNWEIGHED = 16
#: After so many statements that read few of the copied files, the others are dropped.
_PATIENCE = 16

_NUMBER = "__lakevilla_number"
_WEIGH = (
    "SELECT sum(memory_usage_bytes + temporary_storage_bytes) FROM duckdb_memory() "
    "WHERE tag IN ('IN_MEMORY_TABLE', 'OVERFLOW_STRINGS')"
)

#: A file's name, which belongs to one content, and the values that all its rows have.
_Key: TypeAlias = tuple[str, Constants]


class LoadedTables:
    """The rows that one session keeps, by the path of their table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._tables: dict[str, LoadedRows] = {}
        self._unweighed = 0

    def take(self, path: str, files: Files, hide: Callable[[str], object]) -> tuple[Files, str]:
        """Return the files of the table of ``path`` that must be read, and the SQL of other rows.

        The SQL is empty if all files must be read. It is valid until the next call: ``hide`` drops
        the view of a path, if there is one, before its rows change.
        """
        hide(path)
        rows = self._tables.get(path)
        if rows is None:
            name = f"__lakevilla_rows {path}"
            rows = self._tables[path] = LoadedRows(self._connection, name)
        before = rows.made
        found = rows.take(files, lambda: self._has_room(path, hide))
        self._unweighed += rows.made - before
        return found

    def _has_room(self, path: str, hide: Callable[[str], object]) -> bool:
        """Return whether rows may be copied; before they may not, those of other paths go."""
        if self._unweighed < _UNWEIGHED:
            return True
        if self._weight() > _MOST_BYTES:
            for other in self._tables.keys() - {path}:
                hide(other)
                self._tables.pop(other).drop()
            if self._weight() > _MOST_BYTES:
                return False
        self._unweighed = 0
        return True

    def _weight(self) -> int:
        (row,) = self._connection.execute(_WEIGH).fetchall()
        return int(row[0] or 0)


class LoadedRows:
    """The rows of small files of one table, in a temporary table of DuckDB's."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str) -> None:
        self._connection = connection
        #: The number of files that were copied.
        self.made = 0
        self._table = f"temp.main.{quote_name(name)}"
        self._layout: Layout | None = None
        self._begin(None)

    def _begin(self, layout: Layout | None) -> None:
        if self._layout is not None:
            self.drop()
        self._layout = layout
        #: The number that the table has for the rows of each file.
        self._numbers: dict[_Key, int] = {}
        self._next = 0
        self._statements_without = 0
        #: Whether the table has the rows of ``_numbers`` and no others.
        self._is_sound = True
        self._is_refused = False

    def drop(self) -> None:
        """Drop all rows."""
        self._connection.execute(f"DROP TABLE IF EXISTS {self._table}")

    def take(self, files: Files, has_room: Callable[[], bool]) -> tuple[Files, str]:
        """Return the files that must be read, and the SQL of the rows of the others."""
        if self._layout is None or not self._is_sound or files.layout != self._layout:
            # A statement that is not repeated reads what it needs, and no more.
            self._begin(files.layout)
            return files, ""
        if self._is_refused or files.parts or files.deleted.are_joined or files.stats is None:
            return files, ""
        known, fresh = self._sorted(files)
        if not self._numbers and len(fresh) < _FEW_FILES:
            return files, ""
        self._drop_unused(known)
        if fresh and has_room() and not self._copy(files, fresh, known):
            return files, ""
        if not known:
            return files, ""
        return files.only(i for i in files.chosen if i not in known), self._sql(known)

    def _sorted(self, files: Files) -> tuple[dict[int, int], list[int]]:
        """Return the numbers of copied files by their places, and the places of files to copy."""
        known: dict[int, int] = {}
        small: list[int] = []
        for place in files.chosen:
            if files.sizes[place] > _SMALL_BYTES or place in files.deleted.few:
                continue
            number = self._numbers.get((files.paths[place], files.constants[place]))
            if number is None:
                small.append(place)
            else:
                known[place] = number
        assert files.stats is not None
        counts = ((place, rows_in(files.stats[place].as_py())) for place in small[:_FILES_AT_ONCE])
        return known, [i for i, rows in counts if rows is not None and rows <= _SMALL_ROWS]

    def _copy(self, files: Files, places: Sequence[int], known: dict[int, int]) -> bool:
        """Copy the rows of files, and add the files' numbers to ``known``; False if that fails."""
        names = name_list(files.layout.schema.names)
        bound = files.only(places).bind(self._connection)
        rows = f"SELECT {names}, {FILE} + {self._next} AS {_NUMBER} FROM ({bound})"
        into = f"INSERT INTO {self._table}"
        if not self._numbers:
            into = f"CREATE OR REPLACE TEMP TABLE {self._table} AS"
        self._is_sound = False
        try:
            self._connection.execute(f"{into} {rows}")
        except (duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException):
            raise
        except duckdb.Error:
            # A file is damaged, or the memory is used up. If that matters to the statement, its own
            # error says so.
            self._begin(files.layout)
            self._is_refused = True
            return False
        for place in places:
            number = self._next + place
            # The copy of the name does not hold it: no statement may request the file any more.
            self._numbers[str(files.paths[place]), files.constants[place]] = known[place] = number
        self._next += len(files.paths)
        self.made += len(places)
        self._is_sound = True
        return True

    def _drop_unused(self, known: dict[int, int]) -> None:
        """Drop the rows of other files than ``known``, if statements have not read most of them."""
        if 2 * len(known) >= len(self._numbers):
            self._statements_without = 0
            return
        self._statements_without += 1
        if self._statements_without <= _PATIENCE:
            return
        if not known:
            self._begin(self._layout)
            return
        kept = set(known.values())
        self._is_sound = False
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {self._table} AS {self._some('IN', kept)}"
        )
        self._numbers = {key: number for key, number in self._numbers.items() if number in kept}
        self._statements_without = 0
        self._is_sound = True

    def _sql(self, known: dict[int, int]) -> str:
        assert self._layout is not None
        found = set(known.values())
        if len(found) == len(self._numbers):
            rows = self._table
        elif 2 * len(found) <= len(self._numbers):
            rows = f"({self._some('IN', found)})"
        else:
            rows = f"({self._some('NOT IN', set(self._numbers.values()) - found)})"
        return f"SELECT {name_list(self._layout.schema.names)} FROM {rows}"

    def _some(self, condition: str, numbers: Collection[int]) -> str:
        listed = ", ".join(map(str, sorted(numbers)))
        return f"SELECT * FROM {self._table} WHERE {_NUMBER} {condition} ({listed})"


# -------------------- admission
#
# Check whether a statement is one SELECT of tables and nothing else, as DuckDB itself reads it.
#
# ``sql.statements.select`` refuses any other statement by a parser that is not DuckDB's. Here
# DuckDB's own tree is checked, which is the one that runs. If the tree has a node that is not
# known to be harmless, the statement only gets a database of its own: nothing is refused here.
#
# The tree also shows whether DuckDB would lose rows of the statement.
# https://github.com/duckdb/duckdb/issues/25992


#: A table's name as the statement spells it, part by part.
Parts: TypeAlias = tuple[str, ...]

# The text is not passed as a parameter: for the first parameter DuckDB imports pandas, which takes
# long (docs/upstream.md, "The first parameter of a statement imports pandas").
_SERIALIZED = "SELECT json_serialize_sql({}, skip_null := true, skip_empty := true)"
#: The nodes of a tree that are no expressions: queries, tables, modifiers and orders.
_KNOWN = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
        "CTE_NODE",
        "BASE_TABLE",
        "JOIN",
        "SUBQUERY",
        "EMPTY",
        "EMPTY_FROM",
        "EXPRESSION_LIST",
        "TABLE_FUNCTION",
        "PIVOT",
        "ORDER_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "DISTINCT_MODIFIER",
        "ORDER_DEFAULT",
        "ASCENDING",
        "DESCENDING",
    }
)
#: Databases and schemas that exist without LakeVilla.
_TAKEN = frozenset({"temp", "system", "memory", "main", "information_schema", "pg_catalog"})
#: Comparisons that treat NULL as a value; IS TRUE and IS NOT FALSE are such.
_OF_NULL = frozenset({"COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"})
#: Nodes that are, or may become, an OR or a negated OR.
_JOINING = frozenset({"CONJUNCTION_OR", "OPERATOR_NOT", "CASE_EXPR"})


@dataclass(frozen=True, slots=True)
class Admission:
    """Properties of a statement, as DuckDB's tree shows them.

    Attributes
    ----------
    within : frozenset of str, optional
        Names, in small letters, that it gives to its own queries (by WITH). None if DuckDB finds
        anything but one SELECT of the tables that it was given, each of one or two parts, and of
        its own queries.
    loses_nulls : bool
        Whether it may have a condition like ``x IS DISTINCT FROM 1 OR x = 2``, for which DuckDB
        leaves out rows of the result; see ``above``. Which comparisons reach which scan is not
        known before the statement runs.
    """

    within: frozenset[str] | None
    loses_nulls: bool


def admission_of(
    cursor: duckdb.DuckDBPyConnection, sql: str, references: frozenset[Parts]
) -> Admission:
    """Return the properties of a statement over ``references``; see ``Admission``."""
    tree = _tree_of(cursor, sql)
    if tree is None:
        return Admission(None, loses_nulls=True)
    nodes = list(_nodes(tree))
    kinds = {kind for node in nodes if isinstance(kind := node.get("type"), str)}
    loses = not (kinds.isdisjoint(_OF_NULL) or kinds.isdisjoint(_JOINING))
    return Admission(_names_within(nodes, references), loses)


def _tree_of(cursor: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """Return DuckDB's tree of one SELECT; None for any other statement."""
    try:
        row = cursor.execute(_SERIALIZED.format(quote_text(sql))).fetchone()
    except duckdb.Error:
        return None
    assert row is not None
    found: Any = json.loads(row[0])
    if found["error"] or len(found["statements"]) != 1:
        return None
    return found["statements"][0]


def _names_within(
    nodes: Sequence[dict[str, Any]], references: frozenset[Parts]
) -> frozenset[str] | None:
    given = {tuple(part.lower() for part in parts) for parts in references}
    if any(len(parts) > 2 or (len(parts) == 2 and parts[0] in _TAKEN) for parts in given):
        return None
    within = frozenset(
        one["key"].lower() for node in nodes for one in node.get("cte_map", {}).get("map", ())
    )
    named = given | {(name,) for name in within}
    return within if all(_is_harmless(node, named) for node in nodes) else None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all dictionaries of a tree."""
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _is_harmless(node: dict[str, Any], named: set[Parts]) -> bool:
    kind = node.get("type")
    function = node.get("function_name")
    if isinstance(function, str) and is_reaching(function):
        return False
    if "class" in node or not isinstance(kind, str) or kind.endswith("_TYPE_INFO"):
        return True
    if kind == "TABLE_FUNCTION":
        called = node["function"]
        return called.get("function_name") in PURE_TABLE_FUNCTIONS and not (
            called.get("schema") or called.get("catalog")
        )
    if kind == "BASE_TABLE":
        parts = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
        return "at_clause" not in node and tuple(p.lower() for p in parts if p) in named
    return kind in _KNOWN
