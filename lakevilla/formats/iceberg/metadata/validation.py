"""Whether a definition is one at all: what the rest of the code takes for granted of it.

Looked at once, when a metadata file is read: a file that another program wrote wrongly is told
by its name, and not by whatever first stumbles over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakevilla.errors import UnsupportedTableFeature


def check_definition(definition: Mapping[str, Any], table: str) -> None:
    """Raise ``ValueError``, saying what is wrong, or ``UnsupportedTableFeature``."""
    _number(definition, "last-column-id", "the table")
    schemas = {}
    for schema in _objects(definition, "schemas", "the table"):
        number = _number({"schema-id": 0, **schema}, "schema-id", "a schema")
        _check_fields(schema, f"schema {number}", table)
        schemas[number] = schema
    specs = {}
    for spec in _objects(definition, "partition-specs", "the table"):
        number = _number(spec, "spec-id", "a partition spec")
        for field in _objects(spec, "fields", f"partition spec {number}"):
            owner = f"a field of partition spec {number}"
            _text(field, "name", owner)
            _text(field, "transform", owner)
            _number(field, "field-id", owner)
            _source(field, owner)
        specs[number] = spec
    for order in _objects(definition, "sort-orders", "the table"):
        number = _number(order, "order-id", "a sort order")
        for field in _objects(order, "fields", f"sort order {number}"):
            _source(field, f"a field of sort order {number}")
    _named(definition, "current-schema-id", schemas)
    _named(definition, "default-spec-id", specs)


def _check_fields(part: Mapping[str, Any], owner: str, table: str) -> None:
    for field in _objects(part, "fields", owner):
        name = _text(field, "name", f"a field of {owner}")
        _number(field, "id", f"column {name!r} of {owner}")
        _check_type(field.get("type"), name, owner, table)


def _check_type(kind: Any, column: str, owner: str, table: str) -> None:
    if isinstance(kind, str):
        return
    if not isinstance(kind, dict):
        raise ValueError(f"column {column!r} of {owner} has no type")
    inner = f"column {column!r} of {owner}"
    match kind.get("type"):
        case "struct":
            _check_fields(kind, inner, table)
        case "list":
            _number(kind, "element-id", inner)
            _check_type(kind.get("element"), column, owner, table)
        case "map":
            for part in ("key", "value"):
                _number(kind, f"{part}-id", inner)
                _check_type(kind.get(part), column, owner, table)
        case other:
            raise UnsupportedTableFeature(
                f"table {table} has column {column} of the Iceberg type {other}, which LakeVilla "
                "does not know: use the client that wrote it",
                table=table,
            )


def _source(field: Mapping[str, Any], owner: str) -> None:
    """Of one column, or of several as version 3 has it."""
    several = field.get("source-ids")
    if several is None or "source-id" in field:
        _number(field, "source-id", owner)
    if several is not None and not (
        isinstance(several, list) and several and all(isinstance(one, int) for one in several)
    ):
        raise ValueError(f"source-ids of {owner} is {several!r}, no list of numbers")


def _named(definition: Mapping[str, Any], name: str, known: Mapping[int, Any]) -> None:
    if _number(definition, name, "the table") not in known:
        raise ValueError(f"it has {name} {definition[name]}, and holds {sorted(known)}")


def _objects(part: Mapping[str, Any], name: str, owner: str) -> list[dict[str, Any]]:
    found = part.get(name)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name} of {owner} is no list of objects")
    return found


def _number(part: Mapping[str, Any], name: str, owner: str) -> int:
    found = part.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{name} of {owner} is {found!r}, no number")
    return found


def _text(part: Mapping[str, Any], name: str, owner: str) -> str:
    found = part.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} of {owner} is {found!r}, no text")
    return found
