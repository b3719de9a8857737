"""dbt-duckdb with the plugin: sources of a lake, and models that it stores there."""

from __future__ import annotations

import yaml

SOURCES = """
sources:
  - name: lake
    schema: sales
    config: {meta: {plugin: lakevilla}}
    tables:
      - name: orders
      - name: few
        config: {meta: {query: "select sku from sales.orders where qty < 2"}}
"""
REPORT = """
{{ config(materialized='external', plugin='lakevilla', location='LOCATION') }}
select o.sku, o.qty
from {{ source('lake', 'orders') }} o join {{ source('lake', 'few') }} using (sku)
"""


def test_a_model_reads_sources_of_a_lake_and_is_stored_in_it(shop) -> None:
    rows = [{"sku": "tea", "qty": 2}, {"sku": "jam", "qty": 1}]
    shop.lake.create_table("sales/orders", rows)
    plugin = {
        "module": "dbt.adapters.lakevilla.duckdb_plugin",
        "alias": "lakevilla",
        "config": {"root": shop.root},
    }
    target = {"type": "duckdb", "path": str(shop.directory / "dev.duckdb"), "schema": "shop"}
    outputs = {"dev": {**target, "plugins": [plugin]}}
    location = str(shop.directory / "report.parquet")
    shop.write(
        {
            "profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": outputs}}),
            "models/sources.yml": SOURCES,
            "models/report.sql": REPORT.replace("LOCATION", location),
        }
    )
    for _ in range(2):
        shop.build()
        assert shop.rows("select * from shop.report") == [("jam", 1)]


def test_a_plugin_without_a_root_is_refused(shop) -> None:
    plugin = {"module": "dbt.adapters.lakevilla.duckdb_plugin", "config": {"path": "x"}}
    outputs = {"dev": {"type": "duckdb", "schema": "shop", "plugins": [plugin]}}
    shop.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": outputs}})})
    done = shop.dbt("build")
    assert not done.success
    assert "needs root; it was given path" in str(done.exception)
