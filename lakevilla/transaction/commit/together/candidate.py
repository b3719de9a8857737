"""A transaction at its commit point, as those see it who replace HEAD for many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakevilla.errors import CommitOutcomeUnknown
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import (
    CommitSummary,
    Head,
    Reservation,
    find_commit,
)
from lakevilla.global_log.repo import (
    HeldHead,
    commits_since,
)
from lakevilla.lake.context import Context
from lakevilla.lake.lanes import Member
from lakevilla.store.effects import Program
from lakevilla.transaction.commit.squash import Squash
from lakevilla.transaction.redo.rebase import Examination
from lakevilla.transaction.state.transaction import TransactionState


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
