"""Changes of the metadata of an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any

import pyarrow as pa

from lakevilla.arrow.input import typed
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import REPLACED, VOIDED, Change, replaced_between, replaced_once_more
from lakevilla.formats.iceberg.metadata.definition import MOST_WIDTH, IcebergDefinition
from lakevilla.formats.iceberg.metadata.partition_values import single_value
from lakevilla.formats.iceberg.metadata.properties import check_settable
from lakevilla.formats.iceberg.metadata.schema import (
    Field,
    arrow_schema,
    full_names,
    iceberg_fields,
    is_written,
    struct_paths,
    with_fields,
)
from lakevilla.formats.layout import (
    ICEBERG,
    Edit,
    Nesting,
    NewDefinition,
    Path,
    TableAlteration,
    check_widens,
    in_iceberg,
)
from lakevilla.sql.expressions.tree import Literal
from lakevilla.sql.expressions.types import arrow_type, type_name
from lakevilla.sql.expressions.values import value_of

# -------------------- changes
#
# The first definition of a table, and changes of its schema and properties.
#
# Functions from a definition and a request to a ``Change``; nothing is read or written.
# Names are looked up without regard to case.


FORMAT_VERSION = "format-version"
_FIRST_PARTITION_ID = 1000
_TRANSFORM = re.compile(
    r"(?P<name>[a-z]+?)s?\(\s*(?:(?P<width>\d+)\s*,\s*)?"
    r"(?P<column>.+?)(?:\s*,\s*(?P<last>\d+))?\s*\)"
)
_BY_TIME = ("year", "month", "day", "hour")
_DAYS = frozenset({"date", "timestamp", "timestamptz"})


def create_table(
    blank: IcebergDefinition,
    schema: pa.Schema,
    *,
    uri: str,
    table_id: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> Change:
    """Return the change that creates a table. Raises ``InvalidOperation``."""
    table = blank.table
    fields, last = iceberg_fields(schema, table)
    refuse_empty(fields, table)
    refuse_twice([str(field["name"]) for field in fields], table)
    version, wanted = new_properties(properties, table)
    parts = partition_fields(fields, partition_by, table)
    definition = {
        "format-version": version,
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
    made = blank.replaced(definition)
    refuse_ambiguous(made)
    made.check_writable()
    return Change(metadata=definition)


def refuse_empty(fields: object, table: str) -> None:
    """Refuse a new table without columns. Raises ``InvalidOperation``."""
    if not fields:
        raise InvalidOperation(
            f"table {table} has no columns; give a schema with some", table=table
        )


def new_properties(properties: Mapping[str, str], table: str) -> tuple[int, dict[str, str]]:
    """Return the format version of a new table, and its other properties.

    Raises
    ------
    InvalidOperation, UnsupportedTableFeature
        LakeVilla does not make the version, or a property can't be set.
    """
    wanted = {str(name): str(value) for name, value in properties.items()}
    version = wanted.pop(FORMAT_VERSION, "2")
    if version not in ("2", "3"):
        raise InvalidOperation(
            f"table {table} can't be made with format-version {version}: LakeVilla makes versions "
            "2 and 3",
            table=table,
        )
    check_settable(wanted, table)
    return int(version), wanted


def alter_table(
    definition: IcebergDefinition,
    alteration: TableAlteration,
) -> Change:
    """Return the change that alters a table, maybe empty. Raises ``InvalidOperation``."""
    before, definition = definition, upgraded(definition, alteration.set_properties)
    definition.check_writable()
    table = definition.table
    if alteration.add_constraints or alteration.drop_constraints:
        raise InvalidOperation(
            f"table {table} is an Iceberg table, and Iceberg has no CHECK constraints: leave them "
            "out, or keep the rows in a Delta table",
            table=table,
        )
    fields, last = _altered_fields(definition, alteration)
    properties = dict(definition.properties)
    wanted = {str(name): str(value) for name, value in alteration.set_properties.items()}
    wanted.pop(FORMAT_VERSION, None)
    check_settable(wanted, table)
    properties |= wanted
    for name in alteration.unset_properties:
        properties.pop(name, None)
    change = _changed(definition, fields, last, properties)
    if change.metadata is None and definition is not before:
        return Change(metadata=definition.document)
    return change


def upgraded(definition: IcebergDefinition, properties: Mapping[str, object]) -> IcebergDefinition:
    """Return the definition with the ``format-version`` that a request for properties names.

    Snapshots and files stay: existing rows get ids in the next snapshot. There is no way back.
    Raises ``InvalidOperation``.
    """
    now, wanted = definition.format_version, str(properties.get(FORMAT_VERSION, ""))
    if not wanted or wanted == str(now):
        return definition
    if wanted not in ("2", "3") or int(wanted) < now:
        raise InvalidOperation(
            f"table {definition.table} has format-version {now}, which can't become {wanted}: a "
            "table is upgraded to 2 or 3, and never back",
            table=definition.table,
        )
    return definition.replaced({**definition.document, FORMAT_VERSION: int(wanted)})


def _altered_fields(
    definition: IcebergDefinition, alteration: TableAlteration
) -> tuple[list[Field], int]:
    """Return the fields that an ``alter`` leaves, and the last id that is used.

    All names but those of new columns are names from before.
    """
    table, nesting = definition.table, _nesting(definition.table)
    before, fields = definition.fields, list(definition.fields)
    for name in alteration.drop_not_null:
        path = nesting.find(before, name)
        _refuse_null(definition, name, path)
        fields = nesting.without_not_null(fields, path)
    edits: list[tuple[str, str, Edit]] = [
        *(
            (n, "commented", partial(_commented, text))
            for n, text in alteration.set_comments.items()
        ),
        *(
            (name, "of another type", _widening(definition, name, new))
            for name, new in alteration.change_types.items()
        ),
        *(
            (name, "given a default", partial(_with_write_default, definition, constant))
            for name, constant in alteration.set_defaults.items()
        ),
    ]
    for name, verb, edit in edits:
        fields = nesting.edited(fields, {nesting.find_field(before, name, verb): edit})
    moved: dict[Path, Edit] = {}
    for name, new in alteration.rename_columns.items():
        moved[nesting.find_field(before, name, "renamed")] = partial(_called, new)
    for name in alteration.drop_columns:
        path = nesting.find_field(before, name, "dropped")
        _refuse_used(definition, nesting.field(before, path), name)
        moved[path] = _dropped
    fields = nesting.edited(fields, moved)
    last = int(definition.document["last-column-id"])
    if alteration.add_columns is not None:
        added, last = iceberg_fields(alteration.add_columns, table, last)
        for field in added:
            fields = nesting.added(fields, _added(definition, field, alteration.defaults))
    nesting.refuse_twice(fields)
    if not fields:
        raise InvalidOperation(
            f"table {table} would have no column left: keep one, or drop the table", table=table
        )
    return fields, last


def merge_schema(definition: IcebergDefinition, schema: pa.Schema) -> Change:
    """Return the change that adds the columns of ``schema`` that the table lacks, nested ones too.

    Columns present in both keep their type: the cast decides whether data fits.
    """
    definition.check_writable()
    last = int(definition.document["last-column-id"])
    fields, last = _merged(definition.fields, schema, definition.table, last)
    return _changed(definition, fields, last, dict(definition.properties))


def _merged(
    fields: Sequence[Field], given: Iterable[pa.Field], table: str, last: int
) -> tuple[list[Field], int]:
    """Return ``fields`` with the missing ones of ``given`` appended, under new ids."""
    by_name = {field.name.lower(): field for field in given}
    merged: list[Field] = []
    for field in fields:
        other = by_name.pop(str(field["name"]).lower(), None)
        if other is not None:
            kind, last = _merged_type(field["type"], other.type, table, last)
            field = {**field, "type": kind}
        merged.append(field)
    added, last = iceberg_fields(pa.schema(list(by_name.values())), table, last)
    return [*merged, *map(_optional, added)], last


def _merged_type(kind: Any, given: pa.DataType, table: str, last: int) -> tuple[Any, int]:
    if isinstance(kind, str):
        return kind, last
    if kind["type"] == "struct" and pa.types.is_struct(given):
        fields, last = _merged(kind["fields"], given, table, last)
        return {**kind, "fields": fields}, last
    if kind["type"] == "list" and pa.types.is_list(given):
        inner, last = _merged_type(kind["element"], given.value_type, table, last)
        return {**kind, "element": inner}, last
    if kind["type"] == "map" and pa.types.is_map(given):
        inner, last = _merged_type(kind["value"], given.item_type, table, last)
        return {**kind, "value": inner}, last
    return kind, last


def replace_schema(definition: IcebergDefinition, schema: pa.Schema) -> Change:
    """Return the change after which the table has the columns of ``schema`` and no rows."""
    definition.check_writable()
    before = {str(field["name"]).lower(): field for field in definition.fields}
    types = {
        field.name.lower(): field.type
        for field in arrow_schema(definition.fields, definition.table)
    }
    stored = arrow_schema(iceberg_fields(schema, definition.table)[0], definition.table)
    last = int(definition.document["last-column-id"])
    fields = []
    for field, kind in zip(schema, stored.types, strict=True):
        name = field.name.lower()
        if name in before and types[name] == kind:
            fields.append(before[name])
            continue
        (made,), last = iceberg_fields(pa.schema([field]), definition.table, last)
        fields.append(made)
    removed = [field for field in definition.fields if field not in fields]
    for field in removed:
        _refuse_used(definition, field, str(field["name"]))
    properties = dict(definition.properties)
    if removed:
        properties[REPLACED] = replaced_once_more(properties)
    return _changed(definition, fields, last, properties)


def note_voided(definition: IcebergDefinition, txn: str) -> Change:
    """Return the change after which nothing that was decided before fits any more."""
    definition.check_writable()
    last = int(definition.document["last-column-id"])
    properties = {**definition.properties, VOIDED: txn}
    return _changed(definition, list(definition.fields), last, properties)


def _changed(
    definition: IcebergDefinition, fields: list[Field], last: int, properties: dict[str, str]
) -> Change:
    document = {**definition.document, "last-column-id": last, "properties": properties}
    if fields != definition.fields:
        schemas = document["schemas"]
        number = max(schema.get("schema-id", 0) for schema in schemas) + 1
        old = next(s for s in schemas if s.get("schema-id", 0) == document["current-schema-id"])
        # Identifier fields and all other parts of the schema stay.
        new = {**old, "schema-id": number, "fields": fields}
        # A schema that the table had before is reused: catalogs do so, and give it no new number.
        same = [one for one in schemas if {**one, "schema-id": number} == new]
        if same:
            number = same[-1].get("schema-id", 0)
        else:
            document["schemas"] = [*schemas, new]
        document["current-schema-id"] = number
        document["properties"] = with_fields(properties, fields, definition.table)
    if document == definition.document:
        return Change()
    changed = definition.replaced(document)
    if fields != definition.fields:
        refuse_ambiguous(changed)
    changed.check_writable()
    return Change(metadata=document)


def _optional(field: Field) -> Field:
    # Files that were written before have no values for it.
    return {**field, "required": False}


def _nesting(table: str) -> Nesting:
    return Nesting(table, ICEBERG, {"required": False})


def _called(name: str, field: Field) -> Field:
    return {**field, "name": name}


def _dropped(field: Field) -> None:
    return None


def _refuse_null(definition: IcebergDefinition, name: str, path: Path) -> None:
    """Refuse NULL in a column that identifies rows, and in one that has such a field within it."""
    for known, field in struct_paths(definition.fields):
        if int(field["id"]) in definition.identifier_ids and known[: len(path)] == path:
            raise InvalidOperation(
                f"column {name!r} of table {definition.table} can't hold NULL: "
                f"{'.'.join(known)!r} is part of the rows' identifier, and other clients refuse a "
                "table where that may be NULL; change the identifier with the client that set it",
                table=definition.table,
            )


def _commented(text: str | None, field: Field) -> Field:
    other = {key: value for key, value in field.items() if key != "doc"}
    return other if text is None else {**other, "doc": text}


def _added(
    definition: IcebergDefinition, field: Field, defaults: Mapping[str, Sequence[str] | None]
) -> Field:
    """Return a new field, which is optional unless it has a value in the rows of older files."""
    constant = defaults.get(str(field["name"]))
    if constant is None:
        return _optional(field)
    value = _default(definition, field, constant)
    return {**field, "initial-default": value, "write-default": value}


def _with_write_default(
    definition: IcebergDefinition, constant: Sequence[str] | None, field: Field
) -> Field:
    """Return a field with a value for rows that are written without it."""
    other = {key: value for key, value in field.items() if key != "write-default"}
    if constant is None:
        return other
    return {**other, "write-default": _default(definition, field, constant)}


def _default(definition: IcebergDefinition, field: Field, constant: Sequence[str]) -> Any:
    """Return a constant as the spec's JSON of the field's type. Raises ``InvalidOperation``."""
    table, kind, name = definition.table, field["type"], str(field["name"])
    if not definition.has_row_ids:
        raise InvalidOperation(
            f"table {table} has format-version {definition.format_version}, in which columns have "
            "no defaults: upgrade it with alter(set_properties={'format-version': '3'})",
            table=table,
        )
    given = Literal(*constant)
    if given.type == "struct" and isinstance(kind, dict) and kind["type"] == "struct":
        return {}
    value: Any = None if given.type == "struct" else value_of(given)
    if value is None or not isinstance(kind, str) or not is_written(kind):
        raise InvalidOperation(
            f"column {name!r} of table {table} can't have a default: only columns of plain types "
            "have one, and structs have {}",
            table=table,
        )
    column = arrow_schema([field], table).field(0)
    (value,) = typed([value], column, table).to_pylist()
    if isinstance(value, float) and not isfinite(value):
        raise InvalidOperation(
            f"column {name!r} of table {table} can't have the default {value}, which JSON has no "
            "number for: choose another",
            table=table,
        )
    return single_value(kind, value)


def _widening(definition: IcebergDefinition, name: str, new: str) -> Callable[[Field], Field]:
    """Return a function that widens a field's type, unless the field partitions the table."""
    table = definition.table

    def widened(field: Field) -> Field:
        check_widens(
            table, name, type_name(arrow_schema([field], table).field(0).type), new, in_iceberg
        )
        specs = definition.document["partition-specs"]
        if int(field["id"]) in {source for spec in specs for source in _of(spec)}:
            raise InvalidOperation(
                f"column {name!r} of table {table} can't get another type: the table is "
                "partitioned by it",
                table=table,
            )
        (made,), _ = iceberg_fields(pa.schema([("x", arrow_type(new))]), table)
        return {**field, "type": made["type"]}

    return widened


