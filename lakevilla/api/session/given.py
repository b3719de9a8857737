"""What a statement is run with beside its text: parameters, views, and tables as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic

from lakevilla.api.frame import Frame
from lakevilla.api.session.host import Host
from lakevilla.api.snapshot import Snapshot
from lakevilla.engines.sql.dml import DeleteStatement, UpdateStatement
from lakevilla.engines.sql.merging import looks_elsewhere
from lakevilla.engines.sql.script.parsing import OfRows, Parsed
from lakevilla.engines.sql.script.past import PastTable
from lakevilla.engines.sql.script.refs import State
from lakevilla.engines.sql.script.used import used_in
from lakevilla.engines.sql.select import Dialect

__all__ = ["Given"]


@dataclass(frozen=True, slots=True)
class Given(Generic[Frame]):
    """What the caller of ``sql`` has given, and the lake on which statements are run."""

    lake: Host[Frame]
    params: Mapping[str, object]
    views: Mapping[str, object]
    dialect: Dialect
    settings: Mapping[str, object]
    _snapshots: dict[State, Snapshot[Frame]] = field(default_factory=dict)

    def params_of(self, text: str) -> dict[str, object]:
        """Those that a statement uses."""
        used = used_in(text, self.params, self.dialect)
        return {name: value for name, value in self.params.items() if name in used}

    def views_of(self, statement: Parsed) -> dict[str, object] | None:
        """Those that a statement can use, and what its past tables were."""
        node, found = statement.node, dict(self.views)
        if isinstance(node, OfRows) and isinstance(
            node.statement, UpdateStatement | DeleteStatement
        ):
            found = found if looks_elsewhere(node.statement, self.dialect) else {}
        found.update({past.view: self._rows(past) for past in statement.pasts})
        return found or None

    def _rows(self, past: PastTable) -> Frame:
        if past.own:
            table = self.lake.table(past.table)
            if isinstance(past.at, datetime):
                return table.read(timestamp=past.at)
            assert isinstance(past.at, int)
            return table.read(version=past.at)
        # All tables of one state are of one moment.
        if past.at not in self._snapshots:
            self._snapshots[past.at] = self._snapshot(past.at)
        return self._snapshots[past.at].read(past.table)

    def _snapshot(self, at: State) -> Snapshot[Frame]:
        if isinstance(at, datetime):
            return self.lake.snapshot(timestamp=at)
        return (
            self.lake.snapshot(version=at) if isinstance(at, int) else self.lake.on(at).snapshot()
        )
