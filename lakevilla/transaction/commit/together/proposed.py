"""Which commits may be proposed, and what their owner claims of their tables' logs."""

from __future__ import annotations

import msgspec

from lakevilla.global_log.head import Head, TableState
from lakevilla.inbox.proposal import MOST_COMMIT_BYTES, Claim, ProposedCommit
from lakevilla.sublogs.operations import is_append
from lakevilla.transaction.commit.together.candidate import Candidate
from lakevilla.transaction.state.transaction import TransactionState


def proposed_commit(base: Head, new: Head, candidate: Candidate) -> ProposedCommit | None:
    """The candidate as others may take it along; None if only its owner can commit it.

    ``new`` is the HEAD that its owner would store behind ``base``: what it says of the commit
    and its tables is what is claimed.
    """
    if not is_plain(candidate.txn) or not 0 < len(candidate.body) <= MOST_COMMIT_BYTES:
        return None
    if new.sequence != base.sequence + 1:
        return None  # commits of other clients come in with it
    summary = new.commits[-1]
    claims: dict[str, Claim] = {}
    for table in candidate.commit.tables:
        before = base.tables.get(table)
        if before is None or before.dropped or before.guarded or before.catalog:
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
            alone=_is_alone(candidate.txn, table),
        )
    if summary.tables.keys() != claims.keys():
        return None
    return ProposedCommit(candidate.txn.id, candidate.digest, msgspec.Raw(candidate.body), claims)


def is_plain(txn: TransactionState) -> bool:
    """Whether it adds rows and relies on nothing else, so that what others do can't touch it."""
    head = txn.head
    is_ahead = head is not None and any(one.txn == txn.id for one in head.reserved)
    is_precise = txn.options.validation == "precise" and not txn.options.slack
    only_adds = all(is_append(done.operation) and not done.deferred for done in txn.work.done)
    return is_precise and only_adds and not (is_ahead or txn.work.reads or txn.work.behind)


def _published(before: TableState, after: TableState) -> int:
    """The last commit of the lake that its log was found to hold, of those that were pending."""
    left = {ref.sequence for ref in after.pending}
    return max((ref.sequence for ref in before.pending if ref.sequence not in left), default=0)


def _is_alone(txn: TransactionState, table: str) -> bool:
    return txn.work.tables[table].snapshot.layout.change_data_feed
