"""Replace HEAD by one with the commits of a group; make proposals of commits."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

import msgspec

from lakevilla.errors import CommitOutcomeUnknown, ConflictError, LakeVillaError, StoreError
from lakevilla.global_log.head import CommitSummary, Head, TableState, successor
from lakevilla.global_log.history import check_lineage
from lakevilla.global_log.inbox.proposal import MOST_COMMIT_BYTES, Claim, ProposedCommit
from lakevilla.global_log.inbox.reliance import MOST_BYTES, Reliance, reliance_of, relied, size_of
from lakevilla.global_log.repo import HeldHead, head_found, replace_head, store_leaves
from lakevilla.global_log.summaries import fingerprint
from lakevilla.lake.context import Context, Event
from lakevilla.lake.tables.registration import replace_until_stored
from lakevilla.store.base import PutOutcome, Refused, Stored, Unknown
from lakevilla.store.effects import Program
from lakevilla.store.formats import RELIANCES
from lakevilla.sublogs.operations import Given, Rename, Transplant, is_append
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
# Send a replacement of HEAD, and answer its candidates by the outcome.


#: A commit gives up after so many lost races in a row; each was won by another client.
_MAX_RACES = 1000
#: The most times that the same replacement is sent again while its outcome is unknown.
_MAX_UNKNOWN = 5


def begin_replacing(
    group: CommitGroup, base: HeldHead, new: Head, accepted: Mapping[Candidate, CommitSummary]
) -> Program[Replacement | None]:
    """Store the leaves of the new HEAD, and return the attempt; None if a member has left."""
    try:
        yield from store_leaves(new)
    except StoreError as error:
        # No HEAD names the leaves yet: certainly no transaction was committed.
        group.answer({one: not_stored(one.txn, error) for one in accepted})
        return None
    attempt = Replacement(base, new, accepted)
    # From here on the candidates may be committed, even if this thread is interrupted.

    def note_tried(candidate: Candidate) -> bool:
        combined, number = candidate.txn.combined, base.head.replacement
        if combined is not None and not combined.begin(number):
            return False
        candidate.txn.ending.tried = True
        candidate.txn.ending.head_tried = number
        return True

    # At most one candidate is combined. Its note may fail, so it is the first.
    in_order = sorted(accepted, key=lambda candidate: candidate.txn.combined is None)
    return attempt if group.begin(attempt, in_order, note_tried) else None


def carry_out(
    context: Context, group: CommitGroup, attempt: Replacement, *, in_doubt: bool = False
) -> Program[None]:
    """Send the replacement of HEAD, and answer its candidates by the outcome.

    ``in_doubt``: it was sent before, and that write may have been stored or may yet be. Then an
    error now leaves the outcome unknown; else an error means that nothing was committed.

    An interruption is safe anywhere: the next leader sends the attempt again.
    """
    held, new = attempt.held, attempt.new
    try:
        outcome = yield from replace_head(held, new)
        for _ in range(_MAX_UNKNOWN):
            if not isinstance(outcome, Unknown):
                break
            # Send the same write again. At most one is stored: both have the condition that HEAD is
            # the old one, which the first replaces.
            in_doubt = True
            outcome = yield from replace_head(held, new)
        is_limited = isinstance(outcome, Stored | Refused) and outcome.limited
        if is_limited and not new.as_log:  # numbers of a log are objects of their own
            group.note_limit(context)
        if isinstance(outcome, Stored):
            decided = HeldHead(new, outcome.token)
            context.remember(decided)
            group.stored, group.races = decided, 0
            group.answer(_decided(decided, attempt.candidates), settled=True)
            return
        newer = yield from _met(context, outcome)
    except LakeVillaError as error:
        # The store failed, or HEAD is damaged or was set back. If nothing was in doubt, this write
        # was certainly refused, or not sent.
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


def move_past(context: Context, last: int) -> Program[Head]:
    """Replace HEAD by one with the same content, unless its number is above ``last``; return it.

    From then on no write that replaces HEAD ``last``, or an older one, can be stored any more.
    """

    def change(head: Head) -> Program[Head | None]:
        yield from ()
        if head.replacement > last:
            return None
        return successor(head, nonce=context.ids.nonce(), now_ms=context.now_ms())

    return (yield from replace_until_stored(context, change))


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
    """Return a member's answer after an error of a replacement that was refused, or not sent.

    Each member gets its own copy of the error, because each raises it in its own thread.
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
    """Return the HEAD that is in the store in place of the one that was to be replaced."""
    newer = head_found(outcome)
    known = context.held
    if newer is None or (known is not None and newer.head.replacement < known.head.replacement):
        # The outcome shows no HEAD, or one older than the cached one: another thread was faster, or
        # HEAD was set back. A read shows which.
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
    """Answer the candidates whose commits the newer HEAD has; count a lost race for the rest.

    The newer HEAD is another client's, or the attempt itself if the store's answer was lost.
    """
    group.note_lost(context)
    answers: dict[Candidate, Answer] = {}
    for candidate in attempt.candidates:
        if candidate.has_left:
            continue
        txn = candidate.txn
        found = yield from look_for(candidate, newer)
        if in_doubt and isinstance(found, Failed):
            found = unknown(txn, str(found.error))  # it may be in the unread part
        if found is not None:
            answers[candidate] = found
            continue
        candidate.races += 1
        txn.ending.retries += 1
        for txn_id, _ in txn.known_as():
            message = f"lost a race for HEAD ({candidate.races} times)"
            context.notify(Event("retry", txn_id, message, {}))
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
# Which commits may be proposed, and the claims of their owner about the logs of their tables.


