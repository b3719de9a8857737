"""Fields within structs, lists and maps: those that only the data has, and those that it lacks.

Fields are matched by their names, without regard to case.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakevilla.arrow.cast import ColumnPath, is_list, plain_type, storable, without_nulls


def widened(target: pa.DataType, source: pa.DataType, path: ColumnPath) -> pa.DataType:
    """Return the type of a table's column with the data's additional fields, at any depth.

    New fields follow the existing ones, in the types that a table stores, and may be
    NULL: rows written before have no values for them. Keys of maps never get new fields.

    Raises
    ------
    InvalidOperation
        No table stores a new field's type.
    """
    source = plain_type(source)
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        given = _by_name(source)
        fields = []
        for field in target:
            other = given.pop(field.name.lower(), None)
            if other is not None:
                inner = widened(field.type, other.type, path.child(field.name))
                field = field.with_type(inner)
            fields.append(field)
        added = (
            field.with_type(storable(field.type, path.child(field.name))).with_nullable(True)
            for field in given.values()
        )
        return pa.struct([*fields, *added])
    if pa.types.is_map(target) and pa.types.is_map(source):
        item = target.item_field
        inner = widened(item.type, source.item_type, path.child("value"))
        return pa.map_(target.key_field, item.with_type(inner))
    if is_list(target) and is_list(source):
        element = target.value_field
        inner = widened(element.type, source.value_type, path.child("element"))
        return pa.list_(element.with_type(inner))
    return target


def narrowed(target: pa.DataType, source: pa.DataType) -> pa.DataType:
    """Return the type of a table's column without those fields of structs that the data lacks.

    Types within lists and maps stay unchanged: these are taken as a whole.
    """
    source = plain_type(source)
    if not (pa.types.is_struct(target) and pa.types.is_struct(source)):
        return target
    given = _by_name(source)
    fields = [
        field.with_type(narrowed(field.type, given[field.name.lower()].type))
        for field in target
        if field.name.lower() in given
    ]
    return pa.struct(fields) if fields else target


def typed_like(source: pa.DataType, like: pa.DataType | None) -> pa.DataType:
    """Return the data's type; a part of nothing but nulls gets its type from ``like``.

    Where ``like`` has no such part, it gets the type that SQL gives a lone NULL.
    """
    if like is None:
        return without_nulls(source)
    if pa.types.is_null(source):
        return like
    if pa.types.is_struct(source) and pa.types.is_struct(like):
        known = _by_name(like)
        return pa.struct([_field_like(field, known.get(field.name.lower())) for field in source])
    if pa.types.is_map(source) and pa.types.is_map(like):
        return pa.map_(source.key_field, _field_like(source.item_field, like.item_field))
    typed = without_nulls(source)
    if typed.equals(source):
        return source
    if is_list(source) and is_list(like):
        return pa.list_(_field_like(source.value_field, like.value_field))
    return like


def _field_like(field: pa.Field, like: pa.Field | None) -> pa.Field:
    return field.with_type(typed_like(field.type, None if like is None else like.type))


def _by_name(fields: Iterable[pa.Field]) -> dict[str, pa.Field]:
    return {field.name.lower(): field for field in fields}
