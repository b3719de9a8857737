"""Planted bugs of commits that other clients include (docs/design/0029-inbox.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from lakevilla.errors import StoreError
from lakevilla.global_log import head as heads
from lakevilla.global_log.head import CommitSummary, Head, TableState
from lakevilla.global_log.inbox import fold, reliance
from lakevilla.global_log.inbox import proposal as box
from lakevilla.global_log.inbox.proposal import Claim, Proposal
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.together import crowd, join, replacing
from lakevilla.transaction.commit.together import replacing as proposed
from lakevilla.transaction.commit.together.group import CommitGroup
from lakevilla.transaction.state.parts import Ending
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla_testing.planted.bugs import attribute, instead, planted

_ADDS = ("add", "add", "lists")
#: Kinds that read rows and rely on them.
_RELIES = ("lists", "skew", "transfer")


@planted(first_seed=1, kinds=("shared", "add"), crowded=True, transactions=5)
def taken_twice() -> Iterator[None]:
    """A client that includes a commit does not check whether HEAD holds its id already."""

    def find_commit(commits: Any, txn: str) -> None:
        return None

    with attribute(fold, "find_commit", find_commit):
        yield


@planted(first_seed=97, kinds=("add",), crowded=True, intensity=2.0, clients=5)
def proposed_and_reported_as_undone() -> Iterator[None]:
    """A client takes a store error for a refusal, though another client may include its commit."""

    def note_not_in(self: Any, head: Any) -> None:
        original(self, head)
        self.ending.proposed = None

    original = TransactionState.note_not_in
    not_stored = replacing.not_stored

    def reported(txn: Any, error: Any) -> Any:
        txn.ending.proposed = None
        return not_stored(txn, error)

    def unknown(txn: Any, why: str = "") -> Any:
        return reported(txn, StoreError(why))

    with (
        attribute(TransactionState, "note_not_in", note_not_in),
        instead(not_stored, reported),
        attribute(crowd, "unknown", unknown),
    ):
        yield


@planted(first_seed=20, kinds=("add", "lists"), crowded=True, commits_again=True, transactions=5)
def interrupted_and_deleted() -> Iterator[None]:
    """A client that is interrupted while another may include its commit deletes its files."""
    original: Any = vars(Ending)["may_delete_its_files"]

    def may_delete(self: Ending) -> bool:
        return bool(original.fget(self)) or (self.proposed is not None and not self.shared)

    with attribute(Ending, "may_delete_its_files", property(may_delete)):
        yield


@planted(first_seed=16, kinds=_ADDS, crowded=True, foreign=("append", "rewrite"), transactions=5)
def foreign_commits_skipped() -> Iterator[None]:
    """A client declares a table's log to be all the lake's, though foreign writers have written to
    it.
    """
    original = proposed.proposed_commit

    def proposed_commit(base: Any, new: Any, candidate: Any) -> Program[Any]:
        older = msgspec.structs.replace(base, sequence=new.sequence - 1)
        return (yield from original(older, new, candidate))

    with instead(original, proposed_commit):
        yield


@planted(first_seed=13, kinds=_ADDS, crowded=True, transactions=5, clients=5)
def published_set_back() -> Iterator[None]:
    """A proposal that knows less of a log than HEAD sets HEAD's published version back."""

    def moved(state: TableState, claim: Claim) -> TableState:
        waiting = tuple(ref for ref in state.pending if ref.sequence > claim.upto)
        return msgspec.structs.replace(state, published=claim.logged, pending=waiting)

    with attribute(fold, "_moved", moved):
        yield


@planted(first_seed=19, kinds=_ADDS, crowded=True, transactions=5, clients=5)
def all_taken_for_published() -> Iterator[None]:
    """Commits that wait for a log count as published up to HEAD's end, not up to the log's end."""
    original = fold._moved

    def moved(state: TableState, claim: Claim) -> TableState:
        newest = max((ref.sequence for ref in state.pending), default=0)
        return original(state, msgspec.structs.replace(claim, upto=newest))

    with attribute(fold, "_moved", moved):
        yield


@planted(for_histories=False)
def taken_too_late() -> Iterator[None]:
    """A client includes a commit after its owner may have reported that it was not committed."""

    def is_in_time(base: Any, proposal: Proposal) -> bool:
        return True

    with (
        attribute(fold, "_is_in_time", is_in_time),
        attribute(box, "_fits", lambda head, key: True),
        attribute(box, "oldest_key", lambda number: ""),
    ):
        yield


