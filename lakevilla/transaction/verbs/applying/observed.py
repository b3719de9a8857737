"""Checks of a merge or apply: reads on the branch, and values in columns that it drops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import msgspec

from lakevilla.errors import CorruptObject, InvalidOperation, MergeConflict, TableNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import removal
from lakevilla.global_log.bases import Base, load_base_tables
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import CommitSummary, Touch
from lakevilla.global_log.repo import commits_since, load_commit
from lakevilla.lake.frozen.branch_head import Branch
from lakevilla.lake.frozen.states import AtBase
from lakevilla.lake.operations.comparing.computed import unfit
from lakevilla.lake.operations.comparing.dropped_columns import (
    missing_fields,
    named,
    refuse_hidden,
    value_that_came,
)
from lakevilla.lake.operations.difference import difference
from lakevilla.lake.row_changes import NetChange, Verdict, judge
from lakevilla.lake.view import View
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, parallel
from lakevilla.store.location import at_home
from lakevilla.sublogs.operations import Transplant, tables_read
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import touch
from lakevilla.transaction.verbs.read_write import lookup, observe

# -------------------- observed
#
# Compare the reads of transactions on a branch with the lake (docs/design/0031-branches.md).
#
# A merge applies what these transactions have written. The result is serializable, as if they had
# run on the lake now, only if all rows that they have read are the same on the lake.


#: By table, the predicates of the rows that were read; None stands for all rows.
_Reads = dict[str, list[Expr | None]]


def hold_observed(txn: TransactionState, branch: Branch, since: Base) -> Program[None]:
    """Check that the rows that were read on a branch are the same on the lake; observe them there.

    ``since`` is the state in which the branch was created or last merged: if the lake differs from
    it in these rows, other clients have changed them. The rows become observed reads of the merge,
    so a later change of them conflicts with it.

    Raises
    ------
    MergeConflict
        Other clients have changed such rows on the lake.
    InvalidOperation
        The branch's reads are not known any more.
    """
    reads = yield from _reads(txn, branch, since)
    seen = yield from AtBase(since).views(txn.context, sorted(reads))
    views = {location: view for location, view in seen.items() if view is not None}
    conflicts = []
    for location, old in views.items():
        if (yield from _is_held(txn, old, reads[location])):
            for where in reads[location]:
                observe(txn, location, where)
        else:
            conflicts.append(location)
    if conflicts:
        raise MergeConflict(
            f"branch {branch.name!r} was written by transactions that have read "
            f"{', '.join(conflicts)} there, and other transactions have changed what they read on "
            "the lake since: run them again on a new branch of the lake, or merge it with "
            "isolation='snapshot'",
            rows=dict.fromkeys(conflicts),
            table=conflicts[0],
        )


def _is_held(txn: TransactionState, old: View, predicates: Iterable[Expr | None]) -> Program[bool]:
    """Return whether the rows of the predicates are the same on the lake as in ``old``."""
    try:
        # This may move the transaction to a newer HEAD, where its observed reads are still true.
        yield from touch(txn, [old.location], probing=True, access="read")
    except TableNotFound:
        return False  # it was dropped
    new = txn.work.tables[old.location].view
    if old.snapshot.table_id != new.snapshot.table_id:
        return False
    if old.placement == new.placement:
        return True  # the same version of the log, with the same pending commits
    found = yield from difference(old.snapshot, new.snapshot)
    net = NetChange(
        {file.ref: file for file in found.adds},
        {file.ref: removal(file) for file in found.removes},
        metadata=found.after is not None,
        untold=True,  # the files have their statistics as of their addition, not of their removal
    )
    for where in predicates:
        if (yield from judge(txn.context, old, new, net, where)) is Verdict.CHANGED:
            return False
    return True


def _reads(txn: TransactionState, branch: Branch, since: Base) -> Program[_Reads]:
    """Return the reads of the transactions on a branch whose writes are not merged yet."""
    head = branch.held.head
    assert head.epoch is not None, branch.name
    if not head.epoch.is_first:
        _refuse(branch, "it was rebased, and the reads before that are not kept")
    commits = yield from at_home(branch.entry.epoch, commits_since(head, head.history_start))
    if commits is None:
        _refuse(branch, "its history is not kept from its beginning on")
    locations = {location for commit in commits for location in commit.tables}
    yield from load_base_tables(since, locations)
    waiting = [one for one in commits if one.hash and not _is_merged(since, one)]
    epoch = branch.entry.epoch
    try:
        objects: list[CommitObject] = yield from parallel(
            [load_commit(one.txn, one.hash, epoch) for one in waiting]
        )
    except CorruptObject as error:
        _refuse(branch, f"{error.key} is missing or damaged", error)
    found: _Reads = {}
    for commit in objects:
        if commit.catalog:
            raise InvalidOperation(
                f"branch {branch.name!r} was written by a transaction that has read "
                f"lakevilla_{commit.catalog[0].kind} there, which is not the lake's: merge it "
                "with isolation='snapshot'",
                txn_id=txn.id,
            )
        for record in commit.reads:
            found.setdefault(record.table, []).append(record.where)
        for operation in commit.operations:
            for table, where in tables_read(operation).items():
                found.setdefault(table, []).append(where)
    return {
        table: [None] if None in predicates else list(dict.fromkeys(predicates))
        for table, predicates in found.items()
    }


def _is_merged(since: Base, commit: CommitSummary) -> bool:
    """Return whether the state that was merged last has all that a commit has written.

    It may have only a part, if tables were merged separately. In doubt this is False: then more
    reads are checked than necessary.
    """
    written = [location for location, touch_ in commit.tables.items() if _writes(touch_)]
    return commit.sequence <= since.sequence and all(
        _merged_up_to(since, location) >= commit.sequence for location in written
    )


def _writes(touched: Touch) -> bool:
    return touched.adds or touched.removes or touched.metadata


def _merged_up_to(since: Base, location: str) -> int:
    state = since.tables.get(location)
    pending = () if state is None else state.pending
    return max((ref.sequence for ref in pending), default=-1)


def _refuse(branch: Branch, why: str, error: Exception | None = None) -> NoReturn:
    raise InvalidOperation(
        f"branch {branch.name!r}: {why}, so it is not known what its transactions have read: "
        "merge it with isolation='snapshot'"
    ) from error


# -------------------- columns
#
# Check columns that an applied change drops for values of other clients (docs/design/0055).


def hiding(
    txn: TransactionState, operation: Transplant, old: TableSnapshot, new: TableSnapshot
) -> Program[Transplant]:
    """Return the operation with the columns that it drops noted in ``hides``.

    Raises
    ------
    MergeConflict
        Such a column has values of other clients; or the operation adds files with values in
        columns that the table has dropped.
    """
    snapshot = yield from lookup(txn, operation.table)
    yield from refuse_hidden(txn.context, operation, snapshot)
    paths = missing_fields(old.layout, new.layout)
    if not paths or operation.after is None or snapshot.metadata == new.metadata:
        return operation
    since = yield from difference(old, snapshot)
    own = {file.ref for file in operation.adds}
    added = [file for file in since.adds if file.ref not in own]
    found = yield from value_that_came(
        txn.context, old.layout, paths, added, since.removes, operation.keys
    )
    if found is not None:
        raise unfit(
            operation,
            snapshot,
            f"{named(paths)} is to be dropped from it "
            f"({' to '.join(operation.parameters.values())}), and other transactions have written "
            f"rows since: {found}",
        )
    return msgspec.structs.replace(operation, hides=paths)
