"""The first definition of a table, and changes of its schema and properties.

Functions from a definition and a wish to a ``Change``; nothing is read or written.
Names are looked up without regard to case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import VOIDED, Change
from lakevilla.formats.iceberg.metadata.definition import MOST_WIDTH, Definition
from lakevilla.formats.iceberg.metadata.name_mapping import with_fields
from lakevilla.formats.iceberg.metadata.properties import check_settable
from lakevilla.formats.iceberg.metadata.schema import Field, iceberg_fields, struct_paths

__all__ = ["alter_table", "create_table", "merge_schema", "note_voided"]

_FORMAT_VERSION = "format-version"
_FIRST_PARTITION_ID = 1000
_TRANSFORM = re.compile(
    r"(?P<name>[a-z]+?)s?\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<column>.+?)(?:\s*,\s*(?P<last>\d+))?\s*\)"
)
_BY_TIME = ("year", "month", "day", "hour")
_DAYS = frozenset({"date", "timestamp", "timestamptz"})


def create_table(
    blank: Definition,
    schema: pa.Schema,
    *,
    uri: str,
    table_id: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> Change:
    """The change that creates a table. Raises ``InvalidOperation``."""
    table = blank.table
    fields, last = iceberg_fields(schema, table)
    if not fields:
        raise InvalidOperation(
            f"table {table} has no columns; give a schema with some", table=table
        )
    _refuse_twice([str(field["name"]) for field in fields], table)
    wanted = {str(name): str(value) for name, value in properties.items()}
    version = wanted.pop(_FORMAT_VERSION, "2")
    if version != "2":
        raise InvalidOperation(
            f"table {table} can't be made with format-version {version}: LakeVilla makes version 2",
            table=table,
        )
    check_settable(wanted, table)
    parts = _partition_fields(fields, partition_by, table)
    definition = {
        "format-version": 2,
        "table-uuid": table_id,
        "location": uri,
        "last-column-id": last,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": parts}],
        "last-partition-id": max((p["field-id"] for p in parts), default=_FIRST_PARTITION_ID - 1),
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": wanted,
    }
    blank.replaced(definition).check_writable()
    return Change(metadata=definition)


def alter_table(
    definition: Definition,
    *,
    add_columns: pa.Schema | None = None,
    drop_columns: Sequence[str] = (),
    rename_columns: Mapping[str, str] | None = None,
    drop_not_null: Sequence[str] = (),
    add_constraints: Mapping[str, str] | None = None,
    drop_constraints: Sequence[str] = (),
    set_properties: Mapping[str, str] | None = None,
    unset_properties: Sequence[str] = (),
) -> Change:
    """The change that alters a table; empty if there is none. Raises ``InvalidOperation``."""
    definition.check_writable()
    table = definition.table
    if add_constraints or drop_constraints:
        raise InvalidOperation(
            f"table {table} is an Iceberg table, and Iceberg has no CHECK constraints: leave them "
            "out, or keep the rows in a Delta table",
            table=table,
        )
    fields = list(definition.fields)
    for name in drop_not_null:
        place = _place(fields, name, table)
        fields[place] = {**fields[place], "required": False}
    gone = [_place(definition.fields, name, table) for name in drop_columns]
    renamed = (rename_columns or {}).items()
    names = {_place(definition.fields, old, table): new for old, new in renamed}
    for place in gone:
        _refuse_used(definition, definition.fields[place])
    fields = [
        {**field, "name": names[place]} if place in names else field
        for place, field in enumerate(fields)
        if place not in gone
    ]
    last = int(definition.document["last-column-id"])
    if add_columns is not None:
        added, last = iceberg_fields(add_columns, table, last)
        fields += [_optional(field) for field in added]
    _refuse_twice([str(field["name"]) for field in fields], table)
    if not fields:
        raise InvalidOperation(f"table {table} would have no column left", table=table)
    properties = dict(definition.properties)
    wanted = {str(name): str(value) for name, value in (set_properties or {}).items()}
    check_settable(wanted, table)
    properties |= wanted
    for name in unset_properties:
        properties.pop(name, None)
    return _changed(definition, fields, last, properties)


def merge_schema(definition: Definition, schema: pa.Schema) -> Change:
    """The change that adds the columns of ``schema`` that the table lacks; empty if none."""
    definition.check_writable()
    known = {str(field["name"]).lower() for field in definition.fields}
    new = [field for field in schema if field.name.lower() not in known]
    last = int(definition.document["last-column-id"])
    added, last = iceberg_fields(pa.schema(new), definition.table, last)
    fields = [*definition.fields, *(_optional(field) for field in added)]
    return _changed(definition, fields, last, dict(definition.properties))


def note_voided(definition: Definition, txn: str) -> Change:
    """The change after which nothing fits that was decided before."""
    definition.check_writable()
    last = int(definition.document["last-column-id"])
    properties = {**definition.properties, VOIDED: txn}
    return _changed(definition, list(definition.fields), last, properties)


def _changed(
    definition: Definition, fields: list[Field], last: int, properties: dict[str, str]
) -> Change:
    document = {**definition.document, "last-column-id": last, "properties": properties}
    if fields != definition.fields:
        schemas = document["schemas"]
        number = max(schema.get("schema-id", 0) for schema in schemas) + 1
        old = next(s for s in schemas if s.get("schema-id", 0) == document["current-schema-id"])
        # Identifier fields and whatever else is said of the schema stay.
        new = {**old, "schema-id": number, "fields": fields}
        # One that the table has had is taken again: catalogs do so, and give it no new number.
        same = [one for one in schemas if {**one, "schema-id": number} == new]
        if same:
            number = same[-1].get("schema-id", 0)
        else:
            document["schemas"] = [*schemas, new]
        document["current-schema-id"] = number
        document["properties"] = with_fields(properties, fields, definition.table)
    if document == definition.document:
        return Change()
    definition.replaced(document).check_writable()
    return Change(metadata=document)


def _optional(field: Field) -> Field:
    # Files written before have no values for it.
    return {**field, "required": False}


def _place(fields: Sequence[Field], name: str, table: str) -> int:
    for place, field in enumerate(fields):
        if str(field["name"]).lower() == name.lower():
            return place
    raise InvalidOperation(
        f"table {table} has no column {name!r}; it has "
        + ", ".join(repr(str(field["name"])) for field in fields),
        table=table,
    )


def _refuse_used(definition: Definition, field: Field) -> None:
    """A column that a partition spec, a sort order or the identifier needs can't go."""
    own, table = {int(one["id"]) for _, one in struct_paths([field])}, definition.table
    sources = {source for spec in definition.document["partition-specs"] for source in _of(spec)}
    orders = {source for order in definition.document["sort-orders"] for source in _of(order)}
    schema = definition.schema
    for used, what in (
        (sources, "the table is partitioned by it"),
        (orders, "the table is sorted by it"),
        (set(schema.identifier_field_ids), "it is part of the rows' identifier"),
    ):
        if own & used:
            raise InvalidOperation(
                f"column {field['name']!r} of table {table} can't be dropped: {what}", table=table
            )


