"""Schemas that a transaction makes, changes and drops: once it has committed, it does so.

A schema is the directory part of a table's name. What is stored of one by itself is a namespace
that exists without tables, and its properties; no commit relies on it. So a transaction keeps its
changes of schemas until its commit, sees them, and carries them out afterwards: a transaction that
is undone, or run again, has changed none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakevilla.api.client.client import LakeClient
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.global_log.namespaces import (
    ROOT,
    Namespace,
    Properties,
    change_properties,
    decoded,
    drop_namespace,
    encoded,
    made_namespaces,
    make_namespace,
)
from lakevilla.sql.statements.select import MAIN_SCHEMA

__all__ = [
    "AlteredSchema",
    "DroppedSchema",
    "MadeSchema",
    "SchemaChange",
    "carry_out",
    "made_schemas",
    "namespace_of",
]


@dataclass(frozen=True, slots=True)
class MadeSchema:
    """A schema that the transaction makes."""

    name: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class AlteredSchema:
    """A schema whose properties the transaction changes."""

    name: str
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: frozenset[str] = frozenset()

    def changed(self, known: Properties) -> Properties:
        """Return the properties after the change."""
        return {k: v for k, v in known.items() if k not in self.removals} | dict(self.updates)


@dataclass(frozen=True, slots=True)
class DroppedSchema:
    """A schema of which the transaction drops what is stored."""

    name: str


SchemaChange = MadeSchema | AlteredSchema | DroppedSchema
_WORDS = {MadeSchema: "made", AlteredSchema: "changed", DroppedSchema: "dropped"}


def namespace_of(schema: str) -> Namespace:
    """Return the namespace that a schema of SQL is.

    Raises
    ------
    InvalidOperation
        Iceberg clients call another schema so.
    """
    if schema == MAIN_SCHEMA:
        return ROOT
    namespace = tuple(map(decoded, schema.split("/")))
    if namespace == ROOT:
        raise InvalidOperation(
            f"schema {schema!r} can't be made or changed: Iceberg clients call {MAIN_SCHEMA} so; "
            "choose another name"
        )
    return namespace


def made_schemas(client: LakeClient, changes: Iterable[SchemaChange]) -> dict[str, Properties]:
    """Return the properties of the schemas that were made by name, after the changes."""
    found = client.run(made_namespaces())
    known = {_schema_of(namespace): properties for namespace, properties in found.items()}
    for change in changes:
        match change:
            case MadeSchema(name, properties):
                known[name] = {**known.get(name, {}), **properties}
            case AlteredSchema(name):
                known[name] = change.changed(known.get(name, {}))
            case DroppedSchema(name):
                known.pop(name, None)
    return known


def carry_out(client: LakeClient, changes: list[SchemaChange], txn_id: str) -> None:
    """Carry out the changes of a transaction that has committed, and take them out of the list.

    Raises
    ------
    StoreError
        One could not be carried out; the transaction has committed all the same.
    """
    if changes:
        client.ensure_safe_store()
    while changes:
        change = changes[0]
        try:
            _carry_out(client, change)
        except LakeVillaError as error:
            raise StoreError(
                f"transaction {txn_id} has committed, and schema {change.name} was not "
                f"{_WORDS[type(change)]}: {error.message}; repeat that statement alone",
                txn_id=txn_id,
            ) from error
        changes.pop(0)


def _carry_out(client: LakeClient, change: SchemaChange) -> None:
    namespace, nonce = namespace_of(change.name), client.context.ids.nonce
    match change:
        case MadeSchema(_, properties):
            is_new = client.run(make_namespace(namespace, properties, nonce()))
            if not is_new and properties:
                client.run(change_properties(namespace, lambda old: {**old, **properties}, nonce))
        case AlteredSchema():
            client.run(change_properties(namespace, change.changed, nonce))
        case DroppedSchema():
            client.run(drop_namespace(namespace))


def _schema_of(namespace: Namespace) -> str:
    return MAIN_SCHEMA if namespace == ROOT else "/".join(map(encoded, namespace))
