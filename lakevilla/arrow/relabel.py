"""Arrow data under another schema of the same memory layout, without a copy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakevilla.errors import InvalidOperation


class _Relabelled:
    """A batch that exports itself under another schema, through the C data interface."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, array = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), array


def relabel(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same data with other names, nullability or metadata, nested ones too.

    The types must be equal but for names and nullability: nothing is converted.
    """
    return pa.record_batch(_Relabelled(batch, schema))


def conform(batch: pa.RecordBatch, schema: pa.Schema, table: str | None) -> pa.RecordBatch:
    """``batch`` under ``schema``: by position, cast only where the memory layout differs.

    Raises ``InvalidOperation`` for bytes of another length than their column's.
    """
    arrays = [
        array if _same_layout(array.type, field.type) else _cast(array, field, table)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return relabel(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), schema)


def field_is_strict(field: pa.Field) -> bool:
    """Whether a field below this one, at any depth, must not be NULL."""
    return any(not below.nullable or field_is_strict(below) for below in _below(field.type))


def loosened(field: pa.Field) -> pa.Field:
    """The field with everything nullable: what files are written with.

    A NOT NULL field of a struct that is NULL itself holds a NULL after all,
    which Arrow's writer would refuse; the table's rules are checked before.
    """
    return field.with_type(_loosened(field.type)).with_nullable(True)


def _loosened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([loosened(field) for field in _below(kind)])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_loosened(kind.key_type))
        return pa.map_(key, loosened(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(loosened(kind.value_field))
    return kind


def _below(kind: pa.DataType) -> list[pa.Field]:
    """The fields directly inside a type; not a map's key, which Arrow never lets be NULL."""
    if pa.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return []


def _cast(array: pa.Array, field: pa.Field, table: str | None) -> pa.Array:
    if pa.types.is_null(field.type):
        # A column of no type holds nothing, whatever type an engine reads its NULLs as.
        return pa.nulls(len(array))
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidOperation(
            f"table {table}: a value for column {field.name} of type {field.type} does not fit "
            f"({error}): correct the value",
            reason="value",
            table=table,
        ) from None


def _same_layout(left: pa.DataType, right: pa.DataType) -> bool:
    if pa.types.is_nested(left) or pa.types.is_nested(right):
        if left.id != right.id or left.num_fields != right.num_fields:
            return False
        if pa.types.is_map(left):
            pairs = [(left.key_type, right.key_type), (left.item_type, right.item_type)]
        elif pa.types.is_list(left):
            pairs = [(left.value_type, right.value_type)]
        elif pa.types.is_struct(left):
            pairs = [(left.field(i).type, right.field(i).type) for i in range(left.num_fields)]
        else:
            return bool(left == right)
        return all(_same_layout(a, b) for a, b in pairs)
    return bool(left == right)
