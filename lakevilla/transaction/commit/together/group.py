"""Candidates, and the commit group in which those of one process share a replacement of HEAD.

Rows and measurements stay in the process from one combined transaction to the next (note 71).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakevilla.engines.base import KeptRows
from lakevilla.errors import CommitOutcomeUnknown
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Head, Reservation, find_commit
from lakevilla.global_log.inbox.proposal import Proposal, is_over
from lakevilla.global_log.repo import HeldHead, commits_until
from lakevilla.lake.context import Context
from lakevilla.lake.groups import Group, Member
from lakevilla.store.effects import Gate, Program
from lakevilla.store.readback import SECONDS_BETWEEN_WRITES
from lakevilla.transaction.commit.squash import Squash
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.files import MOST_KEPT_BYTES
from lakevilla.transaction.state.transaction import TransactionState

# -------------------- candidate
#
# A candidate: a transaction at its commit point, which may share a replacement of HEAD.


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer that HEAD has a candidate's commit, made here or by a process that resumed it.

    ``together`` are the ids that this process has committed in the same replacement of HEAD.
    """

    held: HeldHead
    summary: CommitSummary
    together: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Declined:
    """The answer that a candidate can't be committed on top of ``held``.

    ``found`` has the conflicts; without it, the id is fenced, or other transactions go first.
    """

    held: HeldHead
    found: Examination | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer that an error has ended the commit of a candidate.

    ``error`` is of any type: an error in the examination of one candidate is raised to the
    candidate's own caller, and not to the other candidates or their leader.
    """

    error: Exception


class MembersChanged(Exception):
    """One of the members of a combined transaction can't commit with it: it must be made again."""


Answer = Settled | Declined | Failed


@dataclass(slots=True, eq=False)
class Candidate(Member[Answer]):
    """A transaction at its commit point, whose commit object is stored.

    ``held`` is the newest HEAD that is known to have no commit of the transaction. ``let_pass`` has
    the reservations for which it does not wait any longer. ``body`` is the commit object as it is
    stored. ``squashes`` are the squashes of a commit on a branch.
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

    ``head`` is the new HEAD, with the commits of ``accepted``; ``answers`` has the answers to
    candidates that do not fit the HEAD before. ``accepted`` also has the summary of each commit,
    because later commits may have moved it from the new HEAD to a page.
    """

    head: Head
    accepted: Mapping[Candidate, CommitSummary]
    answers: Mapping[Candidate, Answer]


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement of HEAD. It may be sent many times, and is stored at most once."""

    held: HeldHead
    new: Head
    candidates: Mapping[Candidate, CommitSummary]


def newest_of(context: Context, held: HeldHead, *others: HeldHead) -> HeldHead:
    """Return the newest of some HEADs and the HEAD that this process has read last."""
    known = [context.held] if context.held is not None else []
    same = [one for one in (*known, *others) if one.head.lake_id == held.head.lake_id]
    return max((held, *same), key=lambda one: one.head.replacement)


def own_commit(txn: TransactionState, head: Head) -> Program[CommitSummary | None]:
    """Return the transaction's commit in ``head``, if an attempt was stored (an id commits once).

    All commits since the transaction began are searched: the process that began a resumed
    transaction may have committed it.
    """
    return (yield from commit_after(txn, head, txn.bound.began))


def commit_after(txn: TransactionState, head: Head, sequence: int) -> Program[CommitSummary | None]:
    """Return the transaction's commit among those after ``sequence``."""
    commits = yield from commits_until(head, sequence, txn.id)
    if commits is None:
        raise CommitOutcomeUnknown(
            f"the lake's history since transaction {txn.id} began is not kept any more, so it is "
            "not known whether it was committed: check the tables for its rows",
            txn_id=txn.id,
        )
    return find_commit(commits, txn.id)


# -------------------- commit group
#
# The commit group of a lake in this process, and what it knows of a crowd: many processes that
# replace HEAD at the same time.


#: The most commits of this process in one replacement: if it fails, all of them are delayed.
MOST = 32
#: So many lost races in a row show a crowd, and for so long the lake counts as crowded.
_RACES = 2
_CROWDED_SECONDS = 2.0
#: For so long a process proposes no commit that relies on rows, after other clients have not
#: included such a commit because they could not decide whether its rows had changed: it would wait
#: in vain, while it may win a race for HEAD.
DOUBTFUL_SECONDS = 5.0
#: For so long after the store has turned away a replacement of HEAD, since it takes few writes of
#: one object, a process keeps its replacements apart. Each such time costs one vain request.
_LIMITED_SECONDS = 60.0
#: So many commits, or more, that several processes had in one replacement show a crowd.
CROWD = 2


