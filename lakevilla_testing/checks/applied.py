"""Checks of rollbacks: the state after each is compared with the state that it was to restore.

The result of a rollback is taken from its own HEAD, the expected state of a table from the HEAD of
that older version.
"""

from __future__ import annotations

import re

from lakevilla.global_log.commits import COMMITS_PREFIX, CommitObject
from lakevilla.global_log.head import Head
from lakevilla.global_log.head_log import is_head
from lakevilla.store.codec import decode
from lakevilla.sublogs.operations import Transplant
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.checks.past import state_of
from lakevilla_testing.world.store import SimulatedStore

_TARGET = re.compile(r"global version (\d+)")


def rollbacks_came_to_what_was(store: SimulatedStore) -> int:
    """Compare the files of each table that was rolled back with those that it had then.

    Returns the number of comparisons.
    """
    heads = _heads(store)
    objects = _commit_objects(store)
    compared = 0
    for sequence, head in heads.items():
        last = head.commits[-1]
        commit = objects.get(f"{COMMITS_PREFIX}/{last.txn}-{last.hash}.json")
        if last.kind != "transaction" or last.sequence != sequence or commit is None:
            continue
        for target, tables in _targets(commit, head).items():
            if target not in heads:
                continue
            now, then = state_of(store, head, ()), state_of(store, heads[target], ())
            for table in tables & then.keys():
                if now.get(table) != then[table]:
                    raise Violated(
                        f"{table} was rolled back to version {target} by version {sequence}, and "
                        f"has {sorted(now.get(table, ()))}, where it had {sorted(then[table])}"
                    )
                compared += 1
    return compared


def _targets(commit: CommitObject, head: Head) -> dict[int, set[str]]:
    """Return the versions to which a commit rolls back, and the tables: all for the whole lake."""
    found: dict[int, set[str]] = {}
    for one in commit.operations:
        if not isinstance(one, Transplant) or not one.exact:
            continue
        target = _TARGET.fullmatch(one.parameters.get("to", ""))
        if target is not None:
            tables = set(head.tables) if one.within == ("*",) else {one.table}
            found.setdefault(int(target[1]), set()).update(tables)
    return found


def _heads(store: SimulatedStore) -> dict[int, Head]:
    """Return the last HEAD of each global version that ever existed."""
    found: dict[int, Head] = {}
    for mutation in store.journal:
        if is_head(mutation.key) and mutation.after is not None:
            head = decode(mutation.key, mutation.after.body, Head)
            if head.commits:
                found[head.sequence] = head
    return found


def _commit_objects(store: SimulatedStore) -> dict[str, CommitObject]:
    return {
        mutation.key: decode(mutation.key, mutation.after.body, CommitObject)
        for mutation in store.journal
        if mutation.key.startswith(COMMITS_PREFIX) and mutation.after is not None
    }
