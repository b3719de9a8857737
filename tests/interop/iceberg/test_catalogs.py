"""Use tables of pyiceberg's catalogs in transactions: SQL over SQLite, and a real REST server."""

from __future__ import annotations

import gzip
import os
import pickle
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.api.spark.source import tables as source_tables
from lakevilla.api.spark.source import work as reading
from lakevilla.api.spark.source.writing import work as writing
from lakevilla.cli.app import app
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from lakevilla.engines.spark.rows import spark_schema
from lakevilla.engines.spark.tasks import LakeAddress
from lakevilla.store.location import root_location
from tests.fixtures.catalogs import RestServer
from tests.support.gateway import Gateway
from tests.support.inside import inside
from tests.support.stores import Dying, interrupted
from tests.support.tables import contents, kinds

Rows = list[tuple[int, int]]
#: Features of a commit through the table's own log, and of one that HEAD decides.
ENTRY, ALL = lv.Feature.R, lv.Feature.R | lv.Feature.I
FAST = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.01, publish_timeout_seconds=1.0)


def table_of(rows: Rows) -> pa.Table:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema)


@dataclass
class Place:
    """A lake, and a catalog with a table ``orders``."""

    root: Path
    catalog: Catalog
    given: Any
    namespace: str
    gateway: Gateway | None = None

    @property
    def orders(self) -> str:
        return f"prod.{self.namespace}.orders"

    def connect(self, **named: Any) -> lv.Lake:
        return lv.connect(
            str(self.root / "lake"), catalogs={"prod": self.given}, settings=FAST, **named
        )

    def table(self) -> Any:
        return self.catalog.load_table((self.namespace, "orders"))

    def seen(self) -> Rows:
        """Return the rows that pyiceberg reads through the catalog."""
        rows = self.table().scan().to_arrow().to_pylist()
        return sorted((row["k"], row["v"]) for row in rows)

    def append(self, rows: Rows) -> None:
        self.table().append(table_of(rows))


def rows_in(lake: lv.Lake, name: str) -> Rows:
    return sorted((row["k"], row["v"]) for row in lake.snapshot().read(name).to_pylist())


def filled(place: Place) -> Place:
    place.catalog.create_namespace(place.namespace)
    table = place.catalog.create_table((place.namespace, "orders"), table_of([]).schema)
    table.append(table_of([(1, 10), (2, 20)]))
    return place


def in_sqlite(directory: Path) -> Place:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{directory}/catalog.db",
        "warehouse": f"file://{directory}/warehouse",
    }
    return filled(Place(directory, load_catalog("prod", **properties), properties, "sales"))


def over_rest(directory: Path, server: RestServer) -> Iterator[Place]:
    gateway = Gateway(server.uri)
    catalog = load_catalog("prod", type="rest", uri=server.uri)
    properties = {"type": "rest", "uri": gateway.endpoint}
    yield filled(Place(directory, catalog, properties, f"n{uuid.uuid4().hex[:8]}", gateway))
    gateway.close()


@pytest.fixture
def sql(tmp_path: Path) -> Place:
    return in_sqlite(tmp_path)


@pytest.fixture
def rest(tmp_path: Path, rest_server: RestServer) -> Iterator[Place]:
    yield from over_rest(tmp_path, rest_server)


