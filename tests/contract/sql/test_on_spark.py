"""SQL sessions of a lake with ``spark=``: the same statements, in Spark's dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    with lv.connect(str(tmp_path), spark=spark).session() as made:
        made.sql("""
            CREATE TABLE t (id BIGINT NOT NULL, k STRING, v BIGINT, f DOUBLE);
            CREATE TABLE s (k STRING, w BIGINT);
            INSERT INTO t VALUES (1, 'a', 10, 1.5), (2, 'b', 20, NULL), (3, NULL, 30, 2.5);
            INSERT INTO s VALUES ('a', 1), ('c', 3), (NULL, 5)
        """)
        yield made


def rows(session: Any, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in session.sql(text).collect()), key=repr)


@pytest.mark.seam
def test_a_session_on_spark_sees_its_own_changes_and_can_undo_them(session: Any) -> None:
    session.sql("BEGIN; UPDATE t SET v = s.w FROM s WHERE t.k = s.k")
    session.sql("DELETE FROM t WHERE k NOT IN (SELECT k FROM s WHERE k IS NOT NULL)")
    session.sql("UPDATE t SET f = (SELECT max(w) FROM s) WHERE EXISTS (SELECT 1 FROM s)")
    assert rows(session, "SELECT id, v, f FROM t") == [(1, 1, 5.0), (3, 30, 5.0)]
    outside = [row.id for row in session._lake.sql("SELECT id FROM t ORDER BY id").collect()]
    assert outside == [1, 2, 3]
    session.sql("ROLLBACK")
    assert rows(session, "SELECT id, v FROM t") == [(1, 10), (2, 20), (3, 30)]


def test_statements_on_spark_use_tables_of_queries_past_states_and_branches(session: Any) -> None:
    session.sql("CREATE TABLE u AS SELECT k, count(*) AS n FROM t GROUP BY k")
    session.sql("CREATE BRANCH etl")
    session.sql("USE BRANCH etl")
    session.sql("DELETE FROM t")
    session.sql("USE main")
    assert rows(session, "SELECT count(*) AS n FROM t AT (BRANCH => etl)") == [(0,)]
    session.sql("DELETE FROM t WHERE id = 1")
    assert rows(session, "SELECT o.id FROM t VERSION AS OF 0 AS o LEFT ANTI JOIN t USING (id)") == [
        (1,)
    ]
    assert rows(session, "SHOW TABLES") == [("s", "delta"), ("t", "delta"), ("u", "delta")]
    assert ("name", "string") not in rows(session, "SELECT name, type FROM lakevilla_columns")
    files, *plan = rows(session, "EXPLAIN SELECT * FROM t WHERE id > 2")
    assert files[0] == "files of t"
    assert files[1].startswith("1 of 1 kept")
    assert any("Physical Plan" in line for _, line in plan)


def test_statements_on_spark_can_replace_rows_and_tables_by_queries_over_them(session: Any) -> None:
    session.sql("INSERT INTO t BY NAME SELECT 'c' AS k, 4L AS id")
    session.sql("INSERT OVERWRITE TABLE t BY NAME SELECT id + 1 AS id, k FROM t WHERE id > 1")
    assert rows(session, "SELECT id, k FROM t") == [(3, "b"), (4, None), (5, "c")]
    session.sql("INSERT OVERWRITE t PARTITION (id = 3) (k) SELECT k FROM s WHERE w = 1")
    session.sql("INSERT INTO t BY NAME REPLACE WHERE k = 'c' SELECT 9L AS id, 'c' AS k")
    session.sql("WITH q AS (SELECT 4L AS id) DELETE FROM t WHERE id IN (SELECT id FROM q)")
    assert rows(session, "SELECT id, k FROM t") == [(3, "a"), (9, "c")]
    session.sql("CREATE OR REPLACE TABLE t AS SELECT k, count(*) AS n FROM t GROUP BY k")
    assert rows(session, "SELECT k, n FROM t") == [("a", 1), ("c", 1)]
    session.sql("DROP TABLE t; CREATE TABLE t LIKE s")
    assert rows(session, "SELECT * FROM t") == []


def test_conditions_of_writes_refuse_timestamps_that_depend_on_sparks_time_zone(
    session: Any,
) -> None:
    """The Spark session's zone is Los Angeles; conditions of writes are evaluated in UTC."""
    session.sql("CREATE TABLE e AS SELECT id, TIMESTAMP '2024-01-01 00:00:00Z' "
                "+ make_dt_interval(0, CAST(id AS INT)) AS at FROM t")  # fmt: skip
    with pytest.raises(lv.InvalidOperation, match="time zone America/Los_Angeles"):
        session.sql("DELETE FROM e WHERE at < TIMESTAMP '2024-01-01 03:00:00'")
    with pytest.raises(lv.InvalidOperation, match=r"hour\(\) of a timestamp"):
        session.sql("UPDATE e SET id = 0 WHERE hour(at) = 1")
    with pytest.raises(lv.InvalidOperation, match="'2024-01-01 03:00:00' with a timestamp"):
        session.sql("MERGE INTO e USING s ON at < '2024-01-01 03:00:00' WHEN MATCHED THEN DELETE")
    zoned = "at < TIMESTAMP '2024-01-01 03:00:00Z'"
    shown = rows(session, f"SELECT id FROM e WHERE {zoned}")
    assert shown == [(1,), (2,)]
    session.sql(f"DELETE FROM e WHERE {zoned}")
    assert rows(session, "SELECT id FROM e") == [(3,)]
