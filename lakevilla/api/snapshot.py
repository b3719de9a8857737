"""Snapshots: all tables of a lake at one global version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self

import pyarrow as pa

from lakevilla.api.frame import Frame
from lakevilla.api.history import moment
from lakevilla.errors import InvalidOperation, LakeVillaError, VersionNotFound
from lakevilla.formats.base import FormatName
from lakevilla.results import OperationResult

if TYPE_CHECKING:
    from lakevilla.api.lake import Lake
    from lakevilla.api.transaction import Transaction

__all__ = ["Snapshot", "TableVersion"]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A table's version in a snapshot, for use with any other reader.

    ``version`` is None where no log version equals the state.
    """

    uri: str
    format: FormatName
    version: int | None
    snapshot_id: int | None = None


class Snapshot(Generic[Frame]):
    """The lake at one global version; a context manager or a plain object.

    Without a version or time it is the lake as it was when first looked at, with what
    other clients have committed by then. At a given version that is part of it only once
    it has a place in the lake's order.
    """

    def __init__(self, lake: Lake[Frame], txn: Transaction[Frame]) -> None:
        self._lake = lake
        self._txn = txn

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._txn.abort()

    @property
    def version(self) -> int:
        """The lake's global version; 0 before its first commit."""
        state = self._txn.state_of_lake()
        return 0 if state is None else state.sequence

    @property
    def timestamp(self) -> datetime | None:
        """When that version was made (aware, in UTC); None where no commit tells."""
        state = self._txn.state_of_lake()
        if state is None or not state.commits:
            return None
        return moment(state.commits[-1].timestamp_ms)

    @property
    def versions(self) -> dict[str, TableVersion]:
        """Per table, the log version that shows the same state to any other reader.

        Without those that can't be opened, or are not kept so far back: to read one tells why.
        """
        return {
            name: TableVersion(
                self._lake.uri_of(view.location),
                view.snapshot.format,
                view.log_version,
                view.snapshot_id,
            )
            for name, view in self._lake.views(self._txn).items()
        }

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
        """Rows of a table at this version."""
        with self._kept():
            return self._txn.read(table, columns, where, params=params)

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.RecordBatchReader:
        """As ``read``, streamed."""
        with self._kept():
            rows = self._txn.scan(table, columns, where, params=params)
        return pa.RecordBatchReader.from_batches(rows.schema, self._streamed(rows))

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> Frame:
        """One SELECT over all tables at this version."""
        with self._kept():
            rows = self._txn.sql(query, params, views=views)
        if isinstance(rows, OperationResult):
            raise InvalidOperation("a snapshot runs one SELECT: it writes nothing")
        return rows

    def changes(
        self,
        table: str,
        since: int,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        params: Mapping[str, object] | None = None,
    ) -> Frame:
        """Rows changed after global version ``since``, up to this one; see ``Transaction``."""
        return self._txn.changes(table, since, columns=columns, where=where, params=params)

    def _streamed(self, rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._kept():
            yield from rows

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """A past state whose files were vacuumed is a version that is not there any more."""
        try:
            yield
        except VersionNotFound:
            raise
        except (LakeVillaError, OSError) as error:
            # An engine tells of a missing file in its own ways; a mistake in a query names none.
            if self._txn.is_past and "file" in str(error):
                self._txn.refuse_missing_files()
            raise
