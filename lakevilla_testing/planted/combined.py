"""Planted bugs of combined commits (note 68): a rule is left out, and histories show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from lakevilla.global_log import head as heads
from lakevilla.global_log.commits import CommitObject, MemberPart
from lakevilla.global_log.head import Head
from lakevilla.lake.publishing import replay_pending
from lakevilla.store.effects import Program
from lakevilla.transaction.commit import upload
from lakevilla.transaction.commit.together import combine, join
from lakevilla.transaction.state.parts import Combined
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.planted.bugs import attribute, instead, planted
from lakevilla_testing.world import engine

_HOT: dict[str, Any] = {
    "combined": True,
    "features": (Feature.R | Feature.I,),
    "kinds": ("hot", "transfer", "hot"),
    "threads": 4,
    "clients": 2,
    "commits_again": True,
    "intensity": 2.0,
}


@planted(**_HOT)
def rows_of_another_state() -> Iterator[None]:
    """A combined transaction takes the rows of the one before for those of the state (note 71)."""
    original = engine._KeptRows.change

    def change(self: Any, table: Any, *rest: Any) -> Any:
        paths = table.files["path"].to_pylist()
        unknown = [path for path in paths if path not in self._newest]
        others = [path for path in self._newest if path not in paths]
        for path, other in zip(unknown, others, strict=False):
            self._newest[path] = self._newest.pop(other)
            self._rows[path] = self._rows.pop(other)
        return original(self, table, *rest)

    with attribute(engine._KeptRows, "change", change):
        yield


@planted(first_seed=45, **_HOT)
def unsettled_performed_again() -> Iterator[None]:
    """A new leader performs an interrupted attempt's members again, and looks for no commit (K9).

    HEAD's commits are not searched for members either (K7), which would hide it mostly.
    """

    def settle(context: Any, group: Any, attempt: Any) -> Program[None]:
        yield from ()
        group.answer({}, settled=True)

    with attribute(combine, "settle", settle), _members_unseen():
        yield


@planted(for_histories=False)
def left_but_performed() -> Iterator[None]:
    """A combined transaction is sent although a member has left since it was performed (K6)."""

    def begin(group: Any, attempt: Any, number: int) -> bool:
        for one in attempt.members:
            if not one.has_left:
                one.txn.ending.tried = True
                one.txn.ending.head_tried = number
                one.txn.ending.digests |= attempt.txn.ending.digests
        group.unsettled = attempt
        return True

    original = join._has_changed

    def has_changed(combined: Any, head: Any) -> Program[bool]:
        kept = replace(combined, has_lost_one=lambda: False)
        return (yield from original(kept, head))

    with attribute(combine, "begin_attempt", begin), attribute(join, "_has_changed", has_changed):
        yield


@planted(**_HOT)
def members_not_looked_for() -> Iterator[None]:
    """A search for a transaction's commit passes over the members of combined ones (K7)."""

    def find(commits: Any, txn: str) -> Any:
        return next((c for c in commits if c.txn == txn and c.kind == "transaction"), None)

    with instead(heads.find_commit, find), _members_unseen():
        yield


def _members_unseen() -> Any:
    def has_changed(combined: Any, head: Any) -> Program[bool]:
        yield from ()
        return combined.has_lost_one() or any(head.is_fenced(one.txn) for one in combined.members)

    return attribute(join, "_has_changed", has_changed)


@planted(**_HOT)
def fence_of_a_member_unseen() -> Iterator[None]:
    """A combined transaction commits although HEAD fences one of its members (K7)."""
    original = join._has_changed

    def has_changed(combined: Any, head: Any) -> Program[bool]:
        blind = msgspec.structs.replace(head, aborted=(), floor="")
        return (yield from original(combined, blind))

    with attribute(join, "_has_changed", has_changed):
        yield


@planted(for_histories=False)
def rolled_back_in_part() -> Iterator[None]:
    """What a member did before its error stays in the combined transaction (K5)."""
    with attribute(combine, "undo_since", lambda combined, before: None):
        yield


@planted(for_histories=False)
def void_takes_all() -> Iterator[None]:
    """A replay on foreign changes cancels all members if one of them fails."""

    def whole(commit: CommitObject) -> Iterator[CommitObject]:
        yield commit

    with attribute(replay_pending, "_members_of", whole):
        yield


@planted(for_histories=False)
def count_of_the_proposal() -> Iterator[None]:
    """Members are given the counts of the first performing, not those of the last redo (K4)."""
    original = upload._members_of
    first: dict[str, list[MemberPart]] = {}

    def members_of(txn: TransactionState) -> Iterator[MemberPart]:
        yield from first.setdefault(txn.id, list(original(txn)))

    with attribute(upload, "_members_of", members_of):
        yield


@planted(for_histories=False)
def performed_after_the_window() -> Iterator[None]:
    """What another process has proposed is committed after the last HEAD that its owner allows."""
    with attribute(Combined, "is_too_late", lambda self, number: False):
        yield


@planted(for_histories=False)
def refused_while_it_lives() -> Iterator[None]:
    """An owner raises what its statement raised at home, though a leader may yet perform it."""

    def wait_until_over(txn: TransactionState) -> Program[None]:
        yield from ()
        txn.ending.proposed = None

    with attribute(combine, "wait_until_over", wait_until_over):
        yield


@planted(for_histories=False)
def performed_twice() -> Iterator[None]:
    """Two leaders have performed what a process proposed, and both commit it (K7)."""
    with _members_unseen():
        yield


@planted(for_histories=False)
def performed_on_a_redefined_table() -> Iterator[None]:
    """A leader performs operations on a table whose definition has changed since they were made."""
    original = combine._perform

    def perform(combined: Any, operations: Any, tables: Any, small: Any) -> Program[None]:
        kept = {table: msgspec.structs.replace(one, contract="") for table, one in tables.items()}
        yield from original(combined, operations, kept, small)

    with attribute(combine, "_perform", perform):
        yield


@planted(for_histories=False)
def performed_for_the_fenced() -> Iterator[None]:
    """A leader performs what a fenced transaction has proposed, and commits it (K7)."""

    def has_changed(combined: Any, head: Any) -> Program[bool]:
        yield from ()
        return False

    def is_fenced(self: Head, txn: str) -> bool:
        return False

    with attribute(join, "_has_changed", has_changed), attribute(Head, "is_fenced", is_fenced):
        yield
