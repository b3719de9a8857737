"""Schemas of Delta tables, and column mapping."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Literal

import msgspec
import pyarrow as pa

from lakevilla.arrow.nesting import document
from lakevilla.errors import CorruptObject, InvalidOperation, UnsupportedTableFeature

# -------------------- schema
#
# Delta's ``schemaString`` and pyarrow schemas, both ways, and column mapping.
#
# The JSON schema is authoritative: it carries ids, physical names, comments and
# invariants, for which Arrow has no place. Arrow schemas are made from it, in
# logical or physical names, and new columns are made from Arrow.


MappingMode = Literal["none", "name", "id"]
Field = dict[str, Any]

ID = "delta.columnMapping.id"
PHYSICAL = "delta.columnMapping.physicalName"
INVARIANT = "delta.invariants"

_ARROW_ID = "PARQUET:field_id"
#: Spark's and delta-kernel's name for the field id, where no column is mapped by id.
_FIELD_ID = "parquet.field.id"

_FROM_NAME: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}

# Arrow types that a Delta type holds without loss.
_TO_NAME: dict[pa.DataType, str] = {
    **{kind: name for name, kind in _FROM_NAME.items() if name != "void"},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.float16(): "float",
    pa.date64(): "date",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
}

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")


def parse_schema(text: object, table: str) -> list[Field]:
    """Return the fields of a ``schemaString``.

    Raises
    ------
    CorruptObject
        It is no schema.
    UnsupportedTableFeature
        It has a type that LakeVilla does not know, or whose values can't be determined.
    """
    try:
        root = document(text if isinstance(text, str | bytes) else b"")
        fields = root["fields"]
        _check_fields(fields, "")
        for field in fields:
            arrow_type(field["type"], lambda f: str(f["name"]), {})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptObject(
            f"table {table} has a schemaString that cannot be read: {error!r}; restore its log",
            table=table,
        ) from None
    except _UnknownType as error:
        raise UnsupportedTableFeature(
            f"table {table} has a column of type {error.args[0]}, which LakeVilla cannot read; "
            "use the client that wrote it",
            table=table,
        ) from None
    except _Ambiguous as error:
        raise UnsupportedTableFeature(
            f"table {table} has {error.args[0]}, which LakeVilla cannot read; use the client that "
            "wrote it, and change the schema there",
            table=table,
        ) from None
    return list(fields)


def _check_fields(fields: Any, prefix: str) -> None:
    """Raise unless this is a list of fields whose names differ even without regard to case."""
    seen: dict[str, str] = {}
    for field in fields:
        name = field["name"]
        path = f"{prefix}{name}"
        if not isinstance(name, str) or not isinstance(field.get("metadata") or {}, dict):
            raise TypeError(f"field {path!r} needs a text as its name, and an object as metadata")
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise _Ambiguous(f"columns {prefix}{other} and {path}, which differ only by case")
        _check_type(field["type"], path)
    if not fields:
        part = f"a struct without fields, {prefix[:-1]}" if prefix else "no columns"
        raise _Ambiguous(part)


def _check_type(kind: Any, path: str) -> None:
    if isinstance(kind, str):
        if kind == "void" and "." in path:
            raise _UnknownType(f"void within another ({path})")
        return
    if kind["type"] == "struct":
        _check_fields(kind["fields"], f"{path}.")
    elif kind["type"] == "array":
        _check_type(kind["elementType"], f"{path}.element")
    elif kind["type"] == "map":
        _check_type(kind["keyType"], f"{path}.key")
        _check_type(kind["valueType"], f"{path}.value")


def encode_schema(fields: list[Field]) -> str:
    """Return the fields as a ``schemaString``."""
    return msgspec.json.encode({"type": "struct", "fields": fields}).decode()


class _UnknownType(Exception):
    pass


class _Ambiguous(Exception):
    pass


def arrow_schema(fields: list[Field], *, physical: bool, mode: MappingMode) -> pa.Schema:
    """Return the fields as an Arrow schema, under logical or physical names.

    Physical fields carry ``PARQUET:field_id`` where the table maps columns; logical fields carry
    the users' metadata, such as comments.
    """
    if not physical:
        return pa.schema([_arrow_field(field, _logical_name, _said_of) for field in fields])
    mapped = mode != "none"
    named, described = (physical_name, _id_of) if mapped else (_logical_name, _nothing_of)
    return pa.schema([_arrow_field(field, named, described) for field in fields])


def physical_name(field: Field) -> str:
    """Return the name of a column in data files, statistics and partition values."""
    return str(field.get("metadata", {}).get(PHYSICAL, field["name"]))


def _logical_name(field: Field) -> str:
    return str(field["name"])


_Metadata = Callable[[Mapping[str, Any]], dict[str, str] | None]


def _nothing_of(metadata: Mapping[str, Any]) -> None:
    return None


def _id_of(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    return {_ARROW_ID: str(metadata[ID])} if ID in metadata else None


def _said_of(metadata: Mapping[str, Any]) -> dict[str, str] | None:
    """Return a field's metadata without the entries of the Delta protocol."""
    said = {
        _ARROW_ID if key == _FIELD_ID else key: value
        if isinstance(value, str)
        else msgspec.json.encode(value).decode()
        for key, value in metadata.items()
        if not key.startswith("delta.")
    }
    return said or None


