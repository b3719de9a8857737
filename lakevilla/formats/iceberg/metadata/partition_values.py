"""Partition values: typed values in manifests, and text in the library.

The text is Delta's. Values of partition fields are ints for dates and timestamps (days,
microseconds), as Avro keeps them.
"""

from __future__ import annotations

import datetime
import uuid  # noqa: TID251 (the type alone: none is made here)
from collections.abc import Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from lakevilla.errors import UnsupportedTableFeature
from lakevilla.formats.iceberg.metadata.schema import LeafField

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec

#: A transform that a newer version of the format has, and its values' type. The values show nothing
#: about rows, but distinguish partitions: deletes belong to one.
UNKNOWN = "unknown"

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)
_MICROSECOND = datetime.timedelta(microseconds=1)
_EXACT = Context(prec=76)


def partition_keys(specs: Iterable[Mapping[str, Any]]) -> dict[int, dict[int, str]]:
    """Return the keys of files' partition values, by the ids of specs and of their fields.

    A key is the field's id. Old writers of version 1 counted the ids anew in each spec: where an id
    has a second meaning, the key also names the first spec with that meaning. Specs are only added,
    so the keys of files stay.
    """
    known: dict[int, dict[tuple[str, str], str]] = {}
    found: dict[int, dict[int, str]] = {}
    for spec in sorted(specs, key=lambda one: int(one["spec-id"])):
        keys = found.setdefault(spec["spec-id"], {})
        for field in spec["fields"]:
            number, transform = field["field-id"], str(field["transform"])
            if transform != "void":
                meanings = known.setdefault(number, {})
                meaning = str(field.get("source-id", field.get("source-ids"))), transform
                key = f"{number}-{spec['spec-id']}" if meanings else str(number)
                keys[number] = meanings.setdefault(meaning, key)
    return found


