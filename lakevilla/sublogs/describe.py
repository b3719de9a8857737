"""The names of operations in a log entry's ``commitInfo``, which Delta's tools show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sublogs.operations import (
    Alter,
    Append,
    Create,
    Delete,
    Detach,
    Drop,
    Given,
    Guard,
    Insert,
    Merge,
    Operation,
    Optimize,
    Overwrite,
    Rename,
    Replace,
    Transplant,
    Update,
)


def describe(operations: Sequence[Operation]) -> tuple[str, dict[str, str]]:
    """Return ``operation`` and ``operationParameters`` for the operations on one table."""
    described = [_one(operation) for operation in operations]
    if len(described) == 1:
        return described[0]
    return "TRANSACTION", {
        "operations": json.dumps([{"operation": name, **rest} for name, rest in described])
    }


def summed(metrics: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return ``operationMetrics`` of several operations as one, with the sums of their counts.

    Values that are no counts, such as an OPTIMIZE's sizes of files, are kept only for a single
    operation.
    """
    metrics = list(metrics)
    if len(metrics) == 1:
        return dict(metrics[0])
    total: dict[str, int] = {}
    for some in metrics:
        for name, value in some.items():
            if value.isdecimal():
                total[name] = total.get(name, 0) + int(value)
    return {name: str(value) for name, value in total.items()}


def _one(operation: Operation) -> tuple[str, dict[str, str]]:
    match operation:
        case Append() | Insert():
            return "WRITE", {"mode": "Append"}
        case Replace():
            return "CREATE OR REPLACE TABLE", {"partitionBy": json.dumps(operation.partition_by)}
        case Overwrite(where=None):
            return "WRITE", {"mode": "Overwrite"}
        case Overwrite(where=where) if where is not None:
            return "WRITE", {"mode": "Overwrite", "predicate": shown_sql(where)}
        case Update(where=where):
            return "UPDATE", {"predicate": shown_sql(where)}
        case Delete(where=where):
            return "DELETE", {"predicate": shown_sql(where)}
        case Merge(on=on):
            return "MERGE", {"predicate": shown_sql(on)}
        case Detach():
            return "CLONE", {"source": operation.source, "sourceVersion": str(operation.base[2])}
        case Create():
            return "CREATE TABLE", {}
        case Alter(request=request):
            return "ALTER TABLE", {name: json.dumps(value) for name, value in request.items()}
        case Guard(on=on):
            return "GUARD" if on else "UNGUARD", {}
        case Drop():
            return "DROP TABLE", {}
        case Rename(old=old, new=new):
            return "RENAME TABLE", {"from": old, "to": new}
        case Optimize(parameters=parameters):
            return "OPTIMIZE", parameters
        case Given():
            return "ICEBERG COMMIT", {}
        case Transplant(verb=verb, parameters=parameters):
            return verb, parameters
    raise AssertionError(operation)
