"""``txn.sql`` runs one statement over the lake's tables and the given frames alone."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import contents, in_order, values


def test_sql_statements_perform_the_operations_of_the_verbs(lake: lv.Lake, shop: Place) -> None:
    with lake.transaction() as txn:
        inserted: Any = txn.sql("insert into orders values (5, 'fig', 50), (6, 'nut', 60)")
        assert inserted.rows_inserted == 2
        some: Any = txn.sql("insert into orders (qty, id) select qty * 2, id + 100 from orders")
        assert some.rows_inserted == 6
        updated: Any = txn.sql("update orders as o set qty = o.qty + :n where o.id = 1", {"n": 5})
        assert updated.rows_updated == 1
        deleted: Any = txn.sql("delete from orders where id > :limit", {"limit": 101})
        assert deleted.rows_deleted == 5
        merged: Any = txn.sql(
            """
            merge into orders as o
            using (select sku, "left" from stock where "left" >= :least) as s
            on o.sku = s.sku and o.id <= 2
            when matched and s.left = 50 then update set qty = s.left
            when matched then delete
            when not matched then insert (id, sku, qty) values (1000 + s.left, s.sku, s.left)
            """,
            {"least": 50},
        )
        assert (merged.rows_updated, merged.rows_deleted, merged.rows_inserted) == (1, 1, 1)
        assert [type(operation).__name__ for operation in txn.operations] == [
            "Insert", "Insert", "Update", "Delete", "Merge"
        ]  # fmt: skip
    assert [row["id"] for row in shop.seen("orders")] == [1, 101, 1070, 3, 4, 5, 6]
    assert shop.seen("orders")[0] == {"id": 1, "sku": "apple", "qty": 50}


def test_a_select_joins_tables_views_and_parameters(lake: lv.Lake) -> None:
    wanted = pa.table({"sku": ["apple", "plum"]})
    with lake.transaction() as txn:
        rows: Any = txn.sql(
            """
            with big as (select * from orders where qty >= :least)
            select big.id, stock.left from big join stock using (sku)
            where sku in (select sku from wanted) order by 1
            """,
            {"least": 30},
            views={"wanted": wanted},
        )
    assert rows.to_pylist() == [{"id": 3, "left": 50}, {"id": 4, "left": 70}]


def test_a_view_hides_a_table_of_its_name(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        rows: Any = txn.sql("select id from orders", views={"orders": {"id": [77]}})
    assert rows["id"].to_pylist() == [77]


def test_a_view_is_the_source_of_an_insert_and_of_a_merge(lake: lv.Lake) -> None:
    frame = {"id": [1, 9], "n": [5, 6]}
    with lake.transaction() as txn:
        txn.sql("insert into orders (id, qty) select id + 10, n from v", views={"v": frame})
        txn.sql(
            "merge into orders using v on orders.id = v.id when matched then update set qty = v.n",
            views={"v": frame},
        )
    assert in_order(lake.snapshot().read("orders", ["id", "qty"], "id in (1, 11, 19)")) == [
        {"id": 1, "qty": 5}, {"id": 11, "qty": 5}, {"id": 19, "qty": 6}
    ]  # fmt: skip


def test_a_name_with_dots_means_a_path(lake: lv.Lake) -> None:
    lake.create_table("sales/eu/orders", {"id": [1]})
    with lake.transaction() as txn:
        txn.sql("insert into sales.eu.orders values (2)")
        txn.sql("update sales.eu.orders set id = id + 1 where orders.id = 2")
        assert values(txn.sql("select * from sales.eu.orders")) == [1, 3]
        assert values(txn.sql('select * from "sales/eu/orders"')) == [1, 3]


@pytest.mark.parametrize(
    "query",
    [
        "select * from '{file}'",
        "select * from read_parquet('{file}')",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')",
        "select * from 'https://example.com/x.parquet'",
        "select * from frame",
        "select getenv('HOME')",
        "select * from duckdb_settings()",
        "select * from query('select 1')",
        "select current_setting('home_directory')",
        "insert into orders select * from read_parquet('{file}')",
        "merge into orders using (select * from '{file}') as s on true when matched then delete",
        "copy orders to '/tmp/out.parquet'",
        "attach '/tmp/x.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma database_list",
        "create table x as select 1",
        "drop table orders",
        "truncate orders",
        "export database '/tmp/x'",
        "call pragma_version()",
        "select 1; select 2",
        "select 1; drop table orders",
        "explain select 1",
        "",
        ";",
        "selec 1",
        "select nope from orders",
        "select * from orders where",
    ],
)
def test_sql_that_reads_outside_the_lake_or_is_no_single_statement_is_refused(
    lake: lv.Lake, root: Path, query: str
) -> None:
    frame = pa.table({"secret": [1]})
    file = next(iter((root / "orders").glob("*.parquet")))
    before = contents(root)
    with lake.transaction() as txn:
        with pytest.raises((lv.InvalidOperation, lv.TableNotFound)) as caught:
            txn.sql(query.format(file=file))
        assert txn.operations == ()
    assert "Traceback" not in str(caught.value)
    assert contents(root) == before
    assert frame.num_rows == 1


SOURCES = [
    "insert into orders (id, qty) select {call}, 1",
    "insert into orders (id, qty) values ({call}, 1)",
    "insert into orders (id, qty) with x as (select {call} as y) select y, 1 from x",
    "merge into orders using (select {call} as x) as s on orders.id = s.x when matched then delete",
]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "call",
    ["random()", "Random ( )", "main.random()", '"random"()', "hash(uuid())", "gen_random_uuid()",
     "uuidv7()", "current_time", "localtimestamp", "txid_current()", "age(now())"],
)  # fmt: skip
def test_a_volatile_function_is_refused_in_a_source_that_may_be_run_again(
    lake: lv.Lake, source: str, call: str
) -> None:
    with lake.transaction() as txn, pytest.raises(lv.InvalidOperation) as caught:
        txn.sql(source.format(call=call))
    name = call.split("(")[-2 if call.startswith("hash") else 0].strip(' "').lower()
    assert name.removeprefix("main.") in str(caught.value)
    assert "params" in str(caught.value)


def test_a_sample_in_a_source_is_refused(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        for sample in ("using sample 2 rows", "tablesample 50%"):
            with pytest.raises(lv.InvalidOperation, match="sample"):
                txn.sql(f"insert into orders select * from orders {sample}")


def test_words_that_only_look_like_volatile_functions_are_allowed(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.sql("insert into orders select 7, 'random() now() current_time', 1")
        txn.sql('insert into orders (id, qty) select x."random", 1 from (select 8 as "random") x')
        days = "date '2024-01-03', date '2024-01-01'"
        txn.sql(f"insert into orders (id, qty) select 9, abs(datediff('day', {days}))")
        txn.sql(f"insert into orders select 10, cast(age({days}) as varchar), 1")
        # A plain SELECT is run only once, so it may have volatile functions.
        assert txn.sql("select random() < 2 as b")["b"].to_pylist() == [True]
    assert values(lake.snapshot().read("orders", where="id > 6")) == [7, 8, 9, 10]


def test_an_insert_from_a_query_is_redone_after_a_concurrent_commit(
    lake: lv.Lake, shop: Place
) -> None:
    with shop.connect() as other, lake.transaction() as txn:
        txn.sql("insert into stock select sku, qty from orders where id > 3")
        other.run(lambda theirs: theirs.append("orders", {"id": [5], "sku": ["nut"], "qty": [5]}))
    assert [row["sku"] for row in shop.seen("stock")] == [
        "apple", "nut", "pear", "plum", "plum"
    ]  # fmt: skip


def test_a_parameter_without_a_value_and_a_value_without_a_parameter_are_refused(
    lake: lv.Lake,
) -> None:
    with lake.transaction() as txn:
        for query, params in (
            ("select * from orders where id = :a", {}),
            ("select * from orders where id = :a", {"a": 1, "b": 2}),
            ("update orders set qty = :a", {}),
            ("update orders set qty = 1 where id = :a", {"a": 1, "b": 2}),
            ("delete from orders where id = :a", {"b": 1}),
            ("insert into orders (id) select :a", {}),
            ("insert into orders (id) values (:a)", {"a": 1, "b": 2}),
        ):
            with pytest.raises(lv.InvalidOperation, match=r"\b[ab]\b"):
                txn.sql(query, params)
        assert txn.operations == ()


def test_literals_of_an_insert_take_the_types_of_their_columns(quick_place: Place) -> None:
    lake = quick_place.connect()
    lake.create_table(
        "t", {"name": "string", "day": "date", "size": "double", "price": "decimal(9,2)"}
    )
    with lake.transaction() as txn:
        txn.sql("INSERT INTO t VALUES (NULL, '2026-01-31', 1.5, 1)")
        txn.sql("INSERT INTO t (price, name) VALUES (:price, :name)", {"price": 0.25, "name": None})
    assert in_order(lake.read("t")) == [
        {"name": None, "day": None, "size": None, "price": Decimal("0.25")},
        {"name": None, "day": date(2026, 1, 31), "size": 1.5, "price": Decimal("1.00")},
    ]
    for wrong, why in (
        ("INSERT INTO t (day) VALUES ('soon')", "which 'soon' is not"),
        ("INSERT INTO t (price) VALUES (1.555)", "cast"),
    ):
        with pytest.raises(lv.InvalidOperation, match=why) as caught, lake.transaction() as txn:
            txn.sql(wrong)
        assert caught.value.reason == "value"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT :a,:b", [(1, 2)]),
        ("VALUES (:a,:b),(:b,:a)", [(1, 2), (2, 1)]),
        ("SELECT :a+:b", [(3,)]),
        ("SELECT :a, :b, $t$:a,:b$t$", [(1, 2, ":a,:b")]),
        ("SELECT qty FROM stock WHERE qty IN (:a,:b)", []),
        (
            "SELECT count(*) FROM lakevilla_tables WHERE name IN ('stock',CAST(:a+:b AS VARCHAR))",
            [(1,)],
        ),
    ],
)
def test_parameters_may_be_written_without_spaces_between_them(
    tmp_path: Path, query: str, expected: list[tuple[Any, ...]]
) -> None:
    """The engine's parser would read ``$a,$b`` as the beginning of a dollar-quoted text."""
    lake = lv.connect(tmp_path)
    lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    rows = lake.sql(query, {"a": 1, "b": 2})
    assert [tuple(row.values()) for row in rows.to_pylist()] == expected
