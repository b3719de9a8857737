"""Record what clients send to a gateway: ``python -m tests.contract.serve.record [CLIENT ...]``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import StringType

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.support.recorded import recording

RECORDED = Path(__file__).parent / "recorded"


def new_lake(root: Path) -> lv.Lake:
    """Return a new lake with the tables that every client finds."""
    lake = lv.connect(root)
    for name in ("stock", "sales/orders"):
        lake.create_table(name, {"id": [1, 2], "n": [10, 20]}, format="iceberg")
    return lake


def by_pyiceberg(uri: str) -> None:
    """Do what a program with pyiceberg does."""
    catalog = RestCatalog("lake", uri=uri, warehouse="lake")
    assert catalog.list_namespaces()
    assert catalog.list_tables("sales")
    catalog.create_namespace("lab", {"owner": "me"})
    catalog.update_namespace_properties("lab", removals={"owner"}, updates={"team": "etl"})
    assert catalog.load_namespace_properties("lab") == {"team": "etl"}
    rows = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]})
    table = catalog.create_table("lab.new", rows.schema)
    table.append(rows)
    table.delete("id = 2")
    table.overwrite(rows)
    with table.update_schema() as update:
        update.add_column("note", StringType())
    with table.transaction() as transaction:
        transaction.set_properties(team="etl")
    with table.manage_snapshots() as snapshots:
        current = table.current_snapshot()
        assert current is not None
        snapshots.create_tag(current.snapshot_id, "first")
    with catalog.create_table_transaction("lab.made", rows.schema) as transaction:
        transaction.append(rows)
    orders = catalog.load_table("sales.orders")
    orders.append(pa.table({"id": [3], "n": [30]}, schema=orders.schema().as_arrow()))
    assert catalog.table_exists("lab.new")
    catalog.rename_table("lab.new", "lab.renamed")
    catalog.drop_table("lab.renamed")
    catalog.purge_table("lab.made")
    catalog.drop_namespace("lab")


def by_duckdb(uri: str) -> None:
    """Do what a session of DuckDB does."""
    connection = Gateway(uri).duckdb()
    for statement in (
        "SELECT * FROM l.root.stock JOIN l.sales.orders USING (id)",
        "CREATE SCHEMA l.lab",
        "CREATE TABLE l.lab.new (id BIGINT, day DATE)",
        "INSERT INTO l.lab.new VALUES (1, DATE '2026-01-31'), (2, NULL)",
        "UPDATE l.lab.new SET id = 3 WHERE id = 2",
        "DELETE FROM l.lab.new WHERE id = 1",
        "BEGIN",
        "INSERT INTO l.root.stock VALUES (3, 30)",
        "INSERT INTO l.sales.orders VALUES (3, 30)",
        "COMMIT",
        "CREATE TABLE l.lab.made AS SELECT * FROM l.root.stock",
        "DROP TABLE l.lab.made",
        "DROP TABLE l.lab.new",
        "DROP SCHEMA l.lab",
    ):
        connection.execute(statement).fetchall()


def by_spark(uri: str) -> None:
    """Do what a session of Spark does."""
    from tests.fixtures.spark import start

    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri}
    settings |= {".warehouse": "lake", ".cache-enabled": "false"}
    with tempfile.TemporaryDirectory() as warehouse:
        spark = start(warehouse, **{f"spark.sql.catalog.l{k}": v for k, v in settings.items()})
        for statement in (
            "SHOW NAMESPACES IN l",
            "SELECT * FROM l.root.stock",
            "CREATE NAMESPACE l.lab",
            "CREATE TABLE l.lab.new (id BIGINT, n BIGINT) USING iceberg",
            "INSERT INTO l.lab.new VALUES (1, 1), (2, 2)",
            "UPDATE l.lab.new SET n = 5 WHERE id = 1",
            "DELETE FROM l.lab.new WHERE id = 2",
            "MERGE INTO l.lab.new t USING l.root.stock s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "ALTER TABLE l.lab.new ADD COLUMN note STRING",
            "ALTER TABLE l.lab.new SET TBLPROPERTIES ('team' = 'etl')",
            "ALTER TABLE l.lab.new CREATE TAG first",
            "CREATE TABLE l.lab.made USING iceberg AS SELECT * FROM l.root.stock",
            "CREATE OR REPLACE TABLE l.lab.made USING iceberg AS SELECT id FROM l.root.stock",
            "CALL l.system.expire_snapshots(table => 'lab.made', retain_last => 1)",
            "SHOW TABLES IN l.lab",
            "ALTER TABLE l.lab.new RENAME TO lab.renamed",
            "DROP TABLE l.lab.renamed",
            "DROP TABLE l.lab.made PURGE",
            "DROP NAMESPACE l.lab",
        ):
            spark.sql(statement).collect()
        spark.stop()


CLIENTS: dict[str, Callable[[str], None]] = {
    "pyiceberg": by_pyiceberg,
    "duckdb": by_duckdb,
    "spark": by_spark,
}


def main(names: list[str]) -> None:
    """Record the clients of these names, or all, each with a lake of its own."""
    for name in names or CLIENTS:
        with tempfile.TemporaryDirectory() as directory:
            with new_lake(Path(directory, "lake")) as lake, serving(lake) as gateway:
                with recording(gateway.uri, lake.root, RECORDED / f"{name}.jsonl") as uri:
                    CLIENTS[name](uri)


if __name__ == "__main__":
    main(sys.argv[1:])
