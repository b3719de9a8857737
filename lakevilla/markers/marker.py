"""A marker: the note that a transaction will write (append to, read) a table after those ahead.

``<table>/_lakevilla/markers/<ticket, 20 digits>.json`` is created if absent and deleted when its
transaction has ended; in between it never changes. Data that changes is in the record.
VACUUM, log clean-up and every reader of the table leave directories that begin with ``_`` alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from lakevilla.errors import CorruptObject, LakeVillaError
from lakevilla.ids import is_txn_id
from lakevilla.store.base import Token
from lakevilla.store.codec import decode
from lakevilla.sublogs.record import RESERVATION, Access

MARKERS_DIR = "_lakevilla/markers"

#: The highest ticket: a file name with a higher number is no ticket, as no queue gets that far.
LAST_TICKET = 10**18


class Marker(msgspec.Struct, frozen=True):
    """The content of a marker. ``table`` and ``ticket`` repeat what its key says."""

    REMEDY: ClassVar[str] = (
        "it is deleted after a lease by the next transaction with Feature.CT that waits there, "
        "or by `lakevilla recover`"
    )

    format: int
    nonce: str
    txn: str
    table: str
    ticket: int
    access: Access


@dataclass(frozen=True, slots=True)
class Listed:
    """A ticket that a list of a table's markers has shown, with the marker's token."""

    number: int
    token: Token


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A marker that counts as an unknown writer: damaged, or of a ``newer`` LakeVilla."""

    number: int
    newer: bool
    error: LakeVillaError


#: A marker that exists, as far as it could be read.
Present = tuple[Listed, Marker | Unreadable]


def markers_prefix(location: str) -> str:
    return f"{location}/{MARKERS_DIR}"


def marker_key(location: str, number: int) -> str:
    return f"{location}/{MARKERS_DIR}/{number:020}.json"


_MARKER = re.compile(rf"(?:.*/)?{MARKERS_DIR}/([0-9]{{20}})\.json", re.DOTALL)


def ticket_of(key: str) -> int | None:
    """Return the ticket that a key names; None for any other object in the directory."""
    match = _MARKER.fullmatch(key)
    number = RESERVATION if match is None else int(match[1])
    # A reservation's ticket is in HEAD alone: no marker has its number.
    return number if RESERVATION < number <= LAST_TICKET else None


def read_marker(key: str, location: str, number: int, body: bytes) -> Marker:
    """Decode the marker that was found under a table's ticket.

    Raises
    ------
    UnsupportedFormat
        A newer LakeVilla wrote it.
    CorruptObject
        It is truncated, or names another table or ticket than its key.
    """
    marker = decode(key, body, Marker)
    if marker.table != location:
        raise _corrupt(key, location, f"it is of table {marker.table!r}")
    if marker.ticket != number:
        raise _corrupt(key, location, f"it has ticket {marker.ticket}, its name says {number}")
    if not is_txn_id(marker.txn):
        # The id becomes part of a key: a malformed id must not reach the store.
        raise _corrupt(key, location, f"{marker.txn!r} is no transaction id")
    return marker


def _corrupt(key: str, location: str, why: str) -> CorruptObject:
    return CorruptObject(
        f"{key} is not a valid marker of table {location}: {why}; {Marker.REMEDY}",
        key=key,
        table=location,
    )