def _place(fields: Sequence[Field], name: str, table: str) -> int:
    for index, field in enumerate(fields):
        if str(field["name"]).lower() == name.lower():
            return index
    raise InvalidOperation(
        f"table {table} has no column {name!r}; it has "
        + ", ".join(repr(str(field["name"])) for field in fields),
        table=table,
    )


def _refuse_used(definition: IcebergDefinition, field: Field, name: str) -> None:
    """Refuse to drop a column that a partition spec, a sort order or the identifier needs."""
    own, table = {int(one["id"]) for _, one in struct_paths([field])}, definition.table
    sources = {source for spec in definition.document["partition-specs"] for source in _of(spec)}
    orders = {source for order in definition.document["sort-orders"] for source in _of(order)}
    for used, what in (
        (sources, "the table is partitioned by it"),
        (orders, "the table is sorted by it"),
        (set(definition.identifier_ids), "it is part of the rows' identifier"),
    ):
        if own & used:
            raise InvalidOperation(
                f"column {name!r} of table {table} can't be dropped: {what}", table=table
            )


def _of(part: Mapping[str, Any]) -> list[int]:
    used = (field for field in part["fields"] if field.get("transform") != "void")
    # A sort order that is left unchanged may be by several columns at once.
    return [int(n) for field in used for n in (field.get("source-ids") or [field["source-id"]])]


