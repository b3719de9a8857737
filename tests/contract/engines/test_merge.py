"""MERGE has deltalake's result, and refuses ambiguous matches."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakevilla.engines.base import TableInput
from lakevilla.errors import InvalidOperation
from lakevilla.settings import Settings
from tests.support.engine_lake import Lake, merge_spec, ordered

TARGET = pa.table(
    {
        "k": pa.array([1, 2, 3, 4, None], pa.int64()),
        "v": pa.array(["a", "b", None, "d", "n"]),
        "n": pa.array([10, 20, 30, None, 50], pa.int32()),
    }
)
SOURCE = pa.table(
    {
        "k": pa.array([2, 3, 4, 7, 8, None], pa.int64()),
        "v": pa.array(["B", None, "D", "G", None, "N"]),
        "n": pa.array([200, 300, -1, 700, None, 0], pa.int32()),
    }
)
ALL = {"k": "source.k", "v": "source.v", "n": "source.n"}


def clause(kind: str, predicate: str | None = None, **assignments: str) -> dict[str, Any]:
    return {"kind": kind, "predicate": predicate, "set": assignments}


def deltalake_merge(
    lake: Lake, name: str, on: str, clauses: list[dict[str, Any]]
) -> dict[str, Any]:
    merger = DeltaTable(f"{lake.root}/{name}").merge(
        SOURCE, on, source_alias="source", target_alias="target"
    )
    verbs = {
        "matched_update": "when_matched_update",
        "matched_delete": "when_matched_delete",
        "not_matched_insert": "when_not_matched_insert",
        "not_matched_by_source_update": "when_not_matched_by_source_update",
        "not_matched_by_source_delete": "when_not_matched_by_source_delete",
    }
    for one in clauses:
        arguments: dict[str, Any] = {"predicate": one["predicate"]}
        if not one["kind"].endswith("delete"):
            arguments["updates"] = one["set"]
        merger = getattr(merger, verbs[one["kind"]])(**arguments)
    return merger.execute()


MERGES = {
    "upsert": [
        clause("matched_update", v="source.v", n="source.n"),
        clause("not_matched_insert", **ALL),
    ],
    "insert only": [clause("not_matched_insert", "source.n > 0", **ALL)],
    "insert some columns": [clause("not_matched_insert", k="source.k", n="1")],
    "update by predicate": [
        clause("matched_update", "source.n > target.n", n="source.n + target.n"),
    ],
    "first true clause of several": [
        clause("matched_delete", "source.n < 0"),
        clause("matched_update", "target.v IS NULL", v="'was null'"),
        clause("matched_update", v="source.v"),
        clause("not_matched_insert", "source.v IS NULL", k="source.k", v="'no v'"),
        clause("not_matched_insert", **ALL),
    ],
    "a predicate that is NULL is not true": [
        clause("matched_delete", "target.n > 0 AND target.v <> 'b'"),
        clause("matched_update", "target.v <> 'zzz'", v="'kept'"),
    ],
    "delete matched": [clause("matched_delete")],
    "by source": [
        clause("matched_update", n="source.n"),
        clause("not_matched_by_source_update", "target.k = 1", v="'lonely'"),
        clause("not_matched_by_source_delete"),
        clause("not_matched_insert", **ALL),
    ],
    "by source delete only": [clause("not_matched_by_source_delete", "target.v = 'a'")],
}


def make(lake: Lake, name: str) -> None:
    lake.make(name, TARGET.slice(0, 2))
    lake.make(name, TARGET.slice(2), mode="append")


@pytest.mark.parametrize("case", MERGES)
def test_merge_has_the_result_of_deltalake(lake: Lake, case: str) -> None:
    make(lake, "ours")
    make(lake, "theirs")
    on = "source.k = target.k"
    metrics = deltalake_merge(lake, "theirs", on, MERGES[case])
    result = lake.merge("ours", SOURCE, on, *MERGES[case])
    assert ordered(lake.rows("ours")) == ordered(lake.rows("theirs"))
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (
        metrics["num_target_rows_inserted"],
        metrics["num_target_rows_updated"],
        metrics["num_target_rows_deleted"],
    )


def test_two_source_rows_for_one_target_row_are_refused(lake: Lake) -> None:
    make(lake, "t")
    files = lake.files()
    twice = pa.table({"k": [2, 2], "v": ["x", "y"]})
    with pytest.raises(InvalidOperation, match=r"two source rows.*make the source unique"):
        lake.merge("t", twice, "source.k = target.k", clause("matched_update", v="source.v"))
    assert lake.files() == files


def test_a_second_source_row_to_which_no_clause_applies_is_allowed(lake: Lake) -> None:
    make(lake, "t")
    twice = pa.table({"k": [2, 2], "v": ["x", "y"]})
    result = lake.merge(
        "t", twice, "source.k = target.k", clause("matched_update", "source.v = 'y'", v="source.v")
    )
    assert (result.rows_updated, result.rows_matched) == (1, 1)
    assert {"k": 2, "v": "y", "n": 20} in lake.rows("t")


def test_duplicate_source_rows_without_a_match_are_all_inserted(lake: Lake) -> None:
    make(lake, "t")
    twice = pa.table({"k": [9, 9], "v": ["x", "x"]})
    result = lake.merge(
        "t", twice, "source.k = target.k", clause("not_matched_insert", k="source.k")
    )
    assert result.rows_inserted == 2
    assert result.removed == ()


def test_merge_keeps_files_in_which_no_row_changes(lake: Lake) -> None:
    make(lake, "t")
    before = set(lake.input("t").files.column("path").to_pylist())
    lake.merge(
        "t",
        SOURCE,
        "source.k = target.k AND target.k <= 2",
        clause("matched_update", v="source.v"),
    )
    after = set(lake.input("t").files.column("path").to_pylist())
    assert len(before & after) == 1


def test_a_merge_that_does_nothing_writes_nothing(lake: Lake) -> None:
    make(lake, "t")
    result = lake.merge(
        "t", SOURCE, "source.k = target.k", clause("matched_update", "false", v="source.v")
    )
    assert (result.written, result.removed) == ((), ())


def test_merge_can_move_rows_between_partitions(lake: Lake) -> None:
    lake.make("t", pa.table({"k": [1, 2], "p": ["x", "y"]}), partition_by=["p"])
    source = pa.table({"k": [1, 3], "p": ["y", "w"]})
    lake.merge(
        "t",
        source,
        "source.k = target.k",
        clause("matched_update", p="source.p"),
        clause("not_matched_insert", k="source.k", p="source.p"),
    )
    assert ordered(lake.rows("t")) == ordered(
        [{"k": 1, "p": "y"}, {"k": 2, "p": "y"}, {"k": 3, "p": "w"}]
    )


def test_merge_checks_constraints(lake: Lake) -> None:
    lake.make("t", pa.table({"k": [1], "v": [1]}))
    DeltaTable(f"{lake.root}/t").alter.add_constraint({"small": "v < 10"})
    files = lake.files()
    for source in (pa.table({"k": [1], "v": [10]}), pa.table({"k": [2], "v": [11]})):
        with pytest.raises(InvalidOperation, match="small"):
            lake.merge(
                "t",
                source,
                "source.k = target.k",
                clause("matched_update", v="source.v"),
                clause("not_matched_insert", k="source.k", v="source.v"),
            )
    assert lake.files() == files


def test_change_files_of_a_merge_have_the_rows_that_changed(lake: Lake) -> None:
    lake.make(
        "t",
        pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"]}),
        configuration={"delta.enableChangeDataFeed": "true"},
    )
    lake.merge(
        "t",
        pa.table({"k": [1, 2, 9], "v": ["A", "B", "I"]}),
        "source.k = target.k",
        clause("matched_delete", "source.k = 2"),
        clause("matched_update", v="source.v"),
        clause("not_matched_insert", k="source.k", v="source.v"),
    )
    table = pa.table(DeltaTable(f"{lake.root}/t").load_cdf(starting_version=1).read_all())
    seen = table.select(["k", "v", "_change_type"]).to_pylist()
    assert sorted(tuple(row.values()) for row in seen) == [
        (1, "A", "update_postimage"),
        (1, "a", "update_preimage"),
        (2, "b", "delete"),
        (9, "I", "insert"),
    ]


def test_an_error_of_the_source_is_raised_unchanged(lake: Lake) -> None:
    make(lake, "t")
    table = lake.input("t")

    def rows() -> Any:
        yield SOURCE.to_batches()[0]
        raise KeyError("of the caller")

    reader = pa.RecordBatchReader.from_batches(SOURCE.schema, rows())
    from tests.support.engine_lake import merge_spec

    spec = merge_spec(
        table.layout, SOURCE.schema, "source.k = target.k", (clause("matched_delete"),)
    )
    with pytest.raises(KeyError, match="of the caller"):
        lake.runner.run(lake.engine.merge(table, reader, spec, lake.name))


#: Values that a cast, statistics or a renamed column could change.
DELICATE: dict[str, pa.Array] = {
    "d": pa.array([math.nan, -0.0, 0.1, None, 5e-324]),
    "f": pa.array([math.nan, -0.0, 0.1, None, 1e-45], pa.float32()),
    "m": pa.array([Decimal("1.10"), Decimal("-0.01"), Decimal("99999999.99"), None, Decimal(0)]),
    "w": pa.array([Decimal("9" * 38), Decimal("-1"), None, Decimal(0), Decimal(1)]),
    "at": pa.array([0, -1, 253402300799999999, None, 1], pa.timestamp("us", "UTC")),
    "wall": pa.array([0, -1, -62135596800000000, None, 1], pa.timestamp("us")),
    "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31), dt.date(1970, 1, 1), None]),
    "b": pa.array([b"\x00\xff", b"", None, b"a", b"\\xC3"]),
    "s": pa.array(["", "null", None, "\x00", "\U0010ffff"]),
    "small": pa.array([-128, 127, None, 0, 1], pa.int8()),
    "row": pa.array(
        [{"x": math.nan, "y": None}, None, {"x": None, "y": ""}, {"x": -0.0, "y": "y"}, None],
        pa.struct({"x": pa.float64(), "y": pa.string()}),
    ),
    "list": pa.array([[1, None], [], None, [2], [3]], pa.list_(pa.int64())),
    "map": pa.array([[("a", None)], [], None, [("b", 1)], None], pa.map_(pa.string(), pa.int64())),
}


def bits(value: Any) -> Any:
    """Return a value that equals another only if the bits are equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, dict):
        return {name: bits(one) for name, one in value.items()}
    return [bits(one) for one in value] if isinstance(value, list | tuple) else value


