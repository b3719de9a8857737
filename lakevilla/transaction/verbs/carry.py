"""Carry a transaction over to another process, as bytes that the caller passes on (note 42).

The store has only the transaction's new files, and no record, so no third process can resume it.
The process that made the bytes has ended it, and only a process that has the bytes can commit it.
If it takes too long, gc fences its id and deletes its files, as for any transaction; then the id is
below HEAD's floor, and the commit is refused.
"""

from __future__ import annotations

import msgspec

from lakevilla.errors import ConflictError, TransactionAborted
from lakevilla.lake.context import Context
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import Sublog
from lakevilla.transaction.state.files import make_promised, store_files
from lakevilla.transaction.state.parts import laid_over
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.idempotency import enter_key
from lakevilla.transaction.verbs.save import operations_of, revived, sublog_of, working_of

__all__ = ["Carried", "carried", "resumed"]


class Carried(msgspec.Struct, frozen=True):
    """The state that another process needs to go on with a transaction, without its files.

    ``began`` is HEAD's sequence when the transaction began; ``epoch`` is that of its branch, or
    empty.
    """

    txn: str
    began: int
    epoch: str = msgspec.field(name="life")
    sublog: bytes


def carried(txn: TransactionState) -> Program[Carried]:
    """Return the transaction as bytes for another process; in this process it has ended.

    It must commit through HEAD, and hold no place in a queue.
    """
    assert txn.through_head
    assert txn.claims.queue is None
    assert not txn.ending.tried
    yield from bind_to_head(txn)
    yield from make_promised(txn, replaced=True)
    yield from store_files(txn)
    bundle = Carried(txn.id, txn.bound.began, txn.context.epoch, encode(sublog_of(txn)))
    txn.work.stored = []  # the files belong to another process now
    yield from abort(txn)
    return bundle


def resumed(
    context: Context, bundle: Carried, owner: str, key: KeyUse | None = None
) -> Program[TransactionState]:
    """Go on with a transaction that another process has begun.

    ``key``: an idempotency key for the transaction, if it had none in the other process.

    Raises
    ------
    AlreadyCommitted
        A transaction with its idempotency key has committed.
    TransactionAborted
        It is so old that gc has fenced it.
    ConflictError
        One of its tables was dropped or created again, or its branch has another epoch.
    """
    sublog = decode(f"transaction {bundle.txn}", bundle.sublog, Sublog)
    if key is None and sublog.key is not None:
        key = KeyUse(*sublog.key, sublog.checkpoint, sublog.planned, sublog.gapless)
    elif key is not None and key.version is not None:
        sublog = msgspec.structs.replace(
            sublog, applications={**sublog.applications, key.key: key.version}
        )
    txn = revived(context, bundle.txn, owner, sublog)
    if bundle.epoch != context.epoch:
        raise txn.fail(
            ConflictError(
                f"transaction {bundle.txn} was begun on a branch that was merged or created again "
                "since: run it again",
                txn_id=bundle.txn,
            )
        )
    # No other process can commit it: this one may delete its files if it does not commit.
    txn.ending.tried = txn.ending.shared = False
    age = abs(context.now_ms() - sublog.started_ms) / 1000  # old, if clocks differ by much
    txn.bound.began_at = context.clock.elapsed() - age
    txn.bound.held = yield from context.head()
    txn.bound.began = bundle.began
    txn.ending.id_was_seen = True  # the names of its files have it
    if txn.head is None:
        raise txn.fail(
            TransactionAborted(
                f"transaction {bundle.txn} was begun in a lake whose HEAD was lost since: run it "
                "again",
                txn_id=bundle.txn,
            )
        )
    txn.check_not_fenced(txn.head)
    source = f"what was carried of transaction {bundle.txn}"
    for location, saved in sublog.tables.items():
        txn.work.tables[location] = yield from working_of(txn, source, location, saved)
    for done in operations_of(sublog):
        txn.work.done.append(done)
        working = txn.work.tables[done.table]
        working.snapshot = laid_over(working.view, working.snapshot, done)
    if key is not None:
        txn.claims.key = key
        yield from enter_key(txn, key)
    return txn
