"""Lakes in which one object is hostile: it names a file beyond the lake, or holds code."""

from __future__ import annotations

import json
import os
import pickle
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakevilla as lv
from tests.support.hostile.spellings import hostile_path
from tests.support.iceberg_by_hand import File, Table, column, of_ids

SCHEMA = pa.schema([("n", pa.string()), ("k", pa.int64())])
#: The fields of the columns in Iceberg.
IDS = {"n": 1, "k": 2}


@dataclass(frozen=True)
class HostileLake:
    """A lake, the table whose objects are hostile, and a directory beyond the lake.

    Whoever may write ``_lakevilla`` decides which directories are tables, and whoever may make
    links in a local directory what is read there (docs/security.md). So lakes that
    ``decides_places`` may have a process read beyond them, and delete and change nothing there.
    """

    root: Path
    table: str
    outside: Path
    secret: str
    what: str
    decides_places: bool = False


def hostile_lake(seed: int, directory: Path) -> HostileLake:
    """Make a lake of two tables, then make one object of it hostile, as drawn."""
    draw = random.Random(seed)
    outside = directory / f"outside-{seed}"
    outside.mkdir(parents=True)
    secret = f"private-{seed}"
    rows = pa.table({"n": [secret], "k": [1]}, SCHEMA)
    pq.write_table(of_ids(rows, IDS), outside / "a.parquet")
    (outside / "precious.json").write_text(json.dumps({"secret": secret}))
    root = directory / "lake"
    _made(root)
    (kind,) = draw.choices(
        [_in_delta_log, _in_iceberg, _in_metadata, _in_head, _code], [4, 4, 2, 2, 1]
    )
    table, what = kind(draw, root, outside)
    return HostileLake(root, table, outside, secret, what, "_lakevilla" in what or "link/" in what)


def _made(root: Path) -> None:
    own = pa.table({"n": ["own", "mine"], "k": [1, 2]}, SCHEMA)
    with lv.connect(root) as lake:
        for name, kind in (("t", "delta"), ("i", "iceberg")):
            lake.create_table(name, own, format=kind)
            lake.run(lambda txn, name=name: txn.append(name, own))
        lake.branch("work")
        lake.on("work").run(lambda txn: txn.append("t", own))
        lake.tag("v1")


def _target(draw: random.Random, outside: Path) -> str:
    return str(outside / draw.choice(["a.parquet", "a.parquet", "precious.json"]))


def _in_delta_log(draw: random.Random, root: Path, outside: Path) -> tuple[str, str]:
    """Add an entry to a log, as any client that may write the log can."""
    table = root / "t"
    os.symlink(outside, table / "link")
    target = _target(draw, outside)
    path, size = hostile_path(draw, target, str(table)), os.path.getsize(target)
    own = next(table.glob("*.parquet"))
    about = {"partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    vector = {
        "storageType": "p",
        "pathOrInlineDv": path,
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 1,
    }
    action: dict[str, Any] = draw.choice(
        [
            *[{"add": {"path": path, **about}}] * 4,
            {"remove": {"path": path, **about, "deletionTimestamp": 1}},
            {"add": {**about, "path": own.name, "deletionVector": vector}},
            {"cdc": {"path": path, **about, "dataChange": False}},
            {"sidecar": {"path": path, "sizeInBytes": size, "modificationTime": 1}},
            {"checkpointMetadata": {"version": 1, "path": path}},
        ]
    )
    entries = sorted((table / "_delta_log").glob("*.json"))
    at = table / "_delta_log" / f"{len(entries):020}.json"
    at.write_bytes(json.dumps(action).encode("utf-8", "surrogatepass"))
    return "t", f"{at.relative_to(root)}: {action}"


