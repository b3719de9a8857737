"""What a client does on a lake of many tables: each in a process of its own, for its memory."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pyarrow as pa

import lakevilla as lv
from bench.size.many_tables import ROWS, location, real_tables
from lakevilla.maintenance.upkeep.tasks import TASKS


def make(root: str, count: int) -> dict[str, float]:
    """Tables of one file each, all in the lake: the first is made, and the others are as it is."""
    with lv.connect(root) as lake:
        lake.create_table("template", ROWS)
        lake.run(lambda txn: txn.append("template", ROWS))
        template = Path(lake["template"].uri)
        log = sorted((template / "_delta_log").glob("*.json"))
        entries = [path.read_text() for path in log]
        files = list(template.glob("*.parquet"))
        table_id = json.loads(
            next(line for line in entries[0].splitlines() if '"metaData"' in line)
        )["metaData"]["id"]
        for number in range(count):
            place = Path(root, location(number))
            (place / "_delta_log").mkdir(parents=True)
            own = str(uuid.uuid4())
            for path, entry in zip(log, entries, strict=True):
                lines = [
                    line
                    for line in entry.replace(table_id, own).splitlines()
                    if '"txn"' not in line and '"commitInfo"' not in line
                ]
                (place / "_delta_log" / path.name).write_text("\n".join(lines) + "\n")
            for path in files:
                (place / path.name).hardlink_to(path)
        for first in range(0, count, 1000):
            some = range(first, min(first + 1000, count))
            lake.register({location(number): f"{root}/{location(number)}" for number in some})
        lake.drop_table("template")
    return {}


def connect(root: str) -> dict[str, float]:
    """What the library takes itself, and HEAD."""
    with lv.connect(root) as lake:
        lake.history(1)
    return {}


def prefix(root: str, count: int) -> dict[str, float]:
    some = real_tables(count)[4]
    with lv.connect(root) as lake:
        query = "SELECT name, rows FROM lakevilla_tables WHERE starts_with(name, :p)"
        return {"tables": float(lake.sql(query, {"p": some[:-1]}).num_rows)}


def everything(root: str) -> dict[str, float]:
    with lv.connect(root) as lake:
        found = lake.sql("SELECT count(*) AS n, sum(rows) AS r FROM lakevilla_tables").to_pylist()
        return {"tables": float(found[0]["n"])}


def maintain(root: str, task: str) -> dict[str, float]:
    """One task of upkeep, as it is due."""
    assert task in TASKS
    with lv.connect(root) as lake:
        return {"ok": float(lake.maintain([task]).ok)}


def keep(root: str, changed: int, count: int) -> dict[str, float]:
    """A tag of all tables, some of which are written then: what ``keep`` takes."""
    with lv.connect(root) as lake:
        lake.tag("closing", absorb=[])
        rows: pa.Table = ROWS
        for number in range(changed):
            name = location(number * (count // changed))
            lake.run(lambda txn, name=name: txn.overwrite(name, rows))
    return {}


def keep_again(root: str) -> dict[str, float]:
    with lv.connect(root) as lake:
        return {"kept": float(len(lake.keep("closing").findings))}
