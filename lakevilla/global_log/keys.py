"""Idempotency keys: which transaction used a key last (design, section 9).

``_lakevilla/keys/<hash>.json`` is created, or replaced under ``Match``, before
the commit point. It never says that a transaction committed; HEAD does.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from blake3 import blake3

from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode, shown
from lakevilla.store.base import Found, Token
from lakevilla.store.effects import Program, get
from lakevilla.sublogs.codec import FORMAT, decode, encode

__all__ = ["KEYS_PREFIX", "HeldKey", "KeyRecord", "bound", "key_object", "load_key", "parse_key"]

KEYS_PREFIX = "_lakevilla/keys"
#: A pair's version goes into Delta's ``txn`` action, where it is a 64-bit integer.
_LARGEST_VERSION = 2**63 - 1


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last use of a key.

    ``version`` is the pair's, None for a plain key. ``sequence`` is HEAD's when
    the key was bound: the transaction's commit, if any, comes after it.
    ``committed`` is the last version of the application known to be committed
    before this use.
    """

    REMEDY: ClassVar[str] = (
        "restore it from a copy; delete it only if whoever uses that key may commit with it again"
    )

    format: int
    nonce: str
    key: str
    txn: str
    sequence: int
    version: int | None = None
    committed: int | None = None


class HeldKey(msgspec.Struct, frozen=True):
    """A key object with the token under which it may be replaced."""

    record: KeyRecord
    token: Token


def parse_key(key: object) -> tuple[str, int | None]:
    """An idempotency key as (text, version): a string, or (application, version)."""
    match key:
        case str() if key and is_unicode(key):
            return key, None
        case (str() as application, int() as version) if (
            application
            and is_unicode(application)
            and 0 <= version <= _LARGEST_VERSION
            and not isinstance(version, bool)
        ):
            return application, version
    raise InvalidOperation(
        "idempotency_key must be a string or (application, version from 0 to 2**63 - 1), in "
        f"Unicode and not empty, not {shown(key)}"
    )


def key_object(key: str, version: int | None) -> str:
    """A pair hashes its application alone; a plain key never meets a pair of the same text."""
    kind = "key" if version is None else "application"
    return f"{KEYS_PREFIX}/{blake3(f'{kind}:{key}'.encode()).hexdigest(length=20)}.json"


def load_key(key: str, version: int | None) -> Program[HeldKey | None]:
    name = key_object(key, version)
    outcome = yield from get(name)
    if not isinstance(outcome, Found):
        return None
    return HeldKey(decode(name, outcome.body, KeyRecord), outcome.token)


def bound(record: KeyRecord) -> bytes:
    return encode(record)


def new_record(
    nonce: str, key: str, txn: str, sequence: int, version: int | None, committed: int | None
) -> KeyRecord:
    """A record of the current format."""
    return KeyRecord(FORMAT, nonce, key, txn, sequence, version, committed)
