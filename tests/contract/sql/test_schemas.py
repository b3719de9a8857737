"""SQL statements about schemas, the directories of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla import dbapi
from lakevilla.api.session import Session
from lakevilla.errors import StoreError
from tests.support.inside import inside


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    return lv.connect(tmp_path)


def rows(session: Session, text: str) -> list[dict[str, Any]]:
    found = session.sql(text)
    assert isinstance(found, pa.Table)
    return found.to_pylist()


def names(lake: lv.Lake) -> list[str]:
    return [row["name"] for row in rows(lake.session(), "SHOW SCHEMAS")]


def test_an_empty_schema_is_listed_with_its_comment_until_it_is_dropped(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA lab COMMENT 'Ada''s'")
    session.sql("CREATE SCHEMA IF NOT EXISTS lab")
    session.sql("CREATE DATABASE IF NOT EXISTS lab.eu")
    both = [{"name": "lab", "comment": "Ada's"}, {"name": "lab/eu", "comment": None}]
    assert rows(session, "SHOW SCHEMAS LIKE 'l%'") == both
    assert rows(session, "SHOW DATABASES") == [*both, {"name": "main", "comment": None}]
    text = "SELECT schema_name FROM information_schema.schemata WHERE schema_name = 'lab'"
    assert rows(lv.connect(lake.root).session(), text) == [{"schema_name": "lab"}]
    session.sql("DROP SCHEMA lab.eu; DROP SCHEMA lab; DROP SCHEMA IF EXISTS lab")
    assert names(lake) == ["main"]


def test_the_tables_and_views_of_one_schema_are_listed(lake: lv.Lake) -> None:
    session = lake.session()
    for name in ("a", "lab.b", "lab.eu.c", "l_b.d"):
        session.sql(f"CREATE TABLE {name} (x INT); CREATE VIEW {name}_v AS SELECT x FROM {name}")

    def listed(text: str) -> list[str]:
        return [row["name"] for row in rows(session, text)]

    assert listed("SHOW TABLES FROM lab") == listed("SHOW TABLES IN lab LIKE '%b'") == ["lab/b"]
    assert listed("SHOW TABLES IN l_b") == ["l_b/d"]
    assert listed("SHOW TABLES FROM main") == ["a"]
    assert listed("SHOW VIEWS FROM lab.eu") == ["lab/eu/c_v"]
    assert listed("SHOW VIEWS IN main LIKE 'b%'") == []
    with pytest.raises(lv.InvalidOperation, match="schema labb does not exist: SHOW SCHEMAS"):
        session.sql("SHOW TABLES FROM labb")


def test_properties_of_a_schema_are_set_changed_and_removed(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA lab WITH PROPERTIES ('owner' = 'ada', team = 'a')")
    session.sql("ALTER SCHEMA lab SET DBPROPERTIES ('team' = 'b')")
    session.sql("COMMENT ON SCHEMA lab IS 'ours'; ALTER SCHEMA lab UNSET PROPERTIES (owner)")
    described = {row["name"]: row["value"] for row in rows(session, "DESCRIBE SCHEMA lab")}
    assert described == {"name": "lab", "comment": "ours", "team": "b"}
    session.sql("COMMENT ON SCHEMA lab IS NULL; COMMENT ON SCHEMA main IS 'without a directory'")
    assert rows(session, "SHOW SCHEMAS") == [
        {"name": "lab", "comment": None},
        {"name": "main", "comment": "without a directory"},
    ]


def test_a_schema_is_the_directory_of_its_tables(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE TABLE sales.eu.orders AS SELECT 1 AS id")
    assert names(lake) == ["main", "sales/eu"]
    session.sql("COMMENT ON SCHEMA sales.eu IS 'Europe'")
    assert rows(session, "SHOW SCHEMAS LIKE 'sales%'") == [
        {"name": "sales/eu", "comment": "Europe"}
    ]
    with pytest.raises(lv.InvalidOperation, match="schema sales/eu already exists"):
        session.sql("CREATE SCHEMA sales.eu")
    with pytest.raises(lv.InvalidOperation, match=r"not empty, sales/eu/orders is in it"):
        session.sql("DROP SCHEMA sales")
    session.sql("DROP TABLE sales.eu.orders")
    assert names(lake) == ["main", "sales/eu"]


def test_a_schema_is_dropped_with_its_tables_in_one_transaction(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA lab; CREATE SCHEMA lab.eu; CREATE TABLE labs AS SELECT 1 AS n")
    session.sql("CREATE TABLE lab.a AS SELECT 1 AS n; CREATE TABLE lab.eu.b AS SELECT 1 AS n")
    before = lake.history(1)[0].version
    session.sql("DROP SCHEMA lab CASCADE")
    assert names(lake) == ["main"]
    assert [one.name for one in lake.tables()] == ["labs"]
    assert lake.history(1)[0].version == before + 1


def test_a_schema_is_the_directory_of_its_views_too(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE VIEW lab.few AS SELECT 1 AS n")
    assert names(lake) == ["lab", "main"]
    with pytest.raises(lv.InvalidOperation, match="schema lab already exists"):
        session.sql("CREATE SCHEMA lab")
    with pytest.raises(lv.InvalidOperation, match="not empty, lab/few is in it"):
        session.sql("DROP SCHEMA lab")
    session.sql("BEGIN; CREATE VIEW lab.own AS SELECT 2 AS n; DROP SCHEMA lab CASCADE")
    assert rows(session, "SHOW VIEWS") == []
    session.sql("COMMIT")
    assert rows(session, "SHOW VIEWS") == []
    assert names(lake) == ["main"]


def test_a_view_made_beside_a_drop_of_its_schema_is_in_conflict_with_it(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE VIEW lab.few AS SELECT 1 AS n; BEGIN; DROP SCHEMA lab CASCADE")
    lv.connect(lake.root).session().sql("CREATE VIEW lab.more AS SELECT 2 AS n")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    assert [row["name"] for row in rows(session, "SHOW VIEWS")] == ["lab/few", "lab/more"]


def test_a_transaction_sees_its_schemas_and_others_see_them_once_it_commits(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA old")
    session.sql("BEGIN; CREATE SCHEMA lab COMMENT 'x'; DROP SCHEMA old")
    assert [row["name"] for row in rows(session, "SHOW SCHEMAS")] == ["lab", "main"]
    assert names(lake) == ["main", "old"]
    session.sql("ROLLBACK")
    assert names(lake) == ["main", "old"]
    session.sql("BEGIN; CREATE SCHEMA lab; DROP SCHEMA old; COMMIT")
    assert names(lake) == ["lab", "main"]


def test_a_script_that_is_run_again_makes_its_schema_once(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_table("stock", [{"qty": 1}])
    runs = 0
    real = lv.Transaction._sql

    def sql(txn: lv.Transaction, query: str, *args: Any, **kwargs: Any) -> object:
        nonlocal runs
        found = real(txn, query, *args, **kwargs)
        if query.startswith("SELECT"):
            runs += 1
            if runs == 1:
                lake.run(lambda other: other.update("stock", {"qty": "5"}, "true"))
        return found

    monkeypatch.setattr(lv.Transaction, "_sql", sql)
    lake.session().sql(
        "BEGIN; CREATE SCHEMA lab; SELECT * FROM stock; INSERT INTO stock VALUES (2); COMMIT"
    )
    assert runs == 2
    assert names(lake) == ["lab", "main"]


def test_a_table_made_beside_a_drop_of_its_empty_schema_stays(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA lab; CREATE TABLE t AS SELECT 1 AS n")
    session.sql("BEGIN; DROP SCHEMA lab; INSERT INTO t VALUES (2)")
    lake.session().sql("CREATE TABLE lab.a AS SELECT 1 AS n")
    with pytest.raises(lv.ConflictError):
        session.sql("COMMIT")
    assert names(lake) == ["lab", "main"]


def test_a_change_of_a_schema_that_fails_tells_that_the_transaction_has_committed(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = lake.session()
    session.sql("BEGIN; CREATE SCHEMA lab; CREATE TABLE lab.a AS SELECT 1 AS n")
    store = inside(lake).store
    real = store.put

    def put(key: str, *args: Any, **kwargs: Any) -> object:
        if key.startswith("_lakevilla/namespaces/"):
            raise StoreError("the store is full")
        return real(key, *args, **kwargs)

    monkeypatch.setattr(store, "put", put)
    with pytest.raises(StoreError, match=r"has committed, and schema lab was not made: .* full"):
        session.sql("COMMIT")
    assert [one.name for one in lake.tables()] == ["lab/a"]
    assert session.transaction is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE SCHEMA main", "schema main already exists"),
        ("CREATE SCHEMA root", "Iceberg clients call main so"),
        ("CREATE SCHEMA _lakevilla", "reserved"),
        ('CREATE SCHEMA "a/../b"', "'..' in it"),
        ("CREATE SCHEMA a LOCATION 's3://b/a'", "CREATE SCHEMA ... LOCATION is not supported"),
        ("DROP SCHEMA main", "can't be dropped"),
        ("DROP SCHEMA nope", "schema nope does not exist"),
        ("DESCRIBE SCHEMA nope", "schema nope does not exist"),
        ("COMMENT ON SCHEMA nope IS 'x'", "schema nope does not exist"),
        ("ALTER SCHEMA nope RENAME TO b", "ALTER TABLE ... RENAME TO"),
        ("SET durability = 'every_op'; CREATE SCHEMA a", "SET durability = 'lazy'"),
    ],
)
def test_a_schema_that_can_not_be_is_refused_by_name(
    lake: lv.Lake, text: str, message: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=message.replace(".", r"\.")):
        lake.session().sql(text)
    assert names(lake) == ["main"]


def test_a_transaction_that_makes_a_schema_is_not_saved(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("BEGIN; CREATE SCHEMA lab")
    assert session.transaction is not None
    with pytest.raises(lv.InvalidOperation, match="changes schemas, and can't be saved"):
        session.transaction.save()


def test_the_current_schema_is_main(lake: lv.Lake) -> None:
    session = lake.session()
    assert rows(session, "SELECT current_schema()") == [{"current_schema()": "main"}]
    session.sql("CREATE TABLE t AS SELECT current_schema() AS s")
    assert rows(session, "SELECT s FROM t WHERE s = current_schema()") == [{"s": "main"}]


def test_a_connection_makes_a_schema_by_its_commit(lake: lv.Lake) -> None:
    with dbapi.connect(lake) as connection:
        connection.execute("CREATE SCHEMA lab")
        assert names(lake) == ["main"]
    assert names(lake) == ["lab", "main"]


def test_main_has_the_tables_without_a_directory_in_every_statement(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE TABLE main.t AS SELECT 1 AS n; INSERT INTO MAIN.t VALUES (2)")
    session.sql("UPDATE main.t SET n = 3 WHERE n = 2; CREATE VIEW main.v AS FROM main.t")
    session.sql(
        "MERGE INTO main.t USING (SELECT 5 AS n) s ON t.n = s.n WHEN NOT MATCHED THEN INSERT *"
    )
    assert [one.name for one in lake.tables()] == ["t"]
    assert rows(session, "SELECT main.v.n FROM main.v WHERE n > 1 ORDER BY n") == [
        {"n": 3},
        {"n": 5},
    ]
    assert lake.sql("SELECT count(*) AS n FROM main.t").to_pylist() == [{"n": 3}]
    session.sql("ALTER TABLE main.t RENAME TO main.u; DROP VIEW main.v; DELETE FROM main.u")
    session.sql("DROP TABLE main.u")
    assert lake.tables() == []


def test_a_table_named_with_and_without_main_is_one_table_of_a_query(lake: lv.Lake) -> None:
    lake.create_table("t", [{"n": 1}, {"n": 3}])
    for one, other in [("main.t", "t"), ("t", "main.t"), ("main.t", '"t"')]:
        found = lake.sql(f"SELECT a.n FROM {one} a, {other} b WHERE b.n = 1 ORDER BY 1")
        assert found.to_pylist() == [{"n": 1}, {"n": 3}]


def test_a_directory_main_keeps_its_tables_apart(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql('CREATE TABLE "main/t" AS SELECT 1 AS n')
    with pytest.raises(lv.TableNotFound, match=r"table t does not exist.*main/t"):
        session.sql("FROM main.t")
    session.sql("CREATE TABLE main.t AS SELECT 2 AS n")
    both = 'SELECT a.n AS a, b.n AS b FROM main.t AS a, "main/t" AS b'
    assert rows(session, both) == [{"a": 2, "b": 1}]
    listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
    assert rows(session, f"{listed} ORDER BY 1") == [{"table_name": "main/t"}, {"table_name": "t"}]
    assert rows(session, f"{listed} AND table_name = 't'") == [{"table_name": "t"}]
    assert rows(session, 'FROM main."main/t"') == [{"n": 1}]
    assert rows(session, "SHOW TABLES FROM main") == [
        {"name": "main/t", "format": "delta"},
        {"name": "t", "format": "delta"},
    ]
    changed = [
        rows(session, f"SELECT n FROM table_changes('{name}', 1)") for name in ("main.t", "main/t")
    ]
    assert changed == [[{"n": 2}], [{"n": 1}]]
    for text in ("FROM main.x.t", "CREATE TABLE main.x.t (n INT)", "DROP TABLE main.x.t"):
        with pytest.raises(lv.InvalidOperation, match='write "main/x/t" for a table'):
            session.sql(text)


def test_the_catalog_of_the_information_schema_may_begin_a_name(lake: lv.Lake) -> None:
    session = lake.session()
    session.sql("CREATE SCHEMA lake.lab; CREATE TABLE lake.main.t AS SELECT 1 AS n")
    session.sql("CREATE TABLE lake.lab.o AS SELECT lake.main.t.n FROM lake.main.t")
    session.sql("INSERT INTO LAKE.lab.o VALUES (2); UPDATE lake.lab.o SET n = 3 WHERE n = 2")
    assert names(lake) == ["lab", "main"]
    joined = "FROM lake.lab.o a, lab.o b, lake.main.t c, t d WHERE b.n = 1"
    assert rows(session, f"SELECT a.n {joined} ORDER BY 1") == [{"n": 1}, {"n": 3}]
    found = rows(session, "FROM lake.information_schema.tables WHERE table_schema = 'lab'")
    told = rows(session, "SELECT current_catalog() AS c, current_schema() AS s")
    assert [(one["table_catalog"], one["table_name"]) for one in found] == [("lake", "o")]
    assert told == [{"c": "lake", "s": "main"}]
    lake.create_table("lake/x/t", [{"n": 5}])
    assert rows(session, 'FROM "lake/x".t') == [{"n": 5}]
