"""Perform the statements of a session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NoReturn

import pyarrow as pa

from lakevilla.api.execution.catalog import with_catalog
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.replacing import Place, is_there, place_of, replace_table
from lakevilla.api.execution.views import make_view, refuse_kind
from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.session.explaining import explained
from lakevilla.api.session.planning import Given, Host
from lakevilla.api.session.savepoints import perform_savepoint
from lakevilla.api.session.schemas import change_schema, properties_of_schema
from lakevilla.api.session.telling import asked, described, rows_of, shown
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation, RefExists, RefNotFound, TableExists, TableNotFound
from lakevilla.formats.base import FormatName
from lakevilla.formats.views import ViewDefinition
from lakevilla.results import OperationResult
from lakevilla.sql.statements.script.control import Release, RollbackTo, Savepoint
from lakevilla.sql.statements.script.definitions import (
    AlterTable,
    CommentOn,
    CreateTable,
    DropTable,
    RenameTable,
    Truncate,
)
from lakevilla.sql.statements.script.parsing import OfRows, Parsed, Separate
from lakevilla.sql.statements.script.refs import CreateRef, DropRef, Marked, MergeBranch, UseBranch
from lakevilla.sql.statements.script.schemas import AlterSchema, CreateSchema, DropSchema
from lakevilla.sql.statements.script.showing import (
    Describe,
    DescribeSchema,
    Explain,
    OptimizeTable,
    Show,
    VacuumTable,
)
from lakevilla.sql.statements.script.views import CreateView, DropView
from lakevilla.sql.statements.select import Select
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.create_table import whole_or_not_at_all
from lakevilla.transaction.verbs.read_write import layout_of

__all__ = [
    "perform",
    "tell",
    "run_separately",
    "create_table",
]

# -------------------- performing
#
# Perform one statement by the verbs of a transaction.


_PROPERTIES = pa.schema([("name", pa.string()), ("value", pa.string())])


def tell(state: Reads[Frame], statement: Parsed, given: Given[Frame]) -> Frame:
    """Return the rows of a statement that only reads, in a transaction or a snapshot."""
    match statement.node:
        case OfRows():
            text = statement.text
            views = given.views_of(statement, state._executor)
            return asked(state, text, given.params_of(text), views)
        case Show() as node:
            return shown(state, node, given.lake, given.settings)
        case Describe() as node:
            return described(state, node, given.lake)
        case DescribeSchema(name=name):
            properties = properties_of_schema(state, name)
            return rows_of(state, _PROPERTIES, [("name", name), *sorted(properties.items())])
        case Explain() as node:
            return explained(state, node, statement, given)
        case node:
            raise InvalidOperation(f"{type(node).__name__} can't be read")


def perform(
    txn: Transaction[Frame], statement: Parsed, given: Given[Frame]
) -> Frame | OperationResult | None:
    """Perform a statement and return its result, which is None for changes of definitions."""
    match statement.node:
        case OfRows(reads=False, statement=known):
            text = statement.text
            views = given.views_of(statement, txn._executor)
            return txn._sql(text, given.params_of(text), views, known)
        case (
            CreateTable()
            | DropTable()
            | AlterTable()
            | RenameTable()
            | CommentOn()
            | CreateView()
            | DropView()
        ) as node:
            _define(txn, node, statement, given)
            return None
        case Truncate(name=name):
            return txn.delete(name, "true")
        case CreateSchema() | AlterSchema() | DropSchema() as node:
            change_schema(txn, node)
            return None
        case Savepoint() | RollbackTo() | Release() as node:
            perform_savepoint(txn, node)
            return None
        case _:
            return tell(txn, statement, given)


def _define(
    txn: Transaction[Frame],
    node: CreateTable | DropTable | AlterTable | RenameTable | CommentOn | CreateView | DropView,
    statement: Parsed,
    given: Given[Frame],
) -> None:
    """Perform a statement that changes the definition of a table or a view."""
    match node:
        case CreateTable() as node:
            text = "" if node.query is None else node.query.sql
            views = given.views_of(statement, txn._executor)
            create_table(txn, node, given.params_of(text), views)
        case CreateView() as node:
            view = ViewDefinition(node.query.sql, node.columns, txn._executor.dialect)
            make_view(
                txn._executor,
                node.name,
                view,
                comment=node.comment,
                exist_ok=node.exist_ok,
                replaces=node.replaces,
            )
        case (
            DropTable(name=name, missing_ok=missing_ok)
            | DropView(name=name, missing_ok=missing_ok) as node
        ):
            kind: Literal["table", "view"] = "view" if isinstance(node, DropView) else "table"
            try:
                refuse_kind(txn._executor, name, kind)
                txn._drop(name)
            except TableNotFound:
                if missing_ok:
                    return
                if kind == "table":
                    raise
                raise TableNotFound(
                    f"view {name} does not exist: information_schema.views lists the views",
                    table=name,
                ) from None
        case AlterTable(name=name, changes=changes):
            txn.alter(name, **changes)
        case RenameTable(name=name, new=new):
            txn.rename_table(name, new)
        case CommentOn(name=name, text=text, column=str(column)):
            txn.alter(name, set_comments={column: text})
        case CommentOn(name=name, text=None):
            txn.alter(name, unset_properties=["comment"])
        case CommentOn(name=name, text=text):
            txn.alter(name, set_properties={"comment": str(text)})


# -------------------- separately
#
# Statements that take effect by themselves, outside of transactions: branches, tags and upkeep.


_MERGED = pa.schema([("table", pa.string()), ("change", pa.string())])
_FILES = pa.schema([("path", pa.string())])
_OPTIMIZED = ("files_added", "files_removed", "bytes_added", "bytes_removed", "partitions")


def run_separately(
    lake: Host[Frame], node: Separate, features: Feature | None = None
) -> Frame | None:
    """Perform a statement that takes effect by itself; return its result as rows.

    ``features`` are those of the session's transactions. OPTIMIZE has them where they can commit
    through HEAD.
    """
    match node:
        case CreateRef():
            _create(lake, node)
        case DropRef():
            _drop(lake, node)
        case MergeBranch(name=name, delete=delete):
            merged = lake.merge(name, delete=delete)
            return rows_of(lake.snapshot(), _MERGED, sorted(merged.tables.items()))
        case OptimizeTable(table=table, where=where, z_order_by=columns):
            through_head = Feature.I | Feature.CT
            if features is None or not features & through_head:
                features = Feature.R | Feature.I
            done = lake.table(table).optimize(where, z_order_by=columns, features=features)
            schema = pa.schema([(name, pa.int64()) for name in _OPTIMIZED])
            counts = [getattr(done, name) for name in _OPTIMIZED]
            return rows_of(lake.snapshot(), schema, [counts])
        case VacuumTable(table=table, hours=hours, dry_run=dry_run):
            files = lake.table(table).vacuum(hours, dry_run)
            return rows_of(lake.snapshot(), _FILES, [(path,) for path in files])
        case UseBranch():
            raise AssertionError("the session performs USE itself")
    return None


def _create(lake: Host[Frame], node: CreateRef) -> None:
    assert not isinstance(node.at, Marked), "the session has looked it up"
    try:
        (lake.branch if node.kind == "branch" else lake.tag)(node.name, node.at)
    except RefExists:
        if not node.exist_ok or _kind(lake, node.name) != node.kind:
            raise


def _drop(lake: Host[Frame], node: DropRef) -> None:
    try:
        kind = _kind(lake, node.name)
        if kind not in (None, node.kind):
            _refuse_kind(node, str(kind))
        lake.delete_ref(node.name)
    except RefNotFound:
        if not node.missing_ok:
            raise


def _kind(lake: Host[Frame], name: str) -> str | None:
    return next((ref.kind for ref in lake.refs() if ref.name == name), None)


def _refuse_kind(node: DropRef, kind: str) -> NoReturn:
    raise InvalidOperation(f"{node.name!r} is a {kind}, and no {node.kind}: DROP {kind.upper()} it")


# -------------------- creating
#
# CREATE TABLE: create a table with its rows and its constraints as a whole, or not at all.


def create_table(
    txn: Transaction[Frame],
    node: CreateTable,
    params: Mapping[str, object],
    views: Mapping[str, object] | None,
) -> None:
    """Create the table; with IF NOT EXISTS, leave an existing table of that name unchanged."""
    executor = txn._executor
    if node.like is not None:
        node = _like(executor, node, node.like)
    location = executor.resolve(node.name, also_renamed=True)
    place = place_of(executor, node.name, replaces=node.replaces)
    if place is not None:
        _replace(txn, node, params, views, place)
        return
    try:
        with executor.as_one(), whole_or_not_at_all(executor.state, location):
            _create_table(txn, node, params, views)
    except TableExists:
        # A dropped or renamed table can hold the name although no table of that name exists.
        if not (node.exist_ok and is_there(executor, node.name)):
            raise


def _like(executor: Executor[Frame], node: CreateTable, other: str) -> CreateTable:
    """Return the statement with the columns, constraints and partitions of the other table."""
    with executor.verb_scope("open", other):
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
    """Define the table again; run the query first, since it may read the replaced rows."""
    rows: object = node.columns
    if node.query is not None:
        rows = txn.sql(node.query.sql, params, views=views)
    with txn._executor.verb_scope("create_table", node.name), place.block:
        replace_table(
            txn._executor,
            node.name,
            rows,
            format=node.format,
            partition_by=node.partition_by,
            properties=node.properties,
            constraints=node.constraints,
            place=place,
        )


def _create_table(
    txn: Transaction[Frame],
    node: CreateTable,
    params: Mapping[str, object],
    views: Mapping[str, object] | None,
) -> None:
    executor, query = txn._executor, node.query
    columns: object = node.columns
    filled = query is not None and executor.dialect == "duckdb"
    if query is not None:
        # The rows are added by an INSERT, which is redone if other transactions change the rows
        # that its query reads. With Spark, operations with queries are not redone: there the rows
        # are read now.
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
    """Return the columns of a query; no row of it counts as seen."""
    query, views = with_catalog(executor, executor.dialect, query, params, views)
    return executor.schema_of_query(query, params, views)
