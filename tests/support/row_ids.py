"""The ids of a Delta table's rows, read from its log and its files without the library.

`Bank` has a table of either format; `tests.support.row_ids_of_iceberg` reads the ids of the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring
import pytest

from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from lakevilla.formats.base import Change, FormatName
from lakevilla.formats.files import DataFile
from tests.support import row_ids_of_iceberg
from tests.support.delta_by_hand import Tables, commit_info
from tests.support.places import Place, make_place

SCHEMA = pa.schema([("id", pa.int64()), ("balance", pa.int64())])
PROPERTIES = {"delta.enableRowTracking": "true"}
#: The columns of the table's configuration that name the stored ids and versions.
_NAMES = tuple(
    f"delta.rowTracking.materialized{part}ColumnName" for part in ("RowId", "RowCommitVersion")
)
#: By the key of a row, its id, and the version of the commit that last changed it.
Lineage = dict[int, tuple[int, int]]


def actions(table: Path) -> list[dict[str, Any]]:
    """Return all actions of a log, in order; within an entry, removals are first."""
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        found += sorted(lines, key=lambda action: "add" in action)
    return found


def newest(log: Iterable[Mapping[str, Any]], kind: str) -> Any:
    found = [action[kind] for action in log if kind in action]
    return found[-1] if found else None


def mark_of(table: Path) -> int:
    """Return the highest id that the table has assigned."""
    domains = [a["domainMetadata"] for a in actions(table) if "domainMetadata" in a]
    texts = [one["configuration"] for one in domains if one["domain"] == "delta.rowTracking"]
    return int(json.loads(texts[-1])["rowIdHighWaterMark"])


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deleted_rows(table: Path, vector: Mapping[str, Any] | None) -> set[int]:
    """Return the places of the rows that a deletion vector deletes."""
    if vector is None:
        return set()
    text = vector["pathOrInlineDv"]
    if vector["storageType"] == "i":
        return set(pyroaring.BitMap64.deserialize(decoded(text)[4 : vector["sizeInBytes"]]))
    if vector["storageType"] == "p":
        file = Path(unquote(text).removeprefix("file://"))
    else:
        file = table / text[:-20] / f"deletion_vector_{uuid.UUID(bytes=decoded(text[-20:]))}.bin"
    body = file.read_bytes()
    start = vector["offset"] + 4
    return set(pyroaring.BitMap64.deserialize(body[start + 4 : start + vector["sizeInBytes"]]))


def decoded(text: str) -> bytes:
    """Return the bytes of a text in Z85."""
    found = b""
    for start in range(0, len(text), 5):
        number = 0
        for letter in text[start : start + 5]:
            number = number * 85 + _Z85.index(letter)
        found += number.to_bytes(4, "big")
    return found


def lineage_of(table: Path, key: str = "id") -> Lineage:
    """Return the lineage of all rows, by the column ``key``.

    Two rows with one id fail the test, as an id does that is above the table's mark.
    """
    found: Lineage = {}
    for k, row, since in lineage_of_each(table, key):
        assert k not in found, f"row {k} is there twice"
        found[k] = row, since
    ids = [row for row, _ in found.values()]
    assert len(set(ids)) == len(ids), f"two rows have one id: {found}"
    assert not ids or max(ids) <= mark_of(table)
    return found


def lineage_of_each(table: Path, key: str = "id") -> list[tuple[int, int, int]]:
    """Return each row's key, its id, and the version of the commit that last changed it."""
    log = actions(table)
    metadata = newest(log, "metaData")
    fields = {one["name"]: one for one in json.loads(metadata["schemaString"])["fields"]}
    name_in_files = fields[key]["metadata"].get("delta.columnMapping.physicalName", key)
    configuration = metadata["configuration"]
    assert configuration["delta.enableRowTracking"] == "true"
    files: dict[str, Any] = {}
    for action in log:
        if "remove" in action:
            files.pop(action["remove"]["path"], None)
        if "add" in action:
            files[action["add"]["path"]] = action["add"]
    found = []
    for path, file in files.items():
        place = unquote(path.removeprefix("file://"))
        rows = pq.read_table(place if place.startswith("/") else table / place, partitioning=None)
        stored = [
            rows[configuration[name]].to_pylist()
            if configuration[name] in rows.column_names
            else [None] * len(rows)
            for name in _NAMES
        ]
        keys = rows[name_in_files].to_pylist()
        deleted = deleted_rows(table, file.get("deletionVector"))
        for number, (k, row, since) in enumerate(zip(keys, *stored, strict=True)):
            if number not in deleted:
                id_ = file["baseRowId"] + number if row is None else row
                found.append((k, id_, file["defaultRowCommitVersion"] if since is None else since))
    return found


