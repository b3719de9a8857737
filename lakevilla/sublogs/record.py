"""Saved transactions: the record that says who owns one, and the sublog it names.

``_lakevilla/txns/<txn>.json`` is replaced under ``Match`` by its owner; whoever
resumes the transaction replaces it too, and the owner that lost finds out at its
next save. ``_lakevilla/txns/<txn>/<hash>.json`` holds the sublog, immutable.
"""

from __future__ import annotations

import msgspec

from lakevilla.formats.base import Change
from lakevilla.sublogs.operations import Operation, ReadRecord

__all__ = ["SavedOperation", "SavedTable", "Sublog", "TXNS_PREFIX", "TxnRecord", "record_key"]

TXNS_PREFIX = "_lakevilla/txns"


class TxnRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who owns a saved transaction.

    ``began`` is HEAD's sequence when it began: its commit, if any, comes later.
    ``heartbeat`` counts replacements; a record that has not changed for
    ``lease_seconds`` on an observer's own clock is stale.
    """

    format: int
    nonce: str
    txn: str
    owner: str
    heartbeat: int
    lease_seconds: float
    began: int
    sublog: str


class SavedOperation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation, logical and physical side. ``counts`` as ``Counts`` holds them."""

    operation: Operation
    change: Change
    counts: tuple[int, ...]
    metrics: dict[str, str]
    observed: bool = False


class SavedTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a table that the transaction is bound to.

    The log up to ``logged`` with the commits in ``overlay`` (sequence, txn,
    hash, base) laid over; ``state`` is HEAD's entry, or null if it had none, as
    JSON that the global log reads.
    """

    logged: int
    overlay: tuple[tuple[int, str, str, int], ...]
    hidden: tuple[int, ...]
    probed: int
    probed_for_reading: bool
    # Not optional: a union with None makes the decoder expect null alone.
    state: msgspec.Raw = msgspec.Raw(b"null")


class Sublog(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that another process needs to go on with a transaction."""

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


def record_key(txn: str) -> str:
    return f"{TXNS_PREFIX}/{txn}.json"


def sublog_key(txn: str, digest: str) -> str:
    return f"{TXNS_PREFIX}/{txn}/{digest}.json"
