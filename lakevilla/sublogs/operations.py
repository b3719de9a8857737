"""Logical operations: what each verb of a transaction requested (design, section 6).

An operation holds all that a redo needs, so that a redo never has to guess a value: its expressions
are trees with parameters and ``current_timestamp`` filled in, and its source rows are stored, or
few enough to be in the operation itself.
"""

from __future__ import annotations

from typing import Any, Literal, Union

import msgspec

from lakevilla.engines.base import MergeClause
from lakevilla.formats.base import Change, ClientUpdates
from lakevilla.formats.files import DataFile, FileRef
from lakevilla.formats.layout import Ids, Path
from lakevilla.sql.expressions.tree import Expr


class InlineSource(msgspec.Struct, frozen=True, tag="inline"):
    """Rows carried in the operation itself, as one Arrow IPC stream."""

    ipc: bytes


class StagedSource(msgspec.Struct, frozen=True, tag="staged"):
    """Rows in Arrow IPC streams under the transaction's own directory.

    ``counts`` are the numbers of rows of the streams; ``columns`` is their schema, as an Arrow
    schema message.
    """

    keys: tuple[str, ...]
    counts: tuple[int, ...]
    columns: bytes


class QuerySource(msgspec.Struct, frozen=True, tag="query"):
    """Rows of a SELECT over tables of the lake; each redo runs the SELECT again.

    ``tables`` maps the names used in ``sql`` to locations; ``views`` are the caller's frames by
    name.
    """

    sql: str
    tables: dict[str, str]
    params: dict[str, Expr] = {}
    views: dict[str, InlineSource | StagedSource] = {}


Source = Union[InlineSource, StagedSource, QuerySource]

#: The ids of fields by the names that the fields had when the verb was called; see ``binding``.
Named = tuple[tuple[Path, Ids], ...]


class Append(msgspec.Struct, frozen=True, tag="append", omit_defaults=True):
    """Add rows. A redo adds the same files again: an append depends on no other row.

    ``columns``: the columns by which the append also widened the schema (``schema_mode="merge"``),
    as an Arrow schema message. ``added`` are the fields that the table got for them.
    """

    table: str
    files: tuple[DataFile, ...]
    columns: bytes | None = None
    added: Named = ()


class Insert(msgspec.Struct, frozen=True, tag="insert", omit_defaults=True):
    """INSERT ... SELECT over tables of the lake: a redo runs the query again.

    ``fields`` are the ids of ``columns``, by name. ``sources`` are the fields of the tables that
    the query reads, by location: the query's text can't be rewritten, so it is valid only while
    these names mean the same fields.
    """

    table: str
    columns: tuple[str, ...]
    source: QuerySource
    fields: dict[str, Ids] = {}
    sources: dict[str, Named] = {}


class Overwrite(msgspec.Struct, frozen=True, tag="overwrite", omit_defaults=True):
    """Replace the rows for which ``where`` is true (if None, all rows) by those in ``files``.

    ``replaces_schema``: ``columns`` are all columns of the table from then on, not additional ones.
    """

    table: str
    files: tuple[DataFile, ...]
    where: Expr | None = None
    columns: bytes | None = None
    added: Named = ()
    replaces_schema: bool = False


class Refresh(Overwrite, frozen=True, tag="refresh", omit_defaults=True):
    """An overwrite of all rows that keeps some of the table's present files: ``kept``, in full.

    It is an operation type of its own (docs/design/0038-reuse.md), so that a client that does not
    know it refuses to perform it.
    """

    kept: tuple[DataFile, ...] = ()


class Replace(Overwrite, frozen=True, tag="replace", omit_defaults=True):
    """An overwrite of all rows that also gives the table the definition of a new one.

    It is an operation type of its own, as a refresh is. ``revives``: the table was dropped from the
    lake, and this operation adds it again (docs/design/0047-names-taken-up.md). ``after_drop``: the
    transaction itself has dropped what was there, and may put a view in the place of a table, or a
    table in that of a view (docs/design/0077-views-of-sql.md).
    """

    partition_by: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    constraints: dict[str, str] = {}
    revives: bool = False
    after_drop: bool = False


