"""EXPLAIN: the files that a statement would read, and the engine's plan of it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import cast

import pyarrow as pa

from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.sql import compiler_of, merges
from lakevilla.api.execution.views import expanded
from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.planning import Given
from lakevilla.api.session.telling import rows_of
from lakevilla.display import size_text
from lakevilla.engines.base import MergeClause, MergeKind, MergeSpec
from lakevilla.errors import InvalidOperation
from lakevilla.lake.operations.matching import may_be_matched
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.tree import TRUE, Expr, all_of
from lakevilla.sql.statements.conditions import CompiledTerm, conjuncts
from lakevilla.sql.statements.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
)
from lakevilla.sql.statements.merging import has_query, reads_other_rows
from lakevilla.sql.statements.script.control import used_in
from lakevilla.sql.statements.script.parsing import Parsed
from lakevilla.sql.statements.script.showing import Explain
from lakevilla.sql.statements.select import Dialect, Select
from lakevilla.sql.statements.statement import parse_statement
from lakevilla.transaction.verbs.catalog.explain import files_kept
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = ["explained"]

_ITEMS = pa.schema([("item", pa.string()), ("detail", pa.string())])


def explained(state: Reads[Frame], node: Explain, statement: Parsed, given: Given[Frame]) -> Frame:
    """Return the rows of EXPLAIN for a statement, which is not run; nothing counts as read."""
    executor = state._executor
    inner = parse_statement(node.text, None, given.dialect)
    params = given.params_of(node.text)
    views = dict(given.views_of(statement, state._executor) or {})
    return rows_of(state, _ITEMS, list(_lines(executor, inner, node.text, params, views, given)))


def _lines(
    executor: Executor[Frame],
    inner: Select | InsertStatement | UpdateStatement | DeleteStatement | MergeStatement,
    text: str,
    params: Mapping[str, object],
    views: dict[str, object],
    given: Given[Frame],
) -> Iterator[Sequence[str]]:
    source: Select | None = None
    own: tuple[str, Expr] | None = None
    if isinstance(inner, Select):
        source = inner
    elif isinstance(inner, InsertStatement | MergeStatement):
        source = inner.source
        yield f"{type(inner).__name__.removesuffix('Statement').lower()} into", inner.table
        if isinstance(inner, MergeStatement):
            yield from _of_merge(executor, inner, params, views)
    else:
        merge = yield from _of_change(executor, inner, params, views)
        if merge is not None:
            source = merge.source
            own = None if merge.within is None else (merge.table, merge.within)
    if source is None:
        return
    source = expanded(executor, source, views)
    named = {
        path: name
        for path, name in source.spellings
        if not (path in views or name.lower().startswith(("lakevilla_", "information_schema.")))
    }
    schemas = {path: _schema(executor, name) for path, name in named.items()}
    within = executor.rows_within(source, params, schemas)
    if own is not None and _path(own[0]) in named:
        within[_path(own[0])] = own[1]
    for path, name in named.items():
        yield _files(executor, name, within.get(path))
    used = _used(source.sql, params)
    select, views = with_catalog(executor, given.dialect, source, used, views)
    # Make a row for each line of the plan: a client would show a text of many lines in one row.
    for line in executor.plan(select, used, views).rstrip("\n").split("\n"):
        yield "plan", line


def _of_change(
    executor: Executor[Frame],
    statement: UpdateStatement | DeleteStatement,
    params: Mapping[str, object],
    views: Mapping[str, object],
) -> Generator[Sequence[str], None, MergeStatement | None]:
    """Yield the rows for an UPDATE or DELETE; return the merge that performs it, or None."""
    verb = "delete from" if isinstance(statement, DeleteStatement) else "update"
    yield verb, statement.table
    schema = _schema(executor, statement.table)
    elsewhere = reads_other_rows(statement, executor.dialect)
    reading = compiler_of(executor, params, schema, statement.called)
    terms = [reading.term(text) for text in _conditions(statement.where, executor.dialect)]
    values = statement.assignments if isinstance(statement, UpdateStatement) else {}
    assigned = {column: reading.value(text) for column, text in values.items()}
    for term in terms:
        if term.tree is None and not (term.differs or elsewhere):
            raise InvalidOperation(term.why, table=statement.table)
        yield "condition", _said(term, executor.dialect)
    for column, term in assigned.items():
        yield f"value of {column}", _said(term, executor.dialect)
    left = any(term.differs for term in (*terms, *assigned.values()))
    if not (elsewhere or left):
        trees = [term.tree for term in terms if term.tree is not None]
        yield _files(executor, statement.table, all_of(trees))
        return None
    found = merges(executor, statement, params, schema, by_engine=left and not elsewhere)
    merge = _bound(executor, found, params, views)
    yield merge.verb, f"{statement.table}, as a merge on {_line(merge.on)}"
    if _path(statement.table) in merge.source.tables:
        yield "reads", f"{statement.table} twice: by the query, and to find the rows to change"
    return merge


def _of_merge(
    executor: Executor[Frame],
    statement: MergeStatement,
    params: Mapping[str, object],
    views: dict[str, object],
) -> Iterator[Sequence[str]]:
    """Yield the terms of a MERGE's condition, and the files of its target that may match it."""
    used = _used(statement.source.sql, params)
    query, views = with_catalog(executor, executor.dialect, statement.source, used, views)
    target = _schema(executor, statement.table)
    schemas = {
        statement.source_alias: executor.columns(query, used, views),
        statement.target_alias: target,
    }
    reading = compiler_of(executor, params, schemas)
    terms = [reading.term(text) for text in _conditions(statement.on, executor.dialect)]
    for term in terms:
        yield "condition", _said(term, executor.dialect, "refused")
    on = all_of([term.tree for term in terms if term.tree is not None]) or TRUE
    clauses = tuple(MergeClause(cast(MergeKind, one.kind)) for one in statement.clauses)
    aliases = statement.source_alias, statement.target_alias
    spec = MergeSpec(bind(on, schemas), *aliases, clauses)
    yield _files(executor, statement.table, may_be_matched(spec, target, None, None))


