"""pyiceberg's Avro files, where it loses values or takes its time.

Its compiled decoder reads a double as the nearest float (pyiceberg 0.12,
``CythonBinaryDecoder.read_double``). In a manifest the values of partitions are such: two
partitions would become one, and a manifest that is made anew would tell other values.

Its encoder is Python. Each list of a table names the manifests of the one before, so their rows
are encoded once.
"""

from __future__ import annotations

import io
import struct
from typing import TypeVar

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, OptionReader, Reader, StructReader
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import ManifestFile
from pyiceberg.typedef import StructProtocol

from lakevilla.formats.iceberg.cache import Cache

__all__ = ["RememberedRows", "WholeAvroFile"]

D = TypeVar("D", bound=StructProtocol)

_DOUBLE = struct.Struct("<d")
#: Encoded rows, by all that they are made of.
_rows: Cache[bytes] = Cache(16 << 20)


class WholeAvroFile(AvroFile[D]):
    """See ``AvroFile``."""

    def __enter__(self) -> WholeAvroFile[D]:
        super().__enter__()
        self.reader = _whole(self.reader)
        return self


class _WholeDouble(DoubleReader):
    def read(self, decoder: BinaryDecoder) -> float:
        value: float = _DOUBLE.unpack(decoder.read(_DOUBLE.size))[0]
        return value


_WHOLE_DOUBLE = _WholeDouble()  # type: ignore[no-untyped-call]


def _whole(reader: Reader) -> Reader:
    """The reader with every double in its structs read by its bytes."""
    if isinstance(reader, DoubleReader):
        return _WHOLE_DOUBLE
    if isinstance(reader, OptionReader):
        option = _whole(reader.option)
        return reader if option is reader.option else OptionReader(option=option)
    if isinstance(reader, StructReader):
        fields = tuple((place, _whole(field)) for place, field in reader.field_readers)
        if [id(field) for _, field in fields] != [id(field) for _, field in reader.field_readers]:
            return StructReader(fields, reader.create_struct, reader.struct)
    return reader


class RememberedRows:
    """Encodes the rows of manifest lists of one format version as ``writer`` would."""

    def __init__(self, writer: Writer, format_version: int) -> None:
        self._writer = writer
        self._format_version = format_version

    def write(self, encoder: BinaryEncoder, manifest: ManifestFile) -> None:
        *plain, summaries, key_metadata = manifest._data
        parts = None if summaries is None else [one._data for one in summaries]
        key = repr((self._format_version, plain, parts, key_metadata))
        row = _rows.find(key)
        if row is None:
            body = io.BytesIO()
            self._writer.write(BinaryEncoder(body), manifest)
            row = body.getvalue()
            _rows.keep(key, row, len(key) + len(row))
        encoder.write(row)