def test_rows_that_a_merge_copies_keep_their_exact_values(lake: Lake) -> None:
    """No way of reading the files changes a value by a cast, by statistics or by a name."""
    rows = pa.table({"k": pa.array(range(5), pa.int64()), **DELICATE, "n": range(5)})
    lake.make("t", rows)
    lake.append("t", rows.set_column(0, "k", pa.array(range(5, 10), pa.int64())))
    before = {row["k"]: row for row in lake.scan("t").to_pylist()}
    source = pa.table({"k": pa.array([1, 7, 20], pa.int64()), "n": [-1, -7, -20]})
    lake.merge(
        "t",
        source,
        "source.k = target.k",
        clause("matched_update", n="source.n"),
        clause("not_matched_insert", k="source.k", n="source.n"),
    )
    before[1]["n"], before[7]["n"] = -1, -7
    before[20] = dict.fromkeys(rows.schema.names) | {"k": 20, "n": -20}
    after = {row["k"]: row for row in lake.scan("t").to_pylist()}
    assert bits(after) == bits(before)


#: The table's type, and the type and values that an older file may have instead.
NARROWER = {
    "bigint": (pa.int64(), pa.array([-1, 2**31 - 1, None], pa.int32())),
    "double": (pa.float64(), pa.array([math.nan, -0.0, 0.1], pa.float32())),
    "decimal": (pa.decimal128(20, 4), pa.array([Decimal("1.5"), None, Decimal("-0.1")])),
    "timestamp": (pa.timestamp("us"), pa.array([0, None, 18_262], pa.date32())),
}


