"""The lake's commits as rows, one for each table of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, shown_names
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.lake.past import recorded_objects
from lakevilla.sql.catalog import CatalogRead
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState

Row = dict[str, Any]
#: What a commit object alone tells.
_IN_OBJECTS = frozenset({"merged", "metadata"})


def commit_rows(txn: TransactionState, read: CatalogRead) -> Program[Iterator[Row]]:
    """The commits up to the state that is read, oldest first; pages as far back as is asked for."""
    now = txn.context.held.head if txn.bound.is_past and txn.context.held is not None else txn.head
    if now is None or txn.head is None:
        return iter(())
    last = txn.head.sequence
    first = max(_first(read), now.history_start + 1)
    if first > last:
        return iter(())
    timeline = Timeline.of(now)
    if first <= now.history_start + 1:
        newest = yield from timeline.newest(None, last)
        commits: Sequence[CommitSummary] = newest[::-1]
    else:
        commits = [one for one in (yield from timeline.after(first - 1)) if one.sequence <= last]
    yield from load_names(now)
    yield from load_tables(now, {place for commit in commits for place in commit.tables})
    names = shown_names(now)
    objects: dict[int, CommitObject | None] = {}
    if read.columns is None or not _IN_OBJECTS.isdisjoint(read.columns):
        objects = yield from recorded_objects(txn.context, commits)
    return (
        row
        for commit in commits
        for row in _rows(commit, objects.get(commit.sequence), names)
        if read.admits(row)
    )


def _first(read: CatalogRead) -> int:
    """The first version that the terms admit."""
    first = 0
    for term in read.terms:
        if term.column == "version" and term.operator in ("=", "in", ">", ">="):
            numbers = [value for value in term.values if isinstance(value, int | float)]
            # Text may be a number too, and what is no finite one is for the query.
            if len(numbers) == len(term.values) and all(map(math.isfinite, numbers)):
                first = max(first, int(min(numbers)))
    return first


def _rows(
    commit: CommitSummary, stored: CommitObject | None, names: dict[str, str]
) -> Iterator[Row]:
    about: Row = {
        "version": commit.sequence,
        "timestamp": commit.timestamp_ms * 1000,
        "txn_id": commit.txn or None,
        "kind": commit.kind,
        "merged": stored.merged or None if stored is not None else None,
        "metadata": {} if stored is None else dict(stored.metadata),
    }
    for place, touch in commit.tables.items():
        yield {
            **about,
            "table": names.get(place, place),
            "adds": touch.adds,
            "removes": touch.removes,
            "metadata_changed": touch.metadata,
        }
    if not commit.tables:
        yield about