def _arrow_field(field: Field, named: Callable[[Field], str], described: _Metadata) -> pa.Field:
    metadata = field.get("metadata") or {}
    nested = metadata.get("delta.columnMapping.nested.ids") if described is _id_of else None
    kind = arrow_type(field["type"], named, nested or {}, physical_name(field), described)
    return pa.field(
        named(field), kind, nullable=field.get("nullable", True), metadata=described(metadata)
    )


def arrow_type(
    kind: Any,
    named: Callable[[Field], str],
    nested_ids: Mapping[str, Any],
    prefix: str = "",
    described: _Metadata = _nothing_of,
) -> pa.DataType:
    """Return a Delta type as an Arrow type. ``nested_ids`` are the ids of list and map parts."""
    if isinstance(kind, str):
        known = _FROM_NAME.get(kind)
        if known is not None:
            return known
        decimal = _DECIMAL.fullmatch(kind)
        if decimal and 0 <= int(decimal[2]) <= int(decimal[1]) <= 38 and int(decimal[1]):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind == "decimal":
            return pa.decimal128(10, 0)
        raise _UnknownType(kind)

    def part(name: str, part_kind: Any, nullable: bool) -> pa.Field:
        path = f"{prefix}.{name}"
        metadata = {_ARROW_ID: str(nested_ids[path])} if path in nested_ids else None
        inner = arrow_type(part_kind, named, nested_ids, path, described)
        return pa.field(name, inner, nullable=nullable, metadata=metadata)

    match kind["type"]:
        case "struct":
            return pa.struct([_arrow_field(field, named, described) for field in kind["fields"]])
        case "array":
            return pa.list_(part("element", kind["elementType"], kind.get("containsNull", True)))
        case "map":
            key = part("key", kind["keyType"], False)
            value = part("value", kind["valueType"], kind.get("valueContainsNull", True))
            return pa.map_(key, value)
        case other:
            raise _UnknownType(str(other))


def delta_fields(schema: pa.Schema, table: str) -> list[Field]:
    """Return Arrow fields as Delta's. Raises ``InvalidOperation`` for a type that Delta lacks."""
    seen: dict[str, str] = {}
    for name in schema.names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise InvalidOperation(
                f"columns {other!r} and {name!r} of table {table} differ only by case; rename one",
                table=table,
            )
    return [_delta_field(field, field.name, table) for field in schema]