@pytest.mark.parametrize("case", NARROWER)
def test_a_merge_writes_the_tables_types_though_an_older_file_has_others(
    tmp_path: Path, case: str
) -> None:
    """Files with other types are read by the table's schema, also for unchanged columns."""
    wide, narrow = NARROWER[case]
    lake = Lake(str(tmp_path), settings=Settings(in_memory_file_limit_bytes=0))
    numbers = pa.array(range(3), pa.int64())
    lake.make("t", pa.table({"k": numbers, "x": narrow, "n": numbers}))
    schema = pa.schema([("k", pa.int64()), ("x", wide), ("n", pa.int64())])
    table = lake.input("t")
    layout = dataclasses.replace(table.layout, schema=schema, physical=schema)
    table = TableInput(layout, table.files)
    source = pa.table({"k": pa.array([1], pa.int64()), "n": pa.array([-1], pa.int64())})
    set_n = clause("matched_update", n="source.n")
    spec = merge_spec(layout, source.schema, "source.k = target.k", (set_n,))
    before = lake.runner.run(lake.engine.scan(table, None, None)).read_all().sort_by("k")
    done = lake.runner.run(lake.engine.merge(table, source.to_reader(), spec, lake.name))
    (written,) = done.written
    now = pq.read_table(f"{lake.root}/t/{written.file.path}").sort_by("k")
    assert now.schema.types == schema.types
    assert bits(now["x"].to_pylist()) == bits(before["x"].to_pylist())
    assert now["n"].to_pylist() == [0, -1, 2]
