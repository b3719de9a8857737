"""Read and write Avro files."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyiceberg.avro.codecs import AVRO_CODEC_KEY, CODEC_MAPPING_ICEBERG_TO_AVRO
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.codecs.deflate import DeflateCodec
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import (
    MAGIC,
    META_SCHEMA,
    SYNC_SIZE,
    AvroFile,
    AvroFileHeader,
    AvroOutputFile,
    Block,
)
from pyiceberg.avro.reader import DoubleReader, MapReader, OptionReader, Reader, StructReader
from pyiceberg.avro.resolver import (
    ReadSchemaResolver,
    SchemaPartnerAccessor,
    construct_reader,
    construct_writer,
)
from pyiceberg.avro.writer import Writer
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakevilla.arrow.nesting import document
from lakevilla.formats.iceberg.manifests.decoder import BoundedDecoder
from lakevilla.formats.iceberg.metadata.file import Cache

# -------------------- avro
#
# Replaces parts of pyiceberg's Avro code that lose values, fail on some writers' files, or are
# slow.
#
# Its compiled decoder reads a double as the nearest float (pyiceberg 0.12,
# ``CythonBinaryDecoder.read_double``). In a manifest the values of partitions are doubles: two
# partitions would become one, and a manifest that is created again would contain other values.
# https://github.com/apache/iceberg-python/pull/3808
#
# Its encoder is Python. Each list of a table names the manifests of the one before, so their rows
# are encoded once.


D = TypeVar("D", bound=StructProtocol)

_DOUBLE = struct.Struct("<d")
#: The place of the summaries of partitions in the row of a manifest list.
_SUMMARIES = 13
#: Encoded rows, by all values that determine them.
_rows: Cache[bytes] = Cache(16 << 20)
#: Schemas and readers, by all that determines them: the manifests of a table share one, and making
#: it takes ten times as long as reading with it.
_readers: Cache[tuple[Schema, Reader]] = Cache(4 << 20)
_forms: Cache[Form] = Cache(4 << 20)
_NO_AVRO = re.compile(r"[^A-Za-z0-9_]")


class WholeAvroFile(AvroFile[D]):
    """See ``AvroFile``. ``named`` are ids of fields by name, where their records have none."""

    named: Mapping[str, Mapping[str, int]] = {}

    def __enter__(self) -> WholeAvroFile[D]:
        with self.input_file.open() as stream:
            # The compiled decoder does not check lengths: at the end of a file that was cut off it
            # reads on in the memory of the process (pyiceberg 0.12). The header and the frames of
            # blocks are few, and Python's decoder raises ``EOFError``.
            # https://github.com/apache/iceberg-python/issues/3952
            content = stream.read()
        self.decoder, self._size = StreamingBinaryDecoder(content), len(content)
        self.header = _HEADER.read(self.decoder)
        text = self.header.meta["avro.schema"]
        key = repr((self.read_types[-1].__name__, self.named, text))
        made = _readers.find(key)
        if made is None:
            made = self._resolved(text)
            _readers.keep(key, made, 16 * len(key))
        self.schema, self.reader = made
        return self

    def _resolved(self, text: str) -> tuple[Schema, Reader]:
        """Return the schema of a file with this Avro schema, and a reader of its records."""
        assert self.read_schema is not None
        written = document(text)
        schema = AvroSchemaConversion().avro_to_iceberg(
            numbered(written, self.read_schema, self.named)
        )
        resolver = ReadSchemaResolver(self.read_types, self.read_enums)
        resolve: Any = visit_with_partner  # as in pyiceberg's resolve_reader
        reader = _whole(resolve(schema, self.read_schema, resolver, _Partners()))
        return schema, _with_optional_pairs(reader, written)

    def _read_block(self) -> int:
        """Read the next block, as ``AvroFile`` does; only the end of a complete file raises
        ``EOFError``.

        ``AvroFile`` itself takes each ``EOFError`` for that end, and each block without records: a
        file whose last block is cut off, or one of whose counts is damaged, would have fewer rows.
        """
        # docs/upstream.md, "A file that is cut off within a block has fewer rows"
        # docs/upstream.md, "A block without records ends a file"
        decoder = self.decoder
        records, content = 0, b""
        while not content:
            try:
                marker = self.header.sync if self.block is None else decoder.read(SYNC_SIZE)
                is_over = decoder.tell() == self._size
                records, body = (0, b"") if is_over else (decoder.read_int(), decoder.read_bytes())
            except EOFError as error:
                raise ValueError(f"its last block is truncated at byte {self._size}") from error
            if marker != self.header.sync:
                raise ValueError("a block does not end with the marker of the file")
            if is_over:
                raise EOFError("all blocks are read")
            content = self._plain(body) if body else b""  # pyiceberg compresses even no records
            if (records > 0) != bool(content) or records < 0:
                raise ValueError(f"a block of {len(body)} bytes has {records} records")
            self.block = _WholeBlock(self.reader, records, BoundedDecoder(content))
        return records

    def _plain(self, body: bytes) -> bytes:
        """Return the content of a block, which is compressed or not."""
        codec = self.header.compression_codec()
        if codec is None:
            return body
        if issubclass(codec, DeflateCodec):
            return _inflated(body)
        return codec.decompress(body)


class _WholeBlock(Block[D]):
    """A block whose records take all of its bytes, or it is damaged."""

    block_decoder: BoundedDecoder

    def __next__(self) -> D:
        found = super().__next__()
        if not self.has_next():
            self.block_decoder.check_end()
        return found


#: A block takes at most so many times its bytes when it is unpacked, and always so many bytes. What
#: clients write takes ten to thirty times as many.
_MOST_TIMES, _ALWAYS_BYTES = 100, 64 << 20


def _most_bytes(body: bytes) -> int:
    return max(_ALWAYS_BYTES, _MOST_TIMES * len(body))


def _inflated(body: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    found = unpacking.decompress(body, _most_bytes(body))
    if not unpacking.eof:
        if unpacking.unconsumed_tail:
            raise ValueError(f"a block of {len(body)} bytes is of more than {len(found)} unpacked")
        raise ValueError("the content of a block is truncated")
    return found


class _Partners(SchemaPartnerAccessor):
    """An accessor that ignores structs, lists and maps that the specification does not know."""

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


_HEADER = construct_reader(META_SCHEMA, {-1: _Header})
_HEADER_WRITER = construct_writer(META_SCHEMA)


class _Snappy(Codec):
    """The Snappy codec of Arrow, which is installed with this library."""

    @staticmethod
    def compress(data: bytes) -> tuple[bytes, int]:
        body = pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
        return body, len(body)

    @staticmethod
    def decompress(data: bytes) -> bytes:
        body, size = data[:-4], 0
        for index, byte in enumerate(body):  # the length comes first, seven bits a byte
            size |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        if size > _most_bytes(body):
            raise ValueError(f"a block of {len(body)} bytes says that it is of {size} unpacked")
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
    """Return the reader with every double in its structs read from its bytes."""
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
    """A reader of a map as an array of pairs that may be null; BigQuery writes no null pair."""

    def __init__(self, pairs: MapReader, null: int) -> None:
        self._pairs, self._null = pairs, null

    def read(self, decoder: BinaryDecoder) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while count := decoder.read_int():
            if count < 0:  # their size in bytes follows
                decoder.skip_int()
            for _ in range(abs(count)):
                if decoder.read_int() != self._null:
                    key = self._pairs.key.read(decoder)
                    found[key] = self._pairs.value.read(decoder)
        return found

    def skip(self, decoder: BinaryDecoder) -> None:
        self.read(decoder)


def _with_optional_pairs(reader: Reader, kind: Any) -> Reader:
    """Return the reader with every map read in the form of the Avro schema's pairs."""
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
        # The reader's first fields are those of the file, in the file's order.
        pairs = zip(reader.field_readers, kind["fields"], strict=False)
        own = [(place, _with_optional_pairs(part, one["type"])) for (place, part), one in pairs]
        fields = (*own, *reader.field_readers[len(own) :])
        if any(a is not b for (_, a), (_, b) in zip(fields, reader.field_readers, strict=True)):
            return StructReader(fields, reader.create_struct, reader.struct)
    return reader


