"""Statements change the rows that a SELECT with the same WHERE shows, even where the
library's expressions differ from DuckDB's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv

CREATE = """
    CREATE TABLE t (id BIGINT, d DOUBLE, m DECIMAL(5,2), f FLOAT, s STRING, day DATE, l BIGINT[]);
    INSERT INTO t VALUES
        (1, 9.99, 9.99, 0.1, 'a', DATE '2024-03-03', [1, 2]),
        (2, 2.5, 2.5, 0.2, NULL, DATE '2024-03-04', [3]),
        (3, 0.5, 0.5, NULL, 'b', NULL, NULL),
        (4, NULL, NULL, 1.5, 'éa', DATE '2024-03-09', [NULL, 4])
"""
CONDITIONS = [
    "CAST(d AS BIGINT) = 10",
    "CAST(m AS INTEGER) = 3",
    "d::INT = 2",
    "id = CAST(1.5 AS BIGINT)",
    "concat(s, 'x') = 'x'",
    "dayofweek(day) = 0",
    "weekday(day) = 6",
    "NOT isnan(d)",
    "l[1] = 3",
    "NOT array_contains(l, 5)",
    "f + 1 > 1.15 AND f * 3 < 0.7",
    "left(s, -1) = ''",
    "regexp_replace(s, 'a|b', 'x') = 'x'",
    "id = :n AND CAST(d AS BIGINT) = :rounded",
    "s IN (SELECT 'a') AND CAST(d AS BIGINT) = 10",
    "coalesce(f, id) < 3.5 AND CAST(m AS INT) IN (10, 3, 1)",
    "l[1] = 1 AND CAST(d AS BIGINT) = 10",
    "l[1] = CAST(d / 10 AS BIGINT)",
    "id > 2 AND (array_contains(l, 4) OR l IS NULL) AND reverse(coalesce(s, 'x')) <> 'z'",
]


def lake_with_table() -> lv.Lake:
    lake = lv.connect("memory://")
    lake.session().sql(CREATE)
    return lake


def ids(found: Any) -> list[int]:
    return sorted(row["id"] for row in found.to_pylist())


@pytest.mark.parametrize("where", CONDITIONS)
def test_delete_and_update_change_the_rows_that_a_select_shows(where: str) -> None:
    lake = lake_with_table()
    params = {"n": 1, "rounded": 10} if ":n" in where else None
    shown = ids(lake.sql(f"SELECT id FROM t WHERE {where}", params=params))
    assert shown, "a condition that finds nothing says nothing"
    with lake.transaction() as txn:
        assert txn.sql(f"UPDATE t SET s = 'hit' WHERE {where}", params=params).rows_updated
        assert ids(txn.sql("SELECT id FROM t WHERE s = 'hit'")) == shown
        txn.abort()
    lake.session().sql(f"DELETE FROM t WHERE {where}", params)
    assert not set(ids(lake.read("t"))) & set(shown)
    assert len(ids(lake.read("t"))) == 4 - len(shown)


def test_assignments_store_the_values_that_a_select_shows() -> None:
    lake = lake_with_table()
    values = "CAST(d * 10 AS BIGINT) AS id, concat(s, '!') AS s, DATE '2024-01-01' AS day"
    shown = lake.sql(f"SELECT {values} FROM t ORDER BY ALL").to_pylist()
    lake.session().sql(
        "UPDATE t SET id = CAST(d * 10 AS BIGINT), s = concat(s, '!'), day = '2024-01-01'"
    )
    assert lake.sql("SELECT id, s, day FROM t ORDER BY ALL").to_pylist() == shown


def test_a_condition_that_the_engine_computes_is_redone_after_a_conflict() -> None:
    lake = lake_with_table()
    with lake.transaction() as txn:
        txn.sql("DELETE FROM t WHERE CAST(d AS BIGINT) = 10")
        lake.session().sql("INSERT INTO t (id, d) VALUES (5, 10.4), (6, 10.6)")
    assert ids(lake.read("t")) == [2, 3, 4, 6]


@pytest.mark.parametrize(
    "statement",
    [
        "MERGE INTO t USING (SELECT 1 AS id, 9.99::DOUBLE AS x) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = CAST(s.x AS BIGINT)",
        "MERGE INTO t USING (SELECT 9 AS id) AS s ON CAST(t.d AS BIGINT) = s.id "
        "WHEN MATCHED THEN DELETE",
        "INSERT INTO t REPLACE WHERE CAST(d AS BIGINT) = 10 SELECT * FROM t",
    ],
)
def test_casts_that_would_differ_from_those_of_a_select_are_refused_with_a_rewrite(
    statement: str,
) -> None:
    lake = lake_with_table()
    with pytest.raises(lv.InvalidOperation, match=r"cast of double to long .* in a SELECT.*round"):
        lake.session().sql(statement)
    assert len(ids(lake.read("t"))) == 4


def test_a_cast_rewritten_as_proposed_is_accepted() -> None:
    lake = lake_with_table()
    lake.session().sql(
        "MERGE INTO t USING (SELECT 1 AS id, 9.99::DOUBLE AS x) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET id = CAST(round(s.x) AS BIGINT), s = concat(t.s, NULL)"
    )
    assert ids(lake.read("t")) == [2, 3, 4, 10]


def test_verbs_outside_of_sql_cast_as_the_expression_language_does() -> None:
    lake = lake_with_table()
    with lake.transaction() as txn:
        assert txn.delete("t", "cast(d as long) = 9").rows_deleted == 1
    assert ids(lake.read("t")) == [2, 3, 4]


def test_a_delete_by_exists_can_read_list_columns_of_another_table() -> None:
    lake = lake_with_table()
    with lake.session() as session:
        session.sql("CREATE TABLE u (id BIGINT, l BIGINT[]); INSERT INTO u VALUES (2, [7])")
        session.sql("DELETE FROM t WHERE EXISTS (SELECT x.l FROM u AS x WHERE x.id = t.id)")
    assert ids(lake.read("t")) == [1, 3, 4]


# ------------------------------------------------------------------ excluded files


def parts_of_two(root: Path, format: str = "delta") -> tuple[lv.Lake, list[Path]]:
    """Return a lake with a table of two partitions, and the files of partition 'b'."""
    lake = lv.connect(root)
    columns = pa.schema({"id": pa.int64(), "p": pa.string(), "d": pa.float64()})
    lake.create_table("t", columns, partition_by=["p"], format=format)
    session = lake.session()
    session.sql("INSERT INTO t VALUES (1, 'a', 9.99), (2, 'a', 1.1)")
    before = set(root.rglob("*.parquet"))
    session.sql("INSERT INTO t VALUES (3, 'b', 9.99), (4, 'b', 1.1)")
    return lake, sorted(set(root.rglob("*.parquet")) - before)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE p = 'a' AND CAST(d AS BIGINT) = 10",
        "DELETE FROM t AS x WHERE CAST(x.d AS BIGINT) = 10 AND (x.p = 'a' OR x.p = 'c')",
        "UPDATE t SET id = CAST(0.7::DOUBLE AS BIGINT) * 7 WHERE p = :p AND id = 1",
        "DELETE FROM t WHERE p = 'a' AND id = (SELECT min(x) FROM (VALUES (1), (5)) AS v(x))",
        "DELETE FROM t USING (VALUES (10)) AS s(x), (VALUES (1)) AS r(y) "
        "WHERE p = 'a' AND CAST(d AS BIGINT) = x AND id = y",
        "MERGE INTO t USING (SELECT 1 AS id, 'a' AS p) AS s ON t.id = s.id AND t.p = s.p "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
        "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id AND t.p = 'a' "
        "WHEN MATCHED THEN DELETE",
    ],
)
def test_no_file_is_opened_that_a_compiled_part_of_the_condition_excludes(
    tmp_path: Path, statement: str, format: str
) -> None:
    lake, others = parts_of_two(tmp_path, format)
    kept = {path: path.read_bytes() for path in others}
    for path in others:
        path.write_bytes(b"not to be read")
    params = {"p": "a"} if ":p" in statement else None
    lake.session().sql(statement, params)
    for path, body in kept.items():
        path.write_bytes(body)
    assert [one for one in ids(lake.read("t")) if one != 7] == [2, 3, 4]


@pytest.mark.parametrize("renames", [False, True])
def test_a_redo_excludes_files_by_the_columns_of_the_newer_state(
    tmp_path: Path, renames: bool
) -> None:
    lake, _ = parts_of_two(tmp_path)
    lake.session().sql(
        "ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'); "
        "ALTER TABLE t ADD COLUMN q STRING"
    )
    delete = "DELETE FROM t WHERE p = 'a' AND q IS NULL AND CAST(d AS BIGINT) = 10"
    txn = lake.transaction()
    txn.sql(delete)
    with lake.session() as other:
        other.sql("INSERT INTO t (id, p, d) VALUES (5, 'a', 10.2), (6, 'b', 10.2), (7, 'a', 2)")
        if renames:
            other.sql("ALTER TABLE t RENAME COLUMN q TO r; ALTER TABLE t ADD COLUMN q STRING")
    if renames:
        with pytest.raises(lv.ConflictError):
            txn.commit()
        return
    txn.commit()
    assert ids(lake.read("t")) == [2, 3, 4, 6, 7]


def test_a_condition_does_not_raise_for_rows_in_excluded_files(tmp_path: Path) -> None:
    lake, _ = parts_of_two(tmp_path)
    session = lake.session()
    session.sql("INSERT INTO t VALUES (5, 'b', CAST('Infinity' AS DOUBLE))")
    where = "p = 'a' AND CAST(d AS BIGINT) = 10"
    assert ids(session.sql(f"SELECT id FROM t WHERE {where}")) == [1]
    session.sql(f"DELETE FROM t WHERE {where}")
    assert ids(lake.read("t")) == [2, 3, 4, 5]
    with pytest.raises(lv.InvalidOperation, match="out of range"):
        session.sql("DELETE FROM t WHERE CAST(d AS BIGINT) = 10")
    assert ids(lake.read("t")) == [2, 3, 4, 5]
