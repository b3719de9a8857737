"""Manifests of many data files, encoded column by column.

pyiceberg takes 0.3 ms for an entry, as it makes and walks Python objects. Here a part of all
entries is one array of bytes, and Arrow joins the arrays.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import ManifestFile, data_file_with_partition
from pyiceberg.typedef import Record
from pyiceberg.types import StructType

from lakevilla.formats.iceberg.manifests.manifests import ADDED, listed_file, manifest_writer
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition

Integers = npt.NDArray[np.int64]
#: Avro's bytes for the members of a union of null and a value.
_NULL, _PRESENT = b"\x00", b"\x02"
#: The end of an array's blocks.
_END = b"\x00"
#: The fields of a data file that are written, by their ids; the others are optional, and null.
_CONTENT, _PATH, _FORMAT, _PARTITION, _ROWS, _SIZE = 134, 100, 101, 102, 103, 104
_VALUES, _NULLS, _LOWER, _UPPER = 109, 110, 125, 128
#: An integer of 64 bits takes at most so many bytes of seven bits.
_MOST_BYTES = 10


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Data files that one manifest adds, in columns.

    Attributes
    ----------
    uris : pyarrow.Array
        Their paths as manifests spell them.
    rows, sizes : numpy.ndarray
        The number of their rows, and of their bytes.
    partitions : sequence of sequence
        The partition tuples that occur, with values as manifests have them.
    partition_of : numpy.ndarray
        The place of each file's tuple in ``partitions``.
    nulls, lower, upper : mapping
        By column id, each file's number of nulls, and its bounds as manifests have them; null where
        unknown.
    """

    uris: pa.Array
    rows: Integers
    sizes: Integers
    partitions: Sequence[Sequence[Any]]
    partition_of: Integers
    nulls: Mapping[int, pa.Array]
    lower: Mapping[int, pa.Array]
    upper: Mapping[int, pa.Array]


def encode_columns(uri: str, files: FileColumns, definition: IcebergDefinition) -> bytes:
    """Encode a manifest that adds data files, of the table's present partition spec.

    Its entries inherit snapshot and sequence number from the list that names it: any may.
    """
    writer, sink = manifest_writer(uri, definition.spec.spec_id, 0, definition)
    with writer._writer as file:
        _write_block(file, _entries(files, definition))
    return sink.body


def listed_columns(
    uri: str,
    size: int,
    files: FileColumns,
    snapshot_id: int,
    definition: IcebergDefinition,
    *,
    deletes: bool = False,
) -> ManifestFile:
    """Return the entry of such a manifest, or of one of ``deletes``, in the list of a snapshot."""
    spec = definition.spec
    writer, _ = manifest_writer(uri, spec.spec_id, snapshot_id, definition, deletes=deletes)
    writer._added_files, writer._added_rows = len(files.rows), int(files.rows.sum())
    writer._partitions = [Record(*files.partitions[place]) for place in set(files.partition_of)]
    made = listed_file(writer, spec, definition.schema_of(spec.spec_id))
    made._data[1] = size
    return made


def _write_block(file: AvroOutputFile[Any], entries: pa.Array) -> None:
    """Write all entries as one block; ``AvroOutputFile`` makes blocks of objects alone."""
    content = _bytes_of(entries)
    codec = file.compression_codec()
    body, length = (content, len(content)) if codec is None else codec.compress(content)
    for number in (len(entries), length):
        file.encoder.write_int(number)
    file.encoder.write(body)
    file.encoder.write(file.sync_bytes)


