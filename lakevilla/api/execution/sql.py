"""``txn.sql``: a SELECT is run, any other statement is handed to the verb that does it."""

from __future__ import annotations

from dataclasses import replace

from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.inserting import run_insert
from lakevilla.api.frame import Frame
from lakevilla.api.merge import MergeBuilder
from lakevilla.engines.sql.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
)
from lakevilla.engines.sql.merging import looks_elsewhere, merge_verb, merges_of
from lakevilla.engines.sql.select import Select
from lakevilla.engines.sql.statement import parse_statement
from lakevilla.errors import InvalidOperation
from lakevilla.results import OperationResult
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = ["run_statement"]


def run_statement(
    executor: Executor[Frame], query: str, params: dict[str, object], views: dict[str, object]
) -> Frame | OperationResult:
    """Run one statement for the user of a transaction."""
    statement = parse_statement(query, params, executor.dialect)
    if executor.state.options.read_only and not isinstance(statement, Select):
        raise InvalidOperation(
            "a snapshot, or a read-only transaction, runs only SELECT: write by "
            "`lake.session()` or in `lake.transaction()`",
            txn_id=executor.id,
        )
    if isinstance(statement, UpdateStatement | DeleteStatement):
        if looks_elsewhere(statement, executor.dialect):
            return _as_merge(executor, statement, params, views)
        if views:
            raise InvalidOperation(
                "views work only with SELECT, INSERT ... SELECT, MERGE, and an UPDATE or DELETE "
                "that looks at other tables"
            )
    if isinstance(statement, Select):
        statement, views = with_catalog(executor, executor.dialect, statement, params, views)
    elif isinstance(statement, InsertStatement | MergeStatement):
        source, views = with_catalog(executor, executor.dialect, statement.source, params, views)
        statement = replace(statement, source=source)
    match statement:
        case Select():
            return executor.select(statement, params, views)
        case InsertStatement():
            return run_insert(executor, statement, params, views)
        case UpdateStatement(table=table, called=called, assignments=assignments, where=where):
            return executor.update(table, assignments, where, params, called)
        case DeleteStatement(table=table, called=called, where=where):
            return executor.delete(table, where, params, called)
        case MergeStatement():
            return _merge(executor, statement, params, views)


def _as_merge(
    executor: Executor[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> OperationResult:
    """An UPDATE or DELETE that looks at other rows."""
    with executor.alone(merge_verb(statement), statement.table):
        location = executor.to_write(statement.table, "merge")
        schema = executor.run(layout_of(executor.state, location, probing=True)).schema
    builder = error = None
    for merge in merges_of(statement, schema, executor.dialect):
        try:
            builder = _begun(executor, merge, params, views)
            break
        except InvalidOperation as unbound:
            error = unbound  # the next one is more general
    if builder is None:
        assert error is not None
        raise error
    return _finished(builder, merge)


def _merge(
    executor: Executor[Frame],
    statement: MergeStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> OperationResult:
    return _finished(executor.merge_from(statement, params, views), statement)


def _begun(
    executor: Executor[Frame],
    statement: MergeStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> MergeBuilder:
    source, views = with_catalog(executor, executor.dialect, statement.source, params, views)
    return executor.merge_from(replace(statement, source=source), params, views)


def _finished(builder: MergeBuilder, statement: MergeStatement) -> OperationResult:
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
