"""Records of a finished history by its store: tables, commits and transactions, also
deleted ones.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from lakevilla.global_log.head import PAGES_PREFIX, CommitSummary, Head, Page
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.repo import commits_since, load_head, load_tables
from lakevilla.store.codec import decode
from lakevilla_testing.histories.attempts import World
from lakevilla_testing.histories.plan import RECREATED
from lakevilla_testing.tables.iceberg_reader import transactions_in
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import StoredObject


def tables_with_log(world: World) -> list[str]:
    """Return every table that has a log, except one that another client may have torn down."""
    found: dict[str, int] = defaultdict(int)
    for key in world.simulation.store.objects:
        if "/_delta_log/" in key or _ENTRY.fullmatch(key):
            found[key.partition("/")[0]] += 1
    if "recreate" in world.plan.foreign:
        found.pop(RECREATED, None)
    return sorted(found)


def newest_head(world: World) -> Head | None:
    held = run_now(world.simulation.store, load_head())
    run_now(world.simulation.store, load_tables(None if held is None else held.head))
    return None if held is None else held.head


def live_commits(world: World, head: Head | None) -> Sequence[CommitSummary]:
    if head is None:
        return ()
    commits = run_now(world.simulation.store, commits_since(head, head.history_start))
    assert commits is not None, "HEAD's own history starts before what its pages hold"
    return commits


def all_commits(world: World, head: Head | None) -> Sequence[CommitSummary]:
    """Return all commits that ever existed; those that gc has forgotten come from the store's
    journal.
    """
    if head is None or head.history_start == 0:
        return live_commits(world, head)
    found: dict[int, CommitSummary] = {}
    pages: dict[str, Page] = {}
    for mutation in world.simulation.store.journal:
        if mutation.after is None:
            continue
        if mutation.key.startswith(f"{PAGES_PREFIX}/"):
            pages[mutation.key] = decode(mutation.key, mutation.after.body, Page)
        elif is_head(mutation.key):
            past = decode(mutation.key, mutation.after.body, Head)
            found.update((commit.sequence, commit) for commit in past.commits)
            # Some commits of a large group move to a page in the same replacement that adds them.
            refs = list(past.pages)
            while refs and refs[-1].last_sequence not in found:
                page = pages[refs.pop().key]
                found.update((commit.sequence, commit) for commit in page.commits)
                refs += page.older
    return [found[sequence] for sequence in sorted(found)]


def ids_in_logs(world: World) -> set[str]:
    """Return all transactions in the entries of all logs, those that were cleaned up too."""
    ids: set[str] = set()
    for mutation in world.simulation.store.journal:
        if mutation.after is not None and _ENTRY.fullmatch(mutation.key):
            # An entry that was overwritten, as only a store without conditions does, never
            # existed.
            ids -= _ids_in(mutation.key, mutation.before)
            ids |= _ids_in(mutation.key, mutation.after)
    return ids


def entries_in_logs(world: World) -> Iterator[tuple[str, bytes, set[str]]]:
    """Yield each entry of a log with its table and transactions, also those cleaned up."""
    for mutation in world.simulation.store.journal:
        if mutation.after is not None and _ENTRY.fullmatch(mutation.key):
            ids = _ids_in(mutation.key, mutation.after) | _members_in(mutation.after.body)
            yield mutation.key.partition("/")[0], mutation.after.body, ids


def versions_in_logs(world: World) -> dict[tuple[str, str], int]:
    """Return by table and transaction the version that added it to the table's log."""
    found: dict[tuple[str, str], int] = {}
    for mutation in world.simulation.store.journal:
        entry = _ENTRY.fullmatch(mutation.key)
        if entry is None or mutation.after is None:
            continue
        table, version = mutation.key.partition("/")[0], int(entry["delta"] or entry["iceberg"])
        for txn in _ids_in(mutation.key, mutation.after):
            found[table, txn] = min(version, found.get((table, txn), version))
    return found


def _ids_in(key: str, entry: StoredObject | None) -> set[str]:
    if entry is None:
        return set()
    if "/metadata/" in key:
        return transactions_in(entry.body)
    found = _TXNS.search(entry.body)
    return set() if found is None else set(json.loads(found[1]))


def _members_in(entry: bytes) -> set[str]:
    lists = (found[1] or found[2] for found in _MEMBERS.finditer(entry))
    return {txn for found in lists for txn in found.decode().replace('"', "").split(",")}


#: A log entry, or a metadata file.
_ENTRY = re.compile(
    r"[^/]+/(_delta_log/(?P<delta>\d{20})\.json|metadata/v(?P<iceberg>\d+)\.metadata\.json)"
)
_MEMBERS = re.compile(rb'"members":\[([^\]]*)\]|"lakevilla.members":"([^"]*)"')
_TXNS = re.compile(rb'"txns":(\[[^\]]*\])')
