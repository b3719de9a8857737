"""pyiceberg's Avro files, where it loses values, knows too few writers, or takes its time.

Its compiled decoder reads a double as the nearest float (pyiceberg 0.12,
``CythonBinaryDecoder.read_double``). In a manifest the values of partitions are such: two
partitions would become one, and a manifest that is created again would tell other values.

Its encoder is Python. Each list of a table names the manifests of the one before, so their rows
are encoded once.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.reader import DoubleReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.avro.resolver import (
    ReadSchemaResolver,
    SchemaPartnerAccessor,
    construct_reader,
)
from pyiceberg.avro.writer import Writer
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import visit_with_partner
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakevilla.arrow.nesting import document
from lakevilla.formats.iceberg.manifests.avro_schema import numbered
from lakevilla.formats.iceberg.metadata.cache import Cache

D = TypeVar("D", bound=StructProtocol)

_DOUBLE = struct.Struct("<d")
#: Encoded rows, by all that they are made of.
_rows: Cache[bytes] = Cache(16 << 20)


class WholeAvroFile(AvroFile[D]):
    """See ``AvroFile``. ``named`` are ids of fields by name, where their records have none."""

    named: Mapping[str, Mapping[str, int]] = {}

    def __enter__(self) -> WholeAvroFile[D]:
        with self.input_file.open() as stream:
            self.decoder = new_decoder(stream.read())
        self.header = construct_reader(META_SCHEMA, {-1: _Header}).read(self.decoder)
        assert self.read_schema is not None
        written = document(self.header.meta["avro.schema"])
        made = numbered(written, self.read_schema, self.named)
        self.schema = AvroSchemaConversion().avro_to_iceberg(made)
        resolver = ReadSchemaResolver(self.read_types, self.read_enums)
        resolve: Any = visit_with_partner  # as in pyiceberg's resolve_reader
        reader = _whole(resolve(self.schema, self.read_schema, resolver, _Partners()))
        self.reader = _with_optional_pairs(reader, written)
        return self


class _Partners(SchemaPartnerAccessor):
    """Passes over structs, lists and maps that the specification does not know."""

    def field_partner(self, partner: Any, field_id: int, field_name: str) -> Any:
        return None if partner is None else super().field_partner(partner, field_id, field_name)

    def list_element_partner(self, partner_list: Any) -> Any:
        return None if partner_list is None else super().list_element_partner(partner_list)

    def map_key_partner(self, partner_map: Any) -> Any:
        return None if partner_map is None else super().map_key_partner(partner_map)

    def map_value_partner(self, partner_map: Any) -> Any:
        return None if partner_map is None else super().map_value_partner(partner_map)


class _Header(AvroFileHeader):
    def compression_codec(self) -> type[Codec] | None:
        match self.meta.get("avro.codec", "null"):
            case "null":
                return None
            case "snappy":
                return _Snappy
        return super().compression_codec()


class _Snappy(Codec):
    """By Arrow, which everyone has who has this library."""

    @staticmethod
    def compress(data: bytes) -> tuple[bytes, int]:
        body = pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
        return body, len(body)

    @staticmethod
    def decompress(data: bytes) -> bytes:
        body, size = data[:-4], 0
        for place, byte in enumerate(body):  # the length comes first, seven bits a byte
            size |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        found: bytes = pa.decompress(body, size, "snappy", asbytes=True)
        if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
            raise ValueError("the checksum of a block is wrong")
        return found


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


class _OptionalPairs(Reader):
    """Reads a map as an array of pairs that may be null, of which BigQuery writes none."""

    def __init__(self, pairs: MapReader, null: int) -> None:
        self._pairs, self._null = pairs, null

    def read(self, decoder: BinaryDecoder) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while count := decoder.read_int():
            if count < 0:  # how many bytes they take comes next
                decoder.skip_int()
            for _ in range(abs(count)):
                if decoder.read_int() != self._null:
                    key = self._pairs.key.read(decoder)
                    found[key] = self._pairs.value.read(decoder)
        return found

    def skip(self, decoder: BinaryDecoder) -> None:
        self.read(decoder)


def _with_optional_pairs(reader: Reader, kind: Any) -> Reader:
    """The reader with every map read as the Avro schema has its pairs."""
    if isinstance(kind, list):
        inner = next((one for one in kind if one != "null"), None)
        if not isinstance(reader, OptionReader):
            return _with_optional_pairs(reader, inner)
        option = _with_optional_pairs(reader.option, inner)
        return reader if option is reader.option else OptionReader(option=option)
    if not isinstance(kind, dict):
        return reader
    if isinstance(kind["type"], dict | list):
        return _with_optional_pairs(reader, kind["type"])
    items = kind.get("items")
    if isinstance(reader, MapReader) and isinstance(items, list) and len(items) > 1:
        return _OptionalPairs(reader, items.index("null"))
    if isinstance(reader, StructReader) and kind["type"] == "record":
        # Its first fields are those of the file, in their order.
        pairs = zip(reader.field_readers, kind["fields"], strict=False)
        own = [(place, _with_optional_pairs(part, one["type"])) for (place, part), one in pairs]
        fields = (*own, *reader.field_readers[len(own) :])
        if any(a is not b for (_, a), (_, b) in zip(fields, reader.field_readers, strict=True)):
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
