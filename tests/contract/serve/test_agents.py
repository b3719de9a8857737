"""An agent reads a lake within limits, and reaches nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.serve.agents.limits import AgentLimits
from lakevilla.serve.agents.reader import Reader
from lakevilla.serve.agents.words import for_agents
from lakevilla.serve.agents.work import Work

#: What an agent may send to either tool, and what it must not reach.
ATTACKS = [
    # files, other stores, settings, programs
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 's3://elsewhere/t/*.parquet'",
    'SELECT * FROM "../other"',
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM parquet_scan('/tmp/x.parquet')",
    "SELECT * FROM iceberg_scan('/tmp/x')",
    "SELECT * FROM delta_scan('/tmp/x')",
    "SELECT * FROM sqlite_scan('/tmp/x', 't')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('stock')",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM stock WHERE sku IN (SELECT content FROM read_text('/etc/passwd'))",
    "WITH a AS (FROM read_csv('/etc/passwd')) SELECT * FROM a",
    "EXPLAIN SELECT * FROM read_csv('/etc/passwd')",
    "DESCRIBE read_csv('/etc/passwd')",
    "INSERT INTO stock SELECT content, 1 FROM read_text('/etc/passwd')",
    "UPDATE stock SET sku = (SELECT content FROM read_text('/etc/passwd'))",
    "MERGE INTO stock USING read_csv('/etc/passwd') AS s ON true WHEN MATCHED THEN DELETE",
    "CREATE TABLE w AS SELECT * FROM read_csv('/etc/passwd')",
    "CREATE VIEW w AS SELECT * FROM read_csv('/etc/passwd')",
    "CREATE TABLE w (a INT) LOCATION '/tmp/w'",
    'CREATE TABLE "/tmp/w" (a INT)',
    'CREATE TABLE "../w" (a INT)',
    'CREATE TABLE "_lakevilla/w" (a INT)',
    "CREATE TABLE w (a INT) USING iceberg TBLPROPERTIES ('write.data.path' = '/tmp/w')",
    "COPY stock TO '/tmp/x'",
    "COPY stock FROM '/etc/passwd'",
    "EXPORT DATABASE '/tmp/x'",
    "IMPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "ATTACH 's3://elsewhere/x.db' AS x",
    "DETACH lake",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "CALL pragma_version()",
    "CREATE SECRET s (TYPE s3)",
    "CREATE MACRO f(a) AS a",
    "SET memory_limit = '100GB'",
    "SET sql_uris = true",
    "SET max_rows = 1000000",
    "SET timeout_seconds = 100000",
    "PREPARE p AS SELECT 1",
    "CHECKPOINT",
    # the lake itself
    "USE main",
    "USE main; DELETE FROM stock",
    "MERGE BRANCH etl",
    "MERGE BRANCH etl INTO main DELETE",
    "DROP BRANCH etl",
    "DROP TAG monday",
    "CREATE TAG friday",
    "CREATE BRANCH other AT (VERSION => 1)",
    'DELETE FROM "lake@main".stock',
    'DELETE FROM "stock@main"',
    "DELETE FROM stock AT (BRANCH => main)",
    "DELETE FROM stock AT (BRANCH => etl)",
    "INSERT INTO stock AT (TAG => monday) VALUES ('x', 1)",
    "UPDATE stock VERSION AS OF 0 SET qty = 0",
    "CREATE SCHEMA w",
    "DROP SCHEMA sales CASCADE",
    "COMMENT ON SCHEMA sales IS 'mine'",
    "ALTER TABLE stock RENAME TO mine",
    "VACUUM stock RETAIN 0 HOURS",
    "OPTIMIZE stock",
    "BEGIN; DELETE FROM stock; COMMIT",
    "DELETE FROM stock; USE main",
    "EXECUTE IMMEDIATE 'DELETE FROM stock'",
    "FROM (DELETE FROM stock RETURNING *)",
    "WITH a AS (DELETE FROM stock RETURNING *) SELECT * FROM a",
    "SELECT 1; DELETE FROM stock AT (BRANCH => main)",
    "\x00",
    "(" * 10_000,
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 2}])
        lake.create_table("sales/orders", [{"id": 1, "sku": "tea"}])
        lake.session().sql("CREATE VIEW sales.short AS SELECT sku FROM stock WHERE qty < 3")
        yield lake


@pytest.fixture
def reader(lake: lv.Lake) -> Reader:
    return Reader(lake, AgentLimits(seconds=1.0))


def objects(root: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(root)): one.read_bytes() for one in root.rglob("*") if one.is_file()
    }


def test_reading_writes_nothing(tmp_path: Path, lake: lv.Lake, reader: Reader) -> None:
    before = objects(tmp_path)
    assert reader.tables("", "")["rows"] == [
        ["sales/orders", "table", "delta", 1, reader.tables("sales/o", "")["rows"][0][4]],
        ["sales/short", "view", None, None, None],
        ["stock", "table", "delta", 2, reader.tables("stock", "")["rows"][0][4]],
    ]
    assert reader.query("SELECT * FROM sales.short", "")["rows"] == [["jam"]]
    assert reader.query("SHOW TABLES", "")["rows"] == [
        ["sales/orders", "delta"],
        ["stock", "delta"],
    ]
    assert [one["version"] for one in reader.history(2, None, "")["commits"]] == [3, 2]
    assert reader.refs() == {"refs": []}
    for text in ATTACKS:
        with pytest.raises(lv.LakeVillaError):
            reader.query(text, "")
    assert objects(tmp_path) == before


def test_a_table_is_described_with_what_is_said_of_it(lake: lv.Lake, reader: Reader) -> None:
    lake.session().sql("COMMENT ON COLUMN stock.qty IS 'pieces'; COMMENT ON TABLE stock IS 'all'")
    found = reader.describe("stock", "")
    assert [row[0::4] for row in found["rows"]] == [["sku", None], ["qty", "pieces"]]
    assert found["details"]["comment"] == "all"
    view = reader.describe("sales.short", "")
    assert view["details"] == {
        "format": "view",
        "query": "SELECT sku FROM stock WHERE qty < 3",
    }
    assert (
        reader.describe("sales.orders", "")["rows"] == reader.describe("sales/orders", "")["rows"]
    )
    with pytest.raises(lv.TableNotFound) as raised:
        reader.describe("nothing", "")
    assert "list_tables" in for_agents(raised.value.message)


def test_each_state_is_read_by_its_name(lake: lv.Lake, reader: Reader) -> None:
    lake.tag("monday")
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.delete("stock", where="sku = 'jam'"))
    lake.run(lambda txn: txn.append("stock", [{"sku": "gin", "qty": 1}]))
    count = "SELECT count(*) FROM stock"
    found = {ref: reader.query(count, ref)["rows"][0][0] for ref in ("", "monday", "etl", "v3")}
    assert found == {"": 3, "monday": 2, "etl": 1, "v3": 2}
    assert reader.diff("monday", "main", "", [])["rows"] == [["stock", "changed", 1, 0, False]]
    assert reader.diff("v3", "etl", "stock", ["sku"])["rows"] == [["jam", 2, "delete"]]
    lake.run(lambda txn: txn.append("sales/orders", [{"id": 2, "sku": "gin"}]))
    for name in ("sales/orders", "sales.orders"):
        assert reader.diff("monday", "", name, [])["rows"] == [[2, "gin", "insert"]]
    for ask in (lambda: reader.query(count, "nothing"), lambda: reader.diff("nothing", "", "", [])):
        with pytest.raises(lv.RefNotFound):
            ask()


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT max(n) FROM x",
        "SELECT count(*) FROM range(1000000) a, range(1000000) b, range(1000000) c",
    ],
)
def test_a_query_that_runs_for_ever_is_interrupted(lake: lv.Lake, sql: str) -> None:
    reader = Reader(lake, AgentLimits(seconds=0.3))
    began = time.monotonic()
    with pytest.raises(lv.InvalidOperation, match="timeout_seconds"):
        reader.query(sql, "")
    assert time.monotonic() - began < 20
    assert reader.query("SELECT 1", "")["rows"] == [[1]]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT repeat('x', 10000000)", "max_bytes"),
        ("SELECT repeat('x', 60000)", "select fewer columns"),
    ],
)
def test_a_value_that_is_too_large_for_an_answer_is_refused(
    lake: lv.Lake, sql: str, said: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=said):
        Reader(lake, AgentLimits()).query(sql, "")


def test_a_query_ends_in_the_memory_that_the_operator_gave(tmp_path: Path) -> None:
    settings = lv.Settings(memory_limit_bytes=64 << 20)
    with lv.connect(tmp_path / "small", settings=settings) as lake:
        reader = Reader(lake, AgentLimits(seconds=20.0))
        with pytest.raises(lv.LakeVillaError, match="memory_limit_bytes"):
            reader.query("SELECT len(list(range)) FROM range(50000000)", "")
        assert reader.query("SELECT 1", "")["rows"] == [[1]]


def test_a_lake_whose_sql_reads_any_place_is_not_given_to_agents(tmp_path: Path) -> None:
    settings = lv.Settings(sql_uris=True)
    with lv.connect(tmp_path / "open", settings=settings) as lake:
        with pytest.raises(lv.InvalidOperation, match="sql_uris"):
            Reader(lake, AgentLimits())


def test_no_statement_of_an_agent_reaches_beyond_its_branch(
    tmp_path: Path, lake: lv.Lake, reader: Reader
) -> None:
    lake.tag("monday")
    lake.branch("etl")
    work = Work(reader, {"any": "SELECT true"})
    work.execute("INSERT INTO stock VALUES ('gin', 1)")
    refs = {one.name: one.base_version for one in lake.refs()}
    history, rows = lake.history(), lake.read("stock")
    schemas = lake.sql("SELECT * FROM information_schema.schemata")
    others = {one.name for one in tmp_path.iterdir()}
    for text in ATTACKS:
        with pytest.raises(lv.LakeVillaError):
            work.execute(text)
    assert (lake.history(), lake.read("stock")) == (history, rows)
    assert {one.name: one.base_version for one in lake.refs()} == refs
    assert lake.sql("SELECT * FROM information_schema.schemata") == schemas
    assert {one.name for one in tmp_path.iterdir()} == others


def test_a_statement_that_writes_for_ever_is_interrupted(lake: lv.Lake) -> None:
    reader = Reader(lake, AgentLimits(seconds=0.3, written_bytes=32 << 20))
    work = Work(reader, {})
    endless: list[Any] = [
        "UPDATE stock SET qty = (SELECT count(*) FROM range(1000000000) a, range(100000) b)",
        "INSERT INTO stock SELECT 'x', count(*) FROM range(1000000000) a, range(100000) b",
        "CREATE TABLE big AS SELECT range FROM range(100000000000)",
    ]
    for text in endless:
        with pytest.raises(lv.InvalidOperation, match=r"timeout_seconds|max_bytes"):
            work.execute(text)
    assert reader.query("SELECT count(*) FROM stock", work.branch or "")["rows"] == [[2]]
