"""Time and peak memory of rewriting a large table: LakeVilla's engine beside deltalake.

    python bench/rewrite_memory.py --gigabytes 4 --limit-gigabytes 1.5

Each statement (an update and a merge that touch 1% of the rows, in every file)
runs in a process of its own on a fresh copy of one table; the figures are that
process's wall and processor time and its highest resident memory. Exit status 1 if LakeVilla
goes over the limit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

ROWS_PER_BATCH = 100_000
ROW_BYTES = 115  # of a stored row, about
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int64()),
        ("quantity", pa.int32()),
        ("price", pa.float64()),
        ("discount", pa.float64()),
        ("day", pa.date32()),
        ("note", pa.string()),
        ("code", pa.string()),
    ]
)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows that compress little, so that the size on disk is about the size of the data."""
    generator = np.random.default_rng(7)
    for start in range(0, rows, ROWS_PER_BATCH):
        count = min(ROWS_PER_BATCH, rows - start)
        text = generator.bytes(count * 24).hex()
        notes = pa.array([text[i * 48 : i * 48 + 48] for i in range(count)])
        yield pa.record_batch(
            [
                pa.array(np.arange(start, start + count)),
                pa.array(generator.integers(0, 1 << 40, count)),
                pa.array(generator.integers(0, 1 << 20, count), pa.int32()),
                pa.array(generator.random(count)),
                pa.array(generator.random(count)),
                pa.array(generator.integers(0, 20_000, count).astype(np.int32), pa.date32()),
                notes,
                pa.array([f"{n:x}" for n in generator.integers(0, 1 << 60, count)]),
            ],
            schema=SCHEMA,
        )


def make_table(path: str, gigabytes: float) -> int:
    """A Delta table of about that size in files of some 100 MB; returns its rows."""
    from deltalake import write_deltalake

    rows = int(gigabytes * 1e9 / ROW_BYTES)
    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches(rows))
    write_deltalake(path, reader, target_file_size=100_000_000)
    return rows


def lakevilla_statement(
    root: str, statement: str, rows: int, memory_limit_bytes: int, body_bytes: int
) -> dict[str, float]:
    from lakevilla.clock import SystemClock
    from lakevilla.engines.base import MergeClause, MergeSpec, Rewrite, TableInput
    from lakevilla.engines.duckdb import DuckDBEngine
    from lakevilla.expressions.bind import bind, bind_assignments
    from lakevilla.expressions.parse import parse_expression, parse_predicate
    from lakevilla.formats.base import Change, CommitInfo
    from lakevilla.formats.delta.table_format import DeltaFormat
    from lakevilla.ids import Ids
    from lakevilla.settings import Settings
    from lakevilla.store.backends.object_store import open_store
    from lakevilla.store.base import ANY
    from lakevilla.store.data_files import DataFiles
    from lakevilla.store.effects import put
    from lakevilla.store.runner import Runner

    settings = Settings(
        memory_limit_bytes=memory_limit_bytes, in_memory_file_limit_bytes=body_bytes
    )
    ids = Ids(SystemClock())
    runner = Runner(open_store(root), ids, settings)
    engine = DuckDBEngine(DataFiles(runner), settings, ids)
    tables = DeltaFormat()
    snapshot = runner.run(tables.open("t", "t"))
    table = TableInput(snapshot.layout, runner.run(snapshot.files()))
    schema = snapshot.layout.schema

    def name(directory: str) -> str:
        return f"{directory}/part-{ids.uuid()}.parquet".lstrip("/")

    result: Rewrite
    if statement == "update":
        result = runner.run(
            engine.update(
                table,
                bind_assignments({"quantity": parse_expression("quantity + 1")}, schema),
                bind(parse_predicate("id % 100 = 7"), schema),
                name,
            )
        )
        changed = result.rows_updated
    else:
        news = source(rows)
        schemas = {"source": news.schema, "target": schema}
        every = {column: parse_expression(f"source.{column}") for column in schema.names}
        spec = MergeSpec(
            bind(parse_predicate("source.id = target.id"), schemas),
            "source",
            "target",
            (
                MergeClause("matched_update", None, bind_assignments(every, schema, schemas)),
                MergeClause("not_matched_insert", None, bind_assignments(every, schema, schemas)),
            ),
        )
        result = runner.run(engine.merge(table, news, spec, name))
        changed = result.rows_updated + result.rows_inserted
    for written in result.written:
        if written.body is not None:
            runner.run(put(f"t/{written.file.path}", written.body, ANY))
    change = Change(adds=tuple(w.file for w in result.written), removes=result.removed)
    info, now = CommitInfo(statement.upper()), int(time.time() * 1000)
    ready = runner.run(tables.prepare(snapshot, change, info, now))
    runner.run(put(ready.key, ready.body, ready.condition))
    return {"changed": changed, "files": len(result.removed)}


