"""The data source's classes that PySpark loads, and their registration in a session."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lakevilla.api.spark.source.tables import Access
from lakevilla.api.spark.source.writing.classes import stream_writer_class, writer_class
from lakevilla.clock import SystemClock
from lakevilla.engines.spark.rows import first_line
from lakevilla.engines.spark.session import check_session, importer
from lakevilla.errors import InvalidOperation
from lakevilla.ids import Ids

# -------------------- classes
#
# Classes of the data source that Spark pickles. They contain no logic.
#
# They are pickled by value, as classes within functions are, and so are the lakes that they know:
# storage options are pickled with the class, never passed as options of a reader, which Spark shows
# in plans. The classes have only bytes as state. Only a process with LakeVilla can unpickle these;
# a process without it raises an error that says so.


if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


def data_source(lakes: bytes) -> type[DataSource]:
    """Return the class to be registered; ``lakes``: a pickled mapping of roots to ``Access``."""
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    work = importer("lakevilla.api.spark.source.work")
    writing = importer("lakevilla.api.spark.source.writing.work")
    reader_class, stream_reader_class = _reader_class(), _stream_reader_class()
    written, streamed = writer_class(), stream_writer_class()

    class LakeVillaSource(DataSource):
        """A data source that is bound to a state of the lake when Spark requests its columns.

        Spark starts a Python process to request the columns, and another one to plan the read, and
        in each the import of LakeVilla takes longer than the work. So the first process also plans
        the read, if that takes little time.
        """

        state: bytes | None = None
        planned: tuple[str, Any] | None = None

        @classmethod
        def name(cls) -> str:
            return "lakevilla"

        def schema(self) -> StructType:
            found: StructType = work().schema(self._bound())
            planned = work().ahead(self._bound(), found)
            self.planned = None if planned is None else (found.json(), planned)
            return found

        def reader(self, schema: StructType) -> DataSourceReader:
            # Drop the plan, because Spark pickles this source for the tasks.
            planned, self.planned = self.planned, None
            if planned is not None and planned[0] == schema.json():
                return reader_class(*planned[1])
            return reader_class(*work().reader(self._bound(), schema))

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return stream_reader_class(work().stream(lakes, dict(self.options), schema))

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            options = dict(self.options)
            return written(writing().plan(lakes, options, schema, overwrite=overwrite))

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            options = dict(self.options)
            begun = writing().plan(lakes, options, schema, overwrite=overwrite, streaming=True)
            return streamed(begun)

        def _bound(self) -> bytes:
            if self.state is None:
                self.state = work().bound(lakes, dict(self.options))
            return self.state

    return LakeVillaSource


def _reader_class() -> Callable[..., DataSourceReader]:
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    work = importer("lakevilla.api.spark.source.work")

    class Reader(DataSourceReader):
        """A reader of a table or of a lake's versions; ``kind`` is ``rows``, ``changes`` or
        ``versions``.

        ``parts``: the parts that the tasks read, if they are already planned.
        """

        def __init__(
            self, kind: str, state: bytes, takes_filters: bool, parts: list[bytes] | None = None
        ) -> None:
            self.kind, self.state, self.takes_filters = kind, state, takes_filters
            self.parts = parts

        def __getstate__(self) -> dict[str, Any]:
            return {**self.__dict__, "parts": None}  # Spark sends each task its own part

        @property
        def pushFilters(self) -> Any:
            """A method that takes filters, if the session pushes filters.

            If the session does not push filters, Spark refuses a reader whose class overrides
            ``pushFilters``. The returned method looks like Spark's own, so Spark accepts it, and
            does not call it.
            """

            def push(filters: list[Any]) -> list[Any]:
                if not self.takes_filters:
                    return filters
                self.state, left = work().push(self.kind, self.state, filters)
                self.parts = None
                return left  # type: ignore[no-any-return]

            push.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]
            return push

        def partitions(self) -> list[InputPartition]:
            if self.parts is None:
                self.parts = work().partitions(self.kind, self.state)
            return [InputPartition(one) for one in self.parts]

        def read(self, partition: InputPartition | None) -> Iterator[Any]:
            # Without any part Spark passes None, and from 4.2 on a part whose value is None.
            if partition is None or partition.value is None:
                return iter(())
            return work().rows(  # type: ignore[no-any-return]
                self.kind, self.state, partition.value
            )

    return Reader


def _stream_reader_class() -> Callable[[bytes], DataSourceStreamReader]:
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

    work = importer("lakevilla.api.spark.source.work")

    class StreamReader(DataSourceStreamReader):
        """A reader of a table's changes, or of a lake's versions, from offset to offset.

        Spark 4.0 and 4.1 request a batch's end without passing its beginning. So the reader keeps
        the end of the last batch, which it has planned, or, after a restart, has got in
        ``partitions``.
        """

        def __init__(self, state: bytes) -> None:
            self.state = state
            self.at: dict[str, int | str] | None = None

        def initialOffset(self) -> dict[str, int | str]:
            return work().first_offset(self.state)  # type: ignore[no-any-return]

        def latestOffset(self) -> dict[str, int | str]:
            start = self.initialOffset() if self.at is None else self.at
            found: dict[str, int | str] = work().next_offset(self.state, start)
            self.at = found
            return found

        def partitions(
            self, start: dict[str, int | str], end: dict[str, int | str]
        ) -> list[InputPartition]:
            self.at = end
            return [InputPartition(one) for one in work().ranges(self.state, start, end)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            return work().rows(  # type: ignore[no-any-return]
                "changes", self.state, partition.value
            )

    try:
        from pyspark.sql.streaming import datasource as streaming  # type: ignore[attr-defined]
    except ImportError:
        return StreamReader
    return _limited(StreamReader, streaming, work)  # type: ignore[no-any-return]


def _limited(reader: Any, streaming: Any, work: Callable[[], Any]) -> Any:
    class LimitedReader(reader, streaming.SupportsTriggerAvailableNow):  # type: ignore[misc]
        """A ``StreamReader`` for Spark from 4.2 on, which passes a batch's beginning and limits."""

        until: int | None = None

        def getDefaultReadLimit(self) -> Any:
            files, size = work().limits(self.state)
            if files is not None:
                return streaming.ReadMaxFiles(files)
            return streaming.ReadAllAvailable() if size is None else streaming.ReadMaxBytes(size)

        def prepareForTriggerAvailableNow(self) -> None:
            self.until = work().newest_version(self.state)

        def latestOffset(self, start: dict[str, int | str], limit: Any) -> dict[str, int | str]:
            limited = not isinstance(limit, streaming.ReadAllAvailable)
            found: dict[str, int | str] = work().next_offset(
                self.state, start, until=self.until, limited=limited
            )
            return found

    return LimitedReader


