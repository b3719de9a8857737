"""The definition of a Delta table as that of an Iceberg table.

Columns have Delta's own ids where the table maps columns, and are counted where it does not. The
name mapping has the names in files, for files without ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
from blake3 import blake3

from lakevilla.errors import UnsupportedTableFeature
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.formats.delta.metadata.schema import ID, MAX_COLUMN_ID, Field, physical_name

#: Types of Delta by name, as Iceberg calls them; decimals have one name in both.
_TYPES = {
    "string": "string",
    "long": "long",
    "integer": "int",
    "short": "int",
    "byte": "int",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
_INTEGERS = ("byte", "short", "integer", "long")
_NESTED_IDS = "delta.columnMapping.nested.ids"
_TYPE_CHANGES = "delta.typeChanges"
_FIRST_PARTITION_ID = 1000
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

#: Bounds are not always values of rows, so no engine may answer MIN or MAX by them: Iceberg's reads
#: this from the mode in which a table's writers make metrics.
_PROPERTIES = {"write.metadata.metrics.default": "counts"}


@dataclass(frozen=True, slots=True)
class Column:
    """A plain column, or a field of a struct: its id, its name in files, and its Delta type."""

    field_id: int
    path: tuple[str, ...]
    type: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of a Delta table as Iceberg clients are shown them.

    Attributes
    ----------
    definition : mapping
        The parts of the metadata file that do not depend on the table's files.
    columns : tuple of Column
        The plain columns outside of lists and maps.
    ids : mapping
        The id of every field, by its path in files; parts of lists and maps have Parquet's names.
    by_id : bool
        Whether the table's readers find columns by ids alone.
    partition_ids : mapping
        The ids of partition fields, by the columns' names in files.
    """

    definition: Mapping[str, Any]
    columns: tuple[Column, ...]
    ids: Mapping[tuple[str, ...], int]
    by_id: bool
    partition_ids: Mapping[str, int] = field(default_factory=dict)


def shown_definition(definition: DeltaDefinition, uri: str, version: int) -> Shown:
    """Return a Delta table's definition as Iceberg clients are shown it, in a format version.

    Raises
    ------
    UnsupportedTableFeature
        Iceberg has no such table.
    """
    schema = _Schema(definition)
    fields, mapping = schema.fields(definition.fields, ())
    _refuse_ambiguous(definition.table, fields)
    for name in definition.lineage:
        # Not shown, but in files: pyiceberg refuses a file with a name that the mapping lacks.
        mapping.append({"field-id": schema.next_id(), "names": [name.name]})
    ids = {str(one["name"]): (int(one["id"]), physical) for one, physical in schema.top}
    parts = [
        {
            "source-id": ids[name][0],
            "field-id": _FIRST_PARTITION_ID + place,
            "name": name,
            "transform": "identity",
        }
        for place, name in enumerate(definition.partition_by)
    ]
    names = msgspec.json.encode(mapping).decode()
    found = {
        "format-version": version,
        "table-uuid": _uuid(definition.table_id),
        "location": uri,
        "last-column-id": schema.last,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts}],
        "last-partition-id": _FIRST_PARTITION_ID + len(parts) - 1,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {**_PROPERTIES, "schema.name-mapping.default": names},
    }
    return Shown(
        found,
        tuple(schema.columns),
        schema.ids,
        definition.mode == "id",
        {ids[str(one["name"])][1]: int(str(one["field-id"])) for one in parts},
    )


