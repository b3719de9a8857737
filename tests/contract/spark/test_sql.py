"""Spark SQL in a transaction: it sees the lake's tables at the bound versions, and nothing else."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakevilla as lv
from lakevilla.engines.spark.sql import columns_named
from lakevilla.sql.statements.select import select_of
from tests.contract.arguments import odd_parameters


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with lv.connect(str(tmp_path_factory.mktemp("lake")), spark=spark) as made:
        frame = spark.sql("SELECT id AS k, id % 3 AS g, concat('v', id) AS v FROM range(10)")
        made.create_table("orders", frame)
        made.create_table("sales/eu", frame.limit(3))
        yield made


def told(lake: Any, query: str, params: dict[str, object] | None = None, **views: Any) -> Any:
    with lake.snapshot() as now:
        return [tuple(row) for row in now.sql(query, params, views=views or None).collect()]


def test_queries_can_qualify_columns_by_table_names(lake: Any) -> None:
    assert told(lake, "SELECT count(*) FROM orders") == [(10,)]
    assert told(lake, "SELECT max(orders.k) FROM orders") == [(9,)]
    assert told(lake, "SELECT count(*) FROM sales.eu AS e JOIN orders USING (k)") == [(3,)]
    assert told(lake, "SELECT count(*) FROM `sales/eu`") == [(3,)]


def test_a_common_table_expression_hides_a_table_of_the_same_name(lake: Any) -> None:
    query = "WITH orders AS (SELECT 1 AS k) SELECT * FROM orders"
    assert told(lake, query) == [(1,)]
    query = "WITH t AS (SELECT * FROM orders WHERE k < 2) SELECT a.k FROM t a JOIN t b ON a.k = b.k"
    assert sorted(told(lake, query)) == [(0,), (1,)]


def test_braces_and_colons_in_a_query_are_not_taken_for_parameters(lake: Any) -> None:
    assert told(lake, "SELECT '{x}', ':k', map('a', 1)['a'] FROM orders LIMIT 1") == [
        ("{x}", ":k", 1)
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT /*+ broadcast(orders) */ count(*) FROM orders JOIN sales.eu AS e USING (k)",
        "SELECT /*+ merge(o), repartition(2) */ count(*) FROM orders AS o JOIN sales.eu USING (k)",
        "WITH x AS (SELECT k FROM sales.eu) "
        "SELECT /*+ mapjoin(x, o) */ count(*) FROM x JOIN orders o ON x.k = o.k",
        "SELECT count(orders.k) FROM orders TABLESAMPLE (100 PERCENT) WHERE orders.k < 3",
        "SELECT count(orders.k) FROM orders TABLESAMPLE (100 ROWS) WHERE orders.k < (2 + 1)",
        "SELECT count(o.k) FROM orders TABLESAMPLE (100 PERCENT) REPEATABLE (7) AS o WHERE o.k < 3",
    ],
)
def test_hints_and_samples_of_a_query_are_passed_to_spark(lake: Any, query: str) -> None:
    with lake.snapshot() as now:
        assert [tuple(row) for row in now.sql(query).collect()] == [(3,)]


VALUES: list[tuple[object, str]] = [
    (None, "void"),
    (True, "boolean"),
    (7, "int"),
    (2**40, "bigint"),
    (-(2**63), "bigint"),
    (float("inf"), "double"),
    (0.1, "double"),
    (Decimal("-12.50"), "decimal(4,2)"),
    (Decimal("1E+3"), "decimal(4,0)"),
    ("it's \\ \" :k {0} 字 \n", "string"),
    (b"\x00\xff", "binary"),
    (dt.date(1066, 10, 14), "date"),
    (dt.datetime(33, 1, 2, 3, 4), "timestamp_ntz"),
    (dt.datetime(2026, 1, 2, 3, 4, 5, 678), "timestamp_ntz"),
    (dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC), "timestamp"),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[kind for _, kind in VALUES])
def test_a_parameter_keeps_its_value_and_type(lake: Any, value: object, kind: str) -> None:
    query = "SELECT :given AS it, typeof(:given) AS kind FROM orders LIMIT 1"
    ((it, spark_kind),) = told(lake, query, {"given": value})
    assert spark_kind == kind
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        it = it.astimezone(dt.UTC)
    assert it == value


def test_queries_use_sparks_syntax_of_strings_and_aliases(lake: Any) -> None:
    assert told(lake, "SELECT 'it\\'s', \"two\" FROM orders LIMIT 1") == [("it's", "two")]
    assert told(lake, "SELECT y FROM orders AS t(x, y, z) WHERE x = 4") == [(1,)]
    with pytest.raises(lv.InvalidOperation, match="surrogate"):
        told(lake, "SELECT :k FROM orders", {"k": "\ud800"})


def test_columns_named_like_functions_are_read_as_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path), spark=spark, spark_reader="python") as lake:
        frame = spark.sql("SELECT 'mine' AS current_date, 'MONTH' AS unit, 7 AS other")
        lake.create_table("t", frame)
        assert told(lake, "SELECT current_date FROM t") == [("mine",)]
        assert told(lake, "SELECT month(trunc(date'2026-05-06', unit)) FROM t") == [(5,)]


def test_a_list_can_be_the_parameter_of_in(lake: Any) -> None:
    query = "SELECT count(*) FROM orders WHERE k IN :ks"
    assert told(lake, query, {"ks": [1, 2, 77]}) == [(2,)]
    assert told(lake, query, {"ks": []}) == [(0,)]


@pytest.mark.seam
@pytest.mark.night
def test_queries_can_read_frames_of_the_caller_as_views(lake: Any, spark: SparkSession) -> None:
    query = "SELECT count(*) FROM orders JOIN mine USING (k)"
    assert told(lake, query, mine=spark.range(3).toDF("k")) == [(3,)]
    assert told(lake, query, mine=[{"k": 1}]) == [(1,)]


def test_a_query_leaves_no_view_in_the_spark_session(lake: Any, spark: SparkSession) -> None:
    before = spark.catalog.listTables()
    told(lake, "SELECT count(*) FROM orders")
    assert spark.catalog.listTables() == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM parquet.`/etc`",
        "SELECT * FROM delta.`/tmp/x`",
        "SELECT * FROM global_temp.secret",
        "SELECT * FROM secret",
        "SELECT java_method('java.lang.System', 'getenv', 'HOME') FROM orders",
        "SELECT reflect('java.lang.System', 'getenv', 'HOME')",
        "SELECT TRANSFORM(k) USING 'cat' AS (k) FROM orders",
        "SELECT * FROM read_files('/etc')",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE orders",
        "SET spark.sql.ansi.enabled=false",
        "SELECT 1; SELECT 2",
        "TABLE secret",
        "WITH z AS (TABLE secret) SELECT * FROM z",
        "SELECT array((TABLE secret)) FROM orders",
        "SELECT k FROM orders WHERE EXISTS((table `secret`))",
        "INSERT INTO orders WITH z AS (TABLE secret) SELECT id, id, 'x' FROM z",
        "SELECT map(k) USING 'cat' AS z FROM orders",
        "",
    ],
)
@pytest.mark.seam
def test_spark_sql_that_reads_outside_the_lake_is_refused(
    lake: Any, spark: SparkSession, query: str
) -> None:
    spark.range(1).createOrReplaceTempView("secret")
    spark.range(1).createOrReplaceGlobalTempView("secret")
    with pytest.raises((lv.InvalidOperation, lv.TableNotFound)):
        told(lake, query)


def test_errors_of_queries_have_one_line(lake: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="UNRESOLVED_COLUMN") as caught:
        told(lake, "SELECT nothing FROM orders")
    assert "\n" not in str(caught.value)
    with pytest.raises(lv.InvalidOperation, match="not used: unused"):
        told(lake, "SELECT 1 FROM orders", {"unused": 1})
    with pytest.raises(lv.InvalidOperation, match="UNBOUND_SQL_PARAMETER"):
        told(lake, "SELECT :missing FROM orders")
    with pytest.raises(lv.InvalidOperation, match="parameter :k is of type object"):
        told(lake, "SELECT :k FROM orders", {"k": object()})


@pytest.mark.seam
def test_dml_statements_are_performed_by_the_verbs_of_the_transaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    with lv.connect(str(tmp_path), spark=spark) as lake:
        lake.create_table("t", spark.sql("SELECT id AS k, 'a' AS v FROM range(4)"))
        lake.create_table("u", spark.sql("SELECT id AS k, 'b' AS v FROM range(2, 6)"))
        with lake.transaction() as txn:
            update: Any = txn.sql("UPDATE t SET v = :v WHERE k = 0", {"v": "it's"})
            delete: Any = txn.sql("DELETE FROM t WHERE k = 1")
            insert: Any = txn.sql("INSERT INTO t (v, k) SELECT upper(v), k + :n FROM u", {"n": 10})
            merge: Any = txn.sql(
                "MERGE INTO t USING (SELECT * FROM u WHERE k > :low) AS s ON t.k = s.k "
                "WHEN MATCHED AND s.v = :lo THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
                {"low": 2, "lo": "b"},
            )
            assert (update.rows_updated, delete.rows_deleted) == (1, 1)
            assert (insert.rows_inserted, merge.rows_updated, merge.rows_inserted) == (4, 1, 2)
            with pytest.raises(lv.InvalidOperation, match=r"2 columns .* returns 1"):
                txn.sql("INSERT INTO t SELECT k FROM u")
        assert sorted(told(lake, "SELECT k, v FROM t")) == [
            (0, "it's"), (2, "a"), (3, "b"), (4, "b"), (5, "b"),
            (12, "B"), (13, "B"), (14, "B"), (15, "B"),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT a, t.b FROM t WHERE c > 1", {"a", "b", "c", "t"}),
        ("SELECT count(*) FROM t", {"t"}),
        ("SELECT * FROM t", None),
        ("SELECT t.* FROM t", None),
        ("SELECT a FROM t NATURAL JOIN u", None),
        ("SELECT a FROM t JOIN u USING (k)", {"a", "t", "u", "k"}),
        ("SELECT a FROM t UNION SELECT * FROM u", None),
        ("SELECT x.y.z FROM (SELECT s AS x FROM t)", {"x", "y", "z", "s", "t"}),
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", None),
        ("FROM t |> WHERE a > 1", None),
        ('SELECT "a" FROM t', {"a", "t"}),  # a name, by spark.sql.ansi.doubleQuotedIdentifiers
        ("SELECT IDENTIFIER('a') FROM t", None),
        ("SELECT `(a|b)?` FROM t", None),  # by spark.sql.parser.quotedRegexColumnNames
        ("SELECT `a b` FROM t", {"a b", "t"}),
    ],
)
def test_columns_named_returns_all_columns_that_a_query_may_refer_to(
    query: str, named: set[str] | None
) -> None:
    found = columns_named(select_of(query, dialect="spark"))
    assert found == named if named is None else found is not None and found >= named


def test_a_query_reads_only_the_named_columns_from_the_files(
    spark: SparkSession, lake: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    python = lv.connect(lake.root, spark=spark, spark_reader="python")
    for one in (lake, python):
        with one.snapshot() as now:
            now.sql("SELECT k FROM orders WHERE g = 1").explain()
        plan = capsys.readouterr().out
        assert "k#" in plan
        assert "v#" not in plan


@pytest.mark.night
def test_predicates_with_nan_infinity_and_timestamps_find_the_same_rows_as_without_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    with lv.connect(tmp_path) as embedded:
        embedded.create_table("t", odd_parameters.ROWS)
    differing = {}
    with lv.connect(tmp_path, spark=spark) as lake, lake.snapshot() as now:
        for where, value, found in odd_parameters.FOUND:
            rows = now.read("t", ["id"], where, params={"v": value}).collect()
            if sorted(row.id for row in rows) != found:
                differing[where, repr(value)] = rows
        for where, value, message in odd_parameters.REFUSED:
            with pytest.raises(lv.InvalidOperation, match=re.escape(message)):
                now.read("t", where=where, params={"v": value})
    assert differing == {}