def _delta_field(field: pa.Field, path: str, table: str) -> Field:
    return {
        "name": field.name,
        "type": _delta_type(field.type, path, table),
        "nullable": field.nullable,
        "metadata": dict(_kept(field.metadata or {}, path, table)),
    }


# Prefixes of field metadata that belongs to the table or file from which the field was read.
_OF_ITS_SOURCE = ("ARROW:", "delta.columnMapping.", "delta.typeChanges", "delta.rowTracking.")


def _kept(metadata: Mapping[bytes, bytes], path: str, table: str) -> Iterator[tuple[str, Any]]:
    """Yield the metadata of an Arrow field, such as a comment, as Delta's field metadata."""
    for raw_key, raw in metadata.items():
        try:
            key, value = raw_key.decode(), raw.decode()
        except UnicodeDecodeError:
            continue  # JSON has no bytes
        if key.startswith(_OF_ITS_SOURCE):
            continue
        if key in _COMPUTED:
            raise UnsupportedTableFeature(
                f"column {path!r} of table {table} requests the delta table feature "
                f"{_COMPUTED[key]} by its metadata {key}, which LakeVilla does not write; leave "
                "it out",
                table=table,
            )
        if key == _ARROW_ID:
            if value.isdecimal():
                yield _FIELD_ID, int(value)
        else:
            yield key, value


def _delta_type(kind: pa.DataType, path: str, table: str) -> Any:
    name = _TO_NAME.get(kind)
    if name is not None:
        return name
    types = pa.types
    if types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_fixed_size_binary(kind):
        return "binary"
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _delta_type(kind.value_type, path, table)
    if isinstance(kind, pa.BaseExtensionType):
        return _delta_type(kind.storage_type, path, table)
    if types.is_struct(kind):
        if kind.num_fields == 0:
            raise InvalidOperation(
                f"column {path!r} of table {table} is a struct without fields, which parquet does "
                "not have; leave it out, or give it a field",
                table=table,
            )
        return {
            "type": "struct",
            "fields": [_delta_field(f, f"{path}.{f.name}", table) for f in kind.fields],
        }
    if types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type, f"{path}.key", table),
            "valueType": _delta_type(kind.item_type, f"{path}.value", table),
            "valueContainsNull": kind.item_field.nullable,
        }
    if (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    ):
        return {
            "type": "array",
            "elementType": _delta_type(kind.value_type, f"{path}.element", table),
            "containsNull": kind.value_field.nullable,
        }
    raise InvalidOperation(
        f"column {path!r} of table {table} has the type {kind}, which delta does not have; "
        "cast it first",
        table=table,
    )


