"""The checkpoint location of a streamed batch, found through the session's queries or given by
the user.
"""

from __future__ import annotations

import json
import pickle
import sys
from contextlib import nullcontext
from functools import partial
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.run import BatchFunction
from lakevilla.engines.spark.planned import digest_of_plan, reader_of_query
from lakevilla.engines.spark.streams import checkpoint_of, checkpoint_of_task


class CachedRemoteRelation:
    """The plan of a frame made by the server."""


class Session:
    """A stub of a Spark Connect session with active queries, as (id, name)."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, *queries: tuple[str, str]) -> None:
        self.streams = SimpleNamespace(active=[SimpleNamespace(id=i, name=n) for i, n in queries])


class DataFrame:
    """A frame of such a session."""

    __module__ = "pyspark.sql.connect.dataframe"

    def __init__(self, session: Session, plan: object) -> None:
        self.sparkSession, self._plan = session, plan


def batch(*queries: tuple[str, str]) -> Any:
    return DataFrame(Session(*queries), CachedRemoteRelation())


def test_the_only_query_of_a_session_gives_the_checkpoint() -> None:
    assert checkpoint_of(batch(("a", "whatever")), "orders", {}) == "a"


def test_the_query_with_the_given_name_gives_the_checkpoint_among_several() -> None:
    assert checkpoint_of(batch(("a", ""), ("b", "orders")), "orders", {}) == "b"


def test_a_batch_whose_query_is_unknown_is_refused() -> None:
    for queries in ([("a", ""), ("b", "")], []):
        with pytest.raises(lv.InvalidOperation, match=r"\.queryName\('orders'\)"):
            checkpoint_of(batch(*queries), "orders", {})


def test_a_batch_in_a_cloned_session_uses_the_queries_of_the_original_session() -> None:
    started_in = Session(("a", ""))
    assert checkpoint_of(batch(), "orders", {}, started_in) == "a"
    with pytest.raises(lv.InvalidOperation, match="which of the 2 streaming queries"):
        checkpoint_of(batch(), "orders", {}, Session(("a", ""), ("b", "")))


def test_an_unpickled_batch_function_knows_the_session_that_was_active_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(("a", "orders"))
    kind = SimpleNamespace(getActiveSession=lambda: session)
    function = BatchFunction(len, len, len, "orders", {})
    assert function.started_in is None
    monkeypatch.setitem(
        sys.modules, "pyspark.sql.connect.session", SimpleNamespace(SparkSession=kind)
    )
    found = pickle.loads(pickle.dumps(function))
    assert found.started_in is session
    assert (found.known, found.query_id) == ({}, "orders")


def test_a_checkpoint_found_once_is_used_after_other_queries_have_started() -> None:
    known: dict[str, str] = {}
    assert checkpoint_of(batch(("a", "")), "orders", known) == "a"
    assert checkpoint_of(batch(("a", ""), ("b", "")), "orders", known) == "a"


def called(from_module: dict[str, Any], fn: Any = lambda function: function) -> bool:
    """Return whether a batch counts if a function of a module calls the batch function."""
    options: list[Any] = []
    function = BatchFunction(
        lambda _, given: options.append(given), lambda _: nullcontext(), len, "orders", {}
    )
    exec("def call(function, *batch): function(*batch)", from_module)
    from_module["call"](fn(function), batch(("a", "")), 4)
    return bool(options[0]["batch"][2])


def test_a_batch_counts_only_if_spark_itself_calls_the_batch_function() -> None:
    """A user's function in between may leave out batches; a ``partial`` can't."""
    by_spark = {"__name__": "pyspark.sql.utils"}
    assert called(by_spark)
    assert called(by_spark, partial)
    assert not called(by_spark, lambda function: lambda *batch: function(*batch))
    # As ``python -m`` runs a worker of Spark Connect, or a notebook.
    worker = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
    assert called({"__name__": "__main__", "__spec__": ModuleSpec(worker, None)})
    assert not called({"__name__": "__main__", "__spec__": ModuleSpec("ipykernel", None)})
    assert not called({"__name__": "__main__"})
    assert not called({"__name__": "pyspark_helpers.streams"})


def plan(offsets: str, of: str = "a") -> dict[str, bytes]:
    return {"metadata": json.dumps({"id": of}).encode(), "offsets/4": offsets.encode()}


def planned_of(checkpoint: dict[str, bytes] | None) -> Any:
    """The options that the lake gets for batch 4 of a function that knows its checkpoint's
    location.
    """
    options: list[Any] = []
    function = BatchFunction(
        lambda _, given: options.append(given),
        lambda _: nullcontext(),
        len,
        "orders",
        {},
        reader=lambda: None if checkpoint is None else checkpoint.get,
    )
    function(batch(("a", "")), 4)
    return options[0]["batch"][1]


def test_a_batch_is_identified_by_its_plan_if_the_checkpoint_location_is_known() -> None:
    assert planned_of(plan("5")) == planned_of(plan("5")) != planned_of(plan("7"))


def test_a_checkpoint_location_of_another_stream_is_refused() -> None:
    for wrong in (None, {}, plan("5", of="b")):
        with pytest.raises(lv.InvalidOperation, match="checkpoint_location of stream 'orders' is"):
            planned_of(wrong)


def test_a_batch_has_no_plan_digest_if_spark_does_not_expose_its_queries() -> None:
    """Some vendors' Spark is so: a batch is then identified by its number, as before."""

    class Classic(Session):
        _jvm, _jsparkSession = object(), object()

    for session in (Session(), Classic()):
        assert reader_of_query(DataFrame(session, object()), "a") is None
    assert digest_of_plan(None, "a", "orders", 4) == ""


def test_an_error_of_this_code_is_not_taken_for_an_error_of_spark() -> None:
    def broken(name: str) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        digest_of_plan(broken, "a", "orders", 4)


class Py4JError(Exception):
    """A stub of Py4J's error for a method that does not exist or that a vendor forbids."""

    __module__ = "py4j.protocol"


class Py4JJavaError(Py4JError):
    """A stub of Py4J's error for an exception raised in Java."""

    __module__ = "py4j.protocol"


def test_an_unreadable_checkpoint_file_raises_a_store_error() -> None:
    """Such a batch was taken for one of another checkpoint, and a new plan for the old one."""
    for unread in ("metadata", "offsets/4"):
        for error in (Py4JJavaError("IOException: 503 Slow Down"), OSError("503 Slow Down")):

            def read(name: str, unread: str = unread, error: Exception = error) -> bytes | None:
                if name == unread:
                    raise error
                return plan("5")[name]

            with pytest.raises(lv.StoreError, match=r"if batch 4 is a repetition .*503 Slow Down"):
                digest_of_plan(read, "a", "orders", 4)


def test_a_batch_has_no_plan_digest_if_spark_forbids_reading_files() -> None:
    def forbidden(name: str) -> bytes | None:
        raise Py4JError("Py4JSecurityException: exists is not whitelisted")

    assert digest_of_plan(forbidden, "a", "orders", 4) == ""


def test_a_frame_that_is_not_part_of_a_stream_has_no_checkpoint() -> None:
    assert checkpoint_of([{"id": 1}], "orders", {}) == ""
    assert checkpoint_of(DataFrame(Session(), object()), "orders", {}) == ""
    assert checkpoint_of_task() == ""
