"""What the protocol needs of a table format, and nothing more.

Snapshots keep their file list columnar (``FILES_SCHEMA``) from checkpoint to
pruning: a table of a million files never becomes a million Python objects.
Only the files that one commit adds or removes are structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Protocol

import msgspec
import pyarrow as pa

from lakevilla.expressions.tree import Expr
from lakevilla.store.base import Condition
from lakevilla.store.effects import Program

__all__ = [
    "FILES_SCHEMA",
    "VOIDED",
    "Attempt",
    "Change",
    "ChangeFile",
    "CommitInfo",
    "Constraint",
    "DataFile",
    "DeleteFile",
    "DeletionVector",
    "Entry",
    "FileRef",
    "FormatName",
    "Layout",
    "Leftovers",
    "PartitionField",
    "RemovedFile",
    "Snapshot",
    "SortField",
    "TableFormat",
    "data_files",
    "deletes_id",
    "file_ref",
    "file_refs",
    "files_from_structs",
    "removal",
]

#: The property that names a transaction whose commit object is gone: see ``void_change``.
VOIDED = "lakevilla.voided"

DELETION_VECTOR_TYPE = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline", pa.string()),
        ("offset", pa.int32()),
        ("size_in_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)

DELETE_FILE_TYPE = pa.struct(
    [
        ("path", pa.string()),
        ("kind", pa.string()),
        ("size", pa.int64()),
        ("equality_ids", pa.list_(pa.int32())),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)

#: One row a live file. ``partition_values`` maps physical column names (Iceberg: ids of
#: partition fields) to Delta's serialised strings (null = NULL); ``stats`` is JSON text
#: as in Delta's log, under ``Layout.statistics_schema``'s names. A file's identity is
#: (``path``, ``dv_id``), where ``dv_id`` stands for all deletes that apply to it.
#: ``raw_path`` is the path as the log spells it, where that is not how LakeVilla would.
FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("dv_id", pa.string()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("modification_time", pa.int64(), nullable=False),
        pa.field("partition_values", pa.map_(pa.string(), pa.string())),
        pa.field("stats", pa.string()),
        pa.field("deletion_vector", DELETION_VECTOR_TYPE),
        pa.field("base_row_id", pa.int64()),
        pa.field("default_row_commit_version", pa.int64()),
        pa.field("tags", pa.map_(pa.string(), pa.string())),
        pa.field("raw_path", pa.string()),
        pa.field("deletes", pa.list_(DELETE_FILE_TYPE)),
    ]
)

FormatName = Literal["delta", "iceberg"]

#: (path, id of the deletion vector or None)
FileRef = tuple[str, str | None]


class DeletionVector(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Delta deletion vector descriptor."""

    storage_type: str
    path_or_inline: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def id(self) -> str:
        """Delta's unique id: storage type, path or inline data, ``@offset`` where there is one."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline}{at}"


class DeleteFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An Iceberg delete file, or a deletion vector in one, that applies to a data file.

    ``kind``: ``position`` (paths and row numbers), ``equality`` (rows that agree in the
    columns ``equality_ids``) or ``vector`` (``length`` bytes from ``offset`` on).
    """

    path: str
    kind: Literal["position", "equality", "vector"]
    size: int
    equality_ids: tuple[int, ...] = ()
    offset: int | None = None
    length: int | None = None


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a commit adds. Paths are decoded, relative to the table or absolute URIs.

    ``raw_path`` is the path as the log spells it, where that is not how
    LakeVilla would: some readers match a removal with its file by spelling.
    ``sort_order_id`` is the sort order of the table in which its rows lie, if any.
    """

    path: str
    size: int
    modification_time: int
    partition_values: dict[str, str | None] = {}
    stats: str | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    tags: dict[str, str | None] | None = None
    data_change: bool = True
    raw_path: str | None = None
    clustering_provider: str | None = None
    deletes: tuple[DeleteFile, ...] = ()
    sort_order_id: int | None = None

    @property
    def ref(self) -> FileRef:
        return file_ref(self)


class RemovedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a commit removes, with what the removal must repeat of it.

    ``deletion_timestamp`` (milliseconds since the epoch) is None until the
    entry is rendered.
    """

    path: str
    size: int | None = None
    partition_values: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    stats: str | None = None
    data_change: bool = True
    raw_path: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_timestamp: int | None = None
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def ref(self) -> FileRef:
        return file_ref(self)


class ChangeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of Delta's change data feed (a ``cdc`` action)."""

    path: str
    size: int
    partition_values: dict[str, str | None] = {}


def removal(file: DataFile, *, data_change: bool = True) -> RemovedFile:
    """What removes ``file``, repeating of it what the format wants repeated."""
    return RemovedFile(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
        data_change=data_change,
        raw_path=file.raw_path,
        tags=file.tags,
        deletes=file.deletes,
    )


def data_files(files: pa.Table) -> list[DataFile]:
    """The rows of a ``FILES_SCHEMA`` table as structs, for the few that a commit touches."""
    return [_data_file(row) for row in files.to_pylist()]


def _data_file(row: dict[str, Any]) -> DataFile:
    vector = row["deletion_vector"]
    return DataFile(
        path=row["path"],
        size=row["size"],
        modification_time=row["modification_time"],
        partition_values=dict(row["partition_values"] or ()),
        stats=row["stats"],
        deletion_vector=None if vector is None else DeletionVector(**vector),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        tags=None if row["tags"] is None else dict(row["tags"]),
        raw_path=row["raw_path"],
        deletes=tuple(
            DeleteFile(**{**one, "equality_ids": tuple(one["equality_ids"] or ())})
            for one in row["deletes"] or ()
        ),
    )


def files_from_structs(files: Iterable[DataFile]) -> pa.Table:
    """Structs as a ``FILES_SCHEMA`` table."""
    rows = list(files)
    if not rows:
        return FILES_SCHEMA.empty_table()
    vectors = [file.deletion_vector for file in rows]
    columns: list[list[Any]] = [
        [file.path for file in rows],
        [file_ref(file)[1] for file in rows],
        [file.size for file in rows],
        [file.modification_time for file in rows],
        [list(file.partition_values.items()) for file in rows],
        [file.stats for file in rows],
        [
            None
            if vector is None
            else (
                vector.storage_type,
                vector.path_or_inline,
                vector.offset,
                vector.size_in_bytes,
                vector.cardinality,
            )
            for vector in vectors
        ],
        [file.base_row_id for file in rows],
        [file.default_row_commit_version for file in rows],
        [None if file.tags is None else list(file.tags.items()) for file in rows],
        [file.raw_path for file in rows],
        [[msgspec.structs.asdict(one) for one in file.deletes] or None for file in rows],
    ]
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, FILES_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


def file_refs(files: pa.Table) -> list[FileRef]:
    """The identities of the rows of a ``FILES_SCHEMA`` table, in order."""
    return list(zip(files["path"].to_pylist(), files["dv_id"].to_pylist(), strict=True))


def file_ref(file: DataFile | RemovedFile) -> FileRef:
    """A file's identity: a new deletion vector, or new deletes, make a new file."""
    vector = file.deletion_vector
    if vector is None and file.deletes:
        return file.path, deletes_id(file.deletes)
    return file.path, None if vector is None else vector.id