class Update(msgspec.Struct, frozen=True, tag="update", omit_defaults=True):
    """Change values of rows. ``fields`` are the ids of the assigned fields, by name."""

    table: str
    assignments: dict[str, Expr]
    where: Expr
    fields: dict[str, Ids] = {}


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Delete rows."""

    table: str
    where: Expr


class Merge(msgspec.Struct, frozen=True, tag="merge", omit_defaults=True):
    """Merge the rows of a source into the table; ``sources`` as in ``Insert``.

    ``columns`` are the columns that the table gets first (``schema_mode="merge"``), ``added`` the
    fields that it got for them. ``within``: if it is not true for a row of the table, no row of the
    source matches that row. It is set where the source is a query that reads the table itself,
    once (the query returns nothing for such a row), and where the operation has the source's rows.
    So files that have only such rows are not read, and their changes are no conflict.
    ``computed``: the columns that are set to values which the source has computed from the table's
    own rows; None where an older client has not recorded them.
    """

    table: str
    source: Source
    on: Expr
    source_alias: str
    target_alias: str
    clauses: tuple[MergeClause, ...]
    sources: dict[str, Named] = {}
    columns: bytes | None = None
    added: Named = ()
    within: Expr | None = None
    computed: tuple[str, ...] | None = None


class Create(msgspec.Struct, frozen=True, tag="create", omit_defaults=True):
    """Create a table; ``change`` is its first entry's metadata and protocol.

    ``applied``: the table is created because another state has it, as by a merge.
    """

    table: str
    change: Change
    applied: bool = False


class Detach(Create, frozen=True, tag="detach", omit_defaults=True, kw_only=True):
    """Turn a table that a clone shows into a table of the lake, before the first write to it.

    ``clone`` is the name of the clone, ``entry_id`` its id, ``base`` the base that it shows (the
    fields of a ``BaseRef``), and ``source`` the place of the table in the base. ``change`` has no
    files: they are in the base.
    """

    clone: str
    entry_id: str
    base: tuple[int, str, int, int]
    source: str


class Drop(msgspec.Struct, frozen=True, tag="drop", omit_defaults=True):
    """Drop a table from the lake; its log stays until its data is deleted.

    ``applied``: the table is dropped because another state lacks it.
    """

    table: str
    table_id: str
    applied: bool = False


class Rename(msgspec.Struct, frozen=True, tag="rename"):
    """Give a table another name: names in HEAD change, and nothing in its log.

    ``old`` is a registered name, or the table's location if its path was its name. ``place`` is the
    location that ``new`` would name if it were a path.
    """

    table: str
    old: str
    new: str
    place: str


class AlteredFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields that an ``alter`` names, has added, and that its new constraints check."""

    named: dict[str, Ids] = {}
    added: Named = ()
    checked: Named = ()


class Alter(msgspec.Struct, frozen=True, tag="alter"):
    """Change a table's schema, constraints or properties."""

    table: str
    request: dict[str, Any]
    """The arguments of ``TableFormat.alter``, by name, except the added columns."""
    add_columns: bytes | None = None
    tied: AlteredFields | msgspec.UnsetType = msgspec.UNSET

    @property
    def fields(self) -> AlteredFields:
        return _NO_FIELDS if self.tied is msgspec.UNSET else self.tied

    @property
    def added(self) -> Named:
        return self.fields.added


_NO_FIELDS = AlteredFields()


class Guard(msgspec.Struct, frozen=True, tag="guard"):
    """Turn the writer feature ``lakevilla`` on or off."""

    table: str
    on: bool


class Bin(msgspec.Struct, frozen=True):
    """Files of one partition that are removed, and the files that get the same rows instead."""

    removed: tuple[FileRef, ...] = msgspec.field(name="gone")
    files: tuple[DataFile, ...]


class Optimize(msgspec.Struct, frozen=True, tag="optimize", omit_defaults=True):
    """Move rows into other files, without changing any row.

    A redo keeps the bins whose removed files all still exist, and drops all other bins: it makes no
    new files. So an optimize ends even while other clients keep writing, and a client that replays
    it computes no data. ``made_for`` is the table's metadata when the files were written.
    ``considered`` counts the files that the optimize has checked.
    """

    table: str
    bins: tuple[Bin, ...]
    made_for: dict[str, Any]
    parameters: dict[str, str] = {}
    considered: int = 0


