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
from lakevilla.lake.lanes import Lane, Member
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.squash import Squash
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- candidate
#
# A transaction at its commit point, as those see it who replace HEAD for many.


@dataclass(frozen=True, slots=True)
class Settled:
    """HEAD holds a commit of the transaction: its own, or that of whoever has resumed it.

    ``together`` are the ids that this process has committed in the same replacement.
    """

    held: HeldHead
    summary: CommitSummary
    together: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Declined:
    """It does not fit ``held`` as it is. No ``found``: it is fenced, or others go first."""

    held: HeldHead
    found: Examination | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Nobody could go on with it.

    ``error`` is of any type: what the examination of one candidate meets is its own caller's
    to see, and no matter of the others nor of their leader.
    """

    error: Exception


Answer = Settled | Declined | Failed


@dataclass(slots=True, eq=False)
class Candidate(Member[Answer]):
    """A transaction with its stored commit object.

    ``held`` is the newest HEAD that is known not to hold a commit of it, ``let_pass``
    are the reservations that it has waited for as long as it will. ``body`` is the commit object
    as it is stored. ``squashes`` are of the branch that it is committed on.
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
class Joined:
    """The HEAD that holds ``accepted``, and what others are told, who do not fit ``base``.

    Each with its commit, which may have moved to a page again behind those after it.
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
    """The newest HEAD among some, and the one that this process has seen last."""
    known = [context.held] if context.held is not None else []
    same = [one for one in (*known, *others) if one.head.lake_id == held.head.lake_id]
    return max((held, *same), key=lambda one: one.head.replacement)


def own_commit(txn: TransactionState, head: Head) -> Program[CommitSummary | None]:
    """The transaction's commit, if one of its attempts did land (an id commits at most once).

    All commits since it began are looked at: a resumed transaction may have
    been committed by the process that began it.
    """
    return (yield from commit_after(txn, head, txn.bound.began))


def commit_after(txn: TransactionState, head: Head, sequence: int) -> Program[CommitSummary | None]:
    """The transaction's commit among those after ``sequence``."""
    commits = yield from commits_since(head, sequence)
    if commits is None:
        raise CommitOutcomeUnknown(
            f"the lake's history since transaction {txn.id} began is not kept any more: "
            "it is not known whether it was committed",
            txn_id=txn.id,
        )
    return find_commit(commits, txn.id)


# -------------------- lane
#
# Where the commits of one lake meet in a process, and what it knows of the crowd beside it.


#: Own commits in one replacement; with more, one that fails would hold up too many.
MOST = 32
#: Races lost in a row that make a crowd, and for how long it counts as one.
_RACES = 2
_CROWDED_SECONDS = 2.0
#: For how long a process proposes nothing that relies on rows, once others could not tell of such a
#: commit whether it was touched: it waits for them in vain, and races may win.
DOUBTFUL_SECONDS = 5.0
#: Commits that went together in the last group of several processes, for it to be a crowd.
CROWD = 2


class CommitLane(Lane[Candidate]):
    """The lane of a lake's commits.

    Attributes
    ----------
    races : int
        How many it has lost since it won one.
    proposal, key : Proposal or None, str
        What it has proposed last, as long as that may be taken.
    read : dict
        Others' proposals that were read, by key; None for one that can't be.
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
        """Note that nobody has taken a commit along, because of what it relies on."""
        self._doubtful_until = context.clock.elapsed() + DOUBTFUL_SECONDS

    def has_doubts(self, context: Context) -> bool:
        """Whether commits that rely on rows race for HEAD for now."""
        return context.clock.elapsed() < self._doubtful_until

    def note_lost(self, context: Context) -> None:
        """Note that a race for HEAD was lost."""
        self.races += 1
        if self.races >= _RACES:
            self._crowded_until = context.clock.elapsed() + _CROWDED_SECONDS

    def has_proposed(self, candidates: Iterable[Candidate]) -> bool:
        """Whether one of them is in the last proposal."""
        proposal = self.proposal  # another thread may let go of it
        if proposal is None:
            return False
        digests = {one.digest for one in proposal.commits}
        return any(candidate.digest in digests for candidate in candidates)

    def is_over(self, head: Head) -> bool:
        """Whether nobody can take the last proposal any more."""
        return self.proposal is not None and is_over(self.proposal.replacement, head)

    def let_go_of_proposal(self) -> None:
        """Forget the last proposal: nobody here needs it any more."""
        with self._lock:
            if self.key:
                self._over.append(self.key)
            self.proposal, self.key = None, ""

    def proposals_to_delete(self) -> list[str]:
        """Keys of proposals that nobody here needs, for whoever ends now to delete.

        With the last one, if none of those who wait is in it: its leader was interrupted.
        """
        if not self.has_proposed(self.present()):
            self.let_go_of_proposal()
        with self._lock:
            keys, self._over = self._over, []
        return keys

    def is_crowded(self, context: Context) -> bool:
        """Whether so many replace HEAD that it pays to let one do it for all."""
        if not context.proposes():
            return False
        held = context.held
        is_shared = held is not None and held.head.crowd >= CROWD
        return is_shared or context.clock.elapsed() < self._crowded_until


def commits_of(context: Context) -> CommitLane:
    """Where the commits of a lake meet."""
    lane = context.lanes.named("commits", CommitLane)
    assert isinstance(lane, CommitLane)
    return lane
