"""A parameter may have a keyword of SQL as its name, in every statement."""

from __future__ import annotations

import pytest

import lakevilla as lv

STATEMENTS = [
    "SELECT * FROM t WHERE x = :{0} ORDER BY id",
    "INSERT INTO t VALUES (1, :{0})",
    "INSERT INTO t SELECT 1, :{0} FROM u",
    "UPDATE t SET x = :{0} WHERE x = :{0}",
    "UPDATE t SET x = :{0} FROM u WHERE t.id = u.id AND u.x = :{0}",
    "DELETE FROM t WHERE x = :{0}",
    "MERGE INTO t USING (SELECT 1::BIGINT AS id, :{0} AS x) s ON t.id = s.id AND t.x = :{0} "
    "WHEN MATCHED AND t.x = :{0} THEN UPDATE SET x = :{0} "
    "WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, :{0})",
    "BEGIN ATOMIC UPDATE t SET x = :{0}; DELETE FROM t WHERE x = :{0}; END",
]


@pytest.mark.parametrize("word", ["from", "on", "values", "when", "where", "end", "localtime"])
def test_a_keyword_of_sql_can_be_the_name_of_a_parameter(word: str) -> None:
    session = lv.connect("memory://").session()
    session.sql("CREATE TABLE t (id BIGINT, x STRING); CREATE TABLE u (id BIGINT, x STRING)")
    session.sql("INSERT INTO u VALUES (1, 'a')")
    for statement in STATEMENTS:
        session.sql(statement.format(word), {word: "a"})
    assert session.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 0}]
