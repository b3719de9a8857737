"""A transaction's own record: created, replaced, renewed and deleted (design, section 5).

The transaction's thread and its heartbeat's thread both replace the record under ``Match``. There
is no lock: the thread whose write is refused finds the other thread's record, with the same claim,
and repeats its own write on top of it. A record with another claim means that another owner has
resumed the transaction.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from lakevilla.clock import Clock
from lakevilla.errors import (
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TransactionAborted,
)
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import ABSENT, Found, Match, Missing, Refused, Stored, Token, Unknown
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.store.effects import Program, delete, get, put
from lakevilla.sublogs.lease import Renewable
from lakevilla.sublogs.record import Ticket, TxnRecord, record_key

#: The most attempts to replace a record, each of which the other thread may overtake.
_MAX_RACES = 16


class HeldRecord(msgspec.Struct, frozen=True):
    """A record with the token for its replacement; ``at`` is the time by its owner's clock."""

    record: TxnRecord
    token: Token
    at: float


@dataclass(slots=True)
class OwnRecord:
    """The record of a transaction, as its owner knows it.

    Attributes
    ----------
    record : HeldRecord or None
        The record that was last stored or read; None while the transaction has none.
    claim : str
        The claim of this owner; see ``TxnRecord``.
    ousted : bool
        Whether the heartbeat has found that the record is gone, or belongs to another process.
    """

    record: HeldRecord | None = None
    claim: str = ""
    ousted: bool = False


class OwnersLake(Protocol):
    """The parts of a lake in one process that an owner of records uses (``Context``)."""

    @property
    def clock(self) -> Clock: ...

    @property
    def ids(self) -> Ids: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def only_creates(self) -> bool:
        """True if HEAD is a log: then the store can't replace a record either."""

    @property
    def renewed(self) -> Callable[[Renewable], None]:
        """The function to call with a record that the heartbeat shall renew from now on."""


class Owner(Protocol):
    """The parts of a transaction's state that its record needs (``TransactionState``)."""

    @property
    def id(self) -> str: ...

    @property
    def context(self) -> OwnersLake: ...

    @property
    def claims(self) -> OwnRecord: ...

    @property
    def owner(self) -> str: ...

    @property
    def began(self) -> int: ...

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that the transaction uses, sorted."""

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """The tickets of its places in queues."""

    @property
    def has_ended(self) -> bool:
        """True once the transaction has committed or was aborted."""

    @property
    def is_shared(self) -> bool:
        """True if the transaction was saved, so that another process may have resumed it."""

    def fail(self, error: LakeVillaError) -> LakeVillaError:
        """Note an error after which the transaction can't commit; return it to be raised."""
        ...


def create_record(txn: Owner, *, sublog: str = "") -> Program[None]:
    """Create the record: before the first marker, or at the first save.

    Raises
    ------
    StoreError
        It is not known whether the record was stored. If the store stores it later, the record
        has no owner: it is stale after a lease, and gc deletes it.
    """
    context = txn.context
    if context.only_creates:
        raise txn.fail(no_queues(txn.id))
    txn.claims.claim = txn.claims.claim or context.ids.nonce()
    record = TxnRecord(
        format=FORMAT,
        nonce=context.ids.nonce(),
        txn=txn.id,
        owner=txn.owner,
        heartbeat=0,
        lease_seconds=context.settings.lease_seconds,
        sublog=sublog,
        claim=txn.claims.claim,
        **_present(txn),
    )
    outcome = yield from put(record_key(txn.id), encode(record), ABSENT)
    if isinstance(outcome, Unknown):
        raise StoreError(
            f"could not store the record of transaction {txn.id} ({outcome.reason}): try again",
            txn_id=txn.id,
        )
    if isinstance(outcome, Stored):
        _hold(txn, record, outcome.token, first=True)
        context.renewed(Renewal(txn))
        return
    found = outcome.current
    current = None if found is None else decode(record_key(txn.id), found.body, TxnRecord)
    if found is None or current is None or current.claim != txn.claims.claim:
        raise txn.fail(_taken(txn))
    # An earlier attempt of this transaction, whose answer was lost, was stored after all.
    _hold(txn, current, found.token, first=True)
    yield from change_record(txn, sublog=sublog)


def change_record(txn: Owner, **fields: Any) -> Program[None]:
    """Replace the record with the transaction's present tickets, and with ``fields``.

    Raises
    ------
    TransactionAborted
        Another process has resumed the transaction; or it was aborted, and its record is deleted.
    """
    for _ in range(_MAX_RACES):
        held = txn.claims.record
        assert held is not None, "only a transaction that has a record changes it"
        verdict = yield from _replace(txn, held, fields)
        match verdict:
            case "stored":
                return
            case "taken":
                raise txn.fail(_taken(txn))
            case "gone":
                raise txn.fail(_taken_over(txn))
    raise StoreError(
        f"could not replace the record of transaction {txn.id}: try again", txn_id=txn.id
    )


