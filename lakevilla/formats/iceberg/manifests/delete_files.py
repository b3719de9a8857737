"""Which delete files apply to which data files (Iceberg spec, "Scan planning")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakevilla.formats.files import DELETE_FILE_TYPE, DeleteFile, deletes_id

_Row = dict[str, Any]


def with_deletes(data: pa.Table, deletes: pa.Table) -> tuple[pa.Array, pa.Array]:
    """For each data file of ``data`` the id and the list of the deletes that apply to it.

    Both tables have ``ENTRIES``' columns. Data files that no delete can touch cost nothing
    but a look at their partition.
    """
    index = _Index(deletes.to_pylist())
    columns = ("path", "sequence", "spec_id", "partition_values")
    ids: list[str | None] = []
    lists: list[list[_Row] | None] = []
    for path, sequence, spec_id, values in zip(
        *(data.column(name).to_pylist() for name in columns), strict=True
    ):
        found = index.of(path, sequence, _partition(spec_id, values))
        ids.append(deletes_id(_struct(row) for row in found) if found else None)
        lists.append([_listed(row) for row in found] if found else None)
    return pa.array(ids, pa.string()), pa.array(lists, pa.list_(DELETE_FILE_TYPE))


class _Index:
    def __init__(self, rows: Iterable[_Row]) -> None:
        self._by_target: dict[str, list[_Row]] = defaultdict(list)
        self._by_partition: dict[object, list[_Row]] = defaultdict(list)
        self._everywhere: list[_Row] = []
        for row in rows:
            if row["kind"] != "equality" and row["target"] is not None:
                self._by_target[row["target"]].append(row)
            elif row["kind"] == "equality" and not row["partition_values"]:
                self._everywhere.append(row)
            else:
                key = _partition(row["spec_id"], row["partition_values"])
                self._by_partition[key].append(row)

    def of(self, path: str, sequence: int, partition: object) -> list[_Row]:
        pointed = [row for row in self._by_target.get(path, ()) if row["sequence"] >= sequence]
        vectors = [row for row in pointed if row["kind"] == "vector"]
        if not vectors:
            near = self._by_partition.get(partition, ())
            pointed += [
                row for row in near if row["kind"] == "position" and row["sequence"] >= sequence
            ]
        else:
            # A vector holds what the position deletes before it said of the file.
            pointed = vectors
        found = pointed + [
            row
            for row in (*self._by_partition.get(partition, ()), *self._everywhere)
            if row["kind"] == "equality" and row["sequence"] > sequence
        ]
        return sorted(found, key=lambda row: (row["path"], row["offset"] or 0))


def _partition(spec_id: int, values: Any) -> object:
    return spec_id, tuple(sorted(values or ()))


def _struct(row: _Row) -> DeleteFile:
    return DeleteFile(**_listed(row))


def _listed(row: _Row) -> _Row:
    return {
        "path": row["path"],
        "kind": row["kind"],
        "size": row["size"],
        "equality_ids": tuple(row["equality_ids"] or ()),
        "offset": row["offset"],
        "length": row["length"],
    }
