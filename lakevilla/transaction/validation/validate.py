"""Validate a transaction: may it move to a newer HEAD, and which operations must it redo there?

Validation compares the transaction's predicates and files with the commits since its bound state
(design, section 9); with ``validation="rules"`` it first compares version numbers, as the paper
does. ``examine`` only reports the result; ``rebase`` moves the transaction, and redoes the
operations in conflict.

Under snapshot isolation, or if ``slack`` lets a read be behind, reads need not be true at the
commit: validation is *lenient* on such tables. Then the transaction is based on the one state that
it has read. The rows that it writes must be unchanged since that state; if they were only moved to
other files, the operation is redone there, from the same rows. If such rows did change, a redo is
valid only if all reads are true on the new state, too, as if the transaction had begun there. Else
it would have read one state and written from a later one: a lost update or a torn read. So leniency
allows write skew, and no other anomaly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from lakevilla.errors import (
    ConflictError,
    TableExists,
    TableNotFound,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.repo import HeldHead, load_tables
from lakevilla.global_log.rules import Rule
from lakevilla.lake.context import Tail
from lakevilla.lake.operations.comparing.dropped_columns import files_fit
from lakevilla.lake.row_changes import (
    Acted,
    NetChange,
    Verdict,
    acted_on,
    change_of_definition,
    change_of_lists,
    deleted_since,
    judge,
    net_change,
)
from lakevilla.lake.state_digest import state_digest
from lakevilla.lake.table_log import open_tail, opened_again, probe, refresh
from lakevilla.lake.view import View, build_view
from lakevilla.phases import during
from lakevilla.sql.expressions.tree import Expr
from lakevilla.store.effects import Program, parallel
from lakevilla.sublogs.binding import renamed
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Create,
    Detach,
    Drop,
    Given,
    Guard,
    Insert,
    Operation,
    Optimize,
    Transplant,
    acts_on_all,
    given_files,
    is_blind,
    tables_read,
)
from lakevilla.transaction.redo.rebase import Examination, keeps_its_side, rebase
from lakevilla.transaction.state.files import marked_rows
from lakevilla.transaction.state.parts import Done
from lakevilla.transaction.state.transaction import TransactionState, conflict
from lakevilla.transaction.validation.catalog import changed_catalog
from lakevilla.transaction.validation.checks import (
    changed_branch,
    moved_name,
    no_log,
    refused_place,
    still_mounted,
    touched_within,
)
from lakevilla.transaction.validation.overlap import is_cleared, only_appends, paths_without
from lakevilla.transaction.validation.versions import firing

T = TypeVar("T")

_SEEN = "rows that the transaction has read were changed meanwhile"


def examine(
    txn: TransactionState, head: Head | None, *, exact: bool = False, extending: bool = False
) -> Program[Examination]:
    """Compare everything on which the transaction relies with ``head`` and the cached logs.

    A table is passed over if no commit can have changed what the transaction relies on there
    (``overlap``), so that a lost race mostly costs no request except the read of HEAD. With
    ``exact`` none is passed over. ``extending``: the transaction will go on at ``head``, not
    commit, so all its reads must be true there at any isolation level, and no rule is checked.
    """
    look = _Look(exact, extending)
    examination = yield from _examined(txn, head, look)
    if examination.passed and examination.conflict is None and examination.redo_from is not None:
        # A redo needs the newer state of all tables that an operation reads.
        examination = yield from _examined(txn, head, replace(look, whole=True))
    if examination.is_rough and not _is_clear(txn, examination):
        look = replace(look, whole=True, by_entries=True)
        examination = yield from _examined(txn, head, look)
    return examination


@dataclass(frozen=True, slots=True)
class _Look:
    """The closeness of an examination; see ``examine``.

    ``whole``: only tables to which the transaction merely appends are passed over. ``by_entries``:
    all entries since the bound state are read. Else far states are compared by lists of files.
    """

    exact: bool
    extending: bool
    whole: bool = False
    by_entries: bool = False


def _is_clear(txn: TransactionState, examination: Examination) -> bool:
    """Return whether the transaction can move to the newer state as it is."""
    outcome = examination.conflict, examination.redo_from, examination.behind
    return outcome == (None, None, txn.work.behind)


def _examined(txn: TransactionState, head: Head | None, look: _Look) -> Program[Examination]:
    examination = Examination(head, behind=dict(txn.work.behind))
    nets: dict[str, NetChange] = {}
    if head is not None:
        examination.conflict = yield from touched_within(txn, head)
        if examination.conflict is not None:
            return examination
    examined = list(txn.work.tables)
    yield from load_tables(head, examined)
    # Computed once: else each table would go through the operations of all tables.
    created = {done.table for done in txn.work.done if isinstance(done.operation, Create)}
    for location in examined:
        made = location in created
        net = yield from _table(txn, head, location, examination, look, made=made)
        if examination.conflict is not None:
            return examination
        if net is not None:
            nets[location] = net
            examination.is_rough = examination.is_rough or net.may_be_moves
    if head is not None:
        examination.conflict = yield from changed_catalog(
            txn, head, examination, extending=look.extending
        )
        if examination.conflict is not None:
            return examination
    if not nets:
        return examination
    if not look.extending:
        yield from _rules(txn, head, examination)
    if examination.conflict is None:
        yield from _operations(txn, nets, examination)
    strict = not (examination.lenient or txn.work.behind)
    if (
        examination.conflict is None
        and not strict
        and (yield from _reads_others(txn, nets, examination))
    ):
        # A redone operation would use newer rows than the transaction has read.
        if txn.work.behind:
            examination.conflict = conflict(txn, next(iter(txn.work.behind)), _SEEN)
            return examination
        examination.lenient, examination.redo_from = {}, None
        examination.remarked.clear()
        yield from _operations(txn, nets, examination)
    if examination.conflict is None:
        yield from _reads(
            txn, nets, examination, moving=look.exact or examination.redo_from is not None
        )
    return examination


def _table(
    txn: TransactionState,
    head: Head | None,
    location: str,
    examination: Examination,
    look: _Look,
    *,
    made: bool,
) -> Program[NetChange | None]:
    """Return the changes of one table since the bound state; None if none of them matters.

    ``made``: the transaction has created the table. A conflict, or the table's new view, is noted
    in ``examination``.
    """
    old = txn.work.tables[location].view
    state = None if head is None else head.tables.get(location)
    made = made and old.mount is None  # a clone's table that another client makes is the same one
    if not (yield from _needs_a_look(txn, head, old, state, examination, made=made)):
        return None
    tail = yield from open_tail(txn.context, location, missing_ok=True)
    examination.tails[location] = tail
    if state == old.state and tail.tip == old.probed:
        # No version was added, so no rule can fire.
        if old.is_anothers(tail):
            examination.conflict = conflict(
                txn, location, "it was dropped or replaced, and created again"
            )
        return None
    if head is not None and not look.exact:
        blind = only_appends(txn, location)
        if (blind or not look.whole) and (yield from is_cleared(txn, head, location, tail)):
            examination.passed = examination.passed or not blind
            return None
    if state is not None and state.published > tail.tip:
        tail = yield from open_tail(txn.context, location, missing_ok=True)
        tail = yield from probe(txn.context, tail)
        if state.published > tail.tip:
            # HEAD has a newer version, but the next entry is gone: list the log again.
            tail = yield from opened_again(txn.context, tail)
        examination.tails[location] = tail
        if state.published > tail.tip:
            examination.conflict = conflict(
                txn,
                location,
                "its log ends before the version that HEAD names: another client is deleting it",
            )
            return None
    new = yield from _new_view(txn, head, location, tail, examination)
    if new is None:
        return None
    if made:
        examination.conflict = TableExists(
            f"table {location} was created by another client meanwhile",
            table=location,
            txn_id=txn.id,
        )
        return None
    examination.views[location] = new
    if only_appends(txn, location):
        return change_of_definition(old, new)
    net = None if look.by_entries else (yield from change_of_lists(old, new, tail))
    return (yield from net_change(txn.context, old, new, tail)) if net is None else net


def _needs_a_look(
    txn: TransactionState,
    head: Head | None,
    old: View,
    state: TableState | None,
    examination: Examination,
    *,
    made: bool,
) -> Program[bool]:
    """Return whether the log and the commits must be read to find the table's changes."""
    location = old.location
    if old.mount is not None:
        examination.conflict = yield from still_mounted(txn, head, old, state)
        if examination.conflict is not None or state is None:
            if any(done.table == location for done in txn.work.done):
                examination.tails[location] = no_log(location, old.base)
            return False
    if made or txn.revives(location):
        examination.conflict = yield from refused_place(txn, old, state, head)
        if examination.conflict is not None:
            return False
    if not made and _is_another(txn, location, state):
        # No file that was made for the old table fits the new one; even appended files may have
        # been deleted with the old table's data. The log is not read: a client may be deleting it.
        examination.conflict = conflict(
            txn, location, "it was dropped or replaced, and created again"
        )
        return False
    return True