def proposed_commit(base: Head, new: Head, candidate: Candidate) -> Program[ProposedCommit | None]:
    """Return the candidate's commit as any leader may include it; None if only its owner can.

    ``new`` is the HEAD by which its owner would replace ``base``; the claims state what that HEAD
    says of the tables. In ``base``, all rows on which the transaction relies are unchanged since
    the state to which it is bound, and are in the same files.
    """
    txn = candidate.txn
    if not may_go_along(txn) or not 0 < len(candidate.body) <= MOST_COMMIT_BYTES:
        return None
    if new.sequence != base.sequence + 1:
        return None  # it would absorb foreign commits
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
    """Return HEAD's state of a live table; None if a catalog has the table."""
    state = base.tables.get(table)
    return None if state is None or state.dropped or state.catalog else state


def _reliances(base: Head, candidate: Candidate) -> Program[dict[str, Reliance] | None]:
    """Return, by table, what other clients need to decide whether the rows of its reads changed.

    None if that can't be stated, or is too large.
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
    """Return whether other clients can decide by HEAD alone that the commit is still valid."""
    head = txn.head
    is_ahead = head is not None and any(one.txn == txn.id for one in head.reserved)
    is_precise = txn.options.validation == "precise" and not txn.options.slack
    if (
        is_ahead
        or not is_precise
        or txn.combined is not None  # another client would have to check its members
        or txn.work.behind
        or txn.work.merging is not None
        or txn.work.catalog  # HEAD and the commit show its reads of tables, not of the catalog
        # Only the owner can check that the files that a transplant brings back are kept, that an
        # Iceberg client's version is still the newest, and change names in HEAD.
        or any(
            done.deferred or isinstance(done.operation, Transplant | Rename | Given)
            for done in txn.work.done
        )
    ):
        return False
    if relies(txn) and not txn.context.settings.allows(RELIANCES.lake):
        return False
    # After one redo the rows of its reads are likely to change again: then no leader would include
    # the commit, so it does not wait for one.
    return not relies(txn) or not (
        txn.work.redos or commits_of(txn.context).has_doubts(txn.context)
    )


def relies(txn: TransactionState) -> bool:
    """Return whether the transaction relies on rows, and does not only append some."""
    only_adds = all(is_append(done.operation) for done in txn.work.done)
    return bool(txn.work.reads) or not only_adds


def _published(before: TableState, after: TableState) -> int:
    """Return the sequence of the last commit that was pending and is in the log now, or 0."""
    left = {ref.sequence for ref in after.pending}
    return max((ref.sequence for ref in before.pending if ref.sequence not in left), default=0)


def _is_alone(txn: TransactionState, table: str) -> bool:
    return txn.work.tables[table].snapshot.layout.change_data_feed