class RememberedRows:
    """An encoder of manifest lists' rows of one format version, with the result of ``writer``."""

    def __init__(self, writer: Writer, format_version: int) -> None:
        self._writer = writer
        self._format_version = format_version

    def write(self, encoder: BinaryEncoder, manifest: ManifestFile) -> None:
        plain, summaries = list(manifest._data), manifest._data[_SUMMARIES]
        plain[_SUMMARIES] = None if summaries is None else [one._data for one in summaries]
        key = repr((self._format_version, plain))
        row = _rows.find(key)
        if row is None:
            body = io.BytesIO()
            self._writer.write(BinaryEncoder(body), manifest)
            row = body.getvalue()
            _rows.keep(key, row, len(key) + len(row))
        encoder.write(row)


class Form(NamedTuple):
    """All that files with one schema have in common: an encoder of rows, the schema as Avro's."""

    writer: Writer
    schema: str


def form_of(key: str, made: Callable[[], AvroOutputFile[Any]]) -> Form:
    """Return the form of the file that ``made`` returns, whose schema ``key`` determines."""
    form = _forms.find(key)
    if form is None:
        file = made()
        schema = AvroSchemaConversion().iceberg_to_avro(file.file_schema, file.schema_name)
        form = Form(file.writer, json.dumps(_with_avro_names(schema)))
        _forms.keep(key, form, 16 * len(form.schema))
    return form


