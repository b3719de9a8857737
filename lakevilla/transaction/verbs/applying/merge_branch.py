"""Merge a branch: apply its changes since it was created, or last merged, to the lake."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from lakevilla.errors import InvalidOperation, MergeConflict
from lakevilla.global_log.bases import Base, load_base, load_base_tables
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import load_head, load_refs
from lakevilla.lake.frozen.branch_head import frozen_now, open_branch
from lakevilla.lake.frozen.states import AtBase, AtHead, between, chosen_places, not_found
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Merging
from lakevilla.transaction.validation.checks import changed_entry
from lakevilla.transaction.verbs.applying.apply import (
    REFUSE,
    Outcome,
    Settle,
    apply_states,
    bound,
    together,
)
from lakevilla.transaction.verbs.applying.observed import hold_observed
from lakevilla.transaction.verbs.idempotency import keys_to_take


def merge_branch(
    txn: TransactionState,
    name: str,
    *,
    tables: Sequence[str] | None = None,
    keys: Mapping[str, tuple[str, ...]],
    settle: Settle = REFUSE,
    fast_forward_only: bool = False,
    serializable: bool = False,
) -> Program[tuple[dict[str, Outcome], Base]]:
    """Apply to the lake the changes on a branch since it was created, or last merged.

    The commit notes the branch's state as merged, or with ``tables`` that of these tables only.
    Parameters and errors as ``apply``; the result also has the merged state of the branch.
    ``serializable``: refuse the merge if rows that were read on the branch differ on the lake.
    """
    head = yield from bound(txn)
    if txn.work.merging is not None:
        raise InvalidOperation(
            f"this transaction merges branch {txn.work.merging.name!r}: merge another one in a "
            "transaction of its own",
            txn_id=txn.id,
        )
    yield from load_refs(head, [name])
    entry = head.refs.get(name)
    if entry is None:
        raise (yield from not_found(head, name))
    if entry.kind != "branch":
        raise InvalidOperation(
            f"{entry.kind} {name!r} can't be merged, as nothing is committed on it: `rollback` "
            "returns the lake to that state",
            txn_id=txn.id,
        )
    since = yield from load_base(entry.base if entry.synced is None else entry.synced)
    branch = yield from open_branch(name, entry)
    now = yield from frozen_now(branch)
    if fast_forward_only:
        yield from _refuse_changed(txn, head, since, now, tables)
    try:
        taken = yield from keys_to_take(txn, branch, since, partial=tables is not None)
        if serializable:
            yield from hold_observed(txn, branch, since)
        outcomes = yield from apply_states(
            txn, head, AtBase(since), AtBase(now), tables, keys, settle, "MERGE"
        )
    except MergeConflict:
        # The conflict may come from a merge of the same branch by another client.
        held = yield from load_head()
        changed = None if held is None else (yield from changed_entry(txn, held.head, name, entry))
        if changed is not None:
            raise txn.fail(changed) from None
        raise
    if outcomes or taken:
        base = now if tables is None else (yield from _merged_of(since, now, outcomes))
        txn.work.merging = Merging(name, entry, base, taken, branch.held.head.replacement)
    return outcomes, now


def _merged_of(since: Base, now: Base, tables: Collection[str]) -> Program[Base]:
    """Return the base to note once ``tables`` are merged; the other tables stay as in ``since``."""
    yield from load_base_tables(since, tables)
    yield from load_base_tables(now, tables)
    states = {location: now.tables.get(location) for location in tables}
    return msgspec.structs.replace(now, tables=since.tables.updated(states))


def _refuse_changed(
    txn: TransactionState, head: Head, since: Base, now: Base, tables: Sequence[str] | None
) -> Program[None]:
    """Refuse to merge into tables that were changed on the lake since ``since``."""
    differing = yield from between(txn.context, head, AtBase(since), AtBase(now))
    wanted = yield from chosen_places(head, differing.tables, tables)
    changed = yield from between(txn.context, head, AtBase(since), AtHead(head))
    conflicts = [
        MergeConflict(
            f"table {location} was changed on the lake since branch {now.name!r} was made, or "
            "merged: merge it without fast_forward_only",
            rows={location: None},
            table=location,
        )
        for location in wanted
        if location in changed.tables
    ]
    if conflicts:
        raise together(conflicts)
