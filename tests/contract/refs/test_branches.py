"""Branches: writes to the lake's tables that no reader outside the branch sees."""

from __future__ import annotations

import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest

import lakevilla as lv
from bench.size.many_tables import lake_of
from lakevilla.api.client.client import LakeClient
from lakevilla.store.runner import Requests
from lakevilla_testing.histories.plan import small_limits
from tests.contract.foreign_readers import Format
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.refs.shop import clean_up, shop, stock
from tests.support.traces import cost


def put_in(sku: str, qty: int) -> Callable[[lv.Transaction], object]:
    return lambda txn: txn.append("stock", [{"sku": sku, "qty": qty}])


def objects(lake: lv.Lake, pattern: str) -> list[Path]:
    return sorted(Path(lake.root).rglob(pattern))


def home(lake: lv.Lake) -> Path:
    (found,) = Path(lake.root, "_lakevilla/branches").iterdir()
    return found


def test_changes_on_a_branch_show_on_the_branch_alone(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    made = lake.branch("etl", metadata={"by": "night"})
    assert (made.kind, made.version, made.base_version) == ("branch", 2, 2)
    etl = lake.on("etl")
    etl.run(put_in("jam", 2))
    with etl.transaction() as txn:
        txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
        txn.append("sales/orders", [{"id": 2}])
        assert txn.read("stock", where="sku = 'tea'")["qty"].to_pylist() == [6]
    etl.run(lambda txn: txn.delete("sales/orders", where="id = 1"))
    etl.run(
        lambda txn: (
            txn.merge(
                "stock",
                [{"sku": "jam", "qty": 7}, {"sku": "rum", "qty": 1}],
                on="target.sku = source.sku",
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
    )
    etl.run(lambda txn: txn.sql("INSERT INTO stock VALUES ('ale', 3)"))
    assert stock(etl) == {"tea": 6, "jam": 7, "rum": 1, "ale": 3}
    assert etl.read("sales/orders")["id"].to_pylist() == [2]
    assert etl.sql("SELECT sum(qty) AS n FROM stock").to_pylist() == [{"n": 17}]
    assert stock(lake) == {"tea": 5}
    assert stock(lv.connect(lake.root).on("etl")) == stock(etl)
    assert [entry.version for entry in etl.history()] == [7, 6, 5, 4, 3]
    assert lake.refs()[0].version == 7
    assert [ref.name for ref in lake.refs("branch")] == ["etl"]
    assert lake.refs(kind="tag") == []
    with pytest.raises(lv.InvalidOperation, match="kind"):
        lake.refs("twig")  # type: ignore[arg-type]
    assert lake.history(1)[0].version == 2
    assert "on branch 'etl', version 7" in repr(etl)
    assert "on branch &#x27;etl&#x27;, version 7" in etl._repr_html_()


def test_tables_created_altered_or_dropped_on_a_branch_are_unchanged_on_the_lake(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.branch("etl")
    etl = lake.on("etl")
    etl.create_table("fresh", [{"a": 1, "day": "mon"}], format=kind, partition_by="day")
    etl.run(lambda txn: txn.append("fresh", [{"a": 2, "day": "tue"}]))
    etl.drop_table("sales/orders")
    etl.run(lambda txn: txn.alter("stock", add_columns={"note": "string"}))
    etl.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1, "note": "new"}]))
    etl["stock"].optimize()
    assert list(etl) == ["fresh", "stock"]
    assert sorted(etl.read("fresh")["a"].to_pylist()) == [1, 2]
    assert etl.read("stock").column_names == ["sku", "qty", "note"]
    with pytest.raises(lv.TableNotFound, match="dropped"):
        etl.read("sales/orders")
    assert list(lake) == ["sales/orders", "stock"]
    assert lake.read("stock").column_names == ["sku", "qty"]
    # The same name is free on the lake, and on another branch.
    lake.create_table("fresh", [{"b": "x"}])
    assert lake.read("fresh").to_pylist() == [{"b": "x"}]
    assert sorted(etl.read("fresh")["a"].to_pylist()) == [1, 2]
    lake.branch("other")
    assert lake.on("other").read("fresh").to_pylist() == [{"b": "x"}]


