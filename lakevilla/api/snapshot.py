"""Snapshots: all tables of a lake at one global version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa

from lakevilla.errors import InvalidOperation

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
    format: Literal["delta"]
    version: int | None
    snapshot_id: int | None = None


class Snapshot:
    """The lake as it was when first looked at; a context manager or a plain object."""

    def __init__(self, lake: Lake, txn: Transaction) -> None:
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
    def versions(self) -> dict[str, TableVersion]:
        """Per table, the log version that shows the same state to any other reader."""
        state = self._txn.state_of_lake()
        if state is None:
            return {}
        names = {location: name for name, location in state.names.items()}
        found = {}
        for location, table in sorted(state.tables.items()):
            if not table.dropped:
                name = names.get(location, location)
                view = self._txn.look(name)
                found[name] = TableVersion(self._lake.uri_of(location), "delta", view.log_version)
        return found

    def read(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        *,
        params: Mapping[str, object] | None = None,
    ) -> pa.Table:
        """Rows of a table at this version."""
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
        return self._txn.scan(table, columns, where, params=params)

    def sql(
        self,
        query: str,
        params: Mapping[str, object] | None = None,
        *,
        views: Mapping[str, object] | None = None,
    ) -> pa.Table:
        """One SELECT over all tables at this version."""
        rows = self._txn.sql(query, params, views=views)
        if not isinstance(rows, pa.Table):
            raise InvalidOperation("a snapshot runs one SELECT: it writes nothing")
        return rows
