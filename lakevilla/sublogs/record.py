"""Records: the owner of a transaction, its places in the queues, and the sublog it has saved.

``_lakevilla/txns/<txn>.json`` is created before the transaction's first marker, and deleted when it
has ended: a marker whose transaction has no record does not count. The owner replaces the record
under ``Match``. A client that resumes the transaction replaces the record too; the former owner
finds that out at its next replacement. ``_lakevilla/txns/<txn>/<hash>.json`` holds the sublog,
immutable; ``.../creates/<table>`` notes that the transaction stores files of a table that is not in
HEAD yet.
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

#: The way in which a transaction will use a table, from the weakest to the strongest.
Access = Literal["read", "append", "write"]

#: The ticket of a transaction that holds a reservation in HEAD: lower than that of any marker.
RESERVATION = 0
#: The format of sublogs with pending commits of a branch's earlier epochs: a client that does not
#: know of ``epochs`` would look for their objects elsewhere.
FORMAT_WITH_EPOCHS = 3


class Ticket(msgspec.Struct, frozen=True):
    """A place in a table's queue: ``<table>/_lakevilla/markers/<number, 20 digits>.json``."""

    table: str
    number: int
    access: Access


class Edge(msgspec.Struct, frozen=True):
    """One wait at ``table``: ``waiter``, with its ticket, waits for ``holder`` with another.

    An edge names both tickets, so it stops counting as soon as one of them is no longer held. If it
    named only the transactions, it would still count after one of them had ended or shifted.
    """

    waiter: str
    waiter_ticket: int
    holder: str
    holder_ticket: int
    table: str


class TxnRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a transaction that changes while the transaction is open, in one object.

    ``began`` is HEAD's sequence when the transaction began: its commit, if any, has a higher one.
    ``heartbeat`` counts replacements; a record that has not changed for ``lease_seconds`` on an
    observer's own clock is stale. ``claim`` is a new value each time that the transaction is begun
    or resumed, so it tells two owners in one process apart. ``tickets`` are exact while the
    transaction waits, that is while it has ``edges``; else they may be older than its markers.
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
    """One operation with its result: ``change``, and ``counts`` in the order of ``Counts``.

    ``deferred``: the operation was not performed yet, so ``change`` is empty. ``fitted``: it has
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
    base) laid over; ``epochs`` are those of the branches in whose directories these are, one for
    each, or none if all are in the lake's. ``state`` is HEAD's entry of the table, or null if there
    was none, as JSON that ``global_log`` decodes. ``clone`` is the id of the clone that shows the
    table, if one does; ``catalog`` is the key of the table's pointer in a catalog, which HEAD may
    not have yet.
    """

    logged: int
    overlay: tuple[tuple[int, str, str, int], ...]
    hidden: tuple[int, ...]
    probed: int
    probed_for_reading: bool
    # ``Raw`` without None in the type: for a union with None the decoder accepts only null.
    state: msgspec.Raw = msgspec.Raw(b"null")
    format: FormatName = "delta"
    clone: str = ""
    catalog: str = ""
    epochs: tuple[str, ...] = ()


class Sublog(msgspec.Struct, frozen=True, omit_defaults=True):
    """All data that another process needs to continue a transaction.

    ``isolation``, ``validation``, ``slack``, ``behind``, ``defer``, ``catalog`` and ``names`` are
    those of the transaction's state; ``checkpoint``, ``planned`` and ``gapless`` are those of its
    idempotency key.
    """

    FORMAT = FORMAT_WITH_EPOCHS

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
    """Return transaction and location of a key of ``creates_key``; None for other keys."""
    found = _CREATES.fullmatch(key)
    return None if found is None else (found[1], found[2])
