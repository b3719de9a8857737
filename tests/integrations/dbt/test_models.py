"""Models of each kind: what a run leaves in the lake."""

from __future__ import annotations

import pyarrow as pa
import pytest

NEW = "1,tea,7,2024-02-28\n4,gin,3,2024-03-01\n"


def incremental(strategy: str, **config: object) -> dict[str, str]:
    """Return an incremental model over the orders, whose second run has two rows."""
    given = {"materialized": "incremental", "incremental_strategy": strategy, **config}
    settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return {"models/inc.sql": f"{{{{ config({settings}) }}}} select * from {{{{ ref('orders') }}}}"}


@pytest.mark.parametrize(
    ("strategy", "config", "expected"),
    [
        ("append", {}, [(1, 2), (1, 7), (2, 1), (4, 3)]),
        ("merge", {"unique_key": "id"}, [(1, 7), (2, 1), (4, 3)]),
        ("delete+insert", {"unique_key": ["id", "sku"]}, [(1, 7), (2, 1), (4, 3)]),
        ("insert_overwrite", {"partition_by": "day"}, [(1, 7), (2, 1), (4, 3)]),
        ("insert_overwrite", {}, [(1, 7), (4, 3)]),
    ],
)
def test_an_incremental_model_takes_new_rows_by_its_strategy(
    shop, strategy: str, config: dict, expected: list
) -> None:
    shop.write(incremental(strategy, **config))
    shop.build()
    shop.write({"seeds/orders.csv": f"id,sku,qty,day\n{NEW}"})
    shop.build()
    assert shop.rows("select id, qty from shop.inc order by all") == expected
    assert len(shop.lake["shop/inc"].history()) == 2


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_a_microbatch_model_replaces_the_rows_of_the_batches_that_run(shop, kind: str) -> None:
    batches = {"batch_size": "day", "begin": "2024-02-01", "event_time": "seen"}
    events = f"select id, qty, day::{kind} as seen from {{{{ ref('orders') }}}}"
    text = incremental("microbatch", **batches)["models/inc.sql"].replace("orders", "events")
    shop.write({"models/inc.sql": text})
    shop.write({"models/events.sql": f"{{{{ config(event_time='seen') }}}} {events}"})
    shop.build("--event-time-start", "2024-02-28", "--event-time-end", "2024-03-01")
    assert shop.rows("select id, qty from shop.inc order by id") == [(1, 2), (2, 1)]
    rows = "1,tea,7,2024-02-28\n2,jam,8,2024-02-29\n4,gin,3,2024-03-01\n"
    shop.write({"seeds/orders.csv": f"id,sku,qty,day\n{rows}"})
    shop.build("--event-time-start", "2024-02-29", "--event-time-end", "2024-03-02")
    assert shop.rows("select id, qty from shop.inc order by id") == [(1, 2), (2, 8), (4, 3)]


@pytest.mark.parametrize("kind", ["table", "view"])
def test_a_column_of_null_alone_is_text(shop, kind: str) -> None:
    query = 'select id, null as "a ""note" from {{ ref(\'orders\') }} order by id; -- all'
    shop.write({"models/noted.sql": f"{{{{ config(materialized='{kind}') }}}} {query}"})
    shop.build()
    rows = shop.lake.sql("select * from shop.noted order by id")
    assert rows.schema.field('a "note').type == pa.string()
    assert rows.to_pylist() == [{"id": one, 'a "note': None} for one in (1, 2)]


def test_a_column_of_an_incremental_model_becomes_no_type_of_another_kind(shop) -> None:
    model = incremental("append", on_schema_change="sync_all_columns")["models/inc.sql"]
    shop.write({"models/inc.sql": model.replace("*", "id")})
    shop.build("--select", "orders", "inc")
    shop.write({"models/inc.sql": model.replace("*", "sku as id")})
    assert not shop.dbt("run", "--select", "inc").success
    assert any("can't become string" in line for line in shop.said)
    assert shop.rows("select id from shop.inc order by id") == [(1,), (2,)]
    shop.build("--full-refresh", "--select", "inc")
    assert shop.rows("select id from shop.inc order by id") == [("jam",), ("tea",)]