@pytest.fixture(params=["sql", "rest"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


# -- what works ------------------------------------------------------------------------


def test_a_transaction_changes_a_catalog_table_and_a_delta_table(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("stock", table_of([(1, 5)]))
        with lake.transaction() as txn:
            txn.append(place.orders, table_of([(3, 30)]))
            txn.update("stock", {"v": "v - 1"}, where="k = 1")
        with lake.transaction() as txn:
            txn.update(place.orders, {"v": "v + 1"}, where="k = 1")
            txn.delete(place.orders, where="k = 2")
            assert txn.sql(f"SELECT sum(v) AS s FROM {place.orders}").to_pylist() == [{"s": 41}]
        assert rows_in(lake, "stock") == [(1, 4)]
        assert rows_in(lake, place.orders) == [(1, 11), (3, 30)]
    assert place.seen() == [(1, 11), (3, 30)]


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_writes_of_catalog_clients_between_transactions_are_kept(
    place: Place, features: lv.Feature
) -> None:
    with place.connect() as lake:
        with lake.transaction(features=features) as txn:
            txn.append(place.orders, table_of([(3, 30)]))
            place.append([(4, 40)])
        with lake.transaction(features=features) as txn:
            txn.update(place.orders, {"v": "v + 1"}, where="k = 1")
            place.append([(5, 50)])
            with place.table().update_spec() as update:  # a version without a snapshot
                update.add_field("k", "identity", "k")
    assert place.seen() == [(1, 11), (2, 20), (3, 30), (4, 40), (5, 50)]


def test_a_foreign_change_of_the_same_rows_is_a_conflict(place: Place) -> None:
    with place.connect() as lake:
        txn = lake.transaction().__enter__()
        (row,) = txn.read(place.orders, where="k = 1").to_pylist()
        place.table().delete("k = 1")
        txn.append(place.orders, table_of([(9, row["v"])]))
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert place.seen() == [(2, 20)]


def test_a_commit_succeeds_though_another_client_sets_a_property_before_it(place: Place) -> None:
    """Setting a property moves no branch, so the catalog accepts the commit on top of it."""
    with place.connect() as lake:

        def set_property() -> None:
            with place.table().transaction() as change:
                change.set_properties(owner="them")

        with (
            interrupted(lake, lambda key: key.startswith("catalog://"), set_property),
            lake.transaction() as txn,
        ):
            txn.append(place.orders, table_of([(3, 30)]))
        with lake.transaction() as txn:
            txn.update(place.orders, {"v": "0"}, where="k = 3")
    assert place.seen() == [(1, 10), (2, 20), (3, 0)]
    assert place.table().properties["owner"] == "them"


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_commit_keeps_a_rollback_that_another_client_made_before_it(
    place: Place, features: lv.Feature
) -> None:
    """A rollback makes no snapshot: the catalog sees it only by the state of the main branch."""
    first = place.table().current_snapshot().snapshot_id
    place.append([(3, 30)])

    def roll_back() -> None:
        table = place.table()
        back = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first)
        place.catalog.commit_table(table, (), (back,))

    with (
        place.connect() as lake,
        interrupted(lake, lambda key: key.startswith("catalog://"), roll_back),
        lake.transaction(features=features) as txn,
    ):
        txn.append(place.orders, table_of([(4, 40)]))
    assert place.seen() == [(1, 10), (2, 20), (4, 40)]


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_commit_is_retried_if_another_client_writes_to_another_branch_before_it(
    place: Place, features: lv.Feature
) -> None:
    """That write takes the sequence number, and moves no branch on which the commit relies."""
    place.table().manage_snapshots().create_branch(
        place.table().current_snapshot().snapshot_id, "side"
    ).commit()

    def write() -> None:
        place.table().append(table_of([(7, 70)]), branch="side")

    with (
        place.connect() as lake,
        interrupted(lake, lambda key: key.startswith("catalog://"), write),
        lake.transaction(features=features) as txn,
    ):
        txn.append(place.orders, table_of([(4, 40)]))
    assert place.seen() == [(1, 10), (2, 20), (4, 40)]
    side = place.table().scan().use_ref("side").to_arrow()
    assert sorted(side["k"].to_pylist()) == [1, 2, 7]


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_transaction_fails_as_a_whole_if_another_client_renames_its_catalog_table(
    place: Place, features: lv.Feature
) -> None:
    name = (place.namespace, "orders")
    with place.connect() as lake:
        lake.create_table("stock", table_of([(1, 5)]))
        lake.register("orders", place.orders)
        txn = lake.transaction(features=features).__enter__()
        txn.append("orders", table_of([(3, 30)]))
        if features is ALL:
            txn.update("stock", {"v": "0"}, where="k = 1")
        place.catalog.rename_table(name, (place.namespace, "away"))
        with pytest.raises(lv.LakeVillaError):
            txn.commit()
        assert rows_in(lake, "stock") == [(1, 5)]
        with pytest.raises(lv.TableNotFound, match="catalog"):
            lake.snapshot().read("orders")
    place.catalog.rename_table((place.namespace, "away"), name)
    assert place.seen() == [(1, 10), (2, 20)]
    with place.connect() as lake:
        assert rows_in(lake, "orders") == place.seen()


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_table_recreated_up_to_the_same_version_is_another_table(
    place: Place, features: lv.Feature
) -> None:
    with place.connect() as lake:
        with pytest.raises(lv.LakeVillaError), lake.transaction(features=features) as txn:
            total = sum(row["v"] for row in txn.read(place.orders).to_pylist())
            txn.append(place.orders, table_of([(9, total)]))
            place.catalog.drop_table((place.namespace, "orders"))
            table = place.catalog.create_table((place.namespace, "orders"), table_of([]).schema)
            table.append(table_of([(7, 70)]))
    assert place.seen() == [(7, 70)]


def test_many_writers_through_a_catalog_lose_no_row_and_repeat_none(place: Place) -> None:
    def write(features: lv.Feature, first: int) -> None:
        with place.connect() as lake:
            for number in range(first, first + 4):
                with lake.transaction(features=features) as txn:
                    txn.append(place.orders, table_of([(number, 0)]))

    writers = [
        threading.Thread(target=write, args=(features, first))
        for features, first in ((ALL, 100), (ALL, 200), (ENTRY, 300))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with place.connect() as lake, lake.transaction() as txn:
        txn.append(place.orders, table_of([(999, 0)]))
    wanted = [(first + n, 0) for first in (100, 200, 300) for n in range(4)]
    assert place.seen() == sorted([(1, 10), (2, 20), (999, 0), *wanted])


def test_alterations_are_committed_through_the_catalog(place: Place) -> None:
    added = pa.schema([("note", pa.string())])
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.alter(place.orders, add_columns=added, set_properties={"owner": "us"})
            txn.append(place.orders, [{"k": 3, "v": 30, "note": "x"}])
        with lake.transaction() as txn:
            txn.alter(place.orders, drop_columns=["note"], unset_properties=["owner"])
            txn.append(place.orders, table_of([(4, 40)]))
        assert rows_in(lake, place.orders) == place.seen()
    table = place.table()
    assert [field.name for field in table.schema().fields] == ["k", "v"]
    assert "owner" not in table.properties
    assert table.current_snapshot().schema_id == table.metadata.current_schema_id
    assert place.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]


def _append(txn: lv.Transaction[Any], orders: str) -> None:
    txn.append(orders, table_of([(3, 30)]))


def _read(txn: lv.Transaction[Any], orders: str) -> None:
    txn.append("stock", txn.read(orders, where="k = 1"))


def _insert(txn: lv.Transaction[Any], orders: str) -> None:
    txn.sql(f"INSERT INTO stock SELECT * FROM {orders} WHERE k <> 2")


@pytest.mark.parametrize("change", [_append, _read, _insert])
@pytest.mark.parametrize("defer", [False, True], ids=["at once", "deferred"])
def test_another_client_resumes_a_transaction_on_a_catalogs_table_that_is_new_to_the_lake(
    sql: Place, change: Callable[[lv.Transaction[Any], str], None], defer: bool
) -> None:
    """HEAD doesn't say yet that the table is in a catalog: the saved transaction does."""
    with sql.connect() as lake:
        lake.create_table("stock", table_of([]).schema)
        txn = lake.transaction(defer=defer)
        change(txn, sql.orders)
        txn.save()
    sql.append([(4, 40)])  # a redo reads the table's present files
    with sql.connect() as other:
        other.resume(txn.id).commit()
        stock: dict[Any, Rows] = {_append: [], _read: [(1, 10)], _insert: [(1, 10), (4, 40)]}
        assert rows_in(other, "stock") == stock[change]
    assert sql.seen() == [(1, 10), (2, 20), *([(3, 30)] if change is _append else []), (4, 40)]


def test_several_schemas_of_one_commit_have_the_lake_s_numbers_in_the_catalog(place: Place) -> None:
    """The snapshot names its schema by the lake's number; other clients read old versions by it."""
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.alter(place.orders, add_columns=pa.schema([("x", pa.string())]))
            txn.append(place.orders, [{"k": 3, "v": 30, "x": "x", "y": 3}], schema_mode="merge")
        first = place.table().current_snapshot().snapshot_id
        with lake.transaction() as txn:
            txn.alter(place.orders, add_columns=pa.schema([("z", pa.string())]))
            txn.alter(place.orders, rename_columns={"z": "w"})
            txn.alter(place.orders, rename_columns={"w": "z"})
            txn.append(place.orders, [{"k": 4, "v": 40, "z": "z"}])
        with lake.transaction() as txn:
            txn.alter(place.orders, drop_columns=["x", "y", "z"])
        assert rows_in(lake, place.orders) == place.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]
    table = place.table()
    columns = {
        one.schema_id: [field.name for field in one.fields] for one in table.metadata.schemas
    }
    assert sorted(columns) == [0, 1, 2, 3, 4]
    named = [columns[one.schema_id] for one in table.metadata.snapshots]
    assert [len(one) for one in named] == [2, 4, 5, 2]
    assert table.schema().as_struct() == table.metadata.schema_by_id(0).as_struct()
    then = table.scan(snapshot_id=first, row_filter="k = 3").to_arrow()
    assert then.to_pylist() == [{"k": 3, "v": 30, "x": "x", "y": 3}]


def test_a_table_that_is_replaced_twice_by_one_commit_may_lose_a_column_of_the_first_partitions(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.session().sql(
            f"BEGIN; CREATE OR REPLACE TABLE {place.orders} PARTITIONED BY (d) "
            "AS SELECT CAST(7 AS BIGINT) AS k, 'q' AS d; "
            f"CREATE OR REPLACE TABLE {place.orders} PARTITIONED BY (bucket(4, k)) "
            "AS SELECT CAST(8 AS BIGINT) AS k, CAST(80 AS BIGINT) AS v; COMMIT"
        )
        lake.run(lambda txn: txn.append(place.orders, [{"k": 9, "v": 90}]))
        assert rows_in(lake, place.orders) == place.seen() == [(8, 80), (9, 90)]
    table = place.table()
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
    assert table.scan(row_filter="k = 9").to_arrow()["v"].to_pylist() == [90]


def test_a_replaced_table_gets_its_new_partitions_and_no_sort_order(place: Place) -> None:
    with place.table().update_sort_order() as order:
        order.asc("v", IdentityTransform())
    with place.connect() as lake:
        lake.session().sql(
            f"CREATE OR REPLACE TABLE {place.orders} PARTITIONED BY (d, bucket(4, k)) "
            "AS SELECT CAST(7 AS BIGINT) AS k, 'q' AS d"
        )
        lake.run(lambda txn: txn.append(place.orders, [{"k": 8, "d": "q"}, {"k": 9, "d": "r"}]))
        lake.session().sql(f"CREATE OR REPLACE TABLE {place.orders} (k BIGINT, v STRING)")
        lake.run(lambda txn: txn.append(place.orders, [{"k": 1, "v": "x"}]))
        lake.session().sql(
            f"CREATE OR REPLACE TABLE {place.orders} PARTITIONED BY (bucket(4, k)) "
            "AS SELECT CAST(7 AS BIGINT) AS k, 'q' AS v"
        )
    with place.connect() as lake:
        assert lake.read(place.orders).to_pylist() == [{"k": 7, "v": "q"}]
    table = place.table()
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
    assert table.sort_order().fields == []
    assert table.scan(row_filter="k = 7").to_arrow().to_pylist() == [{"k": 7, "v": "q"}]
    manifests = table.current_snapshot().manifests(table.io)
    added = {one.partition_spec_id for one in manifests if one.has_added_files()}
    assert added == {table.spec().spec_id}


def test_a_registered_name_works_for_each_client_that_has_the_catalog(place: Place) -> None:
    with place.connect() as lake:
        lake.register("orders", place.orders)
    with place.connect() as lake:
        for features in (ENTRY, ALL):
            with lake.transaction(features=features) as txn:
                txn.append("orders", table_of([(3, 30)]))
        assert lake.table("orders").format == "iceberg"
        copy = pickle.loads(pickle.dumps(lake))
        assert rows_in(copy, "orders") == [(1, 10), (2, 20), (3, 30), (3, 30)]
        lake.unregister("orders")
    with lv.connect(str(place.root / "other"), catalogs={"prod": place.given}) as other:
        other.register("orders", place.orders)
        assert len(rows_in(other, "orders")) == 4


def test_the_command_line_takes_catalogs_by_options(sql: Place) -> None:
    root = str(sql.root / "lake")
    told = [f"--option=catalog.prod.{name}={value}" for name, value in sql.given.items()]
    for command in (
        ["register", root, "orders", sql.orders],
        ["sql", root, "UPDATE orders SET v = 0 WHERE k = 1", "--write"],
        ["doctor", root],
    ):
        done = CliRunner().invoke(app, [*command, *told])
        assert done.exit_code == 0, done.output
    assert sql.seen() == [(1, 0), (2, 20)]


class DataSource:
    """Run Spark's ``format("lakevilla")``, each step of it in a new process."""

    def __init__(self, place: Place, catalogs: dict[str, Any]) -> None:
        self.root = root_location(str(place.root / "lake")).uri
        address = LakeAddress(self.root, None, FAST)
        self.lakes = pickle.dumps({self.root: source_tables.Access(address, catalogs=catalogs)})

    def write(self, table: str, rows: Rows) -> None:
        options, columns = {"lake": self.root, "path": table}, spark_schema(table_of([]).schema)
        state = self.step(writing.plan, self.lakes, options, columns, overwrite=False)
        batches = table_of(rows).to_batches()
        message = self.step(writing.written, state, iter(batches))
        self.step(writing.commit, state, [message])

    def read(self, table: str, **given: str) -> Rows:
        bound = self.step(reading.bound, self.lakes, {"lake": self.root, "table": table, **given})
        kind, state, _ = self.step(reading.reader, bound, reading.schema(bound))
        parts = self.step(reading.partitions, kind, state)
        batches = [batch for part in parts for batch in self.step(reading.rows, kind, state, part)]
        return sorted((row["k"], row["v"]) for batch in batches for row in batch.to_pylist())

    def step(self, part: Callable[..., Any], *args: Any, **given: Any) -> Any:
        source_tables._opened.cache_clear()
        return part(*args, **given)


def test_the_data_source_uses_the_catalogs_of_its_session(sql: Place) -> None:
    with sql.connect() as lake:
        lake.create_table("other", table_of([]))
    source = DataSource(sql, {"prod": sql.given})
    assert source.read(sql.orders) == [(1, 10), (2, 20)]
    source.write(sql.orders, [(3, 30)])
    assert sql.seen() == source.read(sql.orders) == [(1, 10), (2, 20), (3, 30)]
    source.write(sql.orders, [(4, 40)])
    assert source.read(sql.orders, startingVersion="3") == [(4, 40)]
    with pytest.raises(
        lv.TableNotFound, match=r"table prod\.sales\.absent does not exist in its catalog"
    ):
        source.write("prod.sales.absent", [(3, 30)])
    assert sql.given["uri"] not in repr(pickle.loads(source.lakes))


@pytest.mark.parametrize("spelled", ["prod.sales.orders", "prod/sales/orders"])
def test_the_data_source_makes_no_table_under_the_name_of_a_catalog_s_table(
    sql: Place, spelled: str
) -> None:
    with sql.connect() as lake, lake.transaction() as txn:
        txn.append(sql.orders, table_of([(3, 30)]))
    with pytest.raises(lv.InvalidOperation, match=f"{spelled} of the lake is in a catalog that"):
        DataSource(sql, {}).write(spelled, [(4, 40)])
    DataSource(sql, {}).write("dev.sales.orders", [(4, 40)])
    assert sql.seen() == [(1, 10), (2, 20), (3, 30)]


def test_a_snapshot_of_the_past_reads_an_old_version_from_the_catalog(place: Place) -> None:
    with place.connect() as lake:
        for value in (30, 31):
            with lake.transaction() as txn:
                txn.append(place.orders, table_of([(3, value)]))
        then = lake.snapshot(version=1)
        assert sorted(row["v"] for row in then.read(place.orders).to_pylist()) == [10, 20, 30]


def test_a_transaction_skips_expired_snapshots_of_the_catalog(sql: Place) -> None:
    with sql.connect() as lake:
        with lake.transaction() as txn:
            txn.append(sql.orders, table_of([(3, 30)]))
        sql.append([(4, 40)])
        sql.append([(5, 50)])
        table = sql.table()
        last = table.current_snapshot().snapshot_id
        gone = [one for one in table.snapshots() if one.snapshot_id != last]
        table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in gone]).commit()
        for one in gone:  # the file that Spark deletes when it expires a snapshot
            os.unlink(one.manifest_list.removeprefix("file://"))
        with lake.transaction() as txn:
            txn.update(sql.orders, {"v": "v + 1"}, where="k = 3")
    assert sql.seen() == [(1, 10), (2, 20), (3, 31), (4, 40), (5, 50)]


