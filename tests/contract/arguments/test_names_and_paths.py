"""Names: odd ones work for every reader, dangerous ones are refused, one table has one identity."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.places import Place, make_place
from tests.support.tables import contents, values

ODD = [
    "with space",
    "100%",
    "a%20b",
    "naïve-übung",
    "表",
    "dots.in.name",
    "a+b&c=d",
    "it's",
    "x" * 80,
]


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.mark.parametrize("name", ODD)
def test_a_table_of_an_odd_name_is_read_and_written_by_all_clients(place: Place, name: str) -> None:
    table = f"nested dir/{name}"
    quoted = f"file://{quote(place.root)}/{quote(table)}"
    with place.connect() as lake:
        lake.create_table(table, {"id": [1], "v": ["a"]})
        if _opens(name):
            write_deltalake(quoted, pa.table({"id": [2], "v": ["b"]}), mode="append")
        else:
            lake.run(lambda txn: txn.append(table, {"id": [2], "v": ["b"]}))
        with lake.transaction() as txn:
            txn.append(table, {"id": [3], "v": ["c"]})
            txn.update(table, {"v": "v || '!'"}, "id = 2")
            assert txn.sql(f'select count(*) as n from "{table}"')["n"].to_pylist() == [3]
        assert lake.table(table).name == table
        rows = lake.snapshot().read(table)
    expected = [{"id": 1, "v": "a"}, {"id": 2, "v": "b!"}, {"id": 3, "v": "c"}]
    assert rows.sort_by("id").to_pylist() == expected
    if _opens(name):
        rows = DeltaTable(quoted).to_pyarrow_table()
        assert rows.sort_by("id").to_pylist() == expected


def _opens(name: str) -> bool:
    """Return whether deltalake finds such a directory: it decodes percent signs twice."""
    return "%20" not in name


@pytest.mark.parametrize("value", [*ODD, None, "a/b", "a=b", "../up", ".", "#?", "\\", "new\nline"])
def test_a_partition_value_is_read_by_all_clients_as_it_was_written(
    place: Place, value: Any
) -> None:
    rows = pa.table({"id": [1, 2], "part": pa.array([value, "other"], pa.string())})
    with place.connect() as lake:
        lake.create_table("t", rows, partition_by="part")
        with lake.transaction() as txn:
            txn.append("t", rows)
        where = "part is null" if value is None else "part = :value"
        params = None if value is None else {"value": value}
        found = lake.snapshot().read("t", where=where, params=params)
        assert found["id"].to_pylist() == [1, 1]
        with lake.transaction() as txn:
            assert txn.delete("t", where, params=params).rows_deleted == 2
    assert place.seen("t") == [{"id": 2, "part": "other"}] * 2
    outside = [path for path in Path(place.root).parent.iterdir() if path.name != "lake"]
    assert outside == []


@pytest.mark.parametrize(
    "column", ["with space", "naïve", "表", "a.b", "a-b", "select", "semi'quote", 'double"quote']
)
def test_a_column_of_an_odd_name_is_read_and_written_by_all_clients(
    place: Place, column: str
) -> None:
    quoted = '"' + column.replace('"', '""') + '"'
    # Parquet and Delta allow such names under column mapping alone.
    mapped = {"delta.columnMapping.mode": "name"} if " " in column else None
    with place.connect() as lake:
        lake.create_table("t", pa.table({"id": [1, 2], column: [10, 20]}), properties=mapped)
        with lake.transaction() as txn:
            txn.update("t", {column: f"{quoted} + 1"}, f"{quoted} > 10")
            assert txn.read("t", ["id"], f"{quoted} = 21")["id"].to_pylist() == [2]
    # Arrow's Python reader inside deltalake refuses a double quote in a name.
    if mapped is None and '"' not in column:
        assert place.seen("t") == [{"id": 1, column: 10}, {"id": 2, column: 21}]


@pytest.mark.parametrize(
    "name", ["../x", "a/../../x", "..", "", "/", ".", "a/..", "%2e%2e/x", "a\x00b", "a\nb"]
)
def test_a_name_that_leaves_the_lake_or_is_invalid_is_refused(place: Place, name: str) -> None:
    with place.connect() as lake:
        lake.create_table("t", {"id": [1]})
        before = contents(Path(place.root).parent)
        with pytest.raises(lv.InvalidOperation):
            lake.create_table(name, {"id": [1]})
        with pytest.raises(lv.InvalidOperation):
            lake.snapshot().read(name)
        with pytest.raises(lv.InvalidOperation):
            lake.register("other", f"{place.root}/{name}/../x")
        assert contents(Path(place.root).parent) == before


@pytest.mark.parametrize(
    "name", ["_lakevilla", "_lakevilla/x", "t/_lakevilla", "t/_lakevilla/x", "t/_delta_log"]
)
def test_a_name_inside_a_reserved_directory_is_refused(place: Place, name: str) -> None:
    with place.connect() as lake:
        lake.create_table("t", {"id": [1]})
        before = contents(place.root)
        with pytest.raises(lv.InvalidOperation, match="choose another name"):
            lake.create_table(name, {"id": [1]})
        assert contents(place.root) == before


def test_all_spellings_of_a_name_are_one_table(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("sales/orders", {"id": [1]})
        spellings = [
            "sales/orders",
            "sales//orders/",
            "./sales/orders",
            f"{place.root}/sales/orders",
            f"file://{place.root}/sales/orders",
        ]
        with lake.transaction() as txn:
            for spelling in spellings:
                txn.append(spelling, {"id": [2]})
            assert txn.sql("select count(*) as n from sales.orders")["n"].to_pylist() == [6]
            assert txn.sql('select count(*) as n from "sales/orders"')["n"].to_pylist() == [6]
        assert [table.name for table in lake.tables()] == ["sales/orders"]
    assert DeltaTable(f"{place.root}/sales/orders").version() == 1


def test_a_registered_name_can_mean_a_table_outside_the_root(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"))
    elsewhere.write("t", [{"id": 1}])
    with place.connect() as lake:
        lake.create_table("own", {"id": [1]})
        lake.register("far", elsewhere.uri("t"))
        with lake.transaction() as txn:
            txn.append("far", {"id": [2]})
            txn.append("own", {"id": [2]})
            assert txn.sql("select count(*) as n from far join own using (id)")[
                "n"
            ].to_pylist() == [2]
        assert txn.result is not None
        assert txn.result.versions == {"far": 1, "own": 1}
        assert [table.name for table in lake.tables()] == ["far", "own"]
        assert lake.table("far").uri == elsewhere.uri("t")
    with place.connect() as lake:
        assert lake.snapshot().read("far").num_rows == 2
        assert lake.snapshot().read(elsewhere.uri("t")).num_rows == 2
    assert elsewhere.seen("t") == [{"id": 1}, {"id": 2}]


def test_several_tables_are_registered_in_one_commit(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"))
    for name in ("a", "b"):
        elsewhere.write(name, [{"id": 1}])
    with place.connect() as lake:
        lake.register({"one": elsewhere.uri("a"), "two": elsewhere.uri("b")})
        assert lake.snapshot().version == 1
        lake.register({"one": elsewhere.uri("a"), "two": elsewhere.uri("b")})
        assert lake.snapshot().version == 1


@pytest.mark.parametrize("name", ["", ".", "../t", "a/../t", "a\0b", "a\nb", "_lakevilla/t"])
def test_an_invalid_name_is_not_registered(place: Place, tmp_path: Path, name: str) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"))
    elsewhere.write("t", [{"id": 1}])
    with place.connect() as lake:
        with pytest.raises(lv.InvalidOperation):
            lake.register(name, elsewhere.uri("t"))
        assert lake.tables() == []


def test_a_name_that_could_mean_two_tables_is_refused(place: Place, tmp_path: Path) -> None:
    elsewhere = Place(str(tmp_path / "elsewhere"))
    elsewhere.write("t", [{"id": 1}])
    elsewhere.write("u", [{"id": 1}])
    place.write("orders", [{"id": 1}])
    with place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="'orders' could mean two tables"):
            lake.register("orders", elsewhere.uri("t"))
        lake.register("far", elsewhere.uri("t"))
        with pytest.raises(lv.InvalidOperation, match="'far' is registered for"):
            lake.register("far", elsewhere.uri("u"))
        # A table below the root can't be created if its name is registered for another.
        with pytest.raises(lv.TableExists) as caught:
            lake.create_table("far", {"id": [1]})
        assert caught.value.table == "far"


def test_a_table_of_another_lake_is_refused_until_that_lake_unregisters_it(
    place: Place, tmp_path: Path
) -> None:
    other = Place(str(tmp_path / "other"))
    other.write("t", [{"id": 1}])
    with other.connect() as theirs, place.connect() as ours:
        theirs.register("t")
        before = contents(tmp_path)
        with pytest.raises(lv.InvalidOperation, match=f"belongs to the lake at {other.root}"):
            ours.register("t", other.uri("t"))
        with pytest.raises(lv.InvalidOperation, match="belongs to the lake at"):
            with ours.transaction() as txn:
                txn.append(other.uri("t"), {"id": [2]})
        assert other.seen("t") == [{"id": 1}]
        changed = contents(tmp_path)
        assert {key for key in changed if "/t/" in key} == {key for key in before if "/t/" in key}

        theirs.unregister("t")
        ours.register("t", other.uri("t"))
        with ours.transaction() as txn:
            txn.append("t", {"id": [2]})
        with pytest.raises(lv.InvalidOperation, match=f"belongs to the lake at {place.root}"):
            theirs.register("t")
    assert other.seen("t") == [{"id": 1}, {"id": 2}]


def test_an_unregistered_table_stays_readable_by_other_clients_and_can_come_back(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.create_table("t", {"id": [1]})
        lake.unregister("t")
        assert lake.tables() == []
        with pytest.raises(lv.TableNotFound, match="register"):
            lake.snapshot().read("t")
        assert place.seen("t") == [{"id": 1}]
        place.write("t", [{"id": 2}])
        lake.register("t")
        assert lake.snapshot().read("t").num_rows == 2
        with pytest.raises(lv.TableNotFound, match="nope"):
            lake.unregister("nope")


def test_a_dropped_table_is_gone_for_all_verbs_until_it_is_registered_again(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", {"id": [1]})
        lake.drop_table("t")
        assert lake.tables() == []
        for verb in (
            lambda txn: txn.read("t"),
            lambda txn: txn.append("t", {"id": [2]}),
            lambda txn: txn.delete("t", "true"),
        ):
            with pytest.raises(lv.TableNotFound, match="register"), lake.transaction() as txn:
                verb(txn)
        with pytest.raises(lv.TableExists, match="register"):
            lake.create_table("t", {"id": [1]})
        assert place.seen("t") == [{"id": 1}]
        lake.register("t")
        assert lake.snapshot().read("t").num_rows == 1


def test_a_table_can_be_created_where_another_was_dropped_with_its_data(place: Place) -> None:
    with place.connect(settings=lv.Settings(reuse_after_seconds=0)) as lake:
        lake.create_table("t", {"id": [1]})
        lake.create_table("kept", {"id": [1]})
        lake.drop_table("t", delete_data=True)
        left = [key for key in contents(place.root) if key.startswith("t/")]
        assert [key for key in left if not key.startswith("t/_lakevilla/")] == []
        lake.create_table("t", {"name": ["new"]})
        assert lake.snapshot().read("t")["name"].to_pylist() == ["new"]
    assert place.seen("t") == [{"name": "new"}]
    assert place.seen("kept") == [{"id": 1}]


def test_a_drop_with_data_of_an_unknown_name_deletes_no_data(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", {"id": [1]})
        with pytest.raises(lv.TableNotFound):
            lake.drop_table("u", delete_data=True)
    assert place.seen("t") == [{"id": 1}]


def test_a_table_reached_by_a_symbolic_link_is_the_same_table(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        os.symlink(f"{local_place.root}/t", f"{local_place.root}/link")
        with lake.transaction() as txn:
            txn.append("link", [{"id": 2}])
            txn.append("t", [{"id": 3}])
        assert txn.result is not None
        assert list(txn.result.versions or {}) == ["t"]
    assert values(local_place.delta("t").to_pyarrow_table()) == [1, 2, 3]


def test_a_pathlib_path_means_a_local_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_deltalake("lake/sales/b", pa.table({"id": [1]}))
    write_deltalake("outside", pa.table({"id": [2]}))
    with lv.connect(Path("lake")) as lake:
        lake.register(Path("lake/sales/b"))
        lake.register("far", Path("outside"))
        lake.register({"near": Path("lake") / "sales" / "b"})
        assert values(lake.snapshot().read("far")) == [2]
        assert values(lake.snapshot().read("sales/b")) == [1]
        assert values(lake.snapshot().read("near")) == [1]
        before = contents(tmp_path)
        with pytest.raises(lv.TableNotFound, match=f"table {tmp_path}/sales/b does not exist"):
            lake.register(Path("sales/b"))
        with pytest.raises(lv.InvalidOperation, match="write s3://bucket/t, with two slashes"):
            lake.register("cloud", Path("s3://bucket/t"))
        with pytest.raises(lv.InvalidOperation, match="is its path there, such as"):
            lake.table(Path("sales/b"))  # type: ignore[arg-type]
        with pytest.raises(lv.InvalidOperation, match="is its path there, such as"):
            lake.run(lambda txn: txn.append(Path("sales/b"), [{"id": 1}]))  # type: ignore[arg-type]
        assert contents(tmp_path) == before


def test_a_pathlib_path_can_be_the_warehouse_of_a_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ObjectStoreCatalog("own", warehouse=Path("warehouse"))
    own.create_table("sales.orders", pa.schema([("id", pa.int64())]))
    assert (tmp_path / "warehouse" / "sales" / "orders").is_dir()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": Path("files")}
    catalog = load_catalog("prod", **{**properties, "warehouse": str(tmp_path / "files")})
    catalog.create_namespace("sales")
    catalog.create_table("sales.stock", pa.schema([("id", pa.int64())]))
    catalogs: Any = {"prod": properties}
    with lv.connect(tmp_path / "lake", catalogs=catalogs) as lake:
        again = pickle.loads(pickle.dumps(lake))
        for one in (lake, again):
            one.run(lambda txn: txn.append("prod.sales.stock", [{"id": 1}]))
        assert values(lake.snapshot().read("prod.sales.stock")) == [1, 1]
