"""Conditions that must hold of a store after any history, whatever its course.

Each check is a function of the store's state, and of the clients' outcomes if it says so; it raises
``Violated`` with the error. The checks hold once no request is under way any more and a client has
recovered the lake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.repo import commits_since, load_head, load_tables
from lakevilla.markers.marker import MARKERS_DIR, markers_prefix
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import TXNS_PREFIX, record_key
from lakevilla_testing.tables.bare import BareTable, UnreadableTable
from lakevilla_testing.tables.reader import named_objects, read_table, run_now, table_rows
from lakevilla_testing.world.store import SimulatedStore

#: Data files, files of vectors, and an Iceberg table's manifests and manifest lists.
_OWN_FILE = re.compile(r"(?:.*/)?(?:snap-\d+-)?lv-h-[^/]+(?:/deletion_vector_[^/]+)?")


class Violated(AssertionError):
    """An invariant does not hold."""


def every_table_is_readable(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that a reader of the bare format finds a dense log and every file it names."""
    for table in tables:
        _logged(store, table)
        try:
            table_rows(store, table)
        except UnreadableTable as error:
            raise Violated(str(error)) from error


def no_id_commits_twice(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that an id occurs once among HEAD's commits, and once in each table's log."""
    own = [commit for commit in _commits(store) if commit.kind == "transaction"]
    in_head = [txn for commit in own for txn in (commit.txn, *commit.members)]
    _refuse_repeats("HEAD", in_head)
    for table in tables:
        _refuse_repeats(table, _logged(store, table).transactions)


def tables_follow_head(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that each table's log holds the lake's commits in HEAD's order."""
    places = {commit.txn: commit.sequence for commit in _commits(store)}
    for table in tables:
        placed = [places[txn] for txn in _logged(store, table).transactions if txn in places]
        if placed != sorted(placed):
            raise Violated(f"{table}: its log has HEAD's commits in the order {placed}")


def all_or_nothing(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that a commit of HEAD is in all its tables' logs, or that HEAD names a replacement.

    A table whose log was cleaned up shows this by its ``txn`` action alone. A table that was
    dropped, or made again by another client, is not checked.
    """
    head = _head(store)
    if head is None:
        return
    commits = _commits(store)
    replaced = {sequence for commit in commits for sequence in commit.replaces}
    for table in tables:
        state = head.tables.get(table)
        logged = _logged(store, table)
        if state is None or state.dropped or state.table_id != logged.table_id:
            continue
        if state.pending and not _published(head, logged, state.pending[-1].sequence):
            raise Violated(f"{table}: {len(state.pending)} commits are decided and not published")
        ids = set(logged.transactions)
        whole = logged.is_whole
        # Changes of a table that has left the lake are not in the log of the one that was made in
        # its place.
        left = max(
            (c.sequence for c in commits if table in c.tables and c.tables[table].left), default=0
        )
        for commit in commits:
            touch = commit.tables.get(table)
            if commit.kind != "transaction" or touch is None or commit.sequence in replaced:
                continue
            if commit.sequence < left or (commit.sequence == left and touch.entered is None):
                continue
            if not (touch.adds or touch.removes or touch.metadata):
                # the transaction only read the table, or its operation found nothing to do
                continue
            if not _published(head, logged, commit.sequence) or (whole and commit.txn not in ids):
                raise Violated(
                    f"{table}: {commit.txn} (sequence {commit.sequence}) is in HEAD "
                    "and not in the table's log"
                )


def no_orphan_files(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that after gc some log names each file of transactions that may commit through HEAD."""
    for table in tables:
        named = run_now(store, named_objects(_logged(store, table)))
        for key in store.objects:
            path = key.removeprefix(f"{table}/")
            if key != path and _OWN_FILE.fullmatch(path) and path not in named:
                raise Violated(f"{key} belongs to no commit and was not collected")


def every_marker_ends(store: SimulatedStore, tables: Collection[str]) -> None:
    """Check that no marker is left in a queue: each ended, was aborted, or was given up."""
    prefixes = tuple(f"{markers_prefix(table)}/" for table in tables)
    left = sorted(key for key in store.objects if key.startswith(prefixes))
    if left:
        raise Violated(f"markers of transactions that have ended are left: {', '.join(left)}")


def places_have_records(store: SimulatedStore) -> None:
    """Check that no placed transaction commits without a record: its marker would not count."""
    recorded: set[str] = set()
    placed: set[str] = set()
    for mutation in store.journal:
        if mutation.after is None:
            continue
        if mutation.key.startswith(f"{TXNS_PREFIX}/"):
            recorded.add(mutation.key)
        elif f"/{MARKERS_DIR}/" in mutation.key:
            placed.add(record_key(json.loads(mutation.after.body)["txn"]))
        elif mutation.key.startswith(f"{COMMITS_PREFIX}/"):
            record = record_key(decode(mutation.key, mutation.after.body, CommitObject).txn)
            if record in placed - recorded:
                raise Violated(f"{mutation.key} was stored, and {record} was not before it")


def recovery_twice_is_recovery_once(
    store: SimulatedStore, recover: Callable[[], Program[Any]]
) -> None:
    """Check that a second recovery finds nothing to do. Works on a copy of the store."""
    copy = store.copy()
    run_now(copy, recover())
    once = _bodies(copy)
    run_now(copy, recover())
    changed = sorted(key for key, _ in set(_bodies(copy).items()) ^ set(once.items()))
    if changed:
        raise Violated(f"a second recovery changed {changed}")


# ------------------------------------------------------------------ reading


def _head(store: SimulatedStore) -> Head | None:
    held = run_now(store, load_head())
    run_now(store, load_tables(None if held is None else held.head))
    return None if held is None else held.head


def _commits(store: SimulatedStore) -> Sequence[CommitSummary]:
    head = _head(store)
    if head is None:
        return ()
    commits = run_now(store, commits_since(head, head.history_start))
    assert commits is not None, "HEAD's own history starts before what its pages hold"
    return commits


def _logged(store: SimulatedStore, table: str) -> BareTable:
    try:
        logged = run_now(store, read_table(table))
    except UnreadableTable as error:
        raise Violated(str(error)) from error
    if logged is None:
        raise Violated(f"{table} has no log")
    return logged


def _published(head: Head, logged: BareTable, sequence: int) -> bool:
    return logged.sequence(head.lake_id) >= sequence


def _refuse_repeats(source: str, ids: Sequence[str]) -> None:
    repeated = sorted({txn for txn in ids if ids.count(txn) > 1})
    if repeated:
        raise Violated(f"{source} holds {repeated} more than once")


def _bodies(store: SimulatedStore) -> dict[str, bytes]:
    return {key: found.body for key, found in store.objects.items()}
