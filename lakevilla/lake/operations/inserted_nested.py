"""Structs, lists and maps as INSERT puts them into columns of other types.

What is within them is assigned as elsewhere. A struct goes into a column of maps: its names are the
keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.arrow.cast import flat_offsets

#: Puts values that are not nested into a type, where INSERT does.
Assign = Callable[[pa.Array, pa.DataType], pa.Array]


def assigned_nested(array: pa.Array, target: pa.DataType, assign: Assign) -> pa.Array:
    """The values, with those within them assigned; what has another form stays as it is."""
    kind, types = array.type, pa.types
    if kind.equals(target):
        return array
    if not types.is_nested(kind):
        return assign(array, target)
    if types.is_struct(kind) and types.is_struct(target):
        return _struct(array, {field.name.lower(): field.type for field in target}, assign)
    if types.is_struct(kind) and types.is_map(target):
        return _map(array, target)
    if types.is_list(kind) and types.is_list(target):
        values = assigned_nested(array.flatten(), target.value_type, assign)
        return pa.ListArray.from_arrays(flat_offsets(array), values, mask=array.is_null())
    if types.is_map(kind) and types.is_map(target):
        lists = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        keys, items = lists.flatten().flatten()
        return pa.MapArray.from_arrays(
            flat_offsets(lists),
            assigned_nested(keys, target.key_type, assign),
            assigned_nested(items, target.item_type, assign),
            mask=array.is_null(),
        )
    return array


def _struct(array: pa.Array, wanted: Mapping[str, pa.DataType], assign: Assign) -> pa.Array:
    names = [field.name for field in array.type]
    children = [
        assigned_nested(child, wanted.get(name.lower(), child.type), assign)
        for name, child in zip(names, array.flatten(), strict=True)
    ]
    return pa.StructArray.from_arrays(children, names=names, mask=array.is_null())


def _map(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Each struct as a map from its names; the struct where its values are of several types."""
    names = [field.name for field in array.type]
    valid = array.filter(array.is_valid())
    items = [_item(child, target.item_type) for child in valid.flatten()]
    if len({item.type for item in items}) != 1 or not pa.types.is_string(target.key_type):
        return array
    rows = len(valid)
    by_row = [place * rows + row for row in range(rows) for place in range(len(names))]
    lengths = pc.if_else(array.is_valid(), len(names), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    return pa.MapArray.from_arrays(
        pa.concat_arrays([pa.array([0], pa.int32()), ends]),
        pa.array(names * rows, pa.string()),
        pa.concat_arrays(items).take(pa.array(by_row, pa.int64())),
        mask=array.is_null(),
    )


def _item(array: pa.Array, target: pa.DataType) -> pa.Array:
    """In the type of the map's values, so that all are of one; else as it is."""
    if array.null_count == len(array):
        return pa.nulls(len(array), target)
    try:
        return array.cast(target) if _number(array.type) and _number(target) else array
    except pa.ArrowInvalid:
        return array


def _number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
