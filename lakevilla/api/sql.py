"""``txn.sql``: a SELECT is run, any other statement is handed to the verb that does it."""

from __future__ import annotations

from lakevilla.api.frame import Frame
from lakevilla.api.transaction_base import Workings
from lakevilla.engines.sql.statement import Delete, Insert, Merge, Select, Update, parse_statement
from lakevilla.errors import InvalidOperation
from lakevilla.results import OperationResult

__all__ = ["run_statement"]


def run_statement(
    txn: Workings[Frame], query: str, params: dict[str, object], views: dict[str, object]
) -> Frame | OperationResult:
    """Run one statement for the user of a transaction.

    ``txn``'s underscored methods are the verbs with what SQL adds to them: an
    alias, a query as source.
    """
    statement = parse_statement(query, params, txn.dialect)
    if txn.read_only and not isinstance(statement, Select):
        raise InvalidOperation(
            "a snapshot, or a read-only transaction, runs SELECT alone: write in "
            "`lake.transaction()`, or with `lakevilla sql --write`",
            txn_id=txn.id,
        )
    if views and isinstance(statement, Update | Delete):
        raise InvalidOperation("views serve SELECT, INSERT ... SELECT and MERGE alone")
    match statement:
        case Select():
            return txn._select(statement, params, views)
        case Insert():
            return txn._insert(statement, params, views)
        case Update(table=table, alias=alias, assignments=assignments, where=where):
            return txn._update(table, assignments, where, params, alias or _last(table))
        case Delete(table=table, alias=alias, where=where):
            return txn._delete(table, where, params, alias or _last(table))
        case Merge():
            return _merge(txn, statement, params, views)


def _merge(
    txn: Workings, statement: Merge, params: dict[str, object], views: dict[str, object]
) -> OperationResult:
    builder = txn._merge_from(statement, params, views)
    for clause in statement.clauses:
        predicate, values = clause.predicate, clause.assignments
        match clause.kind:
            case "matched_update" if values is None:
                builder.when_matched_update_all(predicate)
            case "matched_update" if values is not None:
                builder.when_matched_update(values, predicate)
            case "matched_delete":
                builder.when_matched_delete(predicate)
            case "not_matched_insert" if values is None:
                builder.when_not_matched_insert_all(predicate)
            case "not_matched_insert" if values is not None:
                builder.when_not_matched_insert(values, predicate)
            case "not_matched_by_source_update" if values is not None:
                builder.when_not_matched_by_source_update(values, predicate)
            case "not_matched_by_source_delete":
                builder.when_not_matched_by_source_delete(predicate)
            case kind:
                raise InvalidOperation(f"merge: clause {kind} needs assignments")
    return builder.execute()


def _last(table: str) -> str:
    """A table may be called by the last part of its name in its own statement."""
    return table.replace(".", "/").rsplit("/", 1)[-1]
