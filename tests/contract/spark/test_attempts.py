"""Attempts of one task: a retry or a speculative copy brings no file into a commit twice."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.spark import tasks
from lakevilla.engines.spark.tasks import LakeAddress, TaskReport, UpdateTask, WriteTask, in_bins
from lakevilla.lake.context import file_namer
from lakevilla.settings import Settings
from lakevilla.sql.expressions.assignments import bind_assignments
from lakevilla.sql.expressions.parse import parse_expression
from tests.support.engine_lake import Lake, Names, predicate
from tests.support.inside import executor, inside

NAMES = ("id", "v")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"]})


def attempt(task: Any, *batches: pa.RecordBatch) -> TaskReport:
    """Run a task as a worker does, and return its report as the driver reads it."""
    (told,) = tasks.reports(pickle.dumps(task), iter(batches))
    (report,) = told.column("report").to_pylist()
    found: TaskReport = pickle.loads(report)
    return found


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path))
    made.make("t", ROWS)
    return made


def place(lake: Lake) -> LakeAddress:
    return LakeAddress(lake.root, None, Settings())


def parquet(lake: Lake) -> set[str]:
    return {path for path in lake.files() if path.endswith(".parquet")}


def test_two_attempts_write_different_files_and_each_reports_its_own(lake: Lake) -> None:
    before = parquet(lake)
    task = WriteTask(place(lake), lake.open("t").layout, NAMES, Names())
    first, second = attempt(task, *ROWS.to_batches()), attempt(task, *ROWS.to_batches())
    named = [[one.file.path for one in r.rewrite.written] for r in (first, second)]
    assert [len(paths) for paths in named] == [1, 1]
    assert named[0] != named[1]
    assert {Path(path).name for path in parquet(lake) - before} == {*named[0], *named[1]}
    lake.commit("t", second.rewrite, "WRITE")  # the attempt that Spark accepted
    assert len(lake.rows("t")) == 4


def test_an_attempt_without_rows_writes_nothing(lake: Lake) -> None:
    before = parquet(lake)
    report = attempt(WriteTask(place(lake), lake.open("t").layout, NAMES, Names()))
    assert report.rewrite.written == ()
    assert parquet(lake) == before


def test_a_task_reports_an_error_that_a_retry_would_repeat_and_leaves_no_file(lake: Lake) -> None:
    before = parquet(lake)
    wrong = pa.record_batch({"id": pa.array([1.5]), "v": ["x"]})
    report = attempt(WriteTask(place(lake), lake.open("t").layout, NAMES, Names()), wrong)
    assert isinstance(report.error, lv.InvalidOperation)
    table = lake.input("t")
    where = predicate("id = 1", table.layout)
    values = bind_assignments(
        {"id": parse_expression("cast(1 / (id - 1) as long)")}, table.layout.schema
    )
    bins = in_bins(table, 1)
    number = pa.record_batch({"id": [0]})
    report = attempt(UpdateTask(place(lake), bins, values, where, Names()), number)
    assert "division by zero" in str(report.error)
    assert parquet(lake) == before


def test_gc_deletes_files_that_no_report_names_and_later_files_of_a_late_attempt(
    tmp_path: Path,
) -> None:
    with lv.connect(str(tmp_path), settings=lv.Settings(max_age_seconds=0)) as cleaner:
        with lv.connect(str(tmp_path)) as lake:
            lake.create_table("t", ROWS)
            with lake.transaction() as txn:
                txn.append("t", ROWS)
                layout = executor(txn).look("t").snapshot.layout
                name = file_namer(inside(lake).context, txn.id, True)
                task = WriteTask(LakeAddress(lake.root, None, lake.settings), layout, NAMES, name)
                attempt(task, *ROWS.to_batches())  # an attempt whose report never arrives
            kept = {str(p) for p in tmp_path.glob("t/*.parquet") if txn.id in p.name}
            assert len(kept) == 2
            cleaner.gc()
            assert len(list(tmp_path.glob(f"t/*{txn.id}*.parquet"))) == 1
            attempt(task, *ROWS.to_batches())  # a late attempt writes
            assert lake.snapshot().read("t").num_rows == 4
            cleaner.gc()
            assert len(list(tmp_path.glob(f"t/*{txn.id}*.parquet"))) == 1
            assert lake.snapshot().read("t").num_rows == 4
            assert cleaner.doctor().ok


def test_the_repr_of_a_task_shows_no_secret() -> None:
    secret = {"aws_secret_access_key": "hush"}
    task = WriteTask(LakeAddress("s3://lake", secret, Settings()), None, NAMES, Names())  # type: ignore[arg-type]
    assert "hush" not in repr(task)
