"""What became of a transaction that was begun in a life of a branch before its present one.

Nothing is committed there any more, so what such a HEAD and its pages tell is final.
"""

from __future__ import annotations

from lakevilla.branches.entries import find_ref
from lakevilla.errors import AlreadyCommitted, CorruptObject, TransactionAborted, VersionNotFound
from lakevilla.global_log.repo import load_head
from lakevilla.lake.context import Context
from lakevilla.lake.publishing.outcome import find_in_history, result_of
from lakevilla.results import CommitResult
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get
from lakevilla.store.home import at_home
from lakevilla.sublogs.record import record_key


def committed_before(context: Context, name: str, txn_id: str) -> Program[CommitResult | None]:
    """The commit of a transaction in an older life of a branch. ``context`` is the lake's.

    Asked before the present one is, which would fence it, and say that it never committed.
    """
    _, entry = yield from find_ref(context, name)
    for life in reversed(entry.lives[:-1]):
        found = yield from at_home(life, _committed(context, txn_id))
        if found is not None:
            return found
    return None


def refuse_begun_before(context: Context, name: str, txn_id: str) -> Program[None]:
    """Refuse to resume what was saved before the branch was rebased.

    Raises
    ------
    AlreadyCommitted, TransactionAborted
    """
    result = yield from committed_before(context, name, txn_id)
    if result is not None:
        raise AlreadyCommitted(
            f"transaction {txn_id} was committed on branch {name!r} before that was rebased: "
            "nothing is left to do",
            result=result,
            txn_id=txn_id,
        )
    _, entry = yield from find_ref(context, name)
    for life in entry.lives[:-1]:
        if isinstance((yield from at_home(life, get(record_key(txn_id)))), Found):
            raise TransactionAborted(
                f"transaction {txn_id} was saved before branch {name!r} was rebased, and stands on "
                "what that was: run it again",
                txn_id=txn_id,
            )


def _committed(context: Context, txn_id: str) -> Program[CommitResult | None]:
    try:
        held = yield from load_head()
    except CorruptObject:
        return None  # as far as anybody can tell
    if held is None:
        return None
    try:
        summary = yield from find_in_history(held.head, txn_id)
    except VersionNotFound:
        return None
    if summary is None:
        return None
    return (yield from result_of(context.of_branch(held), held.head, summary))