def test_compressed_metadata_of_a_catalog_is_read(sql: Place) -> None:
    location = sql.table().metadata_location.removeprefix("file://")
    compressed = location.replace(".metadata.json", ".gz.metadata.json")
    Path(compressed).write_bytes(gzip.compress(Path(location).read_bytes()))
    sql.catalog.drop_table("sales.orders")
    sql.catalog.register_table("sales.orders", f"file://{compressed}")
    with sql.connect() as lake, lake.transaction() as txn:
        txn.append(sql.orders, table_of([(3, 30)]))
    assert sql.seen() == [(1, 10), (2, 20), (3, 30)]


def in_spark(rest: Place, spark: SparkSession) -> tuple[str, str]:
    """Configure the same catalog in the Spark session; return its name, and the table's."""
    name = f"rest_{rest.namespace}"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "rest")
    spark.conf.set(f"spark.sql.catalog.{name}.uri", rest.given["uri"])
    spark.conf.set(f"spark.sql.catalog.{name}.cache-enabled", "false")
    return name, f"{name}.{rest.namespace}.orders"


def test_spark_maintains_a_table_while_transactions_change_it(
    rest: Place, spark: SparkSession
) -> None:
    """Rewrite rows, data files, manifests, snapshots and orphans at once; the loser of a race
    retries.
    """
    catalog, orders = in_spark(rest, spark)
    table = f"table => '{rest.namespace}.orders'"
    upkeep = [
        f"CALL {catalog}.system.rewrite_data_files({table}, options => map('rewrite-all', 'true'))",
        f"CALL {catalog}.system.rewrite_manifests({table})",
        f"CALL {catalog}.system.expire_snapshots({table}, "
        "older_than => TIMESTAMP '2999-01-01', retain_last => 2)",
        f"CALL {catalog}.system.remove_orphan_files({table})",
    ]
    done: Counter[str] = Counter()
    kept: Rows = []
    lost: list[str] = []
    replayed: list[str] = []

    def maintain() -> None:
        for number in range(2):
            for statement in (f"INSERT INTO {orders} VALUES ({1000 + number}, 0)", *upkeep):
                try:
                    spark.sql(statement)
                except Exception as error:
                    lost.append(str(error))
                    continue
                done[statement.split("(")[0]] += 1
                if statement.startswith("INSERT"):
                    kept.append((1000 + number, 0))

    with rest.connect() as lake:
        spark_at_work = threading.Thread(target=maintain)
        spark_at_work.start()
        changed = updated = 0
        while spark_at_work.is_alive() or changed < 3:

            def change(txn: lv.Transaction, number: int = changed) -> None:
                txn.append(rest.orders, table_of([(100 + number, 0)]))
                if number % 6 == 0:  # Spark's rewrite conflicts with a commit that removes a file
                    txn.update(rest.orders, {"v": "v + 1"}, where="k = 1")

            try:
                lake.run(change)
            except lv.ForeignConflict as conflict:  # committed; Spark was first in the table's log
                replayed.append(str(conflict))
            updated += changed % 6 == 0
            changed += 1
        spark_at_work.join()
        expected = [(1, 10 + updated), (2, 20), *((100 + n, 0) for n in range(changed)), *kept]
        assert rows_in(lake, rest.orders) == sorted(expected)
        assert rest.seen() == sorted(expected)
    assert all("replayed on the changed rows" in conflict for conflict in replayed), replayed
    # Spark gives up where a transaction committed first; it finds every file that it has listed.
    assert not any("NotFound" in error or "does not exist" in error for error in lost), lost
    assert len(done) >= 4, done


