"""Validation: may a transaction move to a newer HEAD, and what must it do again there?

The precise validation of design section 9: by the predicates and files of what
came between, not by version numbers. ``examine`` only tells; ``adopt`` moves
the transaction, redoing what is in conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakevilla.errors import (
    LakeVillaError,
    TableExists,
    TableNotFound,
    TransactionAborted,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.formats.base import Layout
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import HeldHead
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Create,
    Drop,
    Guard,
    Insert,
    Overwrite,
    is_blind,
    tables_read,
)
from lakevilla.transaction.conflicts import Verdict, judge, still_fits
from lakevilla.transaction.context import Event
from lakevilla.transaction.naming import file_namer
from lakevilla.transaction.replay import conflict, redo, replay
from lakevilla.transaction.tail import Tail, open_tail, probe, refresh
from lakevilla.transaction.view import NetChange, View, build_view, net_change

if TYPE_CHECKING:
    from lakevilla.transaction.core import Done, Transaction

__all__ = ["Examination", "adopt", "catch_up", "examine", "extend"]


@dataclass(slots=True)
class Examination:
    """What moving to a newer HEAD means for a transaction.

    ``views`` are the tables' states there, where they differ; ``redo_from`` the
    first operation in conflict; ``conflict`` what cannot be mended. ``tails`` are
    the logs as they were looked at: what is in them is validated, and no more.
    """

    views: dict[str, View] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    redo_from: int | None = None
    conflict: LakeVillaError | None = None


def examine(txn: Transaction, head: Head | None, *, exact: bool = False) -> Program[Examination]:
    """Hold everything the transaction relied on against ``head`` and the known logs.

    Tables that the transaction only appends to are passed over while nobody
    changed their metadata, unless ``exact``: then a lost race costs no request
    besides HEAD's.
    """
    found = Examination()
    nets: dict[str, NetChange] = {}
    for location, working in list(txn.tables.items()):
        old = working.view
        state = None if head is None else head.tables.get(location)
        tail = yield from open_tail(txn.context, location, missing_ok=True)
        found.tails[location] = tail
        if state == old.state and tail.tip == old.probed:
            continue
        if _is_another(txn, location, state):
            # Nothing that was made for the one fits the other, not even appended files: they
            # may have gone with the old one's data.
            found.conflict = conflict(txn, location, "it was dropped or replaced, and made anew")
            return found
        if (
            not exact
            and _only_appends(txn, location)
            and not _new_metadata(txn, head, location, tail)
        ):
            continue
        if state is not None and state.published > tail.tip:
            tail = yield from open_tail(txn.context, location, missing_ok=True)
            tail = yield from probe(txn.context, tail)
            found.tails[location] = tail
        try:
            new = yield from build_view(txn.context, head, location, tail)
            if any(d.table == location and not isinstance(d.operation, Drop) for d in txn.done):
                new.snapshot.check_writable()
        except (TableNotFound, VersionNotFound) as error:
            # Gone, or so much of its log that its state at this HEAD can't be
            # told any more: what can't be read conflicts with everything.
            found.conflict = conflict(txn, location, error.message)
            return found
        except UnsupportedTableFeature as error:
            found.conflict = error
            return found
        if _creates(txn, location):
            found.conflict = TableExists(
                f"table {location} was created by another client meanwhile",
                table=location,
                txn_id=txn.id,
            )
            return found
        found.views[location] = new
        nets[location] = yield from net_change(txn.context, old, new, tail)
    if not nets:
        return found
    yield from _operations(txn, nets, found)
    if found.conflict is None:
        yield from _reads(txn, nets, found)
    return found


def _is_another(txn: Transaction, location: str, state: TableState | None) -> bool:
    """Whether HEAD means another table by now than the one that the transaction works on."""
    if state is None or state.dropped or _creates(txn, location):
        return False  # that is told by whoever looks at the state
    view = txn.tables[location].view
    known = view.base.table_id if view.state is None else view.state.table_id
    return known != state.table_id


def _only_appends(txn: Transaction, location: str) -> bool:
    return not any(table == location for table, _ in txn.reads) and all(
        isinstance(done.operation, Append) and done.operation.columns is None
        if done.table == location
        else location not in tables_read(done.operation)
        for done in txn.done
    )


def _new_metadata(txn: Transaction, head: Head | None, location: str, tail: Tail) -> bool:
    """Whether what came between may have changed the table's metadata, by summaries alone."""
    old = txn.tables[location].view
    for version in range(old.probed + 1, tail.tip + 1):
        entry = tail.entries.get(version)
        if entry is None or entry.change.metadata is not None or entry.change.protocol is not None:
            return True
    if head is None:
        return False
    state = head.tables.get(location)
    if state is None or old.state is None:
        # In neither HEAD: its log has told all. It entered or left the lake: look closer.
        return state is not old.state
    if state.dropped:
        return True
    first = head.commits[0].sequence if head.commits else head.sequence + 1
    if txn.bound_sequence + 1 < first:
        return True  # some have moved to a page: look closer
    return any(
        commit.tables[location].metadata
        for commit in head.commits
        if commit.sequence > txn.bound_sequence and location in commit.tables
    )


