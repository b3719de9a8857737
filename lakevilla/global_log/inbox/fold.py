"""Inclusion of proposals: a client adds other processes' commits to the HEAD it is about to store.

As always, the replacement of HEAD decides. A proposed commit is included if HEAD and the proposal
show, without a read of any table's log, that it fits after the commits before it. A commit that
does not fit is left in the inbox, and never refused: its owner, or another client that replaces
HEAD, may know more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.formats.sizes import growth_of
from lakevilla.global_log.commits import CommitObject, TablePart
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    PendingRef,
    TableState,
    commits_after,
    find_commit,
    successor,
)
from lakevilla.global_log.inbox.proposal import (
    Claim,
    Intent,
    Proposal,
    ProposedCommit,
    is_over,
)
from lakevilla.global_log.inbox.reliance import (
    Predicates,
    Reliance,
    relied,
    states_all,
    why_touched,
)
from lakevilla.global_log.repo import load_tables, make_room
from lakevilla.ids import Ids, started_at
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import (
    Given,
    Rename,
    Transplant,
    is_direct,
    is_for_others,
    tables_read,
)

#: The most commits in one replacement of HEAD, including the leader's own.
MOST_TOGETHER = 64
#: The most pending commits of one table; fewer if each is published as an entry of its own.
MOST_PENDING, MOST_PENDING_ALONE = 128, 4


@dataclass(frozen=True, slots=True)
class Taken:
    """A HEAD with proposed commits included, and their commit objects by digest."""

    head: Head
    commits: Mapping[str, CommitObject]


def take_along(
    base: Head,
    head: Head,
    proposals: Iterable[Proposal],
    ids: Ids,
    now_ms: int,
    trusted_seconds: float,
) -> Program[Taken]:
    """Return ``head`` with as many of the proposed commits as fit after its own commits.

    ``base`` is the HEAD that is to be replaced; ``head`` is ``base`` with the leader's own commits.
    A commit whose transaction began more than ``trusted_seconds`` ago is left to its owner, which
    checks that its files still exist (hazard 6).
    """
    room = MOST_TOGETHER - (head.sequence - base.sequence)
    in_time = _in_time(base, proposals)
    now = now_ms / 1000
    young = [
        (one, commit)
        for one, commit in in_time
        if abs(now - started_at(commit.txn)) < trusted_seconds  # abs: clocks may differ
    ]
    fitting = young[: 2 * MOST_TOGETHER]
    named = {table for _, commit in fitting for table in (*commit.tables, *commit.relies)}
    yield from load_tables(head, named)
    commits: dict[str, CommitObject] = {}
    for proposal, proposed in fitting:
        if len(commits) >= room:
            break
        commit = fitting_commit(base, head, proposal, proposed)
        if isinstance(commit, str):
            continue
        commits[proposed.digest] = commit
        page = yield from make_room(head, ids, is_stored=False)
        summary, tables = _added(head, proposed, commit)
        head = successor(
            head, nonce=ids.nonce(), now_ms=now_ms, commits=[summary], tables=tables, page=page
        )
    return Taken(msgspec.structs.replace(head, replacement=base.replacement + 1), commits)


def _in_time(
    base: Head, proposals: Iterable[Proposal]
) -> Iterator[tuple[Proposal, ProposedCommit]]:
    """Return the commits of the proposals that may be included at HEAD's present number."""
    for proposal in proposals:
        if _is_in_time(base, proposal):
            for proposed in proposal.commits:
                yield proposal, proposed


def _is_in_time(base: Head, proposal: Proposal) -> bool:
    """Return whether the proposal may be included in the HEAD that replaces ``base``.

    After the last such HEAD its owner relies on it that no client includes the proposal.
    """
    is_known = proposal.replacement <= base.replacement
    return is_known and not is_over(proposal.replacement, base)