def refuse_twice(names: Sequence[str], table: str) -> None:
    """Refuse two columns of one name. Raises ``InvalidOperation``."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidOperation(
                f"table {table} would have two columns {name!r} (case is ignored): choose another "
                "name",
                table=table,
            )
        seen.add(name.lower())


def refuse_ambiguous(definition: IcebergDefinition) -> None:
    """Refuse names for which other clients refuse to open a table. Raises ``InvalidOperation``.

    They find fields by dotted names, each of which must be of one field. And a partition field may
    have the name of no column but its source: Java before 1.11 asks that of old specs, too.
    https://github.com/apache/iceberg/pull/15967
    """
    table = definition.table
    known = dict(full_names(definition.fields))
    seen: dict[str, int] = {}
    for name, number in full_names(definition.fields):
        if seen.setdefault(name.lower(), number) != number:
            raise InvalidOperation(
                f"table {table} would have a column with dots and a part of another column that "
                f"are both called {name!r} (case is ignored): choose another name",
                table=table,
            )
    for spec in definition.document["partition-specs"]:
        for part in spec["fields"]:
            name = str(part["name"])
            if known.get(name, part.get("source-id")) != part.get("source-id"):
                source, way_out = _column_of(definition, part.get("source-id"))
                raise InvalidOperation(
                    f"table {table} would have a column {name!r} with the name of a partition "
                    f"field ({part['transform']} of {source}, in spec {spec['spec-id']}), "
                    f"which other clients refuse: choose another name for the column{way_out}",
                    table=table,
                )


def _column_of(definition: IcebergDefinition, number: int | None) -> tuple[str, str]:
    """Return the words for a partition field's source, and advice if that column was dropped."""
    now = {other: name for name, other in full_names(definition.fields)}
    if number in now:
        return f"column {now[number]!r}", ""
    names = {
        other: name
        for schema in definition.document.get("schemas", ())
        for name, other in full_names(schema["fields"])
    }
    known = f"the earlier column {names[number]!r}" if number in names else "an earlier column"
    return known, ", or make a new table at another path"


