"""The interface of an engine: rows in, files and statistics out.

The protocol handles files; an engine handles rows. Its functions are programs: what they store goes
through effects, so that the simulator sees it. Large files are read and written by the engine
itself, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import ChangeFile, DataFile, RemovedFile
from lakevilla.formats.layout import Ids, Layout
from lakevilla.formats.views import refuse_view
from lakevilla.settings import Settings
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.content import HashedFile
from lakevilla.store.effects import Program

P = TypeVar("P")
R = TypeVar("R")

#: Return a new unique path, relative to the table, for a data file in a partition directory ("" for
#: none). The name contains the transaction's id. An engine that writes in other processes pickles
#: it.
FileNamer = Callable[[str], str]

#: The prefix of a query that requests its plan.
EXPLAIN = "EXPLAIN "

#: Rows to be written: a stream, or an engine's own form of a DataFrame.
Rows = Any


def target_file_size(layout: Layout, settings: Settings) -> int:
    """Return the size in bytes at which data files are cut: the table's own, else the setting."""
    return layout.target_file_size_bytes or settings.target_file_size_bytes


def projection(layout: Layout, columns: Sequence[str] | None) -> pa.Schema:
    """Return the requested columns, in that order; all of them for None.

    Raises
    ------
    InvalidOperation
        The table lacks a requested column, or a column is requested twice.
    """
    if columns is None:
        return layout.schema
    known = set(layout.schema.names)
    missing = [column for column in columns if column not in known]
    if missing:
        exact = {name.lower(): name for name in layout.schema.names}
        meant = [exact[name.lower()] for name in missing if name.lower() in exact]
        hint = f"did you mean {', '.join(meant)}? " if meant else ""
        raise InvalidOperation(
            f"table {layout.table}: there is no column {', '.join(missing)}; {hint}"
            f"its columns are {', '.join(layout.schema.names)}",
            table=layout.table,
        )
    if len(set(columns)) < len(columns):
        raise InvalidOperation(
            f"table {layout.table}: a column is named twice in {', '.join(columns)}: "
            "name each once",
            table=layout.table,
        )
    return pa.schema([layout.schema.field(column) for column in columns])


class DataAccess(Protocol):
    """An engine's direct access to data files, without effects: data files are immutable."""

    def admit(self, keys: Iterable[str], table: str) -> None:
        """Refuse files that the lake does not read, with an error that names the table."""

    def local_path(self, key: str) -> str | None:
        """Return the object's path in the local file system, or None if it is stored elsewhere."""

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """Return a block in which these files, by key, are read from memory."""

    def compared(
        self, files: Sequence[HashedFile], directory: str
    ) -> AbstractContextManager[list[str]]:
        """Return a block in which files are on this machine, each compared with its hash.

        Files that are stored elsewhere are copied into ``directory``.
        """

    def open_input(self, key: str, size: int | None = None) -> pa.NativeFile:
        """Return the object as a random-access file; a known ``size`` saves the request for it."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """One of ``count`` parts of a file, each with about equally many rows: some of its row groups.

    A row group belongs to the part in which it begins. A part may have none.
    """

    number: int
    count: int


@dataclass(frozen=True, slots=True)
class TableInput:
    """A table's files for an engine to read: ``files`` has ``FILES_SCHEMA``, already pruned.

    ``verify``: a scan or query compares each file with the hash in its tags, if it has one, before
    it returns a row of it. ``parts``: the part of each file that is read; None means the whole
    file, and an empty tuple means all of all files. No file is in it twice. A row's place is its
    place in the whole file. ``rows``: the places of the rows that are read, of each file; with
    None, all are read that are not deleted.
    """

    layout: Layout
    files: pa.Table
    verify: bool = False
    parts: tuple[FilePart | None, ...] = ()
    rows: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a view, of which an engine would find no rows."""
        refuse_view(self.layout, "read")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows stored in objects on the store, so that they can be read several times.

    ``keys`` are Arrow IPC streams of ``schema``; ``counts`` are the numbers of rows in each.
    """

    keys: tuple[str, ...]
    counts: tuple[int, ...]
    schema: pa.Schema

    def only(self, index: int) -> StagedRows:
        """Return the rows of one object."""
        return StagedRows(self.keys[index : index + 1], self.counts[index : index + 1], self.schema)


@dataclass(frozen=True, slots=True)
class Written:
    """A data file that an engine made, or a file that stays with more deleted rows.

    ``body`` is its content while it has not been stored yet (the commit stores it in the same round
    as the commit object); None once it is on the store. ``vectors``: the path and the content of an
    object that must be stored with it, and that has its deleted rows. ``promised``: the file is not
    made yet, its size is a guess, and of its statistics only the number of rows is known;
    ``KeptRows.write`` makes it.
    """

    file: DataFile
    body: bytes | None = field(default=None, repr=False)
    vectors: tuple[str, bytes] | None = field(default=None, repr=False)
    promised: bool = False

    @property
    def bodies(self) -> dict[str, bytes]:
        """The contents, by path, that must still be stored."""
        found = {} if self.body is None else {self.file.path: self.body}
        return found if self.vectors is None else {**found, self.vectors[0]: self.vectors[1]}


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The files that have the rows of a refresh: the files written, and the existing files kept."""

    written: tuple[Written, ...] = ()
    kept: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Result of an update, delete, merge or overwrite: files replaced, and row counts.

    A file of which rows were marked as deleted is removed, and is written again under its path.
    """

    written: tuple[Written, ...] = ()
    removed: tuple[RemovedFile, ...] = ()
    change_files: tuple[tuple[ChangeFile, bytes | None], ...] = ()
    rows_matched: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_copied: int = 0


MergeKind = Literal[
    "matched_update",
    "matched_delete",
    "not_matched_insert",
    "not_matched_by_source_update",
    "not_matched_by_source_delete",
]


class MergeClause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One WHEN clause; the first clause whose predicate is true applies to a row.

    ``assignments`` map target columns to expressions over both aliases. ``fields`` are the ids of
    those columns where a stored operation has noted them; an engine uses names.
    """

    kind: MergeKind
    predicate: Expr | None = None
    assignments: dict[str, Expr] = {}
    fields: dict[str, Ids] = {}


