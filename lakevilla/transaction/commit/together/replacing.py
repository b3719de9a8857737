"""Replace HEAD with the commits of a group, proposed ones too."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import msgspec

from lakevilla.errors import CommitOutcomeUnknown, ConflictError, LakeVillaError, StoreError
from lakevilla.global_log.head import CommitSummary, Head, TableState
from lakevilla.global_log.history import check_lineage
from lakevilla.global_log.inbox.proposal import MOST_COMMIT_BYTES, Claim, ProposedCommit
from lakevilla.global_log.inbox.reliance import MOST_BYTES, Reliance, reliance_of, relied, size_of
from lakevilla.global_log.repo import HeldHead, head_found, replace_head, store_leaves
from lakevilla.global_log.summaries import fingerprint
from lakevilla.lake.context import Context, Event
from lakevilla.store.base import PutOutcome, Stored, Unknown
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Rename, Transplant, is_append
from lakevilla.transaction.commit.together.group import (
    Answer,
    Candidate,
    CommitGroup,
    Failed,
    Replacement,
    Settled,
    commits_of,
)
from lakevilla.transaction.commit.together.join import look_for
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.validation.overlap import candidates_of

# -------------------- replacing
#
# Sending a replacement of HEAD, and reporting the outcome to its candidates.


#: The most races that a commit loses in a row before it gives up; in each another client advanced.
_MAX_RACES = 1000
#: The most times that the same replacement is sent again while its outcome is unknown.
_MAX_UNKNOWN = 5


def begin_replacing(
    group: CommitGroup, base: HeldHead, new: Head, accepted: Mapping[Candidate, CommitSummary]
) -> Program[Replacement | None]:
    """Return the attempt to send, with its leaves stored; None if a member has left meanwhile."""
    try:
        yield from store_leaves(new)
    except StoreError as error:
        # Nothing names the leaves yet: it is sure that no transaction is committed by them.
        group.answer({one: not_stored(one.txn, error) for one in accepted})
        return None
    attempt = Replacement(base, new, accepted)
    # From here on it may be committed, whatever happens to its thread.

    def note_tried(candidate: Candidate) -> None:
        candidate.txn.ending.tried = True
        candidate.txn.ending.head_tried = base.head.replacement

    return attempt if group.begin(attempt, accepted, note_tried) else None


def carry_out(
    context: Context, group: CommitGroup, attempt: Replacement, *, in_doubt: bool = False
) -> Program[None]:
    """Send the replacement of HEAD, and report the outcome to its candidates.

    ``in_doubt``: it was sent before, and may have been stored or may yet be. Then an error of this
    sending says nothing of that one; else it says that nothing was committed.

    It is safe to cut this short anywhere: the attempt is left behind for the next leader.
    """
    held, new = attempt.held, attempt.new
    try:
        outcome = yield from replace_head(held, new)
        for _ in range(_MAX_UNKNOWN):
            if not isinstance(outcome, Unknown):
                break
            # Send the very same write again: it can be stored once at most, because it
            # matches a HEAD that it replaces itself.
            in_doubt = True
            outcome = yield from replace_head(held, new)
        if isinstance(outcome, Stored):
            decided = HeldHead(new, outcome.token)
            context.remember(decided)
            group.races = 0
            group.answer(_decided(decided, attempt.candidates), settled=True)
            return
        newer = yield from _met(context, outcome)
    except LakeVillaError as error:
        # The store failed, or HEAD is damaged or was set back. Where nothing was in doubt it is
        # sure that this write was refused, or never sent.
        group.answer(
            {
                one: unknown(one.txn, error.message) if in_doubt else not_stored(one.txn, error)
                for one in attempt.candidates
            },
            settled=True,
        )
        return
    if newer is None or (
        isinstance(outcome, Unknown) and newer.head.replacement == held.head.replacement
    ):
        group.answer({one: unknown(one.txn) for one in attempt.candidates}, settled=True)
        return
    yield from _lost(context, group, attempt, newer, in_doubt=in_doubt)


def unknown(txn: TransactionState, why: str = "") -> Failed:
    """Return the answer that it is not known whether the transaction was committed."""
    return Failed(
        CommitOutcomeUnknown(
            f"could not settle whether transaction {txn.id} was committed"
            + (f" ({why})" if why else "")
            + f": commit it again, or call `lake.outcome({txn.id!r})`",
            txn_id=txn.id,
        )
    )


def not_stored(txn: TransactionState, error: LakeVillaError) -> Failed:
    """Return the answer to a member for the error of a replacement that was refused, or not sent.

    Each member gets an error of its own: it is raised in a thread of its own.
    """
    if txn.ending.proposed is not None:
        return unknown(txn, error.message)  # another client may have included it
    own = copy(error)
    own.txn_id = txn.id
    own.message = f"nothing of transaction {txn.id} was committed: {error.message}"
    own.args = (own.message,)
    return Failed(own)


def _decided(
    held: HeldHead, candidates: Mapping[Candidate, CommitSummary]
) -> dict[Candidate, Answer]:
    together = frozenset(one.txn.id for one in candidates)
    return {one: Settled(held, summary, together) for one, summary in candidates.items()}


def _met(context: Context, outcome: PutOutcome) -> Program[HeldHead | None]:
    """Return the HEAD with which the replacement conflicts."""
    newer = head_found(outcome)
    known = context.held
    if newer is None or (known is not None and newer.head.replacement < known.head.replacement):
        # It is older than what is known: overtaken by another thread, or set back. A read shows
        # which.
        return (yield from context.head())
    if known is not None:
        check_lineage(known.head, newer.head)
    context.remember(newer)
    return newer


def _lost(
    context: Context,
    group: CommitGroup,
    attempt: Replacement,
    newer: HeldHead,
    *,
    in_doubt: bool,
) -> Program[None]:
    """Search for each in the newer HEAD: it was first, or is the own one whose answer was lost."""
    group.note_lost(context)
    answers: dict[Candidate, Answer] = {}
    for candidate in attempt.candidates:
        if candidate.has_left:
            continue
        txn = candidate.txn
        found = yield from look_for(candidate, newer)
        if in_doubt and isinstance(found, Failed):
            found = unknown(txn, str(found.error))  # it may be in the part that could not be read
        if found is not None:
            answers[candidate] = found
            continue
        candidate.races += 1
        txn.ending.retries += 1
        context.notify(
            Event("retry", txn.id, f"lost a race for HEAD ({candidate.races} times)", {})
        )
        if candidate.races >= _MAX_RACES:
            answers[candidate] = Failed(
                ConflictError(
                    f"transaction {txn.id} lost {_MAX_RACES} races for HEAD in a row: "
                    "run it again later",
                    txn_id=txn.id,
                )
            )
    group.answer(answers, settled=True)


# -------------------- proposed
#
# The commits that may be proposed, and what their owner claims of their tables' logs.


def proposed_commit(base: Head, new: Head, candidate: Candidate) -> Program[ProposedCommit | None]:
    """Return the candidate as any leader may include it; None if only its owner can commit it.

    ``new`` is the HEAD that its owner would store behind ``base``: the claim is what it says of the
    commit and its tables. All on which the transaction relies is in ``base`` unchanged since
    the state to which it is bound, and in the same files.
    """
    txn = candidate.txn
    if not may_go_along(txn) or not 0 < len(candidate.body) <= MOST_COMMIT_BYTES:
        return None
    if new.sequence != base.sequence + 1:
        return None  # commits of other clients are included with it
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
    """Return HEAD's state of a table, if all its changes are made through HEAD or its own log."""
    state = base.tables.get(table)
    return None if state is None or state.dropped or state.catalog else state


