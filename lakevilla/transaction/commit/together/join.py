"""Add the commits of a group to the newest HEAD, each validated against the commits before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from lakevilla.errors import ConflictError, TableExists, TableNotFound
from lakevilla.formats.layout import Layout
from lakevilla.formats.sizes import NOTHING, Size, growth_of
from lakevilla.global_log.bases import seal_base, store_base
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import (
    FORMAT_WITH_GIVEN,
    FORMAT_WITH_MEMBERS,
    FORMAT_WITH_REFS,
    CommitSummary,
    Head,
    PageRef,
    PendingRef,
    Reservation,
    TableState,
    Touch,
    find_commit,
    successor,
    with_refs,
)
from lakevilla.global_log.repo import (
    HeldHead,
    check_not_closed,
    commits_since,
    make_room,
    store_leaves_of,
)
from lakevilla.global_log.summaries import SUMMARY_BYTES, summarize
from lakevilla.lake.absorb import absorb
from lakevilla.lake.context import Context
from lakevilla.lake.tables.renaming import names_after
from lakevilla.lake.view import is_another
from lakevilla.markers.reservation import remaining, reserved_ahead
from lakevilla.phases import during, of
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Given, Refresh, Transplant
from lakevilla.transaction.commit.squash import squashed
from lakevilla.transaction.commit.together.group import (
    MOST,
    Answer,
    Batch,
    Candidate,
    CommitGroup,
    Declined,
    Failed,
    MembersChanged,
    Settled,
    commit_after,
)
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.parts import Combined
from lakevilla.transaction.state.transaction import TransactionState, conflict
from lakevilla.transaction.state.values import Merging
from lakevilla.transaction.validation.checks import changed_branch, direct_write, unkept
from lakevilla.transaction.validation.validate import examine

# -------------------- join
#
# Make the successor of a HEAD that has the commits of all candidates that fit.
#
# ``form_batch`` first answers the candidates whose commits the HEAD has (``answer_committed``). It
# then adds the other candidates, one after the other (``add_candidates``, ``add_candidate``): each
# is checked against the HEAD with the candidates before it (``check_candidate``), and if it fits,
# its commit is added to that HEAD (``with_commit_of``).


def add_candidates(
    context: Context, base: HeldHead, candidates: Iterable[Candidate]
) -> Program[Batch]:
    """Return the successor of ``base`` that holds all candidates that fit, in their order.

    The result is as if they had committed one after the other, except for the number of
    replacements. From the store this reads only immutable objects that are not cached.
    """
    head = base.head
    accepted: dict[Candidate, CommitSummary] = {}
    answers: dict[Candidate, Answer] = {}
    for candidate in candidates:
        step: Head | Answer
        try:
            # This runs in the leader's thread, but the time counts for the candidate's transaction.
            with of(candidate.txn.phases), during("validate"):
                step = yield from add_candidate(base, head, candidate)
        except Exception as error:
            step = Failed(error)
        if isinstance(step, Head):
            head = step
            accepted[candidate] = head.commits[-1]
        elif not accepted:
            answers[candidate] = step
    if accepted:
        head = msgspec.structs.replace(head, replacement=base.head.replacement + 1)
    return Batch(head, accepted, answers)


def add_candidate(base: HeldHead, head: Head, candidate: Candidate) -> Program[Head | Answer]:
    """Return ``head`` with the candidate's commit, or the answer that it does not fit there.

    ``head`` is ``base`` with the commits of the candidates before this one. Their commit objects
    are stored and cached, so the candidate is validated against them as against any commits.
    """
    fits = yield from check_candidate(base, head, candidate)
    if not isinstance(fits, Fits):
        return fits
    page = yield from make_room(head, candidate.txn.context.ids, is_stored=head is base.head)
    return (yield from with_commit_of(head, candidate, fits, page))


@dataclass(frozen=True, slots=True)
class Fits:
    """The examination of a candidate that fits a HEAD, and the names that it changes there."""

    found: Examination
    names: dict[str, str | None]


def check_candidate(base: HeldHead, head: Head, candidate: Candidate) -> Program[Fits | Answer]:
    """Return ``Fits`` if the candidate can be committed on top of ``head``, else its answer."""
    txn = candidate.txn
    check_not_closed(head)
    if is_fenced(head, txn.id):
        return Declined(base)
    before = (commit for commit in head.commits if commit.sequence > base.head.sequence)
    if find_commit(before, txn.id) is not None:
        return Declined(base)  # the same transaction, resumed in this process, commits just before
    if txn.combined is not None and (
        txn.combined.is_too_late(base.head.replacement)
        or (yield from _has_changed(txn.combined, head))
    ):
        return Failed(MembersChanged())
    if not set(reserved_ahead(txn, head)) <= _written_of(txn, candidate.let_pass):
        return Declined(base)
    examination = yield from examine(txn, head)
    if examination.conflict is None:
        # Checked against the HEAD to be replaced: no direct write follows the protection of main.
        examination.conflict = direct_write(txn, head)
    if examination.conflict is None:
        # Checked before a redo: changes that another client has merged from the branch would look
        # like a conflict.
        examination.conflict = yield from changed_branch(txn, head)
    if examination.conflict is None and examination.redo_from is None:
        examination.conflict = yield from _of_another(txn, head, examination)
    if examination.conflict is None and examination.redo_from is None:
        examination.conflict = yield from unkept(txn, head)
    names: dict[str, str | None] = {}
    if examination.conflict is None and examination.redo_from is None:
        # Checked against the HEAD to be replaced: of two transactions that assign the same name,
        # the second is refused.
        try:
            names = yield from names_after(head, candidate.commit.operations)
        except TableNotFound as error:
            examination.conflict = conflict(txn, error.table or "", error.message)
        except TableExists as error:
            examination.conflict = error
    if examination.conflict is not None or examination.redo_from is not None:
        return Declined(base, examination)
    return Fits(examination, names)


def with_commit_of(
    head: Head, candidate: Candidate, fits: Fits, page: PageRef | None = None
) -> Program[Head]:
    """Return the successor of ``head`` with the commit of a candidate that fits ``head``."""
    txn = candidate.txn
    commits, tables, sizes = yield from _entries(head, fits.found, candidate)
    following = successor(
        head,
        nonce=txn.context.ids.nonce(),
        now_ms=txn.context.now_ms(),
        commits=commits,
        tables=tables,
        sizes=sizes,
        names=fits.names,
        page=page,
        reserved=remaining(txn, head),
    )
    newer = max(following.format, _format_needed(txn))
    following = msgspec.structs.replace(following, format=newer)
    if txn.claims.key is not None and following.epoch is not None:
        # From then on, clients that merge or rebase the branch check its keys.
        epoch = msgspec.structs.replace(following.epoch, keyed=True)
        following = msgspec.structs.replace(following, epoch=epoch)
    if txn.work.merging is None:
        return following
    return (yield from with_merged(txn.work.merging, following))


def _format_needed(txn: TransactionState) -> int:
    """Return the least format of a HEAD with a commit: an older client can't publish it."""
    needed = [0 if txn.combined is None else FORMAT_WITH_MEMBERS]
    for done in txn.work.done:
        if isinstance(done.operation, Transplant):
            needed.append(FORMAT_WITH_REFS)
        elif isinstance(done.operation, Given):
            needed.append(FORMAT_WITH_GIVEN)
    return max(needed)