def deletes_id(deletes: Iterable[DeleteFile]) -> str:
    """What stands for a set of deletes in a file's identity."""
    named = sorted(f"{one.path}@{one.offset}" for one in deletes)
    return blake2b("\n".join(named).encode(), digest_size=16).hexdigest()


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


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named CHECK constraint or invariant; rows for which it is not true are refused."""

    name: str
    expression: Expr
    sql: str


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One part of what a file's rows have in common: a value made of a column of theirs.

    ``key`` names its value in ``DataFile.partition_values``, ``name`` in directories. ``path``
    is the column, or leads to a field within it. ``transform`` is Iceberg's (``identity``,
    ``day``, ``bucket[16]``).
    """

    key: str
    name: str
    path: tuple[str, ...]
    transform: str

    @property
    def column(self) -> str:
        """The column in which the value lies."""
        return self.path[0]

    @property
    def spelled(self) -> str:
        """As ``create_table`` takes it: ``c``, ``day(c.d)``, ``bucket(16, c)``."""
        source = ".".join(self.path)
        if self.transform == "identity":
            return source
        kind, _, rest = self.transform.partition("[")
        return f"{kind}({rest[:-1]}, {source})" if rest else f"{kind}({source})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of the order of rows within a file: by what a transform makes of a column."""

    column: str
    transform: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a table are laid out in files: all that an engine needs to read and write them.

    Attributes
    ----------
    location : str
        Key prefix of the table; a file's key is ``location + "/" + path`` unless its path is a URI.
    table : str
        Name for messages.
    schema : pyarrow.Schema
        Logical columns in order, partition columns included, with nullability.
    physical : pyarrow.Schema
        The same fields in the same order under their physical names (equal to
        ``schema`` without column mapping), with ``PARQUET:field_id`` metadata
        where the table maps by id.
    by_field_id : bool
        Files are read by Parquet field id rather than by physical name.
    partition_by : tuple of str
        Logical names.
    statistics_columns : tuple of str
        Dotted physical names of the leaf columns for which statistics are kept.
    constraints : tuple of Constraint
        CHECK constraints and invariants. NOT NULL is in the schema.
    properties : Mapping
        The table's properties.
    change_data_feed : bool
        Rewrites must also write change files.
    compression : str
        Parquet compression codec.
    target_file_size_bytes : int, optional
        Where the table says at how many bytes data files are cut.
    known_as : pyarrow.Schema, optional
        The same fields under the names by which statistics know them, where these are
        not the physical ones.
    partition_fields : tuple of PartitionField
        Iceberg's partitioning of new files, whose columns are in the files too:
        ``partition_by`` is empty then.
    constants : tuple of (str, str)
        Columns, and keys of ``DataFile.partition_values`` that have their value for all rows
        of a file which lacks the column, as its footer tells.
    constants_within : tuple of (int, str)
        The same of fields within columns, by field id: files that lack one are not read.
    defaults : tuple of (str, str)
        Columns, and the value (in the text of partition values) that rows have there whose
        files lack the column and have no constant for it.
    uri : str
        The table's directory as an Iceberg table's files spell it.
    data_directory : str
        Where new data files go, below the table's directory.
    sort_by : tuple of SortField
        The order of rows within each new file.
    sort_order_id : int, optional
        What the table calls that order.
    """

    location: str
    table: str
    schema: pa.Schema
    physical: pa.Schema
    by_field_id: bool
    partition_by: tuple[str, ...]
    statistics_columns: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    properties: Mapping[str, str]
    change_data_feed: bool = False
    compression: str = "snappy"
    target_file_size_bytes: int | None = None
    known_as: pa.Schema | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    constants_within: tuple[tuple[int, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    uri: str = ""
    data_directory: str = ""
    sort_by: tuple[SortField, ...] = ()
    sort_order_id: int | None = None

    @property
    def statistics_schema(self) -> pa.Schema:
        """The fields under the names by which statistics know them."""
        return self.physical if self.known_as is None else self.known_as


class Snapshot(Protocol):
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

    def apply(self, change: Change) -> Snapshot:
        """A state with ``change`` laid over this one; ``version`` stays."""

    def files(self, where: Expr | None = None) -> Program[pa.Table]:
        """The live files (``FILES_SCHEMA``) that may hold a row for which ``where`` is true."""

    def missing(self, refs: Sequence[FileRef]) -> Program[list[FileRef]]:
        """Those of ``refs`` that are not live in this state."""


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
        self, location: str, table: str, cached: Snapshot | None = None, *, catalog: str = ""
    ) -> Program[Snapshot]:
        """The newest version.

        ``cached``, a state that this process read within the hour, saves the LIST.
        ``catalog`` is the key of the pointer of a table in a catalog.
        """

    def open_at(
        self,
        location: str,
        table: str,
        version: int,
        cached: Snapshot | None = None,
        *,
        catalog: str = "",
    ) -> Program[Snapshot]:
        """The table at a version. Raises ``VersionNotFound`` when it is gone."""

    def entry(self, known: Snapshot, version: int) -> Program[Entry | None]:
        """One log entry, or None if the number is absent (which proves nothing by itself).

        ``known`` is any state of the same table.
        """

    def table_id(self, metadata: Mapping[str, Any]) -> str:
        """The id of the table that has ``metadata``, in the format's own form."""

    def advance(self, snapshot: Snapshot, entry: Entry) -> Snapshot:
        """The state after ``entry``, which must be the next version."""

    def blank(self, location: str, table: str, *, catalog: str = "") -> Snapshot:
        """The state before version 0: no table, version -1."""

    def create(
        self,
        blank: Snapshot,
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
        snapshot: Snapshot,
        *,
        add_columns: pa.Schema | None = None,
        drop_columns: Sequence[str] = (),
        rename_columns: Mapping[str, str] | None = None,
        drop_not_null: Sequence[str] = (),
        add_constraints: Mapping[str, str] | None = None,
        drop_constraints: Sequence[str] = (),
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Sequence[str] = (),
    ) -> Change:
        """The change of metadata; empty if there is none. Raises ``InvalidOperation``.

        Whether the rows present satisfy new constraints is for the caller to check.
        """

    def merge_schema(self, snapshot: Snapshot, schema: pa.Schema) -> Change:
        """The change that adds the columns of ``schema`` that the table lacks; empty if none."""

    def guard_change(self, snapshot: Snapshot) -> Change:
        """The change that makes other clients refuse to write; empty if they do."""

    def unguard_change(self, snapshot: Snapshot) -> Change:
        """The change that lifts the guard; empty if there is none."""

    def void_change(self, snapshot: Snapshot, txn: str) -> Change:
        """The change after which nothing fits that was decided before (``keeps_contract``)."""

    def prepare(
        self, snapshot: Snapshot, change: Change, info: CommitInfo, timestamp_ms: int
    ) -> Program[Attempt]:
        """The log entry that follows ``snapshot``, ready to be tried; what it names is stored.

        Fills in what depends on its place: in-commit timestamps, row ids, removal times.
        """

    def check_whole(self, snapshot: Snapshot) -> Program[None]:
        """Raise what would keep an entry from following the newest state, as far as it is known.

        Asked before anything is decided: what is damaged is told then, and no table of a
        transaction commits without the others. Costs nothing that publishing would not.
        """

    def stands(self, snapshot: Snapshot) -> Program[bool]:
        """Whether a version that was just created counts: others go on from it.

        Asked where numbers may be free again soon after they were taken
        (``log_retention_seconds``): a create there succeeds and is seen by nobody.
        """

    def announce(self, snapshot: Snapshot) -> Program[None]:
        """Point other clients' hints at a version that was just published."""

    def is_announced(self, snapshot: Snapshot) -> Program[bool]:
        """Whether other clients' hints name this version, or a newer one."""

    def log_retention_seconds(self, snapshot: Snapshot) -> float:
        """How long other clients' clean-up leaves an entry in the log."""

    def file_retention_seconds(self, snapshot: Snapshot) -> float:
        """How long a file that was removed must stay for those who still read it."""

    def may_name(self, path: str) -> bool:
        """Whether a path, relative to the table, may be that of an object that a state names."""

    def check_cleanable(self, snapshot: Snapshot, keys: Iterable[str]) -> None:
        """Refuse to delete files of a table, or what lies in its directory, where nobody should.

        ``keys`` are those of all objects of the directory.

        Raises
        ------
        InvalidOperation
            The table says so, or another table may have files there.
        UnsupportedTableFeature
            Others clean up such tables.
        """

    def without_expired(self, snapshot: Snapshot, replaced_before_ms: int, now_ms: int) -> Snapshot:
        """The table as ``expire`` would leave it."""

    def expire(self, snapshot: Snapshot, replaced_before_ms: int, now_ms: int) -> Program[bool]:
        """Let go of the states that were replaced before; False: there is nothing that lists them.

        Raises
        ------
        ConflictError
            Others wrote the table each time that it was tried.
        """

    def named_objects(self, snapshot: Snapshot, removed_since_ms: int) -> Program[set[str]]:
        """The keys of all data files and deletion vectors of a state, and of those removed since.

        Files that the log names by URIs are told by URIs. Removals may be forgotten
        once they are older than ``file_retention_seconds``.
        """

    def named_in_log(self, snapshot: Snapshot) -> Program[set[str]]:
        """The paths of all files that any entry still in the log adds or removes."""

    def log_directory(self, location: str) -> str:
        """The directory without which there is no table."""

    def leftovers(self, location: str, table_id: str) -> Program[Leftovers]:
        """What lies in the log of the table ``table_id``, whose data was deleted: one LIST."""

    def checkpoint_due(self, version: int, snapshot: Snapshot) -> bool: ...

    def checkpoint(self, snapshot: Snapshot) -> Program[None]:
        """Write a checkpoint of a published version and point ``_last_checkpoint`` at it."""
