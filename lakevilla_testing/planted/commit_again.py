"""Planted bugs of repeated and resumed commits, and of deleted files.

Also of the end of transactions that no client continues. See notes 19, 40 and 42.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.api.execution import turns as idle
from lakevilla.api.execution.turns import IdleEnd
from lakevilla.errors import TransactionAborted
from lakevilla.formats.iceberg.catalog import store
from lakevilla.lake import applicability
from lakevilla.lake.publishing import replay_pending
from lakevilla.maintenance import recovery
from lakevilla.store.effects import Program, delete, parallel
from lakevilla.transaction.commit import by_log_entry
from lakevilla.transaction.commit import commit as doubt
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import carry
from lakevilla.transaction.verbs.abort import delete_its_files
from lakevilla.transaction.verbs.save import forget
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted

_LOG = (Feature.NONE, Feature.R)


@planted(21, features=_LOG, kinds=("transfer", "lists"), commits_again=True, foreign=("append",))
def first_number_forgotten() -> Iterator[None]:
    """A commit that is called again takes the log entry of its first call for another client's."""
    with attribute(by_log_entry, "found_in_log", nothing):
        yield


@planted(for_histories=False)
def doubt_reported_as_undone() -> Iterator[None]:
    """The second call of a commit reports a conflict, though the first may still take effect."""
    with attribute(doubt, "doubtful", lambda txn, error: error):
        yield


@planted(first_seed=1, kinds=("revise", "transfer"), neglected="ours", transactions=3)
def composed_away_forgotten() -> Iterator[None]:
    """Clean-up keeps the files that pending commits name, and not those that their replay reads
    first.
    """

    def given_files(operation: Any) -> tuple[()]:
        return ()

    with attribute(applicability, "given_files", given_files):
        yield


@planted(kinds=("add", "revise"), neglected="others", transactions=3)
def missing_files_published() -> Iterator[None]:
    """Decided commits are published though their files were deleted long before."""
    with attribute(applicability, "is_old", lambda context, ref: False):
        yield


@planted(kinds=("add", "revise"), neglected="others", transactions=3)
def void_not_reported() -> Iterator[None]:
    """Recovery cancels a commit, and reports nothing."""

    def voids_in(*_: Any) -> Program[list[Any]]:
        yield from ()
        return []

    with attribute(recovery, "voids_in", voids_in):
        yield


@planted(kinds=("add", "revise"), neglected="others", transactions=3)
def missing_file_blocks_for_ever() -> Iterator[None]:
    """A replay whose files were deleted raises a store error each time."""

    def none_missing(keys: Any) -> Program[list[str]]:
        yield from ()
        return []

    with attribute(replay_pending, "lost_for_good", none_missing):
        yield


@planted(for_histories=False)
def withdrawn_values_dropped() -> Iterator[None]:
    """Rows with values in a column that only a cancelled commit had added are added without."""
    with attribute(replay_pending, "may_have_values", lambda *_: False):
        yield


@planted(for_histories=False)
def rights_taken_for_a_rejection() -> Iterator[None]:
    """Recovery cancels a commit that the client's rights forbid, and others might publish."""
    with attribute(store, "_is_rejection", lambda error: True):
        yield


class _NeverRaised(Exception):
    pass


@planted(
    first_seed=54,
    kinds=("add", "revise", "take"),
    neglected="ours",
    foreign=("clean", "rewrite"),
    long=True,
    transactions=3,
)
def replay_needs_its_base() -> Iterator[None]:
    """Clean-up deletes the log before a decided commit, and the replay requests the state there."""
    with attribute(replay_pending, "VersionNotFound", _NeverRaised):
        yield


@planted(kinds=("carried", "lists"), transactions=5)
def carried_past_what_came_between() -> Iterator[None]:
    """A client that resumes a transaction counts it as bound to the HEAD that the client finds."""
    original = carry.resumed

    def resumed(*given: Any, **named: Any) -> Program[Any]:
        txn = yield from original(*given, **named)
        assert txn.head is not None
        txn.bound.sequence = txn.head.sequence
        return txn

    with instead(original, resumed):
        yield


@planted(kinds=("carried", "lists"), transactions=5)
def carried_files_deleted() -> Iterator[None]:
    """The first owner of a transaction deletes its files after another client has resumed it."""
    original = carry.carried

    def carried(txn: Any) -> Program[Any]:
        stored = [*txn.work.stored, *txn.work.bodies]
        bundle = yield from original(txn)
        yield from parallel([delete(key) for key in stored])
        return bundle

    with instead(original, carried):
        yield


@planted(for_histories=False)
def ended_in_the_middle_of_a_verb() -> Iterator[None]:
    """The idle end does not wait for its turn: a verb, or the commit, continues an undone
    transaction.
    """

    def renew(self: IdleEnd) -> Program[bool]:
        executor = self._executor()
        if executor is None or idle._is_beyond(executor.state):
            return False
        state = executor.state
        if executor.client.context.clock.elapsed() - self._used_at < self.seconds:
            return True
        state.fail(TransactionAborted("undone", txn_id=state.id))
        yield from forget(state)
        yield from delete_its_files(state)
        return False

    with attribute(IdleEnd, "renew", renew):
        yield


@planted(for_histories=False)
def ended_although_it_may_have_committed() -> Iterator[None]:
    """The idle end checks the state alone: it deletes the files of a commit that got no answer."""

    def is_beyond(state: TransactionState) -> bool:
        return state.state is not Status.OPEN

    with attribute(idle, "_is_beyond", is_beyond):
        yield