def _of_another(
    txn: TransactionState, head: Head, examination: Examination
) -> Program[ConflictError | None]:
    """Return the conflict of a transaction that has used another table than HEAD has there.

    Validation has checked this before. It is checked again here, before HEAD gets the table's id:
    with the id of another table in HEAD, the log would belong to no table, and its rows would be
    lost.
    """
    for location, tail in examination.tails.items():
        known = head.tables.get(location)
        table_id = _table_id(txn, examination, location)
        if known is None or known.table_id == table_id:
            continue
        if known.dropped and not txn.revives(location):
            continue
        # A foreign client may have replaced the table within its log: that is the same table.
        replaced = table_id == tail.snapshot.table_id and tail.tip >= 0
        if not replaced or (yield from is_another(txn.context, known, tail)):
            return conflict(txn, location, "it was dropped or replaced, and created again")
    return None


def _table_id(txn: TransactionState, examination: Examination, location: str) -> str:
    """Return the table's id as examined: a foreign client may have changed it since the read."""
    view = examination.views.get(location)
    return (txn.work.tables[location] if view is None else view).snapshot.table_id


def _has_changed(combined: Combined, head: Head) -> Program[bool]:
    """Return whether one of the members can't commit by ``head``'s successor.

    It has left, or HEAD fences its id, or HEAD has its commit (an id commits once).
    """
    if combined.has_lost_one() or any(is_fenced(head, one.txn) for one in combined.members):
        return True
    commits = yield from commits_since(head, min(one.began for one in combined.members))
    if commits is None:
        return True  # the history since then is not kept: each member finds that out by itself
    committed = {txn for one in commits for txn in (one.txn, *one.members)}
    return not committed.isdisjoint(one.txn for one in combined.members)


def is_fenced(head: Head, txn_id: str) -> bool:
    """Return whether the id is fenced in ``head``.

    ``head`` is the HEAD that is replaced, so an id that it fences can't commit.
    """
    return head.is_fenced(txn_id)


def _written_of(txn: TransactionState, reserved: Iterable[Reservation]) -> set[Reservation]:
    """Return the reservations, limited to the tables that the transaction writes."""
    written = {done.table for done in txn.work.done}
    return {Reservation(r.txn, tuple(sorted(written.intersection(r.tables)))) for r in reserved}