class MergeSpec(msgspec.Struct, frozen=True):
    """A bound merge: column references are qualified with one of the two aliases."""

    on: Expr
    source_alias: str
    target_alias: str
    clauses: tuple[MergeClause, ...]


class KeptRows(Protocol):
    """Rows of a table's small files in an engine's memory, which operations change there in turn.

    An operation makes a new file, as it would without. But the file is only promised: it is made
    when its contents are needed, which are never needed of most (docs/design/0067-many-changes.md).
    """

    @property
    def layout(self) -> Layout:
        """Return the layout of all files of which it keeps rows."""

    def change(
        self,
        table: TableInput,
        assignments: Mapping[str, Expr] | None,
        where: Expr,
        name: FileNamer,
    ) -> Program[Rewrite | None]:
        """Update the rows for which ``where`` is true; without ``assignments``, delete them.

        The files of the result are promised. Return None, without any effect, if these rows can't
        be kept. All files of ``table`` either are in ``current`` or can be read.
        """

    def scan(
        self,
        table: TableInput,
        columns: Sequence[str] | None,
        where: Expr | None,
        *,
        loads: bool = False,
    ) -> Program[pa.Table | None]:
        """Return the rows for which ``where`` is true; None if not all files are in ``current``.

        With ``loads``, files that are not there are loaded, if they can be kept.
        """

    def current(self, paths: Iterable[str]) -> set[str]:
        """Return those files whose rows it has, unchanged since the file was made."""

    def write(self, paths: Collection[str]) -> Program[tuple[Written, ...]]:
        """Make files that were promised, in any order."""

    @property
    def size_bytes(self) -> int:
        """Return the size of the files of which it has rows."""

    def renew(self) -> bool:
        """Keep the rows for the next transaction: the files of ``current`` are made and stored.

        All others that were promised can't be made from now on. False if the rows can't be kept.
        """


