"""Lineage of rows in files whose columns are found by field ids, as those of Iceberg."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import lakevilla as lv
from lakevilla.engines.base import TableInput, Written
from lakevilla.formats.files import data_files, files_from_structs
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.base import NEW
from lakevilla.store.effects import put
from tests.support.inside import executor, inside

LINEAGE = (
    pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"}),
    pa.field(
        "_last_updated_sequence_number", pa.int64(), metadata={"PARQUET:field_id": "2147483539"}
    ),
)


def test_rows_keep_their_lineage_in_files_with_field_ids(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("t", pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}), format="iceberg")
        snapshot = executor(lake.snapshot()).look("t").snapshot
        run, engine = inside(lake).client.run, inside(lake).context.engine
        layout = replace(snapshot.layout, lineage=LINEAGE)
        (file,) = data_files(run(snapshot.files()))
        known = msgspec.structs.replace(file, base_row_id=100, default_row_commit_version=7)
        where = bind(parse_predicate("id = 2"), layout.schema)
        given = {"v": bind(parse_expression("'x'"), layout.schema, predicate=False)}
        table = TableInput(layout, files_from_structs([known]))

        def stored(written: Written) -> pa.Table:
            assert written.body is not None
            run(put(f"t/{written.file.path}", written.body, NEW))
            return pq.read_table(io.BytesIO(written.body))

        names = iter(("data/one.parquet", "data/two.parquet"))
        (updated,) = run(engine.update(table, given, where, lambda _: next(names))).written
        found = stored(updated)
        assert found.to_pydict() == {
            "id": [1, 2, 3],
            "v": ["a", "x", "c"],
            "_row_id": [100, 101, 102],
            "_last_updated_sequence_number": [7, None, 7],
        }
        ids = [field.metadata[b"PARQUET:field_id"] for field in found.schema]
        assert ids[2:] == [b"2147483540", b"2147483539"]
        # The ids of its rows are stored, and the base of the new file is that of none of them.
        later = msgspec.structs.replace(updated.file, base_row_id=900, default_row_commit_version=9)
        older = msgspec.structs.replace(known, base_row_id=None, default_row_commit_version=None)
        parts = [TableInput(layout, files_from_structs([later, older]))]
        ((moved,),) = run(engine.compact(parts, (), lambda _: next(names)))
        # The order of two files in one that is made of both is nobody's promise.
        ids = ["_row_id", "_last_updated_sequence_number"]
        assert stored(moved).select(ids).sort_by("_row_id").to_pydict() == {
            "_row_id": [100, 101, 102, None, None, None],
            "_last_updated_sequence_number": [7, 9, 7, None, None, None],
        }
