"""Planted bugs of who commits again, and of files that are gone: see design note 0019."""

from __future__ import annotations

from collections.abc import Iterator

from lakevilla.testing.mutations import MUTATIONS, _attribute, _nothing, _planted
from lakevilla.transaction import entry_commit, finish

__all__ = ["MUTATIONS"]


@_planted(for_histories=False)
def first_number_forgotten() -> Iterator[None]:
    """A commit that is called again takes its own log entry for another client's."""
    with _attribute(entry_commit, "found_in_log", _nothing):
        yield


@_planted(for_histories=False)
def doubt_told_as_undone() -> Iterator[None]:
    """A conflict of the second commit is told, though the first may yet land."""
    with _attribute(finish, "doubtful", lambda txn, error: error):
        yield