def test_spark_writes_the_same_table_through_the_catalog(rest: Place, spark: SparkSession) -> None:
    _, orders = in_spark(rest, spark)
    with rest.connect() as lake:
        with lake.transaction() as txn:
            txn.append(rest.orders, table_of([(3, 30)]))
            spark.sql(f"INSERT INTO {orders} VALUES (4, 40)")
        spark.sql(f"UPDATE {orders} SET v = v + 1 WHERE k = 1")
        with lake.transaction() as txn:
            txn.update(rest.orders, {"v": "v + 1"}, where="k <= 2")
        expected = [(1, 12), (2, 21), (3, 30), (4, 40)]
        assert rows_in(lake, rest.orders) == expected
    assert sorted((row.k, row.v) for row in spark.table(orders).collect()) == expected
    with lv.connect(
        str(rest.root / "lake"), spark=spark, catalogs={"prod": rest.given}, settings=FAST
    ) as lake:
        with lake.transaction() as txn:
            txn.append(rest.orders, spark.createDataFrame([(5, 50)], "k bigint, v bigint"))
        frame = lake.snapshot().read(rest.orders)
        assert sorted((row.k, row.v) for row in frame.collect()) == [*expected, (5, 50)]


def test_a_session_passes_its_catalogs_to_the_data_source(sql: Place, spark: SparkSession) -> None:
    root, given = str(sql.root / "lake"), {"prod": sql.given}
    with lv.connect(root, spark=spark, catalogs=given, settings=FAST) as lake:
        third = spark.createDataFrame([(3, 30)], "k bigint, v bigint").coalesce(1)
        third.write.format("lakevilla").mode("append").option("lake", lake.root).save(sql.orders)
    assert sql.seen() == [(1, 10), (2, 20), (3, 30)]


