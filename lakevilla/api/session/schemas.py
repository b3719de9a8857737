"""Make, change, drop and show schemas, the directories of tables."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.api.client.names import resolve
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.schemas import (
    AlteredSchema,
    DroppedSchema,
    MadeSchema,
    made_schemas,
    namespace_of,
)
from lakevilla.api.execution.views import may_have_views
from lakevilla.api.frame import Frame
from lakevilla.api.reads import Reads
from lakevilla.api.transaction import Transaction
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.namespaces import Properties
from lakevilla.sql.catalog import HIGHEST, CatalogRead, NameRange
from lakevilla.sql.statements.script.schemas import AlterSchema, CreateSchema, DropSchema
from lakevilla.sql.statements.select import MAIN_SCHEMA
from lakevilla.store.location import is_external
from lakevilla.transaction.verbs.catalog.rows import catalog_rows, view_rows

__all__ = ["change_schema", "known_schemas", "properties_of_schema"]


def change_schema(txn: Transaction[Frame], node: CreateSchema | AlterSchema | DropSchema) -> None:
    """Perform a statement that makes, changes or drops a schema."""
    match node:
        case CreateSchema():
            _create(txn._executor, node)
        case AlterSchema(name=name, updates=updates, removals=removals):
            executor = txn._executor
            name = _checked(executor, name)
            properties_of_schema(txn, name)  # it exists
            executor.change_schema(AlteredSchema(name, updates, removals))
        case DropSchema():
            _drop(txn, node)


def known_schemas(state: Reads[Frame]) -> dict[str, Properties]:
    """Return the schemas of a state by name, sorted, with their properties.

    A schema was made by name, or is the directory of a table or a view.
    """
    executor = state._executor
    made = made_schemas(executor.client, executor.schema_changes)
    directories = {name.rpartition("/")[0] for name in _tables(executor, NameRange())}
    names = {MAIN_SCHEMA, *made, *directories} - {""}
    return {name: made.get(name, {}) for name in sorted(names)}


def properties_of_schema(state: Reads[Frame], name: str) -> Properties:
    """Return the properties of one schema.

    Raises
    ------
    InvalidOperation
        There is none of that name.
    """
    executor = state._executor
    name = _checked(executor, name)
    made = made_schemas(executor.client, executor.schema_changes)
    if name not in made and name != MAIN_SCHEMA and not _below(executor, name, made):
        raise _missing(name)
    return made.get(name, {})


def _create(executor: Executor[Frame], node: CreateSchema) -> None:
    name = _checked(executor, node.name)
    if not node.exist_ok:
        made = made_schemas(executor.client, executor.schema_changes)
        if name == MAIN_SCHEMA or name in made or any(_tables(executor, _within(name))):
            raise InvalidOperation(
                f"schema {name} already exists: write CREATE SCHEMA IF NOT EXISTS {name}"
            )
    if name != MAIN_SCHEMA:
        executor.change_schema(MadeSchema(name, node.properties))


def _drop(txn: Transaction[Frame], node: DropSchema) -> None:
    executor = txn._executor
    name = _checked(executor, node.name)
    if name == MAIN_SCHEMA:
        raise InvalidOperation(
            f"schema {MAIN_SCHEMA} can't be dropped: it has the tables without a directory"
        )
    made = made_schemas(executor.client, executor.schema_changes)
    tables = _tables(executor, _within(name))
    schemas = [one for one in made if one.startswith(f"{name}/")]
    if not (tables or schemas or name in made):
        if node.missing_ok:
            return
        raise _missing(name)
    if (tables or schemas) and not node.cascade:
        first = (tables or schemas)[0]
        raise InvalidOperation(
            f"schema {name} is not empty, {first} is in it: DROP SCHEMA {name} CASCADE drops its "
            "tables, too"
        )
    with executor.whole_or_undone():
        for table in tables:
            txn._drop(table)
        for schema in (*schemas, name):
            executor.change_schema(DroppedSchema(schema))


def _below(executor: Executor[Frame], name: str, made: Iterable[str]) -> bool:
    """Return whether a schema has tables, views or schemas."""
    return any(one.startswith(f"{name}/") for one in made) or bool(_tables(executor, _within(name)))


def _within(name: str) -> NameRange:
    return NameRange(f"{name}/", f"{name}/{HIGHEST}")


def _tables(executor: Executor[Frame], names: NameRange) -> list[str]:
    """Return the names of the tables and views that the transaction sees, which is observed."""
    read = CatalogRead("tables", names, columns=("name",))
    with executor.verb_scope("schema"):
        found = executor.run(catalog_rows(executor.state, read))["name"].to_pylist()
        if may_have_views(executor):
            found = sorted([*found, *executor.run(view_rows(executor.state, names))])
    return [name for name in found if name in names and not is_external(name)]


def _checked(executor: Executor[Frame], name: str) -> str:
    """Return the name of a schema; refuse one that no table's directory can have."""
    name = resolve(executor.client.root, {}, name)
    if is_external(name):
        raise InvalidOperation(f"schema {name} is outside of the lake: name a directory below it")
    namespace_of(name)
    return name


def _missing(name: str) -> InvalidOperation:
    return InvalidOperation(f"schema {name} does not exist: SHOW SCHEMAS lists those there are")
