"""Running a transaction again after a conflict: same id, same places (design, section 7).

Whoever has waited longest stays first. Safe under one id: every replacement of
HEAD that the attempt sent was refused, or can't land any more because HEAD has
moved (else it would have ended with ``CommitOutcomeUnknown``), so what is
committed next is the id's only commit.
"""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.ids import is_by_entry
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.reservation import reserve
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.record import Renewal
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.save import forget, unsave

__all__ = ["rerun"]


def rerun(old: Transaction, *, escalate: bool = False) -> Program[Transaction]:
    """The transaction as it was begun, after an attempt of it ended with ``ConflictError``.

    ``escalate``: with Feature.CT, and the tables used so far reserved in HEAD.

    Raises
    ------
    TransactionAborted
        It was saved and another process has resumed it: begin a new one.
    """
    # Where HEAD is a log there are no queues: it stays optimistic.
    escalate = escalate and not (yield from old.context.is_only_creating())
    yield from unsave(old)
    # The attempt has ended, its id has not: whoever meets its idempotency key asks HEAD.
    key, old.key = old.key, None
    yield from abort(old)
    queue, old.queue = old.queue, None
    record, old.record = old.record, None
    features = old.features | Feature.CT if escalate else old.features
    txn_id = old.id
    if escalate and is_by_entry(txn_id) and record is None:
        # It will commit through HEAD alone, and an id that says so can be settled there.
        txn_id = old.context.ids.txn_id(above=txn_id)
    new = begin(
        Transaction(
            old.context,
            features,
            txn_id,
            owner=old.owner,
            read_only=old.read_only,
            isolation=old.isolation,
            validation=old.validation,
            slack=old.slack,
            metadata=old.metadata,
            applications=old.applications,
            key=None if key is None else KeyUse(key.key, key.version),
            through_head=old.through_head or escalate,
            began=old.began,
            record=record,
            claim=old.claim,
            queue=queue,
            wait_timeout_seconds=old.wait_timeout_seconds,
            told=old.told and txn_id == old.id,
            started_ms=old.started_ms,
        )
    )
    # What the attempts before relied on, an escalated one may rely on again.
    new.used = old.used | set(old.tables)
    if record is not None:
        new.context.renewed(Renewal(new))
    if escalate and new.used and not new.read_only:
        try:
            yield from reserve(new, new.used)
        except LakeVillaError:
            yield from forget(new)
            raise
    return new
