"""Manifests, delete files, and summaries of snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    ManifestWriter,
    ManifestWriterV2,
    PartitionFieldStats,
    PartitionFieldSummary,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, StructType
from pyiceberg.utils.decimal import decimal_to_bytes

from lakevilla.errors import (
    CorruptObject,
    InvalidOperation,
    LakeVillaError,
    UnsupportedTableFeature,
)
from lakevilla.formats.base import Change
from lakevilla.formats.files import DELETE_FILE_TYPE, DeleteFile, deletes_id, paths_of_deletes
from lakevilla.formats.files import DataFile as AddedFile
from lakevilla.formats.iceberg.manifests.avro import (
    FormedFile,
    MemoryInput,
    MemoryOutput,
    RememberedRows,
    WholeAvroFile,
    form_of,
    places_of,
)
from lakevilla.formats.iceberg.manifests.bounds import metrics_of, statistics_of
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition, TableAddress
from lakevilla.formats.iceberg.metadata.partition_values import PartitionTypes

# -------------------- manifests
#
# Manifests and manifest lists: bytes to columns, and entries to bytes.
#
# pyiceberg reads and writes Avro. A manifest becomes an Arrow table when it is read
# and is kept in that form, since it never changes under its name (hazard 7).


EXISTING, ADDED, DELETED = (int(status) for status in ManifestEntryStatus)
_CODEC = "write.avro.compression-codec"

#: One row per entry of a manifest, including deleted ones. ``kind`` is that of a delete file;
#: ``target`` is the one data file that a delete file concerns, where it names one. ``spelled`` is
#: the path of a data file as its entry has it, where LakeVilla would spell it otherwise: vectors
#: name the file so.
ENTRIES = pa.schema(
    [
        ("path", pa.string()),
        ("status", pa.int8()),
        ("snapshot_id", pa.int64()),
        ("sequence", pa.int64()),
        ("spec_id", pa.int32()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("kind", pa.string()),
        ("equality_ids", pa.list_(pa.int32())),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("target", pa.string()),
        ("first_row_id", pa.int64()),
        ("spelled", pa.string()),
    ]
)
_PATH_ID = 2147483546
_PARTITION = 3
_REFERENCED = 143
#: The newest layout of entries: it has the fields by which delete files name data files.
_READ_VERSION = 3
#: The counts of a manifest's files and rows; a list may leave them out.
_COUNTS = (504, 505, 506, 512, 513, 514)
_LIST = Schema(
    *(
        one.model_copy(update={"required": False}) if one.field_id in _COUNTS else one
        for one in MANIFEST_LIST_FILE_SCHEMAS[_READ_VERSION].fields
    )
)


@dataclass(frozen=True, slots=True)
class MadeManifest:
    """A manifest that is still to be stored, and its entry in a manifest list."""

    file: ManifestFile
    path: str
    body: bytes


#: A manifest with its entries.
Made = tuple[MadeManifest, list[ManifestEntry]]


def decode_list(key: str, table: str, body: bytes) -> list[ManifestFile]:
    """Return the manifests that a manifest list names. Raises ``CorruptObject``."""
    with (
        _translated(key, table, "manifest list"),
        WholeAvroFile[ManifestFile](
            MemoryInput(key, body),
            _LIST,
            read_types={-1: ManifestFile, 508: PartitionFieldSummary},
            read_enums={517: ManifestContent},
        ) as reader,
    ):
        return list(reader)


def counted(manifest: ManifestFile, entries: pa.Table) -> None:
    """Fill in a manifest's counts of files and rows where the manifest list has none."""
    for place, status in ((7, ADDED), (8, EXISTING), (9, DELETED)):
        chosen = entries.filter(pc.equal(entries["status"], pa.scalar(status, pa.int8())))
        manifest._data[place] = chosen.num_rows
        manifest._data[place + 3] = pc.sum(chosen["rows"]).as_py() or 0


def is_counted(manifest: ManifestFile) -> bool:
    """Return whether the manifest list has the counts of a manifest's files and rows."""
    return all(manifest._data[index] is not None for index in range(7, 13))


