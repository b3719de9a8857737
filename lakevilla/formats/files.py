"""The files of a snapshot, as columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import array, mask, places, truths
from lakevilla.arrow.nesting import JsonDecoder

# -------------------- files
#
# The files of a table: data files with their deletes, as structs and in columns.


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
        ("names", pa.string()),
        ("rows", pa.int64()),
        ("alone", pa.bool_()),
        ("most", pa.int64()),
    ]
)


#: One row per live file. ``partition_values`` maps physical column names (Iceberg: ids of
#: partition fields) to Delta's serialised strings (null = NULL); ``stats`` is JSON text
#: as in Delta's log, under ``Layout.statistics_schema``'s names. A file's identity is
#: (``path``, ``dv_id``), where ``dv_id`` represents all deletes that apply to it.
#: ``raw_path`` is the path as the log spells it, where LakeVilla would spell it otherwise.
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


#: The tag of a file's hash (``store.content``): of the bytes at its path, which never change, so
#: it stays true in every entry that names the path.
HASH_TAG = "lakevilla.blake3"

#: The tag that identifies a file's rows: files with equal tags hold equal rows. A file of which
#: rows were deleted has no such tag.
ROWS_TAG = "lakevilla.rows"

#: The end of the names of data files, and of files with vectors of Iceberg and of Delta.
DATA_SUFFIX, PUFFIN_SUFFIX, VECTORS_SUFFIX = ".parquet", ".puffin", ".bin"
#: The end of the names of position delete files.
DELETES_SUFFIX = f"-deletes{DATA_SUFFIX}"

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
        """Delta's unique id: storage type, path or inline data, ``@offset`` if there is one."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline}{at}"


class DeleteFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """An Iceberg delete file, or a deletion vector in one, that applies to a data file.

    ``kind``: ``position`` (paths and row numbers), ``equality`` (rows that agree in the
    columns ``equality_ids``) or ``vector`` (``length`` bytes from ``offset`` on). ``names``: the
    path by which it names the data file, where that is a copy and is stored elsewhere. ``rows``:
    the number of rows that a vector deletes, or a position delete file that this process has made.
    ``alone``: all positions in it are of this data file. ``most``: their number, by its manifest;
    some may be there twice.
    """

    path: str
    kind: Literal["position", "equality", "vector"]
    size: int
    equality_ids: tuple[int, ...] = ()
    offset: int | None = None
    length: int | None = None
    names: str | None = None
    rows: int | None = None
    alone: bool = False
    most: int | None = None


class DataFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a commit adds. Paths are decoded, relative to the table or absolute URIs.

    ``raw_path`` is the path as the log spells it, where LakeVilla would spell it
    otherwise: some readers match a removal with its file by spelling.
    ``sort_order_id`` is the table's sort order in which its rows are stored, if any.
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
    """A file that a commit removes, with the properties of it that the removal must repeat.

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


def paths_of(file: DataFile | RemovedFile) -> list[str]:
    """Return the paths of a file and of the objects of Iceberg with its deletes."""
    return [file.path, *(one.path for one in file.deletes)]


def paths_of_deletes(files: Iterable[DataFile | RemovedFile]) -> set[str]:
    """Return the paths of the objects of Iceberg with deletes of some files."""
    return {one.path for file in files for one in file.deletes}


def holds_vectors(key: str) -> bool:
    """Return whether a file of a transaction has vectors or position deletes, by its key."""
    return key.endswith((PUFFIN_SUFFIX, VECTORS_SUFFIX, DELETES_SUFFIX))


def has_only_vectors(file: DataFile | RemovedFile) -> bool:
    """Return whether all deletes of a file of Iceberg are vectors that name it by its own path.

    Any commit to a table of version 3 may add such a file. Other deletes do not apply to a file
    that is added after them, and a copy of a file is named by another path.
    """
    return all(one.kind == "vector" and one.names is None for one in file.deletes)


class ChangeFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of Delta's change data feed (a ``cdc`` action)."""

    path: str
    size: int
    partition_values: dict[str, str | None] = {}


