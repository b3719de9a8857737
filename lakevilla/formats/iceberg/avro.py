"""pyiceberg's reader of Avro files, with doubles whole.

Its compiled decoder reads a double as the nearest float (pyiceberg 0.12,
``CythonBinaryDecoder.read_double``). In a manifest the values of partitions are such: two
partitions would become one, and a manifest that is made anew would tell other values.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import DoubleReader, OptionReader, Reader, StructReader
from pyiceberg.typedef import StructProtocol

__all__ = ["WholeAvroFile"]

D = TypeVar("D", bound=StructProtocol)

_DOUBLE = struct.Struct("<d")


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
