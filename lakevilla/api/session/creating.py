"""CREATE TABLE: a table made, filled and given its rules as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.replacing import Place, is_there, place_of, replace_table
from lakevilla.api.frame import Frame
from lakevilla.api.transaction import Transaction
from lakevilla.errors import TableExists
from lakevilla.formats.base import FormatName
from lakevilla.sql.statements.script.definitions import CreateTable
from lakevilla.sql.statements.select import Select
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = ["create_table"]


def create_table(
    txn: Transaction[Frame],
    node: CreateTable,
    params: Mapping[str, object],
    views: Mapping[str, object] | None,
) -> None:
    """Make the table; IF NOT EXISTS leaves one of that name as it is."""
    executor = txn._executor
    if node.like is not None:
        node = _like(executor, node, node.like)
    location = executor.resolve(node.name, also_renamed=True)
    place = place_of(executor, node.name, replaces=node.replaces)
    if place is not None:
        _replace(txn, node, params, views, place)
        return
    try:
        with whole_or_not_at_all(executor.state, location):
            _create(txn, node, params, views)
    except TableExists:
        # A name can be taken where no table is: of one that was dropped, or renamed.
        if not (node.exist_ok and is_there(executor, node.name)):
            raise


def _like(executor: Executor[Frame], node: CreateTable, other: str) -> CreateTable:
    """The statement with the columns, rules and partitions of the other table."""
    with executor.alone("open", other):
        location = executor.resolve(other)
        layout = executor.run(layout_of(executor.state, location, probing=True))
        own = executor.state.work.tables[location].snapshot.format
    spelled = tuple(part.spelled for part in layout.partition_fields)
    return replace(
        node,
        columns=layout.schema,
        partition_by=layout.partition_by or spelled,
        format=node.format or own,
        constraints={rule.name: rule.sql for rule in layout.constraints},
    )


def _replace(
    txn: Transaction[Frame],
    node: CreateTable,
    params: Mapping[str, object],
    views: Mapping[str, object] | None,
    place: Place,
) -> None:
    """Define the table anew; the query is run now, since it may read the rows that go."""
    rows: object = node.columns
    if node.query is not None:
        rows = txn.sql(node.query.sql, params, views=views)
    with txn._executor.alone("create_table", node.name), place.block:
        replace_table(
            txn._executor,
            node.name,
            rows,
            format=node.format,
            partition_by=node.partition_by,
            properties=node.properties,
            constraints=node.constraints,
            revives=place.revives,
        )


def _create(
    txn: Transaction[Frame],
    node: CreateTable,
    params: Mapping[str, object],
    views: Mapping[str, object] | None,
) -> None:
    executor, query = txn._executor, node.query
    columns: object = node.columns
    filled = query is not None and executor.dialect == "duckdb"
    if query is not None:
        # Its rows come by an INSERT, which is redone if others change what it reads. Spark's jobs
        # are not: there the rows are read now, on the cluster.
        columns = (
            _columns(executor, query, dict(params), dict(views or {}))
            if filled
            else txn.sql(query.sql, params, views=views)
        )
    format: FormatName = "iceberg" if node.format == "iceberg" else "delta"
    txn.create_table(
        node.name,
        columns,
        format=format,
        partition_by=node.partition_by,
        properties=node.properties,
    )
    if query is not None and filled:
        named = node.name.replace('"', '""')
        txn.sql(f'INSERT INTO "{named}" {query.sql}', params, views=views)
    if node.constraints:
        txn.alter(node.name, add_constraints=node.constraints)


def _columns(
    executor: Executor[Frame], query: Select, params: dict[str, object], views: dict[str, object]
) -> pa.Schema:
    """The columns of a query, of which no row counts as seen."""
    query, views = with_catalog(executor, executor.dialect, query, params, views)
    return executor.schema_of_query(query, params, views)
