"""The classes of writers that Spark pickles; they contain no logic, like those of readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Never

from lakevilla.engines.spark.session import importer

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        WriterCommitMessage,
    )

__all__ = ["stream_writer_class", "writer_class"]

_WORK = "lakevilla.api.spark.source.writing.work"


def writer_class() -> Callable[[bytes], DataSourceArrowWriter]:
    """Return the class of a frame's writer, whose argument is the pickled plan."""
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    work = importer(_WORK)

    class Writer(DataSourceArrowWriter):
        """A writer whose tasks write files, which one process commits together."""

        def __init__(self, state: bytes) -> None:
            self.state = state

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            message = WriterCommitMessage()
            message.content = work().written(self.state, iterator)  # type: ignore[attr-defined]
            return message

        def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            work().commit(self.state, [getattr(one, "content", None) for one in messages])

        def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
            work().abort(self.state, [getattr(one, "content", None) for one in messages])

    return Writer


def stream_writer_class() -> Callable[[bytes], DataSourceStreamArrowWriter]:
    """Return the class of a stream's writer; its tasks report the pickled plan of their batch."""
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    except ImportError:
        return _no_stream_writer()  # PySpark 4.0 has no stream writers

    work = importer(_WORK)

    class StreamWriter(DataSourceStreamArrowWriter):
        """A writer of one batch of a stream; Spark makes a second object to commit the batch."""

        def __init__(self, state: bytes) -> None:
            self.state = state

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            message = WriterCommitMessage()
            message.content = work().written(self.state, iterator)  # type: ignore[attr-defined]
            return message

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            work().commit_batch([getattr(one, "content", None) for one in messages], batchId)

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
            work().abort_batch([getattr(one, "content", None) for one in messages])

    return StreamWriter


def _no_stream_writer() -> Callable[[bytes], Never]:
    # a function inside a function, so that it is pickled by value
    def refused(state: bytes) -> Never:
        raise NotImplementedError(
            "writeStream.format('lakevilla') needs PySpark 4.1 or newer: use "
            "writeStream.foreachBatch(lake.foreach_batch(...))"
        )

    return refused
