"""A table's pointer in a catalog: the key it has here, and what the catalog answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

import msgspec

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.store.location import CATALOG

_NUMBERED = re.compile(r"(\d{1,18})-[^/]*\.metadata\.json(?:\.gz)?")


class Pointer(msgspec.Struct, frozen=True):
    """Where a table's newest metadata file is, and the table itself."""

    metadata: str
    location: str


_pointers = JsonDecoder(Pointer)


def pointer_key(catalog: str, identifier: Sequence[str]) -> str:
    """``catalog://<name>/<namespace>/<table>``, each part escaped as in a URI."""
    return f"{CATALOG}://" + "/".join(quote(part, safe="") for part in (catalog, *identifier))


def identifier_of(key: str) -> tuple[str, tuple[str, ...]]:
    """The catalog's name, and the table's in it."""
    name, *parts = (unquote(part) for part in key.partition("://")[2].split("/"))
    return name, tuple(parts)


def name_in_catalog(key: str) -> str:
    """The table's name as people spell it: ``catalog.namespace.table``."""
    catalog, identifier = identifier_of(key)
    return ".".join((catalog, *identifier))


def encode_pointer(pointer: Pointer) -> bytes:
    return msgspec.json.encode(pointer)


def decode_pointer(body: bytes) -> Pointer:
    return _pointers.decode(body)


def number_of(uri: str) -> int | None:
    """The version that a metadata file holds by its name; None if that has no number."""
    match = _NUMBERED.fullmatch(uri.rpartition("/")[2])
    return None if match is None else int(match[1])