class Defined(msgspec.Struct, frozen=True, omit_defaults=True):
    """The definition of a table in one state, in the format's own form."""

    metadata: dict[str, Any]
    protocol: dict[str, Any] = {}


OnConflict = Literal["error", "ours", "theirs"]


#: Outcome of a row that both sides have changed to the same value, if each side has computed it.
OnEqual = Literal["conflict", "keep"]

#: The version that a state has in the lake's history (``""``), and in those of branches' epochs.
Reached = dict[str, int]


class Transplant(msgspec.Struct, frozen=True, tag="transplant", omit_defaults=True):
    """Apply to the table what changed in it between two states (docs/design/0032-apply.md).

    ``removes`` and ``adds`` are the removed and added files, in full. ``after`` is None where the
    table has the same definition in both states. ``keys`` and ``on_conflict`` determine the outcome
    of rows that other clients have changed. ``exact``: the table gets exactly its earlier state;
    its rows count as read, so if the files do not fit, another client's commit is in conflict.
    ``within``: patterns of all tables that the caller has checked; the other tables that match them
    have their earlier states already. ``hides``: columns, by their names before, that the
    transplant removes from the table while files of other clients stay: these files must have no
    value in them (docs/design/0055-columns-that-went.md). ``since`` and ``until`` state by which
    commits the two states differ; they are empty where that is not known. ``on_equal``: whether a
    row that other clients have changed to the same value is in conflict, if the value was computed
    (docs/design/0056-equal-changes.md). ``verb`` is the name of the operation in the log.
    """

    table: str
    removes: tuple[DataFile, ...]
    adds: tuple[DataFile, ...]
    before: Defined
    after: Defined | None = None
    keys: tuple[str, ...] = ()
    on_conflict: OnConflict = "error"
    exact: bool = False
    within: tuple[str, ...] = ()
    hides: tuple[Path, ...] = ()
    since: Reached = {}
    until: Reached = {}
    on_equal: OnEqual = "conflict"
    verb: str = "APPLY"
    parameters: dict[str, str] = {}

    @property
    def takes_back(self) -> bool:
        """True if the transplant only undoes commits, as a rollback does."""
        known = self.since != self.until and self.until.keys() <= self.since.keys()
        return known and all(self.until.get(epoch, 0) <= self.since[epoch] for epoch in self.since)


class Given(msgspec.Struct, frozen=True, tag="given", omit_defaults=True):
    """Make the version that an Iceberg client asks for (docs/design/0073-given-commits.md).

    ``change`` is what the updates come to on their version, which is the only one that they fit:
    the operation is never performed on another one. ``moves``: they only add and remove data files,
    so the files can be published on another version. ``objects`` are the paths of manifest lists,
    manifests and statistics that the client has stored for them, relative to the table.
    """

    table: str
    given: ClientUpdates
    change: Change
    moves: bool = False
    objects: tuple[str, ...] = ()


Operation = Union[
    Append,
    Insert,
    Overwrite,
    Refresh,
    Replace,
    Update,
    Delete,
    Merge,
    Create,
    Detach,
    Drop,
    Rename,
    Alter,
    Guard,
    Optimize,
    Transplant,
    Given,
]


class ReadRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An observed read: the caller has seen the rows of ``table`` for which ``where`` is true.

    ``after``: the number of the transaction's operations before the read, whose rows the result
    includes. ``where`` is None for all rows.
    """

    table: str
    where: Expr | None = None
    after: int = 0


def is_direct(operation: Operation) -> bool:
    """Return whether the operation writes directly: it makes rows or definitions that are new.

    An operation that applies another state does not write directly. Operations on names and guards,
    which no branch has, and operations that only move rows are upkeep. A ``Detach`` is not direct
    either: it makes a clone's table one of the lake, for the operations after it.
    """
    match operation:
        case Transplant() | Optimize() | Guard() | Rename() | Detach():
            return False
        case Create(applied=applied) | Drop(applied=applied):
            return not applied
    return True


def is_for_others(operation: Operation) -> bool:
    """Return whether any client can perform the operation among those of other transactions.

    It changes rows alone, and all that it reads beside its table is in the operation itself.
    """
    match operation:
        case Update() | Delete():
            return True
        case Merge(columns=columns, source=source):
            return columns is None and _is_held(source)
        case Insert(source=source):
            return _is_held(source)
        case _:
            return False


def _is_held(source: Source) -> bool:
    """Return whether the sublog has the rows of a source: the source reads no table and no file."""
    if isinstance(source, QuerySource):
        return not source.tables and all(map(_is_held, source.views.values()))
    return isinstance(source, InlineSource)


def is_blind(operation: Operation) -> bool:
    """Return whether the operation depends on no row of any table."""
    return isinstance(operation, Append | Create)


def is_append(operation: Operation) -> bool:
    """Return whether the operation only adds rows to existing columns: only metadata matters."""
    return isinstance(operation, Append) and operation.columns is None


def tables_read(operation: Operation) -> dict[str, Expr | None]:
    """Return the tables whose rows the operation depends on, with predicates (None: all rows)."""
    match operation:
        case Update(table=table, where=where) | Delete(table=table, where=where):
            return {table: where}
        case Overwrite(table=table, where=where):
            return {table: where}
        case Merge(table=table, source=source, within=within):
            reach = None if _acts_on_unmatched(operation) else within
            return {table: reach, **_of_source(source)}
        case Insert(source=source):
            return _of_source(source)
        case Drop(table=table):
            return {table: None}
        case Alter(table=table, request=request) if request.get("add_constraints"):
            return {table: None}
        case Transplant(table=table) if operation.exact or operation.keys or operation.hides:
            return {table: None}
        case _:
            return {}


def _acts_on_unmatched(operation: Merge) -> bool:
    return any(clause.kind.startswith("not_matched_by_source") for clause in operation.clauses)


def acts_on_all(operation: Operation) -> bool:
    """Return whether the operation changes or deletes each row of its table that it depends on.

    Then the rows that it has marked as deleted are all those, among the rows of a file that stays.
    """
    match operation:
        case Update() | Delete():
            return True
        case Overwrite(where=where):
            return where is not None
        case Merge(source=InlineSource() | StagedSource(), clauses=clauses):
            always = (one for one in clauses if one.predicate is None)
            return not _acts_on_unmatched(operation) and any(
                one.kind in ("matched_update", "matched_delete") for one in always
            )
    return False


def _of_source(source: Source) -> dict[str, Expr | None]:
    return dict.fromkeys(source.tables.values()) if isinstance(source, QuerySource) else {}


def given_files(operation: Operation) -> tuple[DataFile, ...]:
    """Return the files of the operation's rows: a redo needs them, and can't make them again."""
    match operation:
        case Refresh(files=files, kept=kept):
            return (*files, *kept)
        case Append(files=files) | Overwrite(files=files) | Transplant(adds=files):
            return files
        case Optimize(bins=bins):
            return tuple(file for one in bins for file in one.files)
        case Given(change=change):
            return change.adds
    return ()


def snapshots_removed(operation: Operation) -> set[int]:
    """Return the ids of the Iceberg snapshots that an operation removes from its table."""
    updates = operation.given.updates if isinstance(operation, Given) else ()
    gone = (one["snapshot-ids"] for one in updates if one["action"] == "remove-snapshots")
    return {number for some in gone for number in some}


def source_files(operation: Operation) -> tuple[DataFile, ...]:
    """Return files that a redo may read although the operation does not add them to the table."""
    return operation.removes if isinstance(operation, Transplant) else ()


def staged_keys(operation: Operation) -> tuple[str, ...]:
    """Return the objects that hold the operation's source: a redo reads them again."""
    source = operation.source if isinstance(operation, Merge | Insert) else None
    match source:
        case StagedSource(keys=keys):
            return keys
        case QuerySource(views=views):
            staged = [view for view in views.values() if isinstance(view, StagedSource)]
            return tuple(key for view in staged for key in view.keys)
    return ()