class CommitGroup(Group[Candidate]):
    """The commit group of a lake.

    Attributes
    ----------
    races : int
        How many races for HEAD this process has lost since it won one.
    proposal, key : Proposal or None, str
        Its last proposal, and the key of that in the inbox, as long as a client may include it.
    read : dict
        Proposals of other processes that were read, by key; None for an unreadable one.
    stored : HeldHead or None
        The HEAD that this process has stored last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.races = 0
        self.proposal: Proposal | None = None
        self.key = ""
        self.read: dict[str, Proposal | None] = {}
        self.stored: HeldHead | None = None
        self._over: list[tuple[str, float]] = []
        self._crowded_until = self._doubtful_until = self._limited_until = float("-inf")

    def note_doubt(self, context: Context) -> None:
        """Note that no client has included a commit, because of the rows on which it relies."""
        self._doubtful_until = context.clock.elapsed() + DOUBTFUL_SECONDS

    def has_doubts(self, context: Context) -> bool:
        """Return whether commits that rely on rows should race for HEAD now, not be proposed."""
        return context.clock.elapsed() < self._doubtful_until

    def note_limit(self, context: Context) -> None:
        """Note that the store takes few writes of one object: of HEAD, too (note 76)."""
        self._limited_until = context.clock.elapsed() + _LIMITED_SECONDS

    def is_limited(self, context: Context) -> bool:
        """Return whether the store has turned away a replacement of HEAD of late."""
        return context.clock.elapsed() < self._limited_until

    def seconds_to_wait(self, context: Context) -> float:
        """Return for how long the store will not take a replacement of the known HEAD yet."""
        now = context.clock.elapsed()
        if not self.is_limited(context):
            return 0.0
        return max(0.0, context.asked.changed_at + SECONDS_BETWEEN_WRITES - now)

    def note_lost(self, context: Context) -> None:
        """Note that a race for HEAD was lost.

        One shows a crowd where the next race is a second away.
        """
        self.races += 1
        now = context.clock.elapsed()
        if self.is_limited(context) or self.races >= _RACES:
            self._crowded_until = now + _CROWDED_SECONDS

    def newest_if_stored(self, context: Context) -> HeldHead | None:
        """Return the newest HEAD that is known, if this process has stored it: it wins its races.

        None if another process has replaced HEAD since, as far as this one knows.
        """
        stored, newest = self.stored, context.held
        if stored is None or newest is None or self.races:
            return None
        is_same = stored.head.lake_id == newest.head.lake_id
        is_newest = stored.head.replacement == newest.head.replacement
        return newest if is_same and is_newest else None

    def has_proposed(self, candidates: Iterable[Candidate]) -> bool:
        """Return whether the last proposal has a commit of one of the candidates."""
        proposal = self.proposal  # another thread may reset it
        if proposal is None:
            return False
        digests = {one.digest for one in proposal.commits}
        return any(candidate.digest in digests for candidate in candidates)

    def is_over(self, head: Head) -> bool:
        """Return whether no client can include the last proposal any more."""
        return self.proposal is not None and is_over(self.proposal.replacement, head)

    def forget_proposal(self, context: Context) -> None:
        """Forget the last proposal: this process does not need it any more."""
        with self._lock:
            if self.key:
                self._over.append((self.key, context.clock.elapsed()))
            self.proposal, self.key = None, ""

    def drop(self, context: Context, key: str) -> None:
        """Note a proposal of operations that this process does not need any more."""
        with self._lock:
            self._over.append((key, context.clock.elapsed()))

    def has_stored(self, key: str) -> bool:
        """Return whether a proposal in the inbox is this process's own."""
        return key == self.key or any(key == own for own, _ in list(self._over))

    def proposals_to_delete(self, context: Context) -> list[str]:
        """Return keys of proposals that this process does not need any more, for deletion.

        They include the last proposal if it has no waiting candidate: then its leader was
        interrupted. A store with a limit would turn away the deletion of a new object, and the
        transaction would wait for it: there they are left to a later one.
        """
        if not self.has_proposed(self.present()):
            self.forget_proposal(context)
        now = context.clock.elapsed()
        latest = now - SECONDS_BETWEEN_WRITES if self.is_limited(context) else now
        with self._lock:
            keys = [key for key, since in self._over if since <= latest]
            self._over = [one for one in self._over if one[1] > latest]
        return keys

    def is_crowded(self, context: Context) -> bool:
        """Return whether so many processes replace HEAD that one should do it for all."""
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


