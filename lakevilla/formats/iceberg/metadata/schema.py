"""Schemas of Iceberg tables, and mappings of names to field ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.arrow.cast import INITIAL_DEFAULT, OF_FIELDS, WRITE_DEFAULT
from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import CorruptObject, InvalidOperation, UnsupportedTableFeature

# -------------------- schema
#
# Iceberg schemas as Arrow schemas, and back.
#
# A schema is the JSON of the metadata file. Three Arrow schemas are made from it: the
# logical one, the same with field ids (as data files have them), and one that names every
# field by its id (as statistics are kept: an id never changes its column).


#: A field of a struct as the spec writes it: ``id``, ``name``, ``required``, ``type``.
Field = dict[str, Any]

_FROM_NAME: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "time": pa.time64("us"),
    "unknown": pa.null(),  # in no file: all values are NULL
}
#: A UUID is 16 bytes everywhere except in data files, which mark it as a UUID.
_UUID = "uuid"
_UUID_BYTES = pa.binary(16)
_TO_NAME: dict[pa.DataType, str] = {
    **{kind: name for name, kind in _FROM_NAME.items() if name != "unknown"},
    pa.int8(): "int",
    pa.int16(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.date64(): "date",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
}
#: Types that are read and not written: no engine here writes files with a ``fixed`` column, or with
#: nanoseconds, as the spec requires. DuckDB cuts those of times in UTC to microseconds.
_READ_ONLY = {"timestamp_ns": pa.timestamp("ns"), "timestamptz_ns": pa.timestamp("us", "UTC")}
_FIXED = re.compile(r"fixed\[\s*(\d+)\s*\]")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_GEO = re.compile(r"(geometry|geography)(\([^()]*\))?")
#: Plain types that came with version 3 of the format, besides geometry and geography.
_SINCE_3 = frozenset({"unknown", "variant", *_READ_ONLY})
_ID = "PARQUET:field_id"


def current_schema(definition: Mapping[str, Any], table: str) -> list[Field]:
    """Return the fields of the current schema. Raises ``CorruptObject``."""
    wanted = definition["current-schema-id"]
    for schema in definition["schemas"]:
        if schema.get("schema-id", 0) == wanted:
            fields: list[Field] = schema["fields"]
            return fields
    raise CorruptObject(
        f"the metadata of table {table} names schema {wanted} as the current one and does not hold "
        "it: restore the metadata file from a copy",
        table=table,
    )


def arrow_schema(
    fields: Sequence[Field], table: str, *, named: Callable[[Field], str] | None = None
) -> pa.Schema:
    """Return the fields as an Arrow schema, under their names or those that ``named`` returns.

    Raises ``UnsupportedTableFeature`` for a type that LakeVilla does not know.
    """
    return pa.schema([_arrow_field(field, named or _own_name, False, table) for field in fields])


def physical_schema(fields: Sequence[Field], table: str) -> pa.Schema:
    """Return the schema of data files: with field ids as Parquet has them."""
    return pa.schema([_arrow_field(field, _own_name, True, table) for field in fields])


def _own_name(field: Field) -> str:
    return str(field["name"])


class LeafField:
    """A column of plain values: its id, the ids that lead to it, and its type."""

    __slots__ = ("field_id", "is_repeated", "path", "type")

    def __init__(self, field_id: int, path: tuple[str, ...], type_: str, is_repeated: bool) -> None:
        self.field_id = field_id
        self.path = path
        self.type = type_
        self.is_repeated = is_repeated


def leaves(fields: Sequence[Field], path: tuple[str, ...] = ()) -> Iterator[LeafField]:
    """Yield all leaves in order; those within lists and maps too, as ``is_repeated``."""
    for field in fields:
        yield from _leaves(field["type"], int(field["id"]), (*path, str(field["id"])), False)


def _leaves(kind: Any, number: int, path: tuple[str, ...], repeated: bool) -> Iterator[LeafField]:
    if isinstance(kind, str):
        yield LeafField(number, path, kind, repeated)
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            inner = int(field["id"])
            yield from _leaves(field["type"], inner, (*path, str(inner)), repeated)
    elif kind["type"] == "list":
        inner = int(kind["element-id"])
        yield from _leaves(kind["element"], inner, (*path, str(inner)), True)
    else:
        for part in ("key", "value"):
            inner = int(kind[f"{part}-id"])
            yield from _leaves(kind[part], inner, (*path, str(inner)), True)


def is_written(kind: str) -> bool:
    """Return whether LakeVilla writes values of a plain type as well as it reads them."""
    return kind not in _READ_ONLY and _FIXED.fullmatch(kind) is None


def is_plain_type(kind: str, version: int) -> bool:
    """Return whether a version of the format has a plain type, also if LakeVilla has it not."""
    if version >= 3 and (kind in _SINCE_3 or _GEO.fullmatch(kind)):
        return True
    if decimal := _DECIMAL.fullmatch(kind):
        return 0 < int(decimal[1][:3]) <= 38 and int(decimal[2][:3]) <= int(decimal[1][:3])
    if fixed := _FIXED.fullmatch(kind):
        return 0 < int(fixed[1][:11]) < 2**31
    return kind == _UUID or (kind in _FROM_NAME and kind not in _SINCE_3)


def nested_fields(fields: Sequence[Field]) -> Iterator[tuple[int, Field]]:
    """Yield the fields of structs within columns, each with the id of its parent."""
    for field in fields:
        yield from _nested_fields(field["type"], int(field["id"]))


def _nested_fields(kind: Any, parent: int) -> Iterator[tuple[int, Field]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        for field in kind["fields"]:
            yield parent, field
            yield from _nested_fields(field["type"], int(field["id"]))
    elif kind["type"] == "list":
        yield from _nested_fields(kind["element"], int(kind["element-id"]))
    else:
        for part in ("key", "value"):
            yield from _nested_fields(kind[part], int(kind[f"{part}-id"]))


def without_defaults(fields: Sequence[Field]) -> list[Field]:
    """Return the fields without default values, at any depth.

    pyiceberg reads no default of a struct; and what it makes of a schema needs none.
    """
    return [_without_defaults(field) for field in fields]


def _without_defaults(field: Any) -> Any:
    if isinstance(field, list):
        return [_without_defaults(one) for one in field]
    if not isinstance(field, dict):
        return field
    defaults = (INITIAL_DEFAULT.decode(), WRITE_DEFAULT.decode())
    return {name: _without_defaults(part) for name, part in field.items() if name not in defaults}


def struct_paths(fields: Sequence[Field]) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Yield the columns and the fields of structs within them, each with the names that lead to it.

    Fields within lists and maps are left out: a row has many values of these, or none.
    """
    for field in fields:
        own = (str(field["name"]),)
        yield own, field
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            for path, inner in struct_paths(field["type"]["fields"]):
                yield (*own, *path), inner