def test_foreign_clients_never_see_changes_on_a_branch(lake: lv.Lake) -> None:
    shop(lake)
    lake.create_table("ice", [{"k": 1}], format="iceberg")
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(put_in("jam", 2))
    etl.run(lambda txn: txn.append("ice", [{"k": 2}]))
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    assert table.version() == 0
    assert table.to_pyarrow_table().num_rows == 1
    rows = duckdb.sql(f"SELECT * FROM delta_scan('{lake.root}/stock')") if _has_delta() else []
    assert len(rows) in (0, 1)
    # Foreign commits are on the lake, and not on the branch.
    deltalake.write_deltalake(
        f"{lake.root}/stock", pa.table({"sku": ["rum"], "qty": [1]}), mode="append"
    )
    table = deltalake.DeltaTable(f"{lake.root}/stock")
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert stock(lake) == {"tea": 5, "rum": 1}
    assert {file.name for file in _of_branch(lake, "stock")}


def _has_delta() -> bool:
    try:
        duckdb.sql("LOAD delta")
    except duckdb.Error:
        return False
    return True


def _of_branch(lake: lv.Lake, table: str) -> list[Path]:
    return sorted(Path(lake.root, table, "_lakevilla/b").rglob("*.parquet"))


def test_a_branch_keeps_its_rows_through_writes_and_clean_ups_of_the_lake(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.branch("etl")
    etl = lake.on("etl")
    for number in range(3):
        etl.run(put_in(f"x{number}", number))
        lake.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="true"))
        clean_up(lake)
    etl.run(lambda txn: txn.update("stock", {"qty": "qty + 10"}, where="true"))
    clean_up(lake)
    expected = {"tea": 15, "x0": 10, "x1": 11, "x2": 12}
    assert stock(etl) == stock(lv.connect(lake.root).on("etl")) == expected
    assert stock(lake) == {"tea": 8}


