"""Clones show tables of another place: reading, writing and dropping them, ending a clone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.contract.foreign_readers import Format, read_by_others
from tests.property.position_deletes import delete_positions
from tests.support.foreign_changes import delete_by_vector
from tests.support.places import Place
from tests.support.stores import unpublished
from tests.support.tables import accounts, values

ROWS = [{"id": 1, "n": 10}, {"id": 2, "n": 20}]
LOG = {"delta": "/_delta_log/", "iceberg": "/metadata/"}


@pytest.fixture
def shop(lake: lv.Lake, kind: Format) -> lv.Lake:
    """Return a lake with two tables below prod, and one whose name differs from its path."""
    lake.create_table("prod/orders", ROWS, format=kind)
    lake.create_table("prod/eu/stock", ROWS, format=kind)
    lake.create_table("other", ROWS, format=kind)
    return lake


def rows(lake: lv.Lake, table: str) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in lake.read(table).to_pylist())


def names(lake: lv.Lake) -> list[str]:
    return [table.name for table in lake.tables()]


def append(lake: lv.Lake, table: str, number: int = 3) -> None:
    lake.run(lambda txn: txn.append(table, [{"id": number, "n": 10 * number}]))


BEFORE = [(1, 10), (2, 20)]
AFTER = [*BEFORE, (3, 30)]


def test_writes_to_a_clone_and_to_its_source_do_not_show_in_the_other(shop: lv.Lake) -> None:
    ref = shop.clone("other", "trial")
    assert (ref.name, ref.kind, ref.version) == ("trial", "clone", 3)
    assert rows(shop, "trial") == BEFORE
    append(shop, "other")
    assert (rows(shop, "other"), rows(shop, "trial")) == (AFTER, BEFORE)
    append(shop, "trial", 4)
    assert rows(shop, "trial") == [*BEFORE, (4, 40)]
    assert rows(shop, "other") == AFTER


def test_a_first_write_runs_again_if_another_client_was_first(
    shop: lv.Lake, local_place: Place
) -> None:
    shop.clone("other", "trial")
    calls: list[int] = []

    def write(txn: lv.Transaction) -> None:
        calls.append(txn.read("trial", where="id = 1")["n"][0].as_py())
        txn.append("trial", [{"id": 3, "n": 30}])
        txn.update("trial", {"n": calls[-1] + 1}, where="id = 1")
        if len(calls) == 1:
            with local_place.connect() as other:
                other.run(lambda txn: txn.update("trial", {"n": 5}, where="id = 1"))

    shop.run(write)
    assert calls == [10, 5]
    assert rows(shop, "trial") == [(1, 6), (2, 20), (3, 30)]
    assert rows(shop, "other") == BEFORE


def test_a_directory_is_cloned_with_all_tables_below_it(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    assert names(shop) == ["dev/eu/stock", "dev/orders", "other", "prod/eu/stock", "prod/orders"]
    assert list(shop) == names(shop)
    assert "dev/orders" in shop
    assert "dev/nothing" not in shop
    assert shop.table("dev/orders").schema == shop.table("prod/orders").schema
    assert shop.sql('SELECT sum(n) AS n FROM "dev/orders"').to_pylist() == [{"n": 30}]
    assert shop.sql("SELECT sum(n) AS n FROM dev.orders").to_pylist() == [{"n": 30}]
    found = shop.sql("SELECT name, rows FROM lakevilla_tables WHERE name LIKE 'dev/%' ORDER BY 1")
    assert found.to_pylist() == [
        {"name": "dev/eu/stock", "rows": 2},
        {"name": "dev/orders", "rows": 2},
    ]
    assert shop.query("/dev/**/files").num_rows == 2
    page = shop.tables(limit=1, details=False)
    assert [one.name for one in page] == ["dev/eu/stock"]
    page = shop.tables(limit=2, details=False, after=page.next)
    assert [one.name for one in page] == ["dev/orders", "other"]


def test_a_clone_is_refused_if_a_name_in_it_would_mean_another_table(shop: lv.Lake) -> None:
    shop.create_table(f"{shop.root}/dev.eu.stock", ROWS)
    with pytest.raises(lv.InvalidOperation, match=r"could both be meant by 'dev\.eu\.stock'"):
        shop.clone("prod", "dev")
    shop.register("trial.orders", "other")
    with pytest.raises(lv.InvalidOperation, match=r"could both be meant by 'trial\.orders'"):
        shop.clone("prod", "trial")
    shop.clone("prod/orders", "dev/orders")
    assert shop.sql("SELECT sum(n) AS n FROM dev.orders").to_pylist() == [{"n": 30}]


WRITES: dict[str, tuple[Callable[[lv.Transaction], object], list[tuple[int, int]]]] = {
    "append": (lambda txn: txn.append("trial", [{"id": 3, "n": 30}]), AFTER),
    "overwrite": (lambda txn: txn.overwrite("trial", [{"id": 9, "n": 9}]), [(9, 9)]),
    "update": (
        lambda txn: txn.update("trial", {"n": "n + 1"}, where="id = 1"),
        [(1, 11), (2, 20)],
    ),
    "delete": (lambda txn: txn.delete("trial", where="id = 1"), [(2, 20)]),
    "upsert": (
        lambda txn: txn.upsert("trial", [{"id": 2, "n": 0}, {"id": 3, "n": 30}], "id"),
        [(1, 10), (2, 0), (3, 30)],
    ),
    "sql": (lambda txn: txn.sql("INSERT INTO trial SELECT 3, 30"), AFTER),
    "alter": (lambda txn: txn.alter("trial", set_properties={"owner": "me"}), BEFORE),
    "rename_table": (lambda txn: txn.rename_table("trial", "called"), BEFORE),
}


@pytest.mark.parametrize("verb", WRITES)
def test_the_first_write_of_each_verb_to_a_clone_creates_the_table(
    shop: lv.Lake, verb: str
) -> None:
    shop.clone("other", "trial")
    write, expected = WRITES[verb]
    shop.run(write)
    name = "called" if verb == "rename_table" else "trial"
    with lv.connect(shop.root) as again:
        assert rows(again, name) == expected
        assert rows(again, "other") == BEFORE
    assert len(shop.table(name).history()) == 1  # one commit creates and writes it


@pytest.mark.parametrize("features", [lv.Feature(0), lv.Feature.R, lv.Feature.CT])
def test_a_transaction_with_any_features_can_write_to_a_clone(
    shop: lv.Lake, features: lv.Feature
) -> None:
    shop.clone("other", "trial")
    with lv.connect(shop.root) as lake, lake.transaction(features=features) as txn:
        txn.append("trial", [{"id": 3, "n": 30}])
    assert rows(shop, "trial") == AFTER


def test_a_read_of_a_clone_is_validated_against_concurrent_writes_to_it(shop: lv.Lake) -> None:
    shop.clone("other", "trial")
    txn = shop.transaction()
    assert txn.read("trial", where="id = 1").num_rows == 1
    txn.append("prod/orders", [{"id": 3, "n": 30}])
    shop.run(lambda txn: txn.update("trial", {"n": "0"}, where="id = 1"))
    with pytest.raises(lv.ConflictError):
        txn.commit()
    txn = shop.transaction()
    assert txn.read("trial", where="id = 1").num_rows == 1
    txn.append("prod/orders", [{"id": 3, "n": 30}])
    append(shop, "trial")
    txn.commit()


def test_concurrent_first_writes_to_a_clone_all_take_effect(shop: lv.Lake) -> None:
    shop.clone("other", "trial")
    first, second, third = (shop.transaction() for _ in range(3))
    first.append("trial", [{"id": 3, "n": 30}])
    second.update("trial", {"n": "n + 1"}, where="id = 2")
    third.append("trial", [{"id": 4, "n": 40}])
    for txn in (first, second, third):
        txn.commit()
    assert rows(shop, "trial") == [(1, 10), (2, 21), (3, 30), (4, 40)]
    assert rows(shop, "other") == BEFORE


def test_a_table_of_a_clone_is_dropped_and_created_again(shop: lv.Lake, kind: Format) -> None:
    shop.clone("prod", "dev")
    shop.drop_table("dev/orders")
    assert names(shop) == ["dev/eu/stock", "other", "prod/eu/stock", "prod/orders"]
    with pytest.raises(lv.TableNotFound, match="dropped"):
        shop.read("dev/orders")
    shop.create_table("dev/orders", [{"id": 7, "n": 7}], format=kind)
    assert rows(shop, "dev/orders") == [(7, 7)]
    assert rows(shop, "prod/orders") == BEFORE


def test_deleting_a_clone_frees_its_place(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    shop.drop_table("dev/orders")
    shop.delete_ref("dev")
    assert names(shop) == ["other", "prod/eu/stock", "prod/orders"]
    with pytest.raises(lv.TableNotFound):
        shop.read("dev/eu/stock")
    shop.clone("prod", "dev")
    assert rows(shop, "dev/orders") == BEFORE


def test_a_clone_is_not_deleted_while_a_table_needs_files_that_it_keeps(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    with pytest.raises(lv.InvalidOperation, match=r"dev/orders of clone 'dev' names files"):
        shop.delete_ref("dev")
    shop.drop_table("dev/orders")
    shop.delete_ref("dev")


def test_a_clone_does_not_end_before_the_logs_of_its_tables_show_that_they_need_no_file_of_it(
    shop: lv.Lake, kind: Format
) -> None:
    shop.clone("other", "trial")
    append(shop, "trial")
    with unpublished(shop, lambda key: key.startswith("trial/") and LOG[kind] in key):
        shop.run(lambda txn: txn.overwrite("trial", [{"id": 9, "n": 90}]), wait="decided")
        with pytest.raises(lv.StoreError):
            shop.delete_ref("trial")
    shop.delete_ref("trial")
    shop.drop_table("other", delete_data=True)
    for found in read_by_others(Path(shop.root) / "trial", kind).values():
        assert found["id"].to_pylist() == [9]


def test_foreign_readers_of_a_written_iceberg_clone_find_the_files_of_the_source(
    lake: lv.Lake,
) -> None:
    lake.create_table("prod/orders", ROWS, format="iceberg")
    lake.clone("prod", "dev")
    append(lake, "dev/orders")
    for found in read_by_others(Path(lake.root) / "dev/orders", "iceberg").values():
        assert sorted(found["id"].to_pylist()) == [1, 2, 3]


def test_a_tag_of_some_tables_has_only_the_named_tables_of_a_clone(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    shop.tag("some", tables=["dev/orders", "other"])
    assert names(shop.on("some")) == ["dev/orders", "other"]
    assert rows(shop.on("some"), "dev/orders") == BEFORE
    with pytest.raises(lv.TableNotFound):
        shop.on("some").read("dev/eu/stock")


def test_a_tag_of_the_version_before_a_clone_does_not_show_the_clone(shop: lv.Lake) -> None:
    made = shop.clone("other", "trial").version
    append(shop, "other")
    assert "trial" in names(shop.on(shop.tag("since", at=made).name))
    assert "trial" not in names(shop.on(shop.tag("before", at=made - 1).name))


def test_operations_that_need_a_log_are_refused_on_a_clone_without_one(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    table = shop.table("dev/orders")
    assert table.version is None
    for call in (
        lambda: shop.unregister("dev/orders"),
        lambda: table.history(),
        lambda: shop.read("dev/orders", version=0),
    ):
        with pytest.raises(lv.LakeVillaError, match="dev/orders"):
            call()
    assert rows(shop, "dev/orders") == BEFORE


def test_keep_copies_the_files_of_a_clone_so_that_it_can_be_deleted(
    shop: lv.Lake, kind: Format
) -> None:
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    (found,) = shop.keep("dev").findings
    assert (found.kind, found.table) == ("kept", "dev/orders")
    assert shop.keep("dev").findings == ()
    shop.delete_ref("dev")
    shop.drop_table("prod/orders", delete_data=True)
    assert rows(shop, "dev/orders") == AFTER
    for found_rows in read_by_others(Path(shop.root) / "dev/orders", kind).values():
        assert found_rows.num_rows == 3


def test_a_state_that_only_a_clone_in_a_tag_keeps_can_be_read_but_not_rolled_back_to(
    shop: lv.Lake,
) -> None:
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    version = shop.tag("closing").version
    shop.keep("dev")
    shop.delete_ref("dev")
    with pytest.raises(lv.VersionNotFound, match=r"dev/orders.*no clone of this lake keeps"):
        shop.rollback("closing", tables=["dev/orders"])
    with pytest.raises(lv.VersionNotFound, match=r"dev/orders.*no clone keeps it any more"):
        shop.tag("older", at=version, tables=["dev/orders"])
    shop.tag("same", at="closing")
    shop.clone("dev", "again", at="closing")
    append(shop, "again/orders", 4)
    shop.delete_ref("closing")
    shop.run(lambda txn: txn.delete("prod/orders", where="true"))
    shop.table("prod/orders").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert rows(shop.on("same"), "dev/orders") == AFTER
    shop.delete_ref("same")
    shop.table("prod/orders").vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert rows(shop, "again/orders") == [*AFTER, (4, 40)]
    assert rows(shop, "dev/orders") == AFTER


def test_a_clone_made_by_copy_has_the_tables_without_rows(tmp_path: Path, kind: Format) -> None:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("shop/never", {"id": "long"}, format=kind)
        lake.create_table("shop/emptied", [{"id": 1}], format=kind)
        lake.run(lambda txn: txn.delete("shop/emptied", where="true"))
        lake.clone("shop", "archive", copy=True)
        assert lake.refs() == []
        for table in ("archive/never", "archive/emptied"):
            assert lake.read(table).num_rows == 0
            lake.run(lambda txn, table=table: txn.append(table, [{"id": 7}]))
            assert lake.read(table)["id"].to_pylist() == [7]
        assert lake.doctor().ok


def test_a_clone_made_by_copy_needs_no_file_of_its_source(shop: lv.Lake, kind: Format) -> None:
    ref = shop.clone("prod", "dev", copy=True)
    assert (ref.name, ref.kind) == ("dev", "clone")
    assert shop.refs() == []
    for table in ("orders", "eu/stock"):
        shop.drop_table(f"prod/{table}", delete_data=True)
        assert rows(shop, f"dev/{table}") == BEFORE
        for found in read_by_others(Path(shop.root) / "dev" / table, kind).values():
            assert found.num_rows == 2


def test_dropping_and_vacuuming_clone_or_source_leaves_the_other_intact(
    shop: lv.Lake, kind: Format
) -> None:
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    shop.run(lambda txn: txn.delete("prod/orders", where="true"))
    shop.run(lambda txn: txn.delete("prod/eu/stock", where="true"))
    for table in ("prod/orders", "prod/eu/stock", "dev/orders"):
        shop.table(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    shop.gc()
    assert rows(shop, "dev/orders") == AFTER
    assert rows(shop, "dev/eu/stock") == BEFORE
    for table in ("prod/orders", "prod/eu/stock"):
        with pytest.raises(lv.InvalidOperation, match="'dev' keeps it"):
            shop.drop_table(table, delete_data=True)
        shop.drop_table(table)
    assert rows(shop, "dev/orders") == AFTER
    assert rows(shop, "dev/eu/stock") == BEFORE
    shop.drop_table("dev/orders", delete_data=True)
    shop.drop_table("dev/eu/stock", delete_data=True)
    shop.register("prod/orders")
    assert rows(shop, "prod/orders") == []


def test_vacuum_finds_nothing_in_a_table_of_a_clone_without_writes(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    table = shop.table("dev/orders")
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False) == []
    assert rows(shop, "dev/orders") == BEFORE


def test_a_clone_does_not_prevent_deleting_tables_outside_its_source(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    shop.drop_table("other", delete_data=True)


def test_tags_and_branches_show_the_tables_of_clones(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    shop.tag("before")
    shop.branch("etl")
    append(shop, "dev/orders")
    assert rows(shop.on("before"), "dev/orders") == BEFORE
    branch = shop.on("etl")
    assert "dev/orders" in names(branch)
    append(branch, "dev/orders", 4)
    append(branch, "dev/eu/stock", 5)
    assert rows(branch, "dev/orders") == [*BEFORE, (4, 40)]
    assert rows(shop, "dev/orders") == AFTER
    assert rows(shop, "dev/eu/stock") == BEFORE


def test_older_versions_show_a_clone_only_since_its_creation(shop: lv.Lake) -> None:
    append(shop, "other")
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    shop.drop_table("dev/eu/stock")
    assert rows(shop.snapshot(version=4), "dev/orders") == BEFORE
    assert rows(shop.snapshot(version=5), "dev/orders") == AFTER
    assert rows(shop.snapshot(version=5), "dev/eu/stock") == BEFORE
    with pytest.raises(lv.TableNotFound):
        shop.snapshot(version=6).read("dev/eu/stock")
    with pytest.raises(lv.TableNotFound):
        shop.snapshot(version=3).read("dev/orders")


def test_clones_are_made_of_an_older_version_a_tag_and_a_branch(shop: lv.Lake) -> None:
    shop.tag("closing")
    append(shop, "prod/orders")
    shop.branch("etl")
    append(shop.on("etl"), "prod/orders", 4)
    shop.clone("prod", "by_version", at=3)
    shop.clone("prod", "by_tag", at="closing")
    shop.clone("prod", "by_branch", at="etl")
    assert rows(shop, "by_version/orders") == BEFORE
    assert rows(shop, "by_tag/orders") == BEFORE
    assert rows(shop, "by_branch/orders") == [*AFTER, (4, 40)]
    shop.delete_ref("etl")
    shop.delete_ref("closing")
    shop.gc()
    append(shop, "by_branch/orders", 5)
    assert rows(shop, "by_branch/orders") == [*AFTER, (4, 40), (5, 50)]


def test_a_clone_can_be_cloned(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    append(shop, "dev/orders")
    shop.clone("dev", "test")
    assert rows(shop, "test/orders") == AFTER
    assert rows(shop, "test/eu/stock") == BEFORE
    append(shop, "test/eu/stock", 4)
    append(shop, "test/orders", 4)
    assert rows(shop, "test/orders") == [*AFTER, (4, 40)]
    assert rows(shop, "dev/eu/stock") == BEFORE


REFUSED: dict[str, tuple[Callable[[lv.Lake], object], str]] = {
    "in the source": (lambda lake: lake.clone("prod", "prod/x"), "inside its own source"),
    "around the source": (
        lambda lake: lake.clone("prod/orders", "prod"),
        "contains its own source",
    ),
    "at a table": (lambda lake: lake.clone("prod", "other"), "is a table"),
    "in a table": (lambda lake: lake.clone("prod", "other/x"), "inside table other"),
    "contains tables": (lambda lake: lake.clone("other", "prod"), "contains table prod/eu/stock"),
    "at a clone": (lambda lake: lake.clone("prod", "dev"), "there is a clone 'dev' already"),
    "in a clone": (lambda lake: lake.clone("other", "dev/x"), "inside clone 'dev'"),
    "around a clone": (lambda lake: lake.clone("prod", "deep"), "contains clone 'deep/trial'"),
    "outside": (lambda lake: lake.clone("prod", "s3://bucket/x"), "outside the root"),
    "nothing": (lambda lake: lake.clone("nothing", "x"), "no table at nothing or below"),
    "a table at it": (lambda lake: lake.create_table("dev", ROWS), "would contain clone 'dev'"),
    "a table it shows": (lambda lake: lake.create_table("dev/orders", ROWS), "shows a table"),
    "a table in one": (lambda lake: lake.create_table("dev/orders/x", ROWS), "inside table"),
    "a table around": (lambda lake: lake.create_table("dev/eu", ROWS), "would contain table"),
    "around it": (lambda lake: lake.create_table("deep", ROWS), "would contain clone"),
    "a name": (
        lambda lake: lake.rename_table("other", "dev/orders"),
        "shows a table at dev/orders",
    ),
    "on a clone": (lambda lake: lake.on("dev"), "is a clone"),
    "of a clone": (lambda lake: lake.tag("x", at="dev"), "is a clone"),
    "rebased": (lambda lake: lake.rebase("dev"), "clone 'dev' can't be rebased"),
    "merged": (lambda lake: lake.merge("dev"), "clone 'dev' can't be merged"),
}


@pytest.mark.cases(None)
def test_invalid_places_for_clones_are_refused(shop: lv.Lake) -> None:
    shop.clone("prod", "dev")
    shop.clone("other", "deep/trial")
    for call, message in REFUSED.values():
        with pytest.raises(lv.LakeVillaError, match=message):
            call(shop)
    shop.create_table("dev/free", ROWS)
    assert rows(shop, "dev/free") == BEFORE


def test_a_clone_is_refused_at_a_place_with_foreign_files(shop: lv.Lake) -> None:
    place = Path(shop.root) / "taken"
    place.mkdir()
    (place / "some.parquet").write_bytes(b"")
    with pytest.raises(lv.InvalidOperation, match="taken holds files"):
        shop.clone("prod", "taken")


def test_a_partitioned_table_with_deleted_rows_is_cloned(lake: lv.Lake, kind: Format) -> None:
    data = pa.table({"id": [1, 2, 3, 4], "shop": ["n", "n", "s", "s"]})
    lake.create_table("sales", data, format=kind, partition_by="shop")
    lake.run(lambda txn: txn.delete("sales", where="id = 2"))
    lake.clone("sales", "trial")
    assert lake.read("trial", where="shop = 'n'").to_pylist() == [{"id": 1, "shop": "n"}]
    lake.run(lambda txn: txn.delete("trial", where="id = 3"))
    assert sorted(lake.read("trial")["id"].to_pylist()) == [1, 4]
    assert sorted(lake.read("sales")["id"].to_pylist()) == [1, 3, 4]


@pytest.mark.parametrize("copies", [True, False])
def test_rows_deleted_by_a_deletion_vector_stay_deleted_in_a_clone(
    local_place: Place, copies: bool
) -> None:
    local_place.write("bank", accounts(3))
    delete_by_vector(local_place, row=2)
    with local_place.connect() as lake:
        lake.register("bank")
        lake.clone("bank", "trial", copy=copies)
        assert values(lake.read("trial")) == [0, 1]
        lake.run(lambda txn: txn.append("trial", [{"id": 9, "balance": 9}]))
        assert values(lake.read("trial")) == [0, 1, 9]
        if not copies:
            lake.keep("trial")
        lake.run(lambda txn: txn.delete("trial", where="id = 0"))
        assert values(lake.read("trial")) == [1, 9]
        assert values(lake.read("bank")) == [0, 1]


@pytest.mark.parametrize("copies", [True, False])
def test_rows_deleted_by_position_stay_deleted_in_a_clone(local_place: Place, copies: bool) -> None:
    with local_place.connect() as lake:
        lake.create_table("bank", accounts(3), format="iceberg")
    table = ObjectStoreCatalog("tests", warehouse=local_place.root).load_table(("bank",))
    delete_positions(table, [2], Random(1))
    with local_place.connect() as lake:
        lake.clone("bank", "trial", copy=copies)
        assert values(lake.read("trial")) == [0, 1]
        lake.run(lambda txn: txn.append("trial", [{"id": 9, "balance": 9}]))
        assert values(lake.read("trial")) == [0, 1, 9]