def fitting_commit(
    base: Head, head: Head, proposal: Proposal, proposed: ProposedCommit
) -> CommitObject | str:
    """Return the commit object of a commit that may be included after ``head``, or the obstacle.

    The leaves of its tables must be cached.
    """
    txn = proposed.txn
    if proposal.lake_id != base.lake_id:
        return "it is another lake's"
    if not _is_in_time(base, proposal):
        return "HEAD has moved too far"
    if head.is_fenced(txn):
        return "it was aborted"
    since = commits_after(head, proposal.sequence)
    if since is None:
        return "the commits since then have moved to a page"
    if find_commit(since, txn) is not None:
        return "it is committed"
    try:
        commit = proposed.commit_object()
    except (CorruptObject, UnsupportedFormat) as error:
        return error.message
    if any(isinstance(operation, Transplant) for operation in commit.operations):
        return "it brings back files, and only its owner checks whether they are kept"
    if any(isinstance(operation, Rename) for operation in commit.operations):
        return "it renames a table, and only its owner changes names in HEAD"
    if any(isinstance(operation, Given) for operation in commit.operations):
        return "it fits one version alone, and only its owner checks whether that is the newest"
    if head.is_protected and any(map(is_direct, commit.operations)):
        return "the lake is protected, and it writes directly"
    if not commit.tables or commit.tables.keys() != proposed.tables.keys():
        return "it does not claim the tables that it writes"
    for table, claim in proposed.tables.items():
        reason = _why_unfit(head, since, table, claim, commit.tables[table], txn)
        if reason is not None:
            return f"{table}: {reason}"
    return _why_doubtful(head, since, proposed, commit) or commit


def is_doubtful(head: Head, proposal: Proposal) -> Program[bool]:
    """Return whether a commit since the proposal's HEAD may have changed what it relies on."""
    since = commits_after(head, proposal.sequence) or ()
    some = [one for one in proposal.commits if one.relies]
    yield from load_tables(head, {table for one in some for table in one.relies})
    return any(_why_doubtful(head, since, one, one.commit_object()) for one in some)


def _why_doubtful(
    head: Head, since: Iterable[CommitSummary], proposed: ProposedCommit, commit: CommitObject
) -> str | None:
    for table, predicates in relied(commit).items():
        reason = _why_touched(head, since, table, predicates, proposed.relies.get(table))
        if reason is not None:
            return f"{table}: {reason}"
    return None


def _why_touched(
    head: Head,
    since: Iterable[CommitSummary],
    table: str,
    predicates: Predicates,
    reliance: Reliance | None,
) -> str | None:
    """Return why the data of one table that the commit relies on may have changed, or None."""
    if reliance is None:
        return "it does not state what it relies on"
    state = head.tables.get(table)
    if state is None or state.dropped or state.catalog or state.table_id != reliance.table_id:
        return "it is not the table that was read"
    try:
        return why_touched(since, table, predicates, reliance)
    except Exception as error:
        # Content that this version of the library can't interpret is left to the owner.
        return f"it is not known whether what it relies on was changed ({error})"


def _why_unfit(
    head: Head,
    since: Iterable[CommitSummary],
    table: str,
    claim: Claim,
    part: TablePart,
    txn: str,
) -> str | None:
    """Return why a commit can't be added to one table as HEAD shows it; None if it can."""
    state = head.tables.get(table)
    if state is None or state.dropped or state.guarded or state.catalog:
        return "it is no table to which other transactions' commits may be added"
    is_same = state.table_id == claim.table_id == part.table_id and state.format == claim.format
    if not is_same:
        return "it is another table by now"
    if any(table in one.tables and one.txn != txn for one in head.reserved):
        return "another transaction has reserved it"
    if not _only_changes_rows(part):
        return "more than rows is changed"
    if not states_all(claim.touch, part.change):
        return "it does more than HEAD would record"
    most = MOST_PENDING_ALONE if claim.alone else MOST_PENDING
    if len(_moved(state, claim).pending) >= most:
        return "too many commits wait for its log"
    for commit in since:
        touch = commit.tables.get(table)
        if touch is None:
            continue
        if commit.kind not in ("transaction", "foreign") or touch.metadata:
            return f"commit {commit.sequence} changed more than its rows"
    return None


