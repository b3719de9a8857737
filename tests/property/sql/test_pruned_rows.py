"""Leave out files by a condition: none of them has a row that a query or a change would find.

The tables have many small files, each with few values of a column, so nearly every condition leaves
some files out.
"""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakevilla as lv
from lakevilla.errors import InvalidOperation
from tests.property.sql.conditions import ROWS, Conditions, table

_KEYS = ("i", "b", "y", "f", "d", "m", "w", "s", "r", "t", "z", "n", "o")
#: Conditions by which files can be left out.
_LEAVING = (
    *("id < 20", "id BETWEEN 5 AND 40", "id IN (1, 30, 59)", "i > 0", "b IS NULL", "y = 127"),
    *("m >= 1.5", "s = 'a'", "s LIKE 'a%'", "s > 'b'", "r IN ('a', ' ')", "d < 0.5", "f >= 0"),
    *("t = DATE '2024-02-29'", "z < TIMESTAMPTZ '2000-01-01 00:00:00+00'", "o", "NOT o"),
    *("n IS NOT NULL", "year(t) = 2024", "w = 1 OR w IS NULL", "CAST(z AS DATE) > '2024-01-01'"),
    *("g.q = 1", "g IS NULL", "l[1] = 1", "p['a'] = 1"),
)
#: Conditions that the engine computes.
_LEFT = (
    *("CAST(m AS INTEGER) IN (2, 10)", "f + 1 < 1.3", "reverse(s) > 'a'", "coalesce(f, i) < 7"),
    *("regexp_replace(s, 'a', 'b') = 'b'", "CAST(m AS BIGINT) >= 0", "reverse(r) = r"),
)


def _lake(random: Random, name: str, format: str) -> tuple[lv.Lake, pa.Table]:
    lake = lv.connect(f"memory://pruned/{name}")
    rows = table(random)
    partitions = random.choice(([], [], ["z"], ["t"], ["m"], ["y", "o"]))
    lake.create_table("t", rows.schema, partition_by=partitions, format=format)
    by = random.choice(("id", "i", "d", "m", "s", "t", "z"))
    ordered = rows.sort_by(by)
    size = random.choice((9, 20))
    with lake.transaction() as txn:
        for start in range(0, ROWS, size):
            txn.append("t", ordered.slice(start, size))
    return lake, rows


def _oracle(**tables: pa.Table) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB without LakeVilla, with the same rows."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for name, given in tables.items():
        database.register("given", given)
        database.execute(f"CREATE TABLE {name} AS FROM given")
    return database


#: What follows FROM, and the names of its tables there.
_JOINED = (
    ("t JOIN u USING (id)", "tu"),
    ("t LEFT JOIN u ON t.i = u.i", "tu"),
    ("u LEFT OUTER JOIN t ON t.id = u.id AND t.o", "tu"),
    ("t AS x, u AS y", "xy"),
    ("t RIGHT JOIN u ON t.y = u.y", "tu"),
    ("t FULL JOIN u ON t.id = u.id", "tu"),
    ("t AS x JOIN t AS y ON x.id = y.id + 1", "xy"),
    ("u AS x LEFT JOIN t AS y ON x.id = y.id JOIN u AS z ON z.id = y.id", "xyz"),
    ("t SEMI JOIN u ON t.i = u.i", "t"),
    ("t ANTI JOIN u ON t.b = u.b", "t"),
)

#: Conditions on one of them, or on a name that both may have.
_OF_ONE = (
    *("{}.id < 20", "{}.m >= 1.5", "{}.s = 'a'", "{}.b IS NULL", "{}.o", "{}.g.q = 1", "m > 1"),
    *("{}.id NOT IN (1, 2, 30)", "coalesce({}.i, 7) = 7", "{}.f > 0", "id < 9"),
)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(60))
def test_a_query_finds_all_rows_though_files_are_left_out(seed: int, format: str) -> None:
    random = Random(seed)
    lake, rows = _lake(random, f"query/{format}/{seed}", format)
    others = table(random).sort_by("m")
    lake.create_table("u", others.schema)
    with lake.transaction() as txn:
        for start in range(0, ROWS, 9):
            txn.append("u", others.slice(start, 9))
    database = _oracle(t=rows, u=others)
    drawn = Conditions(random)
    done = 0
    for _ in range(14):
        done += _found_alike(lake, database, _query(random, drawn))
    assert done > 4