# -- failures --------------------------------------------------------------------------


class Flaky(SqlCatalog):
    """Raise once that the outcome of a commit is unknown."""

    fails: str | None = None

    def commit_table(self, *given: Any) -> Any:
        failing, self.fails = self.fails, None
        if failing == "before":
            raise CommitStateUnknownException("nobody knows")
        done = super().commit_table(*given)
        if failing == "after":
            raise CommitStateUnknownException("nobody knows")
        return done


def fail_once(place: Place, when: str) -> Callable[[], object]:
    """Let the next commit fail with an error, before or after the catalog has performed it."""
    gateway = place.gateway
    if gateway is None:
        flaky = Flaky("prod", **place.catalog.properties)
        flaky.fails = when
        place.given = flaky
        return lambda: flaky.fails
    left = [when]

    def fails(method: str, path: str) -> tuple[int, bool] | None:
        if method == "POST" and path.endswith("/orders") and left:
            return 500, left.pop() == "after"
        return None

    gateway.fails = fails
    return lambda: left


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_outcome_the_catalog_does_not_know_takes_effect_once(
    place: Place, when: str, features: lv.Feature
) -> None:
    left = fail_once(place, when)
    with place.connect() as lake, lake.transaction(features=features) as txn:
        txn.append(place.orders, table_of([(3, 30)]))
        txn.update(place.orders, {"v": "v + 1"}, where="k = 1")
    assert not left()
    assert place.seen() == [(1, 11), (2, 20), (3, 30)]


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_commit_whose_answer_is_lost_and_that_other_commits_follow_takes_effect_once(
    rest: Place, features: lv.Feature
) -> None:
    gateway = rest.gateway
    assert gateway is not None

    def loses(method: str, path: str) -> bool:
        if method == "POST" and path.endswith("/orders"):
            gateway.loses = lambda method, path: False
            rest.append([(4, 40)])
            return True
        return False

    gateway.loses = loses
    with rest.connect() as lake, lake.transaction(features=features) as txn:
        txn.append(rest.orders, table_of([(3, 30)]))
    assert gateway.lost == 1
    assert rest.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_a_decided_commit_is_published_later_if_its_catalog_is_down(rest: Place) -> None:
    assert rest.gateway is not None
    events: list[lv.Event] = []
    with rest.connect(on_event=events.append) as lake:
        lake.create_table("stock", table_of([(1, 5)]))
        lake.register("orders", rest.orders)
        rest.gateway.fails = lambda method, path: (503, False) if method == "POST" else None
        with lake.transaction() as txn:
            txn.append("orders", table_of([(3, 30)]))
            txn.update("stock", {"v": "v - 1"}, where="k = 1")
        # The commit is decided, and readers of the lake see it; the catalog gets it once it is
        # reachable.
        assert rows_in(lake, "orders") == [(1, 10), (2, 20), (3, 30)]
        assert rows_in(lake, "stock") == [(1, 4)]
    assert rest.seen() == [(1, 10), (2, 20)]
    assert "retry" in kinds(events)
    rest.gateway.fails = lambda method, path: None
    with rest.connect() as lake, lake.transaction() as txn:
        txn.append("orders", table_of([(4, 40)]))
    assert rest.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_a_commit_decided_before_its_table_was_dropped_is_published_to_the_catalog(
    rest: Place,
) -> None:
    assert rest.gateway is not None
    with rest.connect() as lake:
        lake.register("orders", rest.orders)
        rest.gateway.fails = lambda method, path: (503, False) if method == "POST" else None
        with lake.transaction() as txn:
            txn.append("orders", table_of([(3, 30)]))
        with lake.transaction() as txn:
            txn.drop_table("orders")
    rest.gateway.fails = lambda method, path: None
    with rest.connect() as lake:
        assert lake.recover().ok
    assert rest.seen() == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize("status", [401, 403, 503])