def _entries(
    head: Head, examination: Examination, candidate: Candidate
) -> Program[tuple[list[CommitSummary], dict[str, TableState], dict[str, Size]]]:
    """Return the new commits, table states and sizes that the candidate adds to ``head``.

    Only foreign commits of the logs that were examined are absorbed: a newer one was not validated,
    so it must get its place in HEAD's order after this commit.
    """
    txn, commit = candidate.txn, candidate.commit
    absorbed = yield from absorb(txn.context, head, examination.tails)
    sequence = head.sequence + len(absorbed.commits) + 1
    tables: dict[str, TableState] = {}
    touches: dict[str, Touch] = {}
    sizes = absorbed.sizes
    for location, placement in absorbed.placements.items():
        known = head.tables.get(location)
        part = commit.tables.get(location)
        pending = placement.overlay
        if part is not None and not part.change.is_empty:
            epoch = txn.context.epoch
            own = PendingRef(sequence, commit.txn, candidate.digest, placement.logged, epoch)
            pending = (*squashed(candidate.squashes, location, pending), own)
        if part is not None:
            layout = txn.work.tables[location].snapshot.layout
            share = SUMMARY_BYTES // len(commit.tables)
            touches[location] = msgspec.structs.replace(
                _touch(part, placement.logged, layout, share),
                refreshed=_is_refreshed(commit, location),
            )
            start = NOTHING if part.created else sizes.get(location)
            if start is not None:
                sizes[location] = start + touches[location].growth
        elif known is None:
            # The table was only read, and is new to HEAD: it enters the lake by this commit, so the
            # commit lists it.
            touches[location] = Touch(published=placement.logged, data_change=False)
        working = txn.work.tables[location]
        view = examination.views.get(location, working.view)
        unguards = working.view.snapshot.guarded and not working.snapshot.guarded
        state = TableState(
            table_id=_table_id(txn, examination, location),
            published=placement.logged,
            pending=pending,
            guarded=view.base.guarded and view.snapshot.guarded and not unguards,
            dropped=part is not None and part.dropped,
            format=working.snapshot.format,
            catalog=working.snapshot.catalog,
            view=working.snapshot.is_view,
            vacuumed_ms=None if known is None else known.vacuumed_ms,
            size=None if known is None else known.size,
            changed=0 if known is None else known.changed,
        )
        if state != known:
            tables[location] = state
    members = tuple(member.txn for member in commit.members)
    summary = CommitSummary(
        sequence, 0, "transaction", commit.txn, candidate.digest, touches, members=members
    )
    return [*absorbed.commits, summary], tables, sizes


def _is_refreshed(commit: CommitObject, location: str) -> bool:
    return any(isinstance(one, Refresh) and one.table == location for one in commit.operations)


def _touch(part: TablePart, published: int, layout: Layout, allowance: int) -> Touch:
    change = part.change
    return Touch(
        published=published,
        adds=bool(change.adds),
        removes=bool(change.removes),
        metadata=change.metadata is not None or change.protocol is not None or part.dropped,
        data_change=change.changes_data,
        summary=summarize([change], layout.statistics_schema.names, allowance),
        grown=growth_of(change),
    )


# -------------------- merging
#
# Note a merge in its branch's entry, in the replacement of HEAD that decides the merge.
#
# The entry gets the merged state of the branch as a base (``RefEntry.synced``): else the next merge
# would apply the same changes a second time.


def with_merged(merging: Merging, following: Head) -> Program[Head]:
    """Store the merged state as a base, and return ``following`` with that base in the entry."""
    made = following.replacement
    yield from store_leaves_of([merging.base.tables, merging.base.names], made)
    ref, body = seal_base(merging.base, made)
    yield from store_base(ref, body)
    entry = msgspec.structs.replace(merging.entry, synced=ref).having_reached(merging.reached)
    return with_refs(following, {merging.name: entry})


# -------------------- batch
#
# Answer the candidates of a group by a HEAD, and make its successor with the rest of them.


def form_batch(context: Context, group: CommitGroup, base: HeldHead) -> Program[Batch]:
    """Return the successor of ``base`` with all that fit; answer those in it and those unfit."""
    left = yield from answer_committed(group, group.present(MOST), base)
    batch = yield from add_candidates(context, base, left)
    group.answer(batch.answers)
    return batch


def answer_committed(
    group: CommitGroup, candidates: Iterable[Candidate], held: HeldHead
) -> Program[list[Candidate]]:
    """Answer the candidates whose commits HEAD has; return the other candidates."""
    answers: dict[Candidate, Answer] = {}
    left = []
    for candidate in candidates:
        found = yield from look_for(candidate, held)
        if found is None:
            left.append(candidate)
        else:
            answers[candidate] = found
    # The first of them to go on may publish the commits of all.
    together = frozenset(
        one.txn.id for one, answer in answers.items() if isinstance(answer, Settled)
    )
    group.answer(
        {
            one: Settled(answer.held, answer.summary, together)
            if isinstance(answer, Settled)
            else answer
            for one, answer in answers.items()
        }
    )
    return left


def look_for(candidate: Candidate, base: HeldHead) -> Program[Answer | None]:
    """Search ``base`` for the candidate's commit; return the answer, or None if it is not there."""
    if candidate.held.head.replacement >= base.head.replacement:
        return None
    try:
        # ``candidate.held`` has no commit of it, so only later commits are searched.
        found = yield from commit_after(candidate.txn, base.head, candidate.held.head.sequence)
    except Exception as error:
        return Failed(error)
    if found is not None:
        return Settled(base, found)
    candidate.held = base
    candidate.txn.note_not_in(base.head)
    return None
