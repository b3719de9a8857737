"""The first entry of a table: its schema, protocol and properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import Change
from lakevilla.formats.delta.columns import MAX_COLUMN_ID, assign_ids, materialized_name
from lakevilla.formats.delta.protocol import READER_FEATURES, WRITER_FEATURES, protocol_of
from lakevilla.formats.delta.schema import (
    Field,
    delta_fields,
    encode_schema,
    mapping_mode,
    needed_features,
)

__all__ = ["create_table", "features_of", "split_properties"]


def create_table(
    table: str,
    schema: pa.Schema,
    *,
    table_id: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    created_ms: int,
) -> Change:
    """The change that creates a table. Raises ``InvalidOperation``."""
    fields = delta_fields(schema, table)
    if not fields:
        raise InvalidOperation(
            f"table {table} has no columns; give a schema with some", table=table
        )
    partitions = _partition_columns(fields, partition_by, table)
    configuration, features = split_properties(properties, table)
    mode = mapping_mode(configuration, table)
    if mode != "none":
        fields, last = assign_ids(fields, table_id, 0)
        configuration[MAX_COLUMN_ID] = str(last)
    features |= features_of(fields, configuration)
    if configuration.get("delta.enableRowTracking", "").lower() == "true":
        for part in ("RowId", "RowCommitVersion"):
            key = f"delta.rowTracking.materialized{part}ColumnName"
            configuration.setdefault(key, materialized_name(table_id, part))
    metadata: dict[str, Any] = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": encode_schema(fields),
        "partitionColumns": list(partitions),
        "createdTime": created_ms,
        "configuration": configuration,
    }
    return Change(metadata=metadata, protocol=protocol_of(features))


def _partition_columns(
    fields: Sequence[Field], partition_by: Sequence[str], table: str
) -> tuple[str, ...]:
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


# Properties that stand for a feature when they are set to this value.
_FEATURE_OF_FLAG = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
}

_REFUSED = {
    "delta.setTransactionRetentionDuration": "the log would forget what LakeVilla has published",
}


def split_properties(properties: Mapping[str, str], table: str) -> tuple[dict[str, str], set[str]]:
    """Properties to store, and features asked for by ``delta.feature.<name> = supported``."""
    configuration: dict[str, str] = {}
    features: set[str] = set()
    for key, value in properties.items():
        if key in _REFUSED:
            raise InvalidOperation(
                f"property {key} cannot be set on table {table}: {_REFUSED[key]}; leave it out",
                table=table,
            )
        name = key.removeprefix("delta.feature.")
        if name != key:
            if name not in WRITER_FEATURES | READER_FEATURES:
                raise InvalidOperation(
                    f"LakeVilla does not know the delta table feature {name!r}; leave it out of "
                    f"the properties of table {table}",
                    table=table,
                )
            features.add(name)
        elif key in ("delta.minReaderVersion", "delta.minWriterVersion"):
            raise InvalidOperation(
                f"property {key} of table {table}: name features instead, delta.feature.<name> = "
                "supported",
                table=table,
            )
        else:
            configuration[key] = str(value)
    return configuration, features


def features_of(fields: Iterable[Field], configuration: Mapping[str, str]) -> set[str]:
    """The features that a schema and its properties need."""
    found = needed_features(list(fields))
    for key, value in configuration.items():
        if value.lower() == "true" and key in _FEATURE_OF_FLAG:
            found.add(_FEATURE_OF_FLAG[key])
        if key.startswith("delta.constraints."):
            found.add("checkConstraints")
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        found.add("columnMapping")
    if configuration.get("delta.checkpointPolicy", "classic").lower() == "v2":
        found.add("v2Checkpoint")
    return found