def test_a_catalog_that_refuses_or_is_down_is_reported_with_the_table_s_name(
    rest: Place, status: int
) -> None:
    assert rest.gateway is not None
    with rest.connect() as lake:
        lake.register("orders", rest.orders)
        before = contents(rest.root / "lake")
        rest.gateway.fails = lambda method, path: (status, False)
        with (
            pytest.raises((lv.StoreError, lv.CommitOutcomeUnknown), match="orders"),
            lake.transaction(features=ENTRY) as txn,
        ):
            txn.append("orders", table_of([(3, 30)]))
        assert contents(rest.root / "lake") == before
    assert rest.seen() == [(1, 10), (2, 20)]


def test_an_unreachable_catalog_raises_a_store_error_naming_it(sql: Place) -> None:
    given = {"prod": {"type": "rest", "uri": "http://127.0.0.1:9"}}
    with (
        lv.connect(str(sql.root / "lake"), catalogs=given, settings=FAST) as lake,
        pytest.raises(lv.StoreError, match="prod"),
    ):
        lake.register("orders", sql.orders)


def test_a_request_to_a_catalog_that_never_answers_times_out(tmp_path: Path) -> None:
    settings = lv.Settings(request_timeout_seconds=0.2, retry_limit=2, retry_base_seconds=0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            lv.connect(
                str(tmp_path), catalogs={"prod": {"type": "rest", "uri": uri}}, settings=settings
            ) as lake,
            pytest.raises(lv.StoreError, match="no answer within"),
        ):
            lake.table("prod.sales.orders")


