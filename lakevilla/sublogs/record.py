"""Records: the owner of a transaction, its places in the queues, and the sublog it has saved.

``_lakevilla/txns/<txn>.json`` is created before the transaction's first marker, and deleted when it
has ended: a marker whose transaction has no record does not count. The owner replaces the record
under ``Match``. A client that resumes the transaction replaces it too, and the owner that lost
finds that out at its next replacement. ``_lakevilla/txns/<txn>/<hash>.json`` holds the sublog,
immutable; ``.../creates/<table>`` says where files of a table that is not in HEAD are stored before
the commit.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import msgspec

from lakevilla.formats.base import Change, FormatName
from lakevilla.sql.catalog import CatalogRead
from lakevilla.sublogs.operations import Operation, ReadRecord

TXNS_PREFIX = "_lakevilla/txns"
_CREATES = re.compile(rf"{TXNS_PREFIX}/([^/]+)/creates/(.+)", re.DOTALL)

#: The use that a transaction will make of a table, from the weakest to the strongest.
Access = Literal["read", "append", "write"]

#: The ticket of a transaction that holds a reservation in HEAD: lower than any that is placed.
RESERVATION = 0


class Ticket(msgspec.Struct, frozen=True):
    """A place in a table's queue: ``<table>/_lakevilla/markers/<number, 20 digits>.json``."""

    table: str
    number: int
    access: Access


class Edge(msgspec.Struct, frozen=True):
    """A dependency: ``waiter``, with its ticket in ``table``, is behind ``holder`` with its own.

    It does not count as soon as one of the two tickets is no longer held: sets of ids would keep a
    finished transaction alive in the closures of two other transactions, and name for ever one that
    has shifted.
    """

    waiter: str
    waiter_ticket: int
    holder: str
    holder_ticket: int
    table: str


class TxnRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """All changing data of a transaction, in one place.

    ``began`` is HEAD's sequence when the transaction began: its commit, if any, has a higher one.
    ``heartbeat`` counts replacements; a record that has not changed for ``lease_seconds`` on an
    observer's own clock is stale. ``claim`` is new each time that the transaction is begun or
    resumed: two owners in one process have two. ``tickets`` are exact while the transaction waits,
    that is while it has ``edges``; else they may be older than the placed tickets.
    """

    REMEDY: ClassVar[str] = "the places of its owner are released after a lease"

    format: int
    nonce: str
    txn: str
    owner: str
    heartbeat: int
    lease_seconds: float
    began: int
    sublog: str = ""
    claim: str = ""
    tables: tuple[str, ...] = ()
    tickets: tuple[Ticket, ...] = ()
    edges: tuple[Edge, ...] = ()


class SavedOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation, logical and physical side. ``counts`` as ``Counts`` holds them.

    ``deferred``: the operation is deferred, so its physical side is empty. ``fitted``: it has
    fitted a state that other clients have changed since.
    """

    operation: Operation
    change: Change
    counts: tuple[int, ...]
    metrics: dict[str, str]
    observed: bool = False
    deferred: bool = False
    fitted: bool = False


class SavedTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a table that the transaction is bound to.

    The state is the log up to ``logged`` with the commits in ``overlay`` (sequence, txn, hash,
    base) laid over. ``state`` is HEAD's entry, or null if it had none, as JSON that the global log
    reads. ``clone`` is the id of the clone that shows the table, if one does; ``catalog`` is the
    key of its pointer in a catalog, which HEAD may not have yet.
    """

    logged: int
    overlay: tuple[tuple[int, str, str, int], ...]
    hidden: tuple[int, ...]
    probed: int
    probed_for_reading: bool
    # Not optional: a union with None makes the decoder expect null alone.
    state: msgspec.Raw = msgspec.Raw(b"null")
    format: FormatName = "delta"
    clone: str = ""
    catalog: str = ""


class Sublog(msgspec.Struct, frozen=True, omit_defaults=True):
    """All data that another process needs to continue a transaction.

    ``isolation``, ``validation``, ``slack``, ``behind``, ``defer``, ``catalog`` and ``names`` are
    as the transaction has them; ``checkpoint``, ``planned`` and ``gapless`` are as its key has
    them.
    """

    format: int
    nonce: str
    txn: str
    features: int
    started_ms: int
    bound_sequence: int
    tables: dict[str, SavedTable]
    operations: tuple[SavedOperation, ...]
    reads: tuple[ReadRecord, ...]
    metadata: dict[str, str] = {}
    applications: dict[str, int] = {}
    stored: tuple[str, ...] = ()
    key: tuple[str, int | None] | None = None
    isolation: Literal["serializable", "snapshot", "write-serializable"] = "serializable"
    validation: Literal["precise", "rules"] = "precise"
    slack: int = 0
    behind: dict[str, int] = {}
    defer: bool = False
    catalog: tuple[CatalogRead, ...] = ()
    checkpoint: str | None = None
    planned: str = ""
    gapless: bool = False
    read_only: bool = False
    names: dict[str, tuple[str, str]] = {}


def record_key(txn: str) -> str:
    return f"{TXNS_PREFIX}/{txn}.json"


def sublog_key(txn: str, digest: str) -> str:
    return f"{TXNS_PREFIX}/{txn}/{digest}.json"


def creates_key(txn: str, table: str) -> str:
    return f"{TXNS_PREFIX}/{txn}/creates/{table}"


def created_by(key: str) -> tuple[str, str] | None:
    """Return a note's transaction, and the place of its table; None for other keys."""
    found = _CREATES.fullmatch(key)
    return None if found is None else (found[1], found[2])