def _query(random: Random, drawn: Conditions) -> str:
    if random.random() < 0.5:
        terms = [random.choice((*_LEAVING, *_LEFT, drawn.condition(1))) for _ in range(2)]
        if random.random() < 0.2:
            terms.append("id < (SELECT max(id) - 20 FROM t)")
        where = " AND ".join(f"({term})" for term in terms)
        shown = random.choice(("id, s", "count(*)", "id AS i, i AS id", "max(id) OVER () AS m"))
        return f"SELECT {shown} FROM t WHERE {where}"
    source, called = random.choice(_JOINED)
    terms = []
    for _ in range(random.choice((1, 2, 3))):
        terms.append(random.choice(_OF_ONE).format(random.choice(called)))
    return f"SELECT count(*), sum({called[0]}.id) FROM {source} WHERE {' AND '.join(terms)}"


def _found_alike(lake: lv.Lake, database: duckdb.DuckDBPyConnection, text: str) -> bool:
    try:
        wanted = database.execute(text).fetchall()
    except duckdb.Error:
        return False
    with lake.transaction() as txn:
        found = [tuple(row.values()) for row in txn.sql(text).to_pylist()]
        txn.abort()
    assert sorted(found, key=repr) == sorted(wanted, key=repr), text
    return True


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(40))
def test_a_condition_that_the_engine_computes_in_part_finds_all_rows(
    seed: int, format: str
) -> None:
    random = Random(seed)
    lake, _ = _lake(random, f"{format}/{seed}", format)
    session = lake.session()
    drawn = Conditions(random)
    done = 0
    for _ in range(6):
        terms = [random.choice(_LEAVING), random.choice((*_LEFT, drawn.condition(1)))]
        if random.random() < 0.4:
            terms.append(f"({random.choice((*_LEAVING, drawn.condition(1)))})")
        random.shuffle(terms)
        done += _as_shown(session, " AND ".join(f"({term})" for term in terms), random)
    assert done


def _as_shown(session: Any, where: str, random: Random) -> bool:
    session.sql("BEGIN")
    try:
        shown = _ids(session.sql(f"SELECT id FROM t WHERE {where}"))
        if random.random() < 0.5:
            session.sql(f"DELETE FROM t WHERE {where}")
            changed = set(range(ROWS)) - _ids(session.sql("SELECT id FROM t"))
        else:
            value = random.choice(("id + 1000", "id + 1000 + CAST(0.4::DOUBLE AS BIGINT)"))
            session.sql(f"UPDATE t SET id = {value} WHERE {where}")
            changed = {n - 1000 for n in _ids(session.sql("SELECT id FROM t WHERE id >= 1000"))}
    except InvalidOperation:
        return False
    finally:
        session.sql("ROLLBACK")
    assert changed == shown, where
    return True


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(40))
def test_a_merge_finds_all_rows_by_the_values_of_its_source(seed: int, format: str) -> None:
    random = Random(seed)
    lake, rows = _lake(random, f"merge/{format}/{seed}", format)
    session = lake.session()
    database = _oracle(t=rows)
    for _ in range(6):
        keys = random.sample(_KEYS, random.choice((1, 1, 2)))
        chosen = random.sample(range(ROWS), random.choice((0, 1, 2, 40)))
        source = _distinct(rows.select(keys).take(pa.array(chosen, pa.int64())))
        database.register("sample_of", source)
        database.execute("CREATE OR REPLACE TABLE s AS FROM sample_of")
        terms = [f"t.{key} {random.choice(('=', '<=>'))} s.{key}" for key in keys]
        if random.random() < 0.5:
            terms.append(random.choice(("t.id < 20", "t.s = 'a'", "t.b IS NULL", "t.o")))
        on = " AND ".join(terms)
        theirs = on.replace("<=>", "IS NOT DISTINCT FROM")
        matched = database.execute(f"SELECT id FROM t WHERE EXISTS (FROM s WHERE {theirs})")
        expected = set(range(ROWS)) - {row[0] for row in matched.fetchall()}
        with lake.transaction() as txn:
            merge = txn.merge("t", source, on, source_alias="s", target_alias="t")
            merge.when_matched_delete().execute()
            found = _ids(txn.sql("SELECT id FROM t"))
            txn.abort()
        assert found == expected, on
    session.close()


def _distinct(rows: pa.Table) -> pa.Table:
    """Return rows of different keys; -0.0 and 0.0 are one key."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            plain = pc.add(rows.column(at), pa.scalar(0.0, field.type))
            rows = rows.set_column(at, field, plain)
    return rows.group_by(rows.schema.names).aggregate([])


def _ids(found: Any) -> set[int]:
    return {row["id"] for row in found.to_pylist()}