def _reliances(base: Head, candidate: Candidate) -> Program[dict[str, Reliance] | None]:
    """Return what other clients need to decide whether it is touched.

    None if that can't be said, or takes much.
    """
    txn, commit = candidate.txn, candidate.commit
    relies: dict[str, Reliance] = {}
    for table, predicates in relied(commit).items():
        state = _shared(base, table)
        if state is None:
            return None
        working = txn.work.tables[table]
        files: set[int] | None = set()
        for where in predicates:
            found = yield from candidates_of(working, where)
            files = None if files is None or found is None else files | found
        if files is not None and table in commit.tables:
            files |= {fingerprint(file.ref) for file in commit.tables[table].change.removes}
        layout = working.view.snapshot.layout
        relies[table] = reliance_of(state.table_id, layout, predicates, files)
    return relies if size_of(relies) <= MOST_BYTES else None


def may_go_along(txn: TransactionState) -> bool:
    """Return whether HEAD alone shows other clients that what it relies on was not touched."""
    head = txn.head
    is_ahead = head is not None and any(one.txn == txn.id for one in head.reserved)
    is_precise = txn.options.validation == "precise" and not txn.options.slack
    if (
        is_ahead
        or not is_precise
        or txn.work.behind
        or txn.work.merging is not None
        or txn.work.catalog  # HEAD and the commit show its reads of tables, not of the catalog
        # The client that replaces HEAD checks whether the files that it brings back are kept, and
        # changes names in the same replacement.
        or any(
            done.deferred or isinstance(done.operation, Transplant | Rename)
            for done in txn.work.done
        )
    ):
        return False
    # A commit that was touched once is likely to be touched again: it waits for no leader, since a
    # leader would leave it.
    return not relies(txn) or not (
        txn.work.redos or commits_of(txn.context).has_doubts(txn.context)
    )


def relies(txn: TransactionState) -> bool:
    """Return whether it relies on rows, and does not only add some."""
    only_adds = all(is_append(done.operation) for done in txn.work.done)
    return bool(txn.work.reads) or not only_adds


def _published(before: TableState, after: TableState) -> int:
    """Return the last commit of the lake, of those that were pending, that its log holds."""
    left = {ref.sequence for ref in after.pending}
    return max((ref.sequence for ref in before.pending if ref.sequence not in left), default=0)


def _is_alone(txn: TransactionState, table: str) -> bool:
    return txn.work.tables[table].snapshot.layout.change_data_feed