def _new_view(
    txn: TransactionState, head: Head | None, location: str, tail: Tail, examination: Examination
) -> Program[View | None]:
    """Return the table's view at ``head``; None, and note a conflict, if it can't be used there."""
    revives = txn.revives(location)
    try:
        new = yield from build_view(txn.context, head, location, tail, revives=revives)
        operations = [done.operation for done in txn.work.done if done.table == location]
        if isinstance(next(iter(operations), None), Alter):
            new.snapshot.check_upgradable()
        elif any(not isinstance(one, Drop) for one in operations):
            new.snapshot.check_writable()
    except (TableNotFound, VersionNotFound) as error:
        # The table was dropped, or so much of its log was deleted that its state at this HEAD is
        # not known any more: that conflicts with every transaction.
        examination.conflict = conflict(txn, location, error.message)
    except UnsupportedTableFeature as error:
        examination.conflict = error
    else:
        examination.conflict = _not_its_version(txn, new)
        return new if examination.conflict is None else None
    return None


def _not_its_version(txn: TransactionState, new: View) -> ConflictError | None:
    """Return the conflict of an Iceberg client's commit with any change since its version.

    It is never performed again: its requirements are compared with the newest version first.
    """
    own = [done.operation for done in txn.work.done if done.table == new.location]
    known = {(one.given.base, one.given.state) for one in own if isinstance(one, Given)}
    if not known:
        return None
    state = state_digest(new, txn.context.epoch) if txn.context.epoch else ""
    if (state or not new.placement.overlay) and known == {(new.base.version, state)}:
        return None
    return conflict(txn, new.location, "others have committed to it since the client's version")


