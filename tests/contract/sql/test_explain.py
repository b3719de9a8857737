"""EXPLAIN shows which files the log's statistics keep, and the engine's plan; it runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.api.session import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = lv.connect(tmp_path).session()
    session.sql("CREATE TABLE t (id BIGINT, p STRING) PARTITIONED BY (p)")
    session.sql("CREATE TABLE s (id BIGINT)")
    for number in range(3):
        session.sql(f"INSERT INTO t VALUES ({number}, 'a'), ({number}, 'b')")
    return session


def lines(session: Session, text: str, params: dict[str, object] | None = None) -> dict[str, str]:
    """Return the details by item; the detail of each row must be one line."""
    found: dict[str, str] = {}
    for row in session.sql(text, params).to_pylist():  # type: ignore[union-attr]
        assert "\n" not in row["detail"]
        found[row["item"]] = "\n".join([*filter(None, [found.get(row["item"])]), row["detail"]])
    return found


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT * FROM t", 6),
        ("SELECT count(*) FROM t WHERE id > 1 AND p = 'a' GROUP BY p ORDER BY 1", 1),
        # The function hash exists in the engine alone.
        ("SELECT * FROM t AS x WHERE x.id >= :n AND hash(p) > 0", 4),
        ("SELECT * FROM t WHERE p = 'a' OR p = 'c' LIMIT 1", 3),
        ("SELECT * FROM t JOIN s USING (id) WHERE t.id = 1", 2),
        ("SELECT * FROM s LEFT JOIN t USING (id) WHERE t.id = 1", 6),
        ("SELECT * FROM t, s AS x WHERE p = 'a' AND x.id = t.id AND t.id > 1", 1),
        ("SELECT * FROM t JOIN t AS u USING (id) WHERE t.id = 1", 6),
        ("SELECT * FROM t WHERE id = 1 AND id < (SELECT max(id) FROM t)", 6),
        ("SELECT * FROM t AS x(p, id) WHERE p = 1", 6),
        ("SELECT * FROM t USING SAMPLE 2 ROWS", 6),
        ("DELETE FROM t WHERE p = 'b' AND id = 0", 1),
        ("UPDATE t AS x SET id = 1 WHERE x.p = 'b' OR x.id = 0", 4),
        ("INSERT INTO s SELECT id FROM t WHERE id < 1", 2),
    ],
)
def test_explain_reports_how_many_files_statistics_keep(
    session: Session, text: str, kept: int
) -> None:
    params: dict[str, object] | None = {"n": 1} if ":n" in text else None
    found = lines(session, f"EXPLAIN {text}", params)
    assert found["files of t"].startswith(f"{kept} of 6 kept, ")
    assert ("plan" in found) is not text.startswith(("UPDATE", "DELETE"))


def test_explain_shows_the_plan_of_what_a_change_reads(session: Session) -> None:
    session.sql("INSERT INTO s VALUES (1)")
    found = lines(session, "EXPLAIN DELETE FROM t WHERE id IN (SELECT id FROM s)")
    assert found["delete"].startswith("t, as a merge on (id) = ")
    assert found["condition"].startswith(
        "id IN (SELECT id FROM s): left to the engine, since it reads"
    )
    assert "reads" not in found
    assert "id" in found["plan"]
    found = lines(session, "EXPLAIN MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE")
    assert found["merge into"] == "t"
    assert found["files of s"].startswith("1 of 1 kept, ")


def test_explain_reports_which_part_of_a_condition_is_left_to_the_engine_and_why(
    session: Session,
) -> None:
    session.sql("ALTER TABLE t ADD COLUMN d DOUBLE")
    found = lines(session, "EXPLAIN DELETE FROM t WHERE p = 'a' AND CAST(d AS BIGINT) = 1 AND id=0")
    assert found["condition"].split("\n") == [
        "p = 'a': compiled",
        "CAST(d AS BIGINT) = 1: left to the engine, since a cast of double to long means something "
        "else in a SELECT; it rounds there: write cast(round(x) as long), floor(x) or ceil(x)",
        "id=0: compiled",
    ]
    assert found["files of t"].startswith("1 of 6 kept, 5 pruned, ")
    assert found["reads"].startswith("t twice: ")
    found = lines(session, "EXPLAIN UPDATE t SET id = CAST(d AS BIGINT), p = 'c' WHERE id = 0")
    assert found["condition"] == "id = 0: compiled"
    assert found["value of id"].startswith("CAST(d AS BIGINT): left to the engine, since a cast")
    assert found["value of p"] == "'c': compiled"
    assert found["files of t"].startswith("2 of 6 kept, 4 pruned, ")


def test_explain_of_a_merge_reports_which_files_of_the_target_its_condition_keeps(
    session: Session,
) -> None:
    merge = "EXPLAIN MERGE INTO t USING (SELECT 1 AS id, 2.5 AS d) AS s ON {} WHEN {} THEN DELETE"
    on = "t.id = s.id AND t.p = 'a'"
    found = lines(session, merge.format(on, "MATCHED"))
    assert found["condition"].split("\n") == ["t.id = s.id: compiled", "t.p = 'a': compiled"]
    assert found["files of t"].startswith("3 of 6 kept, 3 pruned, ")
    found = lines(session, merge.format(on, "NOT MATCHED BY SOURCE"))
    assert found["files of t"].startswith("6 of 6 kept, 0 pruned, ")
    found = lines(session, merge.format("t.id = CAST(s.d::DOUBLE AS BIGINT)", "MATCHED"))
    assert ": refused, since a cast of double" in found["condition"]


def test_explain_runs_no_statement_and_does_not_count_as_a_read(session: Session) -> None:
    session.sql("BEGIN; INSERT INTO t VALUES (9, 'a')")
    found = lines(session, "EXPLAIN SELECT * FROM t WHERE id = 9")
    assert found["files of t"].startswith("1 of 7 kept")
    lines(session, "EXPLAIN DELETE FROM s")
    other = session._lake.session()
    other.sql("DELETE FROM t; INSERT INTO s VALUES (1)")
    session.sql("COMMIT")
    assert session.sql("FROM t").num_rows == 1  # type: ignore[union-attr]
    assert session.sql("FROM s").num_rows == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("EXPLAIN CREATE TABLE x (a INT)", "queries and of changes to rows"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN tells of files"),
        ("EXPLAIN", "is incomplete"),
        ("EXPLAIN SELECT nope FROM t", "nope"),
        ("EXPLAIN DELETE FROM t WHERE nope = 1", "nope"),
    ],
)
def test_explain_refuses_statements_that_it_can_not_explain(
    session: Session, text: str, message: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=message):
        session.sql(text)
