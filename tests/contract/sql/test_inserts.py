"""INSERT by name, into partitions and with replaced rows; WITH before statements that write."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

import lakevilla as lv
from lakevilla.api.session import Session

SETUP = """
    CREATE TABLE t (id BIGINT, k VARCHAR, day DATE) {options};
    CREATE TABLE s (id BIGINT, k VARCHAR);
    INSERT INTO t VALUES (1, 'a', DATE '2024-02-28'), (2, 'b', DATE '2024-02-29'), (3, NULL, NULL);
    INSERT INTO s VALUES (2, 'x'), (9, 'y')
"""
ONE, TWO = "DATE '2024-02-28'", "DATE '2024-02-29'"


@pytest.fixture(params=["delta", "iceberg"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Session:
    lake = lv.connect(tmp_path)
    lake.session().sql(SETUP.format(options=f"USING {request.param} PARTITIONED BY (day)"))
    return lake.session()


def rows_of(session: Session) -> list[tuple[Any, ...]]:
    found = session.sql("FROM t").to_pylist()  # type: ignore[union-attr]
    return sorted((tuple(row.values()) for row in found), key=repr)


def oracle() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute(SETUP.format(options=""))
    return made


def rows_there(theirs: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return sorted(theirs.execute("FROM t").fetchall(), key=repr)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t BY NAME SELECT 'q' AS K, 7 AS id",
        "INSERT INTO t BY NAME SELECT * FROM s",
        "INSERT INTO t BY POSITION SELECT id, k, NULL FROM s",
        "WITH c AS (SELECT max(id) AS id FROM t) INSERT INTO t BY NAME SELECT id + 1 AS id FROM c",
        "WITH c AS (FROM s) INSERT INTO t (k, id) VALUES ((SELECT max(k) FROM c), 5)",
        "WITH c AS (FROM s), d AS (SELECT id FROM c) INSERT INTO t (id) "
        "WITH e AS (FROM d) SELECT id FROM e",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 4) "
        "DELETE FROM t WHERE id IN (SELECT n FROM c WHERE n > 2)",
        "WITH c AS MATERIALIZED (FROM s) DELETE FROM t WHERE id IN (SELECT id FROM c)",
        "WITH c AS (FROM s) DELETE FROM t WHERE id NOT IN (SELECT id FROM c) OR k = 'zz'",
        "WITH c AS (FROM s) DELETE FROM t USING c WHERE c.id = t.id",
        "WITH c AS (FROM s) UPDATE t SET k = c.k FROM c WHERE c.id = t.id",
        "WITH c AS (FROM s) UPDATE t SET k = (SELECT max(k) FROM c) WHERE k IS NULL",
        "WITH t2 AS (FROM t) UPDATE t SET id = id + (SELECT count(*) FROM t2)",
        "WITH c AS (FROM s) UPDATE t SET id = 0 WHERE id = 1",
        "WITH c AS (FROM s) INSERT INTO t (id) (SELECT id FROM c)",
        "WITH c AS (FROM s) MERGE INTO t USING c ON t.id = c.id WHEN MATCHED THEN UPDATE "
        "SET k = c.k WHEN NOT MATCHED THEN INSERT (id, k) VALUES (c.id, c.k)",
        "WITH c AS (FROM s) MERGE INTO t USING (SELECT id, k FROM c WHERE id > 5) AS n "
        "ON t.id = n.id WHEN NOT MATCHED THEN INSERT (id, k) VALUES (n.id, n.k)",
    ],
)
def test_inserts_by_name_and_statements_with_a_with_clause_do_what_duckdb_does(
    session: Session, text: str
) -> None:
    theirs = oracle()
    theirs.execute(text)
    session.sql(text)
    assert rows_of(session) == rows_there(theirs)


@pytest.mark.parametrize(
    ("text", "deleted", "query"),
    [
        ("OVERWRITE t VALUES (7, 'q', NULL)", "true", "SELECT 7 AS id, 'q' AS k"),
        ("OVERWRITE TABLE t BY NAME SELECT id, k FROM s", "true", "FROM s"),
        ("OVERWRITE t (k, id) SELECT k, id FROM s WHERE false", "true", "FROM s WHERE false"),
        (
            "OVERWRITE t SELECT id + 10, k, day FROM t WHERE id > 1",
            "true",
            "SELECT id + 10 AS id, k, day FROM t WHERE id > 1",
        ),
        (
            f"OVERWRITE t PARTITION (day = {TWO}) SELECT id, k FROM t",
            f"day = {TWO}",
            f"SELECT id, k, {TWO} AS day FROM t",
        ),
        (
            "OVERWRITE t PARTITION (day = NULL) VALUES (4, 'n')",
            "day IS NULL",
            "SELECT 4 AS id, 'n' AS k",
        ),
        (
            f"OVERWRITE t PARTITION (day = {ONE}) BY NAME SELECT 5 AS id",
            f"day = {ONE}",
            f"SELECT 5 AS id, {ONE} AS day",
        ),
        (
            f"OVERWRITE t PARTITION (day) SELECT id, k, {TWO} FROM s",
            f"day = {TWO}",
            f"SELECT id, k, {TWO} AS day FROM s",
        ),
        ("OVERWRITE t PARTITION (day) SELECT id, k, NULL FROM s", "day IS NULL", "FROM s"),
        (
            "OVERWRITE t PARTITION (day) SELECT id, k, NULL FROM s LIMIT 0",
            "false",
            "FROM s LIMIT 0",
        ),
        (
            "INTO t REPLACE WHERE id > 1 SELECT id + 5, k, NULL FROM t",
            "id > 1",
            "SELECT id + 5 AS id, k FROM t",
        ),
        (
            f"INTO t BY NAME REPLACE WHERE day = {ONE} SELECT 4 AS id, {ONE} AS day",
            f"day = {ONE}",
            f"SELECT 4 AS id, {ONE} AS day",
        ),
        (
            f"INTO TABLE t PARTITION (day = {ONE}) SELECT id, k FROM s",
            "false",
            f"SELECT id, k, {ONE} AS day FROM s",
        ),
        (
            f"INTO t PARTITION (k) SELECT id, {ONE}, 'last' FROM s",
            "false",
            f"SELECT id, 'last' AS k, {ONE} AS day FROM s",
        ),
    ],
)
def test_an_insert_that_replaces_rows_deletes_them_and_adds_those_of_its_query(
    session: Session, text: str, deleted: str, query: str
) -> None:
    theirs = oracle()
    theirs.execute(f"CREATE TABLE n AS {query}; DELETE FROM t WHERE {deleted}")
    theirs.execute("INSERT INTO t BY NAME FROM n")
    session.sql(f"INSERT {text}")
    assert rows_of(session) == rows_there(theirs)


def test_parameters_can_be_used_in_all_parts_of_an_insert(session: Session) -> None:
    day = date(2024, 2, 28)
    session.sql(
        "INSERT INTO t REPLACE WHERE day = :day SELECT id + :n, k, :day FROM s",
        {"day": day, "n": 1},
    )
    session.sql("INSERT OVERWRITE t PARTITION (day = :d) SELECT :n, NULL", {"d": None, "n": 4})
    assert rows_of(session) == [
        (10, "y", day),
        (2, "b", date(2024, 2, 29)),
        (3, "x", day),
        (4, None, None),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO t BY NAME SELECT 1 AS nope", "has no column 'nope'"),
        ("INSERT INTO t BY NAME SELECT 1 AS id, 2 AS ID", "has no column 'ID_1'"),
        ("INSERT INTO t BY NAME (id) SELECT 1", "the query names them"),
        ("INSERT INTO t REPLACE WHERE id = 8 SELECT 9, 'y', NULL", "does not hold for row"),
        ("INSERT INTO t REPLACE USING (id) SELECT 9, 'y', NULL", "INSERT INTO t REPLACE WHERE"),
        ("INSERT OVERWRITE t PARTITION (id) SELECT 'y', NULL, 9", "which are day"),
        ("INSERT OVERWRITE t PARTITION (no = 1) SELECT 'y', NULL, 9", "has no column 'no'"),
        ("INSERT OVERWRITE t PARTITION (id = 1, day) SELECT 'y', NULL", "or none of them"),
        ("INSERT OVERWRITE t PARTITION (id = 1) (id, k) SELECT 1, 'y'", "name it once"),
        ("INSERT OVERWRITE t PARTITION (id = 1) IF NOT EXISTS SELECT 1", "in the same transaction"),
        ("INSERT OVERWRITE DIRECTORY 'x' SELECT 1", "lake.export"),
        ("INSERT OVERWRITE t SELECT 1, 2", "names 3 columns and its query returns 2"),
        ("WITH T AS (FROM s) DELETE FROM t WHERE id IN (SELECT id FROM t)", "call the query"),
        ("WITH c AS (FROM read_csv('x')) DELETE FROM t", "read_csv is no table of the lake"),
        ("WITH c AS (FROM s) DROP TABLE t", "cannot be read"),
    ],
)
def test_invalid_inserts_are_refused_and_change_nothing(
    session: Session, text: str, message: str
) -> None:
    before = rows_of(session)
    with pytest.raises(lv.InvalidOperation) as caught:
        session.sql(text)
    assert message in str(caught.value)
    assert rows_of(session) == before


def test_rows_read_by_an_overwrite_are_validated_at_the_commit(session: Session) -> None:
    session.sql("BEGIN; INSERT OVERWRITE t BY NAME SELECT id, k FROM s")
    assert rows_of(session) == [(2, "x", None), (9, "y", None)]
    session._lake.session().sql("INSERT INTO s VALUES (10, 'z')")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    session.sql("INSERT OVERWRITE t BY NAME SELECT id, k FROM s")
    assert len(rows_of(session)) == 3


def test_parameters_can_name_versions_timestamps_and_branches(session: Session) -> None:
    session.sql("INSERT INTO s VALUES (10, 'z')")
    query = "SELECT count(*) AS n FROM s VERSION AS OF :v"
    assert session.sql(query, {"v": 0}).to_pylist() == [{"n": 2}]  # type: ignore[union-attr]
    with pytest.raises(lv.InvalidOperation, match=":v stands for a version, which is a whole"):
        session.sql(query, {"v": "1"})
    now = session._lake.table("s").versions()[0].timestamp
    for text, value in (
        ("s TIMESTAMP AS OF :at", now),
        ("s AT (TIMESTAMP => :at)", now.isoformat()),
        ("s AT (VERSION => :at)", 2),
        ("s AT (BRANCH => :at)", "etl"),
    ):
        if value == "etl":
            session.sql("CREATE BRANCH etl AT (VERSION => :v)", {"v": 2})
        found = session.sql(f"SELECT count(*) AS n FROM {text}", {"at": value})
        assert found.to_pylist() == [{"n": 3}]  # type: ignore[union-attr]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_values_in_structs_and_lists_are_converted_to_the_types_of_their_columns(
    format: str,
) -> None:
    session = lv.connect("memory://").session()
    session.sql(
        "CREATE TABLE n (k BIGINT, g STRUCT(q BIGINT, h STRUCT(d DATE, z TIMESTAMP)), l DOUBLE[]) "
        f"USING {format}"
    )
    session.sql(
        "INSERT INTO n VALUES (1, {'q': NULL, 'h': NULL}, [1.5, NULL]), (2, NULL, NULL), "
        "(3, {'q': 4, 'h': {'d': '2024-02-29', 'z': NULL}}, [])"
    )
    session.sql(
        "INSERT INTO n SELECT k + 10, {'q': 5, 'h': {'d': NULL, 'z': NULL}}, [NULL] FROM n "
        "WHERE k = 1"
    )
    found: Any = session.sql("SELECT g, l FROM n ORDER BY k")
    assert found.to_pylist() == [
        {"g": {"q": None, "h": None}, "l": [1.5, None]},
        {"g": None, "l": None},
        {"g": {"q": 4, "h": {"d": date(2024, 2, 29), "z": None}}, "l": []},
        {"g": {"q": 5, "h": {"d": None, "z": None}}, "l": [None]},
    ]
    with pytest.raises(lv.InvalidOperation, match=r"'g.q' .* int64 and the data string"):
        session.sql("INSERT INTO n (g) VALUES ({'q': 'x', 'h': NULL})")


BYTES = [
    "INSERT INTO b VALUES (1, X'61'), (2, x'')",
    "INSERT INTO b SELECT 3, X'00ff'",
    "UPDATE b SET v = X'62' WHERE v = X'61'",
    "UPDATE b SET v = (SELECT X'63') WHERE id = 3",
    "MERGE INTO b USING (SELECT 4 AS id, X'64' AS v) s ON b.id = s.id "
    "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.v)",
    "DELETE FROM b WHERE v = X''",
]


def test_hex_literals_are_bytes_in_every_statement(session: Session) -> None:
    session.sql("CREATE TABLE b (id INT, v BINARY)")
    for statement in BYTES:
        session.sql(statement)
    found = session.sql("SELECT id, v, v = X'62' AS same FROM b ORDER BY id")
    expected = [(1, b"b", True), (3, b"c", False), (4, b"d", False)]
    assert [tuple(row.values()) for row in found.to_pylist()] == expected  # type: ignore[union-attr]
    with pytest.raises(lv.InvalidOperation, match="X'616' is not an even number of hex digits"):
        session.sql("SELECT X'616' AS v")


def test_a_merge_without_column_names_inserts_values_in_the_tables_order(session: Session) -> None:
    merge = (
        "MERGE INTO t USING (SELECT id + 10 AS id, k FROM s) AS n ON t.id = n.id "
        "WHEN NOT MATCHED THEN INSERT VALUES ({})"
    )
    session.sql(merge.format(f"n.id, n.k, {ONE}"))
    theirs = oracle()
    theirs.execute(merge.format(f"n.id, n.k, {ONE}"))
    assert rows_of(session) == rows_there(theirs)
    with pytest.raises(lv.InvalidOperation, match="gives 2 values, and table t has 3 columns"):
        session.sql(merge.format("n.id, n.k"))
