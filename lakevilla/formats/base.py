"""What a format is to the rest of the library: tables, snapshots, upkeep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import ChangeFile, DataFile, FileRef, RemovedFile, TableSize
from lakevilla.formats.layout import Layout, NewDefinition, TableAlteration
from lakevilla.settings import shown
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Condition
from lakevilla.store.effects import Program

# -------------------- base
#
# What the protocol needs of a table format, and nothing more.
#
# Snapshots keep their file list columnar (``FILES_SCHEMA``) from checkpoint to
# pruning: a table of a million files never becomes a million Python objects.
# Only the files that one commit adds or removes are structs.


#: The property that names a transaction whose commit object is gone: see ``void_change``.
VOIDED = "lakevilla.voided"
#: The property that counts how often the schema was replaced: rows written for the one before
#: have columns that the new one has not, or has of another type (``still_fits``).
REPLACED = "lakevilla.schemaReplaced"


def replaced_once_more(properties: Mapping[str, str]) -> str:
    """The value of ``REPLACED`` after one more time."""
    times = properties.get(REPLACED, "")
    return str(int(times) + 1) if times.isdecimal() else "1"


def replaced_between(now: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """The value of ``REPLACED`` where a table gets the properties ``wanted``; None for none.

    It never comes to a value again that it had with other columns.
    """
    before, after = now.get(REPLACED), wanted.get(REPLACED)
    if before == after:
        return after
    counts = [int(text) for text in (before, after) if text is not None and text.isdecimal()]
    highest = max(counts, default=0)
    return after if after == str(highest) else str(highest + 1)


FormatName = Literal["delta", "iceberg"]


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one commit does to one table.

    ``metadata`` and ``protocol`` are whole new values in the format's own form
    (for Delta, the ``metaData`` and ``protocol`` actions); None leaves them.
    ``domains`` are Delta ``domainMetadata`` actions.
    """

    adds: tuple[DataFile, ...] = ()
    removes: tuple[RemovedFile, ...] = ()
    change_files: tuple[ChangeFile, ...] = ()
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    domains: tuple[dict[str, Any], ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == _EMPTY

    @property
    def changes_data(self) -> bool:
        return any(f.data_change for f in self.adds) or any(f.data_change for f in self.removes)


_EMPTY = Change()


class CommitInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a log entry tells about its commit.

    ``txn_ids``: the LakeVilla transactions in the entry, in order. ``applications``
    are Delta ``txn`` actions (application id to version): the lake's own, with
    the HEAD sequence, and those of ``(application, version)`` idempotency keys.
    """

    operation: str
    parameters: dict[str, str] = {}
    metrics: dict[str, str] = {}
    is_blind_append: bool = False
    txn_ids: tuple[str, ...] = ()
    nonce: str | None = None
    metadata: dict[str, str] = {}
    applications: dict[str, int] = {}


class Entry(msgspec.Struct, frozen=True):
    """One published log entry, described.

    ``txn_ids`` and ``nonce`` are empty for a foreign writer's entry.
    """

    version: int
    change: Change
    applications: dict[str, int]
    txn_ids: tuple[str, ...]
    nonce: str | None
    operation: str
    is_blind_append: bool
    timestamp_ms: int
    raw_commit_info: dict[str, Any]


class TableSnapshot(Protocol):
    """The state of one table: immutable, cheap to derive the next one from."""

    @property
    def format(self) -> FormatName: ...
    @property
    def location(self) -> str: ...
    @property
    def version(self) -> int:
        """The log version read, before any change laid over it; -1: not created."""

    @property
    def catalog(self) -> str:
        """The key of the table's pointer in a catalog; empty where its log tells all."""

    @property
    def snapshot_id(self) -> int | None:
        """Iceberg's id of ``version``'s snapshot; None where a version has none."""

    @property
    def time_travel(self) -> int | None:
        """What other readers are told to see ``version``: Delta's number, or ``snapshot_id``.

        None where they would show other columns.
        """

    @property
    def table_id(self) -> str: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def metadata(self) -> dict[str, Any]:
        """In the format's own form."""

    @property
    def protocol(self) -> dict[str, Any]: ...
    @property
    def guarded(self) -> bool:
        """Whether the writer feature ``lakevilla`` is on."""

    @property
    def append_only(self) -> bool: ...
    @property
    def newest(self) -> Entry | None:
        """The log entry that made this version; None where only a checkpoint was read."""

    def check_writable(self) -> None:
        """Raise ``UnsupportedTableFeature`` if LakeVilla may read this table but not write it."""

    def application_version(self, application: str) -> int | None:
        """The last version that the application committed (Delta's ``txn`` action)."""

    def keeps_contract(self, metadata: Mapping[str, Any]) -> bool:
        """Whether data files that are right under this state are right under ``metadata``.

        ``metadata`` is another state's, in the format's own form. Told without a look at files.
        """

    @property
    def contract(self) -> str:
        """The digest of what this state asks of data files."""

    def contract_of(self, metadata: Mapping[str, Any]) -> str:
        """The same of other metadata, in the format's own form."""

    def apply(self, change: Change) -> TableSnapshot:
        """A state with ``change`` laid over this one; ``version`` stays."""

    def files(self, where: Expr | None = None) -> Program[pa.Table]:
        """The live files (``FILES_SCHEMA``) that may hold a row for which ``where`` is true."""

    def forget_files(self) -> None:
        """Let go of the list of files that is kept; whoever asks again has it made again."""

    def missing(self, refs: Sequence[FileRef]) -> Program[list[FileRef]]:
        """Those of ``refs`` that are not live in this state."""

    def known_size(self) -> TableSize | None:
        """How large the table is, where that can be told without a look at the store."""


@dataclass(frozen=True, slots=True)
class LogVersion:
    """A version of a table's own log: when it was made, and the Iceberg snapshot that it shows."""

    version: int
    timestamp_ms: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The entry that is to follow a state, rendered: it counts once ``key`` has taken ``body``.

    ``entry`` describes it, as it will be once it is stored. None where a catalog makes it, maybe
    on top of a later state: then the log tells which version it became, and what it says.
    """

    key: str
    body: bytes
    condition: Condition
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What lies in the log of a table whose data was deleted.

    A table that was made there since, or ``strays`` (keys): what clients that knew the old
    one have written after that.
    """

    has_table: bool
    strays: tuple[str, ...]


class TableFormat(Protocol):
    """A format's log: read by number, extended by one entry at a time."""

    name: FormatName
    #: What a table says of ``file_retention_seconds``, in words.
    file_retention_source: str

    def open(
        self, location: str, table: str, cached: TableSnapshot | None = None, *, catalog: str = ""
    ) -> Program[TableSnapshot]:
        """The newest version.

        ``cached``, a state that this process read within the hour, saves the LIST.
        ``catalog`` is the key of the pointer of a table in a catalog.
        """

    def open_at(
        self,
        location: str,
        table: str,
        version: int,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
    ) -> Program[TableSnapshot]:
        """The table at a version. Raises ``VersionNotFound`` when it is gone."""

    def kept_versions(self, newest: TableSnapshot, limit: int | None) -> Program[list[LogVersion]]:
        """The newest versions that can still be opened, newest first."""

    def kept_range(self, newest: TableSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
        """The oldest version that can still be opened, and the newest; None without any."""

    def version_by(self, newest: TableSnapshot, timestamp_ms: int) -> Program[int | None]:
        """The newest version that is not later; None if those that are kept all are."""

    def check_kept(self, newest: TableSnapshot, then: TableSnapshot) -> Program[None]:
        """Refuse a state, opened by its number, that is none of the table's, or no longer.

        Where numbers are free again, whoever slept for long may take one: what is stored there
        was never the table's state. Raises ``VersionNotFound``.
        """

    def at_ref(self, newest: TableSnapshot, ref: int | str) -> Program[TableSnapshot]:
        """The state that a snapshot id, a branch or a tag of Iceberg's names.

        Raises
        ------
        VersionNotFound
            The table has no such snapshot, branch or tag, or no longer.
        InvalidOperation
            The format has nothing of the kind.
        """

    def entry(self, known: TableSnapshot, version: int) -> Program[Entry | None]:
        """One log entry, or None if the number is absent (which proves nothing by itself).

        ``known`` is any state of the same table.
        """

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        """The id of the table that has ``metadata``, in the format's own form."""

    def advance(self, snapshot: TableSnapshot, entry: Entry) -> TableSnapshot:
        """The state after ``entry``, which must be the next version."""

    def blank(self, location: str, table: str, *, catalog: str = "") -> TableSnapshot:
        """The state before version 0: no table, version -1."""

    def create(
        self,
        blank: TableSnapshot,
        schema: pa.Schema,
        *,
        table_id: str,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        created_ms: int,
    ) -> Change:
        """The change that creates a table."""

    def alter(
        self,
        snapshot: TableSnapshot,
        alteration: TableAlteration,
    ) -> Change:
        """The change of metadata; empty if there is none. Raises ``InvalidOperation``.

        Whether the rows present satisfy new constraints is for the caller to check.
        """

    def merge_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        """The change that adds the columns of ``schema`` that the table lacks; empty if none."""

    def replace_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        """The change after which the table has the columns of ``schema``; its rows go with it.

        A column that stays, by name and type, stays the same one with its rules.

        Raises
        ------
        InvalidOperation
            Something of the table goes by a column that would be gone.
        """

    def replace_definition(self, snapshot: TableSnapshot, wanted: NewDefinition) -> Change:
        """The change after which the table is as one just made; its rows go with it.

        It stays the same table, with its log. A column that stays, by name and type, keeps its id.

        Raises
        ------
        InvalidOperation
            As of a table that is made.
        """

    def redefine(
        self, snapshot: TableSnapshot, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
    ) -> Change:
        """The change after which the table is defined as another state of it is; empty if it is.

        What only counts up stays as high as it is, a protocol loses no feature, and a guard is
        left alone.

        Raises
        ------
        InvalidOperation
            The two can't be brought together.
        """

    def guard_change(self, snapshot: TableSnapshot) -> Change:
        """The change that makes other clients refuse to write; empty if they do."""

    def unguard_change(self, snapshot: TableSnapshot) -> Change:
        """The change that lifts the guard; empty if there is none."""

    def void_change(self, snapshot: TableSnapshot, txn: str) -> Change:
        """The change after which nothing fits that was decided before (``keeps_contract``)."""

    def prepare(
        self, snapshot: TableSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        """The log entry that follows ``snapshot``, ready to be tried; what it names is stored.

        Fills in what depends on its place: in-commit timestamps, row ids, removal times.
        """

    def check_whole(self, snapshot: TableSnapshot) -> Program[None]:
        """Raise what would keep an entry from following the newest state, as far as it is known.

        Asked before anything is decided: what is damaged is told then, and no table of a
        transaction commits without the others. Costs nothing that publishing would not.
        """

    def stands(self, snapshot: TableSnapshot) -> Program[bool]:
        """Whether a version that was just created counts: others go on from it.

        Asked where numbers may be free again soon after they were taken
        (``log_retention_seconds``): a create there succeeds and is seen by nobody.
        """

    def announce(self, snapshot: TableSnapshot) -> Program[None]:
        """Point other clients' hints at a version that was just published."""

    def is_announced(self, snapshot: TableSnapshot) -> Program[bool]:
        """Whether other clients' hints name this version, or a newer one."""

    def log_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """How long other clients' clean-up leaves an entry in the log."""

    def file_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """How long a file that was removed must stay for those who still read it."""

    def may_name(self, path: str) -> bool:
        """Whether a path, relative to the table, may be that of an object that a state names."""

    def check_cleanable(self, snapshot: TableSnapshot, keys: Iterable[str]) -> None:
        """Refuse to delete files of a table, or what lies in its directory, where nobody should.

        ``keys`` are those of all objects of the directory.

        Raises
        ------
        InvalidOperation
            The table says so, or another table may have files there.
        UnsupportedTableFeature
            Others clean up such tables.
        """

    def without_expired(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        held: Collection[int] = (),
    ) -> TableSnapshot:
        """The table as ``expire`` would leave it."""

    def expire(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        held: Collection[int] = (),
    ) -> Program[bool]:
        """Let go of the states that were replaced before; False: there is nothing that lists them.

        ``held`` are the ids of Iceberg snapshots that stay, for a ref of the lake needs them.

        Raises
        ------
        ConflictError
            Others wrote the table each time that it was tried.
        """

    def objects_of(self, snapshot: TableSnapshot) -> Program[set[str]]:
        """The keys of all objects below the log that this one state needs.

        Data files, deletion vectors, manifests; those that the log names by URIs by their URIs.
        """

    def named_objects(self, snapshot: TableSnapshot, removed_since_ms: int) -> Program[set[str]]:
        """The keys of all data files and deletion vectors of a state, and of those removed since.

        Files that the log names by URIs are told by URIs. Removals may be forgotten
        once they are older than ``file_retention_seconds``.
        """

    def named_in_log(self, snapshot: TableSnapshot) -> Program[set[str]]:
        """The paths of all files that any entry still in the log adds or removes."""

    def log_directory(self, location: str) -> str:
        """The directory without which there is no table."""

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        """What lies in the log of the table ``table_id``, whose data was deleted: one LIST."""

    def checkpoint_due(self, version: int, snapshot: TableSnapshot) -> bool: ...

    def checkpoint_overdue(self, snapshot: TableSnapshot) -> bool:
        """Whether the checkpoint that a state was read from is older than the table asks for."""

    def checkpoint(self, snapshot: TableSnapshot) -> Program[None]:
        """Write a checkpoint of a published version and point ``_last_checkpoint`` at it."""


# -------------------- upkeep
#
# What a table says of its own upkeep, by properties: when it is optimized, and whether vacuumed.
#
# A value that another client has written, and that says nothing here, counts as unset.


#: As many small files in one partition are worth a commit that puts them together: each read of
#: it then asks for that many objects less. Spark's auto compaction begins at as many.
SMALL_FILES = 50

_OPTIMIZE = "lakevilla.optimize"
_SMALL_FILES = "lakevilla.optimize.small_files"
_DAYS = "lakevilla.optimize.days"
_VACUUM = "lakevilla.vacuum"


@dataclass(frozen=True, slots=True)
class UpkeepRules:
    """What ``maintain`` may do to a table.

    Attributes
    ----------
    small_files : int or None
        It is optimized once a partition has so many files below half the size that files should
        have; None: never.
    days : int or None
        It is also optimized once a partition has two of them, one of which is so old.
    vacuum : bool
    """

    small_files: int | None
    days: int | None
    vacuum: bool


def upkeep_of(properties: Mapping[str, str]) -> UpkeepRules:
    """What a table's properties say."""
    optimizes = _flag(properties.get(_OPTIMIZE, "")) != "false"
    few, days = _number(properties.get(_SMALL_FILES, "")), _number(properties.get(_DAYS, ""))
    return UpkeepRules(
        (max(int(few), 2) if few is not None else SMALL_FILES) if optimizes else None,
        int(days) if days is not None and optimizes else None,
        _flag(properties.get(_VACUUM, "")) != "false",
    )


def is_upkeep(name: str) -> bool:
    """Whether a property is one of these, or is meant to be."""
    meant = name.startswith((_OPTIMIZE, _VACUUM))
    return meant or bool(get_close_matches(name, _KNOWN, n=1, cutoff=0.9))


def check_upkeep(name: str, value: str, table: str) -> None:
    """Refuse a property of upkeep that says nothing.

    Raises
    ------
    InvalidOperation
    """
    known = _KNOWN.get(name)
    if known is None:
        near = get_close_matches(name, _KNOWN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(_KNOWN)}"
        raise InvalidOperation(
            f"property {name} of table {table} is not known to lakevilla: {hint}", table=table
        )
    check, wanted = known
    if check(value) is None:
        raise InvalidOperation(
            f"property {name} of table {table} cannot be {shown(value)}: set it to {wanted}",
            table=table,
        )


def _flag(value: str) -> str | None:
    text = value.strip().lower()
    return text if text in ("true", "false") else None


def _number(value: str) -> str | None:
    text = value.strip()
    return text if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _at_least_two(value: str) -> str | None:
    text = _number(value)
    return text if text is not None and int(text) >= 2 else None


_KNOWN: dict[str, tuple[Callable[[str], str | None], str]] = {
    _OPTIMIZE: (_flag, "true or false"),
    _SMALL_FILES: (_at_least_two, "a whole number from 2 on"),
    _DAYS: (_number, "a whole number of days"),
    _VACUUM: (_flag, "true or false"),
}
