"""Classes of a writer that Spark pickles: without logic of their own, as those of a reader."""

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
    """Return the writer of a frame; it gets a plan."""
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    work = importer(_WORK)

    class Writer(DataSourceArrowWriter):
        """A writer whose tasks write files, which one process commits."""

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
    """Return the writer of a stream; it gets a plan, which the tasks of a batch report."""
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
    except ImportError:
        return _no_stream_writer()  # PySpark 4.0

    work = importer(_WORK)

    class StreamWriter(DataSourceStreamArrowWriter):
        """A ``Writer`` for each batch; Spark makes another one to commit it."""

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
    def refused(state: bytes) -> Never:  # pickled by its value, as the classes are
        raise NotImplementedError(
            "writeStream.format('lakevilla') needs PySpark 4.1 or newer: use "
            "writeStream.foreachBatch(lake.foreach_batch(...))"
        )

    return refused
