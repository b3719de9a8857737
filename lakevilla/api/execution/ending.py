"""End a transaction: commit it and release its places; warn if its caller has dropped it open."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.api.client.background import Use
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.names import shown_id
from lakevilla.api.merge import Described
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import CommitResult
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.save import forget

__all__ = ["give_back", "is_left_open", "loss_of", "refuse_unfinished", "run_commit"]


def refuse_unfinished(state: TransactionState, merges: Iterable[Described]) -> None:
    """Refuse to commit while a merge is described but not executed."""
    for merge in merges:
        if not merge.ended:
            raise InvalidOperation(
                f"a merge into {merge.table} was described and never executed: call execute()",
                table=merge.table,
                txn_id=shown_id(state),
            )


def run_commit(
    client: LakeClient, state: TransactionState, *, publish: bool, keeps_place: bool
) -> CommitResult:
    """Commit, and begin the background work that follows; ``publish``: publish before returning.

    ``keeps_place``: keep the places after a conflict, because the transaction runs again in them.
    """
    if state.work.commits or state.claims.key is not None:
        client.ensure_safe_store()
    try:
        with client.measured("commit", None, state.id):
            result = client.run(commit(state, publish=publish))
    except BaseException:
        ended = state.state is Status.FAILED or state.ending.is_in_doubt
        if ended and not keeps_place:
            # The caller may keep the transaction for long; no other transaction must wait for it.
            give_back(client, state)
        if state.state is Status.FAILED:
            client.tell_end(state)
        raise
    finally:
        if state.state is Status.COMMITTED:
            client.tell_end(state)
        client.after_commit(state, publish=publish)
    return client.named(result)


def give_back(client: LakeClient, state: TransactionState) -> None:
    """Release the places and the record of a transaction that has ended or never will."""
    try:
        client.run(forget(state))
    except LakeVillaError as error:
        txn_id = shown_id(state)
        client.log(f"could not clean up after transaction {txn_id}: {error}", txn_id)


def is_left_open(state: TransactionState, use: Use, *, keeps_place: bool) -> bool:
    """Return whether the caller has dropped the transaction without an end.

    That is so if the transaction was used, and no caller or process can end it any more.
    """
    work, claims, ending = state.work, state.claims, state.ending
    if keeps_place or state.options.read_only or not use.is_of_this_process:
        # it runs again under its id, is a snapshot, or was begun by the parent of this fork
        return False
    if state.state is not Status.OPEN or ending.tried:
        return False
    if claims.saved is not None and claims.saved.operations == len(work.done):
        return False  # saved in its present state: another process may resume it
    return bool(state.bound.is_bound or work.done or claims.queue)


def loss_of(state: TransactionState) -> str:
    """Return the warning that an open transaction was dropped, and that its writes are lost."""
    count = len(state.work.done)
    lost = f"what it has written ({count} operation{'' if count == 1 else 's'}) is lost"
    return (
        f"transaction {state.id} was dropped and neither committed nor aborted"
        f"{f': {lost}' if count else ''}; commit it, as `with lake.transaction() as txn:` does"
    )
