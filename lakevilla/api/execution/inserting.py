"""Insert the rows of a query or a frame, and check idempotency keys on branches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.sources import source_rows
from lakevilla.api.frame import Frame
from lakevilla.arrow.input import refuse_unknown
from lakevilla.errors import AlreadyCommitted, InvalidOperation
from lakevilla.formats.layout import Layout
from lakevilla.lake.operations.inserted import PARAMETERS, has_literals_alone
from lakevilla.results import OperationResult, Outcome
from lakevilla.sql.expressions.bind import exact
from lakevilla.sql.expressions.parse import refuse_unused
from lakevilla.sql.expressions.tree import Expr
from lakevilla.sql.statements.dml import InsertStatement, constants_of
from lakevilla.sql.statements.meaning.duckdb import other_meaning
from lakevilla.sql.statements.script.control import used_in
from lakevilla.sql.statements.select import Dialect, quoted, select_of
from lakevilla.transaction.verbs.idempotency import committed_in_base
from lakevilla.transaction.verbs.read_write import overwrite

# -------------------- inserting
#
# INSERT in all its forms: by name, into partitions, and in place of replaced rows.


__all__ = ["run_insert", "constants_in_a_view"]

_ROWS = "__lakevilla_rows"


def constants_in_a_view(
    client: LakeClient, text: str, views: dict[str, object], dialect: Dialect
) -> tuple[str, dict[str, object]]:
    """Return a long INSERT of constants with its rows as a view; any other text as it is.

    The engine reads the values, whose types it knows; the text that is parsed is short. If it
    refuses them, or they can't be a view's, the text stays whole, so that the error is that of the
    statement.
    """
    if dialect != "duckdb" or PARAMETERS in views:
        return text, views
    found = constants_of(text, PARAMETERS)
    if found is None:
        return text, views
    statement, values = found
    try:
        rows = client.run(client.context.engine.query(values, {}, {}, {}))
        rows = source_rows(rows, PARAMETERS)
    except InvalidOperation:
        return text, views
    return statement, {**views, PARAMETERS: rows}


def run_insert(
    executor: Executor[Frame],
    statement: InsertStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> OperationResult:
    """Insert the rows of a query, in the form of INSERT that the statement has."""
    if statement.by_name or statement.partition:
        with executor.verb_scope("insert", statement.table):
            _, layout = executor.begin_write_into(statement.table, "insert")
        statement = _in_partition(statement, layout, executor.dialect)
        used = _used(executor, statement.source.sql, params)
        if statement.by_name:
            statement = _by_name(statement, executor.schema_of_query(statement.source, used, views))
    if statement.replaced is None:
        return executor.insert(statement, params, views)
    return _insert_over(executor, statement, params, views)


def _in_partition(statement: InsertStatement, layout: Layout, dialect: Dialect) -> InsertStatement:
    """Add the columns of a PARTITION clause to the query, or move them to its end.

    PARTITION (day = ...) adds a column with that value; PARTITION (day) takes the query's last
    column.
    """
    given = statement.partition
    if not given:
        return statement
    refuse_unknown(tuple(given), layout.schema, layout.table, "name another")
    keys = {name.lower() for name in given}
    if (columns := statement.columns) is not None and keys & {name.lower() for name in columns}:
        raise InvalidOperation(
            f"insert into {layout.table}: {', '.join(given)} is in PARTITION and in the list of "
            "columns: name it once"
        )
    fixed = {name: value for name, value in given.items() if value is not None}
    if not fixed and statement.replaced is not None:
        _refuse_other(layout, keys)
    others = columns or tuple(name for name in layout.schema.names if name.lower() not in keys)
    source = statement.source
    if fixed:
        named = [f"({value}) AS {quoted(name, dialect)}" for name, value in fixed.items()]
        text = f"SELECT *, {', '.join(named)} FROM ({source.sql}) AS {_ROWS}"
        source = select_of(text, None, dialect)
    names = None if statement.by_name else (*others, *given)
    return replace(statement, columns=names, source=source, partition={})


def _refuse_other(layout: Layout, keys: set[str]) -> None:
    """Refuse PARTITION (...) without values unless it names exactly the partition columns."""
    plain = layout.partition_by or tuple(part.spelled for part in layout.partition_fields)
    if {name.lower() for name in plain} != keys:
        raise InvalidOperation(
            f"insert into {layout.table}: PARTITION without values names all columns that the "
            f"table is partitioned by, which are {', '.join(plain) or 'none'}",
            table=layout.table,
        )


def _by_name(statement: InsertStatement, found: pa.Schema) -> InsertStatement:
    names = [name.lower() for name in found.names]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise InvalidOperation(
            f"insert into {statement.table} BY NAME: the query has two columns {twice!r}: give "
            "them different names",
            table=statement.table,
        )
    return replace(statement, columns=tuple(found.names), by_name=False)


def _insert_over(
    executor: Executor[Frame],
    statement: InsertStatement,
    params: dict[str, object],
    views: dict[str, object],
) -> OperationResult:
    """Insert the rows of the query in place of others; run the query now, as it may read those."""
    replaced = statement.replaced
    assert replaced is not None
    used = _used(executor, statement.source.sql, params)
    tested = _used(executor, replaced.where or "", params)
    refuse_unused(params, {**used, **tested})
    rows = executor.select(statement.source, used, views)
    literals = has_literals_alone({*statement.source.tables, *views})
    with executor.verb_scope("insert", statement.table):
        location, layout = executor.begin_write_into(statement.table, "overwrite")
        columns = statement.columns or tuple(layout.schema.names)
        refuse_unknown(columns, layout.schema, layout.table, "name another")
        reader = executor.assigned_rows(layout, columns, rows, literals=literals)
        where = _replaced_where(executor, replaced.where, tested, layout)
        return executor.run_verb(
            overwrite(
                executor.state,
                location,
                reader,
                None if where is None else exact(where, layout.schema),
                by_partition=replaced.by_partition,
            )
        )


def _replaced_where(
    executor: Executor[Frame], text: str | None, params: dict[str, object], layout: Layout
) -> Expr | None:
    if text is None:
        return None
    together = executor.together(params, None, executor.meaning)
    where = together.predicate(text)
    other = other_meaning(together, layout.schema)
    if other is not None:
        raise InvalidOperation(f"replace where: {other}", table=layout.table)
    return where


def _used(executor: Executor[Frame], text: str, params: Mapping[str, object]) -> dict[str, object]:
    used = used_in(text, params, executor.dialect) if text else frozenset()
    return {name: value for name, value in params.items() if name in used}


# -------------------- keys
#
# Idempotency keys of transactions on a branch, compared with the keys in the branch's base.
#
# Functions here run programs on the lake itself, because a branch's programs do not read it.


def outcome_in_base(client: LakeClient, key: str) -> Outcome:
    """Return a key's outcome in the base of a branch; ``expired`` if it is not found there."""
    held, lake = client.context.held, client.lake
    if held is None or lake is None or held.head.epoch is None:
        return Outcome("expired")
    result = lake.run(committed_in_base(lake.context, held.head, key))
    if result is None:
        return Outcome("expired")
    return Outcome("committed", client.named(result))


def refuse_in_base(client: LakeClient, key: str) -> None:
    """Refuse a key that was committed before the branch was made. Raises ``AlreadyCommitted``."""
    result = outcome_in_base(client, key).result
    if result is not None:
        raise AlreadyCommitted(
            f"idempotency key {key!r} was committed by transaction {result.id} before branch "
            f"{client.branch!r} was made: nothing is left to do",
            result=result,
            txn_id=result.id,
        )