def _with_avro_names(schema: Any) -> Any:
    """Return the Avro schema of a record with the names that Avro allows, at every depth.

    A partition field has the name of its column, and that may be any text: DuckDB 1.5 ends its
    process at a name that is not ASCII. Readers find fields by their ids.
    """
    if isinstance(schema, list):
        return [_with_avro_names(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _with_fields_named(part) if name == "fields" else _with_avro_names(part)
        for name, part in schema.items()
    }


def _with_fields_named(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = [_avro_name(one["name"]) for one in fields]
    return [
        {name: _with_avro_names(part) for name, part in one.items()}
        | {"name": own if names.count(own) == 1 else f"{own}_{one['field-id']}"}
        for one, own in zip(fields, names, strict=True)
    ]


def _avro_name(name: str) -> str:
    """Return the name that Java's Iceberg library gives a field in Avro, in ASCII."""
    found = _NO_AVRO.sub(lambda one: f"_x{ord(one[0]):X}", name)
    return f"_{found}" if found[:1].isdigit() else found


class FormedFile(AvroOutputFile[D]):
    """A file as ``AvroOutputFile`` writes it, with block markers made from its name.

    pyiceberg draws the marker between blocks at random. Names are as unique as a nonce, so a
    marker made from a name is as unlikely to occur in a block; and the same commit then gives the
    same bytes.
    """

    def __init__(self, output: OutputFile, form: Form, metadata: dict[str, str]) -> None:
        self.output_file, self.metadata = output, metadata
        self.writer, self._schema = form
        name = output.location.encode()
        self.sync_bytes = blake2b(name, digest_size=SYNC_SIZE).digest()

    def _write_header(self) -> None:
        codec = self.metadata[AVRO_CODEC_KEY]
        meta = {
            **self.metadata,
            "avro.schema": self._schema,
            AVRO_CODEC_KEY: CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec),
        }
        _HEADER_WRITER.write(self.encoder, AvroFileHeader(MAGIC, meta, self.sync_bytes))


# -------------------- avro schema
#
# The Avro schema of a manifest from any writer, in the form that pyiceberg accepts.
#
# The specification identifies fields by their ids. Some writers leave them out, or do not mark a
# map as one, or only name a record where it occurs again: then names replace the ids.
# docs/upstream.md, "A manifest's schema is read in one form alone"


#: Names of fields in older specifications.
_OLDER = {
    "added_data_files_count": "added_files_count",
    "existing_data_files_count": "existing_files_count",
    "deleted_data_files_count": "deleted_files_count",
}
#: Ids of fields that no specification knows begin here.
_UNKNOWN = 1 << 20


def numbered(
    document: Mapping[str, Any], like: Schema, named: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """Return an Avro schema whose fields all have ids.

    ``like`` is the schema of the specification; ``named`` are ids by name of fields within
    fields where it does not define them, but a table's partition spec does.
    """
    found: dict[str, Any] = _Numbering(named).record(document, like.as_struct(), {})
    return found


class _Numbering:
    def __init__(self, named: Mapping[str, Mapping[str, int]]) -> None:
        self._named = named
        self._records: dict[str, Any] = {}
        self._unknown = _UNKNOWN

    def record(
        self, document: Mapping[str, Any], like: IcebergType | None, ids: Mapping[str, int]
    ) -> dict[str, Any]:
        known = {one.name: one for one in like.fields} if isinstance(like, StructType) else {}
        by_id = {one.field_id: one for one in known.values()}
        fields = []
        for one in document["fields"]:
            name = one["name"]
            number = one.get("field-id")
            if number is None:
                field: NestedField | None = known.get(_OLDER.get(name, name))
                number = ids.get(name) if field is None else field.field_id
            if number is None:
                self._unknown += 1
                number = self._unknown
            inner = by_id.get(number)
            kind = self._type(one["type"], inner and inner.field_type, self._named.get(name, {}))
            fields.append({**one, "field-id": number, "type": kind})
        made = {**document, "fields": fields}
        self._records[str(document.get("name"))] = made
        return made

    def _type(self, kind: Any, like: IcebergType | None, ids: Mapping[str, int]) -> Any:
        if isinstance(kind, str):
            return self._records.get(kind.rpartition(".")[2], kind)
        if isinstance(kind, list):
            return [self._type(one, like, ids) for one in kind] if len(kind) > 1 else kind[0]
        if isinstance(kind["type"], dict | list):
            return self._type(kind["type"], like, ids)
        if kind["type"] == "record":
            return self.record(kind, like, ids)
        if kind["type"] == "map":
            # The field is known to no specification: in bytes, it is an array of pairs.
            fields = [{"name": "key", "type": "string"}, {"name": "value", "type": kind["values"]}]
            pair = {"type": "record", "name": "", "fields": fields}
            return self._type({"type": "array", "items": pair}, None, ids)
        if kind["type"] != "array":
            return kind
        if isinstance(like, MapType):
            pair = kind["items"]
            if isinstance(pair, list):  # the pairs may be null
                pair = next(one for one in pair if one != "null")
            items = self._type(pair, None, {"key": like.key_id, "value": like.value_id})
            return {**kind, "logicalType": "map", "items": items}
        inner = like.element_type if isinstance(like, ListType) else None
        number = like.element_id if isinstance(like, ListType) else self._unknown
        return {"element-id": number, **kind, "items": self._type(kind["items"], inner, ids)}


def places_of(
    stored: Sequence[tuple[int, str]], wanted: Sequence[tuple[int, str, bool]]
) -> list[int | None]:
    """Return the places of the spec's fields in a manifest's partition tuples.

    ``stored`` are ids and names in the manifest; ``wanted`` those of the spec, and whether a
    field may be missing (``void``). Ids decide, then names; version 1 knew only the order.
    Raises ``ValueError``.
    """
    ids = {number: place for place, (number, _) in enumerate(stored)}
    names = {name: place for place, (_, name) in enumerate(stored)}
    places = [ids.get(number, names.get(name)) for number, name, _ in wanted]
    if all(place is None for place in places) and len(stored) == len(wanted):
        return list(range(len(stored)))
    for place, (_, name, optional) in zip(places, wanted, strict=True):
        if place is None and not optional:
            raise ValueError(f"its files have no value for partition field {name}")
    return places


# -------------------- memory files
#
# Files in memory, as pyiceberg reads and writes them.


class MemoryInput(InputFile):
    """A file of bytes in memory."""

    def __init__(self, location: str, body: bytes) -> None:
        super().__init__(location)
        self._body = body

    def __len__(self) -> int:
        return len(self._body)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._body)


class MemoryOutput(OutputFile):
    """A file that keeps in ``body`` what was written, once the stream is closed."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.body = b""

    def __len__(self) -> int:
        return len(self.body)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return MemoryInput(self.location, self.body)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)


class _Stream(io.BytesIO):
    def __init__(self, output: MemoryOutput) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.body = self.getvalue()
        super().close()
