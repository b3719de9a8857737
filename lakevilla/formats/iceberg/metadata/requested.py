"""The first definition of a table, as an Iceberg REST client asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic import ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC as _UNPARTITIONED
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.typedef import IcebergBaseModel

from lakevilla.errors import CorruptObject, InvalidOperation
from lakevilla.formats.iceberg.metadata.changes import (
    FORMAT_VERSION,
    new_properties,
    refuse_ambiguous,
    refuse_empty,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import decode_metadata
from lakevilla.formats.iceberg.metadata.schema import nested_fields
from lakevilla.formats.iceberg.metadata.updates import said

_Json = dict[str, Any]

#: The values of a field in older files, and in new rows that lack it.
_DEFAULTS = ("initial-default", "write-default")


class TableWish(msgspec.Struct, frozen=True, rename="kebab"):
    """A table that a client wants made; parts as the REST specification has them."""

    name: str
    schema: dict[str, Any]
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    properties: dict[str, str] = {}


def requested_metadata(
    blank: IcebergDefinition, wish: TableWish, uri: str, table_id: str
) -> dict[str, Any]:
    """Return the first metadata of a table at ``uri``, with ids of its own for all fields.

    Raises
    ------
    InvalidOperation
        Schema, partition spec, sort order or properties are not valid, or do not fit each other.
    UnsupportedTableFeature
        LakeVilla does not do what a property requires of every writer.
    """
    version, properties = new_properties(wish.properties, blank.table)
    refuse_empty(wish.schema.get("fields"), blank.table)
    spec, order = wish.partition_spec, wish.write_order
    try:
        wished = Schema.model_validate(wish.schema)
        made = new_table_metadata(
            schema=wished,
            partition_spec=PartitionSpec.model_validate(spec) if spec else _UNPARTITIONED,
            sort_order=SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            location=uri,
            properties=properties,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidOperation(
            f"table {blank.table} can't be made: {_said(error)}", table=blank.table
        ) from None
    parts = _json(made)
    parts |= {"table-uuid": table_id, FORMAT_VERSION: version}
    (schema,) = parts["schemas"]
    # docs/upstream.md, "Default values of a new table's fields are lost"
    schema["fields"] = _with_defaults(schema["fields"], _json(wished)["fields"])
    if version == 3:
        parts["next-row-id"] = 0
    else:
        _refuse_defaults(schema["fields"], blank.table)
    return parts


def checked_definition(blank: IcebergDefinition, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition in the first metadata of a table.

    Raises
    ------
    InvalidOperation, UnsupportedTableFeature
        LakeVilla could not write the table.
    """
    try:
        definition = decode_metadata("", blank.table, msgspec.json.encode(parts)).definition
        replaced = blank.replaced(definition)
        refuse_ambiguous(replaced)
        replaced.check_writable()
    except CorruptObject as error:
        raise InvalidOperation(error.message, table=blank.table) from None
    return definition


def _json(model: IcebergBaseModel) -> dict[str, Any]:
    parts: dict[str, Any] = msgspec.json.decode(model.model_dump_json())
    return parts


def _with_defaults(fields: Sequence[_Json], wished: Sequence[_Json]) -> list[_Json]:
    """Return fields with the default values of the same ones, in the same order, as wished."""
    return [
        {
            **field,
            "type": _with_defaults_within(field["type"], wish["type"]),
            **{name: wish[name] for name in _DEFAULTS if wish.get(name) is not None},
        }
        for field, wish in zip(fields, wished, strict=True)
    ]


def _with_defaults_within(kind: Any, wished: Any) -> Any:
    if not isinstance(kind, Mapping):
        return kind
    if "fields" in kind:
        return {**kind, "fields": _with_defaults(kind["fields"], wished["fields"])}
    parts = [name for name in ("element", "key", "value") if name in kind]
    return {**kind, **{name: _with_defaults_within(kind[name], wished[name]) for name in parts}}


def _refuse_defaults(fields: Sequence[_Json], table: str) -> None:
    for field in (*fields, *(one for _, one in nested_fields(fields))):
        if any(field.get(name) is not None for name in _DEFAULTS):
            raise InvalidOperation(
                f"table {table} can't be made: column {field['name']} has a default value, which "
                "Iceberg has since version 3: set the property format-version to 3",
                table=table,
            )


def _said(error: Exception) -> str:
    """Return the first faults of a request's parts, by their places."""
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False, include_input=False)[:3]
        places = [".".join(map(str, one["loc"])) for one in faults]
        found = zip(places, faults, strict=True)
        return "; ".join(f"{place}: {one['msg']}" if place else one["msg"] for place, one in found)
    return said(error)