def test_a_deleted_branch_frees_its_space_and_its_name(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    before = {*objects(lake, "*.parquet")}
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(put_in("jam", 2))
    etl.create_table("fresh", [{"a": 1}])
    lake.delete_ref("etl")
    with pytest.raises(lv.RefNotFound, match="'etl' was deleted"):
        etl.run(put_in("rum", 2))
    with pytest.raises(lv.RefNotFound):
        stock(etl)
    with pytest.raises(lv.RefNotFound):
        lake.on("etl")
    lake.gc()
    assert {*objects(lake, "*.parquet")} == before
    assert not objects(lake, "_lakevilla/branches/**/*.json")
    with pytest.raises(lv.RefNotFound, match="'etl' was deleted"):
        etl.run(put_in("rum", 2))
    # The name is free: a new branch under it is another branch.
    lake.branch("etl")
    assert stock(lake.on("etl")) == {"tea": 5}
    with pytest.raises(lv.RefNotFound):
        stock(etl)


def test_a_branch_and_a_tag_made_of_a_branch_outlive_it(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(put_in("jam", 2))
    etl.create_table("fresh", [{"a": 1}], format=kind)
    lake.branch("fix", at="etl")
    lake.tag("monday", at="etl")
    fix = lake.on("fix")
    fix.run(put_in("rum", 3))
    fix.run(lambda txn: txn.append("fresh", [{"a": 2}]))
    etl.run(put_in("ale", 4))
    lake.delete_ref("etl")
    for _ in range(2):
        clean_up(lake)
    assert stock(fix) == {"tea": 5, "jam": 2, "rum": 3}
    assert stock(lake.on("monday")) == {"tea": 5, "jam": 2}
    assert sorted(fix.read("fresh")["a"].to_pylist()) == [1, 2]
    assert lake.on("monday").read("fresh").to_pylist() == [{"a": 1}]
    lake.delete_ref("fix")
    lake.delete_ref("monday")
    lake.gc()
    assert not objects(lake, "b/**/*.parquet")


def test_two_transactions_on_a_branch_conflict_as_on_the_lake(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    one, two = lake.on("etl"), lv.connect(lake.root).on("etl")
    first, second = one.transaction(), two.transaction()
    for txn in (first, second):
        rows = txn.read("stock").to_pylist()
        txn.overwrite("stock", [{"sku": "tea", "qty": rows[0]["qty"] + 1}])
    first.commit()
    with pytest.raises(lv.ConflictError):
        second.commit()
    # Transactions on the lake never conflict with those on a branch.
    third = one.transaction()
    third.update("stock", {"qty": "qty + 1"}, where="true")
    lake.run(lambda txn: txn.update("stock", {"qty": "qty * 2"}, where="true"))
    third.commit()
    assert (stock(one), stock(lake)) == ({"tea": 7}, {"tea": 10})


@pytest.mark.night
def test_concurrent_writers_of_a_branch_lose_no_row(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    lakes = [lv.connect(lake.root).on("etl") for _ in range(2)]

    def work(number: int) -> None:
        for step in range(3):
            etl = lakes[number % 2]
            etl.run(put_in(f"{number}-{step}", 1))
            etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stock(lake.on("etl"))
    assert found.pop("tea") == 5 + 18
    assert len(found) == 18
    assert stock(lake) == {"tea": 5}


def test_a_branch_of_some_tables_has_no_other_tables(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("orders", tables=["sales/*"])
    with pytest.raises(lv.TableNotFound, match="not on branch 'orders'"):
        lake.on("orders").read("stock")
    with pytest.raises(lv.TableNotFound, match="not on branch 'orders'"):
        lake.on("orders").run(put_in("jam", 2))
    assert lake.on("orders").read("sales/orders").num_rows == 1


def test_a_branch_can_be_made_of_an_older_version_and_pickled(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.run(put_in("jam", 2))
    lake.branch("then", at=2)
    etl = lake.on("then")
    etl.run(put_in("rum", 1))
    again = pickle.loads(pickle.dumps(etl))
    assert stock(again) == {"tea": 5, "rum": 1}
    again.run(put_in("ale", 1))
    assert stock(etl) == {"tea": 5, "rum": 1, "ale": 1}
    assert list(again.on("main")) == list(lake)


def test_a_transaction_on_a_branch_is_saved_and_resumed_there(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    etl, other = lake.on("etl"), lv.connect(lake.root).on("etl")
    saved = etl.transaction()
    saved.append("stock", [{"sku": "jam", "qty": 1}])
    saved.update("stock", {"qty": "qty + 1"}, where="true")
    saved.save()
    assert [info.id for info in other.transactions()] == [saved.id]
    assert lake.transactions() == []
    other.resume(saved.id).commit()
    assert stock(other) == {"tea": 6, "jam": 2}
    assert other.outcome(saved.id).state == "committed"
    with pytest.raises(lv.TransactionAborted, match="committed by another process"):
        saved.commit()
    late = etl.transaction()
    late.append("stock", [{"sku": "rum", "qty": 1}])
    late.save()
    other.abort(late.id)
    with pytest.raises(lv.TransactionAborted):
        late.commit()
    assert stock(etl) == {"tea": 6, "jam": 2}
    assert stock(lake) == {"tea": 5}


@pytest.mark.parametrize(
    "asks",
    [
        lambda lake: lake.transaction(lv.Feature.R | lv.Feature.CT),
        lambda lake: lake.run(put_in("jam", 1), idempotency_key=("once", 1)),
        lambda lake: lake.drop_table("stock", delete_data=True),
        lambda lake: lake.rename_table("stock", "goods"),
        lambda lake: lake.register("stock"),
        lambda lake: lake.register(discover=True),
        lambda lake: lake.unregister("stock"),
        lambda lake: lake.discover(),
        lambda lake: lake.guard("stock"),
        lambda lake: lake.gc(),
        lambda lake: lake.recover(),
        lambda lake: lake.doctor(),
        lambda lake: lake.tag("again"),
        lambda lake: lake.branch("again"),
        lambda lake: lake.refs(),
        lambda lake: lake.delete_ref("etl"),
        lambda lake: lake["stock"].vacuum(),
    ],
)
def test_verbs_for_the_lake_itself_are_refused_on_a_branch(
    lake: lv.Lake, asks: Callable[[lv.Lake], object]
) -> None:
    shop(lake)
    lake.branch("etl")
    with pytest.raises(lv.InvalidOperation, match="branch"):
        asks(lake.on("etl"))
    assert (stock(lake.on("etl")), lake.refs()[0].version) == ({"tea": 5}, 2)


@pytest.mark.parametrize("name", ["57", "main", "a b", "a@1", "a//b", "../a", "a/", "", 7, "there"])
def test_invalid_branch_names_are_refused(lake: lv.Lake, name: Any) -> None:
    shop(lake)
    lake.branch("there")
    with pytest.raises((lv.InvalidOperation, lv.RefExists)):
        lake.branch(name)
    assert [ref.name for ref in lake.refs()] == ["there"]


def test_a_table_that_a_branch_has_is_not_unregistered_or_dropped_with_data(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    with pytest.raises(lv.InvalidOperation, match="'etl' keeps it"):
        lake.unregister("stock")
    with pytest.raises(lv.InvalidOperation, match="'etl' keeps it"):
        lake.drop_table("stock", delete_data=True)


def test_dropping_a_table_with_data_keeps_files_of_a_branchs_table_of_the_same_name(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.branch("etl")
    lake.on("etl").create_table("fresh", [{"a": 1}])
    lake.create_table("fresh", [{"b": 1}])
    lake.drop_table("fresh", delete_data=True)
    clean_up(lake)
    assert lake.on("etl").read("fresh").to_pylist() == [{"a": 1}]


def test_a_protected_branch_is_not_deleted(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl", protected=True)
    with pytest.raises(lv.InvalidOperation, match="is protected"):
        lake.delete_ref("etl")
    lake.on("etl").run(put_in("jam", 1))
    lake.protect("etl", on=False)
    lake.delete_ref("etl")


def test_branches_are_found_again_after_head_was_lost(lake: lv.Lake) -> None:
    shop(lake)
    for name in ("etl", "over"):
        lake.branch(name)
        lake.on(name).run(put_in("jam", 2))
    lake.delete_ref("over")
    lake.close()
    Path(lake.root, "_lakevilla/HEAD.json").unlink()
    with lv.connect(lake.root) as again:
        again.recover(rebuild_head=True)
        again.recover(confirm_head=True)
        clean_up(again)
        assert [ref.name for ref in again.refs()] == ["etl"]
        again.on("etl").run(put_in("rum", 1))
        assert stock(again.on("etl")) == {"tea": 5, "jam": 2, "rum": 1}


@pytest.mark.parametrize("harm", ["missing", "damaged", "anothers", "commit"])
def test_a_damaged_branch_is_reported_and_harms_nothing_else(lake: lv.Lake, harm: str) -> None:
    shop(lake)
    lake.branch("etl")
    lake.on("etl").run(put_in("jam", 2))
    head = home(lake) / "HEAD.json"
    lake.branch("other")
    match harm:
        case "missing":
            head.unlink()
        case "damaged":
            head.write_bytes(b"{")
        case "anothers":
            (other,) = set(Path(lake.root, "_lakevilla/branches").iterdir()) - {head.parent}
            head.write_bytes((other / "HEAD.json").read_bytes())
        case "commit":
            (commit,) = (head.parent / "commits").iterdir()
            commit.unlink()
    with lv.connect(lake.root) as again:
        with pytest.raises(lv.CorruptObject, match="branches/"):
            stock(again.on("etl"))
        assert any("branch 'etl'" in found.message for found in again.doctor().findings)
        assert not again.doctor().ok
        assert len(again.refs()) == 2
        clean_up(again)
        assert stock(again) == stock(again.on("other")) == {"tea": 5}
        again.delete_ref("etl")
        clean_up(again)
        assert again.doctor().ok


def test_an_interrupted_deletion_of_a_branch_is_finished(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    etl = lake.on("etl")
    head = home(lake) / "HEAD.json"
    open_head = head.read_bytes()
    closed = b'"closed":"deleted","base":'
    head.write_bytes(open_head.replace(b'"base":{"made"', closed + b'{"made"', 1))
    assert lake.refs() == []
    assert any(finding.kind == "ref_ended" for finding in lake.doctor().findings)
    with pytest.raises(lv.RefNotFound, match="'etl' was deleted"):
        etl.run(put_in("jam", 2))
    assert any(finding.kind == "ref_ended" for finding in lake.recover().findings)
    assert not [finding for finding in lake.doctor().findings if finding.kind == "ref_ended"]
    lake.branch("etl")
    assert stock(lake.on("etl")) == {"tea": 5}


def test_a_branch_of_a_copied_lake_can_be_read_branched_and_merged_but_not_written(
    lake: lv.Lake, tmp_path: Path
) -> None:
    shop(lake)
    lake.branch("etl")
    lake.on("etl").run(put_in("jam", 2))
    lake.close()
    copied = str(tmp_path / "copied")
    shutil.copytree(lake.root, copied)
    with lv.connect(copied) as other:
        other.doctor(adopt=True)
        with pytest.raises(lv.InvalidOperation, match=r"only reads at .* at='etl'"):
            other.on("etl").run(put_in("rum", 1))
        other.branch("again", at="etl")
        other.on("again").run(put_in("rum", 1))
        assert stock(other.on("again")) == {"tea": 5, "jam": 2, "rum": 1}
        other.merge("etl", delete=True)
        other.merge("again", delete=True)
        clean_up(other)
        assert stock(other) == {"tea": 5, "jam": 2, "rum": 1}


def test_large_branches_are_stored_in_leaves(lake: lv.Lake) -> None:
    with small_limits(True):
        shop(lake)
        for number in range(8):
            lake.create_table(f"t{number}", [{"a": number}])
        lake.branch("etl")
        etl = lake.on("etl")
        for number in range(8):
            etl.run(lambda txn, number=number: txn.append(f"t{number}", [{"a": 100}]))  # type: ignore[misc]
            lake.run(lambda txn, number=number: txn.append(f"t{number}", [{"a": -1}]))  # type: ignore[misc]
        lake.tag("then", at="etl")
        clean_up(lake)
        with lv.connect(lake.root) as other:
            found = [sorted(other.on("etl").read(f"t{n}")["a"].to_pylist()) for n in range(8)]
            assert found == [[n, 100] for n in range(8)]
        lake.delete_ref("etl")
        clean_up(lake)
        with lv.connect(lake.root) as other:
            found = [sorted(other.on("then").read(f"t{n}")["a"].to_pylist()) for n in range(8)]
            assert found == [[n, 100] for n in range(8)]


def test_a_branch_costs_three_writes_however_many_tables_there_are(tmp_path: Path) -> None:
    with lake_of(10, str(tmp_path / "ten"), commits=1) as few:
        few.tag("warm")
        ten = cost(few, lambda: few.branch("one"))
    with lake_of(20_000, str(tmp_path / "many"), commits=1) as many:
        many.tag("warm")
        assert cost(many, lambda: many.branch("one")) == Requests(put=3, get=1)
        assert cost(many, lambda: many.on("one")) == Requests(get=2)
    assert (ten.put, ten.list) == (3, 0)
    assert ten.get <= 11  # HEAD, and each log


def test_a_commit_on_a_branch_costs_two_writes_besides_its_data_files(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(put_in("jam", 1))

    def both(txn: lv.Transaction) -> None:
        txn.append("stock", [{"sku": "rum", "qty": 1}])
        txn.append("sales/orders", [{"id": 2}])

    etl.run(both)
    assert cost(etl, lambda: etl.run(put_in("ale", 1))) == Requests(put=1 + 2, get=1)
    assert cost(etl, lambda: etl.run(both)) == Requests(put=2 + 2, get=1)


@pytest.mark.night
def test_a_branch_with_many_commits_keeps_few_of_them_pending(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.run(put_in("jam", 1))
    lake.branch("etl")
    etl = lake.on("etl")
    early = etl.transaction()
    early.append("stock", [{"sku": "early", "qty": 1}])
    most = 0
    for number in range(40):
        etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'"))
        if number % 3 == 0:
            etl.run(put_in(f"x{number}", number))
        most = max(most, _pending(etl, "stock"))
    expected = {"tea": 45, "jam": 1, **{f"x{n}": n for n in range(0, 40, 3)}}
    assert most <= 17
    assert stock(etl) == stock(lv.connect(lake.root).on("etl")) == expected
    early.commit()
    clean_up(lake)
    assert stock(lv.connect(lake.root).on("etl")) == {**expected, "early": 1}
    lake.tag("then", at="etl")
    lake.delete_ref("etl")
    clean_up(lake)
    assert stock(lake.on("then")) == {**expected, "early": 1}
    assert stock(lake) == {"tea": 5, "jam": 1}


def _pending(etl: lv.Lake, table: str) -> int:
    head = inside(etl).client.head()
    assert head is not None
    return len(head.tables[table].pending)


def test_reprs_of_objects_of_a_branch_or_a_tag_name_it(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    lake.tag("closing")
    etl = lake.on("etl")
    assert " on branch 'etl', version 2" in repr(etl)
    assert "Table stock on branch 'etl': delta" in repr(etl["stock"])
    assert "table stock on branch &#x27;etl&#x27;: delta" in etl["stock"]._repr_html_()
    with etl.transaction() as txn:
        assert f"{txn.id} on branch 'etl' open" in repr(txn)
    with etl.snapshot() as state:
        state.read("stock")
        assert " on branch 'etl', version 2" in repr(state)
    assert "stock at tag 'closing': delta" in repr(lake.on("closing")["stock"])
    assert "at branch 'etl@2'" in repr(lake.on("etl@2"))
    assert "branch '" not in repr(lake["stock"]) + repr(lake)


def test_an_event_reports_a_branch_made_before_the_lake_has_any_table(local_place: Place) -> None:
    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as lake:
        deltalake.write_deltalake(f"{lake.root}/there", pa.table({"id": [1]}))
        lake.branch("early")
        [event] = [event for event in events if event.kind == "left_out"]
        assert "branch 'early' has no table" in event.message
        assert "register(discover=True)" in event.message
        with pytest.raises(lv.TableNotFound, match=r"`rebase\('early'\)` on the lake adds"):
            lake.on("early").read("there")
        lake.register(discover=True)
        lake.branch("etl")
        lake.tag("closing")
        assert len([event for event in events if event.kind == "left_out"]) == 1
        assert lake.on("etl").read("there").num_rows == 1


def test_the_outcome_of_a_transaction_is_reported_by_the_branch_where_it_began(
    lake: lv.Lake,
) -> None:
    shop(lake, "delta")
    lake.branch("etl")
    lake.branch("other")
    etl, other = lake.on("etl"), lake.on("other")
    on_branch, on_lake = etl.transaction(), lake.transaction()
    for number, txn in enumerate((on_branch, on_lake)):
        put_in("jam", number)(txn)
        txn.commit()
    lake.branch("later")
    for asked in (lake, etl, other, lake.on("later")):
        for txn in (on_branch, on_lake):
            assert asked.outcome(txn.id) == lv.Outcome("committed", txn.result)
            with pytest.raises(lv.InvalidOperation, match="has committed as global version"):
                asked.abort(txn.id)
    lake.delete_ref("etl")
    with pytest.raises(lv.CommitOutcomeUnknown, match="nor on any of its branches: check the id"):
        lake.outcome(on_branch.id)
    with pytest.raises(lv.InvalidOperation, match="nor on any of its branches: check the id"):
        other.abort(on_branch.id)


def test_a_transaction_can_be_aborted_through_any_branch_and_the_lake(lake: lv.Lake) -> None:
    shop(lake, "delta")
    lake.branch("etl")
    etl = lake.on("etl")
    for begun, asked in ((etl, lake), (lake, etl)):
        txn = begun.transaction()
        put_in("jam", 1)(txn)
        asked.abort(txn.id)
        with pytest.raises(lv.TransactionAborted):
            txn.commit()
        assert asked.outcome(txn.id).state == begun.outcome(txn.id).state == "aborted"


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_outcome_is_unknown_if_the_branch_is_deleted_during_the_request(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    shop(lake, "delta")
    lake.branch("etl")
    txn = lake.on("etl").transaction()
    put_in("jam", 1)(txn)
    txn.commit()
    found = LakeClient.on

    def ended(client: LakeClient, name: str | None) -> LakeClient:
        lake.delete_ref("etl")
        if is_made_again:
            lake.branch("etl")
        return found(client, name)

    monkeypatch.setattr(LakeClient, "on", ended)
    with pytest.raises(lv.CommitOutcomeUnknown, match="nor on any of its branches: check the id"):
        lake.outcome(txn.id)


def test_a_saved_transaction_is_resumed_on_the_branch_where_it_began(lake: lv.Lake) -> None:
    shop(lake, "delta")
    lake.branch("etl")
    etl = lake.on("etl")
    for place, other in ((etl, lake), (lake, etl)):
        saved = place.transaction()
        put_in("gin", 3)(saved)
        saved.save()
        other.resume(saved.id).commit()
        assert stock(place)["gin"] == 3
        assert stock(other).get("gin") == (None if other is lake else 3)


def test_another_process_resumes_a_transaction_above_the_commits_of_its_branch(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.branch("etl")
    etl = lake.on("etl")
    etl.run(put_in("jam", 2))
    saved = etl.transaction()
    saved.update("stock", {"qty": "qty + 1"}, where="true")
    saved.save()
    with lv.connect(lake.root) as other:
        other.on("etl").resume(saved.id).commit()
        assert stock(other.on("etl")) == {"tea": 6, "jam": 3}


def test_a_ref_of_a_lake_without_refs_is_told_how_to_be_made(tmp_path: Path) -> None:
    with (
        lv.connect(tmp_path) as lake,
        pytest.raises(lv.RefNotFound, match=r"none yet, and branch\('etl'\) or tag\('etl'\) makes"),
    ):
        lake.create_table("t", [{"n": 1}])
        lake.on("etl")