def deltalake_statement(root: str, statement: str, rows: int) -> dict[str, float]:
    from deltalake import DeltaTable

    table = DeltaTable(f"{root}/t")
    if statement == "update":
        metrics = table.update(updates={"quantity": "quantity + 1"}, predicate="id % 100 = 7")
        return {"changed": metrics["num_updated_rows"], "files": metrics["num_removed_files"]}
    metrics = (
        table.merge(
            source(rows), "source.id = target.id", source_alias="source", target_alias="target"
        )
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    return {
        "changed": metrics["num_target_rows_updated"] + metrics["num_target_rows_inserted"],
        "files": metrics["num_target_files_removed"],
    }


def source(rows: int) -> pa.RecordBatchReader:
    """1% of the rows with new values, and a few that are new."""

    def some() -> Iterator[pa.RecordBatch]:
        for batch in batches(rows // 100):
            numbers = np.asarray(batch.column(0)) * 100 + 7
            yield batch.set_column(0, SCHEMA.field(0), pa.array(numbers))

    return pa.RecordBatchReader.from_batches(SCHEMA, some())


def measured(function: Callable[..., dict[str, float]], *arguments: object) -> dict[str, float]:
    """What ``function`` returns, with its seconds and peak bytes, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()  # type: ignore[no-any-return]
    except EOFError:
        process.join()
        raise SystemExit(f"{function.__name__} died with status {process.exitcode}") from None
    finally:
        process.join()


def _run(sender: object, function: Callable[..., dict[str, float]], arguments: tuple) -> None:
    started = time.perf_counter()
    result = function(*arguments)
    result["seconds"] = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu_seconds"] = usage.ru_utime + usage.ru_stime
    # Not ru_maxrss: that outlives exec, and would be the parent's.
    status = Path("/proc/self/status").read_text()
    result["peak_bytes"] = int(status.split("VmHWM:")[1].split()[0]) * 1024
    sender.send(result)  # type: ignore[attr-defined]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--limit-gigabytes", type=float, default=1.5, help="of process memory")
    parser.add_argument("--engine-megabytes", type=int, default=1024, help="memory_limit_bytes")
    parser.add_argument("--directory", help="for the tables; default: a temporary one")
    parser.add_argument("--skip-deltalake", action="store_true")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()

    directory = Path(tempfile.mkdtemp(prefix="rewrite-", dir=options.directory))
    figures: dict[str, dict[str, float]] = {}
    try:
        template = directory / "template" / "t"
        rows = make_table(str(template), options.gigabytes)
        size = sum(f.stat().st_size for f in template.rglob("*.parquet"))
        print(f"{rows:,} rows, {size / 1e9:.2f} GB, {len(list(template.glob('*.parquet')))} files")
        for statement in ("update", "merge"):
            for system in ("lakevilla", "deltalake"):
                if system == "deltalake" and options.skip_deltalake:
                    continue
                root = directory / "copy"
                shutil.copytree(directory / "template", root, copy_function=os.link)
                if system == "lakevilla":
                    found = measured(
                        lakevilla_statement,
                        str(root),
                        statement,
                        rows,
                        options.engine_megabytes << 20,
                        8 << 20,
                    )
                else:
                    found = measured(deltalake_statement, str(root), statement, rows)
                figures[f"{statement} {system}"] = found
                print(
                    f"{statement:7} {system:10} {found['seconds']:7.1f} s "
                    f"{found['cpu_seconds']:7.1f} cpu s "
                    f"{found['peak_bytes'] / 1e6:6.0f} MB  {found['changed']:,} rows changed, "
                    f"{found['files']} files rewritten"
                )
                shutil.rmtree(root)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        Path(options.json).write_text(
            json.dumps({"size_bytes": size, "figures": figures}, indent=1)
        )
    over = [
        name
        for name, found in figures.items()
        if "lakevilla" in name and found["peak_bytes"] > options.limit_gigabytes * 1e9
    ]
    if over:
        print(f"over {options.limit_gigabytes} GB: {', '.join(over)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