class Engine(Protocol):
    """Reader and writer of tables' rows. All predicates are bound trees (``expressions.bind``)."""

    @property
    def reads_by_parts(self) -> bool:
        """Return whether the engine requests parts of files from the store.

        If so, a caller that fetches small files whole saves the engine requests.
        """

    def holding(self, bodies: Mapping[str, bytes]) -> AbstractContextManager[None]:
        """Return a block in which these files, by key, are read from memory."""

    def write(self, layout: Layout, data: Rows, name: FileNamer) -> Program[tuple[Written, ...]]:
        """Write rows, already cast to ``layout.schema``, into files with statistics.

        The engine checks NOT NULL and constraints before it stores any file. Without rows, it
        writes no files.
        """

    def write_by_key(
        self,
        layout: Layout,
        data: Rows,
        key: Sequence[str],
        live: Sequence[DataFile],
        name: FileNamer,
        present: pa.Table | None = None,
    ) -> Program[Refreshed]:
        """Write rows as ``write`` does, ordered by ``key``; the keys decide where files end.

        A file is not made if ``live`` has one with the same rows (by its ``ROWS_TAG``) and the same
        partition values; files that are made carry the tag. All rows are read first. ``present``
        are all files of the table, where rows have ids (``Layout.lineage``): a row that is written
        keeps the id of the row with the same key.

        Raises
        ------
        InvalidOperation
            A key is NULL, or two rows have the same key.
        """

    def scan(
        self, table: TableInput, columns: Sequence[str] | None, where: Expr | None
    ) -> Program[pa.RecordBatchReader]:
        """Return the rows for which ``where`` is true, in bounded memory.

        ``columns`` may name the columns of ``Layout.lineage``, too.
        """

    def find_one(self, table: TableInput, where: Expr) -> Program[pa.RecordBatch | None]:
        """Return one row for which ``where`` is true, if there is one."""

    @property
    def spreads(self) -> int:
        """Return about the number of portions of work that ``spread`` runs at the same time."""

    def spread(
        self, function: Callable[[P], Program[R]], portions: Sequence[P]
    ) -> Program[list[R]]:
        """Run a program for each portion, on any machine of the engine; return the result of each.

        ``function`` belongs to a module, and its effects are those of this lake's store.
        """

    def update(
        self, table: TableInput, assignments: Mapping[str, Expr], where: Expr, name: FileNamer
    ) -> Program[Rewrite]: ...

    def delete(self, table: TableInput, where: Expr, name: FileNamer) -> Program[Rewrite]:
        """Delete rows; files whose rows all match are removed without being rewritten."""

    def keep(self, layout: Layout, limit_bytes: int) -> KeptRows | None:
        """Return an object that keeps rows of a table in memory, of files of up to so many bytes.

        None if the engine keeps no rows, or if it keeps none of such a table.
        """

    def merge(
        self,
        table: TableInput,
        source: pa.RecordBatchReader | StagedRows,
        spec: MergeSpec,
        name: FileNamer,
    ) -> Program[Rewrite]:
        """Merge a source. Two source rows for one target row raise ``InvalidOperation``."""

    def compact(
        self, parts: Sequence[TableInput], z_order_by: Sequence[str], name: FileNamer
    ) -> Program[tuple[tuple[Written, ...], ...]]:
        """Write the same rows into new files: one or more for each part, whose files are of one
        partition.

        With ``z_order_by``, the rows of each part are ordered along a Z curve over these columns,
        and cut at about the target size. All parts are of one table. The results have the order of
        the parts.
        """

    def write_change_files(
        self, table: TableInput, change_type: Literal["insert", "delete"], name: FileNamer
    ) -> Program[tuple[tuple[ChangeFile, bytes | None], ...]]:
        """Write change files with every row of the files, for the table's change data feed."""

    def matching_rows(self, table: TableInput, where: Expr) -> Program[str]:
        """Return a digest of the multiset of rows for which ``where`` is true.

        Equal digests mean equal rows.
        """

    def has_ids_of(self, table: TableInput, others: TableInput) -> Program[bool]:
        """Return whether a row of ``table`` has the id of a row of ``others``.

        The rows have ids (``Layout.lineage``); those that are not known yet are equal to none.
        """

    def rows_within(
        self, sql: str, params: Mapping[str, object], schemas: Mapping[str, pa.Schema]
    ) -> Mapping[str, Expr]:
        """Return, for tables that a ``query`` names, a predicate that holds for each row that it
        uses.

        The result has the same names as ``schemas``. Files without a row for which the predicate
        holds may be left out.
        """

    def query(
        self,
        sql: str,
        tables: Mapping[str, TableInput],
        views: Mapping[str, pa.RecordBatchReader],
        params: Mapping[str, object],
    ) -> Program[pa.Table]:
        """Run one SELECT in the engine's dialect over ``tables`` and ``views`` alone.

        With ``EXPLAIN`` in front, the SELECT is not run, and its plan is returned in the column
        explain_value.
        """
