"""Optimize a table, also in its queue."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.run import begin_transaction
from lakevilla.errors import InvalidOperation
from lakevilla.maintenance.upkeep.left_optimizes import commit_left
from lakevilla.results import OptimizeResult
from lakevilla.settings import shown
from lakevilla.sql.expressions.bind import Predicate
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.optimize import result_of

__all__ = ["check_optimize_features", "optimize_table"]


def check_optimize_features(table: str, features: object) -> None:
    """Refuse features with which an optimize would commit by a log entry.

    Raises
    ------
    InvalidOperation
    """
    if isinstance(features, Feature) and features & (Feature.I | Feature.CT):
        return
    raise InvalidOperation(
        f"optimize of table {table}: features must be a lakevilla.Feature with I or CT, as it "
        f"commits through HEAD, not {shown(features)}",
        table=table,
    )


def optimize_table(
    client: LakeClient,
    name: str,
    where: Predicate | None,
    target_file_size_bytes: int | None,
    z_order_by: Sequence[str],
    features: Feature,
) -> OptimizeResult:
    """Optimize a table; see ``Table.optimize``.

    Where nothing else is left to do, the result is that of an optimize of a dead process.
    """
    is_saved = Feature.CT | Feature.R in features and client.branch is None
    left = _commit_left(client, name) if is_saved else []
    with begin_transaction(client, Executor, features) as executor:
        done = executor.optimize(name, where, target_file_size_bytes, z_order_by)
        if done is None:
            executor.abort()
            return left[-1] if left else OptimizeResult()
        planned = done.operation
    return result_of(planned, done, executor.result)


def _commit_left(client: LakeClient, name: str) -> list[OptimizeResult]:
    """Commit what dead processes have saved for a table, before the optimize reads its state."""
    with begin_transaction(client, Executor, read_only=True) as executor:
        location = executor.resolve(name)
    return client.run_safely(commit_left(client.context, location, client.owner))
