"""EXPLAIN: which files a statement would read, and how its engine would go about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.given import Given
from lakevilla.api.session.telling import rows_of
from lakevilla.display import size_text
from lakevilla.engines.sql.conditions import conditions_of, conjuncts
from lakevilla.engines.sql.dml import (
    DeleteStatement,
    InsertStatement,
    MergeStatement,
    UpdateStatement,
)
from lakevilla.engines.sql.meaning.duckdb import OtherMeaning, meaning_in
from lakevilla.engines.sql.merging import looks_elsewhere, merges_of
from lakevilla.engines.sql.script.parsing import Parsed
from lakevilla.engines.sql.script.showing import Explain
from lakevilla.engines.sql.script.used import used_in
from lakevilla.engines.sql.select import Select
from lakevilla.engines.sql.statement import parse_statement
from lakevilla.errors import InvalidOperation
from lakevilla.expressions.bind import exact
from lakevilla.expressions.tree import Call, Expr
from lakevilla.transaction.verbs.catalog.explain import files_kept
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = ["explained"]

_ITEMS = pa.schema([("item", pa.string()), ("detail", pa.string())])


def explained(state: Reads[Frame], node: Explain, statement: Parsed, given: Given[Frame]) -> Frame:
    """What EXPLAIN tells of a statement, which is not run; nothing counts as read."""
    executor = state._executor
    inner = parse_statement(node.text, None, given.dialect)
    params = given.params_of(node.text)
    views = dict(given.views_of(statement) or {})
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
    if isinstance(inner, Select):
        source = inner
    elif isinstance(inner, InsertStatement | MergeStatement):
        source = inner.source
        yield f"{type(inner).__name__.removesuffix('Statement').lower()} into", inner.table
    elif looks_elsewhere(inner, given.dialect):
        schema = _schema(executor, inner.table)
        merge = _bound(executor, merges_of(inner, schema, given.dialect), params, views)
        source = merge.source
        yield merge.verb, f"{inner.table}, as a merge on {merge.on}"
    else:
        verb = "delete from" if isinstance(inner, DeleteStatement) else "update"
        yield verb, inner.table
        terms = conjuncts(inner.where, given.dialect) or [inner.where]
        yield _files(executor, inner.table, terms, inner.called, params)
    if source is None:
        return
    known = conditions_of(source.sql, given.dialect)
    for path, name in source.spellings:
        if path in views or name.lower().startswith(("lakevilla_", "information_schema.")):
            continue
        alias, terms = known if known is not None else ("", [])
        yield _files(executor, name, terms, alias, params)
    used = _used(source.sql, params)
    select, views = with_catalog(executor, given.dialect, source, used, views)
    # A row for each line: what draws a table for people writes a row as one line.
    for line in executor.plan(select, used, views).rstrip("\n").split("\n"):
        yield "plan", line


def _bound(
    executor: Executor[Frame],
    merges: Iterator[MergeStatement],
    params: Mapping[str, object],
    views: Mapping[str, object],
) -> MergeStatement:
    """The first whose query can be run by itself, as when the statement is."""
    *_, last = found = list(merges)
    for merge in found[:-1]:
        try:
            executor.plan(merge.source, _used(merge.source.sql, params), views)
        except InvalidOperation:
            continue
        return merge
    return last


def _used(text: str, params: Mapping[str, object]) -> dict[str, object]:
    used = used_in(text, params, "duckdb")  # as in any dialect
    return {name: value for name, value in params.items() if name in used}


def _files(
    executor: Executor[Frame],
    table: str,
    terms: Sequence[str],
    alias: str,
    params: Mapping[str, object],
) -> tuple[str, str]:
    """How many files the statistics in the table's log leave; a term they can't use leaves all."""
    schema = _schema(executor, table)
    with executor.alone("explain", table):
        location = executor.resolve(table)
        where: Expr | None = None
        for term in terms:
            alone = executor.together(_used(term, params), None, meaning_in(executor.dialect))
            try:
                parsed = exact(alone.predicate(term), schema, alias=alias)
                alone.check(schema, alias)
            except (InvalidOperation, OtherMeaning):
                continue  # the engine's own SQL
            where = parsed if where is None else Call("and", (where, parsed))
        kept = executor.run(files_kept(executor.state, location, where))
    return (
        f"files of {table}",
        f"{kept.files} of {kept.all_files} kept, {size_text(kept.bytes)} of "
        f"{size_text(kept.all_bytes)}",
    )


def _schema(executor: Executor[Frame], table: str) -> pa.Schema:
    with executor.alone("explain", table):
        location = executor.resolve(table)
        return executor.run(layout_of(executor.state, location, probing=True)).schema
