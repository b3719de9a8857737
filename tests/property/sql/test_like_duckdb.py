"""Run random scripts statement by statement: a lake and DuckDB get the same rows.

After each statement the session sees the same as DuckDB's transaction, and all other clients see
the committed state. ``python -m pytest tests/property/sql -k seed`` repeats one script: its number
is in the name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import duckdb
import pytest

import lakevilla as lv
from lakevilla.api.session import Session
from tests.property.sql.statements import Writer

#: The number of scripts, each of a dozen statements or more.
SCRIPTS = 600
_OPTIONS = ("", "", " PARTITIONED BY (k)", " USING iceberg")


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_a_script_has_the_same_effect_as_in_duckdb(seed: int) -> None:
    random = Random(seed)
    lake, oracle = lv.connect(f"memory://scripts/{seed}"), duckdb.connect()
    session, outside = lake.session(), oracle.cursor()
    writer = Writer(random)
    done: list[str] = []

    def both(text: str, of_lake: str | None = None) -> None:
        done.append(text)
        ours, theirs = _changed(session, of_lake or text), _rows_changed(oracle.execute(text), text)
        assert ours == theirs or text.startswith(("MERGE", "CREATE")), "\n".join(done)

    for _ in range(random.randint(1, 3)):
        both(*writer.create(random.choice(_OPTIONS)))
        both(writer.insert())
    is_open = False
    for _ in range(random.randint(8, 16)):
        turn = random.random()
        if turn < 0.2:
            both(random.choice(("COMMIT", "COMMIT", "ROLLBACK")) if is_open else "BEGIN")
            is_open = not is_open
        elif turn < 0.25 and not is_open:
            both(*writer.create(random.choice(_OPTIONS)))
        elif turn < 0.3 and not is_open:
            both(writer.create_or_replace())
        elif turn < 0.4:
            text = writer.query()
            done.append(text)
            _same(session.sql(text), oracle.execute(text), done)
        else:
            both(writer.statement())
        for table in writer.tables:
            _same(session.sql(f"FROM {table}"), oracle.execute(f"FROM {table}"), done)
            _same(lake.sql(f"FROM {table}"), outside.execute(f"FROM {table}"), done)
    session.close()


def _changed(session: Session, text: str) -> int:
    found = session.sql(text)
    if not isinstance(found, lv.OperationResult):
        return 0
    return found.rows_inserted + found.rows_updated + found.rows_deleted


def _rows_changed(found: duckdb.DuckDBPyConnection, text: str) -> int:
    if not re.match("INSERT|UPDATE|DELETE|MERGE|WITH c", text):
        return 0
    ((count,),) = found.fetchall()
    return int(count)


def _shown(row: Iterable[Any]) -> str:
    """Return a row for comparison; DuckDB keeps 0.0 where an UPDATE sets the equal -0.0."""
    return repr([value + 0.0 if isinstance(value, float) else value for value in row])


def _same(ours: Any, theirs: duckdb.DuckDBPyConnection, done: list[str]) -> None:
    rows = Counter(_shown(row.values()) for row in ours.to_pylist())
    wanted = Counter(map(_shown, theirs.fetchall()))
    assert rows == wanted, "\n".join(done)


def test_random_statements_are_of_all_kinds_and_change_rows() -> None:
    """Otherwise equal results would show little."""
    writer = Writer(Random(7))
    for _ in range(3):
        writer.create()
    kinds = Counter(writer.statement().split()[0] for _ in range(400))
    assert min(kinds[kind] for kind in ("INSERT", "UPDATE", "DELETE", "MERGE", "WITH")) > 30
