"""Apply and revert changes: methods of a lake, of a table and of a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, Literal

from lakevilla.api.applying.diff import Diff
from lakevilla.api.applying.merge import (
    Applies,
    StateLike,
    check_commit,
    check_version,
    in_one_transaction,
    keys_by_location,
    settled,
    state_name,
)
from lakevilla.api.arguments import check_patterns
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.run import Begin, begin_transaction
from lakevilla.lake.frozen.states import StateName
from lakevilla.lake.operations.difference import states_differ
from lakevilla.lake.own_versions import OwnVersion
from lakevilla.results import MergeResult
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.applying.apply import Outcome, Settle, apply, restore, roll_back

__all__ = [
    "Applying",
    "Restores",
    "AppliesStates",
]

# -------------------- lake
#
# Changes in a lake: taken back, done again, and compared.


class Applying(Generic[Frame]):
    """The operations of a lake on two of its states."""

    _client: LakeClient
    _begin: Callable[..., Executor[Frame]]
    _executor: type[Executor[Frame]]

    def rollback(
        self,
        to: StateLike,
        *,
        tables: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Set the tables back to an earlier state, by a new commit over all of them.

        No data is read or copied: the files of that state are added again, and other files are
        removed. History stays unchanged, so a rollback can be taken back too. A table that was made
        since is dropped from the lake; a table that was added to the lake with rows of its own
        since is left alone.

        Parameters
        ----------
        to : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.
        metadata : Mapping of str to str, optional
            Notes about it in the history.

        Raises
        ------
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        RefNotFound
        ConflictError
            Other transactions wrote the tables at each attempt.
        InvalidOperation
            A pattern fits no table, or a table was dropped since.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> lake.rollback(2).version
        4
        >>> lake.read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        client = self._client.main("rollback")
        target = state_name(client, "to", to)
        patterns = check_patterns("tables", tables)
        return self._apply(
            f"rollback to {_shown(to)}",
            lambda executor: roll_back(executor.state, target, tables=patterns),
            metadata,
        )

    def revert(
        self,
        version: int,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Take back the changes of one commit, and leave later changes.

        Parameters
        ----------
        version : int
            The commit, by the global version that it made: see ``history``.
        tables, keys, on_conflict, on_equal
            As for ``Transaction.apply``.
        metadata : Mapping of str to str, optional
            Notes about it in the history.

        Raises
        ------
        MergeConflict
            The commit's changes were changed since. Nothing was changed.
        VersionNotFound, InvalidOperation

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": -1}]))
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 3}]))
        >>> lake.revert(3).tables
        {'stock': 'physical'}
        >>> lake.sql("SELECT sku FROM stock ORDER BY sku").to_pylist()
        [{'sku': 'oil'}, {'sku': 'tea'}]
        """
        number, settle = check_version(version), settled(on_conflict, on_equal)
        states = ("version", number), ("version", number - 1)
        return self._moved(f"revert of {number}", states, tables, keys, settle, metadata)

    def cherry_pick(
        self,
        version: int | str,
        *,
        tables: Sequence[str] | None = None,
        keys: Mapping[str, str | Sequence[str]] | None = None,
        on_conflict: Literal["error", "ours", "theirs"] = "error",
        on_equal: Literal["conflict", "keep"] = "conflict",
        metadata: Mapping[str, str] | None = None,
    ) -> MergeResult:
        """Do the changes of one commit again, for example after a rollback to a version before it.

        Files of that commit that exist in the tables are not added twice.

        Parameters
        ----------
        version : int or str
            The commit, by the global version that it made: see ``history``; one of a branch as
            ``"etl@57"``.
        tables, keys, on_conflict, on_equal
            As for ``Transaction.apply``.
        metadata : Mapping of str to str, optional
            Notes about it in the history.

        Raises
        ------
        MergeConflict
            Data that the commit changed was changed otherwise. Nothing was changed.
        VersionNotFound, InvalidOperation

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        >>> _ = lake.rollback(2)
        >>> lake.cherry_pick(3).tables
        {'stock': 'physical'}
        """
        states, settle = check_commit(version), settled(on_conflict, on_equal)
        return self._moved(f"cherry-pick of {version}", states, tables, keys, settle, metadata)

    def diff(
        self, a: StateLike, b: StateLike = "main", *, tables: Sequence[str] | None = None
    ) -> Diff[Frame]:
        """Return the differences of state ``b`` of the lake from state ``a``.

        Only tables that a commit in between has touched are read, and no row is read before
        ``rows`` is called.

        Parameters
        ----------
        a, b : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``. ``"main"`` is the present lake.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.

        Raises
        ------
        VersionNotFound, RefNotFound
        InvalidOperation
            A pattern fits no table.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))
        >>> found = lake.diff(2)
        >>> found.tables.select(["table", "change", "rows_added"]).to_pylist()
        [{'table': 'stock', 'change': 'changed', 'rows_added': 1}]
        >>> found.rows("stock").to_pylist()
        [{'sku': 'jam', 'qty': 1, '_change_type': 'insert'}]
        """
        client = self._client.main("diff")
        old, new = state_name(client, "a", a), state_name(client, "b", b)
        patterns = check_patterns("tables", tables)
        found = client.run(states_differ(client.context, old, new, patterns))
        return Diff(client, found, self._executor)

    def _moved(
        self,
        merged: str,
        states: tuple[StateName, StateName],
        tables: Sequence[str] | None,
        keys: Mapping[str, str | Sequence[str]] | None,
        settle: Settle,
        metadata: Mapping[str, str] | None,
    ) -> MergeResult:
        patterns = check_patterns("tables", tables)
        self._client.main(merged.partition(" ")[0])

        def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
            return apply(
                executor.state,
                *states,
                tables=patterns,
                keys=keys_by_location(executor.resolve, keys),
                settle=settle,
                verb=merged.partition(" ")[0].upper(),
            )

        return self._apply(merged, program, metadata)

    def _apply(
        self, merged: str, program: Applies, metadata: Mapping[str, str] | None
    ) -> MergeResult:
        """Run it in a transaction of its own, again if other transactions were first."""
        begin: Begin = partial(self._begin, {"metadata": metadata})
        return in_one_transaction(self._client, begin, merged, program)