def partition_fields(
    fields: Sequence[Field], partition_by: Sequence[str], table: str
) -> list[dict[str, Any]]:
    """Return the spec's fields for columns (``day``) and transforms of them (``day(ts)``).

    A field of a struct is named together with its struct: ``day(meta.ts)``.
    """
    found: list[dict[str, Any]] = []
    for text in partition_by:
        match = _TRANSFORM.fullmatch(text.strip())
        name, width, column = "identity", None, text
        if match is not None:
            name, column = match["name"], match["column"]
            width = match["width"] or match["last"]
        label, field = _source(fields, _unquoted(column.strip()), table)
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


def _unquoted(name: str) -> str:
    mark = name[:1]
    quoted = len(name) > 1 and mark in ("`", '"') and name[-1] == mark
    return name[1:-1].replace(mark * 2, mark) if quoted else name


def _source(fields: Sequence[Field], name: str, table: str) -> tuple[str, Field]:
    """Return a name's dotted path, and its field: a column is found before a field within one."""
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


# -------------------- replaced
#
# A table defined again, like a new one, with the ids that it has assigned before.


#: Properties that a table keeps for good: files are read by them.
_LASTING = ("schema.name-mapping.default", VOIDED)
_UNSORTED = {"order-id": 0, "fields": []}


