"""A transaction that is bound to a past state, for good: of the lake, or of one table alone."""

from __future__ import annotations

from lakevilla.errors import VersionNotFound
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import HeldHead
from lakevilla.lake import own_versions
from lakevilla.lake.frozen import frozen as refs
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.lake.frozen.mounted_then import with_clones
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.lake.past import not_kept, past_at
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState


def bind_to_past(
    txn: TransactionState, *, version: int | None = None, timestamp_ms: int | None = None
) -> Program[None]:
    """Bind a transaction that only reads to a global version, or to the newest at a time.

    Raises
    ------
    VersionNotFound
        Also for any other version than its own where it is bound to a ref.
    """
    if txn.bound.frozen is not None:
        txn.bound.frozen.refuse_other(version, timestamp_ms)
        return
    context = txn.context
    held = yield from context.head()
    if held is None:
        raise VersionNotFound(
            "the lake has no global version yet: its first transaction makes one; "
            "ask for no version to see the tables as they are"
        )
    timeline = Timeline.of(held.head)
    if timestamp_ms is not None:
        version = yield from timeline.by(timestamp_ms)
    assert version is not None
    past = yield from with_clones((yield from past_at(timeline, version)))
    txn.bound.past = past
    txn.bound.held = HeldHead(past.head, held.token)
    txn.bound.sequence = txn.bound.began = past.sequence
    txn.bound.is_bound = True


def bind_to_own(txn: TransactionState, asked: OwnVersion) -> Program[None]:
    """Bind a transaction that only reads to a state of each table's own past.

    What HEAD tells now, or the ref that it is bound to, is which tables are meant.
    """
    txn.bound.own = asked
    if txn.bound.frozen is not None:
        return
    txn.bound.held = yield from txn.context.head()
    if txn.bound.held is not None:
        txn.bound.sequence = txn.bound.began = txn.bound.held.head.sequence
    txn.bound.is_bound = True


def bind_to_ref(txn: TransactionState, frozen: Frozen) -> None:
    """Bind a transaction that only reads to the lake as a ref keeps it."""
    held = txn.context.held
    assert held is not None, "the ref was found in a HEAD"
    txn.bound.frozen = frozen
    txn.bound.held = HeldHead(frozen.head, held.token)
    txn.bound.sequence = txn.bound.began = frozen.head.sequence
    txn.bound.is_bound = True


def refuse_missing_files(txn: TransactionState) -> Program[None]:
    """Say so if files of a past state are gone: VACUUM, or gc of what was replaced.

    Asked after a read has failed, so that one that succeeds costs no requests.
    """
    past, own, frozen = txn.bound.past, txn.bound.own, txn.bound.frozen
    for location, working in txn.work.tables.items():
        if own is not None:
            yield from own_versions.refuse_missing_files(txn.context, working.view, own)
        elif past is not None or frozen is not None:
            missing = yield from own_versions.missing_files(working.view)
            if missing:
                key = next(iter(missing.values()))
                why = f"data file {key} was removed"
                if past is not None:
                    raise not_kept(past, location, why)
                assert frozen is not None
                error = refs.not_kept(frozen.base, location, why)
                raise (yield from refs.not_kept_now(txn.context, frozen, error))