def removal(file: DataFile, *, data_change: bool = True) -> RemovedFile:
    """Return the removal of ``file``, with the properties that the format requires repeated."""
    return RemovedFile(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
        stats=_count_alone(file.stats),
        data_change=data_change,
        raw_path=file.raw_path,
        tags=_without_hash(file.tags),
        deletes=file.deletes,
    )


def restored(file: RemovedFile) -> DataFile:
    """Return the file that was removed, as far as its removal describes it."""
    return DataFile(
        path=file.path,
        size=file.size or 0,
        modification_time=0,
        partition_values=file.partition_values or {},
        stats=file.stats,
        deletion_vector=file.deletion_vector,
        base_row_id=file.base_row_id,
        default_row_commit_version=file.default_row_commit_version,
        data_change=file.data_change,
        deletes=file.deletes,
    )


def _count_alone(stats: str | None) -> str | None:
    """Return, of a removed file's statistics, only the row count that the table loses."""
    rows = rows_in(stats)
    return None if rows is None else f'{{"numRecords":{rows}}}'


def _without_hash(tags: dict[str, str | None] | None) -> dict[str, str | None] | None:
    """Return the tags that a removal repeats: the remover of a file needs no hash of it."""
    if tags is None or HASH_TAG not in tags:
        return tags
    return {name: value for name, value in tags.items() if name != HASH_TAG} or None


def data_files(files: pa.Table) -> list[DataFile]:
    """Return the rows of a ``FILES_SCHEMA`` table as structs, for the few that a commit changes."""
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


def hashes(files: pa.Table) -> list[str | None]:
    """Return the stored hashes of the rows of a ``FILES_SCHEMA`` table, in order, or None each."""
    if files["tags"].null_count == len(files):
        return [None] * len(files)
    found = pc.map_lookup(files["tags"].combine_chunks(), query_key=HASH_TAG, occurrence="first")
    found_hashes: list[str | None] = found.to_pylist()
    return found_hashes


class TableSize(msgspec.Struct, frozen=True):
    """The size of a table; ``rows`` and ``bytes`` are None where its files don't record them."""

    rows: int | None
    files: int
    bytes: int | None


class _Rows(msgspec.Struct):
    numRecords: int | None = None


_rows = JsonDecoder(_Rows)
#: The assumed width of a row where a file does not record its row count: rather too narrow, so
#: that the deleted rows of the file are still the smaller side of a join.
_ROW_BYTES = 32


def size_of(files: Iterable[DataFile | RemovedFile]) -> TableSize:
    """Return the total size of files, by their own records."""
    rows: int | None = 0
    size: int | None = 0
    count = 0
    for file in files:
        count += 1
        size = None if size is None or file.size is None else size + file.size
        if rows is not None:
            found = rows_of(file)
            rows = None if found is None else rows + found
    return TableSize(rows, count, size)


def rows_in(stats: str | None) -> int | None:
    """Return the number of rows of a file by its statistics, including deleted rows."""
    try:
        return None if stats is None else _rows.decode(stats).numRecords
    except msgspec.DecodeError:
        return None


def about_rows(stats: pa.ChunkedArray | None, sizes: Sequence[int]) -> int:
    """Estimate the number of rows, at least one, in files of these statistics and sizes."""
    counts = [None] * len(sizes) if stats is None else map(rows_in, stats.to_pylist())
    found = [
        size // _ROW_BYTES if count is None else count
        for count, size in zip(counts, sizes, strict=True)
    ]
    return max(sum(found), 1)


def rows_of(file: DataFile | RemovedFile) -> int | None:
    """Return the number of rows of a file that are not deleted; None if it is not known."""
    rows, deleted = rows_in(file.stats), rows_deleted_in(file)
    return None if rows is None or deleted is None else rows - deleted


def rows_deleted_in(file: DataFile | RemovedFile) -> int | None:
    """Return the number of a file's deleted rows; None if it has deletes that do not say it."""
    if file.deletion_vector is not None:
        return file.deletion_vector.cardinality
    counts = [one.rows for one in file.deletes]
    return None if None in counts else sum(count or 0 for count in counts)


