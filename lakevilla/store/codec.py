"""On-store objects: JSON structs with a format version, read without trusting a byte."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from lakevilla.errors import CorruptObject, UnsupportedFormat

T = TypeVar("T", bound=msgspec.Struct)

#: The newest format version that this library writes and reads, for kinds without their own.
FORMAT = 1
#: The format of objects with changes that add files of Iceberg with vectors.
FORMAT_WITH_VECTORS = 2
#: The format of commit objects that several transactions share.
FORMAT_WITH_MEMBERS = 3
#: The format of commit objects with the commit of an Iceberg REST client.
FORMAT_WITH_GIVEN = 4
#: The format of commit objects that name what a client must know to read them.
FORMAT_WITH_NEEDS = 5
#: The format of idempotency keys whose request was refused for good.
FORMAT_WITH_REFUSALS = 5


#: What ``needs`` may name, of HEAD, of a table in HEAD, and of a commit object: nothing yet. What a
#: client must know from here on gets a name, which is listed here, and no number (note 87).
KNOWN_NEEDS: frozenset[str] = frozenset()


class _Versioned(msgspec.Struct):
    format: int


def encode(value: msgspec.Struct) -> bytes:
    """Return compact JSON; the struct carries its own ``format``."""
    return msgspec.json.encode(value, enc_hook=_to_wire)


def decode(key: str, body: bytes, kind: type[T]) -> T:
    """Decode an object that this library has stored.

    Raises
    ------
    UnsupportedFormat
        The object declares that a newer LakeVilla wrote it, or that it needs something unknown.
    CorruptObject
        It is not JSON, or lacks or mistypes a field.
    """
    newest = getattr(kind, "FORMAT", FORMAT)
    try:
        found = _decoder(kind).decode(body)
        if getattr(found, "format", newest + 1) <= newest:
            refuse_unknown(key, getattr(found, "needs", ()))
            return found
        fault: Exception | None = None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fault = error
    # An object of a newer version may lack or mistype a field of this one.
    try:
        version = _decoder(_Versioned).decode(body).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _corrupt(key, kind, error) from None
    if version > newest:
        raise UnsupportedFormat(
            f"{key} has format version {version}, this library reads up to {newest}: "
            "upgrade lakevilla",
            key=key,
        )
    if fault is not None:
        raise _corrupt(key, kind, fault) from None
    return found


def refuse_unknown(what: str, needs: Iterable[str]) -> None:
    """Refuse what needs something that this library does not know (note 87).

    Raises
    ------
    UnsupportedFormat
    """
    unknown = sorted(set(needs) - KNOWN_NEEDS)
    if unknown:
        raise UnsupportedFormat(
            f"{what} needs {', '.join(map(repr, unknown))}, which this library does not know: "
            "upgrade lakevilla",
            key=what,
        )


_DECODERS: dict[Any, msgspec.json.Decoder[Any]] = {}
_BUILDING = threading.Lock()
os.register_at_fork(
    before=_BUILDING.acquire, after_in_parent=_BUILDING.release, after_in_child=_BUILDING.release
)


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return the decoder of a kind, made once.

    Decoders are made one at a time: msgspec inspects a struct when it is first used, and
    crashes the process (seen with 0.22) when two threads make it inspect the same struct at once.
    """
    # docs/upstream.md, "Two threads that use a struct first end the process"
    found = _DECODERS.get(kind)
    if found is None:
        with _BUILDING:
            found = _DECODERS.get(kind)
            if found is None:
                found = _DECODERS[kind] = msgspec.json.Decoder(kind, dec_hook=_from_wire)
    return found


def _to_wire(value: Any) -> object:
    """Return the stored form of a value that has its own form."""
    return value.to_wire()


def _from_wire(kind: Any, found: object) -> object:
    return kind.from_wire(found)


def _corrupt(key: str, kind: type, error: Exception) -> CorruptObject:
    called = re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower().replace("txn", "transaction")
    remedy = getattr(kind, "REMEDY", "restore it from a copy, or run `lakevilla doctor`")
    return CorruptObject(f"{key} is not a valid {called}: {error}; {remedy}", key=key)