def _bytes_of(array: pa.Array) -> bytes:
    """Return the values of an array of bytes, one after the other."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])].tobytes()


def _entries(files: FileColumns, definition: IcebergDefinition) -> pa.Array:
    """Return the encoded entries."""
    spec = definition.spec
    kind = spec.partition_type(definition.schema_of(spec.spec_id))
    known = {
        _CONTENT: [_varint(0)],
        _PATH: _sized(files.uris.cast(pa.binary())),
        _FORMAT: [_varint(len("PARQUET")) + b"PARQUET"],
        _PARTITION: [_partitions(files, kind)],
        _ROWS: [varints(files.rows)],
        _SIZE: [varints(files.sizes)],
        _VALUES: _map({n: _where(nulls, files.rows) for n, nulls in files.nulls.items()}),
        _NULLS: _map({n: _numbers(nulls) for n, nulls in files.nulls.items()}),
        _LOWER: _map({n: _texts(bounds) for n, bounds in files.lower.items()}),
        _UPPER: _map({n: _texts(bounds) for n, bounds in files.upper.items()}),
    }
    version: Any = definition.format_version
    parts: list[Any] = [_varint(ADDED), _NULL, _NULL, _NULL]  # what an entry inherits
    for field in data_file_with_partition(kind, version).fields:
        parts += known.get(field.field_id) or [_NULL]
    return _joined(parts, len(files.rows))


def _joined(parts: Iterable[bytes | pa.Array], count: int) -> pa.Array:
    """Return in each row what all parts have there; bytes are the same in all rows."""
    run: list[bytes] = []
    found: list[pa.Array | pa.Scalar] = []
    for part in [*parts, None]:
        if isinstance(part, bytes):
            run.append(part)
            continue
        if run:
            found.append(pa.scalar(b"".join(run), pa.binary()))
            run = []
        if part is not None:
            found.append(part)
    nothing = pa.array([b""], pa.binary()).take(pa.array(np.zeros(count, np.int64)))
    return pc.binary_join_element_wise(
        nothing, *found, pa.scalar(b"", pa.binary()), null_handling="replace", null_replacement=b""
    )


def _map(values: Mapping[int, pa.Array]) -> list[bytes | pa.Array]:
    """Return the parts of an optional map by column id, from encoded values; null where none."""
    if not values:
        return [_NULL]
    arrays = list(values.values())
    counts: Integers = np.stack([_is_there(one) for one in arrays]).sum(axis=0, dtype=np.int64)
    heads = pc.if_else(pa.array(counts > 0), varints(counts), pa.scalar(b"", pa.binary()))
    glue = pa.scalar(b"", pa.binary())
    entries = [
        pc.binary_join_element_wise(pa.scalar(_varint(number), pa.binary()), one, glue)
        for number, one in values.items()
    ]
    return [_PRESENT, heads, *entries, _END]


def _is_there(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _where(known: pa.Array, numbers: Integers) -> pa.Array:
    """Return encoded numbers where ``known`` is not null."""
    return pc.if_else(known.is_valid(), varints(numbers), pa.scalar(None, pa.binary()))


def _numbers(values: pa.Array) -> pa.Array:
    return _where(values, values.fill_null(0).to_numpy(zero_copy_only=False))


def _texts(values: pa.Array) -> pa.Array:
    """Return bytes with their lengths before them; null where there are none."""
    length, text = _sized(values)
    return pc.binary_join_element_wise(length, text, pa.scalar(b"", pa.binary()))


def _sized(values: pa.Array) -> list[bytes | pa.Array]:
    """Return the lengths of bytes, encoded, and the bytes."""
    lengths = pc.binary_length(values).fill_null(0).cast(pa.int64())
    return [varints(lengths.to_numpy(zero_copy_only=False)), values]


def _partitions(files: FileColumns, kind: StructType) -> pa.Array:
    writer = construct_writer(kind)
    encoded = []
    for values in files.partitions:
        body = io.BytesIO()
        writer.write(BinaryEncoder(body), Record(*values))
        encoded.append(body.getvalue())
    return pa.array(encoded, pa.binary()).take(pa.array(files.partition_of))


def _varint(number: int) -> bytes:
    return bytes(varints(np.array([number], np.int64))[0].as_py())


def varints(values: Integers) -> pa.Array:
    """Return integers as Avro encodes them: zigzag, seven bits a byte, the lowest first."""
    bits = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    shifts = np.arange(_MOST_BYTES, dtype=np.uint64) * np.uint64(7)
    groups = bits[:, None] >> shifts
    last = (groups[:, 1:] != 0).sum(axis=1)
    places = np.arange(_MOST_BYTES)
    encoded = (groups & np.uint64(0x7F)).astype(np.uint8)
    encoded |= (places < last[:, None]).astype(np.uint8) << 7
    ends = np.concatenate(([0], np.cumsum(last + 1))).astype(np.int32)
    data = encoded[places <= last[:, None]]
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
