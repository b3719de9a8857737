"""Statistics of data files: the library's JSON text to Iceberg's maps, and back.

The JSON is that of Delta's log with every column named by its id, so that one pruning
serves both formats. A bound is left out wherever the two forms would differ in meaning.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import msgspec

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.iceberg.metadata.schema import LeafField

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (the zone is written by hand)
_DAY = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_MICROSECONDS_OF_DAY = 86_400_000_000
#: The allowed lengths of a bound in bytes: those of the type, and of the type promoted to it.
#: Python rounds to 28 digits by default; a decimal has up to 38.
_LENGTHS = {
    "int": (4,),
    "long": (4, 8),
    "float": (4,),
    "double": (4, 8),
    "date": (4,),
    "timestamp": (4, 8),
    "timestamptz": (8,),
}
#: Python rounds to 28 digits where nothing else is said; a decimal has up to 38.
_EXACT = Context(prec=76)

_encoder = msgspec.json.Encoder(decimal_format="number")
_decoder = JsonDecoder(float_hook=Decimal)


@dataclass(slots=True)
class Metrics:
    """The statistics of a file's rows in a manifest, by column id."""

    record_count: int = 0
    value_counts: dict[int, int] = field(default_factory=dict)
    null_counts: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)


def metrics_of(stats: str | None, leaves: Mapping[int, LeafField]) -> Metrics:
    """Return a manifest's maps for a file whose statistics are ``stats``."""
    document = {} if stats is None else _decoder.decode(stats)
    found = Metrics(record_count=int(document.get("numRecords") or 0))
    for leaf in leaves.values():
        if leaf.is_repeated:
            continue
        nulls = _at(document.get("nullCount"), leaf.path)
        if nulls is not None:
            found.null_counts[leaf.field_id] = int(nulls)
            found.value_counts[leaf.field_id] = found.record_count
        low, high = (_at(document.get(part), leaf.path) for part in ("minValues", "maxValues"))
        if low is not None and high is not None:
            one, other = _to_bytes(leaf.type, low), _to_bytes(leaf.type, high)
            if one is not None and other is not None:
                found.lower[leaf.field_id], found.upper[leaf.field_id] = one, other
    return found


def statistics_of(
    record_count: int,
    nulls: Mapping[int, int] | None,
    lower: Mapping[int, bytes] | None,
    upper: Mapping[int, bytes] | None,
    leaves: Mapping[int, LeafField],
    constants: Mapping[int, Any] | None = None,
) -> str:
    """Return the JSON text of a file's statistics in a manifest.

    ``constants`` are columns that have one value in all rows, by the file's partition. This value
    has priority over other statistics of the column: the file may lack the column.
    """
    known = constants or {}
    document: dict[str, Any] = {"numRecords": record_count}
    for name, values in (("minValues", lower), ("maxValues", upper)):
        tree: dict[str, Any] = {}
        for number, raw in (values or {}).items():
            leaf = leaves.get(number)
            if leaf is not None and not leaf.is_repeated and number not in known:
                _put(tree, leaf.path, _from_bytes(leaf.type, raw))
        for number, value in known.items():
            _put(tree, leaves[number].path, as_stored(leaves[number].type, value))
        document[name] = tree
    tree = {}
    counts = {**(nulls or {}), **{n: record_count * (v is None) for n, v in known.items()}}
    for number, count in counts.items():
        leaf = leaves.get(number)
        if leaf is not None and not leaf.is_repeated:
            _put(tree, leaf.path, count)
    document["nullCount"] = tree
    return _encoder.encode(document).decode()


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def _to_bytes(kind: str, value: Any) -> bytes | None:
    try:
        match kind:
            case "int":
                return int(value).to_bytes(4, "little", signed=True)
            case "long":
                return int(value).to_bytes(8, "little", signed=True)
            case "float" | "double":
                return _float_bytes(kind, float(value))
            case "string":
                return str(value).encode()
            case "date":
                days = (datetime.date.fromisoformat(value) - _DAY).days
                return days.to_bytes(4, "little", signed=True)
            case "timestamp" | "timestamptz":
                instant = datetime.datetime.fromisoformat(value.removesuffix("Z"))
                return ((instant - _EPOCH) // _MICROSECOND).to_bytes(8, "little", signed=True)
        if kind.startswith("decimal"):
            return _decimal_bytes(Decimal(value), _scale(kind))
    except (ValueError, OverflowError, TypeError, AttributeError, ArithmeticError):
        pass  # such a bound is left out
    return None


def _float_bytes(kind: str, value: float) -> bytes | None:
    return None if math.isnan(value) else struct.pack("<f" if kind == "float" else "<d", value)


def _decimal_bytes(value: Decimal, scale: int) -> bytes | None:
    unscaled = value.scaleb(scale, _EXACT)
    whole = int(unscaled)
    if whole != unscaled:
        return None
    length = max(1, ((whole if whole >= 0 else ~whole).bit_length() + 8) // 8)
    return whole.to_bytes(length, "big", signed=True)


def _scale(kind: str) -> int:
    return int(kind.rstrip(") ").rpartition(",")[2])


def _from_bytes(kind: str, raw: bytes) -> Any:
    """Return the value as Delta's statistics write it; None where it is left out.

    A bound keeps the type that the column had when it was written, which its length shows
    (Iceberg spec, "Schema Evolution"). A bound whose length the spec does not name bounds
    nothing.
    """
    try:
        if kind in _LENGTHS and len(raw) not in _LENGTHS[kind]:
            return None
        if kind == "timestamp" and len(raw) == 4:
            return as_stored(
                kind, int.from_bytes(raw, "little", signed=True) * _MICROSECONDS_OF_DAY
            )
        if kind in ("float", "double"):
            return as_stored(kind, _float_of(raw))
        if kind == "string":
            return as_stored(kind, raw.decode())
        if kind.startswith("decimal"):
            unscaled = int.from_bytes(raw, "big", signed=True)
            return as_stored(kind, Decimal(unscaled).scaleb(-_scale(kind), _EXACT))
        return as_stored(kind, int.from_bytes(raw, "little", signed=True))
    except (ValueError, ArithmeticError):
        return None


def as_stored(kind: str, value: Any) -> Any:
    """Return a typed value, as manifests keep those of partitions, as Delta's statistics write it.

    None where it is left out.
    """
    if value is None:
        return None
    try:
        match kind:
            case "int" | "long" | "string":
                return value
            case "float" | "double":
                return value if math.isfinite(value) else None
            case "date":
                return (_DAY + datetime.timedelta(days=value)).isoformat()
            case "timestamp" | "timestamptz":
                instant = _EPOCH + value * _MICROSECOND
                return instant.isoformat("T", "microseconds") + ("Z" if kind[-1] == "z" else "")
    except (ValueError, OverflowError):
        return None
    return value if kind.startswith("decimal") else None


def _float_of(raw: bytes) -> float:
    value: float = struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0]
    return value