def _rules(txn: TransactionState, head: Head | None, examination: Examination) -> Program[None]:
    """Find by version numbers the lenient tables; note a conflict if a rule forbids the commit."""
    snapshot = txn.options.isolation == "snapshot" and txn.has_one_state
    for location, new in examination.views.items():
        if snapshot:
            examination.lenient[location] = 0
        if not (txn.options.slack or txn.options.validation == "rules"):
            continue
        versions, rule = yield from firing(txn, head, new, examination.tails[location])
        if rule is not None and txn.options.validation == "rules":
            examination.conflict = conflict(
                txn,
                location,
                f"rule {rule.name} fires ({rule.value}): the transaction works on version "
                f"{versions.read}, the table is at {versions.hidden}, slack is {txn.options.slack}",
            )
            return
        if rule is not Rule.R1 and txn.options.slack and txn.has_one_state:
            examination.lenient[location] = versions.hidden + 1 - versions.write


def _reads_others(
    txn: TransactionState, nets: dict[str, NetChange], examination: Examination
) -> Program[bool]:
    """Return whether the operations to be performed on the new state read changed rows there."""
    if any(done.deferred for done in txn.work.done):
        return True  # deferred operations read all rows of the new state
    if examination.redo_from is None:
        return False
    for done in txn.work.done[examination.redo_from :]:
        if keeps_its_side(done):
            continue
        target = nets.get(done.table)
        if target is not None and (target.metadata or target.contract):
            return True
        for table, where in tables_read(done.operation).items():
            if (yield from _is_changed(txn, table, where, nets, examination)):
                return True
    return False


def _is_changed(
    txn: TransactionState,
    table: str,
    where: Expr | None,
    nets: dict[str, NetChange],
    examination: Examination,
    acted: Acted | None = None,
) -> Program[bool]:
    net = nets.get(table)
    if net is None:
        return False
    old, new = txn.work.tables[table].view, examination.views[table]
    without: frozenset[str] = frozenset()
    if net.adds and examination.head is not None and old.snapshot.layout.marks_deletes:
        tail = examination.tails[table]
        without = yield from paths_without(txn, examination.head, table, tail, where)
    verdict = yield from judge(txn.context, old, new, net, where, acted, without)
    return verdict is Verdict.CHANGED


def _changed(txn: TransactionState, table: str, examination: Examination) -> str:
    """Return why a read is outdated: a change of the schema outdates each read of the table."""
    old, new = txn.work.tables[table].view.snapshot, examination.views[table].snapshot
    if not old.layout.schema.equals(new.layout.schema, check_metadata=True):
        return "its schema was changed meanwhile"
    if (old.metadata, old.protocol) != (new.metadata, new.protocol):
        return "its constraints, properties or protocol were changed meanwhile"
    return _SEEN


def _is_another(txn: TransactionState, location: str, state: TableState | None) -> bool:
    """Return whether HEAD has another table now at the location than the transaction has used."""
    if state is None or state.dropped:
        return False  # the caller's further checks report that
    view = txn.work.tables[location].view
    base = view.base if view.mount is None else view.snapshot
    known = base.table_id if view.state is None else view.state.table_id
    return known != state.table_id


