"""Write dispositions: what dlt documents of append, replace and each strategy of merge."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import dlt
import pyarrow as pa
import pytest
from dlt.common.schema.typing import MERGE_STRATEGIES

from tests.integrations.dlt.pipelines import rows_of

#: Filters and scopes of merges came with the strategy cdc.
of_131 = pytest.mark.skipif("cdc" not in MERGE_STRATEGIES, reason="dlt has it from 1.31 on")
MERGES = ["delete-insert", "upsert", "insert-only"]


def test_append_adds_rows_and_columns(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"id": 1}], table_name="t")
    pipeline.run([{"id": 2, "note": "new"}], table_name="t")
    assert rows_of(pipeline, "t") == [{"id": 1, "note": None}, {"id": 2, "note": "new"}]


@pytest.mark.parametrize(
    "strategy", ["truncate-and-insert", "insert-from-staging", "staging-optimized"]
)
def test_replace_leaves_the_last_rows_alone(make: Any, strategy: str) -> None:
    pipeline = make(replace_strategy=strategy)
    pipeline.run([{"id": 1, "parts": [1, 2]}, {"id": 2}], table_name="t")
    pipeline.run([{"id": 3}], table_name="t", write_disposition="replace")
    assert rows_of(pipeline, "t") == [{"id": 3}]
    assert rows_of(pipeline, "t__parts") == []


def test_replace_without_rows_empties_the_table(pipeline: dlt.Pipeline) -> None:
    @dlt.resource(name="t", write_disposition="replace")
    def rows(count: int) -> Any:
        yield from ({"id": n} for n in range(count))

    pipeline.run(rows(3))
    pipeline.run(rows(0))
    assert rows_of(pipeline, "t") == []


@pytest.mark.parametrize("strategy", MERGES)
def test_merge_by_a_primary_key(pipeline: dlt.Pipeline, strategy: str) -> None:
    merge = {"disposition": "merge", "strategy": strategy}
    options: Any = {"table_name": "t", "write_disposition": merge, "primary_key": "id"}
    pipeline.run([{"id": 1, "qty": 1}, {"id": 2, "qty": 2}], **options)
    pipeline.run([{"id": 2, "qty": 20}, {"id": 3, "qty": 30}], **options)
    second = 2 if strategy == "insert-only" else 20
    assert rows_of(pipeline, "t") == [
        {"id": 1, "qty": 1},
        {"id": 2, "qty": second},
        {"id": 3, "qty": 30},
    ]


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_merge_replaces_nested_rows_with_their_root(pipeline: dlt.Pipeline, strategy: str) -> None:
    merge = {"disposition": "merge", "strategy": strategy}
    options: Any = {"table_name": "t", "write_disposition": merge, "primary_key": "id"}
    pipeline.run(
        [{"id": 1, "parts": [{"n": 1}, {"n": 2}]}, {"id": 2, "parts": [{"n": 3}]}], **options
    )
    pipeline.run([{"id": 1, "parts": [{"n": 9}]}], **options)
    assert [row["n"] for row in rows_of(pipeline, "t__parts")] == [3, 9]


def test_merge_by_a_merge_key_replaces_the_partition(pipeline: dlt.Pipeline) -> None:
    @dlt.resource(name="t", write_disposition="merge", merge_key="day")
    def rows(*days: tuple[int, int]) -> Any:
        yield from ({"day": day, "n": n} for day, n in days)

    pipeline.run(rows((1, 1), (1, 2), (2, 3)))
    pipeline.run(rows((1, 4)))
    assert rows_of(pipeline, "t") == [{"day": 1, "n": 4}, {"day": 2, "n": 3}]


def test_merge_without_keys_appends(pipeline: dlt.Pipeline) -> None:
    for n in (1, 1):
        pipeline.run([{"n": n}], table_name="t", write_disposition="merge")
    assert rows_of(pipeline, "t") == [{"n": 1}, {"n": 1}]


def test_merge_keeps_the_row_that_dedup_sort_puts_first(pipeline: dlt.Pipeline) -> None:
    columns: Any = {"at": {"dedup_sort": "desc"}}
    pipeline.run(
        [{"id": 1, "at": 1}, {"id": 1, "at": 3}, {"id": 1, "at": 2}],
        table_name="t",
        write_disposition="merge",
        primary_key="id",
        columns=columns,
    )
    assert rows_of(pipeline, "t") == [{"id": 1, "at": 3}]


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_merge_deletes_rows_with_a_hard_delete_mark(pipeline: dlt.Pipeline, strategy: str) -> None:
    options: Any = {
        "table_name": "t",
        "write_disposition": {"disposition": "merge", "strategy": strategy},
        "primary_key": "id",
        "columns": {"gone": {"hard_delete": True, "data_type": "bool"}},
    }
    pipeline.run(
        [{"id": 1, "gone": False, "parts": [1]}, {"id": 2, "gone": False, "parts": [2]}], **options
    )
    pipeline.run([{"id": 1, "gone": True}], **options)
    assert rows_of(pipeline, "t") == [{"id": 2, "gone": False}]
    assert [row["value"] for row in rows_of(pipeline, "t__parts")] == [2]


def test_scd2_retires_rows_that_changed(pipeline: dlt.Pipeline) -> None:
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)

    def load(rows: list[dict[str, Any]], at: datetime) -> None:
        disposition: Any = {
            "disposition": "merge",
            "strategy": "scd2",
            "boundary_timestamp": at.isoformat(),
        }
        pipeline.run(rows, table_name="t", write_disposition=disposition)

    load([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], first)
    load([{"id": 1, "v": "a2"}, {"id": 2, "v": "b"}], second)
    rows = pipeline.dataset()["t"].arrow().to_pylist()
    found = sorted(
        (row["id"], row["v"], row["_dlt_valid_from"], row["_dlt_valid_to"]) for row in rows
    )
    assert [row[:2] for row in found] == [(1, "a"), (1, "a2"), (2, "b")]
    assert [row[2:] for row in found] == [(first, second), (second, None), (first, None)]


def test_scd2_inserts_nested_rows_of_new_versions(pipeline: dlt.Pipeline) -> None:
    disposition: Any = {"disposition": "merge", "strategy": "scd2"}
    for parts in ([1], [1, 2]):
        pipeline.run([{"id": 1, "parts": parts}], table_name="t", write_disposition=disposition)
    assert [row["value"] for row in rows_of(pipeline, "t__parts")] == [1, 1, 2]


VALUES: dict[str, Any] = {
    "text": "å",
    "whole": 2**62,
    "real": 0.5,
    "yes": True,
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "raw": b"\x00\xff",
    "sum": Decimal("12.340000000"),
}


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_values_of_each_type_come_back(pipeline: dlt.Pipeline, format: Any) -> None:
    if format == "iceberg":
        pytest.importorskip("pyiceberg")  # it is of an extra of its own
    row = {**VALUES, "clock": time(3, 4, 5), "doc": {"a": [1, None]}}
    columns: Any = {"doc": {"data_type": "json"}}
    for disposition in ("append", "merge"):
        pipeline.run(
            [row],
            table_name=f"t_{disposition}",
            write_disposition=disposition,
            table_format=format,
            columns=columns,
        )
        [found] = rows_of(pipeline, f"t_{disposition}")
        assert str(found.pop("clock")) == "03:04:05"
        assert found.pop("doc").replace(" ", "") == '{"a":[1,null]}'
        assert found == VALUES


def test_a_column_of_another_type_becomes_a_variant(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    pipeline.run([{"n": "one"}], table_name="t")
    assert rows_of(pipeline, "t") == [{"n": 1, "n__v_text": None}, {"n": None, "n__v_text": "one"}]


def test_arrow_tables_keep_their_nested_columns(pipeline: dlt.Pipeline) -> None:
    rows = pa.table({"id": [1, 2], "tags": [["a"], None], "at": [{"x": 1}, {"x": 2}]})
    for _ in range(2):
        pipeline.run(rows, table_name="t", write_disposition="merge", primary_key="id")
    assert rows_of(pipeline, "t") == rows.to_pylist()


def test_a_partition_hint_partitions_the_table(pipeline: dlt.Pipeline, lake: Any) -> None:
    columns: Any = {"day": {"partition": True}}
    pipeline.run([{"day": 1}, {"day": 2}], table_name="t", columns=columns)
    assert tuple(lake["shop_data/t"].partition_by) == ("day",)
    assert rows_of(pipeline, "t") == [{"day": 1}, {"day": 2}]


@of_131
def test_cdc_deletes_the_rows_that_a_partition_lacks(pipeline: dlt.Pipeline) -> None:
    merge: Any = {"disposition": "merge", "strategy": "cdc"}

    @dlt.resource(name="t", write_disposition=merge, primary_key=["day", "id"], merge_key="day")
    def rows(*found: tuple[int, int, str]) -> Any:
        yield from ({"day": day, "id": one, "v": v} for day, one, v in found)

    pipeline.run(rows((1, 1, "a"), (1, 2, "b"), (2, 1, "c")))
    pipeline.run(rows((1, 1, "a2"), (1, 3, "d")))
    assert rows_of(pipeline, "t") == [
        {"day": 1, "id": 1, "v": "a2"},
        {"day": 1, "id": 3, "v": "d"},
        {"day": 2, "id": 1, "v": "c"},
    ]


@of_131
@pytest.mark.parametrize("strategy", ["delete-insert", "upsert", "scd2"])
def test_merge_takes_only_rows_of_a_source_filter(pipeline: dlt.Pipeline, strategy: str) -> None:
    merge: Any = {"disposition": "merge", "strategy": strategy, "source_filter": "qty > 0"}
    rows = [{"id": 1, "qty": 1, "parts": [1]}, {"id": 2, "qty": 0, "parts": [2]}]
    pipeline.run(rows, table_name="t", write_disposition=merge, primary_key="id")
    assert [row["id"] for row in rows_of(pipeline, "t")] == [1]
    assert [row["value"] for row in rows_of(pipeline, "t__parts")] == [1]


@of_131
def test_merge_deletes_what_a_destination_scope_selects(pipeline: dlt.Pipeline) -> None:
    merge: Any = {
        "disposition": "merge",
        "strategy": "delete-insert",
        "destination_scope": "day = 1",
    }
    options: Any = {"table_name": "t", "write_disposition": merge}
    pipeline.run([{"day": 1, "parts": [1]}, {"day": 2, "parts": [2]}], **options)
    pipeline.run([{"day": 1, "parts": [3]}], **options)
    assert [row["value"] for row in rows_of(pipeline, "t__parts")] == [2, 3]


def test_values_beyond_the_precision_of_a_table_are_refused(pipeline: dlt.Pipeline) -> None:
    at = pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC"))
    with pytest.raises(Exception, match="at"):
        pipeline.run(pa.table({"id": [1], "at": at}), table_name="t")


def test_names_with_spaces_stay_as_they_are(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCHEMA__NAMING", "direct")
    pipeline = make()
    for n in (1, 2):
        pipeline.run(
            [{"My Id": 1, "n": n, "Its Parts": [n]}],
            table_name="My Table",
            write_disposition="merge",
            primary_key="My Id",
        )
    assert rows_of(pipeline, "My Table") == [{"My Id": 1, "n": 2}]
    assert dict(pipeline.dataset().row_counts().fetchall())["My Table"] == 1


def test_the_directory_of_dlt_may_have_any_name(make: Any) -> None:
    pipeline = make(machine="env=prod [1] *?'")
    pipeline.run([{"id": 1}], table_name="t")
    assert rows_of(pipeline, "t") == [{"id": 1}]


def test_text_that_is_no_identifier_names_columns(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{'a "b" c': 1, "ORDER": 2, "1st": 3}], table_name="select")
    assert rows_of(pipeline, "select") == [{"a_b_c": 1, "order": 2, "_1st": 3}]
