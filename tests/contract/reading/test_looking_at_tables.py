"""A first look at a lake: heads, counts, limits, times as text, names that a shell completes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_overloads

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.execution.executor import _first


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path_factory.mktemp("lake")) as lake:
        lake.create_table("stock", [{"sku": f"s{n}", "qty": n} for n in range(9)])
        lake.run(lambda txn: txn.append("stock", [{"sku": "new", "qty": 100}]))
        lake.tag("closing")
        yield lake


def test_a_table_shows_its_head_its_columns_and_the_number_of_its_rows(lake: lv.Lake) -> None:
    table = lake["stock"]
    assert table.columns == ["sku", "qty"]
    assert (table.head().num_rows, table.head(2).num_rows, table.head(99).num_rows) == (5, 2, 10)
    assert table.head(0).schema == table.schema
    assert table.count() == 10
    assert table.count(where="qty > :n", params={"n": 6}) == 3


def test_a_read_with_a_limit_returns_that_many_rows_of_the_predicate(lake: lv.Lake) -> None:
    found = lake.read("stock", ["qty"], "qty > 3", limit=2)
    assert found.num_rows == 2
    assert all(n > 3 for n in found["qty"].to_pylist())
    assert lake.snapshot().read("stock", limit=3).num_rows == 3
    assert lake.table("stock").read(version=0, limit=20).num_rows == 9
    for bad in (-1, "2", 1.5):
        with pytest.raises(lv.InvalidOperation, match="limit must be a whole number"):
            lake.read("stock", limit=bad)  # type: ignore[arg-type]


def test_a_read_with_a_limit_counts_as_a_read_of_all_its_rows(lake: lv.Lake) -> None:
    lake.create_table("till", [{"n": n} for n in range(4)])
    with pytest.raises(lv.ConflictError), lake.transaction() as txn:
        assert txn.read("till", where="n >= 0", limit=1).num_rows == 1
        lake.run(lambda other: other.update("till", {"n": "n + 10"}, where="n = 3"))
        txn.append("till", [{"n": 9}])


def test_a_limited_read_takes_no_batch_beyond_its_rows() -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            taken.append(number)
            yield pa.RecordBatch.from_pylist([{"n": number}] * 3)

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    assert _first(reader, 4)["n"].to_pylist() == [0, 0, 0, 1]
    assert taken == [0, 1]


AS_TEXT: list[Callable[[lv.Lake, Any], Any]] = [
    lambda lake, at: lake.read("stock", timestamp=at).num_rows,
    lambda lake, at: lake.snapshot(timestamp=at).version,
    lambda lake, at: lake.sql("SELECT count(*) AS n FROM stock", timestamp=at)["n"].to_pylist(),
    lambda lake, at: lake.query("/stock", at=at)["rows"].to_pylist(),
    lambda lake, at: lake.diff(at, "main").tables,
    lambda lake, at: [version.version for version in lake.changes(at)],
]


@pytest.mark.parametrize("asked", AS_TEXT)
def test_a_time_may_be_a_text_with_a_zone(
    lake: lv.Lake, asked: Callable[[lv.Lake, Any], Any]
) -> None:
    first = next(entry.timestamp for entry in lake.history() if entry.version == 1)
    there = first.astimezone(timezone(timedelta(hours=1)))
    texts = [first.isoformat(), first.isoformat().replace("+00:00", "Z"), there.isoformat(sep=" ")]
    assert [asked(lake, text) for text in texts] == [asked(lake, first)] * 3


@pytest.mark.parametrize("asked", AS_TEXT)
def test_a_time_without_a_zone_is_refused_by_its_name(
    lake: lv.Lake, asked: Callable[[lv.Lake, Any], Any]
) -> None:
    for bad in ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12)):
        with pytest.raises(lv.InvalidOperation, match=r"2026-01-31T12:00:00 has no time zone"):
            asked(lake, bad)


def test_a_table_is_read_as_of_a_text_by_its_own_log(lake: lv.Lake) -> None:
    table = lake.table("stock")
    first = table.versions()[-1].timestamp
    assert table.read(timestamp=first.isoformat()).num_rows == 9
    with pytest.raises(lv.InvalidOperation, match="has no time zone"):
        table.read(timestamp="2026-01-31T12:00:00")


def test_a_ref_is_made_at_a_time_that_is_a_text(lake: lv.Lake) -> None:
    first = next(entry.timestamp for entry in lake.history() if entry.version == 1)
    assert lake.tag("first", at=first.isoformat()).version == 1
    assert lake.tag("as-closing", at="closing").version == lake.refs("tag")[0].version


def test_a_shell_completes_the_names_of_tables(lake: lv.Lake) -> None:
    assert lake._ipython_key_completions_() == list(lake)


def test_a_listing_of_a_directory_that_is_not_there_warns(tmp_path: Path) -> None:
    for listed in (lambda lake: lake.tables(), list):
        with lv.connect(tmp_path / f"absent-{id(listed)}") as lake:
            with pytest.warns(lv.LakeVillaWarning, match="there is no directory .*check the root"):
                assert list(listed(lake)) == []
            lake.create_table("t", {"n": "bigint"})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert list(lake) == ["t"]


def test_the_lake_takes_no_time_of_a_machine_without_a_zone(lake: lv.Lake) -> None:
    assert lake.snapshot(timestamp=datetime.now(UTC).isoformat()).version == len(lake.history())


def test_a_plain_run_is_typed_as_what_its_function_returns(lake: lv.Lake) -> None:
    plain, keyed = map(inspect.signature, get_overloads(lv.Lake.run))
    assert (plain.parameters["idempotency_key"].annotation, plain.return_annotation) == (
        "None",
        "T",
    )
    assert keyed.return_annotation == "T | None"