def _operations(
    txn: TransactionState, nets: dict[str, NetChange], examination: Examination
) -> Program[None]:
    for index, done in enumerate(txn.work.done):
        if (yield from _in_conflict(txn, done, nets, examination)):
            if examination.conflict is None and examination.redo_from is None:
                examination.redo_from = index
            return
        if not done.deferred and _meets(done, nets.get(done.table)):
            if examination.redo_from is None:
                examination.redo_from = index
            examination.remarked.add(index)


def _in_conflict(
    txn: TransactionState, done: Done, nets: dict[str, NetChange], examination: Examination
) -> Program[bool]:
    operation = done.operation
    if done.deferred:
        return False  # it will be performed on the new state
    if isinstance(operation, Detach):
        return done.table in examination.views  # if so, another client has detached it
    target = nets.get(done.table)
    if is_blind(operation):
        if target is not None and target.contract:
            old, new = txn.work.tables[done.table].view, examination.views[done.table]
            if not files_fit(given_files(operation), old.snapshot.layout, new.snapshot.layout):
                examination.conflict = conflict(
                    txn, done.table, "its schema or constraints were changed meanwhile"
                )
                return True
        # An append with new columns must add them to the new schema again.
        return (
            target is not None
            and target.metadata
            and isinstance(operation, Append)
            and operation.columns is not None
        )
    if isinstance(operation, Alter | Guard) and target is not None and target.metadata:
        return True
    if isinstance(operation, Transplant) and target is not None and _crosses(operation, target):
        return True
    if isinstance(operation, Insert | Optimize) and target is not None and target.contract:
        # The operation's files were made for the table's old definition.
        return True
    for table, where in tables_read(operation).items():
        if table in examination.lenient and _only_reads(operation, table):
            continue
        acted = None
        if table == done.table and acts_on_all(operation):
            layout = txn.work.tables[table].snapshot.layout
            acted = yield from acted_on(layout, done.change, partial(marked_rows, txn))
        if (yield from _is_changed(txn, table, where, nets, examination, acted)):
            return True
    if target is None:
        return False
    again = {file.path for file in done.change.adds}
    gone = yield from deleted_since(txn.work.tables[done.table].snapshot.layout, target)
    return any(
        removed.ref in target.removes and not (removed.path in again and removed.path in gone)
        for removed in done.change.removes
    )


def _meets(done: Done, net: NetChange | None) -> bool:
    """Return whether an operation marks rows in a file of which others have marked some, too."""
    return net is not None and any(file.ref in net.removes for file in done.change.removes)


def _crosses(operation: Transplant, net: NetChange) -> bool:
    """Return whether commits in ``net`` changed the definition, or added or removed the same files.

    A file that the transplant adds may have been added by another client meanwhile, or have been
    in the table and been removed.
    """
    if net.metadata or net.contract:
        return True
    paths = {file.path for file in (*operation.adds, *operation.removes)}
    return any(path in paths for path, _ in (*net.adds, *net.removes))


def _only_reads(operation: Operation, table: str) -> bool:
    """Return whether the operation reads rows of the table and changes none of them.

    An operation that adds a constraint, or drops the table, counts as one that changes rows.
    """
    return operation.table != table or isinstance(operation, Insert)


def _reads(
    txn: TransactionState, nets: dict[str, NetChange], examination: Examination, *, moving: bool
) -> Program[None]:
    """Compare the reads with the changes.

    An outdated read of a lenient table is noted in ``behind``, if the transaction moves.
    """
    redone = set()
    if examination.redo_from is not None:
        redone = {
            done.table for done in txn.work.done[examination.redo_from :] if not done.deferred
        }
    for record in txn.work.reads.values():
        table = record.table
        if moving or table not in examination.lenient:
            changed = yield from _is_changed(txn, table, record.where, nets, examination)
            if changed and table not in examination.lenient:
                examination.conflict = conflict(txn, table, _changed(txn, table, examination))
                return
            if changed:
                examination.behind.setdefault(table, 0)
        own = (
            examination.redo_from is not None
            and record.after > examination.redo_from
            and table in redone
        )
        if own and (yield from _reads_others(txn, nets, examination)):
            # The caller has read rows that an operation of the transaction has made, and a redo
            # would change them: the caller may have acted on them. (If the rows that the operation
            # reads were only moved to other files, the redo makes the same rows.)
            examination.conflict = conflict(
                txn, table, "the transaction has read rows of its own that must be redone"
            )
            return
    for table in txn.work.behind:
        if table in nets and table not in examination.lenient:
            # These reads are of a state before the bound one, which the changes do not cover.
            examination.conflict = conflict(txn, table, _SEEN)
            return
    # Operations that are not redone have read rows, too. (With deferred ones nothing is lenient.)
    kept = txn.work.done[: examination.redo_from] if moving and examination.lenient else []
    for done in kept:
        for table, where in tables_read(done.operation).items():
            changed = yield from _is_changed(txn, table, where, nets, examination)
            if changed and table in examination.lenient:
                examination.behind.setdefault(table, 0)
    for table in examination.behind:
        examination.behind[table] += examination.lenient.get(table, 0)