def full_names(fields: Sequence[Field], within: str = "") -> Iterator[tuple[str, int]]:
    """Yield the dotted names by which other clients find fields at any depth, with the ids.

    An element of a list is ``l.element`` there, and a map has ``m.key`` and ``m.value``.
    """
    for field in fields:
        name = f"{within}{field['name']}"
        yield name, int(field["id"])
        yield from _names_within(field["type"], name)


def _names_within(kind: Any, name: str) -> Iterator[tuple[str, int]]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from full_names(kind["fields"], f"{name}.")
        return
    for part in ("element",) if kind["type"] == "list" else ("key", "value"):
        yield f"{name}.{part}", int(kind[f"{part}-id"])
        yield from _names_within(kind[part], f"{name}.{part}")


def iceberg_fields(schema: pa.Schema, table: str, last_id: int = 0) -> tuple[list[Field], int]:
    """Return fields for an Arrow schema, with ids above ``last_id``, and the last id used.

    Top-level columns are numbered first, as other writers do. Raises ``InvalidOperation``.
    """
    ids = _Ids(last_id)
    return _struct_fields(list(schema), ids, table), ids.last


def iceberg_type(kind: pa.DataType, ids: _Ids, table: str) -> Any:
    """Return an Arrow type as the spec writes it, its parts numbered."""
    if (known := _TO_NAME.get(kind)) is not None:
        return known
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_uint64(kind):
        return "decimal(20, 0)"
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_dictionary(kind):
        return iceberg_type(kind.value_type, ids, table)
    if pa.types.is_struct(kind):
        inner = [kind.field(i) for i in range(kind.num_fields)]
        return {"type": "struct", "fields": _struct_fields(inner, ids, table)}
    if pa.types.is_map(kind):
        key, value = ids.next(), ids.next()
        return {
            "type": "map",
            "key-id": key,
            "key": iceberg_type(kind.key_type, ids, table),
            "value-id": value,
            "value": iceberg_type(kind.item_type, ids, table),
            "value-required": not kind.item_field.nullable,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = ids.next()
        return {
            "type": "list",
            "element-id": element,
            "element": iceberg_type(kind.value_type, ids, table),
            "element-required": not kind.value_field.nullable,
        }
    raise InvalidOperation(
        f"table {table}: LakeVilla keeps no Arrow type {kind} in an Iceberg table: cast the column "
        "to another type first",
        table=table,
    )


class _Ids:
    def __init__(self, last: int) -> None:
        self.last = last

    def next(self) -> int:
        self.last += 1
        return self.last


def _struct_fields(fields: Sequence[pa.Field], ids: _Ids, table: str) -> list[Field]:
    numbered = [(ids.next(), field) for field in fields]
    found = []
    for number, field in numbered:
        made: Field = {
            "id": number,
            "name": field.name,
            "required": not field.nullable,
            "type": iceberg_type(field.type, ids, table),
        }
        if (doc := _doc(field)) is not None:
            made["doc"] = doc
        found.append(made)
    return found


def _doc(field: pa.Field) -> str | None:
    """Return the comment of an Arrow field, as pyiceberg or as deltalake and Spark keep it."""
    metadata = field.metadata or {}
    found = metadata.get(b"doc", metadata.get(b"comment"))
    return None if found is None else found.decode(errors="replace")


def _said_of(field: Field) -> dict[bytes, str] | None:
    doc = field.get("doc")
    found = {b"comment": doc} if isinstance(doc, str) else {}
    for name in (INITIAL_DEFAULT, WRITE_DEFAULT):
        default = field.get(name.decode())
        if default is not None:
            found[name] = text_of_default(field["type"], default)
    return found or None


def text_of_default(kind: Any, default: Any) -> str:
    """Return a default, a JSON value of the spec, as the metadata of Arrow fields has it."""
    if isinstance(default, bool):
        return "true" if default else "false"
    if kind == _UUID and isinstance(default, str):
        return default.replace("-", "")
    return OF_FIELDS if default == {} else str(default)


def _arrow_field(field: Field, named: Callable[[Field], str], ids: bool, table: str) -> pa.Field:
    metadata: Any = {_ID: str(field["id"])} if ids else _said_of(field)
    kind = _arrow_type(field["type"], named, ids, table, str(field["name"]))
    required = bool(field.get("required", False))
    return pa.field(named(field), kind, nullable=not required, metadata=metadata)


def _arrow_type(
    kind: Any, named: Callable[[Field], str], ids: bool, table: str, column: str
) -> pa.DataType:
    if isinstance(kind, str):
        known = _FROM_NAME.get(kind) or _READ_ONLY.get(kind)
        if known is not None:
            return known
        if kind == _UUID:
            return pa.uuid() if ids else _UUID_BYTES
        fixed = _FIXED.fullmatch(kind)
        if fixed is not None and int(fixed[1][:11]) < 2**31:
            return pa.binary(int(fixed[1]))
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None and 0 < int(decimal[1][:3]) <= 38 and int(decimal[2][:3]) <= 38:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        raise UnsupportedTableFeature(
            f"table {table} has column {column} of the Iceberg type {kind}, which LakeVilla does "
            "not know: use the client that wrote it",
            table=table,
        )
    if kind["type"] == "struct":
        return pa.struct([_arrow_field(field, named, ids, table) for field in kind["fields"]])

    def part(name: str, number: int, of: Any, required: bool) -> pa.Field:
        metadata = {_ID: str(number)} if ids else None
        inner = _arrow_type(of, named, ids, table, column)
        return pa.field(name, inner, nullable=not required, metadata=metadata)

    if kind["type"] == "list":
        required = bool(kind.get("element-required", False))
        return pa.list_(part("element", kind["element-id"], kind["element"], required))
    if kind["type"] == "map":
        required = bool(kind.get("value-required", False))
        return pa.map_(
            part("key", kind["key-id"], kind["key"], True),
            part("value", kind["value-id"], kind["value"], required),
        )
    raise UnsupportedTableFeature(
        f"table {table} has column {column} of the Iceberg type {kind.get('type')}, which "
        "LakeVilla does not know: use the client that wrote it",
        table=table,
    )


# -------------------- name mapping
#
# Columns of data files without field ids (Iceberg spec, "Column Projection").
#
# Files that were imported from elsewhere name their columns, and the table's property defines
# the id of each name.


NAME_MAPPING = "schema.name-mapping.default"


class _Mapped(msgspec.Struct, rename={"field_id": "field-id"}, omit_defaults=True):
    names: list[str]
    field_id: int | None = None
    fields: list[_Mapped] = []


_mapping = JsonDecoder(list[_Mapped])


def names_of(properties: Mapping[str, str], table: str) -> dict[int, tuple[str, ...]] | None:
    """Return the names that each column, at any depth, may have in a file without ids.

    None if the table defines none. Raises ``CorruptObject``.
    """
    found = _decoded(properties, table)
    if found is None:
        return None
    return {one.field_id: tuple(one.names) for one in _all(found) if one.field_id is not None}


def with_fields(
    properties: Mapping[str, str], fields: Sequence[Field], table: str
) -> dict[str, str]:
    """Return the properties after a change of schema: the mapping gets the columns' new names.

    A name that files may have for another column keeps that meaning, unlike with other
    clients: otherwise existing rows would be read into the wrong column. Raises
    ``CorruptObject``.
    """
    known = _decoded(properties, table)
    if known is None:
        return dict(properties)
    _take(known, fields)
    return {**properties, NAME_MAPPING: msgspec.json.encode(known).decode()}


def _take(known: list[_Mapped], fields: Sequence[Field]) -> None:
    """Add the present names of fields side by side, and of the fields within them."""
    by_id = {one.field_id: one for one in known}
    taken = {name for one in known for name in one.names}
    for field in fields:
        name, mapped = str(field["name"]), by_id.get(int(field["id"]))
        if mapped is None and name not in taken:
            known.append(_mapped(field))
        elif mapped is not None:
            if name not in taken:
                mapped.names.append(name)
            _take_within(mapped, field["type"])


def _take_within(mapped: _Mapped, kind: Any) -> None:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        _take(mapped.fields, kind["fields"])
        return
    for name in ("element",) if kind["type"] == "list" else ("key", "value"):
        for part in mapped.fields:
            if part.field_id == int(kind[f"{name}-id"]):
                _take_within(part, kind[name])


def _decoded(properties: Mapping[str, str], table: str) -> list[_Mapped] | None:
    text = properties.get(NAME_MAPPING)
    if text is None:
        return None
    try:
        return _mapping.decode(text)
    except ValueError as error:
        raise CorruptObject(
            f"property {NAME_MAPPING} of table {table} can't be read ({error}): set it right, or "
            "unset it if every data file has field ids",
            table=table,
        ) from None


def _all(mapped: Sequence[_Mapped]) -> Iterator[_Mapped]:
    for one in mapped:
        yield one
        yield from _all(one.fields)


def _mapped(field: Field) -> _Mapped:
    return _Mapped([str(field["name"])], int(field["id"]), _parts(field["type"]))


def _parts(kind: Any) -> list[_Mapped]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return [_mapped(field) for field in kind["fields"]]
    names = ("element",) if kind["type"] == "list" else ("key", "value")
    return [_Mapped([name], int(kind[f"{name}-id"]), _parts(kind[name])) for name in names]
