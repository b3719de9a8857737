"""The identity of a stream's batch: the plan that Spark wrote before it ran the batch (note 48).

In the checkpoint, ``offsets/<batch>`` contains the end of each source of the batch, and the time
when it was planned. A batch that is run again has the same file; one that was planned again has
another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
from blake3 import blake3

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.engines.spark.rows import is_frame
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError
from lakevilla.store.base import Found, GetOutcome
from lakevilla.store.effects import Program, get
from lakevilla.store.location import parse_location, root_location

__all__ = ["Read", "default_location", "digest_of_plan", "reader_below", "reader_of_query"]

#: Return a file of a checkpoint by its name; None if it does not exist.
Read = Callable[[str], bytes | None]

#: The setting for checkpoints of queries that name none; each task gets its value.
_DEFAULT = "spark.sql.streaming.checkpointLocation"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: Bytes of a digest, which is compared with one other digest only.
_LENGTH = 8


class _Metadata(msgspec.Struct):
    id: str


def digest_of_plan(read: Read | None, checkpoint: str, query_id: str, batch: int) -> str:
    """Return a digest of Spark's plan of a batch, the same whenever the batch is run again.

    It is empty if it can't be known: ``read`` reads a directory that is not the checkpoint's,
    because Spark means another one by its name, or this Spark gives no access to its files.

    Raises
    ------
    InvalidOperation
        Spark runs the batch and has not written its plan.
    StoreError
        A file can't be read now. Without it a new plan would be taken for the old one, and its rows
        for done.
    """
    try:
        if read is None or not checkpoint or not _is_of(read, checkpoint):
            return ""
        body = read(f"offsets/{batch}")
    except Exception as error:
        if not (isinstance(error, LakeVillaError | OSError) or _is_of_spark(error)):
            raise
        raise StoreError(
            f"the checkpoint of stream {query_id!r} can't be read, so it is not known if batch "
            f"{batch} is a repetition or has new rows: nothing is written or skipped; start the "
            f"stream again when the checkpoint can be read: {error}",
            permanent=isinstance(error, StoreError) and error.permanent,
        ) from error
    if body is None:
        raise InvalidOperation(
            f"stream {query_id!r} brings batch {batch}, and Spark has not written down in its "
            "checkpoint what that batch is, so a repeated batch can't be distinguished from new "
            "rows: leave out modes that write it down later, such as real-time mode and "
            "asynchronous progress tracking"
        )
    return blake3(body).hexdigest(length=_LENGTH)


def _is_of(read: Read, checkpoint: str) -> bool:
    try:
        body = read("metadata")
        return body is not None and JsonDecoder(_Metadata).decode(body).id == checkpoint
    except ValueError:
        return False  # Spark starts no query on such a file, so it has its own elsewhere
    except Exception as error:
        if _is_hidden(error):
            return False
        raise


def _is_of_spark(error: Exception) -> bool:
    return type(error).__module__.startswith(("py4j.", "pyspark."))


def _is_hidden(error: Exception) -> bool:
    """Return whether an error means that this Spark lacks or forbids a method; file
    errors don't.
    """
    kind = type(error)
    return kind.__module__.startswith("py4j.") and kind.__name__ == "Py4JError"


def default_location(name: str | None) -> str | None:
    """Return the checkpoint's location of this task's query if it was given none, by its name.

    None without a name: then Spark makes a new one with each start, and no batch is run again.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    parent = None if task is None else task.getLocalProperty(_DEFAULT)
    return f"{parent.rstrip('/')}/{name}" if parent and name else None


def reader_below(
    location: str | None, root: str, run: Callable[[Program[GetOutcome]], GetOutcome]
) -> Read | None:
    """Return a reader of a checkpoint, by its location as passed to Spark; None if there is none.

    Parameters
    ----------
    location : str or None
        A local path, or a directory in an object store.
    root : str
        The lake's: a store of another provider can't be opened from here, and a bucket other than
        the lake's need not be open to its credentials.
    run : callable
        Runs a program in the lake's store.
    """
    if not location:
        return None
    scheme = _SCHEME.match(location)
    if scheme is None or scheme[1].lower() == "file":
        path = location if scheme is None else location[scheme.end() :]
        local = os.path.abspath(re.sub("^//(localhost)?(?=/)", "", path))
        return lambda name: _read_local(os.path.join(local, name))
    try:
        place = parse_location(location)
    except InvalidOperation:
        return None  # HDFS and other stores
    if place.scheme != root_location(root).scheme:
        return None
    is_own = place.store == root_location(root).store

    def read(name: str) -> bytes | None:
        try:
            outcome = run(get(f"{place.uri}/{name}"))
        except StoreError as error:
            if is_own or not error.permanent or name != "metadata":
                raise
            return None  # another bucket, which is not open to the lake's credentials
        return outcome.body if isinstance(outcome, Found) else None

    return read


def _read_local(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def reader_of_query(batch: Any, checkpoint: str) -> Read | None:
    """Return Spark's own reader of the checkpoint of a batch's query, wherever it is stored.

    None if there is no such query in this process, or this Spark gives no access to it.
    """
    session = getattr(batch, "sparkSession", None) if is_frame(batch) else None
    if session is None or not checkpoint or not hasattr(session, "_jsparkSession"):
        return None
    try:
        jvm, its = session._jvm, session._jsparkSession
        queries = its.sharedState().activeStreamingQueries()
        query = queries.get(jvm.java.util.UUID.fromString(checkpoint))
        if query is None:
            return None
        directory = query.resolvedCheckpointRoot()
        to_path = jvm.org.apache.hadoop.fs.Path
        at, conf = to_path(directory), its.sessionState().newHadoopConf()
        to_bytes = jvm.org.apache.commons.io.IOUtils.toByteArray
    except Exception as error:
        if isinstance(error, AttributeError | TypeError) or _is_of_spark(error):
            return None  # a modified Spark, which lacks these attributes
        raise

    def read(name: str) -> bytes | None:
        path = to_path(directory, name)
        files = at.getFileSystem(conf)  # Hadoop keeps it; the first call may reach for the store
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(to_bytes(stream))
        finally:
            stream.close()

    return read