def _in_iceberg(draw: random.Random, root: Path, outside: Path) -> tuple[str, str]:
    """Write a table by hand whose metadata, manifests or list name a file."""
    place = root / "by_hand"
    target = _target(draw, outside)
    path = hostile_path(draw, target, str(place)).encode("utf-8", "replace").decode()
    fields = [column(1, "n", "string"), column(2, "k", "long")]
    rows = of_ids(pa.table({"n": ["own"], "k": [1]}, SCHEMA), IDS)
    made = Table(place, fields)
    part = draw.choice(
        ["data", "data", "deletes", "manifest", "list", "statistics", "log", "location"]
    )
    listed: dict[str, Any] = {}
    if part == "manifest":
        listed = {"manifest_path": path}
    made.add(File("a.parquet", rows), **listed)
    if part == "data":
        made.add(File("b.parquet", rows, store=False, uri=path))
    elif part == "deletes":
        made.add(File("d.parquet", rows, content=1, store=False, uri=path))

    def change(document: dict[str, Any]) -> None:
        if part == "list":
            document["snapshots"][0]["manifest-list"] = path
        elif part == "location":
            document["location"] = path
        elif part == "log":
            document["metadata-log"] = [{"metadata-file": path, "timestamp-ms": 1}]
            document["properties"] |= {
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "1",
            }
        elif part == "statistics":
            statistics = {
                "snapshot-id": document["current-snapshot-id"],
                "statistics-path": path,
                "file-size-in-bytes": 10,
                "file-footer-size-in-bytes": 5,
                "blob-metadata": [],
            }
            document["statistics"] = [statistics]
            document["partition-statistics"] = [statistics]

    made.write(change=change)
    return "by_hand", f"{part} of by_hand: {path!r}"


def _in_metadata(draw: random.Random, root: Path, outside: Path) -> tuple[str, str]:
    """Replace a text in a table's log or metadata."""
    paths = sorted([*(root / "t/_delta_log").glob("*.json"), *(root / "i/metadata").glob("*.json")])
    path = draw.choice(paths)
    return path.relative_to(root).parts[0], _replaced(draw, root, path, _target(draw, outside))


def _in_head(draw: random.Random, root: Path, outside: Path) -> tuple[str, str]:
    """Replace a text in an object of the lake's own, which decides where tables lie."""
    paths = sorted((root / "_lakevilla").rglob("*.json"))
    target = draw.choice([_target(draw, outside), str(outside)])
    return draw.choice("ti"), _replaced(draw, root, draw.choice(paths), target)


def _replaced(draw: random.Random, root: Path, path: Path, target: str) -> str:
    lines = path.read_text().splitlines()
    number = draw.randrange(len(lines))
    document = json.loads(lines[number])
    places = list(_texts(document))
    value = hostile_path(draw, target, str(path.parent.parent))
    if places:
        holder, key, is_name = draw.choice(places)
        if is_name:
            holder[value] = holder.pop(key)
        else:
            holder[key] = value
    lines[number] = json.dumps(document)
    path.write_text("\n".join(lines))
    return f"{path.relative_to(root)}: {value!r} {'as a name' if places and is_name else ''}"


def _texts(document: Any) -> Any:
    """Yield each text of a document, and each name, by its holder and key."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        if isinstance(value, str):
            yield document, key, False
        elif isinstance(value, dict | list):
            yield from _texts(value)
        if isinstance(key, str) and ("/" in key or "-" in key or len(key) == 1):
            yield document, key, True


class _Payload:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> Any:
        return os.system, ("true",)


def _code(draw: random.Random, root: Path, outside: Path) -> tuple[str, str]:
    """Put code where data is expected: pickles as objects, and as a type of a column."""
    pickled = pickle.dumps(_Payload())
    if draw.random() < 0.3:
        path = next((root / "t").glob("*.parquet"))
        kept = pq.read_table(path)
        hidden = {
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": pickled,
        }
        fields = [kept.schema.field(0).with_metadata(hidden), *list(kept.schema)[1:]]
        pq.write_table(kept.cast(pa.schema(fields)), path)
        return "t", f"{path.relative_to(root)} has a type that is a pickle"
    path = draw.choice(sorted(one for one in root.rglob("*") if one.is_file()))
    path.write_bytes(draw.choice([b"", b"PAR1", b"Obj\x01"]) + pickled)
    return draw.choice("ti"), f"{path.relative_to(root)} is a pickle"