# -------------------- rows
#
# The next combined transaction mostly changes the rows that the last one has written. The engine
# has them in memory, by the names of the files that hold them, and files never change under their
# names. So it needs neither to read nor to decode them, if HEAD still has these files.


#: The rows of so many tables are kept, first of those that the last transaction has changed.
_MOST_TABLES = 16


class RowsBetween:
    """The rows that no transaction has at the moment; each transaction has them for itself alone.

    Only leaders lend them and take them back; any thread may drop them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, KeptRows] = {}

    def lend(self, txn: TransactionState) -> None:
        """Let a new transaction change the rows, and keep those of the tables that it changes."""
        txn.work.kept, self._kept = self._kept, {}
        txn.work.keeps_first = True

    def take_back(self, txn: TransactionState) -> None:
        """Keep the rows of a transaction that is decided: its files are stored.

        If it is not known whether it is, or if it is refused, the rows are loaded again.
        """
        work = txn.work
        lent, work.kept = work.kept, {}
        work.promised.clear()
        kept: dict[str, KeptRows] = {}
        left = MOST_KEPT_BYTES
        for table in sorted(lent, key=lambda table: table in txn.written, reverse=True):
            rows = lent[table]
            if len(kept) < _MOST_TABLES and rows.size_bytes <= left and _renewed(rows):
                kept[table] = rows
                left -= rows.size_bytes
        self._kept = kept

    def drop(self) -> None:
        self._kept = {}


def _renewed(rows: KeptRows) -> bool:
    try:
        return rows.renew()
    except Exception:  # the transaction is decided all the same, and rows can be loaded again
        return False


# -------------------- pace
#
# The moment for which a leader waits for the members that the last group has released.
#
# Threads that commit one after the other come back some time after their commit was decided: once
# it is published, and they have begun anew. If a leader does not wait for them, they fall into two
# groups, of which each waits until the other is stored. If it waits, all of them are one group.


#: How much a new measurement counts, beside those before it.
_WEIGHT = 0.25
#: A leader waits for so many times as long as members took to come back.
_MARGIN = 1.25


class Pace:
    """Measurements of a group of members, in seconds of the process's clock.

    A group is *decided* when its replacement of HEAD is stored. Its members are *back* when as many
    have arrived since.
    """

    def __init__(self) -> None:
        self._released = 0
        self._decided_at = self._began_at = float("-inf")
        self._arrived: list[float] = []
        self._round: float | None = None
        self._back: float | None = None
        self._gate = Gate()

    def note_arrival(self, now: float) -> None:
        self._arrived.append(now)
        if len(self._arrived) >= self._released:
            self._gate.open()

    def note_beginning(self, now: float) -> None:
        """Note that a leader performs those that are present."""
        self._began_at = now

    def note_decision(self, now: float, members: int) -> None:
        """Note that a group of so many members is decided."""
        self._round = _moved(self._round, now - self._began_at)
        if self._released > 1:
            came = self._arrived[self._released - 1 :]
            # Those who have not come back take longer than this.
            back = (came[0] if came else now) - self._decided_at
            self._back = _moved(self._back, back)
        self._released, self._decided_at = members, now
        self._arrived, self._gate = [], Gate()

    def to_wait(self, now: float, present: int) -> tuple[Gate, float] | None:
        """Return the gate at which a leader of ``present`` members waits, and the longest time.

        None if that would cost those present more than it saves those that are missing. Who comes
        too late waits for a whole round. Two clients never wait for each other: one may think for
        long.
        """
        missing = self._released - len(self._arrived)
        if self._released < 2 or missing <= 0 or self._back is None or self._round is None:
            return None
        seconds = self._decided_at + _MARGIN * self._back - now
        if seconds <= 0 or seconds * present > (self._round - seconds) * missing:
            return None
        return self._gate, seconds


def _moved(known: float | None, measured: float) -> float:
    return measured if known is None else known + _WEIGHT * (measured - known)
