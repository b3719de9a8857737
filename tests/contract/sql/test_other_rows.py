"""UPDATE and DELETE that read other rows have DuckDB's result, and are redone as merges are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

import lakevilla as lv

SETUP = """
    CREATE TABLE t (id BIGINT, k VARCHAR, v BIGINT, f DOUBLE);
    CREATE TABLE s (k VARCHAR, w BIGINT);
    INSERT INTO t VALUES (1, 'a', 10, 1.5), (2, 'b', 20, NULL), (3, NULL, 30, 2.5),
        (4, 'a', NULL, 3.5), (4, 'a', NULL, 3.5);
    INSERT INTO s VALUES ('a', 1), ('c', 3), (NULL, 5)
"""


def lake_with_tables() -> lv.Lake:
    lake = lv.connect("memory://")
    lake.session().sql(SETUP)
    return lake


def rows_of(lake: lv.Lake, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in lake.read(table).to_pylist()), key=repr)


STATEMENTS = [
    "DELETE FROM t WHERE k IN (SELECT k FROM s)",
    "DELETE FROM t WHERE k IN (SELECT k FROM s) OR id = 2",
    "DELETE FROM t WHERE NOT k IN (SELECT k FROM s)",
    "DELETE FROM t WHERE k NOT IN (SELECT k FROM s)",
    "DELETE FROM t WHERE k NOT IN (SELECT k FROM s WHERE k IS NOT NULL)",
    "DELETE FROM t WHERE k NOT IN (SELECT k FROM s WHERE false)",
    "DELETE FROM t WHERE lower(k) IN (SELECT k FROM s) AND id BETWEEN 2 AND 4 AND f > 1",
    "DELETE FROM t WHERE (k, v) IN (SELECT k, 10 FROM s)",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k)",
    "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.k = t.k AND s.w < t.id)",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM s)",
    "DELETE FROM t WHERE v > (SELECT avg(v) FROM t)",
    "DELETE FROM t WHERE id IN (SELECT id FROM s WHERE w = 1)",  # id means t.id
    "DELETE FROM t WHERE id IN (SELECT max(id) FROM t GROUP BY k HAVING count(*) > 1)",
    "DELETE FROM t WHERE v = ANY (SELECT w * 10 FROM s)",
    "DELETE FROM t WHERE v > ALL (SELECT w * 10 FROM s WHERE w < 2)",
    "DELETE FROM t WHERE CASE WHEN k IN (SELECT k FROM s) THEN id > 1 ELSE v = 20 END",
    "DELETE FROM t USING s WHERE t.k = s.k",
    "DELETE FROM t AS x USING s WHERE x.k = s.k AND s.w < x.id",
    "DELETE FROM t USING s AS a, s AS b WHERE t.k = a.k AND a.w <= b.w",
    "DELETE FROM t USING (SELECT k FROM s WHERE w > 2) AS q WHERE t.k IS DISTINCT FROM q.k",
    "UPDATE t SET v = (SELECT sum(w) FROM s WHERE s.k = t.k)",
    "UPDATE t SET v = (SELECT max(w) FROM s)",
    "UPDATE t SET v = v + (SELECT max(w) FROM s) WHERE id IN (SELECT w FROM s)",
    "UPDATE t SET v = 1 WHERE k IN (SELECT k FROM s) AND f BETWEEN 1 AND 3 AND id < 9",
    "UPDATE t SET f = (SELECT avg(w) FROM s), v = v + 1 WHERE f IS DISTINCT FROM 2.5",
    "UPDATE t SET k = NULL, v = -v WHERE EXISTS (FROM s WHERE s.w = t.id)",
    "UPDATE t SET v = s.w FROM s WHERE t.k = s.k",
    "UPDATE t AS x SET v = s.w + x.v, f = 0 FROM s WHERE x.k = s.k AND x.id > 1",
    "UPDATE t SET v = q.most FROM (SELECT k, max(w) AS most FROM s GROUP BY k) AS q "
    "WHERE q.k IS NOT DISTINCT FROM t.k",
    "UPDATE t SET v = a.w + b.w FROM s AS a JOIN s AS b ON a.k = b.k WHERE t.k = a.k",
    "UPDATE t SET v = s.w FROM s WHERE t.k = s.k AND t.id > (SELECT min(id) FROM t)",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_updates_and_deletes_that_read_other_rows_have_the_result_of_duckdb(statement: str) -> None:
    lake, oracle = lake_with_tables(), duckdb.connect()
    oracle.execute(SETUP)
    lake.session().sql(statement)
    oracle.execute(statement)
    assert rows_of(lake) == sorted(oracle.sql("FROM t").fetchall(), key=repr)


@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO one USING one ON one.id = one.id WHEN MATCHED THEN DELETE",
        "MERGE INTO one USING (SELECT 2 AS id) AS ONE ON one.id = one.id WHEN MATCHED THEN DELETE",
        "MERGE INTO one AS a USING two AS a ON a.id = a.id WHEN MATCHED THEN DELETE",
        "UPDATE one SET id = 9 FROM one WHERE one.id = 2",
        "UPDATE one SET id = 9 FROM (SELECT 2 AS id) AS one WHERE one.id = one.id",
        "UPDATE one AS a SET id = 9 FROM two AS A WHERE a.id = 2",
        "DELETE FROM one USING two AS one WHERE one.id = one.id",
    ],
)
def test_a_table_and_its_source_may_not_have_the_same_name(text: str) -> None:
    lake = lv.connect("memory://")
    with lake.session() as session:
        session.sql("CREATE TABLE one (id BIGINT); CREATE TABLE two (id BIGINT)")
        session.sql("INSERT INTO one VALUES (1), (2); INSERT INTO two VALUES (2)")
        with pytest.raises(lv.InvalidOperation, match=r"both called|duplicate alias"):
            session.sql(text)
        assert {row["id"] for row in lake.sql("FROM one").to_pylist()} == {1, 2}


def test_two_source_rows_for_one_row_are_an_error_as_in_a_merge() -> None:
    lake = lake_with_tables()
    lake.session().sql("INSERT INTO s VALUES ('a', 2)")
    for source in ("s", "s AS s JOIN (SELECT 1 AS one) AS o ON o.one > 0"):
        with pytest.raises(lv.InvalidOperation, match="two source rows of the merge match one"):
            lake.session().sql(f"UPDATE t SET v = s.w FROM {source} WHERE t.k = s.k")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE k IN (SELECT k FROM s)",
        "DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.k = t.k)",
        "DELETE FROM t USING s WHERE t.k = s.k",
    ],
)
def test_a_delete_that_reads_other_rows_is_redone_on_rows_committed_meanwhile(
    statement: str,
) -> None:
    lake = lake_with_tables()
    session = lake.session()
    session.sql("BEGIN")
    session.sql(statement)
    other = lake.session()
    other.sql("INSERT INTO t VALUES (7, 'a', 1, 1.0), (8, 'new', 1, 1.0)")
    other.sql("INSERT INTO s VALUES ('new', 1); DELETE FROM s WHERE k = 'a'")
    session.sql("COMMIT")
    assert [row[0] for row in rows_of(lake)] == [1, 2, 3, 4, 4, 7]


def test_parameters_and_views_can_be_used_in_all_parts_of_an_update() -> None:
    lake = lake_with_tables()
    views = {"more": [{"k": "a", "n": 5}]}
    done = lake.session().sql(
        "UPDATE t SET v = (SELECT max(n) FROM more) + :plus, f = :f WHERE k IN (SELECT k FROM more "
        "WHERE n > :n) AND id < :id",
        {"plus": 1, "f": 0.5, "n": 4, "id": 4},
        views,
    )
    assert done.rows_updated == 1
    assert rows_of(lake)[0] == (1, "a", 6, 0.5)
    with pytest.raises(lv.InvalidOperation, match="views work only with"):
        lake.run(lambda txn: txn.sql("DELETE FROM t WHERE id = 1", views=views))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM t WHERE k IN (SELECT no_such FROM s)", "no_such"),
        ("DELETE FROM t WHERE k IN (SELECT k FROM no_such)", "no_such"),
        ("UPDATE t SET v = (SELECT w FROM s)", "return a single row; correct the statement"),
        ("UPDATE t SET v = random() FROM s AS a, s AS b", "random"),
        (
            "DELETE FROM t WHERE k IN (SELECT k FROM read_csv('x'))",
            "read_csv is no table of the lake",
        ),
        ("UPDATE t SET v = s.w FROM s WHERE k = 'a'", "could be any of"),
    ],
)
def test_ambiguous_or_invalid_updates_and_deletes_are_refused(statement: str, message: str) -> None:
    lake = lake_with_tables()
    before = rows_of(lake)
    with pytest.raises(lv.LakeVillaError, match=message):
        lake.session().sql(statement)
    assert rows_of(lake) == before


def test_a_correlated_condition_distinguishes_rows_by_all_columns_that_it_names() -> None:
    """The condition names two columns; some rows are equal in only one of them."""
    lake = lake_with_tables()
    lake.session().sql(
        "DELETE FROM t WHERE v IS NULL AND f > (SELECT min(f) FROM t AS o WHERE o.k = t.k)"
    )
    assert [row[0] for row in rows_of(lake)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("type_", "written", "stored"),
    [
        ("DOUBLE", "1.5", 1.5),
        ("FLOAT", "0.1", pytest.approx(0.1)),
        ("BIGINT", "NULL", None),
        ("VARCHAR[]", "NULL", None),
        ("DECIMAL(10,2)", "1.5", "1.50"),
        ("DATE", "'2024-02-29'", "2024-02-29"),
        ("TIMESTAMP", "'2024-02-29 12:00:00'", "2024-02-29 12:00:00+00:00"),
        ("TIMESTAMP", "'2024-02-29 12:00:00+02:00'", "2024-02-29 10:00:00+00:00"),
        ("TIMESTAMP", "TIMESTAMP '2024-02-29 12:00:00'", "2024-02-29 12:00:00+00:00"),
        ("TIMESTAMP_NTZ", "'2024-02-29 12:00:00'", "2024-02-29 12:00:00"),
        ("TIMESTAMP", "DATE '2024-02-29'", "2024-02-29 00:00:00+00:00"),
    ],
)
def test_constants_are_converted_to_the_type_of_their_column(
    type_: str, written: str, stored: Any
) -> None:
    lake = lv.connect("memory://")
    session = lake.session()
    session.sql(f"CREATE TABLE t (a {type_}); INSERT INTO t VALUES ({written})")
    (row,) = lake.read("t").to_pylist()
    as_it_is: Callable[[Any], Any] = str if isinstance(stored, str) else lambda value: value
    assert as_it_is(row["a"]) == stored


def test_text_that_is_no_date_is_refused_for_a_date_column() -> None:
    session = lv.connect("memory://").session()
    session.sql("CREATE TABLE t (a DATE)")
    with pytest.raises(lv.InvalidOperation, match="is not: write it as"):
        session.sql("INSERT INTO t VALUES ('leap day')")


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("st.a NOT IN (SELECT w FROM s)", {1, 3, 4}),
        ("EXISTS (SELECT 1 FROM s WHERE s.w = t.st.a)", {2, 3, 4}),
        ("st IS NULL AND EXISTS (SELECT 1 FROM s)", {1, 2, 4}),
        ("st.b IS NULL AND id > (SELECT min(w) FROM s)", {1, 2}),
    ],
)
def test_rows_are_distinguished_by_the_fields_of_their_structs(
    condition: str, left: set[int]
) -> None:
    lake = lv.connect("memory://")
    session = lake.session()
    session.sql("CREATE TABLE t (id BIGINT, st STRUCT<a: INT, b: STRING>)")
    session.sql("CREATE TABLE s (w BIGINT); INSERT INTO s VALUES (1), (7)")
    found = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None, {"a": None, "b": None}]
    rows = [{"id": number, "st": st} for number, st in enumerate(found, 1)]
    lake.run(lambda txn: txn.append("t", rows))
    session.sql(f"DELETE FROM t WHERE {condition}")
    assert {row["id"] for row in lake.read("t").to_pylist()} == left


LISTS = (
    "SELECT * FROM (VALUES (1, [1, 2], MAP {'a': 1, 'b': 2}), (2, [1, NULL], MAP {'b': 2, 'a': 1}),"
    " (3, [], MAP {}), (4, NULL, NULL), (5, [2, 1], MAP {'a': NULL})) AS r(id, l, m)"
)


@pytest.mark.parametrize(
    "condition",
    [
        "len(l) > (SELECT 1)",
        "l IN (SELECT [1, NULL])",
        "l IS NULL AND EXISTS (SELECT 1)",
        "list_sum(l) = (SELECT 1)",
        "cardinality(m) > (SELECT 1) AND id < 9",
        "map_keys(m)[1] = (SELECT 'b')",
    ],
)
def test_rows_are_distinguished_by_their_lists_and_maps(condition: str) -> None:
    session = lv.connect("memory://").session()
    session.sql("CREATE TABLE t (id INT, l INT[], m MAP(STRING, INT))")
    session.sql(f"INSERT INTO t {LISTS}")
    theirs = duckdb.connect()
    theirs.execute(f"CREATE TABLE t AS {LISTS}; DELETE FROM t WHERE {condition}")
    session.sql(f"DELETE FROM t WHERE {condition}")
    left = session.sql("SELECT id FROM t ORDER BY id").to_pylist()  # type: ignore[union-attr]
    expected = theirs.execute("SELECT id FROM t ORDER BY id").fetchall()
    assert [(row["id"],) for row in left] == expected
