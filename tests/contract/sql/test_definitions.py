"""SQL statements that create, alter and describe tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.session import Session
from lakevilla.sql.statements.select import quoted


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return lv.connect(tmp_path).session()


def rows(session: Session, text: str) -> list[dict[str, Any]]:
    found = session.sql(text)
    assert isinstance(found, pa.Table)
    return found.to_pylist()


@pytest.mark.parametrize(
    ("spelled", "type_"),
    [
        ("STRING", pa.string()),
        ("VARCHAR", pa.string()),
        ("TEXT", pa.string()),
        ("VARCHAR(10)", pa.string()),
        ("CHARACTER VARYING(10)", pa.string()),
        ("CHAR( 3 )", pa.string()),
        ("ARRAY<VARCHAR(5)>", pa.list_(pa.string())),
        ("BIGINT", pa.int64()),
        ("INT8", pa.int64()),
        ("LONG", pa.int64()),
        ("INTEGER", pa.int32()),
        ("SMALLINT", pa.int16()),
        ("TINYINT", pa.int8()),
        ("DOUBLE", pa.float64()),
        ("FLOAT", pa.float32()),
        ("REAL", pa.float32()),
        ("BOOLEAN", pa.bool_()),
        ("BLOB", pa.binary()),
        ("DATE", pa.date32()),
        ("DECIMAL(10, 2)", pa.decimal128(10, 2)),
        ("NUMERIC(10, 2)", pa.decimal128(10, 2)),
        ("TIMESTAMP", pa.timestamp("us", "UTC")),
        ("TIMESTAMPTZ", pa.timestamp("us", "UTC")),
        ("TIMESTAMP WITH TIME ZONE", pa.timestamp("us", "UTC")),
        ("TIMESTAMP_NTZ", pa.timestamp("us")),
        ("TIMESTAMP WITHOUT TIME ZONE", pa.timestamp("us")),
        ("DATETIME", pa.timestamp("us")),
        ("ARRAY<ARRAY<INT>>", pa.list_(pa.list_(pa.int32()))),
        ("INTEGER[]", pa.list_(pa.int32())),
        ("MAP<STRING, BIGINT>", pa.map_(pa.string(), pa.int64())),
        ("MAP(VARCHAR, BIGINT)", pa.map_(pa.string(), pa.int64())),
        ("STRUCT<a: INT, b: STRING>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("STRUCT(a INTEGER, b VARCHAR)", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ],
)
def test_types_can_be_named_as_in_spark_and_as_in_duckdb(spelled: str, type_: pa.DataType) -> None:
    lake = lv.connect("memory://")
    lake.session().sql(f"CREATE TABLE t (a {spelled}, b INT)")
    found = lake.table("t").schema.field("a").type
    assert str(found).replace("element", "item") == str(type_).replace("element", "item")


def test_create_table_applies_constraints_comments_partitions_and_properties(
    session: Session,
) -> None:
    session.sql("""
        CREATE TABLE IF NOT EXISTS sales.orders (
            id BIGINT NOT NULL CHECK (id > 0),
            note STRING COMMENT 'by hand',
            day DATE,
            CONSTRAINT dated CHECK (day > DATE '2000-01-01')
        ) USING delta PARTITIONED BY (day) TBLPROPERTIES ('delta.appendOnly' = 'false')
    """)
    assert rows(session, "DESCRIBE sales.orders") == [
        {"name": "id", "type": "long", "nullable": False, "partition": None, "comment": None},
        {
            "name": "note",
            "type": "string",
            "nullable": True,
            "partition": None,
            "comment": "by hand",
        },
        {"name": "day", "type": "date", "nullable": True, "partition": "day", "comment": None},
    ]
    detail = {row["name"]: row["value"] for row in rows(session, "DESC DETAIL sales.orders")}
    assert detail["format"] == "delta"
    assert detail["delta.appendOnly"] == "false"
    for wrong in ("(0, NULL, DATE '2024-01-01')", "(1, NULL, DATE '1999-01-01')"):
        with pytest.raises(lv.InvalidOperation, match="constraint"):
            session.sql(f"INSERT INTO sales.orders VALUES {wrong}")
    with pytest.raises(lv.TableExists):
        session.sql("CREATE TABLE sales.orders (a INT)")
    session.sql("CREATE TABLE IF NOT EXISTS sales.orders (a INT)")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_comments_on_columns_can_be_set_changed_and_removed(session: Session, format: str) -> None:
    session.sql(
        f"CREATE TABLE a.t (id BIGINT COMMENT 'key', s STRUCT<f: INT>) USING {format};"
        "INSERT INTO a.t VALUES (1, NULL)"
    )

    def comments() -> list[str | None]:
        return [row["comment"] for row in rows(session, "DESCRIBE a.t")]

    assert comments() == ["key", None]
    session.sql("COMMENT ON COLUMN a.t.id IS 'the ''key'")
    session.sql("ALTER TABLE a.t ALTER COLUMN s.f COMMENT 'inner', ALTER COLUMN s COMMENT 'outer'")
    assert comments() == ["the 'key", "outer"]
    inner = session._lake.table("a.t").schema.field("s").type.field("f")
    assert inner.metadata == {b"comment": b"inner"}
    session.sql("BEGIN; COMMENT ON COLUMN a.t.id IS NULL")
    assert comments() == [None, "outer"]
    session.sql("ROLLBACK")
    assert comments() == ["the 'key", "outer"]
    assert rows(session, "FROM a.t") == [{"id": 1, "s": None}]


def test_iceberg_tables_can_be_partitioned_by_transforms(session: Session) -> None:
    session.sql(
        "CREATE TABLE t (id INT, at TIMESTAMP) USING iceberg "
        "PARTITIONED BY (bucket(4, id), day(at))"
    )
    found = {row["name"]: row["partition"] for row in rows(session, "SHOW COLUMNS FROM t")}
    assert found == {"id": "bucket(4, id)", "at": "day(at)"}
    with pytest.raises(lv.InvalidOperation, match="Iceberg has no CHECK constraints"):
        session.sql("ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("name", ["a b", 'a"b', '"', "x.y", "a,b", "order", "1st", "ü;"])
def test_partition_columns_may_have_any_name(session: Session, format: str, name: str) -> None:
    column = quoted(name)
    session.sql(f"CREATE TABLE t (id INT, {column} INT) USING {format} PARTITIONED BY ({column})")
    session.sql("INSERT INTO t VALUES (1, 2)")
    assert rows(session, f"SELECT * FROM t WHERE {column} = 2") == [{"id": 1, name: 2}]
    assert rows(session, "DESCRIBE t")[1]["partition"] == name
    if format == "iceberg":
        session.sql(
            f"CREATE TABLE u ({column} BIGINT) USING iceberg PARTITIONED BY (bucket(4, {column}))"
        )
        assert rows(session, "DESCRIBE u")[0]["partition"] is not None


def test_create_table_as_stores_the_rows_and_types_of_the_query(session: Session) -> None:
    session.sql("CREATE TABLE t (k STRING, n BIGINT); INSERT INTO t VALUES ('a', 1), ('b', 2)")
    session.sql(
        "CREATE TABLE u USING iceberg AS SELECT k, sum(n) AS n, max(x) AS x FROM t, more "
        "WHERE n > :n GROUP BY k",
        {"n": 1},
        {"more": [{"x": 1.5}]},
    )
    assert rows(session, "FROM u") == [{"k": "b", "n": 2, "x": 1.5}]


def test_alter_table_changes_columns_constraints_properties_and_the_name(session: Session) -> None:
    session.sql(
        "CREATE TABLE t (id INT NOT NULL, name STRING) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    )
    session.sql("INSERT INTO t VALUES (1, 'a')")
    session.sql("ALTER TABLE t ADD COLUMN n INT, ADD COLUMN s STRUCT<a: INT, b: STRING>")
    session.sql("ALTER TABLE t ADD COLUMNS (x DOUBLE, y DATE COMMENT 'when')")
    session.sql("ALTER TABLE t RENAME COLUMN name TO who; ALTER TABLE t DROP COLUMN x")
    session.sql("ALTER TABLE t ALTER COLUMN n TYPE BIGINT, ALTER id DROP NOT NULL")
    session.sql("ALTER TABLE t ADD CONSTRAINT plus CHECK (id > 0)")
    with pytest.raises(lv.InvalidOperation, match="plus"):
        session.sql("INSERT INTO t (id) VALUES (-1)")
    session.sql("ALTER TABLE t DROP CONSTRAINT plus; INSERT INTO t (id) VALUES (-1)")
    session.sql("ALTER TABLE t SET TBLPROPERTIES (own.key = 'x'); COMMENT ON TABLE t IS 'all'")
    detail = {row["name"]: row["value"] for row in rows(session, "DESCRIBE EXTENDED t")}
    assert (detail["own.key"], detail["comment"]) == ("x", "all")
    session.sql("ALTER TABLE t UNSET TBLPROPERTIES ('own.key'); COMMENT ON TABLE t IS NULL")
    assert not {"own.key", "comment"} & {row["name"] for row in rows(session, "DESC DETAIL t")}
    found = {row["name"]: row["type"] for row in rows(session, "DESCRIBE t")}
    assert found == {
        "id": "integer",
        "who": "string",
        "n": "long",
        "s": "struct<a:integer,b:string>",
        "y": "date",
    }
    session.sql("ALTER TABLE t RENAME TO people")
    assert rows(session, "SHOW TABLES") == [{"name": "people", "format": "delta"}]
    done = session.sql("TRUNCATE TABLE people")
    assert done.rows_deleted == 2  # type: ignore[union-attr]


def test_changed_definitions_show_in_their_transaction_and_are_undone_by_rollback(
    session: Session,
) -> None:
    session.sql("CREATE TABLE t (a INT)")
    session.sql("BEGIN; ALTER TABLE t ADD COLUMN b INT; CREATE TABLE u (c INT); DROP TABLE t")
    session.sql("ROLLBACK")
    session.sql("BEGIN; ALTER TABLE t ADD COLUMN b INT; CREATE TABLE u (c INT)")
    session.sql("INSERT INTO t VALUES (1, 2)")
    assert [row["name"] for row in rows(session, "DESCRIBE t")] == ["a", "b"]
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == ["t", "u"]
    session.sql("ROLLBACK")
    assert [row["name"] for row in rows(session, "DESCRIBE t")] == ["a"]
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == ["t"]


@pytest.mark.parametrize("create", ["CREATE TABLE", "CREATE TABLE IF NOT EXISTS"])
@pytest.mark.parametrize(
    ("in_transaction", "gone", "why"),
    [
        (False, "DROP TABLE t", "was dropped"),
        (False, "ALTER TABLE t RENAME TO u", "was renamed to u"),
        (True, "ALTER TABLE t RENAME TO u", "was renamed to u"),
    ],
)
def test_create_if_not_exists_refuses_a_name_whose_table_is_missing(
    session: Session, in_transaction: bool, create: str, gone: str, why: str
) -> None:
    session.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1)")
    if in_transaction:
        session.sql("BEGIN")
    session.sql(gone)
    with pytest.raises(lv.TableExists, match=why):
        session.sql(f"{create} t (id INT)")
    session.sql(f"CREATE TABLE IF NOT EXISTS {'v' if gone[0] == 'D' else 'u'} (id INT)")


def test_statements_can_read_past_versions_of_a_table_and_of_the_lake(session: Session) -> None:
    session.sql("CREATE TABLE t (id BIGINT); CREATE TABLE u (id BIGINT)")
    for number in (1, 2, 3):
        session.sql(f"INSERT INTO t VALUES ({number})")
        session.sql(f"INSERT INTO u VALUES (-{number})")
    versions = [row["version"] for row in rows(session, "SHOW VERSIONS")]
    assert versions == [7, 6, 5, 4, 3, 2, 1]
    assert [row["version"] for row in rows(session, "SHOW VERSIONS FROM t")] == [3, 2, 1, 0]
    assert rows(session, "SELECT max(id) AS m FROM t VERSION AS OF 2") == [{"m": 2}]
    assert rows(session, "SELECT max(id) AS m FROM t FOR SYSTEM_VERSION AS OF 1 AS x") == [{"m": 1}]
    assert rows(session, "SELECT min(u.id) AS m FROM u AT (VERSION => 5) WHERE u.id < 0") == [
        {"m": -2}
    ]
    mixed = "SELECT count(*) AS n FROM t AT (VERSION => 4) a JOIN t b ON a.id = b.id"
    assert rows(session, mixed) == [{"n": 2}]
    session.sql("BEGIN; DELETE FROM t")
    session.sql("INSERT INTO t SELECT id * 10 FROM t VERSION AS OF 2 WHERE id > 1")
    assert rows(session, "FROM t") == [{"id": 20}]
    assert rows(session, "SELECT count(*) AS n FROM t VERSION AS OF 3") == [{"n": 3}]
    session.sql("COMMIT")
    session.sql("CREATE TABLE old AS SELECT id FROM t AT (VERSION => 2)")
    session.sql("DELETE FROM old WHERE id NOT IN (SELECT id FROM t VERSION AS OF 3)")
    assert rows(session, "FROM old") == [{"id": 1}]
    instant = rows(session, "SHOW VERSIONS FROM t")[1]["timestamp"].isoformat()
    assert rows(session, f"SELECT count(*) AS n FROM t TIMESTAMP AS OF '{instant}'") == [{"n": 3}]


def test_statements_create_use_merge_and_drop_branches_and_tags(session: Session) -> None:
    session.sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
    session.sql("CREATE BRANCH etl")
    session.sql('CREATE TAG "first.state" AT (VERSION => 1)')
    session.sql("CREATE BRANCH IF NOT EXISTS etl")
    with pytest.raises(lv.RefExists):
        session.sql("CREATE TAG IF NOT EXISTS etl")
    session.sql("USE BRANCH etl")
    session.sql("BEGIN; INSERT INTO t VALUES (2)")
    session.sql("COMMIT")
    session.sql("CREATE TAG second FROM etl")
    session.sql("USE main")
    assert rows(session, "SELECT max(id) AS m FROM t") == [{"m": 1}]
    assert rows(session, "SELECT max(id) AS m FROM t AT (BRANCH => etl) AS b") == [{"m": 2}]
    assert rows(session, "SELECT max(id) AS m FROM t AT (TAG => 'second')") == [{"m": 2}]
    assert [row["name"] for row in rows(session, "SHOW BRANCHES")] == ["etl"]
    assert [row["name"] for row in rows(session, "SHOW TAGS LIKE 'f%'")] == ["first.state"]
    assert rows(session, "MERGE BRANCH etl INTO main DELETE") == [
        {"table": "t", "change": "physical"}
    ]
    assert rows(session, "SELECT max(id) AS m FROM t") == [{"m": 2}]
    with pytest.raises(lv.InvalidOperation, match="'second' is a tag, and no branch"):
        session.sql("DROP BRANCH second")
    session.sql("DROP TAG second")
    session.sql("DROP TAG IF EXISTS second")
    for text in ("DROP TAG second", "USE BRANCH second", "FROM t AT (TAG => second)"):
        with pytest.raises(lv.RefNotFound):
            session.sql(text)


def test_the_error_in_a_session_whose_branch_was_dropped_suggests_use_main(
    session: Session, tmp_path: Path
) -> None:
    for text in ("CREATE TABLE t (id BIGINT)", "CREATE BRANCH etl", "USE BRANCH etl"):
        session.sql(text)
    with lv.connect(tmp_path) as lake:
        lake.delete_ref("etl")
    for text in ("FROM t", "INSERT INTO t VALUES (1)", "SHOW TABLES"):
        with pytest.raises(lv.RefNotFound, match=r"'etl' was deleted.* USE main takes the session"):
            session.sql(text)
    session.sql("USE main")
    session.sql("INSERT INTO t VALUES (1)")


def test_statements_optimize_and_vacuum_tables(session: Session) -> None:
    session.sql("CREATE TABLE t (id BIGINT, p STRING) PARTITIONED BY (p)")
    for number in range(4):
        session.sql(f"INSERT INTO t VALUES ({number}, 'a'), ({number}, 'b')")
    (some,) = rows(session, "OPTIMIZE t WHERE p = 'a'")
    assert (some["files_removed"], some["files_added"], some["partitions"]) == (4, 1, 1)
    (rest,) = rows(session, "OPTIMIZE t ZORDER BY (id)")
    assert rest["partitions"] == 2
    assert rows(session, "VACUUM t") == []
    assert rows(session, "VACUUM TABLE t RETAIN 200 HOURS DRY RUN") == []
    with pytest.raises(lv.InvalidOperation, match="retention of 1 hours is below"):
        session.sql("VACUUM t RETAIN 1 HOURS")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BEGIN; OPTIMIZE t; COMMIT", "OPTIMIZE takes effect by itself"),
        ("SELECT 1; CREATE TAG x", "CREATE TAG takes effect by itself"),
        ("DROP BRANCH x; SELECT 1", "DROP BRANCH takes effect by itself"),
        ("MERGE BRANCH x INTO y", "merged into main"),
        ("USE sales", "USE BRANCH name goes to a branch"),
        ("VACUUM", "lake.maintain()"),
        ("ALTER TABLE t ALTER COLUMN a SET NOT NULL", "ADD CONSTRAINT name CHECK"),
        ("ALTER TABLE t TRANSFER x", "use ADD, DROP, RENAME"),
        ("COMMENT ON COLUMN t.b IS 'x'", "has no column 'b'"),
        ("COMMENT ON COLUMN a IS 'x'", "write COMMENT ON COLUMN table.column"),
        ("FROM t VERSION AS OF :v", "parameter :v has no value"),
        ("DROP TABLE t PURGE", "delete_data=True"),
        ("DELETE FROM t VERSION AS OF 1", "a past state is for queries"),
        ("FROM t VERSION AS OF two", "write VERSION AS OF 3"),
        ("FROM t AT (VERSOIN => 1)", "cannot be read"),
        ("FROM (FROM t) VERSION AS OF 1", "follows no table"),
        ("FROM t TIMESTAMP AS OF 'yesterday'", "'yesterday' is no timestamp"),
        ("SHOW BRANHCES", "did you mean SHOW BRANCHES?"),
        ("RESTORE TABLE t TO VERSION AS OF 1", "restore(version)"),
        ("ANALYZE TABLE t", "statistics are made with each file"),
    ],
)
def test_the_error_for_an_unsupported_statement_says_what_is_supported(
    session: Session, text: str, message: str
) -> None:
    session.sql("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)")
    with pytest.raises(lv.InvalidOperation) as caught:
        session.sql(text)
    assert message in str(caught.value)
    assert session.transaction is None


def test_a_table_from_a_query_is_redone_on_commits_of_other_clients(session: Session) -> None:
    session.sql("CREATE TABLE t (k STRING, n BIGINT); INSERT INTO t VALUES ('a', 1)")
    session.sql("BEGIN; CREATE TABLE sales.u AS SELECT k, count(*) AS n FROM t GROUP BY k")
    session._lake.session().sql("INSERT INTO t VALUES ('a', 2)")
    session.sql("COMMIT")
    assert rows(session, "FROM sales.u") == [{"k": "a", "n": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE x AS SELECT error('no row') AS a",
        "CREATE TABLE x (a INT, CHECK (a > 0)) USING iceberg",
        "CREATE TABLE x (a INT, CHECK (b > 0))",
        "CREATE TABLE x AS SELECT random() AS a",
    ],
)
def test_an_invalid_create_table_creates_no_table(session: Session, text: str) -> None:
    session.sql("BEGIN; CREATE TABLE t (a INT)")
    with pytest.raises(lv.InvalidOperation):
        session.sql(text)
    assert rows(session, "SHOW TABLES") == [{"name": "t", "format": "delta"}]
    session.sql("COMMIT")
    assert rows(session, "SHOW TABLES") == [{"name": "t", "format": "delta"}]


@pytest.mark.parametrize(
    "spelled", ["DETAIL t", "EXTENDED t", "TABLE EXTENDED t", "EXTENDED TABLE t", "TABLE DETAIL t"]
)
def test_describe_extended_shows_properties_in_every_spelling(spelled: str) -> None:
    session = lv.connect("memory://").session()
    session.sql("CREATE TABLE t (id BIGINT, CONSTRAINT positive CHECK (id > 0))")
    detail = {row["name"]: row["value"] for row in rows(session, f"DESCRIBE {spelled}")}
    assert detail["format"] == "delta"
    assert detail["check positive"] == "id > 0"


@pytest.mark.parametrize(
    ("name", "type_"), [("User", "STRING"), ("current_date", "DATE"), ("extra", "STRING")]
)
def test_a_new_column_named_like_a_function_is_null(
    session: Session, name: str, type_: str
) -> None:
    session.sql("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
    session.sql(f'ALTER TABLE t ADD COLUMN "{name}" {type_}')
    assert rows(session, "FROM t") == [{"id": 1, name: None}]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("sales.a", "b", "sales/b"),
        ('"sales/a"', "b", "sales/b"),
        ("sales.eu.a", "b", "sales/eu/b"),
        ("sales.a", "main.b", "b"),
        ("sales.a", "lab.b", "lab/b"),
        ("a", "b", "b"),
    ],
)
def test_a_table_that_is_renamed_by_its_last_name_stays_in_its_schema(
    session: Session, old: str, new: str, name: str
) -> None:
    session.sql(f"CREATE TABLE {old} AS SELECT 1 AS n; ALTER TABLE {old} RENAME TO {new}")
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == [name]


def test_a_transaction_lists_a_table_that_it_has_made_and_renamed_by_its_new_name(
    session: Session,
) -> None:
    session.sql("CREATE TABLE other AS SELECT 1 AS n; BEGIN")
    session.sql("CREATE TABLE sales.a AS SELECT 1 AS n; ALTER TABLE sales.a RENAME TO b")
    session.sql("CREATE VIEW v AS FROM sales.b; ALTER VIEW v RENAME TO w")
    assert [row["name"] for row in rows(session, "SHOW TABLES LIKE 'sales%'")] == ["sales/b"]
    assert [row["name"] for row in rows(session, "SHOW VIEWS")] == ["w"]
    text = "SELECT table_name FROM information_schema.columns ORDER BY ALL"
    assert [row["table_name"] for row in rows(session, text)] == ["b", "other", "w"]
    session.sql("DROP SCHEMA sales CASCADE; DROP VIEW w; COMMIT")
    assert [row["name"] for row in rows(session, "SHOW TABLES")] == ["other"]