def deleted_share(file: DataFile) -> float | None:
    """Return the share of a file's rows that are deleted at most; None if it is not known.

    Clients without LakeVilla may delete a row twice in position delete files.
    """
    rows, vector = rows_in(file.stats), file.deletion_vector
    numbers = [
        (one.most if one.rows is None else one.rows) if one.kind == "vector" or one.alone else None
        for one in file.deletes
    ]
    if not rows or None in numbers:
        return None
    deleted = sum(one or 0 for one in numbers) + (0 if vector is None else vector.cardinality)
    return deleted / rows


def files_from_structs(files: Iterable[DataFile]) -> pa.Table:
    """Return structs as a ``FILES_SCHEMA`` table."""
    rows = list(files)
    if not rows:
        return pa.Table.from_batches([], FILES_SCHEMA)
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
        array(values, field.type) for values, field in zip(columns, FILES_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=FILES_SCHEMA)


def file_refs(files: pa.Table) -> list[FileRef]:
    """Return the identities of the rows of a ``FILES_SCHEMA`` table, in order."""
    return list(zip(files["path"].to_pylist(), files["dv_id"].to_pylist(), strict=True))


def file_ref(file: DataFile | RemovedFile) -> FileRef:
    """Return a file's identity: a new deletion vector, or new deletes, make a new file."""
    vector = file.deletion_vector
    if vector is None and file.deletes:
        return file.path, deletes_id(file.deletes)
    return file.path, None if vector is None else vector.id


def deletes_id(deletes: Iterable[DeleteFile]) -> str:
    """Return the text that represents a set of deletes in a file's identity."""
    named = sorted(f"{one.path}@{one.offset}" for one in deletes)
    return blake2b("\n".join(named).encode(), digest_size=16).hexdigest()


def delete_paths(files: pa.Table) -> set[str]:
    """Return the paths of the objects of Iceberg with deletes that a ``FILES_SCHEMA`` table
    names.
    """
    return set(pc.struct_field(pc.list_flatten(files["deletes"]), "path").to_pylist())


_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.\-]*:/")


def paths_elsewhere(files: pa.Table) -> list[str]:
    """Return the absolute paths of files and deletes that a ``FILES_SCHEMA`` table names."""
    columns = [files["path"]]
    if files["deletion_vector"].null_count < len(files):
        vectors = pc.struct_field(files["deletion_vector"], "path_or_inline")
        kinds = pc.struct_field(files["deletion_vector"], "storage_type")
        named = vectors.filter(pc.is_in(kinds, value_set=pa.array(["p"]))).to_pylist()
        # A vector's path stays as the log spells it; those of files are decoded.
        columns.append(pa.chunked_array([[unquote(one) for one in named]], pa.string()))
    if files["deletes"].null_count < len(files):
        columns.append(pc.struct_field(pc.list_flatten(files["deletes"]), "path"))
    found: list[str] = []
    for column in columns:
        absolute = pc.match_substring_regex(column, f"^(?:{_ABSOLUTE.pattern})")
        found += column.filter(absolute).to_pylist()
    return found


def file_key(location: str, path: str) -> str:
    """Return the key of a data file, given its decoded path: relative to the table, or absolute."""
    return path if is_elsewhere(path) else f"{location}/{path}"


def is_elsewhere(path: str) -> bool:
    """Return whether a data file's decoded path is absolute, not relative to its table."""
    return _ABSOLUTE.match(path) is not None


# -------------------- file sets
#
# Set operations on file lists that stay columns.


#: By path, the files in a mask: those with these deletes, or (None) all.
Masks = Mapping[str, AbstractSet[str | None] | None]

_NONE: AbstractSet[str | None] = frozenset()


def by_path(refs: Iterable[FileRef]) -> Masks:
    """Return a mask of exactly these files."""
    found: dict[str, set[str | None]] = {}
    for path, deletes in refs:
        found.setdefault(path, set()).add(deletes)
    return found