def test_a_request_to_a_rest_catalog_that_stops_answering_times_out(rest: Place) -> None:
    assert rest.gateway is not None
    settings = lv.Settings(request_timeout_seconds=0.3, retry_limit=2, retry_base_seconds=0.0)
    go_on = threading.Event()

    def silent(method: str, path: str) -> None:
        if path.endswith("/orders"):
            go_on.wait(20)

    with lv.connect(str(rest.root), catalogs={"prod": rest.given}, settings=settings) as lake:
        assert lake.table(rest.orders).version == 1
        rest.gateway.fails = silent
        try:
            with pytest.raises(lv.StoreError, match="orders"):
                lake.table(rest.orders)
        finally:
            go_on.set()


def test_invalid_catalog_properties_are_reported_at_the_first_use(tmp_path: Path) -> None:
    with (
        lv.connect(str(tmp_path), catalogs={"prod": {"type": "wrong"}}) as lake,
        pytest.raises(lv.InvalidOperation, match="'prod' can't be made"),
    ):
        lake.table("prod.sales.orders")


def test_a_client_without_the_catalog_of_a_table_gets_an_error_that_names_the_parameter(
    sql: Place,
) -> None:
    with sql.connect() as lake:
        lake.register("orders", sql.orders)
        lake.create_table("stock", table_of([(1, 5)]))
    for catalogs in ({}, {"other": sql.given}):
        with lv.connect(str(sql.root / "lake"), catalogs=catalogs) as lake:
            assert rows_in(lake, "stock") == [(1, 5)]
            with pytest.raises(lv.InvalidOperation, match="catalogs="):
                lake.table("orders")


@pytest.mark.parametrize(
    "catalogs",
    ["prod", {"a.b": {}}, {"": {}}, {"prod": 5}],
    ids=["no mapping", "dotted", "empty", "no catalog"],
)
def test_an_invalid_mapping_of_catalogs_is_refused(tmp_path: Path, catalogs: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="catalog"):
        lv.connect(str(tmp_path), catalogs=catalogs)


def test_a_table_that_its_catalog_lacks_is_not_created(place: Place) -> None:
    with place.connect() as lake:
        name = f"prod.{place.namespace}.none"
        with pytest.raises(lv.TableNotFound, match="catalog"):
            lake.table(name)
        with pytest.raises(lv.TableNotFound, match="create it by the catalog"):
            lake.create_table(name, table_of([]), format="iceberg")


def test_a_table_dropped_from_the_lake_stays_in_its_catalog(sql: Place) -> None:
    with sql.connect() as lake:
        lake.register("orders", sql.orders)
        with pytest.raises(lv.InvalidOperation, match="purge it with the catalog"):
            lake.drop_table("orders", delete_data=True)
        assert lake.table("orders").version == 1
        lake.drop_table("orders")
        with pytest.raises(lv.TableNotFound):
            lake.table("orders")
        assert sql.seen() == [(1, 10), (2, 20)]
        lake.register("orders", sql.orders)
        assert rows_in(lake, "orders") == sql.seen()


def test_a_vacuum_refuses_a_table_in_a_catalog(sql: Place) -> None:
    with sql.connect() as lake:
        lake.register("orders", sql.orders)
        for dry_run in (True, False):
            with pytest.raises(lv.UnsupportedTableFeature, match="it is in a catalog"):
                lake.table("orders").vacuum(dry_run=dry_run)
        assert rows_in(lake, "orders") == sql.seen()