def _only_changes_rows(part: TablePart) -> bool:
    """Return whether a commit only adds or deletes rows of the table's existing columns."""
    change = part.change
    has_metadata = change.metadata is not None or change.protocol is not None or change.domains
    is_made_or_dropped = part.created or part.dropped
    return bool(change.adds or change.removes) and not (has_metadata or is_made_or_dropped)


def fitting_intents(
    head: Head, proposals: Iterable[Proposal], written: Collection[str], known: Collection[str]
) -> Program[list[tuple[Proposal, Intent]]]:
    """Return the intents that may become members of a commit that replaces ``head``.

    ``written`` are the tables that the leader's own members write, ``known`` the ids of
    transactions that it does not perform for others. What an intent needs beside HEAD is found when
    its operations are performed.
    """
    yield from load_tables(head, written)
    seen, found = set(known), []
    for proposal in proposals:
        for intent in proposal.intents:
            if intent.txn in seen or why_unintended(head, proposal, intent, written):
                continue
            seen.add(intent.txn)
            found.append((proposal, intent))
    return found


def why_unintended(
    head: Head, proposal: Proposal, intent: Intent, written: Collection[str]
) -> str | None:
    """Return why an intent can't be performed in a commit that replaces ``head``; None if it can.

    The leaves of the tables that are ``written`` must be cached.
    """
    if proposal.lake_id != head.lake_id:
        return "it is another lake's"
    if not _is_in_time(head, proposal) or proposal.sequence > head.sequence:
        return "HEAD has moved too far"
    if head.is_fenced(intent.txn):
        return "it was aborted"
    since = commits_after(head, proposal.sequence)
    if since is None:
        return "the commits since then have moved to a page"
    if find_commit(since, intent.txn) is not None:
        return "it is committed"
    if not intent.operations or not all(map(is_for_others, intent.operations)):
        return "it does more than to change rows"
    named = {table for one in intent.operations for table in (one.table, *tables_read(one))}
    if named != intent.tables.keys() or not named.issubset(written):
        return "it names tables that the leader does not write"
    for table, intended in intent.tables.items():
        state = head.tables.get(table)
        if state is None or state.dropped or state.catalog:
            return f"{table}: it is no table that others may change"
        if state.table_id != intended.table_id:
            return f"{table}: it is another table by now"
        if any(table in one.tables for one in head.reserved):
            return f"{table}: a transaction has reserved it"
    return None


def _moved(state: TableState, claim: Claim) -> TableState:
    """Return the table's state, with ``published`` raised to the log version in the claim.

    Safe without a read of the log: up to ``logged``, all entries in the log are of commits that are
    in HEAD.
    """
    if claim.logged <= state.published:
        return state
    waiting = tuple(ref for ref in state.pending if ref.sequence > claim.upto)
    return msgspec.structs.replace(state, published=claim.logged, pending=waiting)


def _added(
    head: Head, proposed: ProposedCommit, commit: CommitObject
) -> tuple[CommitSummary, dict[str, TableState]]:
    """Return the entry of the commit in HEAD's list, and its tables with the commit pending."""
    sequence = head.sequence + 1
    tables: dict[str, TableState] = {}
    touches = {}
    for table, claim in proposed.tables.items():
        state = _moved(head.tables[table], claim)
        ref = PendingRef(sequence, proposed.txn, proposed.digest, state.published)
        tables[table] = msgspec.structs.replace(state, pending=(*state.pending, ref))
        # The table's growth is computed from the commit object, not taken from the claim.
        touches[table] = msgspec.structs.replace(
            claim.touch,
            published=state.published,
            grown=growth_of(commit.tables[table].change),
        )
    summary = CommitSummary(sequence, 0, "transaction", proposed.txn, proposed.digest, touches)
    return summary, tables
