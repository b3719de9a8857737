"""A person asks one SELECT over the lake's tables, with limits, and nothing else."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest
import requests

import lakevilla as lv
from lakevilla.serve.page import query
from lakevilla.serve.page.query import with_limit
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import look, read
from tests.support.tables import accounts, contents


def test_a_query_shows_its_rows(lake: lv.Lake, gateway: Gateway) -> None:
    lake.tag("monday")
    lake.run(lambda txn: txn.append("stock", [{"id": 9, "balance": 9}]))
    sql = 'SELECT s.id, count(*) AS n FROM stock s LEFT JOIN "sales/orders" USING (id) GROUP BY 1'
    page = look(gateway, "/query", sql=f"{sql} ORDER BY id DESC -- newest first")
    assert page.rows() == [["9", "1"], ["1", "1"], ["0", "1"]]
    assert page.all("textarea")[0].text.strip().startswith("SELECT s.id")
    assert len(look(gateway, "/query", sql=sql, on="monday").rows()) == 2
    past = "SELECT id FROM stock AT (VERSION => 2)"
    assert len(look(gateway, "/query", sql=past).rows()) == 2
    assert len(look(gateway, "/query", sql=sql, on="v2").rows()) == 2
    rows = look(gateway, look(gateway, "/table", name="sales/orders").links()["Rows"])
    assert len(rows.rows()) == 3


def test_a_query_stops_after_the_rows_of_a_page(gateway: Gateway) -> None:
    page = look(gateway, "/query", sql="SELECT range AS n FROM range(1000000000);")
    assert page.rows() == [[str(number)] for number in range(200)]
    assert "there are more" in page.text()
    wide = ", ".join(f"{number} AS c{number}" for number in range(100))
    page = look(gateway, "/query", sql=f"SELECT {wide}")
    assert len(page.rows()[0]) == 60
    assert "40 more columns" in page.text()


def test_columns_may_have_any_name(gateway: Gateway) -> None:
    sql = 'SELECT [1] AS _change_type, 2 AS _change_type, 3 AS " ", 4 AS "<b>"'
    page = look(gateway, "/query", sql=sql)
    assert page.rows() == [["1", "2", "3", "4"]]
    assert not page.all("b")


@pytest.mark.parametrize(
    "value", ["'infinity'::TIMESTAMP", "TIMESTAMP_NS '2020-01-01 00:00:00.000000001'", "1e400"]
)
def test_values_that_python_does_not_have_are_shown(gateway: Gateway, value: str) -> None:
    assert look(gateway, "/query", sql=f"SELECT {value} AS x").status == 200


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM '/etc/passwd'", "passwd"),
        ("SELECT * FROM read_text('/etc/passwd')", "read_text"),
        ("SELECT * FROM read_parquet('s3://elsewhere/t/*.parquet')", "read_parquet"),
        ('SELECT * FROM "s3://elsewhere/t"', "s3://elsewhere/t"),
        ('SELECT * FROM "../../other"', ".."),
        ("SELECT getenv('HOME')", "getenv"),
        ("SELECT * FROM duckdb_settings()", "duckdb_settings"),
        ("SELECT 1; SELECT 2", "one"),
        ("DELETE FROM stock WHERE true", "SELECT"),
        ("DROP TABLE stock", "drop is not a query"),
        ("INSERT INTO stock VALUES (1, 2)", "SELECT"),
        ("COPY stock TO '/tmp/x'", "copy is not a query"),
        ("ATTACH '/tmp/x'", "attach is not a query"),
        ("SET sql_uris = true", "set is not a query"),
        ("SELECT * FROM nothing", "nothing"),
        ("SELECT 1) UNION (SELECT 2", ""),
        ("SELECT repeat('x', 100000000) AS x", "max_bytes"),
        ("SELECT * FROM range(100000) LIMIT 100000", "max_rows"),
        ("\x00", ""),
        ("(" * 10_000, ""),
    ],
)
def test_a_query_reaches_the_lakes_tables_alone(
    lake: lv.Lake, gateway: Gateway, sql: str, said: str
) -> None:
    page = look(gateway, "/query", sql=sql)
    (wrong,) = [one.text for one in page.all("p") if one.attributes.get("role") == "alert"]
    assert said in wrong
    assert "root:" not in page.html
    assert len(look(gateway, "/tables").rows()) == 2


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM nothing", "SELECT * FROM stok", "SHOW TABLES", "SELECT 1; SELECT 2"]
)
def test_a_wrong_query_is_told_what_to_do_on_the_page(gateway: Gateway, sql: str) -> None:
    page = look(gateway, "/query", sql=sql)
    (wrong,) = [one.text for one in page.all("p") if one.attributes.get("role") == "alert"]
    assert not re.search(r"\(\)|views|transaction|call sql", wrong)


def test_a_query_ends_after_its_time(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "SECONDS", 0.2)
    page = look(
        gateway,
        "/query",
        sql="SELECT sum(a.range * b.range) FROM range(1e6::INT) a, range(1e6::INT) b",
    )
    assert "timeout_seconds" in page.text()


def test_a_query_waits_for_nobody(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_running", threading.BoundedSemaphore(1))
    with query._running:
        page = look(gateway, "/query", sound=False, sql="SELECT 1")
    assert page.status == 429
    assert page.headers["Retry-After"] == "5"
    assert look(gateway, "/query", sql="SELECT 1 AS x").rows() == [["1"]]


def test_a_query_changes_nothing(lake: lv.Lake, gateway: Gateway) -> None:
    before = contents(lake.root)
    look(gateway, "/query", sql="SELECT * FROM stock")
    look(gateway, "/query", sql="SELECT * FROM lakevilla_files")
    look(gateway, "/query", sql="UPDATE stock SET balance = 0 WHERE true")
    assert contents(lake.root) == before


def test_a_link_of_a_page_elsewhere_runs_no_query(gateway: Gateway) -> None:
    asked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path, params, kept in (
        ("/query", {"sql": "SELECT 42 AS x"}, "was not run"),
        ("/upkeep", {"run": "doctor"}, "Run the doctor"),
    ):
        answer = requests.get(f"{gateway.uri}{path}", params=params, headers=asked, timeout=30)
        page = read(answer)
        assert page.status == 200
        assert kept in page.text()
        assert not page.all("table")


def test_a_lake_that_was_opened_for_any_place_is_not_queried_here(tmp_path: Path) -> None:
    settings = lv.Settings(sql_uris=True)
    with lv.connect(tmp_path / "lake", settings=settings) as lake, serving(lake) as gateway:
        lake.create_table("stock", accounts(1))
        outside = os.fspath(tmp_path / "outside")
        lv.connect(outside).create_table("t", accounts(1))
        page = look(gateway, "/query", sql=f"SELECT * FROM '{outside}/t'")
        assert "sql_uris" in page.text()
        assert not page.all("table")
        assert look(gateway, "/table", sound=False, name=f"{outside}/t").status == 404


@pytest.mark.parametrize(
    ("sql", "limited"),
    [
        ("SELECT 1", True),
        ("SELECT 1 ;; ", True),
        ("SELECT 1 -- comment", True),
        ("SELECT 1 UNION ALL SELECT 2", True),
        ("SELECT * FROM (SELECT 1 LIMIT 1)", True),
        ("WITH a AS (SELECT 1 LIMIT 3) SELECT * FROM a", True),
        ("VALUES (1), (2)", True),
        ("SELECT 1 LIMIT 5", False),
        ("SELECT 1 OFFSET 0 LIMIT 5", False),
        ("(SELECT 1) UNION ALL (SELECT 2) LIMIT 7", False),
    ],
)
def test_a_query_without_a_limit_gets_one(gateway: Gateway, sql: str, limited: bool) -> None:
    assert with_limit(sql, 3).endswith("\nLIMIT 3") == limited
    assert look(gateway, "/query", sql=sql).all("table")