def test_a_table_dropped_in_the_catalog_is_missing_and_a_recreated_one_is_not_taken_for_it(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.register("orders", place.orders)
        place.catalog.drop_table((place.namespace, "orders"))
        with pytest.raises(lv.LakeVillaError, match="orders"), lake.transaction() as txn:
            txn.append("orders", table_of([(3, 30)]))
        table = place.catalog.create_table((place.namespace, "orders"), table_of([]).schema)
        table.append(table_of([(7, 70)]))
        with pytest.raises(lv.LakeVillaError, match="orders"), lake.transaction() as txn:
            txn.append("orders", table_of([(3, 30)]))
    assert place.seen() == [(7, 70)]


def test_a_table_whose_location_has_changed_is_refused(sql: Place) -> None:
    with sql.connect() as lake:
        lake.register("orders", sql.orders)
        moved = sql.catalog.create_table(
            "sales.moved", table_of([]).schema, location=f"file://{sql.root}/elsewhere"
        )
        sql.catalog.drop_table("sales.orders")
        sql.catalog.register_table("sales.orders", moved.metadata_location)
        with pytest.raises(lv.InvalidOperation, match="moved"):
            lake.table("orders")


def test_a_metadata_file_whose_name_has_no_number_is_refused(sql: Place) -> None:
    location = sql.table().metadata_location.removeprefix("file://")
    other = str(Path(location).with_name("latest.metadata.json"))
    Path(other).write_bytes(Path(location).read_bytes())
    sql.catalog.drop_table("sales.orders")
    sql.catalog.register_table("sales.orders", f"file://{other}")
    with sql.connect() as lake, pytest.raises(lv.UnsupportedTableFeature, match="no number"):
        lake.table(sql.orders)


def test_an_update_conflicts_with_a_concurrent_drop_of_its_column(place: Place) -> None:
    with place.connect() as lake:
        txn = lake.transaction().__enter__()
        txn.update(place.orders, {"v": "v + 1"}, where="k = 1")
        with place.table().update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("v")
            update.add_column("w", LongType())
        with pytest.raises(lv.LakeVillaError):
            txn.commit()
    assert sorted(place.table().scan().to_arrow()["k"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("features", [ENTRY, ALL], ids=["entry", "head"])
def test_a_crash_at_any_request_leaves_all_or_nothing(tmp_path: Path, features: lv.Feature) -> None:
    """Use one table in a catalog and, with HEAD, one in a directory; then another
    client commits.
    """
    point, done = 0, False
    while not done:
        (directory := tmp_path / str(point)).mkdir()
        place = in_sqlite(directory)
        with place.connect() as lake:
            lake.create_table("stock", table_of([(1, 5)]))
            lake.register("orders", place.orders)
        dead = place.connect()
        dying = Dying(inside(dead).store, point)
        inside(dead).store = dying
        try:
            with dead.transaction(features=features) as txn:
                txn.append("orders", table_of([(3, 30)]))
                txn.update("orders", {"v": "v + 1"}, where="k = 1")
                if features is ALL:
                    txn.update("stock", {"v": "v - 1"}, where="k = 1")
            dead.close()
        except Dying.Death:
            pass
        done = not dying.died
        with place.connect() as lake:
            with lake.transaction() as txn:
                txn.append("orders", table_of([(9, 90)]))
            orders, stock = rows_in(lake, "orders"), rows_in(lake, "stock")
        assert place.seen() == orders
        all_of_it = orders == [(1, 11), (2, 20), (3, 30), (9, 90)]
        assert all_of_it or orders == [(1, 10), (2, 20), (9, 90)], point
        if features is ALL:
            assert (stock == [(1, 4)]) == all_of_it, point
        point += 1
    assert all_of_it
    assert point > 6


# -- version 3 -------------------------------------------------------------------------


V3 = {"format-version": "3"}


def test_version_3_is_written_over_rest(rest: Place) -> None:
    """An upgrade by the lake, an append, a foreign commit to another branch, an append."""
    with rest.connect() as lake:
        with lake.transaction() as txn:
            txn.alter(rest.orders, set_properties=V3)
        assert rest.table().metadata.format_version == 3
        with lake.transaction() as txn:
            txn.append(rest.orders, table_of([(3, 30)]))
        assert rest.table().metadata.next_row_id == 3
        with lake.transaction(lv.Feature.R) as txn:
            txn.append(rest.orders, table_of([(4, 40), (5, 50)]))
        with lake.transaction() as txn:
            txn.delete(rest.orders, where="k IN (1, 2)")
        assert rest.table().metadata.next_row_id == 5
        with lake.transaction() as txn:
            txn.update(rest.orders, {"v": "0"}, where="k = 4")
        assert rows_in(lake, rest.orders) == [(3, 30), (4, 0), (5, 50)]
    assert rest.seen() == [(3, 30), (4, 0), (5, 50)]


def test_rows_are_marked_by_vectors_over_rest(rest: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 1.0, 2000, 1.0))
    modes = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
    with rest.connect() as lake:
        with lake.transaction() as txn:
            txn.alter(rest.orders, set_properties={**V3, **modes})
            txn.append(rest.orders, table_of([(3, 30), (4, 40), (5, 50)]))
        for features in (ALL, lv.Feature.R):
            with lake.transaction(features) as txn:
                txn.update(rest.orders, {"v": "v + 1"}, where="k = 3")
        with lake.transaction() as txn:
            txn.delete(rest.orders, where="k IN (1, 4)")
        assert rows_in(lake, rest.orders) == [(2, 20), (3, 32), (5, 50)]
    assert rest.seen() == [(2, 20), (3, 32), (5, 50)]
    found = rest.table().inspect.delete_files().to_pylist()
    assert {one["file_format"] for one in found} == {"PUFFIN"}


def test_a_commit_to_a_version_3_table_is_made_again_if_the_mark_has_moved(rest: Place) -> None:
    """Another branch took the ids: the server refuses the lower ones, and ``main`` is unmoved."""
    place = rest
    with place.connect() as lake, place.connect() as other:
        with other.transaction() as txn:
            txn.alter(place.orders, set_properties=V3)
            txn.append(place.orders, table_of([(3, 30)]))
        snapshot = place.table().current_snapshot()
        assert snapshot is not None

        def move_the_mark() -> None:
            """Commit, and set ``main`` back: the mark stays where the commit has moved it."""
            with other.transaction(lv.Feature.R) as own:
                own.append(place.orders, table_of([(9, 90), (10, 100)]))
            back = SetSnapshotRefUpdate(
                ref_name="main", type="branch", snapshot_id=snapshot.snapshot_id
            )
            place.catalog.commit_table(place.table(), (), (back,))

        with (
            interrupted(lake, lambda key: key.startswith("catalog://"), move_the_mark),
            lake.transaction(lv.Feature.R) as txn,
        ):
            txn.append(place.orders, table_of([(4, 40)]))
    assert place.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert place.table().metadata.next_row_id == 6


def test_version_3_is_refused_in_other_catalogs_before_anything_is_decided(sql: Place) -> None:
    with sql.connect() as lake:
        with lake.transaction() as txn:
            txn.append(sql.orders, table_of([(3, 30)]))
        before = lake.history()[0].version
        with pytest.raises(lv.UnsupportedTableFeature, match="at most version 2 in a catalog"):
            with lake.transaction() as txn:
                txn.alter(sql.orders, set_properties=V3)
        assert lake.history()[0].version == before
        assert "format version 3" in " ".join(lake.capabilities(sql.orders).guarantees)
        with lake.transaction() as txn:
            txn.append(sql.orders, table_of([(4, 40)]))
    assert sql.seen() == [(1, 10), (2, 20), (3, 30), (4, 40)]
