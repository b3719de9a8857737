"""Idempotency keys: which transaction used a key last (design, section 9).

``_lakevilla/keys/<hash>.json`` is created, or replaced under ``Match``, before the commit point. It
does not prove that its transaction committed; only HEAD does. The object of an application, whose
uses have versions, is ``<hash>-versions.json``: gc reads these alone.

If HEAD is a log, each key is a log too: its first use is number 0 of the log, with ``as_log``. Each
further use is created as ``_lakevilla/keys/<hash>/<number, 20 digits>.json``.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from blake3 import blake3

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.numbered_log import entry_key, newest
from lakevilla.settings import is_unicode, shown
from lakevilla.store.base import ABSENT, Found, Match, PutOutcome, Token
from lakevilla.store.codec import FORMAT, FORMAT_WITH_REFUSALS, decode, encode
from lakevilla.store.effects import Program, get, put

KEYS_PREFIX = "_lakevilla/keys"
_WITH_VERSIONS = "-versions.json"
#: A pair's version is stored in Delta's ``txn`` action, where it is a 64-bit integer.
_LARGEST_VERSION = 2**63 - 1


class KeyRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last use of a key.

    ``version`` is that of an (application, version) pair, None for a plain key. ``sequence`` is
    HEAD's when the key was bound: the commit of the transaction, if any, has a higher one.
    ``committed`` is the last version of the application known to be committed before this use.
    ``as_log``: the record is not replaced; its successor is created next to it. ``checkpoint``: the
    checkpoint of a stream, whose batches ``version`` counts (note 46); or empty. ``planned``: a
    digest of what the stream has planned for that batch (note 48); or empty. ``due``: the batch
    that is expected, or the one after ``version`` if that has committed and is higher (note 49);
    None if batches are not counted. If ``due`` is above ``version``, this use has ended:
    ``version`` has committed if ``committed`` equals it, and else never will. ``refused``: the
    request of an Iceberg client was refused for good, with this outcome and for this reason (note
    73): no transaction commits with the key any more.
    """

    FORMAT: ClassVar[int] = FORMAT_WITH_REFUSALS

    REMEDY: ClassVar[str] = (
        "restore it from a copy; delete it only if a transaction may commit with that key again"
    )

    format: int
    nonce: str
    key: str
    txn: str
    sequence: int
    version: int | None = None
    committed: int | None = None
    as_log: bool = False
    checkpoint: str = ""
    planned: str = ""
    due: int | None = None
    refused: tuple[str, str] | None = None

    @property
    def is_settled(self) -> bool:
        """True if the record itself states whether its version has committed."""
        return self.due is not None and self.version is not None and self.due > self.version


class HeldKey(msgspec.Struct, frozen=True):
    """A key's last use; the next use replaces it under its token, or gets the next number."""

    record: KeyRecord
    token: Token
    number: int = 0


def parse_key(key: object) -> tuple[str, int | None]:
    """Return an idempotency key as (text, version): a string, or (application, version)."""
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
    """Return the name of a key's object.

    The name for a pair is the hash of its application alone; a plain key and an application with
    the same text have different names.
    """
    kind, ending = ("key", ".json") if version is None else ("application", _WITH_VERSIONS)
    return f"{KEYS_PREFIX}/{blake3(f'{kind}:{key}'.encode()).hexdigest(length=20)}{ending}"


def is_key_object(name: str) -> bool:
    """Return whether an object's name is that of a key's first use, which each key has."""
    return name.count("/") == KEYS_PREFIX.count("/") + 1 and name.endswith(".json")


def has_versions(name: str) -> bool:
    """Return whether an object's name is that of the first use of an application."""
    return is_key_object(name) and name.endswith(_WITH_VERSIONS)


def load_key(key: str, version: int | None) -> Program[HeldKey | None]:
    """Return the last use of a key; None if the key was never used."""
    return (yield from load_key_object(key_object(key, version)))


def load_key_object(name: str) -> Program[HeldKey | None]:
    outcome = yield from get(name)
    if not isinstance(outcome, Found):
        return None
    record = decode(name, outcome.body, KeyRecord)
    if not record.as_log:
        return HeldKey(record, outcome.token)
    entry = yield from newest(_log_of(name), 0)
    if entry is None:
        return HeldKey(record, outcome.token)
    number, found = entry
    record = decode(entry_key(_log_of(name), number), found.body, KeyRecord)
    return HeldKey(record, found.token, number)


def put_key(name: str, last: HeldKey | None, record: KeyRecord) -> Program[PutOutcome]:
    """Create a key's object, or the successor of ``last`` if that is still the last use.

    In a log, the store refuses the write just as reliably as a replacement: once the next number
    exists, it exists for ever.
    """
    if last is None:
        return (yield from put(name, bound(record), ABSENT))
    if not last.record.as_log:
        return (yield from put(name, bound(record), Match(last.token)))
    key = entry_key(_log_of(name), last.number + 1)
    return (yield from put(key, bound(msgspec.structs.replace(record, as_log=True)), ABSENT))


def _log_of(name: str) -> str:
    return name.removesuffix(".json")


def bound(record: KeyRecord) -> bytes:
    return encode(record)


def new_record(
    nonce: str,
    key: str,
    txn: str,
    sequence: int,
    version: int | None,
    committed: int | None,
    *,
    as_log: bool = False,
    checkpoint: str = "",
    planned: str = "",
    due: int | None = None,
    refused: tuple[str, str] | None = None,
) -> KeyRecord:
    """Return a record, of the oldest format that has all of it."""
    return KeyRecord(
        FORMAT if refused is None else FORMAT_WITH_REFUSALS,
        nonce,
        key,
        txn,
        sequence,
        version,
        committed,
        as_log,
        checkpoint,
        planned,
        due,
        refused,
    )