def _creates(txn: Transaction, location: str) -> bool:
    return any(done.table == location and isinstance(done.operation, Create) for done in txn.done)


def _operations(txn: Transaction, nets: dict[str, NetChange], found: Examination) -> Program[None]:
    for index, done in enumerate(txn.done):
        if (yield from _in_conflict(txn, done, nets, found)):
            if found.conflict is None:
                found.redo_from = index
            return


def _in_conflict(
    txn: Transaction, done: Done, nets: dict[str, NetChange], found: Examination
) -> Program[bool]:
    operation = done.operation
    if done.deferred:
        return False  # it will be performed on what came between
    target = nets.get(done.table)
    if is_blind(operation):
        if target is not None and target.contract:
            old, new = txn.tables[done.table].view, found.views[done.table]
            if not still_fits(old.snapshot.layout, new.snapshot.layout):
                found.conflict = conflict(
                    txn, done.table, "its schema or constraints were changed meanwhile"
                )
                return True
        # Rows appended with new columns must add them on the new state again.
        return (
            target is not None
            and target.metadata
            and isinstance(operation, Append)
            and operation.columns is not None
        )
    if isinstance(operation, Alter | Guard) and target is not None and target.metadata:
        return True
    if isinstance(operation, Insert) and target is not None and target.contract:
        # Its rows come from other tables, but its files were made for this one.
        return True
    for table, where in tables_read(operation).items():
        net = nets.get(table)
        if net is None:
            continue
        verdict = yield from judge(
            txn.context, txn.tables[table].view, found.views[table], net, where
        )
        if verdict is Verdict.CHANGED:
            return True
    return target is not None and any(
        removed.ref in target.removes for removed in done.change.removes
    )


def _reads(txn: Transaction, nets: dict[str, NetChange], found: Examination) -> Program[None]:
    redone = set()
    if found.redo_from is not None:
        redone = {done.table for done in txn.done[found.redo_from :] if not done.deferred}
    for record in txn.reads.values():
        net = nets.get(record.table)
        if net is not None:
            verdict = yield from judge(
                txn.context,
                txn.tables[record.table].view,
                found.views[record.table],
                net,
                record.where,
            )
            if verdict is Verdict.CHANGED:
                found.conflict = conflict(
                    txn, record.table, "rows that the transaction has read were changed meanwhile"
                )
                return
        if (
            found.redo_from is not None
            and record.after > found.redo_from
            and record.table in redone
        ):
            # The caller has seen what an operation made that would now be made
            # anew: nobody can tell whether he acted on it.
            found.conflict = conflict(
                txn, record.table, "the transaction has read rows of its own that must be redone"
            )
            return


def adopt(txn: Transaction, held: HeldHead | None, found: Examination) -> Program[None]:
    """Move the transaction to ``held``; operations from ``redo_from`` on are done again there.

    Raises
    ------
    ConflictError
        Too many redos, an operation that fits no longer, or a count that the
        caller has looked at and that would change.
    """
    try:
        yield from _moved(txn, held, found)
    except BaseException as error:
        if txn.state == "open":
            # Half moved it is neither what it was nor what it is to be: were it
            # committed again, a part of its operations would be, or old ones unchecked.
            txn.fail(
                error
                if isinstance(error, LakeVillaError)
                else TransactionAborted(
                    f"transaction {txn.id} was interrupted in the middle of a redo: run it again",
                    txn_id=txn.id,
                )
            )
        raise


