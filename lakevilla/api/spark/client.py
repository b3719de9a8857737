"""One process at one lake whose rows are the DataFrames of a Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from lakevilla.api.client.client import LakeClient
from lakevilla.clock import SystemClock
from lakevilla.engines.base import Engine, TableInput
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.engines.spark import SparkEngine
from lakevilla.engines.spark.native import NativeReader
from lakevilla.engines.spark.rows import is_frame
from lakevilla.engines.spark.session import STOPPED, is_stopped
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import paths_elsewhere
from lakevilla.ids import Ids
from lakevilla.lake.context import Event
from lakevilla.lake.frozen.mounts import known_places
from lakevilla.store.data_files import DataFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkClient", "SparkReader"]

#: The reader that a DataFrame of unchanged data uses.
SparkReader = Literal["auto", "native", "python"]

#: The session of the frame with which a stream has called this thread's function.
_BESIDE: ContextVar[SparkSession | None] = ContextVar("session", default=None)


class SparkClient(LakeClient):
    """A client that reads and writes rows by jobs of a Spark session.

    Attributes
    ----------
    native : NativeReader
        Reads tables by the session's own connectors.
    """

    def __init__(
        self,
        root: str,
        *args: Any,
        spark: SparkSession | None,
        workers: Callable[[], LakeAddress],
        reader: SparkReader,
        **options: Any,
    ) -> None:
        self._spark = spark
        self._workers = workers
        super().__init__(root, *args, **options)
        self.native = NativeReader(reader, workers, self._could_not_read)

    @property
    def spark(self) -> SparkSession:
        """The session from which frames come.

        Raises
        ------
        InvalidOperation
            The session was stopped, or the lake was unpickled and has no session.
        """
        session = _BESIDE.get() or self._spark
        if session is None:
            raise InvalidOperation(
                "this lake was unpickled, and a Spark session is never pickled with one: "
                "connect again with spark="
            )
        if is_stopped(session):
            raise InvalidOperation(STOPPED)
        return session

    @contextmanager
    def beside(self, frame: Any) -> Iterator[None]:
        """Enter a block in which new frames come from the session of ``frame``."""
        token = _BESIDE.set(frame.sparkSession if is_frame(frame) else None)
        try:
            yield
        finally:
            _BESIDE.reset(token)

    @property
    def engine(self) -> SparkEngine:
        """The engine, with its own type for type checkers."""
        engine = self.context.engine
        assert isinstance(engine, SparkEngine)
        return engine

    def _engine(self, embedded: DuckDBEngine) -> Engine:
        return SparkEngine(lambda: self.spark, self._address, embedded, Ids(SystemClock()))

    def admit_files(self, table: TableInput) -> None:
        """Refuse files that the lake may not read, before a session's connector reads them."""
        DataFiles(self.runner).admit(paths_elsewhere(table.files), table.layout.table)

    def _address(self) -> LakeAddress:
        return replace(self._workers(), elsewhere=known_places(self.context, self.reach))

    def _could_not_read(self, table: str, reason: str) -> None:
        message = (
            f"table {table} is read by LakeVilla's own reader, as Spark's connector could not: "
            f"{reason}"
        )
        self.notify(Event("reader", None, message, {"table": table, "reason": reason}))
