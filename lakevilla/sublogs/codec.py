"""On-store objects: JSON structs with a format version, read without trusting a byte."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from lakevilla.errors import CorruptObject, UnsupportedFormat

T = TypeVar("T", bound=msgspec.Struct)

__all__ = ["FORMAT", "decode", "encode"]

#: The newest format version that this library writes and reads.
FORMAT = 1


class _Versioned(msgspec.Struct):
    format: int


def encode(value: msgspec.Struct) -> bytes:
    """Compact JSON; the struct carries its own ``format``."""
    return msgspec.json.encode(value)


def decode(key: str, body: bytes, kind: type[T]) -> T:
    """Read an object of this library.

    Raises
    ------
    UnsupportedFormat
        The object says that a newer LakeVilla wrote it.
    CorruptObject
        It is not JSON, or lacks or mistypes a field.
    """
    try:
        version = msgspec.json.decode(body, type=_Versioned).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(key, kind, error) from None
    if version > FORMAT:
        raise UnsupportedFormat(
            f"{key} has format version {version}, this library reads up to {FORMAT}: "
            "upgrade lakevilla",
            key=key,
        )
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(key, kind, error) from None


def _corrupt(key: str, kind: type, error: Exception) -> CorruptObject:
    called = re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower().replace("txn", "transaction")
    remedy = getattr(kind, "REMEDY", "restore it from a copy, or run `lakevilla doctor`")
    return CorruptObject(f"{key} is not a valid {called}: {error}; {remedy}", key=key)
