"""Make the feed's versions from the steps of a walk; rows are read when they are accessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Generic

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.feed.walk import AT_ONCE, Chosen, Noted, RequestedColumns, Stretch, noted_of
from lakevilla.api.frame import Frame
from lakevilla.api.history import utc_datetime
from lakevilla.errors import LakeVillaError
from lakevilla.lake.operations.feed_rows import RequestedRows, Shapes, Step, TouchedTable
from lakevilla.results import Version


class ChangedTables(Mapping[str, Frame]):
    """The changed rows of a version, by table; each table's are read once, at the first access."""

    def __init__(self, readers: Mapping[str, Callable[[], Frame]]) -> None:
        self._readers = readers
        self._read: dict[str, Frame] = {}

    def __getitem__(self, name: str) -> Frame:
        found = self._read.get(name)
        if found is None:
            found = self._read[name] = self._readers[name]()
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __reduce__(self) -> tuple[type[dict[str, Frame]], tuple[dict[str, Frame]]]:
        """Pickle as a dict with the rows of all tables, for another process."""
        return dict, (dict(self),)

    def __repr__(self) -> str:
        """Return the names alone: printing a version reads no rows."""
        return f"<changes of {', '.join(self._readers) or 'no table'}>"


class Teller(Generic[Frame]):
    """A maker of the feed's versions from steps."""

    def __init__(
        self,
        client: LakeClient,
        executor: type[Executor[Frame]],
        chosen: Chosen,
        columns: RequestedColumns,
    ) -> None:
        self.client = client
        self.executor = executor
        self.chosen = chosen
        self.columns = columns
        self._shapes = Shapes()

    def versions(self, stretch: Stretch, *, net: bool = False) -> Iterator[Version[Frame]]:
        """Yield the versions of a stretch, oldest first.

        Raises
        ------
        VersionNotFound
            gc has deleted the history meanwhile.
        """
        steps = stretch.steps(self.chosen, self._shapes.changed, net=net)
        while some := list(islice(steps, AT_ONCE)):
            found = self.client.run(noted_of(self.client.context, some))
            for step, noted in zip(some, found, strict=True):
                if isinstance(noted, LakeVillaError):
                    raise noted
                yield self._version(stretch, step, Noted() if step.net else noted)

    def _version(self, stretch: Stretch, step: Step, noted: Noted) -> Version[Frame]:
        commit, names = step.commit, stretch.names
        tables = sorted(step.tables, key=lambda table: names[table.location])
        readers = {
            names[table.location]: self._reader(stretch, step, table)
            for table in tables
            if table.is_there
        }
        return Version(
            version=commit.sequence,
            since=step.since,
            timestamp=utc_datetime(commit.timestamp_ms),
            txn_id=None if step.net or commit.kind == "foreign" else commit.txn,
            kind="net" if step.net else commit.kind,
            metadata=noted.metadata,
            tables=ChangedTables(readers),
            entered=tuple(names[table.location] for table in tables if table.enters),
            left=tuple(names[table.location] for table in tables if table.leaves),
            uris={names[t.location]: self.client.uri_of(t.location) for t in tables},
            merged=noted.merged,
            members=() if step.net else commit.members,
        )

    def _reader(self, stretch: Stretch, step: Step, table: TouchedTable) -> Callable[[], Frame]:
        columns = self.columns.of(table.location)
        request = RequestedRows(stretch.timeline, self._shapes, step, table, columns)
        return lambda: self.executor.rows_changed(self.client, request)
