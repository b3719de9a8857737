"""What an error at the commit point means: that nothing was committed, or that nobody can tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakevilla.errors import CommitOutcomeUnknown, LakeVillaError, StoreError
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState


@contextmanager
def entry_errors(txn: TransactionState) -> Iterator[None]:
    """Errors of a commit by its log entry."""
    try:
        yield
    except LakeVillaError as error:
        if txn.ending.entry_tried is not None:
            raise doubtful(txn, error) from error
        if not isinstance(error, StoreError):
            raise
        # Safe to say so: where an entry may have landed it is in doubt.
        raise txn.fail(
            StoreError(
                f"nothing of transaction {txn.id} was committed: {error.message}",
                table=txn.work.done[0].table,
                txn_id=txn.id,
            )
        ) from error


@contextmanager
def head_errors(txn: TransactionState) -> Iterator[None]:
    """Errors of a commit through HEAD."""
    try:
        yield
    except LakeVillaError as error:
        if txn.ending.is_in_doubt_in_head:
            raise doubtful(txn, error) from error
        if not isinstance(error, StoreError):
            raise
        if not (txn.ending.tried and txn.ending.shared):
            # Each replacement of HEAD that was sent for it was refused: where one may have
            # landed it is ``CommitOutcomeUnknown`` (``group``).
            txn.fail(error)
            raise
        # Saved or resumed: another process may have been at its commit point as well, and
        # only whoever reads what became of that can tell.
        raise CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed "
            f"({error.message}): ask `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        ) from error


def doubtful(txn: TransactionState, error: LakeVillaError) -> CommitOutcomeUnknown:
    """What an error of a commit means while an earlier write of it may yet land."""
    if isinstance(error, CommitOutcomeUnknown):
        return error
    ask = (
        f"ask `lake.outcome({txn.id!r})`"
        if txn.through_head
        else "the table's history will show it"
    )
    unknown = CommitOutcomeUnknown(
        f"transaction {txn.id} may have committed: its commit was tried before, and that could "
        f"not be settled now ({error.message}); commit it again, or {ask}",
        table=error.table,
        txn_id=txn.id,
    )
    if txn.state is Life.FAILED:
        txn.fail(unknown)
    return unknown
