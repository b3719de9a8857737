"""Run SQL statements by a transaction's verbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from lakevilla.api.client.discovering import refuse_places
from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.inserting import run_insert
from lakevilla.api.execution.views import may_have_views, mistaken_view, name_the_view
from lakevilla.api.frame import Frame
from lakevilla.api.merge import MergeBuilder, meaning_of
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.results import OperationResult
from lakevilla.sql.expressions.bind import Schemas
from lakevilla.sql.statements.conditions import Compiler
from lakevilla.sql.statements.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
)
from lakevilla.sql.statements.meaning.duckdb import OtherMeaning, meaning_in
from lakevilla.sql.statements.merging import merge_verb, merges_of, reads_other_rows
from lakevilla.sql.statements.script.refs import refuse_changed
from lakevilla.sql.statements.select import Select
from lakevilla.sql.statements.statement import Statement, parse_statement
from lakevilla.transaction.state.status import Status

__all__ = [
    "run_statement",
    "compiler_of",
    "merges",
]

# -------------------- sql
#
# Statements of ``txn.sql``: a SELECT is run, any other statement is passed to its verb.


def run_statement(
    executor: Executor[Frame],
    query: str,
    params: dict[str, object],
    views: dict[str, object],
    statement: Statement | None = None,
) -> Frame | OperationResult:
    """Run one statement for a transaction's caller; ``statement``: the query as parsed before."""
    statement = statement or parse_statement(query, params, executor.dialect)
    try:
        return _run(executor, statement, params, views)
    except (InvalidOperation, TableNotFound) as error:
        is_new = getattr(error, "reason", None) == "view"
        if is_new and executor.looks_for_views:
            raise
        if not is_new:
            _name_view(executor, statement, views, error)
            raise
    # Another client has made a view since the HEAD that this process knew.
    executor.looks_for_views = True
    return _run(executor, statement, params, views)


def _name_view(
    executor: Executor[Frame],
    statement: Statement,
    views: Mapping[str, object],
    error: LakeVillaError,
) -> None:
    """Name, in an error of a query, the view that does not fit the tables which it shows."""
    query = statement if isinstance(statement, Select) else getattr(statement, "source", None)
    if not isinstance(query, Select) or not may_have_views(executor):
        return
    if executor.state.state is Status.OPEN and (name := mistaken_view(executor, query, views)):
        name_the_view(error, name)


def _run(
    executor: Executor[Frame],
    statement: Statement,
    params: dict[str, object],
    views: dict[str, object],
) -> Frame | OperationResult:
    if executor.state.options.read_only and not isinstance(statement, Select):
        raise InvalidOperation(
            "a snapshot, or a read-only transaction, runs only SELECT: write by "
            "`lake.session()` or in `lake.transaction()`",
            txn_id=executor.id,
        )
    if not isinstance(statement, Select):
        refuse_changed(statement.table)
        refuse_places(executor.client, statement.table, executor.state.work.tables)
    if isinstance(statement, UpdateStatement | DeleteStatement):
        if reads_other_rows(statement, executor.dialect):
            return _as_merge(executor, statement, params, views)
        if views:
            raise InvalidOperation(
                "views work only with SELECT, INSERT ... SELECT, MERGE, and an UPDATE or DELETE "
                "that reads other tables"
            )
        return _changed(executor, statement, params)
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
        case MergeStatement():
            return _merge(executor, statement, params, views)


def _changed(
    executor: Executor[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: dict[str, object],
) -> OperationResult:
    """Perform an UPDATE or DELETE that reads no other rows, by LakeVilla's own expressions.

    If one of its expressions would mean something else in a SELECT, a merge is performed instead,
    whose query computes the expression by the engine. That is decided once the texts are bound,
    before anything is done.
    """
    table, where, called = statement.table, statement.where, statement.called
    meaning = executor.meaning
    found: OperationResult | OtherMeaning
    if isinstance(statement, DeleteStatement):
        found = executor.delete(table, where, params, called, meaning)
    else:
        found = executor.update(table, statement.assignments, where, params, called, meaning)
    if not isinstance(found, OtherMeaning):
        return found
    try:
        return _as_merge(executor, statement, params, {}, by_engine=True)
    except InvalidOperation as error:
        if error.reason == "constraint":
            raise
        raise InvalidOperation(f"{found} ({error.message})", table=table) from None


def _as_merge(
    executor: Executor[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: dict[str, object],
    views: dict[str, object],
    *,
    by_engine: bool = False,
) -> OperationResult:
    """Perform an UPDATE or DELETE as a merge.

    The statement reads other rows, or the engine must compute one of its expressions. Of the
    equivalent merges, the first one is performed that can be bound and whose texts mean the same in
    a SELECT.
    """
    with executor.verb_scope(merge_verb(statement), statement.table):
        schema = executor.begin_write_into(statement.table, "merge")[1].schema
    error: InvalidOperation | None = None
    for merge in merges(executor, statement, params, schema, by_engine=by_engine):
        try:
            builder = _begun(executor, merge, params, views)
        except InvalidOperation as unbound:
            if statement.source is not None:
                raise
            error = unbound  # the next merge of the list is more general
            continue
        other = meaning_of(_described(builder, merge))
        if other is None:
            return builder.execute()
        error = _refused(other, statement.table)
    assert error is not None
    raise error


def _refused(other: OtherMeaning, table: str) -> InvalidOperation:
    return InvalidOperation(str(other), table=table)


def _merge(
    executor: Executor[Frame],
    statement: MergeStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> OperationResult:
    if any(clause.values for clause in statement.clauses):
        with executor.verb_scope("merge", statement.table):
            columns = executor.begin_write_into(statement.table, "merge")[1].schema.names
        clauses = (one.in_order_of(columns, statement.table) for one in statement.clauses)
        statement = replace(statement, clauses=tuple(clauses))
    builder = executor.merge_from(statement, params, views, executor.meaning)
    other = meaning_of(_described(builder, statement))
    if other is not None:
        raise _refused(other, statement.table)
    return builder.execute()


def _begun(
    executor: Executor[Frame],
    statement: MergeStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> MergeBuilder:
    source, views = with_catalog(executor, executor.dialect, statement.source, params, views)
    meaning = executor.meaning
    return executor.merge_from(replace(statement, source=source), params, views, meaning)


def _described(builder: MergeBuilder, statement: MergeStatement) -> MergeBuilder:
    """Return the builder, with the clauses of the statement added."""
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
    return builder


# -------------------- compiling
#
# Compile a statement's terms for an executor: see ``sql.statements.conditions``.


def compiler_of(
    executor: Executor[Frame],
    params: Mapping[str, object],
    schemas: Schemas,
    alias: str | None = None,
) -> Compiler:
    """Return a compiler that accepts a text only if it means the same in the executor's SELECT."""
    meaning = executor.meaning
    return Compiler(
        executor.dialect,
        lambda used: executor.together(used, None, meaning),
        params,
        schemas,
        alias,
    )


def merges(
    executor: Executor[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: Mapping[str, object],
    schema: pa.Schema,
    *,
    by_engine: bool = False,
) -> Iterator[MergeStatement]:
    """Return the merges of ``merges_of``; terms that LakeVilla's expressions can say are compiled.

    For Spark's SQL no term is compiled, because LakeVilla can't check what it means to Spark.
    """
    reading = compiler_of(executor, params, schema, statement.called)
    is_held = meaning_in(executor.dialect) is not None
    return merges_of(
        statement,
        schema,
        executor.dialect,
        lambda text: reading.value(text).tree is None,
        lambda text: reading.term(text).tree if is_held else None,
        by_engine=by_engine,
    )
