"""What LakeVilla's engine does to a large table, as a process of its own calls it."""

from __future__ import annotations

import time

from bench.size.wide_rows import source
from lakevilla.clock import SystemClock
from lakevilla.engines.base import MergeClause, MergeSpec, Rewrite, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta.table_format import DeltaFormat
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ANY
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import put
from lakevilla.store.runner import Runner


def rewrite(
    root: str, statement: str, rows: int, memory_limit_bytes: int, body_bytes: int
) -> dict[str, float]:
    """Update, or merge into, 1% of the rows."""
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
    for written in result.written:
        if written.body is not None:
            runner.run(put(f"t/{written.file.path}", written.body, ANY))
    change = Change(adds=tuple(w.file for w in result.written), removes=result.removed)
    info, now = CommitInfo(statement.upper()), int(time.time() * 1000)
    ready = runner.run(tables.prepare(snapshot, change, info, now))
    runner.run(put(ready.key, ready.body, ready.condition))
    return {}