def _of(part: Mapping[str, Any]) -> list[int]:
    used = (field for field in part["fields"] if field.get("transform") != "void")
    # A sort order that is left alone may be by several columns at once.
    return [int(n) for field in used for n in (field.get("source-ids") or [field["source-id"]])]


def _refuse_twice(names: Sequence[str], table: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidOperation(
                f"table {table} would have two columns {name!r} (case is ignored)", table=table
            )
        seen.add(name.lower())


def _partition_fields(
    fields: Sequence[Field], partition_by: Sequence[str], table: str
) -> list[dict[str, Any]]:
    """The spec's fields for columns (``day``) and transforms of them (``day(ts)``).

    A field of a struct is named with what it lies in: ``day(meta.ts)``.
    """
    found: list[dict[str, Any]] = []
    for text in partition_by:
        match = _TRANSFORM.fullmatch(text.strip())
        name, width, column = "identity", None, text
        if match is not None:
            name, column = match["name"], match["column"]
            width = match["width"] or match["last"]
        label, field = _source(fields, column.strip().strip('`"'), table)
        transform = _transform(name, width, field, text, table)
        plain = transform.partition("[")[0]
        if plain != "identity":
            label += f"_{'trunc' if plain == 'truncate' else plain}"
        if any(one["name"] == label for one in found):
            raise InvalidOperation(
                f"table {table} would be partitioned by {text!r} twice", table=table
            )
        found.append(
            {
                "source-id": field["id"],
                "field-id": _FIRST_PARTITION_ID + len(found),
                "transform": transform,
                "name": label,
            }
        )
    return found


def _source(fields: Sequence[Field], name: str, table: str) -> tuple[str, Field]:
    """What a name leads to, and its dotted path: a column before a field within one."""
    paths = sorted(struct_paths(fields), key=lambda found: len(found[0]))
    for path, field in paths:
        if ".".join(path).lower() == name.lower():
            return ".".join(path), field
    return name, fields[_place(fields, name, table)]


def _transform(name: str, width: str | None, field: Field, text: str, table: str) -> str:
    kind = field["type"]
    if not isinstance(kind, str):
        raise InvalidOperation(
            f"column {field['name']!r} of table {table} is nested and can't partition a table: "
            "choose a plain column",
            table=table,
        )
    base = kind.partition("(")[0]
    if name == "identity" and width is None:
        return "identity"
    timed = _DAYS - {"date"} if name == "hour" else _DAYS
    if name in _BY_TIME and width is None and base in timed:
        return name
    fits = width is not None and len(width) <= 10 and 0 < int(width) <= MOST_WIDTH
    if name in ("bucket", "truncate") and width is not None and fits:
        wanted = {"int", "long", "decimal", "string", "binary"}
        if name == "bucket":
            wanted |= _DAYS | {"time"}
        if base in wanted:
            return f"{name}[{int(width)}]"
    raise InvalidOperation(
        f"table {table} can't be partitioned by {text!r} (column of type {kind}): use a column, "
        "year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c), n from 1 to "
        f"{MOST_WIDTH}",
        table=table,
    )