def renew(txn: Owner) -> Program[bool]:
    """Renew the record (the heartbeat). False if there is no record to renew any more.

    The heartbeat runs concurrently with the transaction and never makes it fail: the transaction
    finds a lost record when it next changes the record itself, or commits.
    """
    held = txn.claims.record
    if held is None or txn.has_ended:
        return False
    verdict = yield from _replace(txn, held, {})
    if txn.claims.record is None or txn.claims.record.record.txn != held.record.txn:
        return True  # the transaction has deleted that record meanwhile, and may have a new one
    txn.claims.ousted = verdict in ("taken", "gone")
    return not txn.claims.ousted


class Renewal:
    """The record of one transaction, for the heartbeat that renews it (``lease.Renewable``).

    The reference is weak: if the caller drops a transaction without ending it, its record is not
    renewed any more, and other clients delete its places after a lease.
    """

    def __init__(self, txn: Owner) -> None:
        self._txn = weakref.ref(txn)
        self.key = id(txn)
        self.txn_id = txn.id

    @property
    def held_at(self) -> float | None:
        txn = self._txn()
        return None if txn is None or txn.claims.record is None else txn.claims.record.at

    def renew(self) -> Program[bool]:
        txn = self._txn()
        return txn is not None and (yield from renew(txn))


def _replace(txn: Owner, held: HeldRecord, fields: dict[str, Any]) -> Program[str]:
    """Replace the record once.

    Returns ``stored``, ``again`` (the transaction's other thread was first), ``taken`` (another
    owner has resumed the transaction) or ``gone``. A replacement whose outcome is unknown may be
    stored late; it can only replace the record that it names by its token, so to repeat it is safe.
    """
    new = msgspec.structs.replace(
        held.record,
        nonce=txn.context.ids.nonce(),
        heartbeat=held.record.heartbeat + 1,
        **{**_present(txn), **fields},
    )
    key = record_key(txn.id)
    outcome = yield from put(key, encode(new), Match(held.token))
    if isinstance(outcome, Stored):
        _hold(txn, new, outcome.token)
        return "stored"
    found = outcome.current if isinstance(outcome, Refused) else (yield from get(key))
    if found is None or isinstance(found, Missing):
        return "gone"
    assert isinstance(found, Found)
    current = decode(key, found.body, TxnRecord)
    if current.claim != txn.claims.claim:
        return "taken"
    _hold(txn, current, found.token)
    return "stored" if current.nonce == new.nonce else "again"


def _hold(txn: Owner, record: TxnRecord, token: Token, *, first: bool = False) -> None:
    """Remember the record that is in the store.

    The other thread may have replaced it since; then this thread's next write is refused.

    A record that the other thread has deleted meanwhile must not be remembered again: a transaction
    without a record stores a new one before it takes a place.
    """
    held = txn.claims.record
    if record.txn != txn.id or (held is None and not first):
        return
    if held is None or held.record.heartbeat <= record.heartbeat:
        txn.claims.record = HeldRecord(record, token, txn.context.clock.elapsed())


def _present(txn: Owner) -> dict[str, Any]:
    """Return the fields that every replacement brings up to date."""
    return {"began": txn.began, "tickets": txn.tickets, "tables": txn.tables}


def delete_record(txn: Owner) -> Program[bool]:
    """Delete the record of a transaction that has ended; False if another process owns it now."""
    held, txn.claims.record = txn.claims.record, None
    if held is None:
        return True
    key = record_key(txn.id)
    if txn.is_shared:
        # The transaction was saved, so another process may have resumed it, and owns the record.
        # A transaction that was never saved can't be resumed.
        current = yield from get(key)
        if (
            isinstance(current, Found)
            and decode(key, current.body, TxnRecord).claim != txn.claims.claim
        ):
            return False
    yield from delete(key)
    return True


def no_queues(txn_id: str) -> InvalidOperation:
    """Return the error for Feature.CT where HEAD is a log: such a store replaces no records."""
    return InvalidOperation(
        f"transaction {txn_id}: Feature.CT needs a store that replaces an object under a "
        "condition, and this lake was made on one that only creates: leave Feature.CT out",
        txn_id=txn_id,
    )


def _taken(txn: Owner) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {txn.id} was resumed by another process: what it did here since its last "
        "save is undone",
        txn_id=txn.id,
    )


def _taken_over(txn: Owner) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {txn.id} was aborted by another client: its record is missing; run it again",
        txn_id=txn.id,
    )