def kept(before: Lineage, after: Lineage) -> bool:
    """Return whether each row that is in both has the same id."""
    return all(after[k][0] == before[k][0] for k in before.keys() & after.keys())


def changed(before: Lineage, after: Lineage) -> set[int]:
    return {k for k in before.keys() & after.keys() if after[k][1] != before[k][1]}


def rows(*ids: int, balance: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "balance": [balance] * len(ids)}, schema=SCHEMA)


class Bank:
    """A lake with the table ``bank``: rows 0 to 3 in one file, and 4 to 7 in another."""

    def __init__(self, place: Place, properties: Mapping[str, str] = MappingProxyType({})) -> None:
        self.place = place
        self.lake = place.connect()
        self.is_iceberg = "format-version" in properties
        self.is_plain = not self.is_iceberg and "delta.columnMapping.mode" not in properties
        made = properties if self.is_iceberg else {**PROPERTIES, **properties}
        kind: FormatName = "iceberg" if self.is_iceberg else "delta"
        self.lake.create_table("bank", SCHEMA, format=kind, properties=made)
        for first in (0, 4):
            self.lake.run(
                lambda txn, first=first: txn.append("bank", rows(*range(first, first + 4)))
            )

    def path(self, table: str = "bank") -> Path:
        return Path(self.place.root) / table

    @property
    def lineage(self) -> Lineage:
        return self.lineage_of("bank")

    def lineage_of(self, table: str) -> Lineage:
        if self.is_iceberg:
            return row_ids_of_iceberg.lineage_of(self.lake, table, "id")
        return lineage_of(self.path(table))

    def append_by_others(self, *ids: int, row_group_size: int | None = None) -> None:
        """Append one file as a client does that knows the table's log alone."""
        file = self._file(rows(*ids), row_group_size)
        tables = Tables(Path(self.place.root))
        tables.commit(tables.open("bank"), Change(adds=(file,)))

    def append_wrongly(self, *ids: int, base: int, stored: int | None = None) -> None:
        """Append one file with a base, and with ids that it stores, whatever the log says."""
        data = rows(*ids)
        if stored is not None:
            name = newest(actions(self.path()), "metaData")["configuration"][_NAMES[0]]
            data = data.append_column(name, pa.array([stored] * len(ids), pa.int64()))
        file = self._file(data)
        action = {"path": file.path, "partitionValues": {}, "size": file.size, "dataChange": True}
        action |= {"modificationTime": 1, "stats": file.stats, "baseRowId": base}
        version = len(list((self.path() / "_delta_log").glob("*.json")))
        entry = {"add": action | {"defaultRowCommitVersion": version}}
        Tables(Path(self.place.root)).write_entry(version, commit_info(1), entry, name="bank")

    def _file(self, data: pa.Table, row_group_size: int | None = None) -> DataFile:
        ids = data["id"].to_pylist()
        path = self.path() / f"other-{ids[0]}.parquet"
        pq.write_table(data, path, row_group_size=row_group_size)
        span = {"minValues": {"id": min(ids)}, "maxValues": {"id": max(ids)}}
        stats = json.dumps({"numRecords": len(ids), **span, "nullCount": {"id": 0}})
        return DataFile(path.name, path.stat().st_size, 1, stats=stats)


@contextmanager
def bank_with(marks: str, request: pytest.FixtureRequest) -> Iterator[Bank]:
    """Yield a bank whose files are ``rewritten``, or whose deleted rows are ``marked``."""
    properties = {"delta.enableDeletionVectors": "true"} if marks == "marked" else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
        bank = Bank(make_place("local", request), properties)
        yield bank
        bank.lake.close()