def test_a_model_is_one_commit_that_names_it_and_keeps_its_history(shop) -> None:
    shop.build()
    shop.write({"models/stock.sql": "select 1 as other"})
    shop.build("--select", "stock")
    newest = shop.lake.history()[0]
    assert newest.metadata["dbt"] == "model.shop.stock"
    assert list(newest.tables) == ["shop/stock"]
    table = shop.lake["shop/stock"]
    assert [len(table.read(version=one).column_names) for one in (0, 1)] == [2, 1]


def test_a_model_that_fails_in_its_post_hook_leaves_its_table_as_it_was(shop) -> None:
    shop.build()
    hook = "{{ config(post_hook='select * from shop.not_there') }}"
    shop.write({"models/stock.sql": f"{hook} select 1 as other"})
    assert not shop.dbt("run").success
    assert sorted(shop.rows("select sku from shop.stock")) == [("jam",), ("tea",)]


def test_looking_at_a_table_that_is_not_there_undoes_nothing_of_a_model(shop) -> None:
    look = """
{{ config(pre_hook="insert into shop.orders values (9, 'oil', 1, date '2024-03-02')") }}
{% set gone = api.Relation.create(schema='shop', identifier='gone') %}
select {{ adapter.get_columns_in_relation(gone) | length }} as n
"""
    shop.build()
    shop.write({"models/looks.sql": look})
    shop.build("--select", "looks")
    assert shop.rows("select n from shop.looks") == [(0,)]
    assert (9,) in shop.rows("select id from shop.orders")


def test_a_model_becomes_a_view_and_a_table_again(shop) -> None:
    for kind in ("table", "view", "table"):
        text = "with c as (select 1 as n) select n, sku from c, {{ ref('orders') }}"
        shop.write({"models/both.sql": f"{{{{ config(materialized='{kind}') }}}} {text}"})
        shop.build()
        assert shop.rows("select n, sku from shop.both order by 2") == [(1, "jam"), (1, "tea")]
        assert ("shop/both" in shop.lake) or kind == "view"


def test_a_python_model_reads_refs_and_writes_rows_incrementally(shop) -> None:
    model = """
def model(dbt, session):
    dbt.config(materialized="incremental", unique_key="sku")
    orders = dbt.ref("orders")
    if dbt.is_incremental:
        return orders.filter("qty > 2").project("sku, qty").arrow()
    return session.sql("select sku, qty from orders")
"""
    shop.write({"models/by_python.py": model})
    shop.build()
    shop.write({"seeds/orders.csv": f"id,sku,qty,day\n{NEW}"})
    shop.build()
    rows = shop.rows("select * from shop.by_python order by 1")
    assert rows == [("gin", 3), ("jam", 1), ("tea", 7)]


def test_a_contract_is_enforced_by_the_table(shop) -> None:
    contract = """
models:
  - name: stock
    config: {contract: {enforced: true}}
    columns:
      - {name: sku, data_type: varchar, constraints: [{type: not_null}]}
      - {name: qty, data_type: bigint, constraints: [{type: check, expression: qty > 0}]}
"""
    model = "select sku, qty - LESS as qty from {{ ref('orders') }}"
    shop.write({"models/schema.yml": contract, "models/stock.sql": model.replace("LESS", "0")})
    shop.build()
    shop.write({"models/stock.sql": model.replace("LESS", "1")})
    done = shop.dbt("build")
    assert not done.success
    assert any("constraint" in line and "does not hold" in line for line in shop.said)
    assert sorted(shop.rows("select qty from shop.stock")) == [(1,), (2,)]


def test_grants_are_refused_by_name(shop) -> None:
    shop.write({"models/stock.sql": "{{ config(grants={'select': ['ann']}) }} select 1 as n"})
    assert not shop.dbt("build").success
    assert any("a lake has no grants" in line for line in shop.said)
