"""A user's SELECT, which sees only the tables that it names.

Two barriers protect all else, each sufficient by itself. First the statement is parsed, and refused
if it is no SELECT or names a relation or table function that it was not given. Then it runs in a
database with locked settings, whose access to files and network is closed except for the files of
those tables, under names that can't be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from lakevilla.engines.base import EXPLAIN
from lakevilla.engines.duckdb.failures import translated
from lakevilla.engines.duckdb.reading.closed import (
    ClosedDatabases,
    ClosedSession,
    Parts,
    refuse_twins,
)
from lakevilla.engines.duckdb.reading.constants import with_lists
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.dml import is_of_constants
from lakevilla.sql.statements.select import named_parameters, select_of, table_path


def query(
    closed: ClosedDatabases,
    sql: str,
    tables: Mapping[str, Files],
    views: Mapping[str, pa.RecordBatchReader],
    params: Mapping[str, object],
    *,
    plans_by_footers: bool,
) -> pa.Table:
    """Run one SELECT; ``tables`` and ``views`` are named as ``Select.tables`` names them.

    With EXPLAIN in front, it returns its plan, as DuckDB writes it.
    ``plans_by_footers``: footers are read before a query of one table too, for its plan.
    """
    if is_of_constants(sql):  # it names nothing, so there is nothing to refuse
        with translated(None), closed.session(shared=True) as session:
            return session.run(sql, {})
    explain = EXPLAIN if sql.startswith(EXPLAIN) else ""
    sql, params = with_lists(sql.removeprefix(EXPLAIN), params)
    select = select_of(sql, params)
    unknown = sorted(select.tables - tables.keys() - views.keys())
    if unknown:
        raise InvalidOperation(
            f"sql names {', '.join(unknown)}, which is no table of the lake and no view given; "
            "register the table or pass the frame in views"
        )
    text = named_parameters(sql, params)
    with opened(closed, text, select.references, tables, views, plans_by_footers) as session:
        return session.run(explain + text, params)


@contextmanager
def opened(
    closed: ClosedDatabases,
    text: str,
    references: frozenset[Parts],
    tables: Mapping[str, Files],
    views: Mapping[str, pa.RecordBatchReader],
    plans_by_footers: bool,
) -> Iterator[ClosedSession]:
    """Return a session that shows the relations that a query names, with all other
    access closed.
    """
    spelled: dict[str, set[Parts]] = {}
    for parts in references:
        spelled.setdefault(table_path(parts), set()).add(parts)
    refuse_twins(spelled)
    admission = closed.admission_of(text, references)
    within, above = admission.within, admission.loses_nulls
    with translated(None), closed.session(shared=within is not None) as session:
        session.attach({parts[0].lower() for parts in references if len(parts) == 3})
        session.hide((within or frozenset()) - {path.lower() for path in tables})
        for path in spelled.keys() & views.keys():
            session.show_rows(path, views[path], spelled[path], above=above)
        # Without statistics, the planner assumes a thousand rows for every file, and a join of some
        # tables may take for ever; of a table and its deleted rows, it takes the table for the
        # smaller side. Any other single remote table needs no footer that it does not read.
        for path in spelled.keys() & (tables.keys() - views.keys()):
            joined = len(tables) > 1 or tables[path].deleted.are_joined
            planned = plans_by_footers or joined
            session.show(path, tables[path], spelled[path], planned=planned, above=above)
        yield session