def replace_definition(definition: IcebergDefinition, wanted: NewDefinition) -> Change:
    """Return the change after which the table is like a new one, without rows."""
    definition.check_writable()
    table, document_before = definition.table, definition.document
    if wanted.constraints:
        raise InvalidOperation(
            f"table {table} is an Iceberg table, and Iceberg has no CHECK constraints: leave them "
            "out, or keep the rows in a Delta table",
            table=table,
        )
    fields, last = _fields(definition, wanted.schema)
    parts = partition_fields(fields, wanted.partition_by, table)
    properties = {str(name): str(value) for name, value in wanted.properties.items()}
    version = properties.pop(FORMAT_VERSION, str(document_before["format-version"]))
    if version != str(document_before["format-version"]):
        raise InvalidOperation(
            f"table {table} has format-version {document_before['format-version']}, and keeps it",
            table=table,
        )
    check_settable(properties, table)
    kept = {key: had_ for key, had_ in definition.properties.items() if key in _LASTING}
    properties = {**kept, **properties, REPLACED: replaced_once_more(definition.properties)}
    document = {
        **document_before,
        "last-column-id": last,
        "properties": with_fields(properties, fields, table),
        **_listed(
            document_before["schemas"], "schemas", "schema-id", {"type": "struct", "fields": fields}
        ),
        **_spec(document_before, parts),
        "sort-orders": [
            *([] if _UNSORTED in document_before["sort-orders"] else [_UNSORTED]),
            *document_before["sort-orders"],
        ],
        "default-sort-order-id": 0,
    }
    document["current-schema-id"] = document.pop("schema-id")
    document["default-spec-id"] = document.pop("spec-id")
    replaced = definition.replaced(document)
    refuse_ambiguous(replaced)
    replaced.check_writable()
    return Change(metadata=document)