def _conditions(text: str, dialect: Dialect) -> list[str]:
    return conjuncts(text, dialect) or [text]


def _said(term: CompiledTerm, dialect: Dialect, otherwise: str = "left to the engine") -> str:
    """Return, as text, that a term is compiled, or what is done with it instead, and why."""
    if term.tree is not None:
        return f"{_line(term.text)}: compiled"
    why = "it reads other rows" if has_query(term.text, dialect) else term.why
    return f"{_line(term.text)}: {otherwise}, since {_line(why)}"


def _path(table: str) -> str:
    return table.replace(".", "/")


def _line(text: str) -> str:
    return " ".join(text.splitlines())


def _bound(
    executor: Executor[Frame],
    merges: Iterator[MergeStatement],
    params: Mapping[str, object],
    views: Mapping[str, object],
) -> MergeStatement:
    """Return the first merge whose query the engine can plan, or the last one."""
    *_, last = found = list(merges)
    for merge in found[:-1]:
        try:
            executor.plan(merge.source, _used(merge.source.sql, params), views)
        except InvalidOperation:
            continue
        return merge
    return last


def _used(text: str, params: Mapping[str, object]) -> dict[str, object]:
    used = used_in(text, params, "duckdb")  # parameters are spelled the same in all dialects
    return {name: value for name, value in params.items() if name in used}


def _files(executor: Executor[Frame], table: str, where: Expr | None) -> tuple[str, str]:
    """Return the row on a table's files: how many the log's statistics keep, and how many they
    prune.
    """
    with executor.verb_scope("explain", table):
        location = executor.resolve_in_sql(table)
        kept = executor.run(files_kept(executor.state, location, where))
    return (
        f"files of {table}",
        f"{kept.files} of {kept.all_files} kept, {kept.all_files - kept.files} pruned, "
        f"{size_text(kept.bytes)} of {size_text(kept.all_bytes)}",
    )


def _schema(executor: Executor[Frame], table: str) -> pa.Schema:
    with executor.verb_scope("explain", table):
        location = executor.resolve_in_sql(table)
        return executor.run(layout_of(executor.state, location, probing=True)).schema