class PartitionTypes:
    """The fields of a spec, in the order of a manifest's partition tuples.

    ``keys`` are the spec's (``partition_keys``). ``fields`` are (key, type as the spec writes it);
    the key is None for a void field.
    """

    def __init__(
        self,
        spec: PartitionSpec,
        keys: Mapping[int, str],
        leaves: Mapping[int, LeafField],
        table: str,
    ) -> None:
        self.fields: list[tuple[str | None, str]] = []
        self._identities: list[tuple[int, int]] = []
        #: The fields that writers spell in more than one way: (place, type).
        self._spelled: list[tuple[int, str]] = []
        for field in spec.fields:
            transform = str(field.transform)
            if transform == UNKNOWN:
                self.fields.append((keys[field.field_id], UNKNOWN))
                continue
            leaf = leaves.get(field.source_id)
            if leaf is None:
                raise UnsupportedTableFeature(
                    f"table {table} is partitioned by {field.name}, a value of column id "
                    f"{field.source_id}, which none of its schemas has: use the client that "
                    "wrote it",
                    table=table,
                )
            key = keys.get(field.field_id)
            if transform == "identity":
                self._identities.append((len(self.fields), field.source_id))
            kind = _result(transform, leaf.type)
            if key is not None and (kind == "string" or kind.startswith("decimal")):
                self._spelled.append((len(self.fields), kind))
            self.fields.append((key, kind))

    def plain(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return a manifest's partition tuple, of any writer, for ``texts`` and all writers.

        Raises ``ValueError`` for a value that has no place in a manifest of the table: this must
        not be found only when a decided transaction replaces the manifest.
        """
        made: list[Any] | None = None
        for place, kind in self._spelled:
            value = _plain(kind, values[place])
            if value is not values[place]:
                made = made or list(values)
                made[place] = value
        return values if made is None else made

    def texts(self, values: Any) -> dict[str, str | None]:
        """Return a manifest's partition tuple as text by key."""
        found = {}
        for index, (key, kind) in enumerate(self.fields):
            if key is not None:
                found[key] = partition_text(kind, values[index])
        return found

    def constants(self, values: Any) -> dict[int, Any]:
        """Return the columns, by id, that have one value in all rows of a file, and the values."""
        return {n: values[p] for p, n in self._identities}

    def values(self, texts: Mapping[str, str | None]) -> list[Any]:
        """Return text by key as a manifest's partition tuple."""
        return [
            None if key is None else partition_value(kind, texts.get(key))
            for key, kind in self.fields
        ]


def _plain(kind: str, value: Any) -> Any:
    """Return a value that a manifest's Avro schema may give as plain bytes, or another decimal."""
    if kind == "string":
        return value.decode() if isinstance(value, bytes) else value
    precision, scale = map(int, kind[kind.index("(") + 1 : kind.index(")")].split(","))
    if isinstance(value, bytes):
        value = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)
    if value is None:
        return None
    _, digits, exponent = value.as_tuple()
    if exponent == -scale and len(digits) <= precision:
        return value
    number = value.scaleb(scale, _EXACT)
    unscaled = int(number)
    # Truncated to a multiple of a width, the lowest values have one digit more than the type. A
    # writer that does not refuse them relies on the bytes of the type, which may have room.
    room = 8 * (((10**precision - 1).bit_length() + 8) // 8) - 1
    if unscaled != number or (unscaled if unscaled >= 0 else ~unscaled).bit_length() > room:
        raise ValueError(f"it has the partition value {value:f}, which is no {kind}")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _result(transform: str, source: str) -> str:
    if transform in ("year", "month", "hour") or transform.startswith("bucket"):
        return "int"
    return "date" if transform == "day" else source


def default_text(kind: str, value: Any) -> str:
    """Return a column's default value in the text of ``partition_text``, from the spec's JSON.

    Raises ``ValueError`` or ``TypeError`` for a value that is no JSON of the type.
    """
    match kind.partition("[")[0]:
        case "boolean":
            return "true" if value else "false"
        case "uuid":
            return _bytes_text(bytes.fromhex(value.replace("-", "")))
        case "binary" | "fixed":
            return _bytes_text(bytes.fromhex(value))
    return str(value)


def single_value(kind: str, value: Any) -> Any:
    """Return a value of a column as the spec's JSON (spec, "JSON single-value serialization")."""
    if isinstance(value, datetime.datetime):
        return value.isoformat("T", "microseconds")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return str(uuid.UUID(bytes=value)) if kind == "uuid" else value.hex()
    return format(value, "f") if isinstance(value, Decimal) else value


def partition_text(kind: str, value: Any) -> str | None:
    """Return a typed value as text; None for NULL."""
    if value is None:
        return None
    match kind:
        case "boolean":
            return "true" if value else "false"
        case "date":
            return (datetime.date(1970, 1, 1) + datetime.timedelta(days=int(value))).isoformat()
        case "timestamp":
            return (_EPOCH + int(value) * _MICROSECOND).isoformat(" ", "microseconds")
        case "timestamptz":
            instant = _EPOCH + int(value) * _MICROSECOND
            return instant.isoformat("T", "microseconds") + "Z"
        case "time":
            return (_EPOCH + int(value) * _MICROSECOND).time().isoformat()
        case "uuid":
            return _bytes_text(getattr(value, "bytes", value))
    if isinstance(value, bytes):
        return _bytes_text(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _bytes_text(value: bytes) -> str:
    return "".join(f"\\u{byte:04X}" for byte in value)


def partition_value(kind: str, text: str | None) -> Any:
    """Return the value that ``partition_text`` has written."""
    if text is None:
        return None
    match kind:
        case "boolean":
            return text == "true"
        case "int" | "long":
            return int(text)
        case "float" | "double":
            return float(text)
        case "date":
            return (datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)).days
        case "timestamp" | "timestamptz":
            instant = datetime.datetime.fromisoformat(text.removesuffix("Z"))
            return (instant - _EPOCH) // _MICROSECOND
        case "time":
            instant = datetime.datetime.combine(_EPOCH, datetime.time.fromisoformat(text))
            return (instant - _EPOCH) // _MICROSECOND
        case "binary" | "uuid":
            return bytes(int(text[i + 2 : i + 6], 16) for i in range(0, len(text), 6))
    return Decimal(text) if kind.startswith("decimal") else text
