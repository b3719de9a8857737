"""The questions of an agent: tables, rows, history, and what differs between states."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from lakevilla.api.client.discovering import refuse_places
from lakevilla.api.lake import Lake
from lakevilla.api.session.performing import tell
from lakevilla.api.session.planning import Given
from lakevilla.api.snapshot import once
from lakevilla.engines.statistics import limited
from lakevilla.errors import InvalidOperation, RefNotFound
from lakevilla.formats.views import VIEW_PROPERTY, ViewDefinition
from lakevilla.global_log.refs import MAIN
from lakevilla.results import HistoryEntry
from lakevilla.serve.agents.answers import Answer, rows_of
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.statements import reading
from lakevilla.sql.statements.script.cutting import ScriptStatement
from lakevilla.sql.statements.script.parsing import Parsed, named_tables
from lakevilla.sql.statements.script.showing import Describe

#: So many statements of a reader run at once, so many run or wait, and others are refused.
_AT_ONCE = 2
_IN_LINE = 8
#: An answer has so many commits, if not told otherwise, and at most so many.
COMMITS = 20
_MOST_COMMITS = 200
_DIFFERING = ["table", "change", "rows_added", "rows_removed", "schema_changed"]
_VERSION = re.compile(r"v?(\d{1,18})")
_TABLES = """
    SELECT name, 'table' AS kind, format, rows, bytes FROM lakevilla_tables
    WHERE starts_with(name, :prefix)
    UNION ALL
    SELECT CASE table_schema WHEN 'main' THEN '' ELSE table_schema || '/' END || table_name,
           'view', NULL, NULL, NULL FROM information_schema.views
    WHERE starts_with(table_schema || '/' || table_name, :prefix)
       OR (table_schema = 'main' AND starts_with(table_name, :prefix))
    ORDER BY name LIMIT :most
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A state of the lake as an agent names it; ``version`` is None for a ref's newest."""

    name: str
    lake: Lake[Any]
    version: int | None = None


class Reader:
    """A lake that is only read, within limits.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line.
    limits : AgentLimits
        The limits of each call.

    Raises
    ------
    InvalidOperation
        The lake was opened with ``sql_uris``, by which SQL reads any place.
    """

    def __init__(self, lake: Lake[Any], limits: AgentLimits) -> None:
        if lake.settings.sql_uris:
            raise InvalidOperation(
                "this lake was opened with sql_uris, by which an agent's SQL would read any place: "
                "leave the option out"
            )
        self.lake, self.limits = lake, limits
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._line = threading.BoundedSemaphore(_IN_LINE)

    # -- tools -------------------------------------------------------------------

    def tables(self, prefix: str, ref: str) -> Answer:
        """Return the tables and views whose names begin with a text."""
        place = self.place(ref)
        params = {"prefix": prefix, "most": self.limits.rows + 1}
        with self._limited():
            found = place.lake.sql(_TABLES, params, version=place.version)
        return {"state": place.name, **rows_of(found, self.limits)}

    def describe(self, table: str, ref: str) -> Answer:
        """Return a table's columns, with what is said of them, and its format and comment."""
        place = self.place(ref)
        columns, found = self._rows_of(
            place, _describing(table, "columns"), _describing(table, "detail")
        )
        details = dict(zip(*(one.to_pylist() for one in found.columns), strict=True))
        if VIEW_PROPERTY in details:
            view = msgspec.json.decode(details[VIEW_PROPERTY], type=ViewDefinition)
            details = {"format": "view", "query": view.sql}
        return {
            "state": place.name,
            "table": table,
            **rows_of(columns, self.limits),
            "details": details,
        }

    def query(self, sql: str, ref: str) -> Answer:
        """Return the rows of one statement that only reads."""
        statement = reading(sql, self.limits.rows + 1)
        place = self.place(ref)
        (found,) = self._rows_of(place, statement)
        return {"state": place.name, **rows_of(found, self.limits)}

    def history(self, limit: int, until: int | None, ref: str) -> Answer:
        """Return commits, newest first."""
        if not 1 <= limit <= _MOST_COMMITS:
            raise InvalidOperation(f"limit is {limit}: give 1 to {_MOST_COMMITS}")
        place = self.place(ref)
        last = place.version if until is None else until
        found = place.lake.history(limit, until=last)
        return {"state": place.name, "commits": [_commit(one) for one in found]}

    def refs(self) -> Answer:
        """Return the branches, tags and clones."""
        found = [
            {
                "name": one.name,
                "kind": one.kind,
                "version": one.version,
                "base_version": one.base_version,
            }
            for one in self.lake.refs()
        ]
        answer: Answer = {"refs": found[: self.limits.rows]}
        if len(found) > self.limits.rows:
            answer["note"] = f"only {self.limits.rows} of {len(found)}: query lakevilla_refs"
        return answer

    def diff(self, old: str, new: str, table: str, keys: list[str]) -> Answer:
        """Return the tables that differ between two states, or rows that differ in one."""
        with self._limited():
            found = self.lake.diff(self._state(old), self._state(new))
            if not table:
                differing = found.tables.select(_DIFFERING)
                return {"old": old, "new": new, **rows_of(differing, self.limits)}
            is_named = table in found.tables["table"].to_pylist()
            name = table if is_named else table.replace(".", "/")
            rows = found.rows(name, keys or None, limit=self.limits.rows + 1)
        return {"old": old, "new": new, "table": table, **rows_of(rows, self.limits)}

    # -- parts -------------------------------------------------------------------

    def place(self, ref: str) -> Place:
        """Return the state that a name stands for.

        Raises
        ------
        RefNotFound, VersionNotFound, InvalidOperation
        """
        if ref in ("", MAIN):
            return Place(MAIN, self.lake)
        try:
            return Place(ref, self.lake.on(ref))
        except RefNotFound:
            found = _VERSION.fullmatch(ref)
            if found is None:
                raise
            return Place(f"v{found[1]}", self.lake, int(found[1]))

    def _state(self, name: str) -> int | str:
        place = self.place(name)
        return place.name if place.version is None else place.version

    def _rows_of(self, place: Place, *statements: Parsed) -> list[pa.Table]:
        """Return the rows of statements over one state."""
        for name in chain.from_iterable(map(named_tables, statements)):
            refuse_places(place.lake._client, name, ())
        given: Given[Any] = Given(place.lake, {}, {}, "duckdb", {})
        with self._limited(), once(place.lake.snapshot(place.version)) as state:
            return [tell(state, one, given) for one in statements]

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Return a block in which a statement has its turn, and runs within the limits."""
        if not self._line.acquire(blocking=False):
            raise InvalidOperation(f"{_IN_LINE} statements run or wait: send it again later")
        try:
            with self._turns, limited(self.limits.of_reading):
                yield
        finally:
            self._line.release()


def _describing(table: str, what: Any) -> Parsed:
    text = f"DESCRIBE {table}"
    return Parsed(Describe(table, what), text, 1, ScriptStatement(text, 1))


def _commit(entry: HistoryEntry) -> Answer:
    """Return a commit as an agent reads it: what is empty is left out."""
    found: Answer = {
        "version": entry.version,
        "time": entry.timestamp.isoformat(timespec="seconds"),
        "kind": entry.kind,
        "tables": list(entry.tables),
        "operations": {one.table: one.operation for one in entry.operations},
        "merged": entry.merged,
        "metadata": dict(entry.metadata),
    }
    return {name: one for name, one in found.items() if one not in (None, [], {})}
