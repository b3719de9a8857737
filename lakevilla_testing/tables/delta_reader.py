"""A reader of the bare Delta format, with the view of a client without LakeVilla.

It reads what simulated tables use (classic checkpoints, JSON entries, plain Parquet files, and
deletion vectors within the log) and refuses the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from lakevilla.formats.delta.deletion_vectors import decode_z85, read_vector
from lakevilla.formats.files import DeletionVector
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, list_objects, parallel
from lakevilla_testing.tables.bare import UnreadableTable
from lakevilla_testing.world.rows import Row, decode_rows

PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclass
class LoggedTable:
    """A ``bare.BareTable``: live files by path, newest metadata, entries that still exist."""

    location: str
    version: int = -1
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: dict[str, dict[str, Any]] = field(default_factory=dict)
    applications: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    checkpoints: tuple[int, ...] = ()

    @property
    def schema(self) -> list[dict[str, Any]]:
        """The columns, as the schema string lists them."""
        return list(json.loads(self.metadata["schemaString"])["fields"])

    @property
    def physical(self) -> dict[str, str]:
        """The names of columns in data files, by the names that readers use."""
        return {f["name"]: f["metadata"].get(PHYSICAL_NAME, f["name"]) for f in self.schema}

    @property
    def table_id(self) -> str:
        return str(self.metadata["id"])

    @property
    def live_files(self) -> Collection[str]:
        return self.files.keys()

    @property
    def transactions(self) -> list[str]:
        infos = [action["commitInfo"] for action in self._actions if "commitInfo" in action]
        return [txn for info in infos for txn in info.get("lakevilla", {}).get("txns", ())]

    @property
    def is_whole(self) -> bool:
        return 0 in self.entries

    @property
    def named(self) -> set[str]:
        """Return files that an existing entry adds, or that the table has or had, and the files of
        their vectors.
        """
        added = {unquote(action["add"]["path"]) for action in self._actions if "add" in action}
        told = [one for action in self._actions for one in action.values()]
        told += [*self.files.values(), *self.removed.values()]
        vectors = {_path_of(one.get("deletionVector") or {}) for one in told}
        return added | self.files.keys() | self.removed.keys() | vectors

    @property
    def _actions(self) -> list[dict[str, Any]]:
        return [action for entry in self.entries.values() for action in entry]

    def sequence(self, lake_id: str) -> int:
        found = self.applications.get(f"lakevilla/{lake_id}")
        return -1 if found is None else int(found["version"])

    def replay(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            for kind, value in action.items():
                self._replay(kind, value)

    def _replay(self, kind: str, value: dict[str, Any]) -> None:
        match kind:
            case "add":
                self.files[unquote(value["path"])] = value
                self.removed.pop(unquote(value["path"]), None)
            case "remove":
                path = unquote(value["path"])
                # A file with another vector is another file: it was added again under its path.
                if _vector(self.files.get(path)) == _vector(value):
                    self.files.pop(path, None)
                if path not in self.files:
                    self.removed[path] = value
            case "metaData":
                self.metadata = value
            case "protocol":
                if set(value.get("readerFeatures") or ()) - {"columnMapping", "deletionVectors"}:
                    raise UnreadableTable(
                        f"{self.location}: reader features {value['readerFeatures']}"
                    )
                self.protocol = value
            case "txn":
                self.applications[value["appId"]] = value


def read_log(location: str, version: int | None = None) -> Program[LoggedTable | None]:
    """Return the table at a version, or at the tip; None if there is no log.

    Raises
    ------
    Unreadable
        The log has a gap, or does not start anywhere.
    """
    listed = yield from list_objects(f"{location}/_delta_log")
    names = [info.key.rsplit("/", 1)[1] for info in listed]
    versions = {int(name[:20]) for name in names if _ENTRY.fullmatch(name)}
    checkpoints = sorted(int(name[:20]) for name in names if _CHECKPOINT.fullmatch(name))
    if not versions and not checkpoints:
        return None
    tip = max([*versions, *checkpoints]) if version is None else version
    table = LoggedTable(location, checkpoints=tuple(checkpoints))
    start = max((point for point in checkpoints if point <= tip), default=-1)
    if start >= 0:
        key = f"{location}/_delta_log/{start:020}.checkpoint.parquet"
        found = yield from get(key)
        if not isinstance(found, Found):
            return (yield from read_log(location, version))  # cleaned up during the read
        table.replay([_plain(row) for row in decode_rows(found.body)])
    wanted = sorted(v for v in versions if v <= tip)
    keys = [f"{location}/_delta_log/{v:020}.json" for v in wanted]
    bodies = yield from parallel([get(key) for key in keys])
    for number, found in zip(wanted, bodies, strict=True):
        if isinstance(found, Found):
            actions = [json.loads(line) for line in found.body.splitlines() if line.strip()]
            table.entries[number] = actions
            if number > start:
                table.replay(actions)
        elif number > start:
            return (yield from read_log(location, version))
    missing = [v for v in range(start + 1, tip + 1) if v not in table.entries]
    if missing:
        raise UnreadableTable(f"{location}: the log up to {tip} lacks {missing}")
    table.version = tip
    if not table.metadata or not table.protocol:
        raise UnreadableTable(f"{location}: version {tip} has no metadata or no protocol")
    return table


def read_tip(location: str) -> Program[LoggedTable | None]:
    """Return the newest version, or None where a table is absent or is being deleted."""
    try:
        return (yield from read_log(location))
    except UnreadableTable:
        return None


def read_rows(table: LoggedTable) -> Program[list[Row]]:
    """Return the rows of the live files, in no particular order."""
    paths = sorted(table.files)
    found = yield from parallel([read_all_rows(table, path) for path in paths])
    rows: list[Row] = []
    for path, all_ in zip(paths, found, strict=True):
        deleted = yield from deleted_rows(table.location, table.files[path])
        rows += [row for place, row in enumerate(all_) if place not in deleted]
    return rows


def read_all_rows(table: LoggedTable, path: str) -> Program[list[Row]]:
    """Return the rows of a live file in their order, with those that are marked as deleted."""
    found = yield from get(f"{table.location}/{path}")
    if not isinstance(found, Found):
        raise UnreadableTable(f"{table.location}: version {table.version} lacks its file {path}")
    texts = table.files[path].get("partitionValues") or {}
    partitions = [f for f in table.schema if f["name"] in table.metadata["partitionColumns"]]
    constants = {f["name"]: _typed(f["type"], texts.get(f["name"])) for f in partitions}
    return [
        {n: constants.get(n, row.get(stored)) for n, stored in table.physical.items()}
        for row in decode_rows(found.body)
    ]


def _path_of(vector: dict[str, Any]) -> str:
    """Return the path of the file with a vector, below its table; empty if there is none."""
    if vector.get("storageType") != "u":
        return ""
    name = vector["pathOrInlineDv"]
    text = UUID(bytes=decode_z85(name[-20:]))
    return f"{name[:-20]}/deletion_vector_{text}.bin"


def _vector(action: dict[str, Any] | None) -> Any:
    return None if action is None else action.get("deletionVector") or None


def deleted_rows(location: str, add: dict[str, Any]) -> Program[set[int]]:
    """Return the places of the rows of a file that no longer count."""
    vector = add.get("deletionVector")
    if not vector:
        return set()
    found = DeletionVector(
        vector["storageType"],
        vector["pathOrInlineDv"],
        vector["sizeInBytes"],
        vector["cardinality"],
        vector.get("offset"),
    )
    return set(map(int, (yield from read_vector(location, found))))


_ENTRY = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet")

_PARSERS: dict[str, Callable[[str], Any]] = {
    "string": str,
    "boolean": lambda text: text == "true",
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
}


def _typed(kind: str, text: str | None) -> Any:
    # An empty string means NULL in partition values of every type.
    return None if not text else _PARSERS[kind](text)


def _plain(value: Any) -> Any:
    """Return a checkpoint's struct in the form of a JSON entry: nulls left out."""
    if not isinstance(value, dict):
        return value
    return {key: _plain(item) for key, item in value.items() if item is not None}
