"""Apply, revert and compare states: of a lake, of a table and in a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal

from lakevilla.api.applying.diff import Diff
from lakevilla.api.applying.merge_branch import (
    Applies,
    StateLike,
    check_commit,
    check_version,
    in_one_transaction,
    keys_by_location,
    settled,
    state_name,
)
from lakevilla.api.arguments import check_mode, check_patterns
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.run import begin_or_rerun, begin_transaction
from lakevilla.lake.frozen.states import StateName
from lakevilla.lake.operations.difference import states_differ
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.results import MergeResult
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import OnConflict, OnEqual
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.applying.apply import Outcome, Settle, apply, restore, roll_back

#: Whether a commit that several transactions share is reverted, or done again, as a whole.
Members = Literal["all"] | None

__all__ = [
    "AppliesStates",
    "cherry_pick",
    "compare_states",
    "restore_table",
    "revert",
    "rollback",
]

# -------------------- lake
#
# Changes in a lake: reverted, done again, and compared.


def rollback(
    client: LakeClient,
    executor: type[Executor[Frame]],
    to: StateLike,
    *,
    tables: Sequence[str] | None,
    metadata: Mapping[str, str] | None,
) -> MergeResult:
    """Set the tables back to an earlier state; see ``Lake.rollback``."""
    client = client.main("rollback")
    target = state_name(client, "to", to)
    patterns = check_patterns("tables", tables)

    def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
        return roll_back(executor.state, target, tables=patterns)

    return _apply(client, executor, f"rollback to {_shown(to)}", program, metadata)


def revert(
    client: LakeClient,
    executor: type[Executor[Frame]],
    version: int,
    *,
    tables: Sequence[str] | None,
    keys: Mapping[str, str | Sequence[str]] | None,
    on_conflict: OnConflict,
    on_equal: OnEqual,
    members: Members,
    metadata: Mapping[str, str] | None,
) -> MergeResult:
    """Revert the changes of one commit; see ``Lake.revert``."""
    number, settle = check_version(version), settled(on_conflict, on_equal)
    states = ("version", number), ("version", number - 1)
    merged = f"revert of {number}"
    single = _single(states[0], members)
    return _apply_between(client, executor, merged, states, tables, keys, settle, metadata, single)


def cherry_pick(
    client: LakeClient,
    executor: type[Executor[Frame]],
    version: int | str,
    *,
    tables: Sequence[str] | None,
    keys: Mapping[str, str | Sequence[str]] | None,
    on_conflict: OnConflict,
    on_equal: OnEqual,
    members: Members,
    metadata: Mapping[str, str] | None,
) -> MergeResult:
    """Do the changes of one commit again; see ``Lake.cherry_pick``."""
    states, settle = check_commit(version), settled(on_conflict, on_equal)
    merged = f"cherry-pick of {version}"
    single = _single(states[1], members)
    return _apply_between(client, executor, merged, states, tables, keys, settle, metadata, single)


def _single(made: StateName, members: Members) -> StateName:
    """Return the state that a commit has made, if several transactions must not share it."""
    check_mode("members", members, "all")
    return made if members is None else None


def compare_states(
    client: LakeClient,
    executor: type[Executor[Frame]],
    a: StateLike,
    b: StateLike,
    *,
    tables: Sequence[str] | None,
) -> Diff[Frame]:
    """Return what differs between the lake's states ``a`` and ``b``; see ``Lake.diff``."""
    client = client.main("diff")
    old, new = state_name(client, "a", a), state_name(client, "b", b)
    patterns = check_patterns("tables", tables)
    found = client.run(states_differ(client.context, old, new, patterns))
    return Diff(client, found, executor)


