"""What a SELECT takes where a deletion vector says that rows of the file are deleted.

Another client has deleted them: the vector is in the table's log, as the Delta protocol has it.
Each SELECT is asked of one snapshot, once by a client that has read nothing and then again.
"""

from __future__ import annotations

import json
import time
from base64 import b85encode

import numpy as np
import obstore
import pyarrow as pa
import pyroaring

import lakevilla as lv
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import medians
from bench.harness.parameters import Parameter, numbers

WHOLE = "no row deleted"
FIRST, AGAIN = "first", "again"
QUERIES = {
    "sum": "SELECT sum(a) AS x FROM t",
    "three sums": "SELECT sum(a) + sum(b) + sum(c) AS x FROM t",
    "count": "SELECT count(*) AS x FROM t",
}
_MAGIC = 1681511377
#: RFC 1924's digits, which Python has, are in another order than those of Z85, Delta's.
_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)


def measure(run: Run) -> None:
    """The same rows in lakes of their own, and each in turn."""
    rows = _rows(run.number("rows"))
    deleted = {f"{count:,} rows deleted": count for count in numbers(run["deleted"])}
    roots = {name: _made(run, rows, count) for name, count in {WHOLE: 0, **deleted}.items()}
    for turn in range(-1, run.number("repeats")):
        for name, root in roots.items():
            run.advance(f"{name}, turn {turn + 1}")
            options = run.places.options
            with lv.connect(root, storage_options=options) as lake, lake.snapshot() as state:
                for query, sql in QUERIES.items():
                    _measure(run, state, name, query, sql, counts=turn >= 0)
                left = state.sql(QUERIES["count"]).to_pylist()[0]["x"]
                well = left == rows.num_rows - deleted.get(name, 0)
                run.check("rows that are deleted are not counted", well)
    for query in QUERIES:
        whole = run.result.find(WHOLE, query=query, asked=AGAIN)
        for name in deleted:
            found = run.result.find(name, query=query, asked=AGAIN)
            if query != "count":  # of a file that is whole the footer tells it
                run.ratio(f"{query}, {name} / {WHOLE}", 2.0, found, whole)


def _measure(
    run: Run, state: lv.Snapshot, name: str, query: str, sql: str, *, counts: bool
) -> None:
    for asked, times in ((FIRST, 1), (AGAIN, run.number("times"))):
        measured = Measured()
        for _ in range(times):
            begun = time.perf_counter()
            state.sql(sql)
            took = time.perf_counter() - begun
            measured.record(name, took)
            measured.seconds += took
        if counts:
            run.add(name, {"query": query, "asked": asked}, measured)


def _made(run: Run, rows: pa.Table, deleted: int) -> str:
    root = run.places.root(f"{deleted} deleted")
    with lv.connect(root, storage_options=run.places.direct_options) as lake:
        lake.create_table("t", rows)
    if deleted:
        numbers_of_rows = np.random.default_rng(run.seed).choice(
            rows.num_rows, deleted, replace=False
        )
        _delete(run, root, sorted(map(int, numbers_of_rows)))
    return root


def _delete(run: Run, root: str, rows: list[int]) -> None:
    """The next entry of the log: the table's only file again, with a vector."""
    store = run.places.objects(root)
    log = sorted(
        str(found["path"])
        for batch in obstore.list(store, "t/_delta_log")
        for found in batch
        if str(found["path"]).endswith(".json")
    )
    actions = [
        json.loads(line)
        for path in log
        for line in bytes(obstore.get(store, path).bytes()).decode().splitlines()
    ]
    (add,) = (action["add"] for action in actions if "add" in action)
    body = _MAGIC.to_bytes(4, "little") + pyroaring.BitMap64(rows).serialize()
    vector = {
        "storageType": "i",
        "pathOrInlineDv": b85encode(body, pad=True).translate(_Z85).decode(),
        "sizeInBytes": len(body),
        "cardinality": len(rows),
    }
    stats = {**json.loads(add["stats"]), "tightBounds": False}
    kept = {name: add[name] for name in ("path", "partitionValues", "size")}
    writes = [
        found["protocol"].get("writerFeatures", ()) for found in actions if "protocol" in found
    ]
    entry = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"],
                "writerFeatures": sorted({"deletionVectors", *writes[-1]}),
            }
        },
        {"remove": {**kept, "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "stats": json.dumps(stats), "deletionVector": vector}},
    ]
    newest = int(log[-1].rpartition("/")[2].partition(".")[0])
    lines = "\n".join(map(json.dumps, entry))
    obstore.put(store, f"t/_delta_log/{newest + 1:020}.json", lines.encode(), mode="create")


def _rows(count: int) -> pa.Table:
    draw = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(count),
            "a": draw.random(count),
            "b": draw.random(count),
            "c": draw.random(count),
        }
    )


BENCHMARK = Benchmark(
    name="deleted_rows",
    summary="a SELECT over a file of which a deletion vector has deleted rows",
    claim="none: the target is twice the time without a vector",
    deviations="the vector is inline in the log, so it costs no request",
    parameters=(
        Parameter("rows", 2_600_000, 200_000, "of the only file", least=20_000),
        Parameter("deleted", "1,10000", "1", "rows, drawn from all of it"),
        Parameter("times", 20, 3, "that each is asked again", least=1),
        Parameter("repeats", 5, 1, "turns of all", least=1),
    ),
    run=measure,
    plots={
        "queries": lambda result: medians(
            result, lambda one: f"{one.params['query']}, {one.params['asked']}"
        )
    },
)
