"""Candidates of one process that share a replacement of HEAD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakevilla.errors import CommitOutcomeUnknown
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Head, Reservation, find_commit
from lakevilla.global_log.inbox.proposal import Proposal, is_over
from lakevilla.global_log.repo import HeldHead, commits_since
from lakevilla.lake.context import Context
from lakevilla.lake.groups import Group, Member
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.squash import Squash
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- candidate
#
# A transaction at its commit point, as seen by the code that replaces HEAD for many.


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer that HEAD holds its commit: its own, or that of a process that has resumed it.

    ``together`` are the ids that this process has committed in the same replacement.
    """

    held: HeldHead
    summary: CommitSummary
    together: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Declined:
    """The answer that it does not fit ``held``.

    Without ``found`` it is fenced, or other transactions go first.
    """

    held: HeldHead
    found: Examination | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer that it could not go on.

    ``error`` is of any type: an error in the examination of one candidate is for its own caller
    to see, and does not concern the other candidates nor their leader.
    """

    error: Exception


Answer = Settled | Declined | Failed


@dataclass(slots=True, eq=False)
class Candidate(Member[Answer]):
    """A transaction with its stored commit object.

    ``held`` is the newest HEAD that is known not to hold a commit of it, ``let_pass``
    are the reservations for which it has waited as long as it will. ``body`` is the commit object
    as it is stored. ``squashes`` belong to the branch on which it is committed.
    """

    txn: TransactionState
    commit: CommitObject
    digest: str
    held: HeldHead
    let_pass: tuple[Reservation, ...] = ()
    body: bytes = b""
    squashes: Mapping[str, Squash] = field(default_factory=dict)
    races: int = field(default=0, init=False)


@dataclass(frozen=True, slots=True)
class Batch:
    """Candidates that share a replacement of HEAD, in their order.

    ``head`` is the HEAD that holds ``accepted``, and ``answers`` are for candidates that do not fit
    the HEAD before. Each accepted one has its commit, which may have moved to a page again behind
    those after it.
    """

    head: Head
    accepted: Mapping[Candidate, CommitSummary]
    answers: Mapping[Candidate, Answer]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement of HEAD. It may be sent any number of times and is stored once at most."""

    held: HeldHead
    new: Head
    candidates: Mapping[Candidate, CommitSummary]


def newest_of(context: Context, held: HeldHead, *others: HeldHead) -> HeldHead:
    """Return the newest HEAD among some, and the one that this process has seen last."""
    known = [context.held] if context.held is not None else []
    same = [one for one in (*known, *others) if one.head.lake_id == held.head.lake_id]
    return max((held, *same), key=lambda one: one.head.replacement)


def own_commit(txn: TransactionState, head: Head) -> Program[CommitSummary | None]:
    """Return its commit, if one of its attempts was stored (an id commits at most once).

    All commits since it began are searched: a resumed transaction may have
    been committed by the process that began it.
    """
    return (yield from commit_after(txn, head, txn.bound.began))


def commit_after(txn: TransactionState, head: Head, sequence: int) -> Program[CommitSummary | None]:
    """Return the transaction's commit among those after ``sequence``."""
    commits = yield from commits_since(head, sequence)
    if commits is None:
        raise CommitOutcomeUnknown(
            f"the lake's history since transaction {txn.id} began is not kept any more, so it is "
            "not known whether it was committed: check the tables for its rows",
            txn_id=txn.id,
        )
    return find_commit(commits, txn.id)


# -------------------- commit group
#
# The group in which the commits of one lake join in a process, and what it knows of the crowd of
# other processes.


#: The most own commits in one replacement; with more, one that fails would delay too many.
MOST = 32
#: The races lost in a row that make a crowd, and the time for which it counts as one.
_RACES = 2
_CROWDED_SECONDS = 2.0
#: For so long a process proposes nothing that relies on rows, once other clients could not decide
#: whether such a commit was touched: it waits for them in vain, and races may win.
DOUBTFUL_SECONDS = 5.0
#: The least number of commits in the last group of several processes that makes a crowd.
CROWD = 2


class CommitGroup(Group[Candidate]):
    """The commit group of a lake.

    Attributes
    ----------
    races : int
        How many races it has lost since it won one.
    proposal, key : Proposal or None, str
        What it has proposed last, as long as that may be included.
    read : dict
        Proposals of other processes that were read, by key; None for one that can't be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.races = 0
        self.proposal: Proposal | None = None
        self.key = ""
        self.read: dict[str, Proposal | None] = {}
        self._over: list[str] = []
        self._crowded_until = self._doubtful_until = float("-inf")

    def note_doubt(self, context: Context) -> None:
        """Note that no client has included a commit, because of what it relies on."""
        self._doubtful_until = context.clock.elapsed() + DOUBTFUL_SECONDS

    def has_doubts(self, context: Context) -> bool:
        """Return whether commits that rely on rows race for HEAD for now."""
        return context.clock.elapsed() < self._doubtful_until

    def note_lost(self, context: Context) -> None:
        """Note that a race for HEAD was lost."""
        self.races += 1
        if self.races >= _RACES:
            self._crowded_until = context.clock.elapsed() + _CROWDED_SECONDS

    def has_proposed(self, candidates: Iterable[Candidate]) -> bool:
        """Return whether one of them is in the last proposal."""
        proposal = self.proposal  # another thread may release it
        if proposal is None:
            return False
        digests = {one.digest for one in proposal.commits}
        return any(candidate.digest in digests for candidate in candidates)

    def is_over(self, head: Head) -> bool:
        """Return whether no client can include the last proposal any more."""
        return self.proposal is not None and is_over(self.proposal.replacement, head)

    def forget_proposal(self) -> None:
        """Forget the last proposal: this process does not need it any more."""
        with self._lock:
            if self.key:
                self._over.append(self.key)
            self.proposal, self.key = None, ""

    def proposals_to_delete(self) -> list[str]:
        """Return keys of proposals that this process does not need: the next to end deletes them.

        The last one is among them if no waiting candidate is in it: its leader was interrupted.
        """
        if not self.has_proposed(self.present()):
            self.forget_proposal()
        with self._lock:
            keys, self._over = self._over, []
        return keys

    def is_crowded(self, context: Context) -> bool:
        """Return whether so many processes replace HEAD that it pays to let one do it for all."""
        if not context.proposes():
            return False
        held = context.held
        is_shared = held is not None and held.head.crowd >= CROWD
        return is_shared or context.clock.elapsed() < self._crowded_until


def commits_of(context: Context) -> CommitGroup:
    """Return the commit group of a lake."""
    group = context.groups.named("commits", CommitGroup)
    assert isinstance(group, CommitGroup)
    return group
