"""Columns of data files that know no field ids (Iceberg spec, "Column Projection").

Files that were taken over from elsewhere name their columns, and the table's property says
which id each name stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import CorruptObject
from lakevilla.formats.iceberg.metadata.schema import Field

NAME_MAPPING = "schema.name-mapping.default"


class _Mapped(msgspec.Struct, rename={"field_id": "field-id"}, omit_defaults=True):
    names: list[str]
    field_id: int | None = None
    fields: list[_Mapped] = []


_mapping = JsonDecoder(list[_Mapped])


def names_of(properties: Mapping[str, str], table: str) -> dict[int, tuple[str, ...]] | None:
    """The names that each column, at any depth, may have in a file without ids.

    None if the table says none. Raises ``CorruptObject``.
    """
    found = _decoded(properties, table)
    if found is None:
        return None
    return {one.field_id: tuple(one.names) for one in _all(found) if one.field_id is not None}


def with_fields(
    properties: Mapping[str, str], fields: Sequence[Field], table: str
) -> dict[str, str]:
    """The properties after a change of schema: the mapping knows what columns are called now.

    A name that files may have for another column goes on to mean that one, unlike with other
    clients: the rows that are there would else be read into the wrong column. Raises
    ``CorruptObject``.
    """
    known = _decoded(properties, table)
    if known is None:
        return dict(properties)
    by_id = {one.field_id: one for one in known}
    taken = {name for one in known for name in one.names}
    for field in fields:
        name, mapped = str(field["name"]), by_id.get(int(field["id"]))
        if name in taken:
            continue
        if mapped is None:
            known.append(_mapped(field))
        else:
            mapped.names.append(name)
    return {**properties, NAME_MAPPING: msgspec.json.encode(known).decode()}


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
