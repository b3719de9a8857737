"""The interface of a table format for the rest of the library: tables, snapshots, upkeep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.files import ChangeFile, DataFile, FileRef, RemovedFile, TableSize
from lakevilla.formats.layout import Layout, NewDefinition, TableAlteration
from lakevilla.settings import shown
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.base import Condition
from lakevilla.store.codec import FORMAT, FORMAT_WITH_VECTORS
from lakevilla.store.effects import Program

# -------------------- base
#
# The operations that the protocol needs of a table format, and nothing more.
#
# Snapshots keep their file list columnar (``FILES_SCHEMA``) from checkpoint to
# pruning: a table of a million files never becomes a million Python objects.
# Only the files that one commit adds or removes are structs.


#: The property that names a transaction whose commit object is gone: see ``void_change``.
VOIDED = "lakevilla.voided"
#: The property that counts replacements of the schema: rows that were written before one may have
#: columns that the new schema lacks, or has with another type (``still_fits``).
REPLACED = "lakevilla.schemaReplaced"


def replaced_once_more(properties: Mapping[str, str]) -> str:
    """Return the value of ``REPLACED`` after the schema was replaced one more time."""
    times = properties.get(REPLACED, "")
    return str(int(times) + 1) if times.isdecimal() else "1"


def replaced_between(now: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Return the value of ``REPLACED`` for a table that gets the properties ``wanted``, None for no
    value.

    The value is never one that the table had before with other columns.
    """
    before, after = now.get(REPLACED), wanted.get(REPLACED)
    if before == after:
        return after
    counts = [int(text) for text in (before, after) if text is not None and text.isdecimal()]
    highest = max(counts, default=0)
    return after if after == str(highest) else str(highest + 1)


FormatName = Literal["delta", "iceberg"]

#: The domain in which a Delta table names the columns by which it is clustered.
CLUSTERING_DOMAIN = "delta.clustering"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change that one commit makes to one table.

    ``metadata`` and ``protocol`` are whole new values in the format's own form
    (for Delta, the ``metaData`` and ``protocol`` actions); None leaves them unchanged.
    ``domains`` are Delta ``domainMetadata`` actions. An Iceberg table that is made as a copy of
    another one gives out no id below ``row_ids_below``, and no sequence number below
    ``sequence_from``, since its rows may have these from there.
    """

    adds: tuple[DataFile, ...] = ()
    removes: tuple[RemovedFile, ...] = ()
    change_files: tuple[ChangeFile, ...] = ()
    metadata: dict[str, Any] | None = None
    protocol: dict[str, Any] | None = None
    domains: tuple[dict[str, Any], ...] = ()
    row_ids_below: int = 0
    sequence_from: int = 0

    @property
    def is_empty(self) -> bool:
        return self == _EMPTY

    @property
    def defines(self) -> bool:
        """True if the table's definition changes, which includes the columns it is clustered by."""
        return self.metadata is not None or self.protocol is not None or self.clusters

    @property
    def clusters(self) -> bool:
        return any(domain.get("domain") == CLUSTERING_DOMAIN for domain in self.domains)

    @property
    def format(self) -> int:
        """The format of an object that has the change: the first version drops vectors of Iceberg,
        so that deleted rows would be back.
        """
        return FORMAT_WITH_VECTORS if any(file.deletes for file in self.adds) else FORMAT

    @property
    def changes_data(self) -> bool:
        return any(f.data_change for f in self.adds) or any(f.data_change for f in self.removes)


_EMPTY = Change()


class ClientUpdates(msgspec.Struct, frozen=True, omit_defaults=True):
    """Updates of one version of a table's metadata, as an Iceberg REST client asks for them.

    ``base`` is that version's number. ``updates`` are the client's, as the REST specification has
    them; none if the client only relies on that version. ``now_ms`` is the time at which they are
    applied, whoever applies them. ``snapshot`` is the id of the snapshot that they make current;
    None if they make none. ``state`` is the digest of the state that the client knew, where the
    version does not say it: on a branch. There the change has all that counts of the updates.
    """

    base: int
    updates: tuple[dict[str, Any], ...] = ()
    now_ms: int = 0
    snapshot: int | None = None
    state: str = ""


class CommitInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a commit that its log entry records.

    ``txn_ids``: the LakeVilla transactions in the entry, in order. ``members``: those that share
    one of these ids, in order; no client recognises an entry by them. ``applications`` are Delta
    ``txn`` actions (application id to version): the lake's own, with the HEAD sequence, and those
    of ``(application, version)`` idempotency keys. ``given``: the updates of the Iceberg client
    whose commit the entry is.
    """

    operation: str
    parameters: dict[str, str] = {}
    metrics: dict[str, str] = {}
    is_blind_append: bool = False
    txn_ids: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    nonce: str | None = None
    metadata: dict[str, str] = {}
    applications: dict[str, int] = {}
    given: ClientUpdates | None = None


class Entry(msgspec.Struct, frozen=True):
    """One published log entry, described.

    ``txn_ids``, ``members`` and ``nonce`` are empty for a foreign writer's entry.
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
    members: tuple[str, ...] = ()

    def described_alone(self) -> Entry:
        """Return the description without what only ``TableFormat.advance`` needs."""
        return self


class TableSnapshot(Protocol):
    """The state of one table: immutable, and cheap to derive the next state from."""

    @property
    def format(self) -> FormatName: ...
    @property
    def location(self) -> str: ...
    @property
    def version(self) -> int:
        """The log version that was read, before any change laid over it; -1: not created."""

    @property
    def catalog(self) -> str:
        """The key of the table's pointer in a catalog; empty where its log suffices."""

    @property
    def snapshot_id(self) -> int | None:
        """Iceberg's id of ``version``'s snapshot; None where a version has none."""

    @property
    def time_travel(self) -> int | None:
        """Return the number by which other readers open ``version``: Delta's, or the
        ``snapshot_id``.

        None where these readers would show other columns.
        """

    @property
    def table_id(self) -> str: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def metadata(self) -> dict[str, Any]:
        """The table's metadata in the format's own form."""

    @property
    def protocol(self) -> dict[str, Any]: ...
    @property
    def rules(self) -> tuple[object, ...]:
        """All that this state prescribes to writers, in the format's own form."""

    @property
    def guarded(self) -> bool:
        """True if the writer feature ``lakevilla`` is on."""

    @property
    def is_view(self) -> bool:
        """True if the state is that of a view (docs/design/0077-views-of-sql.md)."""

    @property
    def append_only(self) -> bool: ...
    @property
    def newest(self) -> Entry | None:
        """The log entry that made this version; None where only a checkpoint was read."""

    def check_writable(self) -> None:
        """Raise ``UnsupportedTableFeature`` if LakeVilla may read this table but not write it."""

    def check_upgradable(self) -> None:
        """Do as ``check_writable``, except that a table that ``alter`` can upgrade passes."""

    @property
    def limits(self) -> tuple[str, ...]:
        """The changes that are refused on the table, and how rows are changed, in words."""

    @property
    def next_row_id(self) -> int | None:
        """The first id that no row of the published version has; None if the log does not say."""

    def application_version(self, application: str) -> int | None:
        """Return the last version that the application committed (Delta's ``txn`` action)."""

    def keeps_contract(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether each data file that is valid under this state is also valid under
        ``metadata``.

        ``metadata`` is another state's, in the format's own form. No file is read for the answer.
        """

    @property
    def contract(self) -> str:
        """The digest of what this state requires of data files."""

    def contract_of(self, metadata: Mapping[str, Any]) -> str:
        """Return the same digest for other metadata, given in the format's own form."""

    def apply(self, change: Change) -> TableSnapshot:
        """Return a state with ``change`` laid over this one; ``version`` stays."""

    def files(self, where: Expr | None = None) -> Program[pa.Table]:
        """Return the live files (``FILES_SCHEMA``) that may hold a row matching ``where``."""

    def check_files(self) -> Program[None]:
        """Read all objects that ``files`` needs, and raise its errors."""

    @property
    def held_bytes(self) -> int:
        """The memory that a cache of this state costs, if it shares none with other states."""

    def forget_files(self) -> None:
        """Drop the cached list of files; the next call that needs the list makes it again."""

    def missing(self, refs: Sequence[FileRef]) -> Program[list[FileRef]]:
        """Return the refs in ``refs`` that are not live in this state."""

    def known_size(self) -> TableSize | None:
        """Return the size of the table, where it is known without reading the store."""


@dataclass(frozen=True, slots=True)
class LogVersion:
    """A version of a table's own log: its creation time and the Iceberg snapshot that it shows."""

    version: int
    timestamp_ms: int
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The rendered entry that must follow a state: it takes effect once ``body`` is stored under
    ``key``.

    ``entry`` describes the entry as it will be once it is stored. It is None where a catalog makes
    the entry, maybe on top of a later state: then the log shows which version it became, and what
    it contains.
    """

    key: str
    body: bytes
    condition: Condition
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The objects in the log of a table whose data was deleted.

    Either another table was created there since (``has_table``), or ``written_after`` are the keys
    of objects that clients of the old table have written after the deletion.
    """

    has_table: bool
    written_after: tuple[str, ...]


class TableFormat(Protocol):
    """A format's log: read by number, extended by one entry at a time."""

    name: FormatName
    #: The setting that determines ``file_retention_seconds``, in words.
    file_retention_source: str

    def open(
        self,
        location: str,
        table: str,
        cached: TableSnapshot | None = None,
        *,
        catalog: str = "",
        at_least: int = -1,
    ) -> Program[TableSnapshot]:
        """Return the newest version.

        ``cached``, a state that this process read within the hour, saves the LIST; ``at_least``, a
        version that the log is known to have had, shortens it.
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
        """Return the table at a version. Raises ``VersionNotFound`` when the version is gone."""

    def open_several(
        self, location: str, table: str, versions: Collection[int]
    ) -> Program[dict[int, TableSnapshot]]:
        """Return the table at several versions, read together; those that fail are left out.

        A format whose versions share no object returns none: ``open_at`` costs no more.
        """

    def kept_versions(self, newest: TableSnapshot, limit: int | None) -> Program[list[LogVersion]]:
        """Return the newest versions that can still be opened, newest first."""

    def kept_range(self, newest: TableSnapshot) -> Program[tuple[LogVersion, LogVersion] | None]:
        """Return the oldest version that can still be opened, and the newest; None if there is
        none.
        """

    def version_by(self, newest: TableSnapshot, timestamp_ms: int) -> Program[int | None]:
        """Return the newest version not later than ``timestamp_ms``; None if all kept ones are
        later.
        """

    def check_kept(self, newest: TableSnapshot, then: TableSnapshot) -> Program[None]:
        """Refuse a state, opened by its version number, that never was, or no longer is, the
        table's.

        Where clean-up frees numbers, a client that was suspended for long may store an entry under
        one: that entry was never the table's state. Raises ``VersionNotFound``.
        """

    def at_ref(self, newest: TableSnapshot, ref: int | str) -> Program[TableSnapshot]:
        """Return the state that a snapshot id, a branch or a tag of Iceberg's names.

        Raises
        ------
        VersionNotFound
            The table has no such snapshot, branch or tag, or no longer has it.
        InvalidOperation
            The format has no snapshot ids, branches or tags.
        """

    def entry(self, known: TableSnapshot, version: int) -> Program[Entry | None]:
        """Return one log entry, or None if the number is absent (which proves nothing by itself).

        ``known`` is any state of the same table.
        """

    def described(self, newest: TableSnapshot, versions: Iterable[int]) -> Mapping[int, Entry]:
        """Return the entries that a state describes without a request, without their changes.

        Versions that it does not describe are left out.
        """

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        """Return the id of the table that has ``metadata``, in the format's own form."""

    def advance(self, snapshot: TableSnapshot, entry: Entry) -> TableSnapshot:
        """Return the state after ``entry``, which must be the next version."""

    def blank(self, location: str, table: str, *, catalog: str = "") -> TableSnapshot:
        """Return the state before version 0: no table, version -1."""

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
        """Return the change that creates a table."""

    def alter(
        self,
        snapshot: TableSnapshot,
        alteration: TableAlteration,
    ) -> Change:
        """Return the change of metadata; empty if there is none. Raises ``InvalidOperation``.

        The caller checks whether the existing rows satisfy new constraints.
        """

    def merge_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        """Return the change that adds the columns of ``schema`` that the table lacks.

        The change is empty if there are none.
        """

    def replace_schema(self, snapshot: TableSnapshot, schema: pa.Schema) -> Change:
        """Return the change after which the table has the columns of ``schema``, without rows.

        A column that keeps its name and type stays the same column with its rules.

        Raises
        ------
        InvalidOperation
            Some part of the table depends on a column that would be removed.
        """

    def replace_definition(self, snapshot: TableSnapshot, wanted: NewDefinition) -> Change:
        """Return the change after which the table is like a new one; its rows are dropped.

        It stays the same table, with its log. A column that keeps its name and type keeps its id.

        Raises
        ------
        InvalidOperation
            For the same reasons as for the creation of a table.
        """

    def redefine(
        self, snapshot: TableSnapshot, metadata: Mapping[str, Any], protocol: Mapping[str, Any]
    ) -> Change:
        """Return the change after which the table is defined as in another of its states.

        The change is empty if it is defined so already. Counters keep at least their present value,
        a protocol loses no feature, and a guard is left unchanged.

        Raises
        ------
        InvalidOperation
            The two definitions can't be reconciled.
        """

    def guard_change(self, snapshot: TableSnapshot) -> Change:
        """Return the change that makes other clients refuse to write; empty if they already do."""

    def unguard_change(self, snapshot: TableSnapshot) -> Change:
        """Return the change that lifts the guard; empty if there is none."""

    def void_change(self, snapshot: TableSnapshot, txn: str) -> Change:
        """Return the change that makes every commit unfit that was decided before
        (``keeps_contract``).
        """

    def prepare(
        self, snapshot: TableSnapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        """Return the log entry that follows ``snapshot``, ready to be created; the objects that it
        names are stored.

        Fills in the fields that depend on the entry's place: in-commit timestamps, row ids, removal
        times.
        """

    def check_whole(self, snapshot: TableSnapshot) -> Program[None]:
        """Raise each error, known without more requests, by which no entry could follow the newest
        state.

        A commit calls this before its decision, so that damage is reported before any table of its
        transaction commits. It sends only requests that publishing would send, too.
        """

    def is_accepted(self, snapshot: TableSnapshot) -> Program[bool]:
        """Return whether other clients continue from a version that was just created.

        Called if clean-up may free numbers soon after they were taken (``log_retention_seconds``):
        a create at such a number succeeds, and no client reads that version.
        """

    def announce(self, snapshot: TableSnapshot) -> Program[None]:
        """Point other clients' hints at a version that was just published."""

    def is_announced(self, snapshot: TableSnapshot) -> Program[bool]:
        """Return whether other clients' hints name this version, or a newer one."""

    def log_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return the time for which other clients' clean-up leaves an entry in the log."""

    def file_retention_seconds(self, snapshot: TableSnapshot) -> float:
        """Return the time for which a removed file must stay for clients that still read it."""

    def may_name(self, path: str) -> bool:
        """Return whether a path, relative to the table, may name an object of one of its states."""

    def check_cleanable(self, snapshot: TableSnapshot, keys: Iterable[str]) -> None:
        """Refuse to delete files of a table, or objects in its directory, if that is not allowed.

        ``keys`` are the keys of all objects of the directory.

        Raises
        ------
        InvalidOperation
            The table forbids it, or another table may have files there.
        UnsupportedTableFeature
            Other clients clean up such tables.
        """

    def without_expired(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> TableSnapshot:
        """Return the table as ``expire`` would leave it."""

    def expire(
        self,
        snapshot: TableSnapshot,
        replaced_before_ms: int,
        now_ms: int,
        kept_snapshots: Collection[int] = (),
    ) -> Program[bool]:
        """Remove the states that were replaced before that time; return False if the table lists
        none.

        ``kept_snapshots`` are the ids of Iceberg snapshots that stay because a ref of the lake
        needs them.

        Raises
        ------
        ConflictError
            Another client wrote the table at each attempt.
        """

    def objects_of(self, snapshot: TableSnapshot) -> Program[set[str]]:
        """Return the keys of all objects below the log that this one state needs.

        These are data files, deletion vectors and manifests. Files that the log names by URIs are
        given by their URIs.
        """

    def objects_of_each(
        self, snapshots: Sequence[TableSnapshot]
    ) -> Program[tuple[set[str], list[VersionNotFound]]]:
        """Return the same for several states of one table together.

        The second value has an error for each state whose objects are not known any more.
        """

    def named_objects(self, snapshot: TableSnapshot, removed_since_ms: int) -> Program[set[str]]:
        """Return the keys of a state's data files and deletion vectors, and of those removed since.

        Files that the log names by URIs are given by their URIs. Removals may be forgotten
        once they are older than ``file_retention_seconds``.
        """

    def named_in_log(self, snapshot: TableSnapshot) -> Program[set[str]]:
        """Return the paths of all files that any entry still in the log adds or removes."""

    def log_directory(self, location: str) -> str:
        """Return the directory of the log, which every table of the format has."""

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        """List, in one request, the log of the table ``table_id``, whose data was deleted."""

    def checkpoint_due(self, version: int, snapshot: TableSnapshot) -> bool: ...

    def checkpoint_overdue(self, snapshot: TableSnapshot) -> bool:
        """Return whether a state's checkpoint is older than the table requires."""

    def checkpoint(self, snapshot: TableSnapshot) -> Program[TableSnapshot | None]:
        """Write a checkpoint of a published version and point ``_last_checkpoint`` at it.

        Where the state holds many changes, return the same state as the checkpoint has it: it holds
        none of them.
        """


# -------------------- upkeep
#
# The properties by which a table controls its own upkeep: the times at which it is optimized, and
# whether it is vacuumed.
#
# A value that another client has written, and that has no meaning here, counts as unset.


#: The number of small files in one partition that justifies a commit that combines them: each read
#: of the partition then sends that many requests less. Spark's auto compaction begins at the same
#: number.
SMALL_FILES = 50

_OPTIMIZE = "lakevilla.optimize"
_SMALL_FILES = "lakevilla.optimize.small_files"
_DAYS = "lakevilla.optimize.days"
_QUEUED = "lakevilla.optimize.queued"
_VACUUM = "lakevilla.vacuum"


@dataclass(frozen=True, slots=True)
class UpkeepRules:
    """The upkeep that ``maintain`` may do for a table.

    Attributes
    ----------
    small_files : int or None
        The table is optimized once a partition has this many files below half the target size;
        None: never.
    days : int or None
        The table is also optimized once a partition has two such files, one of them this many days
        old.
    vacuum : bool
    queued : bool
        The table is optimized by a transaction in its queue, which is saved.
    """

    small_files: int | None
    days: int | None
    vacuum: bool
    queued: bool = False


def upkeep_of(properties: Mapping[str, str]) -> UpkeepRules:
    """Return the rules that a table's properties set."""
    optimizes = _flag(properties.get(_OPTIMIZE, "")) != "false"
    few, days = _number(properties.get(_SMALL_FILES, "")), _number(properties.get(_DAYS, ""))
    return UpkeepRules(
        (max(int(few), 2) if few is not None else SMALL_FILES) if optimizes else None,
        int(days) if days is not None and optimizes else None,
        _flag(properties.get(_VACUUM, "")) != "false",
        _flag(properties.get(_QUEUED, "")) == "true",
    )


def is_upkeep(name: str) -> bool:
    """Return whether a property is one of the upkeep properties, or is meant to be."""
    meant = name.startswith((_OPTIMIZE, _VACUUM))
    return meant or bool(get_close_matches(name, _KNOWN, n=1, cutoff=0.9))


def check_upkeep(name: str, value: str, table: str) -> None:
    """Refuse a property of upkeep that has no meaning.

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
    _QUEUED: (_flag, "true or false"),
    _VACUUM: (_flag, "true or false"),
}
