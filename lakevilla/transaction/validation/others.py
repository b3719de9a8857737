"""The commit of others with which a transaction conflicts: its number, its time, its writer."""

from __future__ import annotations

from datetime import UTC, datetime

from lakevilla.errors import ConflictError, LakeVillaError
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.lake.context import Context
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState

#: The most characters of metadata that a message has; the error's attribute has all.
_MOST_SHOWN = 200


def name_commit(txn: TransactionState, head: Head, error: LakeVillaError) -> LakeVillaError:
    """Add, to a conflict, the newest commit on its table since the state that ``txn`` has read.

    That one is named, because the transaction would have to begin after it. HEAD has its number and
    time, so this takes no request.
    """
    newest = _newest(txn, head, error.table)
    if newest is None or not isinstance(error, ConflictError):
        return error
    error.version = newest.sequence
    error.timestamp = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC)
    error.commit = (newest.txn, newest.hash)
    by = " of another client" if newest.kind == "foreign" else ""
    _add(
        error,
        f"; the newest commit on it{by} is global version {error.version} of "
        f"{error.timestamp.isoformat(sep=' ', timespec='milliseconds')}",
    )
    return error


def name_writer(context: Context, error: ConflictError) -> Program[None]:
    """Add what the writer of the named commit has said in its metadata; this takes one GET.

    It is for a conflict that reaches a caller: one after which a function runs again needs no name.
    """
    txn, digest = error.commit
    if not digest or error.metadata:
        return
    found = yield from context.commit_object(txn, digest)
    error.metadata = dict(found.metadata)
    about = ", ".join(f"{key}={value}" for key, value in error.metadata.items())
    if len(about) > _MOST_SHOWN:
        about = about[: _MOST_SHOWN - 3] + "..."
    if about:
        _add(error, f" ({about})")


def _add(error: ConflictError, text: str) -> None:
    error.message += text
    error.args = (error.message,)


def _newest(txn: TransactionState, head: Head, table: str | None) -> CommitSummary | None:
    """Return the newest commit in HEAD's list on a table, unless the transaction has read it."""
    for commit in reversed(head.commits):
        if commit.sequence <= txn.bound.sequence:
            return None
        if table in commit.tables:
            return commit
    return None