def walk(
    fields: list[Field], prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield every named field, nested ones too, with its logical path; parents first."""
    for field in fields:
        path = (*prefix, str(field["name"]))
        yield path, field
        for inner, inner_path in _inner_structs(field["type"], path):
            yield from walk(inner, inner_path)


def _inner_structs(
    kind: Any, path: tuple[str, ...]
) -> Iterator[tuple[list[Field], tuple[str, ...]]]:
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield kind["fields"], path
    elif kind["type"] == "array":
        yield from _inner_structs(kind["elementType"], (*path, "element"))
    elif kind["type"] == "map":
        yield from _inner_structs(kind["keyType"], (*path, "key"))
        yield from _inner_structs(kind["valueType"], (*path, "value"))


def leaf_paths(
    fields: list[Field], prefix: tuple[str, ...] = (), physical: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield logical and physical path of each leaf column; a list or a map counts as one leaf."""
    for field in fields:
        logical = (*prefix, str(field["name"]))
        stored = (*physical, physical_name(field))
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from leaf_paths(kind["fields"], logical, stored)
        else:
            yield logical, stored


def mapping_mode(properties: Mapping[str, str], table: str) -> MappingMode:
    """Return the mode by which columns are mapped to names in files."""
    match properties.get("delta.columnMapping.mode", "none").lower():
        case "none":
            return "none"
        case "name":
            return "name"
        case "id":
            return "id"
        case other:
            raise UnsupportedTableFeature(
                f"table {table} has delta.columnMapping.mode = {other!r}, which LakeVilla does not "
                "know; upgrade LakeVilla",
                table=table,
            )


def needed_features(fields: list[Field]) -> set[str]:
    """Return the table features that the types and columns of a schema need."""
    found: set[str] = set()
    for _, field in walk(fields):
        if _mentions(field["type"], "timestamp_ntz"):
            found.add("timestampNtz")
        if INVARIANT in (field.get("metadata") or {}):
            found.add("invariants")
    return found


def _mentions(kind: Any, name: str) -> bool:
    if isinstance(kind, str):
        return kind == name
    parts = (kind.get("elementType"), kind.get("keyType"), kind.get("valueType"))
    return any(_mentions(part, name) for part in parts if part is not None)


_COMPUTED = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.identity.step": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}


def check_columns_for_writing(fields: list[Field], table: str) -> None:
    """Refuse columns whose values a writer would have to compute."""
    for path, field in walk(fields):
        for key, feature in _COMPUTED.items():
            if key in (field.get("metadata") or {}):
                raise UnsupportedTableFeature(
                    f"LakeVilla cannot write table {table}: column {'.'.join(path)!r} uses the "
                    f"delta table feature {feature}; write it with the client that defined it",
                    table=table,
                )


# -------------------- column mapping
#
# Column ids and physical names of tables that map columns.
#
# Names are made from the table's id and the column's, not at random: the
# same change made twice makes the same names.


MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"


def assign_ids(fields: list[Field], table_id: str, last: int) -> tuple[list[Field], int]:
    """Give ids above ``last``, and physical names, to the fields that have none."""
    return _assigned(
        fields, last, lambda _, path, number: _name("col", table_id, f"{number}{path}")
    )


def invariant(text: object) -> str | None:
    """Return the condition of an invariant; None if it is bare text, as Databricks has written."""
    try:
        return msgspec.convert(document(text)["expression"]["expression"], str)  # type: ignore[arg-type]
    except (ValueError, KeyError, TypeError):
        return None


def keep_names(fields: list[Field]) -> tuple[list[Field], int]:
    """Return ``fields`` with ids, for a table whose files name columns as its schema does."""
    return _assigned(fields, 0, lambda own, *_: own)


def _assigned(
    fields: list[Field], last: int, name: Callable[[str, str, int], str]
) -> tuple[list[Field], int]:
    """Assign ids above ``last``, and physical names by a field's own name, its path and its id."""

    def one(field: Field, path: str) -> Field:
        nonlocal last
        metadata = dict(field.get("metadata") or {})
        path = f"{path}/{field['name']}"
        if ID not in metadata:
            last += 1
            metadata[ID] = last
            metadata[PHYSICAL] = name(field["name"], path, last)
        return {**field, "type": inner(field["type"], path), "metadata": metadata}

    def inner(kind: Any, path: str) -> Any:
        if isinstance(kind, str):
            return kind
        if kind["type"] == "struct":
            return {**kind, "fields": [one(field, path) for field in kind["fields"]]}
        parts = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
        return {**kind, **{part: inner(kind[part], f"{path}/{part}") for part in parts}}

    return [one(field, "") for field in fields], last


def highest_id(fields: list[Field]) -> int:
    """Return the highest column id in a schema, 0 for none."""
    ids = [(field.get("metadata") or {}).get(ID, 0) for _, field in walk(fields)]
    return max(ids, default=0)


def materialized_name(table_id: str, part: str) -> str:
    """Return the name of a hidden column for materialised row ids or commit versions."""
    return _name("_row-tracking", table_id, part)


def _name(prefix: str, table_id: str, text: str) -> str:
    digest = blake2b(f"{table_id}/{text}".encode(), digest_size=16).hexdigest()
    parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:])
    return f"{prefix}-{'-'.join(parts)}"