def entries_of(
    key: str, definition: IcebergDefinition, body: bytes, manifest: ManifestFile
) -> list[ManifestEntry]:
    """Return all entries of a manifest, inherited values filled in. Raises ``CorruptObject``."""
    spec = definition.specs.get(manifest.partition_spec_id)
    if spec is None:
        raise CorruptObject(
            f"manifest {key} of table {definition.table} is of partition spec "
            f"{manifest.partition_spec_id}, which its metadata does not hold: restore the metadata "
            "file from a copy",
            key=key,
            table=definition.table,
        )
    file = WholeAvroFile[ManifestEntry](
        MemoryInput(key, body),
        MANIFEST_ENTRY_SCHEMAS[_READ_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    )
    file.named = {"partition": {field.name: field.field_id for field in spec.fields}}
    with _translated(key, definition.table, "manifest"), file as reader:
        places = _places(reader.schema, spec)
        types = definition.partition_types(spec.spec_id)
        found = [inherit(entry, manifest) for entry in reader]
        number_rows(found, manifest)
        for entry in found:
            if places is not None:
                partition = entry.data_file.partition
                entry.data_file._data[_PARTITION] = Record(
                    *(None if place is None else partition[place] for place in places)
                )
            values = entry.data_file.partition._data
            plain = types.plain(values)
            if plain is not values:
                entry.data_file._data[_PARTITION] = Record(*plain)
            if entry.sequence_number is None and entry.status != ManifestEntryStatus.DELETED:
                raise ValueError(f"it does not say when {entry.data_file.file_path} was added")
        return found


def _places(schema: Schema, spec: PartitionSpec) -> list[int | None] | None:
    """Return the places of the spec's fields in partition tuples; None where they are in order."""
    kind = schema.find_field(102).field_type
    fields = kind.fields if isinstance(kind, StructType) else ()
    wanted = [(one.field_id, one.name, str(one.transform) == "void") for one in spec.fields]
    places = places_of([(one.field_id, one.name) for one in fields], wanted)
    return None if places == list(range(len(fields))) else places


def inherit(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """Fill in the values that an entry inherits from its manifest (spec, sequence numbers).

    Where all entries of a manifest have one number, entries of older files may also leave it out.
    """
    if entry.snapshot_id is None:
        entry.snapshot_id = manifest.added_snapshot_id or 0
    sequence = manifest.sequence_number or 0
    same = sequence == (manifest.min_sequence_number or 0)
    if same or entry.status == ManifestEntryStatus.ADDED:
        if entry.sequence_number is None:
            entry.sequence_number = sequence
        if entry.file_sequence_number is None:
            entry.file_sequence_number = sequence
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry


def decode_manifest(
    key: str, body: bytes, manifest: ManifestFile, definition: IcebergDefinition
) -> pa.Table:
    """Return a manifest as columns. Raises ``CorruptObject`` and ``UnsupportedTableFeature``."""
    found = entries_of(key, definition, body, manifest)
    return columns_of(found, manifest.partition_spec_id, definition)


#: The memory of a small array of pyarrow beside what ``nbytes`` counts (measured: 1.5 KB).
_ARRAY_BYTES = 1536


def held_bytes(entries: pa.Table) -> int:
    """Return the memory that the entries of a manifest take. Mostly it has one or two of them."""
    arrays = sum(column.num_chunks * _arrays_of(column.type) for column in entries.columns)
    return int(entries.nbytes + _ARRAY_BYTES * arrays)


def _arrays_of(kind: pa.DataType) -> int:
    fields = range(kind.num_fields)
    return 1 + sum(_arrays_of(kind.field(number).type) for number in fields)


def columns_of(
    entries: Sequence[ManifestEntry], spec_id: int, definition: IcebergDefinition
) -> pa.Table:
    """Return entries of one of the table's specs as an ``ENTRIES`` table."""
    types = definition.partition_types(spec_id)
    rows = [_row(entry, spec_id, types, definition) for entry in entries]
    columns = list(zip(*rows, strict=True)) or [()] * len(ENTRIES)
    arrays = [pa.array(values, f.type) for values, f in zip(columns, ENTRIES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=ENTRIES)


def _row(
    entry: ManifestEntry, spec_id: int, types: PartitionTypes, definition: IcebergDefinition
) -> tuple[Any, ...]:
    file = entry.data_file
    if file.key_metadata:
        raise UnsupportedTableFeature(
            f"table {definition.table} has file {file.file_path}, which is encrypted (key_metadata"
            "): use the client that wrote it",
            table=definition.table,
        )
    place, leaves = definition.place, definition.leaves
    content = file.content or DataFileContent.DATA
    if content == DataFileContent.DATA and file.file_format != FileFormat.PARQUET:
        raise UnsupportedTableFeature(
            f"table {definition.table} has data file {file.file_path} of format "
            f"{file.file_format.value}: LakeVilla reads Parquet; use the client that wrote it",
            table=definition.table,
        )
    kind, stats, target = None, None, None
    if content == DataFileContent.DATA:
        nans = file.nan_value_counts or {}
        stats = statistics_of(
            file.record_count,
            file.null_value_counts,
            _bounds(file.lower_bounds, nans, leaves),
            _bounds(file.upper_bounds, nans, leaves),
            leaves,
            types.constants(file.partition),
        )
    else:
        is_vector = file.file_format == FileFormat.PUFFIN
        kind = "equality" if content == DataFileContent.EQUALITY_DELETES else "position"
        kind = "vector" if is_vector else kind
        if not is_vector and file.file_format != FileFormat.PARQUET:
            raise UnsupportedTableFeature(
                f"table {definition.table} has delete file {file.file_path} of format "
                f"{file.file_format.value}: LakeVilla reads Parquet; rewrite it with the client "
                "that wrote it",
                table=definition.table,
            )
        target = _target(file)
        target = None if target is None else place.path(target)
    return (
        place.path(file.file_path),
        int(entry.status),
        entry.snapshot_id,
        entry.sequence_number or 0,
        spec_id,
        list(types.texts(file.partition).items()),
        file.record_count,
        file.file_size_in_bytes,
        stats,
        kind,
        file.equality_ids if kind == "equality" else None,
        _extra(file, 18) if kind == "vector" else None,
        _extra(file, 19) if kind == "vector" else None,
        target,
        _extra(file, _FIRST_ROW) if content == DataFileContent.DATA else None,
        _spelled(file, place) if content == DataFileContent.DATA else None,
    )


def _spelled(file: DataFile, place: TableAddress) -> str | None:
    """Return a file's path as its entry has it; None if LakeVilla would spell it so, too."""
    uri: str = file.file_path
    return None if place.spelled(place.path(uri)) == uri else uri


def _extra(file: DataFile, index: int) -> Any:
    """Return a field that pyiceberg reads only by place (referenced file, offset, length)."""
    return file._data[index] if len(file._data) > index else None


def content_offset(file: DataFile) -> int | None:
    """Return the place of a vector in its file; None for other files."""
    found: int | None = _extra(file, 18) if file.file_format == FileFormat.PUFFIN else None
    return found


def _bounds(
    bounds: Mapping[int, bytes] | None, nans: Mapping[int, int], leaves: Mapping[int, Any]
) -> dict[int, bytes]:
    """Return the bounds that hold for every value: bounds of floats do not include NaN."""
    found = {}
    for number, raw in (bounds or {}).items():
        leaf = leaves.get(number)
        if leaf is None or (leaf.type in ("float", "double") and nans.get(number) != 0):
            continue
        found[number] = bytes(raw)
    return found


def _target(file: DataFile) -> str | None:
    """Return the one data file that a position delete file concerns, if it names one.

    Equal bounds of the paths in it name one too: a lower bound that was cut never equals the
    upper one, which is raised.
    """
    extra = _extra(file, 17)
    if extra is not None:
        return str(extra)
    low, high = ((b or {}).get(_PATH_ID) for b in (file.lower_bounds, file.upper_bounds))
    if low is None or low != high:
        return None
    try:
        return bytes(low).decode()
    except UnicodeDecodeError:
        return None


def new_entry(file: AddedFile, snapshot_id: int, definition: IcebergDefinition) -> ManifestEntry:
    """Return the entry that adds a data file in the spec that it was partitioned by."""
    spec = definition.spec_of(file)
    types = definition.partition_types(spec.spec_id)
    metrics = metrics_of(file.stats, definition.leaves)
    floats = {n for n in metrics.lower if definition.leaves[n].type in ("float", "double")}
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.raw_path or definition.place.spelled(file.path),
        file_format=FileFormat.PARQUET,
        partition=Record(*types.values(file.partition_values)),
        record_count=metrics.record_count,
        file_size_in_bytes=file.size,
        column_sizes=None,
        value_counts=metrics.value_counts,
        null_value_counts=metrics.null_counts,
        nan_value_counts=dict.fromkeys(floats, 0),
        lower_bounds=metrics.lower,
        upper_bounds=metrics.upper,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=file.sort_order_id,
    )
    data_file.spec_id = spec.spec_id
    if definition.has_row_ids:
        # Null for a new file. One that the table had before, or that was copied from another table,
        # keeps the ids of its rows (docs/design/0064-iceberg-v3.md).
        widened(data_file)[_FIRST_ROW] = file.base_row_id
    return _added_entry(data_file, snapshot_id)


def deletes_entry(
    file: AddedFile,
    deletes: DeleteFile,
    spec_id: int,
    snapshot_id: int | None,
    definition: IcebergDefinition,
) -> ManifestEntry:
    """Return the entry of a vector, or of the position delete file, of one data file, whose own
    entry is of the spec ``spec_id``.

    It inherits the number of its snapshot, so it is no older than the file. The bounds of the paths
    in a position delete file name the data file, too, for clients that know no other way.
    """
    known = file.raw_path or definition.place.spelled(file.path)
    is_vector = deletes.kind == "vector"
    bounds = None if is_vector else {_PATH_ID: known.encode()}
    types = definition.partition_types(spec_id)
    data_file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=definition.place.spelled(deletes.path),
        file_format=FileFormat.PUFFIN if is_vector else FileFormat.PARQUET,
        partition=Record(*types.values(file.partition_values)),
        record_count=deletes.rows,
        file_size_in_bytes=deletes.size,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    data_file.spec_id = spec_id
    widened(data_file)[_TARGET:] = known, deletes.offset, deletes.length
    return _added_entry(data_file, snapshot_id)


def _added_entry(file: DataFile, snapshot_id: int | None) -> ManifestEntry:
    """Return an entry that inherits its sequence numbers from the snapshot; None: also that."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=None,
        file_sequence_number=None,
        data_file=file,
    )


def encode_manifest(
    path: str,
    entries: Iterable[ManifestEntry],
    spec_id: int,
    snapshot_id: int,
    definition: IcebergDefinition,
    *,
    deletes: bool = False,
) -> MadeManifest:
    """Encode a manifest of data files, or of delete files (``deletes``).

    Its entries say added, existing, or deleted.
    """
    uri = definition.place.spelled(path)
    writer, sink = manifest_writer(uri, spec_id, snapshot_id, definition, deletes=deletes)
    with writer._writer:
        for entry in entries:
            if definition.has_row_ids:
                widened(entry.data_file)
            writer.add_entry(entry)
    listed = listed_file(writer, definition.specs[spec_id], definition.schema_of(spec_id))
    return MadeManifest(listed, path, sink.body)


def manifest_writer(
    uri: str,
    spec_id: int,
    snapshot_id: int,
    definition: IcebergDefinition,
    *,
    deletes: bool = False,
) -> tuple[ManifestWriter, MemoryOutput]:
    """Return the writer of a manifest, whose file is still to be opened, and where it writes."""
    sink = MemoryOutput(uri)
    codec: Any = _codec(definition)
    version: Any = definition.format_version
    spec, schema = definition.specs[spec_id], definition.schema_of(spec_id)
    make: Any = partial(write_manifest, version)
    if definition.has_row_ids:
        make = DeletesWriterV3 if deletes else ManifestWriterV3
    elif deletes:
        make = _DeletesWriter
    writer: ManifestWriter = make(spec, schema, sink, snapshot_id, codec)
    key = (version, deletes, spec.partition_type(schema))
    writer._writer = FormedFile(sink, form_of(repr(key), writer.new_writer), writer._meta)
    return writer, sink


class _OfDeletes(ManifestWriterV2):
    """A writer of entries of delete files; pyiceberg writes those of data files alone."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _DeletesWriter(_OfDeletes):
    """A writer of entries that keep the name of their one data file (``referenced_data_file``).

    pyiceberg drops that name, which version 2 allows too.
    """

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        newest: Any = _READ_VERSION
        partition = self._spec.partition_type(self._schema)
        known = data_file_with_partition(partition, self.version)
        more = data_file_with_partition(partition, newest).field(_REFERENCED)
        assert more is not None
        named = StructType(*known.fields, more)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=manifest_entry_schema_with_data_file(self.version, named),
            record_schema=self._with_partition(newest),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def _codec(definition: IcebergDefinition) -> str:
    """Return the manifests' compression by the table's properties, where it is supported."""
    wanted = definition.properties.get(_CODEC, "gzip").lower()
    known = {"gzip": "gzip", "zstd": "zstd", "uncompressed": "null", "null": "null", "none": "null"}
    return known.get(wanted, "gzip")


def encode_list(
    uri: str,
    manifests: Sequence[ManifestFile],
    *,
    snapshot_id: int,
    parent_id: int | None,
    sequence: int,
    definition: IcebergDefinition,
    next_row_id: int = 0,
) -> tuple[bytes, list[ManifestFile]]:
    """Encode a manifest list; return it, and the manifests with the numbers that it gives them.

    ``next_row_id``: the first id of a row that is not given out, where rows have ids.
    """
    sink = MemoryOutput(uri)
    codec: Any = _codec(definition)
    version: Any = definition.format_version
    writer: ManifestListWriter
    if definition.has_row_ids:
        writer = ManifestListWriterV3(sink, snapshot_id, parent_id, sequence, codec)
        writer._meta["first-row-id"] = str(next_row_id)
    else:
        writer = write_manifest_list(version, sink, snapshot_id, parent_id, sequence, codec)
    form = form_of(repr(version), lambda: _list_file(sink, version))
    rows: Any = RememberedRows(form.writer, version)
    with FormedFile[ManifestFile](sink, form._replace(writer=rows), writer._meta) as file:
        # Manifests of earlier lists have their numbers, and are not copied.
        named = [
            writer.prepare_manifest(manifest)
            if UNASSIGNED_SEQ in (manifest.sequence_number, manifest.min_sequence_number)
            else manifest
            for manifest in manifests
        ]
        if definition.has_row_ids:
            named = numbered_manifests(named, next_row_id)
        file.write_block(named)
    return sink.body, named


def _list_file(sink: MemoryOutput, version: Any) -> AvroOutputFile[ManifestFile]:
    """Return a manifest list as pyiceberg would write it."""
    return AvroOutputFile(
        sink,
        MANIFEST_LIST_FILE_SCHEMAS[version],
        "manifest_file",
        MANIFEST_LIST_FILE_SCHEMAS[max(version, DEFAULT_READ_VERSION)],
    )


class _translated:
    """A context that turns a decoder's errors into ``CorruptObject``."""

    def __init__(self, key: str, table: str, what: str) -> None:
        self._key, self._table, self._what = key, table, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ValueError) and str(error).endswith("is not a valid FileFormat"):
            raise UnsupportedTableFeature(
                f"table {self._table} has files of a format that LakeVilla does not know ({error}, "
                f"{self._key}): use the client that wrote them",
                table=self._table,
            ) from None
        if isinstance(error, Exception) and not isinstance(error, LakeVillaError):
            raise CorruptObject(
                f"{self._what} {self._key} of table {self._table} can't be read ({error}): restore "
                "it from a copy",
                key=self._key,
                table=self._table,
            ) from None


# -------------------- row ids
#
# Ids of rows in version 3 (docs/design/0064-iceberg-v3.md): a manifest list gives each manifest of
# data files the first of as many ids as it has rows, and so each file and each row gets one.
#
# pyiceberg reads version 3 and writes none.
# https://github.com/apache/iceberg-python/issues/1551


#: The place of ``first_row_id`` (142) in a data file, and the number of its fields in version 3.
_FIRST_ROW, _DATA_FIELDS = 16, 20
#: The place of the data file that a vector is of (143), before its offset and its length.
_TARGET = 17
#: The place of ``first_row_id`` (520) in a manifest list's rows, and the number of their fields.
_FIRST_OF_MANIFEST, _LIST_FIELDS = 15, 16


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first id that a manifest gives to rows of its files; None if it has none."""
    data = manifest._data
    found: int | None = data[_FIRST_OF_MANIFEST] if len(data) > _FIRST_OF_MANIFEST else None
    return found


def cache_key(manifest: ManifestFile) -> str:
    """Return the key of a manifest's entries: lists may give one manifest different ids, or none.

    After an upgrade, the first snapshot of version 3 gives ids to manifests that it did not write.
    """
    number = first_row_id(manifest)
    return manifest.manifest_path if number is None else f"{manifest.manifest_path}#{number}"


def rows_of_manifest(manifest: ManifestFile) -> int:
    """Return the number of ids that a manifest takes: one for each row that is not removed."""
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def number_rows(entries: Sequence[ManifestEntry], manifest: ManifestFile) -> None:
    """Fill in the ids of the first rows of data files, as they inherit them from their manifest.

    All entries are needed, in the manifest's order. A removed file has an id only if its entry says
    so. In a snapshot from before the upgrade no file has one.
    """
    if manifest.content != ManifestContent.DATA:
        return
    number = first_row_id(manifest)
    for entry in entries:
        data = widened(entry.data_file)
        if number is None:
            data[_FIRST_ROW] = None
        elif data[_FIRST_ROW] is None and entry.status != ManifestEntryStatus.DELETED:
            data[_FIRST_ROW] = number
            number += entry.data_file.record_count


def numbered_manifests(manifests: Sequence[ManifestFile], next_row_id: int) -> list[ManifestFile]:
    """Return the manifests with ids for those of data files that have none, in their order."""
    found = []
    for manifest in manifests:
        if len(manifest._data) < _LIST_FIELDS or (
            manifest.content == ManifestContent.DATA and first_row_id(manifest) is None
        ):
            manifest = copy(manifest)  # one of an earlier list is in use there
            missing = [None] * (_LIST_FIELDS - len(manifest._data))
            manifest._data = [*manifest._data, *missing]
            if manifest.content == ManifestContent.DATA:
                manifest._data[_FIRST_OF_MANIFEST] = next_row_id
                next_row_id += rows_of_manifest(manifest)
        found.append(manifest)
    return found


def widened(file: DataFile) -> list[Any]:
    """Return the fields of a data file, with those of version 3."""
    file._data += [None] * (_DATA_FIELDS - len(file._data))
    data: list[Any] = file._data
    return data


class ManifestWriterV3(ManifestWriterV2):
    @property
    def version(self) -> Any:
        return 3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(self.version)
        return AvroOutputFile(
            self._output_file, schema, "manifest_entry", schema, metadata=self._meta
        )


class DeletesWriterV3(_OfDeletes, ManifestWriterV3):
    """The same of version 3, which keeps all that the entries name."""


class ManifestListWriterV3(ManifestListWriterV2):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._meta["format-version"] = "3"

    def __enter__(self) -> ManifestListWriterV3:
        schema = MANIFEST_LIST_FILE_SCHEMAS[3]
        self._writer = AvroOutputFile(
            self._output_file, schema, "manifest_file", schema, metadata=self._meta
        )
        self._writer.__enter__()
        return self


# -------------------- delete files
#
# The delete files that apply to each data file (Iceberg spec, "Scan planning").


_Row = dict[str, Any]


def with_deletes(data: pa.Table, deletes: pa.Table, table: str) -> tuple[pa.Array, pa.Array]:
    """Return for each data file of ``data`` the id and the list of the deletes that apply to it.

    Both tables have ``ENTRIES``' columns. Data files that no delete can affect cost only
    a check of their partition.

    Raises
    ------
    CorruptObject
        A deletion vector names no data file, or two vectors name the same one.
    """
    index = _Index(deletes.to_pylist(), table)
    columns = ("path", "sequence", "spec_id", "partition_values")
    ids: list[str | None] = []
    lists: list[list[_Row] | None] = []
    for path, sequence, spec_id, values in zip(
        *(data.column(name).to_pylist() for name in columns), strict=True
    ):
        found = index.of(path, sequence, _partition(spec_id, values))
        ids.append(deletes_id(_struct(row) for row in found) if found else None)
        lists.append([_listed(row) for row in found] if found else None)
    return pa.array(ids, pa.string()), pa.array(lists, pa.list_(DELETE_FILE_TYPE))


_WAY_BACK = (
    "roll the table back to a snapshot before it, or rewrite the data file with the client that "
    "wrote the vector"
)


class _Index:
    def __init__(self, rows: Iterable[_Row], table: str) -> None:
        self._table = table
        self._by_target: dict[str, list[_Row]] = defaultdict(list)
        self._by_partition: dict[object, list[_Row]] = defaultdict(list)
        self._everywhere: list[_Row] = []
        for row in rows:
            if row["kind"] != "equality" and row["target"] is not None:
                self._by_target[row["target"]].append(row)
            elif row["kind"] == "vector":
                raise CorruptObject(
                    f"the deletion vector at {row['offset']} of {row['path']} of table {table} "
                    "can't be applied: its manifest does not say of which data file it is "
                    f"(referenced_data_file); {_WAY_BACK}",
                    key=row["path"],
                    table=table,
                )
            elif row["kind"] == "equality" and not row["partition_values"]:
                self._everywhere.append(row)
            else:
                key = _partition(row["spec_id"], row["partition_values"])
                self._by_partition[key].append(row)

    def of(self, path: str, sequence: int, partition: object) -> list[_Row]:
        pointed = [row for row in self._by_target.get(path, ()) if row["sequence"] >= sequence]
        vectors = [row for row in pointed if row["kind"] == "vector"]
        if len(vectors) > 1:
            named = " and ".join(f"{one['path']} at {one['offset']}" for one in vectors)
            raise CorruptObject(
                f"data file {path} of table {self._table} has two deletion vectors, {named}, and "
                f"may have one: which rows are deleted is not known; {_WAY_BACK}",
                key=path,
                table=self._table,
            )
        if not vectors:
            near = self._by_partition.get(partition, ())
            pointed += [
                row for row in near if row["kind"] == "position" and row["sequence"] >= sequence
            ]
        else:
            # A vector contains the earlier position deletes of the file.
            pointed = vectors
        found = pointed + [
            row
            for row in (*self._by_partition.get(partition, ()), *self._everywhere)
            if row["kind"] == "equality" and row["sequence"] > sequence
        ]
        return sorted(found, key=lambda row: (row["path"], row["offset"] or 0))


def apply_to_none(
    deletes: pa.Table, data: Sequence[pa.Table], marked: Collection[str] = ()
) -> pa.BooleanArray:
    """Return for each delete file whether it applies to no data file.

    All tables have ``ENTRIES``' columns. The data files are all live ones of a table: those that
    are added later have higher sequence numbers, so no delete file of today applies to them.
    ``marked``: the paths of data files with vectors, which replace all their position deletes.
    """
    if marked:
        paths = pa.array(sorted(marked), pa.string())
        others = [part.filter(pc.invert(pc.is_in(part["path"], value_set=paths))) for part in data]
        by_place = pc.equal(deletes["kind"], "position")
        return pc.if_else(by_place, apply_to_none(deletes, others), apply_to_none(deletes, data))
    columns = ("kind", "target", "sequence", "spec_id", "partition_values")
    rows = list(zip(*(deletes.column(name).to_pylist() for name in columns), strict=True))
    targets = {target for _, target, *_ in rows if target is not None}
    oldest_at = _oldest_by_path(data, targets)
    wide = [row for row in rows if row[0] == "equality" or row[1] is None]
    oldest_in = _oldest_by_partition(data) if wide else {}
    oldest = min(oldest_in.values(), default=None)
    found = []
    for kind, target, sequence, spec_id, values in rows:
        if kind != "equality" and target is not None:
            first = oldest_at.get(target)
        elif kind == "equality" and not values:
            first = oldest
        else:
            first = oldest_in.get(_partition(spec_id, values))
        last = sequence - 1 if kind == "equality" else sequence
        found.append(first is None or first > last)
    return pa.array(found, pa.bool_())


def _oldest_by_path(data: Sequence[pa.Table], targets: set[str]) -> dict[str, int]:
    """Return the lowest sequence number of the data files at each of some paths."""
    found: dict[str, int] = {}
    wanted = pa.array(sorted(targets), pa.string())
    for part in data if targets else ():
        hit = part.filter(pc.is_in(part["path"], value_set=wanted))
        for path, sequence in zip(
            hit["path"].to_pylist(), hit["sequence"].to_pylist(), strict=True
        ):
            found[path] = min(sequence, found.get(path, sequence))
    return found


def _oldest_by_partition(data: Sequence[pa.Table]) -> dict[object, int]:
    """Return the lowest sequence number of the data files of each partition."""
    found: dict[object, int] = {}
    columns = ("spec_id", "partition_values", "sequence")
    for part in data:
        rows = zip(*(part.column(name).to_pylist() for name in columns), strict=True)
        for spec_id, values, sequence in rows:
            key = _partition(spec_id, values)
            found[key] = min(sequence, found.get(key, sequence))
    return found


def deletes_manifests(
    change: Change,
    specs: Mapping[str, int],
    definition: IcebergDefinition,
    snapshot_id: int,
    name: str,
) -> list[Made]:
    """Return manifests of the new deletes of added files, one for each partition spec.

    ``specs``: the specs of the entries of files that stay, by path. ``name`` is the prefix of the
    manifests' names.
    """
    known = paths_of_deletes(change.removes)
    by_spec: dict[int, list[ManifestEntry]] = defaultdict(list)
    for file in change.adds:
        if not file.deletes:
            continue
        new = file.deletes
        if not definition.has_row_ids:
            new = tuple(one for one in file.deletes if one.path not in known)
        is_right = len(new) == 1 and (
            new[0].kind == "vector"
            if definition.has_row_ids
            else new[0].alone and new[0].rows is not None
        )
        if not is_right:
            raise InvalidOperation(
                f"file {file.path} of table {definition.table} can't be added with its deletes: "
                "LakeVilla adds a vector in version 3, and a new position delete file in version "
                "2; rewrite the file first",
                table=definition.table,
            )
        spec_id = specs.get(file.path)
        if spec_id is None:
            spec_id = definition.spec_of(file).spec_id
        by_spec[spec_id].append(deletes_entry(file, new[0], spec_id, snapshot_id, definition))
    made = []
    for count, (spec_id, entries) in enumerate(by_spec.items()):
        path = f"metadata/{name}{count}.avro"
        whole = encode_manifest(path, entries, spec_id, snapshot_id, definition, deletes=True)
        made.append((whole, entries))
    return made


def files_with_vectors(deletes: Iterable[pa.Table]) -> set[str]:
    """Return the paths of the data files of which some delete files (``ENTRIES``) are vectors."""
    return {
        path
        for part in deletes
        for path in part.filter(pc.equal(part["kind"], "vector"))["target"].to_pylist()
    }


def are_alone_of(deletes: pa.Table, paths: Collection[str]) -> pa.ChunkedArray:
    """Return for each delete file (``ENTRIES``) whether it is a vector, or has positions, of one of
    the data files alone.
    """
    named = pc.is_in(deletes["target"], value_set=pa.array(sorted(paths), pa.string()))
    return pc.and_(pc.not_equal(deletes["kind"], "equality"), named)


def _partition(spec_id: int, values: Any) -> object:
    return spec_id, tuple(sorted(values or ()))


def _struct(row: _Row) -> DeleteFile:
    return DeleteFile(**_listed(row))


def _listed(row: _Row) -> _Row:
    is_alone = row["kind"] == "position" and row["target"] is not None
    return {
        "path": row["path"],
        "kind": row["kind"],
        "size": row["size"],
        "equality_ids": tuple(row["equality_ids"] or ()),
        "offset": row["offset"],
        "length": row["length"],
        "rows": row["rows"] if row["kind"] == "vector" else None,
        "alone": is_alone,
        "most": row["rows"] if is_alone else None,
    }


# -------------------- summaries
#
# The entry of a manifest in a manifest list, including the bounds of its partitions.
#
# pyiceberg makes no bound of a decimal that has one digit more than its type. The spec's truncation
# makes such values from the lowest ones of a type, and a writer that does not refuse them has them
# in its manifests. A manifest that keeps its files must be listed nevertheless: the bytes of
# a bound are as many as the value needs (spec, "Binary single-value serialization"), and no reader
# counts its digits. https://github.com/apache/iceberg/issues/17027


_PARTITIONS = 13


def listed_file(writer: ManifestWriter, spec: PartitionSpec, schema: Schema) -> ManifestFile:
    """Return the entry, in a manifest list, of a manifest that was written."""
    partitions, writer._partitions = writer._partitions, []
    made = writer.to_manifest_file()
    made._data[_PARTITIONS] = [
        _summary(field.field_type, [one[index] for one in partitions])
        for index, field in enumerate(spec.partition_type(schema).fields)
    ]
    return made


def _summary(kind: Any, values: list[Any]) -> PartitionFieldSummary:
    stats = PartitionFieldStats(kind)
    for value in values:
        stats.update(value)
    if not isinstance(kind, DecimalType) or stats._min is None or stats._max is None:
        return stats.to_summary()
    low, high = decimal_to_bytes(stats._min), decimal_to_bytes(stats._max)
    return PartitionFieldSummary(stats._contains_null, stats._contains_nan, low, high)
