"""The classes that PySpark loads, and their registration in a session."""

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
# Classes of the data source that Spark pickles: they contain no logic of their own.
#
# They are pickled by their value, as classes within functions are, and so are the lakes that they
# know: storage options travel with the class, never as options of a reader, which Spark shows in
# plans. The classes hold bytes. Only a process with LakeVilla knows the meaning of the bytes, and a
# process without it says so.


if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


def data_source(lakes: bytes) -> type[DataSource]:
    """Return the class to be registered; ``lakes`` are pickled ways to lakes (``access_to``)."""
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType

    work = importer("lakevilla.api.spark.source.work")
    writing = importer("lakevilla.api.spark.source.writing.work")
    reader_class, stream_reader_class = _reader_class(), _stream_reader_class()
    written, streamed = writer_class(), stream_writer_class()

    class LakeVillaSource(DataSource):
        """A source that is bound to a state of the lake when Spark requests its columns.

        Spark starts a Python process to request them, and another one to plan the read, and the
        import of LakeVilla takes longer than either. So the first process plans too, if that takes
        little time.
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
            # The plan is not kept: this source is part of what is sent to tasks.
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
        """A reader of a state of a table; ``kind`` says whether it reads rows or changes.

        ``parts``: the parts that the tasks read, if they are known already.
        """

        def __init__(
            self, kind: str, state: bytes, takes_filters: bool, parts: list[bytes] | None = None
        ) -> None:
            self.kind, self.state, self.takes_filters = kind, state, takes_filters
            self.parts = parts

        def __getstate__(self) -> dict[str, Any]:
            return {**self.__dict__, "parts": None}  # a task is sent its own part

        @property
        def pushFilters(self) -> Any:
            """A method that takes filters where the session pushes them.

            Where the session does not, Spark refuses a reader that could take them. The returned
            method passes for Spark's own method, which takes none: then it is never called.
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
            # Where there are no parts, Spark passes None; from 4.2 on, a part whose value is None.
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

        Spark 4.0 and 4.1 request an offset without the begin of the batch. The batch begins where
        the last one ended: as it was planned here, or as a restart reports first, by
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
        """The same where Spark passes the begin of a batch, and its largest size (from 4.2)."""

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

__all__ = ["offer", "register_data_source"]

_LOG = logging.getLogger("lakevilla")
#: The name of a session in this process: two Python objects may stand for one session of Spark.
_NAME = "spark.lakevilla.session"
_LOCK = threading.Lock()
#: The lakes of each session, and their last registration.
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
        It is not a session, was stopped, is older than Spark 4.0, or does not accept a data
        source.

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
    - ``partitions``: the files are cut for about so many tasks at a time; a task has 4 MiB of
      files, or 128, or something between. By default the number that the session ran at a time when
      the lake was connected; 32 where that may change or is not known.
    - ``pushdown``: ``true`` takes the filters of a query too, if the session has
      ``spark.sql.python.filterPushdown.enabled``. Spark 4 mixes up the filters of several
      uses of one DataFrame, so there it is only for one that is used in one place; in
      Spark 5, which does not, it is the default.
    - ``"filesOutside"``: directories elsewhere, with commas between them, from which files are
      read that the table's log names there; see ``files_outside`` of ``connect``.
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
            f"the data source is refused: {first_line(error)}; without it, "
            "lakevilla.connect(root, spark=spark) reads by transactions"
        ) from error


def offer(spark: SparkSession, access: Access) -> None:
    """Add a lake to those of the session; if that takes no data source, all else goes on."""
    try:
        _register(spark, access)
    except Exception as error:
        _LOG.warning(
            "spark.read.format('lakevilla') is not available in this session: %s", first_line(error)
        )


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