def _moved(txn: Transaction, held: HeldHead | None, found: Examination) -> Program[None]:
    context = txn.context
    # What each operation made its files for: a redo of one before it may change that.
    layouts = _layouts(txn)
    txn.held = held
    if held is not None:
        txn.bound_sequence = held.head.sequence
    reshaped = set()
    for location, working in txn.tables.items():
        new = found.views.get(location)
        if new is not None:
            if _definition(new) != _definition(working.view):
                reshaped.add(location)
            working.view = new
    first = len(txn.done) if found.redo_from is None else found.redo_from
    if found.redo_from is not None:
        txn.redos += 1
        table = txn.done[first].table
        if txn.redos > context.settings.max_redos:
            raise txn.fail(conflict(txn, table, f"it was redone {txn.redos - 1} times already"))
        context.notify(
            Event("redo", txn.id, f"redoing from operation {first} on {table}", {"table": table})
        )
    for done in txn.done:
        if done.deferred and not reshaped.isdisjoint((done.table, *tables_read(done.operation))):
            done.fitted = True
    name = file_namer(context, txn.id, txn.through_head)

    def step(index: int, done: Done) -> Program[None]:
        if index >= first and not _stands(done):
            yield from redo(txn, done, name)
        if (index >= first or done.deferred) and isinstance(done.operation, Append | Overwrite):
            _check_fits(txn, done, layouts[index])

    yield from replay(txn, step)


def _definition(view: View) -> tuple[object, object]:
    return view.snapshot.metadata, view.snapshot.protocol


def _layouts(txn: Transaction) -> list[Layout]:
    """Per operation its table's layout as the transaction saw it after the operation."""
    snapshots = {location: working.view.snapshot for location, working in txn.tables.items()}
    layouts = []
    for done in txn.done:
        change = done.change
        if change.metadata is not None or change.protocol is not None:
            snapshots[done.table] = snapshots[done.table].apply(change)
        layouts.append(snapshots[done.table].layout)
    return layouts


def _check_fits(txn: Transaction, done: Done, written: Layout) -> None:
    """Files that an operation keeps in a redo must be right on the new state as they are."""
    after = txn.tables[done.table].snapshot.apply(done.change)
    if not still_fits(written, after.layout):
        reason = "its schema or constraints were changed meanwhile"
        raise txn.fail(conflict(txn, done.table, reason))


def _stands(done: Done) -> bool:
    """Whether an operation after the first in conflict keeps its physical side, or has none."""
    return (
        done.deferred
        or isinstance(done.operation, Create)
        or (isinstance(done.operation, Append) and done.operation.columns is None)
    )


def catch_up(txn: Transaction) -> Program[None]:
    """Move to the newest HEAD, doing again there what is in conflict.

    Raises
    ------
    ConflictError
        What the caller has seen was changed.
    """
    yield from parallel([refresh(txn.context, location) for location in txn.tables])
    held = yield from txn.context.head()
    assert held is not None, "a transaction that writes through HEAD is bound to one"
    txn.check_not_fenced(held.head)
    found = yield from examine(txn, held.head, exact=True)
    if found.conflict is not None:
        raise txn.fail(found.conflict)
    yield from adopt(txn, held, found)


def extend(txn: Transaction) -> Program[bool]:
    """Move to the newest HEAD if everything relied on is unchanged there."""
    if not txn.through_head:
        return False
    while True:
        known = list(txn.tables)
        yield from parallel([refresh(txn.context, location) for location in known])
        held = yield from txn.context.head()
        if held is None:
            return False
        found = yield from examine(txn, held.head, exact=True)
        if found.conflict is not None or found.redo_from is not None:
            return False
        if list(txn.tables) != known:
            continue  # a table that is opened beside this one came in unexamined
        if txn.held is None or txn.held.head.replacement <= held.head.replacement:
            yield from adopt(txn, held, found)
        return True