@planted(for_histories=False)
def no_while_it_lives() -> Iterator[None]:
    """The owner finds its commit unfit and reports a refusal; another client may include it."""

    def wait_until_over(txn: Any) -> Program[None]:
        yield from ()
        txn.ending.proposed = None

    with instead(crowd.wait_until_over, wait_until_over):
        yield


@planted(for_histories=False)
def crowd_not_noticed() -> Iterator[None]:
    """Each client continues to replace HEAD by itself, however many do so at the same time."""
    with attribute(CommitGroup, "is_crowded", lambda self, context: False):
        yield


# ---------------------------------------------------------------- what summaries clear


@contextmanager
def _seeing_fewer(keep: Callable[[Head, CommitSummary], bool]) -> Iterator[None]:
    """A commit's reads are checked only against the commits that ``keep`` keeps."""
    fitting, touched = fold.fitting_commit, reliance.why_touched
    bases: list[Head] = []

    def fitting_commit(base: Head, *rest: Any) -> Any:
        bases.append(base)
        try:
            return fitting(base, *rest)
        finally:
            bases.pop()

    def why_touched(since: Any, *rest: Any) -> Any:
        return touched([one for one in since if not bases or keep(bases[-1], one)], *rest)

    with (
        attribute(fold, "fitting_commit", fitting_commit),
        attribute(fold, "why_touched", why_touched),
    ):
        yield


@planted(first_seed=1, kinds=_RELIES, crowded=True, transactions=5, clients=5)
def touched_within_the_group() -> Iterator[None]:
    """A commit is included though another one in the same replacement changed what it has read."""
    with _seeing_fewer(lambda base, one: one.sequence <= base.sequence):
        yield


@planted(kinds=_RELIES, crowded=True, transactions=5, clients=5)
def cleared_since_a_later_state() -> Iterator[None]:
    """Of the commits since its owner's check, only those in the same replacement are checked."""
    with _seeing_fewer(lambda base, one: one.sequence > base.sequence):
        yield


@planted(
    first_seed=98, kinds=("lists", "merge"), crowded=True, short=True, transactions=5, clients=5
)
def cleared_though_the_list_is_cut_off() -> Iterator[None]:
    """Commits that have moved to a page count as absent."""

    def commits_after(head: Head, sequence: int) -> Any:
        found = after(head, sequence)
        return head.commits if found is None else found

    after = heads.commits_after
    with attribute(fold, "commits_after", commits_after):
        yield


@planted(for_histories=False)
def cleared_without_a_summary() -> Iterator[None]:
    """A commit without a summary in HEAD counts as one that touches nothing."""

    def why_touched(since: Any, table: str, *rest: Any) -> Any:
        known = [one for one in since if table in one.tables and one.tables[table].summary]
        return touched(known, table, *rest)

    touched = reliance.why_touched
    with attribute(fold, "why_touched", why_touched):
        yield


@planted(176, kinds=("skew", "lists"), crowded=True, transactions=5, clients=5)
def reads_left_out() -> Iterator[None]:
    """The changes of a commit are checked, and not the earlier reads of its caller."""

    def relied(commit: Any) -> Any:
        return original(msgspec.structs.replace(commit, reads=()))

    original = reliance.relied
    with instead(original, relied):
        yield


@planted(
    first_seed=70, kinds=("take", "merge", "transfer"), crowded=True, transactions=5, clients=5
)
def files_that_went_unseen() -> Iterator[None]:
    """A check considers only files added since, and not files removed since."""

    def reliance_of(table_id: str, layout: Any, asked: Any, files: Any) -> Any:
        return original(table_id, layout, asked, frozenset())

    original = reliance.reliance_of
    with instead(original, reliance_of):
        yield


@planted(for_histories=False)
def proposed_from_older_files() -> Iterator[None]:
    """A check assumes that rows that were moved meanwhile are in the files where they were read."""

    def check_candidate(*arguments: Any) -> Program[Any]:
        found = yield from original(*arguments)
        if isinstance(found, join.Fits):
            found.found.views.clear()
        return found

    original = join.check_candidate
    with attribute(crowd, "check_candidate", check_candidate):
        yield
