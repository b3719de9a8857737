"""A lake with protected main takes merges and upkeep, and refuses direct writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.create_table("orders", [{"id": 1}])
        lake.protect_main()
        yield lake


def put_in(lake: lv.Lake, sku: str, **options: Any) -> None:
    lake.run(lambda txn: txn.append("stock", [{"sku": sku, "qty": 1}]), **options)


def in_stock(lake: lv.Lake) -> list[str]:
    return sorted(lake.read("stock")["sku"].to_pylist())


#: Verbs of a transaction that change rows or definitions.
DIRECT: dict[str, Callable[[Any], object]] = {
    "append": lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]),
    "overwrite": lambda txn: txn.overwrite("stock", [{"sku": "jam", "qty": 1}]),
    "update": lambda txn: txn.update("stock", {"qty": "1"}, where="true"),
    "delete": lambda txn: txn.delete("stock", where="true"),
    "upsert": lambda txn: txn.upsert("stock", [{"sku": "jam", "qty": 1}], keys="sku"),
    "merge": lambda txn: (
        txn.merge("stock", [{"sku": "jam", "qty": 1}], on="target.sku = source.sku")
        .when_not_matched_insert_all()
        .execute()
    ),
    "insert": lambda txn: txn.sql("INSERT INTO stock SELECT * FROM stock"),
    "alter": lambda txn: txn.alter("stock", add_columns={"note": "string"}),
    "create_table": lambda txn: txn.create_table("new", [{"id": 1}]),
    "drop_table": lambda txn: txn.drop_table("orders"),
}


@pytest.mark.parametrize("verb", DIRECT)
@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.NONE])
def test_verbs_that_write_a_protected_main_directly_are_refused_where_called(
    lake: lv.Lake, verb: str, features: lv.Feature
) -> None:
    with (
        lake.transaction(features) as txn,
        pytest.raises(lv.InvalidOperation, match=f"^{verb} .*: main is protected.*merge"),
    ):
        DIRECT[verb](txn)
    assert in_stock(lake) == ["tea"]
    assert list(lake) == ["orders", "stock"]
    assert lake.history(1)[0].version == 2


def test_a_protected_main_is_written_by_merges_and_by_existing_states(lake: lv.Lake) -> None:
    lake.branch("etl")
    etl = lake.on("etl")
    put_in(etl, "jam")
    etl.create_table("report", [{"id": 1}])
    etl.drop_table("orders")
    checks = [lambda txn: txn.read("stock").num_rows == 2]
    done = lake.merge("etl", checks=checks)
    assert set(done.tables) == {"stock", "report", "orders"}
    assert list(lake) == ["report", "stock"]
    assert in_stock(lake) == ["jam", "tea"]
    put_in(etl, "rum")
    merged = lake.merge("etl").version
    assert merged is not None
    lake.revert(merged)
    lake.cherry_pick(merged)
    assert in_stock(lake) == ["jam", "rum", "tea"]
    lake.rollback(merged - 1)
    lake.table("stock").restore(0)
    assert in_stock(lake) == ["tea"]
    with lake.audited(checks=checks) as night:
        put_in(night, "ale")
    assert in_stock(lake) == ["ale", "tea"]


def test_a_check_that_writes_is_refused(lake: lv.Lake) -> None:
    lake.branch("etl")
    put_in(lake.on("etl"), "jam")

    def mends(txn: Any) -> None:
        txn.delete("stock", where="sku = 'jam'")

    with pytest.raises(lv.InvalidOperation, match="main is protected"):
        lake.merge("etl", checks=[mends])
    assert in_stock(lake) == ["tea"]


def test_a_protected_main_allows_maintenance_and_renaming_of_tables(lake: lv.Lake) -> None:
    lake.protect_main(on=False)
    put_in(lake, "jam")
    lake.protect_main()
    stock = lake.table("stock")
    stock.optimize()
    lake.guard("stock")
    lake.unguard("stock")
    stock.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    lake.rename_table("orders", "sold")
    lake.gc()
    lake.recover()
    assert in_stock(lake) == ["jam", "tea"]
    assert list(lake) == ["sold", "stock"]


def test_a_protected_main_absorbs_commits_of_other_clients(lake: lv.Lake) -> None:
    rows = pa.Table.from_pylist([{"sku": "oil", "qty": 1}])
    deltalake.write_deltalake(f"{lake.root}/stock", rows, mode="append")
    assert in_stock(lake) == ["oil", "tea"]
    lake.branch("etl")
    put_in(lake.on("etl"), "jam")
    lake.merge("etl")
    assert in_stock(lake) == ["jam", "oil", "tea"]
    assert "foreign" in [entry.kind for entry in lake.history()]


def test_a_transaction_that_wrote_before_main_was_protected_fails_at_the_commit(
    lake: lv.Lake, local_place: Place
) -> None:
    lake.protect_main(on=False)
    with local_place.connect() as other:
        txn = other.transaction()
        txn.append("stock", [{"sku": "jam", "qty": 1}])
        lake.protect_main()
        with pytest.raises(lv.ConflictError, match=r"main was protected meanwhile.*on a branch"):
            txn.commit()
        assert in_stock(other) == ["tea"]


@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, lv.Feature.NONE])
def test_a_client_that_has_cached_the_protection_can_write_after_another_lifts_it(
    lake: lv.Lake, local_place: Place, features: lv.Feature
) -> None:
    with local_place.connect() as other:
        with other.transaction() as txn, pytest.raises(lv.InvalidOperation):
            txn.append("stock", [{"sku": "jam", "qty": 1}])
        lake.protect_main(on=False)
        put_in(other, "jam", features=features)
        assert in_stock(lake) == ["jam", "tea"]


def test_a_saved_transaction_is_refused_on_a_protected_main_too(
    lake: lv.Lake, local_place: Place
) -> None:
    lake.protect_main(on=False)
    with local_place.connect() as other:
        txn = other.transaction()
        txn.append("stock", [{"sku": "jam", "qty": 1}])
        txn.save()
        lake.protect_main()
        with pytest.raises(lv.ConflictError, match="main was protected"), lake.resume(txn.id):
            pass
    assert in_stock(lake) == ["tea"]


def test_protection_of_main_leaves_branches_writable_and_is_set_on_the_lake_alone(
    lake: lv.Lake, local_place: Place
) -> None:
    assert lake.is_main_protected()
    lake.branch("etl")
    put_in(lake.on("etl"), "jam")  # a branch can still be written
    with pytest.raises(lv.InvalidOperation, match="protect_main: this is branch 'etl'"):
        lake.on("etl").protect_main()
    with pytest.raises(lv.InvalidOperation, match="protect_main makes it take only merges"):
        lake.protect("main")
    lake.protect_main()
    lake.protect_main(on=False)
    with local_place.connect() as other:
        assert not other.is_main_protected()


def test_a_lake_without_any_commit_can_be_protected(tmp_path: Any) -> None:
    with lv.connect(tmp_path) as lake:
        lake.protect_main(on=False)
        assert not lake.is_main_protected()
        lake.protect_main()
        with pytest.raises(lv.InvalidOperation, match="create_table stock: main is protected"):
            lake.create_table("stock", [{"sku": "tea"}])
        lake.branch("etl")
        lake.on("etl").create_table("stock", [{"sku": "tea"}])
        lake.merge("etl")
        assert lake.read("stock").num_rows == 1
