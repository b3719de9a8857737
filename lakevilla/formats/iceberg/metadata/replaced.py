"""A table defined anew, as one just made, with the ids that it has given out before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.alteration import NewDefinition
from lakevilla.formats.base import REPLACED, VOIDED, Change, replaced_once_more
from lakevilla.formats.iceberg.metadata.changes import (
    FORMAT_VERSION,
    partition_fields,
    refuse_twice,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.name_mapping import with_fields
from lakevilla.formats.iceberg.metadata.properties import check_settable
from lakevilla.formats.iceberg.metadata.schema import Field, arrow_schema, iceberg_fields

#: Properties that a table keeps for good: what files are read by.
_LASTING = ("schema.name-mapping.default", VOIDED)
_UNSORTED = {"order-id": 0, "fields": []}


def replace_definition(definition: IcebergDefinition, wanted: NewDefinition) -> Change:
    """The change after which the table is as one just made, without rows."""
    definition.check_writable()
    table, had = definition.table, definition.document
    if wanted.constraints:
        raise InvalidOperation(
            f"table {table} is an Iceberg table, and Iceberg has no CHECK constraints: leave them "
            "out, or keep the rows in a Delta table",
            table=table,
        )
    fields, last = _fields(definition, wanted.schema)
    parts = partition_fields(fields, wanted.partition_by, table)
    properties = {str(name): str(value) for name, value in wanted.properties.items()}
    version = properties.pop(FORMAT_VERSION, str(had["format-version"]))
    if version != str(had["format-version"]):
        raise InvalidOperation(
            f"table {table} has format-version {had['format-version']}, and keeps it", table=table
        )
    check_settable(properties, table)
    kept = {key: had_ for key, had_ in definition.properties.items() if key in _LASTING}
    properties = {**kept, **properties, REPLACED: replaced_once_more(definition.properties)}
    document = {
        **had,
        "last-column-id": last,
        "properties": with_fields(properties, fields, table),
        **_listed(had["schemas"], "schemas", "schema-id", {"type": "struct", "fields": fields}),
        **_spec(had, parts),
        "sort-orders": [
            *([] if _UNSORTED in had["sort-orders"] else [_UNSORTED]),
            *had["sort-orders"],
        ],
        "default-sort-order-id": 0,
    }
    document["current-schema-id"] = document.pop("schema-id")
    document["default-spec-id"] = document.pop("spec-id")
    definition.replaced(document).check_writable()
    return Change(metadata=document)


def _fields(definition: IcebergDefinition, schema: pa.Schema) -> tuple[list[Field], int]:
    """The columns, those that stay with their ids; the last id used."""
    table = definition.table
    if not len(schema):
        raise InvalidOperation(
            f"table {table} has no columns; give a schema with some", table=table
        )
    refuse_twice(schema.names, table)
    before = {str(field["name"]).lower(): field for field in definition.fields}
    last = int(definition.document["last-column-id"])
    found: list[Field] = []
    for column in schema:
        (made,), after = iceberg_fields(pa.schema([column]), table, last)
        old = before.get(column.name.lower())
        same = old is not None and arrow_schema([old], table).field(0).type == (
            arrow_schema([made], table).field(0).type
        )
        if old is not None and same:
            found.append({**made, "id": old["id"], "name": old["name"], "type": old["type"]})
        else:
            found.append(made)
            last = after
    return found, last


def _listed(
    had: Sequence[dict[str, Any]], name: str, number: str, wanted: dict[str, Any]
) -> dict[str, Any]:
    """A list with what is wanted in it, and its number: that of an equal one, if it had one."""
    for one in had:
        if {key: value for key, value in one.items() if key != number} == wanted:
            return {name: list(had), number: one.get(number, 0)}
    new = max(one.get(number, 0) for one in had) + 1
    return {name: [*had, {**wanted, number: new}], number: new}


def _spec(had: dict[str, Any], parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The partition specs; a field that any of them had before keeps its id."""
    specs = had["partition-specs"]
    known = {_identity(part): part["field-id"] for spec in specs for part in spec["fields"]}
    last, found = int(had["last-partition-id"]), []
    for part in parts:
        number = known.get(_identity(part))
        if number is None:
            last += 1
            number = last
        found.append({**part, "field-id": number})
    return {
        "last-partition-id": last,
        **_listed(specs, "partition-specs", "spec-id", {"fields": found}),
    }


def _identity(part: dict[str, Any]) -> tuple[object, ...]:
    return part.get("source-id"), part["transform"], part["name"]
