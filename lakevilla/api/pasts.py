"""Tables in other states than a statement's own, and their changes, as views of the statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Generic

from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.queries import PastRows
from lakevilla.api.execution.views import expanded, is_view, may_have_views
from lakevilla.api.frame import Frame
from lakevilla.api.history import own_version
from lakevilla.api.refs import client_on
from lakevilla.api.run import begin_transaction
from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.control import used_in
from lakevilla.sql.statements.script.refs import (
    ChangedRows,
    Marked,
    Mention,
    PastTable,
    State,
    state_of,
)
from lakevilla.sql.statements.select import quoted, select_of

__all__ = ["Pasts", "without_marked"]


class Pasts(Generic[Frame]):
    """The other states that the statements of one call name; each is read from one snapshot.

    Parameters
    ----------
    client : LakeClient
        Of the lake, or the branch, that the statements read.
    executor : type of Executor
    params : Mapping
        The values of ``:name`` in the statements.
    """

    def __init__(
        self, client: LakeClient, executor: type[Executor[Frame]], params: Mapping[str, object]
    ) -> None:
        self._client, self._executor, self._params = client, executor, params
        self._at: dict[State, Executor[Frame]] = {}

    def views(self, mentions: Iterable[Mention], now: Executor[Frame]) -> dict[str, object]:
        """Return the rows of the mentions by their views' names; ``now``: the statement's state."""
        return {one.view: self._rows(one, now) for one in mentions}

    def state(self, at: State | Marked) -> State:
        """Return the state that a statement names, directly or by a parameter."""
        if not isinstance(at, Marked):
            return at
        if at.name not in self._params:
            raise InvalidOperation(f"parameter :{at.name} has no value; give it in params")
        return state_of(at, self._params[at.name])

    def _rows(self, one: Mention, now: Executor[Frame]) -> object:
        if isinstance(one, ChangedRows):
            return self._changes(one, now)
        executor = self._reading(one)
        if not one.own and may_have_views(executor) and is_view(executor, one.table):
            text = f"SELECT * FROM {quoted(one.table.replace('.', '/'), executor.dialect)}"
            query = select_of(text, None, executor.dialect)
            return executor.select(expanded(executor, query, ()), {}, {})
        if executor.dialect == "duckdb":
            return PastRows(executor, one.table)
        return executor.read(one.table, None, None, None)

    def _changes(self, one: ChangedRows, now: Executor[Frame]) -> Frame:
        first = self.state(one.first)
        assert isinstance(first, int), "parsed so"
        if first < 1:
            raise InvalidOperation(
                f"table_changes('{one.table}', {first}): the lake's versions begin with 1"
            )
        executor = now if one.last is None else self._bound(self.state(one.last))
        return executor.changes(one.table, first - 1, None, None, None)

    def _reading(self, past: PastTable) -> Executor[Frame]:
        at = self.state(past.at)
        if not past.own:
            return self._bound(at)
        version, instant = (None, at) if isinstance(at, datetime) else (at, None)
        own = own_version(past.table, version, instant, None)
        executor = begin_transaction(self._client, self._executor, read_only=True)
        if own is not None:
            executor.bind_to_own(own)
        return executor

    def _bound(self, at: State) -> Executor[Frame]:
        if at not in self._at:
            client = client_on(self._client, at) if isinstance(at, str) else self._client
            executor = begin_transaction(client, self._executor, read_only=True)
            if isinstance(at, datetime):
                executor.bind_to(None, at)
            elif isinstance(at, int):
                executor.bind_to(at, None)
            self._at[at] = executor
        return self._at[at]


def without_marked(
    text: str, mentions: Iterable[Mention], params: Mapping[str, object], dialect: str
) -> dict[str, object]:
    """Return the parameters without those that only name states; ``text`` has these no more."""
    marked = {at.name for one in mentions for at in one.states if isinstance(at, Marked)}
    left = used_in(text, marked, "spark" if dialect == "spark" else "duckdb")
    return {name: value for name, value in params.items() if name not in marked - left}