def is_masked(ref: FileRef, masks: Masks) -> bool:
    """Return whether the mask has a file."""
    path, deletes = ref
    masked = masks.get(path, _NONE)
    return masked is None or deletes in masked


def masked_by_all(masks: Sequence[Masks]) -> Masks:
    """Return a mask of exactly the files that each of several masks has."""
    first, *others = sorted(masks, key=len)
    common: dict[str, AbstractSet[str | None] | None] = dict(first)
    for other in others:
        for path in [path for path in common if path not in other]:
            del common[path]
        for path, deletes in common.items():
            if deletes is None:
                common[path] = other[path]
            elif (more := other[path]) is not None:
                common[path] = deletes & more
    return common


def masked_out(files: pa.Table, masks: Masks) -> pa.Table:
    """Return ``files`` without those that later commits removed or added again.

    Most files share no path with any: one vectorised look-up sorts them out.
    """
    if not masks or files.num_rows == 0:
        return files
    hit = pc.is_in(files.column("path"), value_set=array(list(masks), pa.string()))
    rows = np.flatnonzero(truths(hit))
    if len(rows) == 0:
        return files
    taken = files.select(["path", "dv_id"]).take(places(rows))
    drop = np.fromiter(
        (
            is_masked(ref, masks)
            for ref in zip(
                taken.column("path").to_pylist(), taken.column("dv_id").to_pylist(), strict=True
            )
        ),
        dtype=bool,
        count=len(rows),
    )
    keep = np.ones(files.num_rows, dtype=bool)
    keep[rows[drop]] = False
    return files.filter(mask(keep))


def present(files: pa.Table, refs: Collection[FileRef]) -> set[FileRef]:
    """Return the refs in ``refs`` that ``files`` contains."""
    paths = {path for path, _ in refs}
    if not paths or files.num_rows == 0:
        return set()
    hit = pc.is_in(files.column("path"), value_set=array(list(paths), pa.string()))
    found = files.select(["path", "dv_id"]).filter(hit)
    pairs = zip(found.column("path").to_pylist(), found.column("dv_id").to_pylist(), strict=True)
    return set(pairs) & set(refs)


def files_not_among(files: pa.Table, others: pa.Table) -> pa.Table:
    """Return the files that are not among the others, by path and deletes."""
    known = _identities(others)
    return files.filter(pc.invert(pc.is_in(_identities(files), value_set=known)))


def _identities(files: pa.Table) -> pa.ChunkedArray:
    # No path contains this character. A file without deletes differs from one whose id is empty.
    deletes = pc.if_else(
        pc.is_null(files["dv_id"]), "", pc.binary_join_element_wise("\0", files["dv_id"], "")
    )
    return pc.binary_join_element_wise(files["path"], deletes, "")


def all_differ(texts: pa.ChunkedArray) -> bool:
    """Return whether all texts differ; in rare cases False though they do.

    For a million paths Arrow's own count takes 0.5 s, and this one 0.1 s.
    """
    if len(texts) == 0:
        return True
    if pc.min(pc.binary_length(texts)).as_py() < _WORD_BYTES:
        return len(texts.unique()) == len(texts)
    digests = np.concatenate([_digests(chunk) for chunk in texts.chunks if len(chunk)])
    digests.sort()
    return not bool((digests[1:] == digests[:-1]).any())


_WORD_BYTES = 8
_MIX = np.uint64(0x9E3779B97F4A7C15)


def _digests(texts: pa.StringArray) -> npt.NDArray[np.uint64]:
    """Return a number for each text, read eight bytes at a time: equal texts have equal ones."""
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    ends = offsets[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    starts, ends = ends[:-1], ends[1:]
    # The eight bytes at each offset, at any alignment; the last word of a text may overlap.
    words = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,))
    found = (ends - starts).astype(np.uint64)
    for step in range(0, int((ends - starts).max()), _WORD_BYTES):
        mixed = (found ^ words[np.minimum(starts + step, ends - _WORD_BYTES)]) * _MIX
        # A text's number must not depend on the length of other texts in the array.
        found = np.where(starts + step < ends, mixed ^ (mixed >> np.uint64(29)), found)
    return found