class _Schema:
    """The fields of a schema in Iceberg's form, and what is told of each on the way."""

    def __init__(self, definition: DeltaDefinition) -> None:
        self.table, self._is_mapped = definition.table, definition.mode != "none"
        known = definition.properties.get(MAX_COLUMN_ID, "0")
        self.last = int(known) if self._is_mapped and known.isdecimal() else 0
        self.ids: dict[tuple[str, ...], int] = {}
        self.columns: list[Column] = []
        self.top: list[tuple[dict[str, Any], str]] = []

    def next_id(self) -> int:
        """Return an id that no field has."""
        self.last += 1
        return self.last

    def fields(
        self, fields: Sequence[Field], within: tuple[str, ...], *, repeated: bool = False
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return fields of a struct, and their entries in the name mapping."""
        shown, mapping = [], []
        for one in fields:
            metadata, name = one.get("metadata") or {}, str(one["name"])
            physical = physical_name(one) if self._is_mapped else name
            path = (*within, physical)
            self._check_changes(name, metadata)
            number = self._id(path, metadata.get(ID), name)
            nested = metadata.get(_NESTED_IDS) or {}
            kind, inner = self._type(one["type"], path, nested, physical, repeated)
            made = {"id": number, "name": name, "required": False, "type": kind}
            if comment := metadata.get("comment"):
                made["doc"] = str(comment)
            shown.append(made)
            mapping.append(_mapped(number, physical, inner))
            if not within:
                self.top.append((made, physical))
            if isinstance(kind, str) and not repeated:
                self.columns.append(Column(number, path, str(one["type"])))
        return shown, mapping

    def _type(
        self,
        kind: Any,
        path: tuple[str, ...],
        nested: Mapping[str, Any],
        spelled: str,
        repeated: bool,
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Return a type, and the entries of its parts; ``spelled`` is its name in nested ids."""
        if isinstance(kind, str):
            return self._plain(kind, path), []
        if kind["type"] == "struct":
            fields, inner = self.fields(kind["fields"], path, repeated=repeated)
            return {"type": "struct", "fields": fields}, inner
        is_list = kind["type"] == "array"
        names = (("element", "elementType"),) if is_list else _OF_MAPS
        found: dict[str, Any] = {"type": "list" if is_list else "map"}
        entries = []
        for name, key in names:
            own, written = (*path, name), f"{spelled}.{name}"
            number = self._id(own, nested.get(written), ".".join(own))
            part, inner = self._type(kind[key], own, nested, written, True)
            found |= {f"{name}-id": number, name: part}
            if name != "key":
                found[f"{name}-required"] = False
            entries.append(_mapped(number, name, inner))
        return found, entries

    def _id(self, path: tuple[str, ...], given: Any, name: str) -> int:
        if self._is_mapped and type(given) is not int:
            self._refuse(
                f"{name}, of which neither its schema nor its files say the id: LakeVilla can't "
                "show columns that are mapped and have lists or maps without "
                f"{_NESTED_IDS}; drop the column, or read the table as a Delta table"
            )
        self.ids[path] = found = given if self._is_mapped else self.next_id()
        self.last = max(self.last, found)
        return found

    def _plain(self, kind: str, path: tuple[str, ...]) -> str:
        decimal = _DECIMAL.fullmatch(kind)
        if decimal is not None:
            return f"decimal({decimal[1] or 10}, {decimal[2] or 0})"
        if kind not in _TYPES:
            self._refuse(f"{'.'.join(path)} of type {kind}, which Iceberg does not have")
        return _TYPES[kind]

    def _check_changes(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Refuse a column that was widened where Iceberg's readers would not widen its files."""
        for change in metadata.get(_TYPE_CHANGES) or ():
            old, new = str(change.get("fromType")), str(change.get("toType"))
            if not _is_promoted(old, new):
                self._refuse(
                    f"{name}, whose type was changed from {old} to {new}, which Iceberg does not "
                    "know: copy the rows to a new table to show it"
                )

    def _refuse(self, what: str) -> NoReturn:
        raise UnsupportedTableFeature(
            f"Delta table {self.table} can't be shown to Iceberg clients: it has column {what}",
            table=self.table,
        )


_OF_MAPS = (("key", "keyType"), ("value", "valueType"))


def _mapped(number: int, name: str, inner: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {"field-id": number, "names": [name]}
    return {**entry, "fields": list(inner)} if inner else entry


def _is_promoted(old: str, new: str) -> bool:
    """Return whether Iceberg reads values of a type as the wider one."""
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) <= _INTEGERS.index(new)
    one, other = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if one is not None and other is not None and one[1] and other[1]:
        return one[2] == other[2] and int(one[1]) <= int(other[1])
    return (old, new) == ("float", "double")


def _uuid(table_id: str) -> str:
    """Return the table's id, which Iceberg requires to be a UUID and Delta does not."""
    if _UUID.fullmatch(table_id):
        return table_id.lower()
    text = blake3(table_id.encode()).hexdigest(length=16)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _refuse_ambiguous(table: str, fields: Sequence[Mapping[str, Any]]) -> None:
    """Refuse columns of which two have one full name, as a field may within a struct."""
    seen: set[str] = set()
    for name in _full_names(fields, ""):
        if name in seen:
            raise UnsupportedTableFeature(
                f"Delta table {table} can't be shown to Iceberg clients: two of its columns have "
                f"the full name {name}; rename one",
                table=table,
            )
        seen.add(name)


def _full_names(fields: Sequence[Mapping[str, Any]], prefix: str) -> Iterator[str]:
    for one in fields:
        name = f"{prefix}{one['name']}"
        yield name
        yield from _names_within(one["type"], name)


def _names_within(kind: Any, name: str) -> Iterator[str]:
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from _full_names(kind["fields"], f"{name}.")
    else:
        for part in ("element", "key", "value"):
            if part in kind:
                yield f"{name}.{part}"
                yield from _names_within(kind[part], f"{name}.{part}")
