"""Errors of Spark tasks, which Spark passes on as text: the part that reaches the user."""

from __future__ import annotations

import pickle
import socket
import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.spark.jobs import failure
from lakevilla.engines.spark.reused import said_first
from lakevilla.engines.spark.tasks import LakeAddress, StageTask, reports


def text_of_spark(message: str) -> str:
    """Return the text that Spark makes of an error raised in a worker."""

    def rows() -> Iterator[int]:
        with said_first():
            yield 1
            raise lv.VersionNotFound(message, table="t")

    with pytest.raises(lv.VersionNotFound) as raised:
        list(rows())
    assert raised.value.table == "t"
    raised.value.__cause__ = None  # as Spark does before it formats the error
    return "".join(traceback.format_exception(raised.value))


def test_a_worker_error_begins_with_its_message_before_the_traceback() -> None:
    text = text_of_spark("there is no version 7; read another")
    first = "lakevilla.errors.VersionNotFound: there is no version 7; read another"
    assert text.splitlines()[0] == first
    assert text.splitlines()[-1] == first
    assert text.count("Traceback") == 1


def test_an_error_of_a_task_is_raised_with_its_original_class() -> None:
    text = "\n  An exception was thrown from the Python worker.\n" + text_of_spark("gone")
    found = failure(RuntimeError(text + "\n\nJVM stacktrace:\nabc"), "table t: job x")
    assert type(found) is lv.VersionNotFound
    assert str(found) == "table t: job x: gone"


def test_a_foreign_error_of_a_job_is_reported_by_its_last_line() -> None:
    text = "Job aborted.\nTraceback (most recent call last):\n  at x\nValueError: from the udf\n"
    found = failure(RuntimeError(text), "table t: job x")
    assert type(found) is lv.InvalidOperation
    assert str(found) == "table t: job x: the Spark job failed: ValueError: from the udf"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "\n: org.apache.spark.SparkException: Job aborted: 1\n\tat a.b\n"
            "Caused by: java.lang.Exception: middle\nCaused by: java.io.EOFException\n\tat c",
            "java.io.EOFException",
        ),
        ("\n: java.lang.RuntimeException: alone\n\tat a.b", "java.lang.RuntimeException: alone"),
        ("", "An error occurred while calling o8.getResult."),
    ],
)
def test_an_error_of_the_jvm_is_reported_by_its_cause(text: str, reason: str) -> None:
    found = failure(RuntimeError(f"An error occurred while calling o8.getResult.{text}"), "job x")
    assert str(found) == f"job x: the Spark job failed: {reason}"


def test_a_credentials_error_in_a_worker_names_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    place = LakeAddress("s3://bucket/lake", None, lv.Settings())
    rows = pa.record_batch({"c0": [1]})
    task = StageTask(place, "t", ("id",), pa.schema([("id", pa.int64())]), "staged/", ())
    (row,) = reports(pickle.dumps(task), iter([rows]))
    error = pickle.loads(row.column("report")[0].as_py()).error
    assert isinstance(error, lv.StoreError)
    where = f"worker {socket.gethostname()}: s3://bucket/lake"
    assert str(error).startswith(where)
    assert "no credentials were found" in str(error)
