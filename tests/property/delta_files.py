"""Write Delta tables as other clients do: files by pyarrow, log entries by hand.

By hand, because other clients write logs in many forms: statistics that are cut as Spark cuts them,
that ignore NaN, or that are missing; types that have been widened since; mapped names.
"""

from __future__ import annotations

import json
import math
import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring

from tests.property.plans import (
    KEY,
    Add,
    Append,
    Col,
    Delete,
    Drop,
    Model,
    Plan,
    Rename,
    Respec,
    Step,
    Widen,
    table_of,
)
from tests.property.values import ordered

_MOST = 32


@dataclass
class DeltaWriter:
    """A table; ``model`` has its rows before each step."""

    path: Path
    plan: Plan
    model: Model
    version: int = -1
    #: By path: the add action, and the keys of the file's rows in order.
    files: dict[str, tuple[dict[str, Any], list[int]]] = field(default_factory=dict)
    #: By column: the changes of its type.
    changes: dict[int, list[dict[str, str]]] = field(default_factory=dict)
    gone: dict[str, set[int]] = field(default_factory=dict)

    def create(self) -> None:
        (self.path / "_delta_log").mkdir(parents=True)
        self._entry(self._protocol(), self._metadata())

    def apply(self, step: Step, after: Model) -> None:
        match step:
            case Append():
                self._append(step)
            case Delete(keys=keys):
                self._delete(keys)
            case Widen(id=id_, type=to):
                change = {"fromType": self.model.col(id_).type, "toType": to}
                self.changes.setdefault(id_, []).append(change)
                self.model = after
                self._entry(self._metadata())
            case Rename() | Add() | Drop():
                self.model = after
                self._entry(self._metadata())
            case Respec():
                raise AssertionError("of Iceberg alone")

    def may_delete(self, keys: Sequence[int]) -> bool:
        """Return whether this writer has written the files of these rows."""
        return set(keys) <= {key for _, own in self.files.values() for key in own}

    def forget(self, keys: Sequence[int]) -> None:
        """Forget the files of these rows, which another client has rewritten."""
        for name, (_, own) in list(self.files.items()):
            if not set(own).isdisjoint(keys):
                del self.files[name]

    # -- the log -------------------------------------------------------------------------

    def _entry(self, *actions: dict[str, Any]) -> None:
        log = self.path / "_delta_log"
        self.version = len(list(log.glob("*.json")))
        text = "\n".join(json.dumps(action) for action in actions)
        (log / f"{self.version:020}.json").write_text(text + "\n")

    def _protocol(self) -> dict[str, Any]:
        both = ["deletionVectors", "timestampNtz", "typeWidening"]
        both += ["columnMapping"] if self.plan.mapped else []
        return {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": both,
                "writerFeatures": both,
            }
        }

    def _metadata(self) -> dict[str, Any]:
        configuration = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}
        if self.plan.mapped:
            most = max(c.id for col in self.model.cols for c in col.walk())
            mode = "id" if len(self.plan.cols) % 2 else "name"
            configuration |= {
                "delta.columnMapping.mode": mode,
                "delta.columnMapping.maxColumnId": str(max(most, 1000)),
            }
        fields = [self._field(col) for col in self.model.cols]
        names = {col.id: col.name for col in self.model.cols}
        return {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [names[id_] for id_, _ in self.plan.partition],
                "configuration": configuration,
                "createdTime": 1,
            }
        }

    def _field(self, col: Col) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self.plan.mapped:
            metadata |= {
                "delta.columnMapping.id": col.id,
                "delta.columnMapping.physicalName": col.physical,
            }
            nested = {
                f"{col.physical}.{part}": inner.id
                for part, inner in zip(_PARTS.get(col.type, ()), col.fields, strict=False)
            }
            metadata |= {"delta.columnMapping.nested.ids": nested} if nested else {}
        if col.id in self.changes:
            metadata["delta.typeChanges"] = self.changes[col.id]
        return {"name": col.name, "type": self._type(col), "nullable": True, "metadata": metadata}

    def _type(self, col: Col) -> Any:
        if col.type == "struct":
            return {"type": "struct", "fields": [self._field(part) for part in col.fields]}
        if col.type == "array":
            inner = self._type(col.fields[0])
            return {"type": "array", "elementType": inner, "containsNull": True}
        if col.type == "map":
            key, value = (self._type(part) for part in col.fields)
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        return col.type

    # -- files ---------------------------------------------------------------------------

    def _append(self, step: Append) -> None:
        rng = Random(step.how)
        ids = [id_ for id_, _ in self.plan.partition]
        groups: dict[str, list[Any]] = {}
        for row in step.rows:
            # For writers of text, -0.0 and 0.0 are two directories.
            groups.setdefault(repr([row.get(id_) for id_ in ids]), []).append(row)
        adds = []
        for rows in groups.values():
            adds.append({"add": self._file(rows, ids, rng)})
        self._entry({"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, *adds)

    def _file(self, rows: list[Any], ids: list[int], rng: Random) -> dict[str, Any]:
        cols = [col for col in self.model.cols if col.id not in ids]
        named = {col.id: col for col in self.model.cols}
        data = table_of(cols, rows, physical=True, ids=self.plan.mapped)
        # A missing column is NULL: writers may leave it out.
        if rng.random() < 0.15:
            empty = [n for n in data.column_names[1:] if data[n].null_count == data.num_rows]
            cols = [col for col in cols if col.physical not in empty]
            data = data.drop_columns(empty)
        name = f"part-{uuid.UUID(int=rng.getrandbits(128))}.parquet"
        write_parquet(data, self.path / name, rng)
        values = {named[id_].physical: partition_text(rows[0].get(id_), rng) for id_ in ids}
        add = {
            "path": name,
            "partitionValues": values,
            "size": (self.path / name).stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
        }
        stats = statistics(cols, rows, rng)
        if stats is not None:
            # Decimals are written with all their digits, which Python's float does not have.
            add["stats"] = re.sub(r'"@number ([-0-9.]+)"', r"\1", json.dumps(stats))
        self.files[name] = (add, [row[KEY] for row in rows])
        return add

    def _delete(self, keys: Sequence[int]) -> None:
        actions: list[dict[str, Any]] = []
        for name, (add, own) in list(self.files.items()):
            found = self.gone.get(name, set()) | {own.index(key) for key in keys if key in own}
            if found == self.gone.get(name, set()):
                continue
            remove = {k: v for k, v in add.items() if k in ("path", "partitionValues", "size")}
            remove |= {"deletionTimestamp": 2, "dataChange": True}
            if "deletionVector" in add:
                remove["deletionVector"] = add["deletionVector"]
            actions.append({"remove": remove})
            self.gone[name] = found
            if len(found) == len(own):
                del self.files[name]
                continue
            marked = {**add, "deletionVector": self._vector(sorted(found))}
            if "stats" in add:
                marked["stats"] = add["stats"][:-1] + ', "tightBounds": false}'
            self.files[name] = (marked, own)
            actions.append({"add": marked})
        self._entry({"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, *actions)

    def _vector(self, rows: list[int]) -> dict[str, Any]:
        body = (1681511377).to_bytes(4, "little") + pyroaring.BitMap64(rows).serialize()
        name = uuid.uuid4()
        checksum = zlib.crc32(body).to_bytes(4, "big")
        file = self.path / f"deletion_vector_{name}.bin"
        file.write_bytes(b"\x01" + len(body).to_bytes(4, "big") + body + checksum)
        return {
            "storageType": "u",
            "pathOrInlineDv": _z85(name.bytes),
            "offset": 1,
            "sizeInBytes": len(body),
            "cardinality": len(rows),
        }


_PARTS = {"array": ("element",), "map": ("key", "value")}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(data: bytes) -> str:
    numbers = (int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4))
    return "".join(_Z85[n // 85**power % 85] for n in numbers for power in range(4, -1, -1))


def write_parquet(data: pa.Table, path: Path, rng: Random) -> None:
    """Write a file in one of the forms that writers use."""
    options: dict[str, Any] = {
        "row_group_size": rng.choice([1, 2, 1000]),
        "use_dictionary": rng.random() < 0.5,
        "write_page_index": rng.random() < 0.5,
        "write_statistics": rng.random() < 0.9,
        "store_decimal_as_integer": rng.random() < 0.5,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "compression": rng.choice(["snappy", "zstd", "none"]),
    }
    # Spark's own default, within the range of years that nanoseconds have.
    if rng.random() < 0.25 and _within_nanoseconds(data):
        options["use_deprecated_int96_timestamps"] = True
    pq.write_table(data, path, **options)


def _within_nanoseconds(data: pa.Table) -> bool:
    if any(pa.types.is_nested(column.type) for column in data.schema):
        return False
    instants = [v for c in data.columns for v in c.to_pylist() if isinstance(v, datetime)]
    return all(1700 < instant.year < 2200 for instant in instants)


def partition_text(value: Any, rng: Random) -> str | None:
    """Return a partition value in the log's form: as Spark writes it, or as deltalake does."""
    if value is None:
        return rng.choice([None, ""])
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        return rng.choice([repr(value), repr(value).replace("e", "E").replace("E+", "E")])
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(
            sep=" ", timespec="auto" if value.microsecond else "seconds"
        )
        if value.tzinfo is not None and rng.random() < 0.5:
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        return text
    return str(value)


def statistics(cols: Iterable[Col], rows: list[Any], rng: Random) -> dict[str, Any] | None:
    """Return the log's statistics of a file."""
    how = rng.choice(["spark", "parquet", "parquet", "parquet", "counts", "few", None])
    if how is None:
        return None
    if how == "counts":
        return {"numRecords": len(rows)}
    cols = list(cols)[: 3 if how == "few" else None]
    low, high, nulls = ({}, {}, {})
    for col in cols:
        _bounds(col, [row.get(col.id) for row in rows], (low, high, nulls), how)
    return {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}


_Bounds = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def _bounds(col: Col, values: list[Any], into: _Bounds, how: str) -> None:
    low, high, nulls = into
    if col.type == "struct":
        inner: _Bounds = ({}, {}, {})
        for part in col.fields:
            own = [None if value is None else value.get(part.id) for value in values]
            _bounds(part, own, inner, how)
        for whole, one in zip(into, inner, strict=True):
            if one:
                whole[col.physical] = one
        return
    nulls[col.physical] = sum(value is None for value in values)
    if col.fields or col.type in ("binary", "boolean"):
        return
    known = ordered([value for value in values if value is not None])
    if how != "spark":
        known = [value for value in known if value == value]  # this writer's statistics ignore NaN
    if not known:
        return
    least, most = _cut(known[0], high=False), _cut(known[-1], high=True)
    if least is not None:
        low[col.physical] = least
    if most is not None:
        high[col.physical] = most


def _cut(value: Any, *, high: bool) -> Any:
    """Return the bound in JSON's form, cut to the length that Spark allows."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, Decimal):
        return f"@number {value:f}"
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str) and len(value) > _MOST:
        if not high:
            return value[:_MOST]
        return _cut_above(value)
    return value


def _cut_above(value: str) -> str | None:
    """Return a text above the value as Spark does: 32 characters, the last one increased."""
    for size in range(_MOST, min(len(value), 2 * _MOST)):
        following = value[size]
        if following < "\u007f":
            return value[:size] + "\u007f"
        if following < chr(0x10FFFF):
            return value[:size] + chr(0x10FFFF)
    return None
