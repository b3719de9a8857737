"""Which commits may be proposed, and what their owner claims of their tables' logs."""

from __future__ import annotations

import msgspec

from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.inbox.proposal import MOST_COMMIT_BYTES, Claim, ProposedCommit
from lakevilla.global_log.inbox.reliance import MOST_BYTES, Reliance, reliance_of, relied, size_of
from lakevilla.global_log.summaries import fingerprint
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant, is_append
from lakevilla.transaction.commit.together.candidate import Candidate
from lakevilla.transaction.commit.together.lane import commits_of
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.overlap import candidates_of


def proposed_commit(base: Head, new: Head, candidate: Candidate) -> Program[ProposedCommit | None]:
    """The candidate as others may take it along; None if only its owner can commit it.

    ``new`` is the HEAD that its owner would store behind ``base``: what it says of the commit
    and its tables is what is claimed. All that the transaction relies on is in ``base`` as it was
    in the state that it is bound to, and in the same files.
    """
    txn = candidate.txn
    if not may_go_along(txn) or not 0 < len(candidate.body) <= MOST_COMMIT_BYTES:
        return None
    if new.sequence != base.sequence + 1:
        return None  # commits of other clients come in with it
    summary = new.commits[-1]
    claims: dict[str, Claim] = {}
    for table, part in candidate.commit.tables.items():
        before = _shared(base, table)
        if before is None or before.guarded or not (part.change.adds or part.change.removes):
            return None
        touch = summary.tables[table]
        if touch.metadata or touch.left or touch.entered:
            return None
        claims[table] = Claim(
            table_id=before.table_id,
            format=before.format,
            logged=touch.published,
            upto=_published(before, new.tables[table]),
            touch=touch,
            alone=_is_alone(txn, table),
        )
    if summary.tables.keys() != claims.keys():
        return None
    relies = yield from _reliances(base, candidate)
    if relies is None:
        return None
    body = msgspec.Raw(candidate.body)
    return ProposedCommit(txn.id, candidate.digest, body, claims, relies)


def _shared(base: Head, table: str) -> TableState | None:
    """What HEAD tells of a table, if all that comes to it comes through HEAD or its own log."""
    state = base.tables.get(table)
    return None if state is None or state.dropped or state.catalog else state


def _reliances(base: Head, candidate: Candidate) -> Program[dict[str, Reliance] | None]:
    """What others need to tell whether it is touched; None if that can't be said, or takes much."""
    txn, commit = candidate.txn, candidate.commit
    relies: dict[str, Reliance] = {}
    for table, asked in relied(commit).items():
        state = _shared(base, table)
        if state is None:
            return None
        working = txn.work.tables[table]
        files: set[int] | None = set()
        for where in asked:
            found = yield from candidates_of(working, where)
            files = None if files is None or found is None else files | found
        if files is not None and table in commit.tables:
            files |= {fingerprint(file.ref) for file in commit.tables[table].change.removes}
        layout = working.view.snapshot.layout
        relies[table] = reliance_of(state.table_id, layout, asked, files)
    return relies if size_of(relies) <= MOST_BYTES else None


def may_go_along(txn: TransactionState) -> bool:
    """Whether another can tell, from HEAD alone, that what it relies on was not touched."""
    head = txn.head
    is_ahead = head is not None and any(one.txn == txn.id for one in head.reserved)
    is_precise = txn.options.validation == "precise" and not txn.options.slack
    if (
        is_ahead
        or not is_precise
        or txn.work.behind
        or txn.work.merging is not None
        or txn.work.catalog  # HEAD and the commit tell what it read of tables, and not of these
        # Whether the files that it brings back are kept is looked for by who replaces HEAD.
        or any(done.deferred or isinstance(done.operation, Transplant) for done in txn.work.done)
    ):
        return False
    # What was touched once is likely to be touched again: it waits for nobody, who would leave it.
    return not relies(txn) or not (
        txn.work.redos or commits_of(txn.context).has_doubts(txn.context)
    )


def relies(txn: TransactionState) -> bool:
    """Whether it relies on rows, and does not only add some."""
    only_adds = all(is_append(done.operation) for done in txn.work.done)
    return bool(txn.work.reads) or not only_adds


def _published(before: TableState, after: TableState) -> int:
    """The last commit of the lake that its log was found to hold, of those that were pending."""
    left = {ref.sequence for ref in after.pending}
    return max((ref.sequence for ref in before.pending if ref.sequence not in left), default=0)


def _is_alone(txn: TransactionState, table: str) -> bool:
    return txn.work.tables[table].snapshot.layout.change_data_feed
