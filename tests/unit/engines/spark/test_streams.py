"""The checkpoint of a batch, where Spark Connect shows no more than the session's queries."""

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
    """The plan of a frame that the server has made."""


class Session:
    """A session of Spark Connect with its active queries, as (id, name)."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, *queries: tuple[str, str]) -> None:
        self.streams = SimpleNamespace(active=[SimpleNamespace(id=i, name=n) for i, n in queries])


class DataFrame:
    """A frame of it."""

    __module__ = "pyspark.sql.connect.dataframe"

    def __init__(self, session: Session, plan: object) -> None:
        self.sparkSession, self._plan = session, plan


def batch(*queries: tuple[str, str]) -> Any:
    return DataFrame(Session(*queries), CachedRemoteRelation())


def test_the_only_query_of_a_session_is_the_one() -> None:
    assert checkpoint_of(batch(("a", "whatever")), "orders", {}) == "a"


def test_of_several_it_is_the_one_that_is_named_so() -> None:
    assert checkpoint_of(batch(("a", ""), ("b", "orders")), "orders", {}) == "b"


def test_a_batch_of_an_unknown_checkpoint_is_refused() -> None:
    for queries in ([("a", ""), ("b", "")], []):
        with pytest.raises(lv.InvalidOperation, match=r"\.queryName\('orders'\)"):
            checkpoint_of(batch(*queries), "orders", {})


def test_a_batch_of_a_clone_is_of_the_session_that_the_query_was_started_in() -> None:
    started_in = Session(("a", ""))
    assert checkpoint_of(batch(), "orders", {}, started_in) == "a"
    with pytest.raises(lv.InvalidOperation, match="which of the 2 streaming queries"):
        checkpoint_of(batch(), "orders", {}, Session(("a", ""), ("b", "")))


def test_a_function_knows_the_session_that_its_pickle_was_read_in(
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


def test_a_known_checkpoint_holds_when_other_queries_begin() -> None:
    known: dict[str, str] = {}
    assert checkpoint_of(batch(("a", "")), "orders", known) == "a"
    assert checkpoint_of(batch(("a", ""), ("b", "")), "orders", known) == "a"


def called(from_module: dict[str, Any], fn: Any = lambda function: function) -> bool:
    """Return whether a batch is counted that a function of a module brings."""
    options: list[Any] = []
    function = BatchFunction(
        lambda _, given: options.append(given), lambda _: nullcontext(), len, "orders", {}
    )
    exec("def call(function, *batch): function(*batch)", from_module)
    from_module["call"](fn(function), batch(("a", "")), 4)
    return bool(options[0]["batch"][2])


def test_batches_are_counted_where_spark_itself_brings_them() -> None:
    """A function between the two may leave out some; a ``partial`` can't."""
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
    """The data that the lake gets of batch 4 of a function that knows the place of its
    checkpoint.
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


def test_a_function_that_knows_its_checkpoint_identifies_a_batch_by_its_plan() -> None:
    assert planned_of(plan("5")) == planned_of(plan("5")) != planned_of(plan("7"))


def test_a_location_that_is_not_the_checkpoint_s_is_refused() -> None:
    for wrong in (None, {}, plan("5", of="b")):
        with pytest.raises(lv.InvalidOperation, match="checkpoint_location of stream 'orders' is"):
            planned_of(wrong)


def test_a_spark_that_does_not_show_its_queries_identifies_no_batch() -> None:
    """As a vendor's may be: then a batch is known by its number, as before."""

    class Classic(Session):
        _jvm, _jsparkSession = object(), object()

    for session in (Session(), Classic()):
        assert reader_of_query(DataFrame(session, object()), "a") is None
    assert digest_of_plan(None, "a", "orders", 4) == ""


def test_an_error_of_this_code_is_not_taken_for_one_of_spark() -> None:
    def broken(name: str) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        digest_of_plan(broken, "a", "orders", 4)


class Py4JError(Exception):
    """As Py4J raises it for a method that does not exist or that a vendor forbids."""

    __module__ = "py4j.protocol"


class Py4JJavaError(Py4JError):
    """As Py4J raises it for an exception of Java."""

    __module__ = "py4j.protocol"


def test_a_batch_ends_if_a_file_of_its_checkpoint_cannot_be_read_now() -> None:
    """It was taken for one of another checkpoint, and a new plan for the old one."""
    for unread in ("metadata", "offsets/4"):
        for error in (Py4JJavaError("IOException: 503 Slow Down"), OSError("503 Slow Down")):

            def read(name: str, unread: str = unread, error: Exception = error) -> bytes | None:
                if name == unread:
                    raise error
                return plan("5")[name]

            with pytest.raises(lv.StoreError, match=r"if batch 4 is a repetition .*503 Slow Down"):
                digest_of_plan(read, "a", "orders", 4)


def test_a_spark_that_forbids_its_files_identifies_no_batch() -> None:
    def forbidden(name: str) -> bytes | None:
        raise Py4JError("Py4JSecurityException: exists is not whitelisted")

    assert digest_of_plan(forbidden, "a", "orders", 4) == ""


def test_a_frame_that_no_stream_brings_has_no_checkpoint() -> None:
    assert checkpoint_of([{"id": 1}], "orders", {}) == ""
    assert checkpoint_of(DataFrame(Session(), object()), "orders", {}) == ""
    assert checkpoint_of_task() == ""
