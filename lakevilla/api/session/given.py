"""What a statement is run with beside its text: parameters, views, and tables as they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic

from lakevilla.api.execution.queries import PastRows
from lakevilla.api.frame import Frame
from lakevilla.api.session.host import Host
from lakevilla.api.snapshot import Snapshot
from lakevilla.errors import InvalidOperation
from lakevilla.settings import is_unicode, shown
from lakevilla.sql.statements.dml import DeleteStatement, UpdateStatement
from lakevilla.sql.statements.merging import looks_elsewhere
from lakevilla.sql.statements.script.parsing import OfRows, Parsed
from lakevilla.sql.statements.script.past import PastTable
from lakevilla.sql.statements.script.refs import Marked, State, state_of
from lakevilla.sql.statements.script.used import used_in
from lakevilla.sql.statements.select import Dialect

__all__ = ["Given", "script_text"]


def script_text(value: object) -> str:
    """A text of statements, without the mark that some editors put before it.

    Raises
    ------
    InvalidOperation
    """
    if not isinstance(value, str):
        raise InvalidOperation(f"a text of statements must be text, not {shown(value)}")
    if not is_unicode(value):
        raise InvalidOperation("the text has half of a surrogate pair: take it out")
    return str.__str__(value).removeprefix("\ufeff")


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

    def state(self, at: State | Marked) -> State:
        """The state that a statement names, by itself or by a parameter."""
        if not isinstance(at, Marked):
            return at
        if at.name not in self.params:
            raise InvalidOperation(f"parameter :{at.name} has no value; give it in params")
        return state_of(at, self.params[at.name])

    def _rows(self, past: PastTable) -> object:
        at = self.state(past.at)
        if past.own:
            version, moment = (None, at) if isinstance(at, datetime) else (at, None)
            assert not isinstance(version, str), "no table has a ref of the lake's"
            executor = self.lake.table(past.table)._reading_at(version, moment)
        else:
            # All tables of one state are of one moment.
            if at not in self._snapshots:
                self._snapshots[at] = self._snapshot(at)
            executor = self._snapshots[at]._executor
        if self.dialect == "duckdb":
            return PastRows(executor, past.table)
        return executor.read(past.table, None, None, None)

    def _snapshot(self, at: State) -> Snapshot[Frame]:
        if isinstance(at, datetime):
            return self.lake.snapshot(timestamp=at)
        return (
            self.lake.snapshot(version=at) if isinstance(at, int) else self.lake.on(at).snapshot()
        )
