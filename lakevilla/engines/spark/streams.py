"""The checkpoint that a batch of a stream belongs to: by the id that Spark draws for it (note 46).

The id is the same after each restart, and another one with each new checkpoint.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from lakevilla.engines.spark.rows import is_frame
from lakevilla.errors import InvalidOperation

__all__ = ["called_by_spark", "checkpoint_of", "checkpoint_of_task", "session_of_connect"]

#: The property with the query's id in the thread that runs the query, and so in each of its tasks.
_PROPERTY = "sql.streaming.queryId"


def checkpoint_of(
    batch: object, query_id: str, known: dict[str, str], started_in: object = None
) -> str:
    """Return the checkpoint of the batch with which Spark has called this thread.

    It is empty if the function is called without a stream. ``known``: the ids that Spark Connect
    has returned before in this process, which serves one start of one query. ``started_in``: the
    session of the query, where it is known; from Spark 4.3 on its batches have the session of a
    clone, which has no queries.

    Raises
    ------
    InvalidOperation
        A stream calls it, and its checkpoint can't be known.
    """
    session = getattr(batch, "sparkSession", None) if is_frame(batch) else session_of_connect()
    if type(session).__module__.startswith("pyspark.sql.connect."):
        if not known:
            of_query = started_in or session
            known["id"] = _by_session(of_query, query_id, is_sure=_is_of_server(batch))
        return known["id"]
    return _by_thread(query_id)


def checkpoint_of_task() -> str:
    """Return the checkpoint of the batch whose rows this task writes; empty outside of a task."""
    if "pyspark" not in sys.modules:
        return ""
    from pyspark import TaskContext

    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty(_PROPERTY) or ""


def called_by_spark() -> bool:
    """Return whether Spark itself has called the function that calls this: then with each batch.

    A function of the user's between the two may leave out some batches, such as those without rows.
    """
    caller = sys._getframe(2)
    spec = caller.f_globals.get("__spec__")  # names the module that ``python -m`` runs, too
    name: str = getattr(spec, "name", None) or caller.f_globals.get("__name__") or ""
    return name.split(".")[0] == "pyspark"


def session_of_connect() -> object:
    """Return the active session where the function of a stream runs on Spark Connect.

    While the function is unpickled, it is that of the query.
    """
    module = sys.modules.get("pyspark.sql.connect.session")
    return None if module is None else module.SparkSession.getActiveSession()


def _is_of_server(batch: object) -> bool:
    """Return whether it is a frame that only the server can have made, as it does for a batch."""
    plan = getattr(batch, "_plan", None)
    return is_frame(batch) and (plan is None or type(plan).__name__ == "CachedRemoteRelation")


def _by_thread(query_id: str) -> str:
    if "pyspark" not in sys.modules:
        return ""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        return ""
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise InvalidOperation(
            f"the checkpoint of a batch of stream {query_id!r} is unknown with "
            "PYSPARK_PIN_THREAD=false, and batches of a new checkpoint might be skipped: leave "
            "that variable out"
        )
    return context.getLocalProperty(_PROPERTY) or ""


def _by_session(session: Any, query_id: str, *, is_sure: bool) -> str:
    """Return the checkpoint by the session's queries: Connect does not name the function's own."""
    active = session.streams.active
    if not (active or is_sure):
        return ""  # no stream has called the function
    own = [query for query in active if query.name == query_id] or active
    if len(own) != 1:
        raise InvalidOperation(
            f"Spark Connect does not show which of the {len(active)} streaming queries of this "
            f"session brings the batch for query_id {query_id!r}, and batches of a new checkpoint "
            f"might be skipped: give the query that name, with .queryName({query_id!r})"
        )
    return str(own[0].id)
