"""Squash the commits on a branch to one table: replace many by one object.

A branch publishes nothing, so the number of its pending commits would grow for as long as it exists
(docs/design/0031-branches.md): HEAD lists each, and a reader lays all of them over the base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakevilla.global_log.commits import CommitObject, TablePart, commit_key, format_of, seal
from lakevilla.global_log.head import PendingRef
from lakevilla.lake.row_changes import compose
from lakevilla.store.base import ABSENT
from lakevilla.store.effects import Program, Put
from lakevilla.transaction.state.transaction import TransactionState

#: The most commits on a table that a branch keeps separate.
MOST_APART = 16


@dataclass(frozen=True, slots=True)
class Squash:
    """An object that replaces consecutive pending commits of one table."""

    replaced: tuple[PendingRef, ...]
    ref: PendingRef
    body: bytes

    @property
    def put(self) -> Put:
        """The write of the object, before HEAD names it.

        After a lost race the object is garbage until the branch ends.
        """
        return Put(commit_key(self.ref.txn, self.ref.hash, self.ref.epoch), self.body, ABSENT)

    def within(self, pending: tuple[PendingRef, ...]) -> tuple[PendingRef, ...]:
        """Return ``pending`` with the squash in place of the commits that it replaces.

        ``pending`` is unchanged if it lacks these commits.
        """
        for start in range(len(pending)):
            end = start + len(self.replaced)
            if pending[start:end] == self.replaced:
                return (*pending[:start], self.ref, *pending[end:])
        return pending


def squashes(txn: TransactionState, tables: Iterable[str]) -> Program[dict[str, Squash]]:
    """Return the squashes that a commit on a branch makes, by table; none on the lake itself."""
    epoch, head = txn.context.epoch, txn.head
    if not epoch or head is None:
        return {}
    found = {}
    for location in tables:
        state = head.tables.get(location)
        own = () if state is None else tuple(ref for ref in state.pending if ref.epoch == epoch)
        if len(own) > MOST_APART:
            found[location] = yield from _squash(txn, location, own)
    return found


def _squash(txn: TransactionState, location: str, refs: tuple[PendingRef, ...]) -> Program[Squash]:
    commits = yield from txn.context.commit_objects(refs)
    weights = [_weight(commit.tables[location]) for commit in commits]
    start = first_to_squash(weights)
    refs, commits = refs[start:], commits[start:]
    parts = [commit.tables[location] for commit in commits]
    part = TablePart(
        table_id=parts[-1].table_id,
        change=compose([part.change for part in parts]),
        created=any(part.created for part in parts),
        operation="SQUASH",
        contract=parts[-1].contract,
    )
    applications: dict[str, int] = {}
    for commit in commits:
        for name, version in commit.applications.items():
            applications[name] = max(version, applications.get(name, version))
    ids = txn.context.ids
    commit = CommitObject(
        format_of([part]), ids.nonce(), ids.txn_id(), {location: part}, applications=applications
    )
    digest, body = seal(commit)
    txn.context.keep_commit(digest, commit, len(body))
    last = refs[-1]
    ref = PendingRef(last.sequence, commit.txn, digest, last.base, last.epoch)
    return Squash(refs, ref, body)


def first_to_squash(weights: Sequence[int]) -> int:
    """Return the index of the oldest commit of a squash, by the numbers of files of all, in order.

    A squash has the newest commits, and older ones only while they are at most twice as large as
    all newer ones together. Else each squash would write all files of the branch again. So a file
    is written again only for each tripling of what was committed after it.
    """
    start = len(weights) - max(2, MOST_APART // 2)
    newer = sum(weights[start:])
    while start > 0 and weights[start - 1] <= 2 * newer:
        start -= 1
        newer += weights[start]
    return start


def _weight(part: TablePart) -> int:
    return 1 + len(part.change.adds) + len(part.change.removes)


def squashed(
    found: Mapping[str, Squash], location: str, pending: tuple[PendingRef, ...]
) -> tuple[PendingRef, ...]:
    """Return ``pending``, a table's pending commits, with its squash applied, if it has one."""
    squash = found.get(location)
    return pending if squash is None else squash.within(pending)