# -------------------- register
#
# Registration of the data source in a session, with the lakes that it was connected to.


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lakes_of", "offer", "register_data_source"]

_LOG = logging.getLogger("lakevilla")
#: The setting with a session's id: several Python objects may stand for one session of Spark.
_NAME = "spark.lakevilla.session"
_LOCK = threading.Lock()
#: The lakes of each session, by its id and by their roots.
_LAKES: dict[str, dict[str, Access]] = {}
_REGISTERED: dict[str, bytes] = {}


def register_data_source(spark: SparkSession) -> None:
    """Register ``spark.read.format("lakevilla")`` with a session, classic or Connect.

    ``lakevilla.connect(root, spark=spark)`` does this too, and passes on the lake's
    ``storage_options``: they travel with the data source, and no plan or option shows them. For
    a lake that the session was not connected to, the driver and the workers use the credentials
    of their machines. Credentials of a ``boto3_session`` are those at the time of ``connect``:
    connect again after they have expired.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.

    Raises
    ------
    InvalidOperation
        The object is no session; or the session was stopped, is older than Spark 4.0, or does not
        accept a data source.

    Notes
    -----
    The Python of the driver and of the workers needs ``lakevilla``. If it is missing, the error
    names the interpreter.

    Options of ``spark.read.format("lakevilla").load("sales/orders")``:

    - ``lake``: the root; ``table``: instead of ``load``'s argument.
    - ``version`` (global) or ``timestamp`` (ISO, with its zone). A DataFrame is bound to the
      lake's state when ``load`` is called, and stays so.
    - ``columns``: names with commas between them. Spark requests all columns of a Python data
      source, so it is worth while to name those that are needed.
    - ``where``: a predicate in LakeVilla's language, by which files are left out.
    - ``partitions``: the number of tasks that run at a time, for which the files are divided; a
      task has 4 to 128 MiB of files. By default the number of tasks that the session ran at a time
      when the lake was connected; 32 if that number may change or is not known.
    - ``pushdown``: ``true`` takes the filters of a query too, if the session has
      ``spark.sql.python.filterPushdown.enabled``. Spark 4 mixes up the filters of several uses of
      one DataFrame: there, set it only for a DataFrame that is used in one place. Spark 5 does not
      mix them up; there ``true`` is the default.
    - ``"filesOutside"``: directories elsewhere, with commas between them. Files there may be read
      if the table's log names them; see ``files_outside`` of ``connect``.
    - ``startingVersion``: the table's changes from that global version on, instead of its rows.

    ``spark.readStream`` takes ``lake``, ``table``, ``columns``, ``where``, ``partitions`` and
    ``startingVersion``; the options maxFilesPerTrigger and maxBytesPerTrigger limit its batches.

    ``df.write.format("lakevilla").mode("append").save("sales/orders")`` is one transaction, with
    ``overwrite`` too; ``stream.writeStream.format("lakevilla")`` is one for each batch, and needs
    the option queryId. ``docs/spark.md`` has all options.

    Examples
    --------
    >>> lv.register_data_source(spark)
    >>> frame = spark.read.format("lakevilla").option("lake", lake.root).load("stock")
    >>> frame.count()
    1
    """
    check_session(spark)
    try:
        _register(spark, None)
    except Exception as error:
        raise InvalidOperation(
            f"Spark refuses the data source: {first_line(error)}; without it, "
            "lakevilla.connect(root, spark=spark) reads by transactions"
        ) from error


def offer(spark: SparkSession, access: Access) -> None:
    """Register a lake with the session; if the session takes no data source, only log a warning."""
    try:
        _register(spark, access)
    except Exception as error:
        _LOG.warning(
            "spark.read.format('lakevilla') is not available in this session: %s", first_line(error)
        )


def lakes_of(spark: SparkSession) -> dict[str, Access]:
    """Return the lakes that a session was connected to, by their roots."""
    with _LOCK:
        return dict(_LAKES.get(spark.conf.get(_NAME, None) or "", {}))


def _register(spark: SparkSession, access: Access | None) -> None:
    with _LOCK:
        name = spark.conf.get(_NAME, None)
        if not name:
            name = Ids(SystemClock()).nonce()
            spark.conf.set(_NAME, name)
        lakes = _LAKES.setdefault(name, {})
        if access is not None:
            lakes[access.place.root] = access
        pickled = pickle.dumps(lakes)
        if _REGISTERED.get(name) != pickled:
            spark.dataSource.register(data_source(pickled))
            _REGISTERED[name] = pickled