def _apply_between(
    client: LakeClient,
    executor: type[Executor[Frame]],
    merged: str,
    states: tuple[StateName, StateName],
    tables: Sequence[str] | None,
    keys: Mapping[str, str | Sequence[str]] | None,
    settle: Settle,
    metadata: Mapping[str, str] | None,
    single: StateName,
) -> MergeResult:
    """Apply the changes from one state to another."""
    patterns = check_patterns("tables", tables)
    client.main(merged.partition(" ")[0])

    def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
        return apply(
            executor.state,
            *states,
            tables=patterns,
            keys=keys_by_location(executor.resolve, keys),
            settle=settle,
            verb=merged.partition(" ")[0].upper(),
            single=single,
        )

    return _apply(client, executor, merged, program, metadata)


def _apply(
    client: LakeClient,
    executor: type[Executor[Frame]],
    merged: str,
    program: Applies,
    metadata: Mapping[str, str] | None,
) -> MergeResult:
    """Run the program in a transaction of its own; rerun it after a ``ConflictError``."""
    begin = partial(begin_or_rerun, client, executor, {"metadata": metadata})
    return in_one_transaction(client, begin, merged, program)


def _shown(state: StateLike) -> str:
    return state.isoformat() if isinstance(state, datetime) else str(state)


# -------------------- table
#
# A table that is set back to an earlier state.


def restore_table(client: LakeClient, table: str, to: StateLike) -> MergeResult:
    """Set a table back to an earlier state; see ``Table.restore``."""
    client = client.main("restore")
    target = _target(client, to)

    def begin(lost: TransactionState | None) -> Executor[Any]:
        return begin_transaction(client, Executor) if lost is None else Executor(client, lost)

    def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
        return restore(executor.state, executor.resolve(table), target)

    return in_one_transaction(client, begin, f"restore to {_shown(to)}", program)


def _target(client: LakeClient, to: object) -> OwnVersion | StateName:
    found = state_name(client, "to", to)
    match found:
        case ("version", int(version)):
            return OwnVersion(version=version)
        case ("time", int(instant)):
            return OwnVersion(timestamp_ms=instant)
    return found


# -------------------- transaction
#
# Changes between two states, applied as part of a transaction.


class AppliesStates(Generic[Frame]):
    """A transaction's verbs on two states of the lake."""

    _executor: Executor[Frame]

    def apply(
        self,
        before: StateLike,
        after: StateLike,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
    ) -> MergeResult:
        """Apply to the tables what changed in them from one state of the lake to another.

        Files that were added between the two states are added, and files that were removed are
        removed. No data is read or written while all files to be removed exist. Where other
        transactions have rewritten one, rows are compared.

        Parameters
        ----------
        before, after : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``. ``"main"`` is the present lake,
            without the changes of this transaction.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.
        keys : Mapping, optional
            By table, the columns that identify its rows. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` leaves a table in conflict unchanged, ``"theirs"`` gives it its state in
            ``after``. For a table in ``keys``, that holds only for the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed from the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes them
            for one change.

        Raises
        ------
        MergeConflict
            Other changes to the tables are in conflict. Nothing was applied, and the transaction
            goes on.
        VersionNotFound
            A state, or a file that must be added again, is not kept any more.
        RefNotFound
        InvalidOperation
            A pattern fits no table, or ``keys`` names a column that its table lacks.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        >>> _ = lake.run(lambda txn: txn.append("orders", [{"id": 2, "sku": "jam"}]))
        >>> with lake.transaction() as txn:  # the jam goes out of the stock again
        ...     done = txn.apply(3, 2)
        >>> done.tables, lake.read("stock").to_pylist()
        ({'stock': 'physical'}, [{'sku': 'tea', 'qty': 5}])
        """
        settle = settled(on_conflict, on_equal)
        executor = self._executor
        client = executor.client
        old = state_name(client, "before", before)
        new = state_name(client, "after", after)
        patterns = check_patterns("tables", tables)
        with executor.verb_scope("apply"):
            executor.state.check_open("apply")
            by_location = keys_by_location(executor.resolve, keys)
        program = apply(
            executor.state,
            old,
            new,
            tables=patterns,
            keys=by_location,
            settle=settle,
        )
        return MergeResult(None, f"{before} to {after}", executor.applied(program))
