"""The first entry of a table: its schema, protocol and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.delta.metadata.properties import (
    CONSTRAINT,
    LINEAGE_PARTS,
    TRACKS,
    features_of,
    lineage_key,
    refuse_suspended,
    split_properties,
)
from lakevilla.formats.delta.metadata.protocol import protocol_of
from lakevilla.formats.delta.metadata.schema import (
    MAX_COLUMN_ID,
    Field,
    arrow_schema,
    assign_ids,
    delta_fields,
    encode_schema,
    mapping_mode,
    materialized_name,
)
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_constraint


def create_table(
    table: str,
    schema: pa.Schema,
    *,
    table_id: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    created_ms: int,
) -> Change:
    """Return the change that creates a table. Raises ``InvalidOperation``."""
    fields = delta_fields(schema, table)
    if not fields:
        raise InvalidOperation(
            f"table {table} has no columns; give a schema with some", table=table
        )
    partitions = partition_columns(fields, partition_by, table)
    configuration, features = split_properties(properties, table)
    mode = mapping_mode(configuration, table)
    if mode != "none":
        fields, last = assign_ids(fields, table_id, 0)
        configuration[MAX_COLUMN_ID] = str(last)
    for key, rule in configuration.items():
        if key.startswith(CONSTRAINT):
            bind(parse_constraint(rule), arrow_schema(fields, physical=False, mode=mode))
    features |= features_of(fields, configuration)
    refuse_suspended(configuration, table)
    if configuration.get(TRACKS, "").lower() == "true":
        for part in LINEAGE_PARTS:
            configuration.setdefault(lineage_key(part), materialized_name(table_id, part))
    metadata: dict[str, Any] = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": encode_schema(fields),
        "partitionColumns": list(partitions),
        "createdTime": created_ms,
        "configuration": configuration,
    }
    return Change(metadata=metadata, protocol=protocol_of(features))


def partition_columns(
    fields: Sequence[Field], partition_by: Sequence[str], table: str
) -> tuple[str, ...]:
    """Return the columns by which a table is partitioned, as its schema spells them.

    Raises ``InvalidOperation``.
    """
    by_name = {field["name"].lower(): field for field in fields}
    names: list[str] = []
    for wanted in partition_by:
        field = by_name.get(wanted.lower())
        if field is None:
            raise InvalidOperation(
                f"partition column {wanted!r} is not in the schema of table {table}; it has "
                + ", ".join(repr(f["name"]) for f in fields),
                table=table,
            )
        if isinstance(field["type"], dict):
            raise InvalidOperation(
                f"column {field['name']!r} of table {table} is a {field['type']['type']}, which "
                "cannot partition a table; choose a plain column",
                table=table,
            )
        if field["name"] in names:
            raise InvalidOperation(
                f"partition column {field['name']!r} of table {table} is named twice", table=table
            )
        names.append(field["name"])
    if len(names) == len(fields):
        raise InvalidOperation(
            f"every column of table {table} is a partition column; leave one for the data files",
            table=table,
        )
    return tuple(names)
