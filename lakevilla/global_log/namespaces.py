"""Namespaces that were made by name, and their properties.

A directory of a lake's tables is a namespace by itself. ``_lakevilla/namespaces/<hash>.json`` has
what no table shows: that a namespace exists although it is empty, and its properties. No commit
relies on it. So a namespace that is dropped while another client makes a table there stays, as the
directory that it is, and has lost its properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import quote, unquote

import msgspec
from blake3 import blake3

from lakevilla.errors import ConflictError
from lakevilla.store.base import ABSENT, Found, Match, Stored
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, delete, get, list_objects, parallel, put

NAMESPACES_PREFIX = "_lakevilla/namespaces"
Namespace = tuple[str, ...]
Properties = Mapping[str, str]
#: The namespace of tables whose names have no slash. DuckDB hides ``main`` of an attached catalog,
#: and ``default`` is a keyword of SQL.
ROOT: Namespace = ("root",)
#: Characters that a part keeps: all but ``/``, ``%``, ``\``, and those that are not printed.
_KEPT = " ~!$&'()*+,;=:@-._#?[]<>{}|^`\""
#: How often a replacement of properties is attempted while other clients replace them, too.
_TRIES = 20


class NamespaceFile(msgspec.Struct, frozen=True):
    """A namespace, by the parts of its name, and its properties."""

    REMEDY: ClassVar[str] = "delete it: the namespace loses its properties, and no table"

    format: int
    nonce: str
    namespace: Namespace
    properties: dict[str, str]


def namespace_key(namespace: Namespace) -> str:
    """Return the key of a namespace's object."""
    name = msgspec.json.encode(namespace)
    return f"{NAMESPACES_PREFIX}/{blake3(name).hexdigest(length=20)}.json"


def made_namespaces() -> Program[dict[Namespace, Properties]]:
    """Return the properties of all namespaces that were made by name; one LIST, one GET each."""
    listed = yield from list_objects(NAMESPACES_PREFIX)
    keys = [one.key for one in listed]
    found = yield from parallel([get(key) for key in keys])
    files = [
        decode(key, outcome.body, NamespaceFile)
        for key, outcome in zip(keys, found, strict=True)
        if isinstance(outcome, Found)  # else it was dropped meanwhile
    ]
    return {file.namespace: file.properties for file in files}


def properties_of(namespace: Namespace) -> Program[Properties | None]:
    """Return a namespace's properties; None if it was not made by name."""
    key = namespace_key(namespace)
    found = yield from get(key)
    return decode(key, found.body, NamespaceFile).properties if isinstance(found, Found) else None


def make_namespace(namespace: Namespace, properties: Properties, nonce: str) -> Program[bool]:
    """Make a namespace; return False if it was made before."""
    file = NamespaceFile(FORMAT, nonce, namespace, dict(properties))
    outcome = yield from put(namespace_key(namespace), encode(file), ABSENT)
    return isinstance(outcome, Stored)


def change_properties(
    namespace: Namespace, change: Callable[[Properties], Properties], nonce: Callable[[], str]
) -> Program[Properties]:
    """Replace a namespace's properties; return those before. A directory is made a namespace.

    Raises
    ------
    ConflictError
        Other clients have changed them again and again.
    """
    key = namespace_key(namespace)
    for _ in range(_TRIES):
        found = yield from get(key)
        known = (
            decode(key, found.body, NamespaceFile).properties if isinstance(found, Found) else {}
        )
        file = NamespaceFile(FORMAT, nonce(), namespace, dict(change(known)))
        condition = Match(found.token) if isinstance(found, Found) else ABSENT
        if isinstance((yield from put(key, encode(file), condition)), Stored):
            return known
    raise ConflictError(
        f"the properties of namespace {'.'.join(namespace)} were changed by other clients {_TRIES} "
        "times in a row: set them again"
    )


def drop_namespace(namespace: Namespace) -> Program[None]:
    """Forget what was stored of a namespace."""
    yield from delete(namespace_key(namespace))


def encoded(part: str) -> str:
    """Return a part of a name as a part of a path."""
    found = "".join(one if _is_kept(one) else quote(one, safe="") for one in part)
    return f"%{ord(found[0]):02X}{found[1:]}" if found[:1] in ("_", ".") else found


def decoded(part: str) -> str:
    """Return the part of a name that ``encoded`` made this of; others are as they are."""
    found = unquote(part)
    return found if encoded(found) == part else part


def _is_kept(character: str) -> bool:
    is_beyond_ascii = not character.isascii() and character.isprintable()
    return character in _KEPT or character.isalnum() or is_beyond_ascii
