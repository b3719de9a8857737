"""Run random scripts over tables in all layouts: a lake and DuckDB get the same rows.

Layouts: nested columns, partitions by dates, decimals and odd texts, Iceberg's transforms, mapped
columns, and rows that another client has deleted by a deletion vector.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pyroaring
import pytest

import lakevilla as lv
from tests.property.sql.wide_statements import WideWriter
from tests.support.foreign_changes import _z85

SCRIPTS = 400


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_a_script_over_tables_in_all_layouts_has_the_same_effect_as_in_duckdb(seed: int) -> None:
    random = Random(seed)
    lake, oracle = lv.connect(f"memory://laid/{seed}"), duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'")
    session, writer = lake.session(), WideWriter(random)
    done: list[str] = []
    for _ in range(2):
        text, of_lake = writer.laid_out()
        done.append(of_lake)
        session.sql(of_lake)
        oracle.execute(text)
    for _ in range(4):
        _both(session, oracle, writer.insert(), done)
    outcomes: Counter[bool] = Counter()
    for turn in range(12):
        text = writer.altered()[0] if turn == 6 else writer.statement()
        outcomes[_both(session, oracle, text, done)] += 1
        for table in writer.tables:
            _same(session.sql(f"FROM {table}"), oracle.sql(f"FROM {table}"), done)
    assert outcomes[True] > 2, "\n".join(done)
    session.close()


def _both(session: Any, oracle: duckdb.DuckDBPyConnection, text: str, done: list[str]) -> bool:
    """Run a statement on both; return False if it is refused, and has changed nothing."""
    done.append(text)
    try:
        session.sql(text)
    except lv.InvalidOperation as error:
        done.append(f"-- refused: {error}"[:200])
        return False
    oracle.execute(text)
    return True


@pytest.mark.parametrize("seed", range(120))
def test_rows_that_a_deletion_vector_hides_are_not_found(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    lake, oracle = lv.connect(tmp_path), duckdb.connect()
    session, writer = lake.session(), WideWriter(random)
    writer.types = {name: writer.types[name] for name in ("k", "n", "s", "f", "d", "m", "g", "l")}
    text, _ = writer.create()
    done = [text]
    vectors = " TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    session.sql(f"{text[:-1]}, u BIGINT){vectors}")
    oracle.execute(f"{text[:-1]}, u BIGINT)")
    for first in (0, 100):
        rows = [[writer.value(writer.types[c]) for c in writer.tables["t0"]] for _ in range(12)]
        values = [f"({', '.join([*row, str(first + n)])})" for n, row in enumerate(rows)]
        _both(session, oracle, f"INSERT INTO t0 VALUES {', '.join(values)}", done)
    deleted = _mark_deleted(tmp_path / "t0", random)
    oracle.execute(f"DELETE FROM t0 WHERE u IN ({', '.join(map(str, deleted))})")
    done.append(f"-- deleted by a vector: {deleted}")
    _same(session.sql("FROM t0"), oracle.sql("FROM t0"), done)
    for _ in range(8):
        _both(session, oracle, writer.statement(), done)
        _same(session.sql("FROM t0"), oracle.sql("FROM t0"), done)
    session.close()


def _mark_deleted(table: Path, random: Random) -> list[int]:
    """Hide some rows of a file by a deletion vector, in another client's commit; return their
    numbers.
    """
    log = sorted((table / "_delta_log").glob("*.json"))
    adds = [
        action["add"]
        for entry in log
        for action in map(json.loads, entry.read_text().splitlines())
        if "add" in action
    ]
    added = random.choice(adds)
    numbers = pq.read_table(table / added["path"])["u"].to_pylist()
    rows = sorted(random.sample(range(len(numbers)), random.randint(1, len(numbers) - 1)))
    body = (1681511377).to_bytes(4, "little") + pyroaring.BitMap64(rows).serialize()
    name = uuid.UUID(int=random.getrandbits(128))
    checksum = zlib.crc32(body).to_bytes(4, "big")
    vector = b"\x01" + len(body).to_bytes(4, "big") + body + checksum
    (table / f"deletion_vector_{name}.bin").write_bytes(vector)
    stored = {"storageType": "u", "pathOrInlineDv": _z85(name.bytes), "offset": 1}
    stored |= {"sizeInBytes": len(body), "cardinality": len(rows)}
    kept = {key: added[key] for key in ("path", "partitionValues", "size")}
    actions = (
        {"remove": {**kept, "deletionTimestamp": 9, "dataChange": True}},
        {"add": {**added, "deletionVector": stored, "dataChange": True}},
    )
    entry = table / "_delta_log" / f"{int(log[-1].stem) + 1:020}.json"
    entry.write_text("\n".join(map(json.dumps, actions)))
    return [numbers[row] for row in rows]


def _same(ours: Any, theirs: duckdb.DuckDBPyRelation, done: list[str]) -> None:
    rows = Counter(_shown(row) for row in ours.to_pylist())
    wanted = Counter(_shown(row) for row in theirs.to_arrow_table().to_pylist())
    assert rows == wanted, "\n".join([*done, repr(rows - wanted), repr(wanted - rows)])


def _shown(row: dict[str, Any]) -> str:
    """Return a row for comparison; DuckDB keeps 0.0 where an UPDATE sets the equal -0.0."""
    values = (value + 0.0 if isinstance(value, float) else value for value in row.values())
    return repr(
        [sorted(v) if isinstance(v, list) and v and isinstance(v[0], tuple) else v for v in values]
    )