def _fields(definition: IcebergDefinition, schema: pa.Schema) -> tuple[list[Field], int]:
    """Return the schema's fields and the last id used: a column of unchanged type keeps its id."""
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
    present: Sequence[dict[str, Any]], name: str, number: str, wanted: dict[str, Any]
) -> dict[str, Any]:
    """Return the list with the wanted entry, and its number: an equal entry keeps its number."""
    for one in present:
        if {key: value for key, value in one.items() if key != number} == wanted:
            return {name: list(present), number: one.get(number, 0)}
    new = max(one.get(number, 0) for one in present) + 1
    return {name: [*present, {**wanted, number: new}], number: new}


def _spec(present: dict[str, Any], parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the partition specs; a field that any of them had before keeps its id."""
    specs = present["partition-specs"]
    known = {_identity(part): part["field-id"] for spec in specs for part in spec["fields"]}
    last, found = int(present["last-partition-id"]), []
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


# -------------------- redefine
#
# The change that defines a table again as one of its other states defines it.


#: Lists that lose no entry, with the names of an entry's id and of the current entry's id.
_LISTS = (
    ("schemas", "schema-id", "current-schema-id"),
    ("partition-specs", "spec-id", "default-spec-id"),
    ("sort-orders", "order-id", "default-sort-order-id"),
)
#: Ids that are assigned only once.
_COUNTS = ("format-version", "last-column-id", "last-partition-id")


def redefined(now: IcebergDefinition, metadata: Mapping[str, Any]) -> Change:
    """See ``formats.base.TableFormat.redefine``."""
    present = now.document
    if metadata.get("table-uuid") != present.get("table-uuid"):
        raise InvalidOperation(
            f"table {now.table} has another id in that state: it was replaced since, and can't "
            "get its earlier definition back; read that state, and overwrite the table with it",
            table=now.table,
        )
    wanted = dict(present)
    for name in _COUNTS:
        wanted[name] = max(present.get(name) or 0, metadata.get(name) or 0)
    for name, number, current in _LISTS:
        wanted[name] = _united(now.table, present[name], metadata[name], number)
        wanted[current] = metadata[current]
    properties = dict(metadata.get("properties") or {})
    known = present.get("properties") or {}
    if (times := replaced_between(known, properties)) is not None:
        properties[REPLACED] = times
    if VOIDED in known:
        properties[VOIDED] = known[VOIDED]
    wanted["properties"] = properties
    if wanted == present:
        return Change()
    refuse_ambiguous(now.replaced(wanted))
    return Change(metadata=wanted)


def _united(
    table: str, present: list[dict[str, Any]], wanted: list[dict[str, Any]], number: str
) -> list[dict[str, Any]]:
    """Return the entries of both; one id is one entry. Raises ``InvalidOperation``."""
    known = {entry.get(number, 0): entry for entry in present}
    for entry in wanted:
        if known.setdefault(entry.get(number, 0), entry) != entry:
            raise InvalidOperation(
                f"table {table} was given two definitions under {number} {entry.get(number, 0)}, "
                "by each side one: make the change of its schema again on this side, then apply "
                "the rest",
                table=table,
            )
    return list(known.values())
