"""The Avro schema of a manifest as pyiceberg takes it, whoever wrote it.

The specification knows fields by their ids. Some writers leave them out, or mark no map as one,
or name a record where it is met again: then names tell what the ids would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

#: What older specifications call fields.
_OLDER = {
    "added_data_files_count": "added_files_count",
    "existing_data_files_count": "existing_files_count",
    "deleted_data_files_count": "deleted_files_count",
}
#: Ids of fields that no specification knows begin here.
_UNKNOWN = 1 << 20


def numbered(
    document: Mapping[str, Any], like: Schema, named: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """An Avro schema whose fields all have ids.

    ``like`` is how the specification has it; ``named`` are ids by name of the fields within
    fields where it does not tell them, which a table's partition spec does.
    """
    found: dict[str, Any] = _Numbering(named).record(document, like.as_struct(), {})
    return found


class _Numbering:
    def __init__(self, named: Mapping[str, Mapping[str, int]]) -> None:
        self._named = named
        self._records: dict[str, Any] = {}
        self._unknown = _UNKNOWN

    def record(
        self, document: Mapping[str, Any], like: IcebergType | None, ids: Mapping[str, int]
    ) -> dict[str, Any]:
        known = {one.name: one for one in like.fields} if isinstance(like, StructType) else {}
        by_id = {one.field_id: one for one in known.values()}
        fields = []
        for one in document["fields"]:
            name = one["name"]
            number = one.get("field-id")
            if number is None:
                field: NestedField | None = known.get(_OLDER.get(name, name))
                number = ids.get(name) if field is None else field.field_id
            if number is None:
                self._unknown += 1
                number = self._unknown
            inner = by_id.get(number)
            kind = self._type(one["type"], inner and inner.field_type, self._named.get(name, {}))
            fields.append({**one, "field-id": number, "type": kind})
        made = {**document, "fields": fields}
        self._records[str(document.get("name"))] = made
        return made

    def _type(self, kind: Any, like: IcebergType | None, ids: Mapping[str, int]) -> Any:
        if isinstance(kind, str):
            return self._records.get(kind.rpartition(".")[2], kind)
        if isinstance(kind, list):
            return [self._type(one, like, ids) for one in kind] if len(kind) > 1 else kind[0]
        if isinstance(kind["type"], dict | list):
            return self._type(kind["type"], like, ids)
        if kind["type"] == "record":
            return self.record(kind, like, ids)
        if kind["type"] == "map":
            # Of a field that no specification knows: as bytes, it is an array of pairs.
            fields = [{"name": "key", "type": "string"}, {"name": "value", "type": kind["values"]}]
            pair = {"type": "record", "name": "", "fields": fields}
            return self._type({"type": "array", "items": pair}, None, ids)
        if kind["type"] != "array":
            return kind
        if isinstance(like, MapType):
            pair = kind["items"]
            if isinstance(pair, list):  # of pairs that may be null
                pair = next(one for one in pair if one != "null")
            items = self._type(pair, None, {"key": like.key_id, "value": like.value_id})
            return {**kind, "logicalType": "map", "items": items}
        inner = like.element_type if isinstance(like, ListType) else None
        number = like.element_id if isinstance(like, ListType) else self._unknown
        return {"element-id": number, **kind, "items": self._type(kind["items"], inner, ids)}


def places_of(
    there: Sequence[tuple[int, str]], wanted: Sequence[tuple[int, str, bool]]
) -> list[int | None]:
    """Where a manifest's partition tuples have the fields of their spec.

    ``there`` are ids and names in the manifest; ``wanted`` those of the spec, and whether a
    field may be missing (``void``). Ids decide, then names; version 1 knew only the order.
    Raises ``ValueError``.
    """
    ids = {number: place for place, (number, _) in enumerate(there)}
    names = {name: place for place, (_, name) in enumerate(there)}
    places = [ids.get(number, names.get(name)) for number, name, _ in wanted]
    if all(place is None for place in places) and len(there) == len(wanted):
        return list(range(len(there)))
    for place, (_, name, optional) in zip(places, wanted, strict=True):
        if place is None and not optional:
            raise ValueError(f"its files have no value for partition field {name}")
    return places