def catch_up(
    txn: TransactionState, beside: Sequence[Program[T]] = (), *, midway: bool = False
) -> Program[list[T]]:
    """Move the transaction to the newest HEAD; redo the operations that are in conflict there.

    The programs ``beside`` run in the same round as the read of HEAD; their results are returned.
    ``midway``: the caller has further statements, which use the names of columns that it knows.

    Raises
    ------
    ConflictError
        Another client has changed what the caller has read, or, midway, the names of columns.
    """
    with during("validate"):
        return (yield from _catch_up(txn, beside, midway=midway))


def _catch_up(
    txn: TransactionState, beside: Sequence[Program[T]], *, midway: bool
) -> Program[list[T]]:
    parts: list[Program[Any]] = [_newest(txn), *beside]
    held, *others = yield from parallel(parts)
    txn.check_not_fenced(held.head)
    examination = yield from examine(txn, held.head, exact=True)
    if examination.conflict is None:
        examination.conflict = yield from changed_branch(txn, held.head)
    if examination.conflict is None and midway:
        examination.conflict = _other_names(txn, examination)
    if examination.conflict is not None:
        raise txn.fail(examination.conflict)
    yield from rebase(txn, held, examination)
    return others


def _other_names(txn: TransactionState, examination: Examination) -> ConflictError | None:
    """Return a conflict if a table that the transaction has changed has other columns by now.

    Its operations follow their fields, and the caller's next statement would go by names.
    """
    for table in dict.fromkeys(done.table for done in txn.work.done):
        working, new = txn.work.tables.get(table), examination.views.get(table)
        if working is None or new is None:
            continue
        old = working.view
        path = renamed(old.base.layout, old.snapshot.layout, new.snapshot.layout)
        if path is not None:
            name = ".".join(path)
            return conflict(txn, table, f"its column {name} was renamed or dropped meanwhile")
    return None


def _newest(txn: TransactionState) -> Program[HeldHead]:
    """Read the logs of the transaction's tables, and then HEAD, so that no log is newer."""
    yield from parallel([refresh(txn.context, location) for location in txn.work.tables])
    held = yield from txn.context.head()
    assert held is not None, "a transaction that writes through HEAD is bound to one"
    return held


def validate_reads(txn: TransactionState) -> Program[None]:
    """Validate a transaction that has written nothing, if its isolation level requires that.

    A transaction that reads one state of the lake is serializable without validation. But with
    ``validation="rules"`` and serializable isolation, the rule R1 also limits the age of that
    state; with write-serializable isolation it does not.

    Raises
    ------
    ConflictError
        A table that it has read is more than ``slack`` versions further.
    """
    if (
        txn.options.validation != "rules"
        or txn.options.isolation != "serializable"
        or not txn.work.reads
    ):
        return
    with during("validate"):
        yield from parallel([refresh(txn.context, location) for location in txn.work.tables])
        held = (yield from txn.context.head()) if txn.through_head else None
        examination = yield from examine(txn, None if held is None else held.head)
    if examination.conflict is not None:
        raise txn.fail(examination.conflict)


def extend(txn: TransactionState) -> Program[bool]:
    """Move the transaction to the newest HEAD if all on which it relies is unchanged there."""
    if not txn.through_head:
        return False
    with during("validate"):
        return (yield from _extend(txn))


def _extend(txn: TransactionState) -> Program[bool]:
    while True:
        known = list(txn.work.tables)
        yield from parallel([refresh(txn.context, location) for location in known])
        held = yield from txn.context.head()
        if held is None:
            return False
        examination = yield from examine(txn, held.head, exact=True, extending=True)
        if examination.conflict is not None or examination.redo_from is not None:
            return False
        if (yield from moved_name(txn, held.head)) is not None:
            return False
        if list(txn.work.tables) != known:
            continue  # a table was opened concurrently, and was not examined
        if txn.bound.held is None or txn.bound.held.head.replacement <= held.head.replacement:
            yield from rebase(txn, held, examination)
        return True
