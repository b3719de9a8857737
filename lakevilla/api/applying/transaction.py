"""Applying what changed between two states, as part of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Literal

from lakevilla.api.applying.arguments import (
    StateLike,
    keys_by_location,
    settled,
    state_name,
)
from lakevilla.api.arguments import check_patterns
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.results import MergeResult
from lakevilla.transaction.verbs.applying.apply import apply

__all__ = ["AppliesStates"]


class AppliesStates(Generic[Frame]):
    """What a transaction does with two states of the lake."""

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
        """Do to the tables what changed in them from one state of the lake to another.

        Files that came between the two states come, and files that went go. No data is read or
        written while all files that are to go are there. Where others have rewritten one, rows are
        compared.

        Parameters
        ----------
        before, after : int, datetime or str
            A global version, an aware time, a ref, or ``"etl@57"``. ``"main"`` is the lake as it is
            now, without the changes of this transaction.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. All tables if not given.
        keys : Mapping, optional
            For a table the columns that tell its rows apart. Then only rows that both sides have
            changed are in conflict.
        on_conflict : {"error", "ours", "theirs"}
            ``"ours"`` leaves a table in conflict as it is, ``"theirs"`` makes it what it is in
            ``after``. Of a table in ``keys`` only the rows in conflict.
        on_equal : {"conflict", "keep"}
            A row that both sides have changed to the same, by a value computed of the row itself
            (``qty - 1``), may stand for two changes: ``"conflict"`` raises, ``"keep"`` takes it for
            one.

        Raises
        ------
        MergeConflict
            The tables were changed meanwhile. Nothing was applied, and the transaction goes on.
        VersionNotFound
            A state, or a file that is to come back, is not kept any more.
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
        with executor.alone("apply"):
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
