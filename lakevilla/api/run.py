"""Running a function in a transaction until it has committed: what ``lake.run`` does.

A transaction that lost is run again under its id, with its record and its
places in the queues, so whoever has waited longest stays first. One that was
aborted, or taken over by another process, is settled in HEAD before the
function is called in a new one: its work must not be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from lakevilla.api.transaction import Transaction
from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    TransactionAborted,
)
from lakevilla.lake.context import Context
from lakevilla.publishing import outcome
from lakevilla.settings import shown
from lakevilla.store.effects import Program, delete, sleep
from lakevilla.sublogs.record import record_key
from lakevilla.transaction.state import transaction as core
from lakevilla.transaction.verbs import save as saving
from lakevilla.transaction.verbs.abort import abort
from lakevilla.transaction.verbs.rerun import rerun

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake

__all__ = ["check_attempts", "check_callable", "run"]

T = TypeVar("T")


def run(
    lake: Lake, fn: Callable[[Transaction], T], attempts: int, options: Mapping[str, Any]
) -> T | None:
    """Call ``fn`` in a transaction with ``options``, at most ``attempts`` times (``Lake.run``)."""
    check_attempts(attempts)
    kept: core.Transaction | None = None
    losses = 0
    try:
        for attempt in range(attempts):
            txn = _attempt(lake, kept, losses, options)
            kept = None
            if txn is None:
                return None  # another process has resumed it, and committed
            value: T | None = None
            try:
                with txn:
                    value = fn(txn)
                return value
            except AlreadyCommitted:
                return None
            except CommitOutcomeUnknown:
                # Only HEAD can be asked; a log entry is the caller's to look for.
                told = lake.outcome(txn.id).state if txn.through_head else "expired"
                if told == "committed":
                    txn.give_back()
                    return value
                if told != "aborted":
                    raise
                txn.give_back()  # settled, so it can't commit any more
                error: LakeVillaError | None = None
            except (ConflictError, TransactionAborted) as conflict:
                error = conflict
                losses += 1
                kept = txn.lost
            except BaseException:
                kept = txn.lost  # the function has made another error of a conflict
                raise
            if attempt + 1 == attempts:
                raise error or TransactionAborted(
                    f"transaction {txn.id} was not committed in {attempts} attempts: "
                    "run it again later",
                    txn_id=txn.id,
                )
            if error and kept is None and txn.is_shared and _has_committed(lake, txn.id):
                return None
            if kept is None or kept.queue is None:
                lake.runner.run(_pause(lake.context, attempt))
    finally:
        if kept is not None:
            _let_go(lake, kept)
    raise AssertionError("unreachable: the last attempt returns or raises")


def check_attempts(attempts: object) -> None:
    """Refuse what is no number of attempts."""
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InvalidOperation(f"attempts must be a whole number from 1 on, not {shown(attempts)}")


def check_callable(fn: object) -> None:
    """Refuse what can't be run in a transaction."""
    if not callable(fn):
        raise InvalidOperation(
            f"run takes a function of the transaction, not {shown(fn)}: "
            "write `lake.run(lambda txn: ...)`"
        )


def _attempt(
    lake: Lake, kept: core.Transaction | None, losses: int, options: Mapping[str, Any]
) -> Transaction | None:
    """The transaction that lost, under its id and in its places, or a new one.

    None if another process has resumed and committed the one that lost.
    """
    if kept is not None:
        escalate = losses >= lake.settings.escalate_after
        try:
            state = lake.runner.run(rerun(kept, escalate=escalate))
        except TransactionAborted:
            _let_go(lake, kept)  # another process has resumed it
            if _has_committed(lake, kept.id):
                return None
        else:
            given = {name: options[name] for name in ("wait", "durability") if name in options}
            txn = lake.begun(state, **given)
            txn.keeps_place = True
            return txn
    txn = lake.transaction(**options)
    txn.keeps_place = True
    return txn


def _has_committed(lake: Lake, txn_id: str) -> bool:
    """Whether a transaction that others may have resumed has committed; if not, it never will.

    Asked before it is done anew under another id, or it would be done twice.
    """
    # Saved ones commit through HEAD alone, so a fence settles it.
    if lake.runner.run(outcome.fence(lake.context, txn_id)) is not None:
        return True
    held = lake.context.held
    if held is not None and outcome.is_forgotten(held.head, txn_id):
        raise CommitOutcomeUnknown(
            f"transaction {txn_id} was resumed by another process, and whether it has "
            "committed can't be told any more: look for its rows",
            txn_id=txn_id,
        )
    # Nobody is to wait in a queue for whoever has resumed it.
    lake.runner.run(delete(record_key(txn_id)))
    return False


def _let_go(lake: Lake, kept: core.Transaction) -> None:
    """End a transaction that was kept for another attempt, beside an error that matters more."""

    def end() -> Program[None]:
        yield from saving.forget(kept)
        yield from abort(kept)

    try:
        lake.runner.run(end())
    except LakeVillaError as error:
        lake.log(f"could not clean up after transaction {kept.id}: {error}", kept.id)


def _pause(context: Context, attempt: int) -> Program[None]:
    settings = context.settings
    longest = min(settings.retry_cap_seconds, settings.retry_base_seconds * 2**attempt)
    yield from sleep(longest * context.ids.jitter())
