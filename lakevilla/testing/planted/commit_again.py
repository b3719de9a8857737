"""Planted bugs of who commits again, and of files that are gone: see design note 0019."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.lake import fitness
from lakevilla.maintenance import recovery
from lakevilla.publishing import reconcile
from lakevilla.store.effects import Program
from lakevilla.testing.planted.protocol import MUTATIONS, _attribute, _nothing, _planted
from lakevilla.transaction.commit import by_log_entry as entry_commit
from lakevilla.transaction.commit import commit as finish
from lakevilla.transaction.state.features import Feature

__all__ = ["MUTATIONS"]


_LOG = (Feature.NONE, Feature.R)


@_planted(features=_LOG, kinds=("transfer", "lists"), commits_again=True, foreign=("append",))
def first_number_forgotten() -> Iterator[None]:
    """A commit that is called again takes its own log entry for another client's."""
    with _attribute(entry_commit, "found_in_log", _nothing):
        yield


@_planted(for_histories=False)
def doubt_told_as_undone() -> Iterator[None]:
    """A conflict of the second commit is told, though the first may yet land."""
    with _attribute(finish, "doubtful", lambda txn, error: error):
        yield


@_planted(kinds=("revise", "transfer"), neglected="ours", transactions=3)
def composed_away_forgotten() -> Iterator[None]:
    """Clean-up keeps what pending commits name, and not what their replay begins from."""

    def given_files(operation: Any) -> tuple[()]:
        return ()

    with _attribute(fitness, "given_files", given_files):
        yield


@_planted(kinds=("add", "revise"), neglected="others", transactions=3)
def missing_files_published() -> Iterator[None]:
    """What is decided is published though its files were deleted long since."""
    with _attribute(fitness, "is_old", lambda context, ref: False):
        yield


@_planted(kinds=("add", "revise"), neglected="others", transactions=3)
def void_not_told() -> Iterator[None]:
    """Recovery makes a commit void, and says nothing."""

    def voids_in(*_: Any) -> Program[list[Any]]:
        yield from ()
        return []

    with _attribute(recovery, "voids_in", voids_in):
        yield


@_planted(kinds=("add", "revise"), neglected="others", transactions=3)
def gone_blocks_for_ever() -> Iterator[None]:
    """A replay whose files are gone ends in an error of the store, each time."""

    def gone_for_good(keys: Any) -> Program[list[str]]:
        yield from ()
        return []

    with _attribute(reconcile, "gone_for_good", gone_for_good):
        yield
