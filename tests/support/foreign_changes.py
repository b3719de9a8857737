"""Changes by clients without LakeVilla, each with its expected effect on the rows.

deltalake makes the changes that it can make; the rest (deletion vectors, dropped and renamed
columns, wider types, unknown features) is written to the log by hand, as other clients write it.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring
from deltalake import DeltaTable, write_deltalake

from lakevilla.formats.layout import TableAlteration
from tests.interop.delta.readers import duckdb_rows
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts, contents

#: ``id`` to ``balance``: the rows of the tables of these tests.
Rows = dict[int, int]
TABLE = "bank"
START: Rows = {0: 100, 1: 100, 2: 100, 3: 100, 7: 7}


@dataclass(frozen=True)
class Change:
    """A commit of another client; ``model`` is its effect on the rows.

    ``removes``: the commit removes the file with the rows 0 to 3, so a decided and unpublished
    commit on these rows has to be replayed.
    """

    name: str
    make: Callable[[Place], object]
    model: Callable[[Rows], Rows] = dict
    removes: bool = False

    def __str__(self) -> str:
        return self.name


def make_bank(place: Place, *, mapped: bool = False) -> None:
    """Make two tables: ``bank``, with two files in two versions, and ``other``."""
    properties = {"delta.columnMapping.mode": "name"} if mapped else None
    if mapped:
        # deltalake can't make such a table.
        with place.connect() as lake:
            lake.create_table(TABLE, pa.Table.from_pylist(accounts(4)), properties=properties)
            lake.run(lambda txn: txn.append(TABLE, [{"id": 7, "balance": 7}]))
    else:
        write_deltalake(place.uri(TABLE), pa.Table.from_pylist(accounts(4)))
        place.write(TABLE, [{"id": 7, "balance": 7}])
    place.write("other", accounts(1))


def rows_seen(place: Place) -> Rows:
    """Return the rows of ``bank``, on which a new client of the lake and DuckDB agree."""
    with place.connect() as lake:
        ours = lake.snapshot().read(TABLE).to_pylist()
    theirs = duckdb_rows(place.uri(TABLE))
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), "two readers see two tables"
    found = {row["id"]: row["balance"] for row in ours}
    assert len(found) == len(ours), "a row is there twice"
    return found


def without(rows: Rows, *gone: int) -> Rows:
    return {row: balance for row, balance in rows.items() if row not in gone}


# ------------------------------------------------------------- by deltalake


def _set(place: Place, value: str, predicate: str) -> None:
    place.delta(TABLE).update(updates={"balance": value}, predicate=predicate)


def _merge(place: Place) -> None:
    rows = pa.table({"id": [3, 9], "balance": [33, 99]})
    merge = place.delta(TABLE).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def _compact(place: Place) -> None:
    made = place.delta(TABLE).optimize.compact()
    assert made["numFilesRemoved"] > 1, "it would be no commit"


APPEND = Change(
    "append",
    lambda place: place.write(TABLE, [{"id": 9, "balance": 9}]),
    lambda rows: {**rows, 9: 9},
)
UPDATE = Change(
    "update-a-neighbour",
    lambda place: _set(place, "50", "id = 3"),
    lambda rows: {**rows, 3: 50},
    removes=True,
)
UPDATE_SAME = Change(
    "update-the-same-row",
    lambda place: _set(place, "balance * 2", "id = 1"),
    lambda rows: {**rows, 1: rows[1] * 2},
    removes=True,
)
DELETE = Change(
    "delete-the-same-row",
    lambda place: place.delta(TABLE).delete("id = 1"),
    lambda rows: without(rows, 1),
    removes=True,
)
MERGE = Change("merge", _merge, lambda rows: {**rows, 3: 33, 9: 99}, removes=True)
OVERWRITE = Change(
    "overwrite",
    lambda place: place.write(TABLE, [{"id": 1, "balance": 7}], mode="overwrite"),
    lambda rows: {1: 7},
    removes=True,
)
OPTIMIZE = Change("optimize", _compact, removes=True)
RESTORE = Change(
    # To version 0: this removes the appended row, in the other file, unless LakeVilla published.
    "restore",
    lambda place: place.delta(TABLE).restore(0),
    lambda rows: without(START, 7),
)
PROPERTY = Change(
    "property",
    lambda place: place.delta(TABLE).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 60 days"}
    ),
)
CONSTRAINT = Change(
    "constraint",
    lambda place: place.delta(TABLE).alter.add_constraint({"modest": "balance < 100000"}),
    removes=True,
)


# ------------------------------------------------------------------ by hand


def entries(place: Place, table: str = TABLE) -> list[list[dict[str, Any]]]:
    """Return the log, each action as a dict."""
    log = sorted((Path(place.root) / table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in entry.read_text().splitlines()] for entry in log]


def write_entry(place: Place, *actions: Mapping[str, Any], table: str = TABLE) -> None:
    """Write the next log entry, created if absent as by any client."""
    log = Path(place.root) / table / "_delta_log"
    number = max(int(entry.stem) for entry in log.glob("*.json")) + 1
    now = int(time.time() * 1000)
    info = {"commitInfo": {"timestamp": now, "operation": "OTHER", "txnId": uuid.uuid4().hex}}
    with (log / f"{number:020}.json").open("x") as entry:
        entry.write("".join(json.dumps(action) + "\n" for action in (info, *actions)))


def newest(place: Place, kind: str, table: str = TABLE) -> dict[str, Any]:
    """Return the newest action of a kind: ``protocol`` or ``metaData``."""
    found = [action[kind] for entry in entries(place, table) for action in entry if kind in action]
    return dict(found[-1])


def upgraded(protocol: dict[str, Any], *, reads: tuple[str, ...], writes: tuple[str, ...]) -> Any:
    """Return a protocol action that requires more features than ``protocol`` does."""
    had = protocol.get("writerFeatures") or ["appendOnly", "invariants"]
    asked = sorted({*had, *reads, *writes})
    action: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": asked}
    readers = sorted({*(protocol.get("readerFeatures") or ()), *reads})
    if protocol.get("minReaderVersion", 1) >= 2:
        readers = sorted({*readers, "columnMapping"})
    if readers:
        action |= {"minReaderVersion": 3, "readerFeatures": readers}
    return {"protocol": action}


def live_files(place: Place, table: str = TABLE) -> dict[str, dict[str, Any]]:
    """Return the files at the tip, by path."""
    files: dict[str, dict[str, Any]] = {}
    for entry in entries(place, table):
        for action in entry:
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for action in entry:
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
    return files


def delete_by_vector(place: Place, row: int = 2) -> None:
    """Delete the row by a deletion vector, as Spark does: the file stays, with the row marked."""
    files = DeltaTable(place.uri(TABLE)).get_add_actions(flatten=True)
    spans = pa.table(files).to_pylist()
    (path,) = [f["path"] for f in spans if f["min.id"] <= row <= f["max.id"]]
    added = live_files(place)[path]
    ids = pq.read_table(Path(place.root) / TABLE / path)["id"].to_pylist()
    vector = _store_vector(place, [ids.index(row)])
    table_protocol = upgraded(newest(place, "protocol"), reads=("deletionVectors",), writes=())
    metadata = newest(place, "metaData")
    configuration = {**metadata.get("configuration", {}), "delta.enableDeletionVectors": "true"}
    kept = {key: added[key] for key in ("path", "partitionValues", "size")}
    now = int(time.time() * 1000)
    marked = {**added, "deletionVector": vector, "dataChange": True}
    if added.get("stats"):
        marked["stats"] = json.dumps({**json.loads(added["stats"]), "tightBounds": False})
    write_entry(
        place,
        table_protocol,
        {"metaData": {**metadata, "configuration": configuration}},
        {"remove": {**kept, "deletionTimestamp": now, "dataChange": True}},
        {"add": marked},
    )


def _store_vector(place: Place, rows: list[int]) -> dict[str, Any]:
    body = (1681511377).to_bytes(4, "little") + pyroaring.BitMap64(rows).serialize()
    name = uuid.uuid4()
    path = Path(place.root) / TABLE / f"deletion_vector_{name}.bin"
    checksum = zlib.crc32(body).to_bytes(4, "big")
    path.write_bytes(b"\x01" + len(body).to_bytes(4, "big") + body + checksum)
    return {
        "storageType": "u",
        "pathOrInlineDv": _z85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(body),
        "cardinality": len(rows),
    }


_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        text += "".join(_Z85[number // 85**power % 85] for power in range(4, -1, -1))
    return text


VECTOR = Change("deletion-vector", delete_by_vector, lambda rows: without(rows, 2), removes=True)


def alter(place: Place, **what: Any) -> None:
    """Change the schema or properties, as a client that maps columns does."""
    with place.connect() as lake:
        delta = inside(lake).context.formats["delta"]
        snapshot = inside(lake).run(delta.open(TABLE, TABLE))
        change = delta.alter(snapshot, TableAlteration(**what))
        actions: list[dict[str, Any]] = []
        if change.protocol is not None:
            actions.append({"protocol": dict(change.protocol)})
        if change.metadata is not None:
            actions.append({"metaData": dict(change.metadata)})
        write_entry(place, *actions)


def widen(place: Place) -> None:
    """Change ``balance`` to a wider type: the files stay, and readers convert their values."""
    metadata = newest(place, "metaData")
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        if field["name"] == "balance":
            assert field["type"] == "integer"
            field["type"] = "long"
            field["metadata"]["delta.typeChanges"] = [{"fromType": "integer", "toType": "long"}]
    configuration = {**metadata.get("configuration", {}), "delta.enableTypeWidening": "true"}
    write_entry(
        place,
        upgraded(newest(place, "protocol"), reads=("typeWidening",), writes=()),
        {
            "metaData": {
                **metadata,
                "schemaString": json.dumps(schema),
                "configuration": configuration,
            }
        },
    )


def require(place: Place, feature: str) -> None:
    """Require of writers from now on that they know ``feature``."""
    write_entry(place, upgraded(newest(place, "protocol"), reads=(), writes=(feature,)))


def remove_table(place: Place) -> None:
    shutil.rmtree(place.uri(TABLE))


def make_anew(place: Place, versions: int = 1) -> None:
    """Replace the table by another one at its place: ``versions`` entries, each with a row of 0."""
    remove_table(place)
    for number in range(versions):
        place.write(TABLE, [{"id": number, "balance": 0}])


def lake_state(place: Place) -> dict[str, bytes]:
    """Return every object of the lake: a verb that raises may change none of them."""
    return contents(place.root)
