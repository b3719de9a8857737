"""The first definition of a table, as an Iceberg REST client asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC as _UNPARTITIONED
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.metadata.changes import (
    FORMAT_VERSION,
    new_properties,
    refuse_ambiguous,
    refuse_empty,
)
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import decode_metadata


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
        made = new_table_metadata(
            schema=Schema.model_validate(wish.schema),
            partition_spec=PartitionSpec.model_validate(spec) if spec else _UNPARTITIONED,
            sort_order=SortOrder.model_validate(order) if order else UNSORTED_SORT_ORDER,
            location=uri,
            properties=properties,
        )
    except (ValidationError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidOperation(
            f"table {blank.table} can't be made: {str(error).strip()}", table=blank.table
        ) from None
    parts: dict[str, Any] = msgspec.json.decode(made.model_dump_json())
    parts |= {"table-uuid": table_id, FORMAT_VERSION: version}
    if version == 3:
        parts["next-row-id"] = 0
    return parts


def checked_definition(blank: IcebergDefinition, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition in the first metadata of a table.

    Raises
    ------
    InvalidOperation, UnsupportedTableFeature
        LakeVilla could not write the table.
    """
    definition = decode_metadata("", blank.table, msgspec.json.encode(parts)).definition
    replaced = blank.replaced(definition)
    refuse_ambiguous(replaced)
    replaced.check_writable()
    return definition