def _shown(state: StateLike) -> str:
    return state.isoformat() if isinstance(state, datetime) else str(state)


# -------------------- table
#
# A table that is set back to an earlier state.


class Restores:
    """The operations of a table on its older states."""

    __slots__ = ()

    name: str

    def _acting(self, verb: str) -> LakeClient:
        raise NotImplementedError

    def restore(self, to: StateLike) -> MergeResult:
        """Set the table back to an earlier state, by a new commit. No data is read or copied.

        ``lake.rollback`` does that for several tables at one global version.

        Parameters
        ----------
        to : int, datetime or str
            A version of the table's own log, as in ``versions``, also from before it joined the
            lake; an aware time; or a ref of the lake.

        Raises
        ------
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        RefNotFound
        ConflictError
            Other transactions wrote the table at each attempt.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> lake.table("stock").restore(0).tables
        {'stock': 'physical'}
        >>> lake.read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        client = self._acting("restore").main("restore")
        target = _target(client, to)

        def begin(lost: TransactionState | None) -> Executor[Any]:
            return begin_transaction(client, Executor) if lost is None else Executor(client, lost)

        def program(executor: Executor[Any]) -> Program[dict[str, Outcome]]:
            return restore(executor.state, executor.resolve(self.name), target)

        shown = to.isoformat() if isinstance(to, datetime) else str(to)
        return in_one_transaction(client, begin, f"restore to {shown}", program)


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
    """The operations of a transaction on two states of the lake."""

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
        """Apply to the tables the changes in them from one state of the lake to another.

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
            ``after``. For a table in ``keys`` only the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed from the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes it for
            one.

        Raises
        ------
        MergeConflict
            The tables were changed meanwhile. Nothing was applied, and the transaction goes on.
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
