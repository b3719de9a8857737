"""A rebase puts a branch's changes on top of the lake's newest state."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

import lakevilla as lv
from bench.size.many_tables import lake_of
from lakevilla.branches import rebase as next_epoch
from lakevilla.store.effects import Program
from lakevilla_testing.histories.plan import small_limits
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.traces import cost

Format = Literal["delta", "iceberg"]


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        lake.create_table(
            "stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 1}], format=kind
        )
        lake.create_table("orders", [{"id": 1}], format=kind)
        lake.branch("etl")
        yield lake


def stock(lake: lv.Lake) -> dict[str, int]:
    return {row["sku"]: row["qty"] for row in lake.read("stock").to_pylist()}


def put_in(lake: lv.Lake, sku: str, qty: int) -> None:
    lake.run(lambda txn: txn.append("stock", [{"sku": sku, "qty": qty}]))


def set_to(lake: lv.Lake, sku: str, qty: int) -> None:
    lake.run(lambda txn: txn.update("stock", {"qty": str(qty)}, where=f"sku = '{sku}'"))


def clean_up(lake: lv.Lake) -> None:
    for name in lake:
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    lake.gc()


def files(lake: lv.Lake) -> set[Path]:
    return set(Path(lake.root).rglob("*.parquet"))


def test_a_rebased_branch_has_the_lakes_new_changes_and_its_own(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    etl.create_table("report", [{"day": 1}], format=kind)
    put_in(lake, "ale", 2)
    lake.create_table("visits", [{"a": 1}], format=kind)
    before = files(lake)
    ref = lake.rebase("etl")
    assert (ref.name, ref.kind, ref.base_version, ref.merged) == ("etl", "branch", 4, None)
    assert files(lake) == before
    assert stock(etl) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3}
    assert sorted(etl) == ["orders", "report", "stock", "visits"]
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 2}
    clean_up(lake)
    assert stock(etl) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3}
    done = lake.merge("etl", delete=True)
    assert done.tables == {"stock": "physical", "report": "created"}
    clean_up(lake)
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3}
    assert lake.read("report").to_pylist() == [{"day": 1}]


def test_a_rebase_raises_the_version_of_the_branch(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    for number in range(5):
        put_in(etl, f"rum{number}", 3)
    was = etl.history()[0].version
    put_in(lake, "ale", 2)
    assert lake.rebase("etl").version == was + 2
    assert [ref.version for ref in lake.refs()] == [was + 2]
    assert [entry.operations[0].operation for entry in etl.history()] == ["REBASE"]


def test_rebase_of_a_branch_on_the_newest_state_changes_nothing(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    before = set(Path(lake.root).rglob("*.json"))
    assert lake.rebase("etl") == lake.refs()[0]
    assert set(Path(lake.root).rglob("*.json")) == before


def test_rebase_does_not_repeat_merged_changes(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.merge("etl")
    lake.run(lambda txn: txn.delete("stock", where="sku = 'rum'"))
    put_in(etl, "gin", 4)
    assert lake.rebase("etl").merged is None
    assert stock(etl) == {"tea": 5, "jam": 1, "gin": 4}
    lake.merge("etl")
    assert stock(lake) == {"tea": 5, "jam": 1, "gin": 4}


def test_rows_that_only_one_side_has_changed_are_no_conflict(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 50)
    set_to(lake, "jam", 10)
    lake.rebase("etl", keys={"stock": ["sku"]})
    assert stock(etl) == {"tea": 50, "jam": 10}
    clean_up(lake)
    assert stock(etl) == {"tea": 50, "jam": 10}
    assert lake.merge("etl").tables == {"stock": "physical"}
    assert stock(lake) == {"tea": 50, "jam": 10}


def test_a_conflict_names_the_rows_and_leaves_the_branch(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 50)
    set_to(lake, "tea", 7)
    with pytest.raises(lv.MergeConflict, match="table stock: "):
        lake.rebase("etl")
    with pytest.raises(lv.MergeConflict) as caught:
        lake.rebase("etl", keys={"stock": "sku"})
    assert caught.value.tables == ["stock"]
    (row,) = caught.value.rows("stock").to_pylist()
    assert [row[side]["qty"] for side in ("base", "ours", "theirs")] == [5, 7, 50]
    assert stock(etl) == {"tea": 50, "jam": 1}
    put_in(etl, "rum", 3)


@pytest.mark.parametrize(("decided", "qty"), [("ours", 7), ("theirs", 50)])
def test_on_conflict_decides_which_side_a_rebase_keeps(
    lake: lv.Lake, decided: Literal["ours", "theirs"], qty: int
) -> None:
    etl = lake.on("etl")
    set_to(etl, "tea", 50)
    put_in(etl, "rum", 3)
    set_to(lake, "tea", 7)
    lake.rebase("etl", keys={"stock": "sku"}, on_conflict=decided)
    assert stock(etl) == {"tea": qty, "jam": 1, "rum": 3}
    lake.merge("etl")
    assert stock(lake) == {"tea": qty, "jam": 1, "rum": 3}


def test_schemas_that_both_sides_have_changed_are_in_conflict(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    etl.run(lambda txn: txn.alter("stock", add_columns={"shelf": "int"}))
    lake.run(lambda txn: txn.alter("stock", add_columns={"price": "double"}))
    with pytest.raises(lv.MergeConflict, match="its schema or properties were changed on both"):
        lake.rebase("etl")
    assert etl["stock"].schema.names == ["sku", "qty", "shelf"]
    lake.rebase("etl", on_conflict="ours")
    assert etl["stock"].schema.names == ["sku", "qty", "price"]


def test_a_rebase_keeps_a_column_that_only_the_lake_has_added(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.run(lambda txn: txn.alter("stock", add_columns={"price": "double"}))
    lake.rebase("etl")
    assert etl["stock"].schema.names == ["sku", "qty", "price"]
    assert stock(etl)["rum"] == 3


def test_a_changed_table_that_the_lake_has_dropped_is_a_conflict_of_a_rebase(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    etl.drop_table("orders")
    put_in(etl, "rum", 3)
    lake.drop_table("stock")
    with pytest.raises(lv.MergeConflict, match="it is to be changed, but was dropped"):
        lake.rebase("etl")
    lake.rebase("etl", on_conflict="ours")
    assert sorted(etl) == []
    lake.merge("etl")
    assert sorted(lake) == []


def test_a_table_that_was_made_on_both_sides_is_in_conflict(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    etl.create_table("report", [{"day": 1}], format=kind)
    lake.create_table("report", [{"day": 2}], format=kind)
    with pytest.raises(lv.MergeConflict, match="it is to be created, but exists"):
        lake.rebase("etl")
    assert etl.read("report").to_pylist() == [{"day": 1}]


def test_a_rebased_branch_of_some_tables_has_all_tables_that_match_its_patterns(
    lake: lv.Lake, kind: Format
) -> None:
    lake.branch("part", tables=["st*"])
    lake.branch("again", at="part")
    lake.create_table("sta", [{"a": 1}], format=kind)
    for name in ("part", "again"):
        put_in(lake.on(name), "rum", 3)
        lake.rebase(name)
        assert sorted(lake.on(name)) == ["sta", "stock"]
        assert stock(lake.on(name))["rum"] == 3


def test_a_branch_of_a_branch_is_based_on_the_lake_with_the_commits_of_both(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    lake.branch("next", at="etl")
    put_in(lake.on("next"), "gin", 4)
    lake.merge("etl", delete=True)
    put_in(lake, "ale", 2)
    lake.rebase("next")
    clean_up(lake)
    assert stock(lake.on("next")) == {"tea": 5, "jam": 1, "rum": 3, "gin": 4, "ale": 2}


def test_a_transaction_in_run_is_run_again_if_its_branch_is_rebased_meanwhile(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    put_in(lake, "ale", 2)
    seen: list[dict[str, int]] = []

    def work(txn: lv.Transaction[Any]) -> None:
        seen.append({row["sku"]: row["qty"] for row in txn.read("stock").to_pylist()})
        txn.append("stock", [{"sku": "gin", "qty": 4}])
        if len(seen) == 1:
            lake.rebase("etl")

    etl.run(work)
    assert seen == [{"tea": 5, "jam": 1}, {"tea": 5, "jam": 1, "ale": 2}]
    assert stock(etl) == {"tea": 5, "jam": 1, "ale": 2, "gin": 4}


def test_a_transaction_without_run_raises_a_conflict_if_its_branch_is_rebased(
    lake: lv.Lake,
) -> None:
    etl = lake.on("etl")
    put_in(lake, "ale", 2)
    txn = etl.transaction()
    txn.append("stock", [{"sku": "gin", "qty": 4}])
    lake.rebase("etl")
    with pytest.raises(lv.ConflictError, match="'etl' was rebased meanwhile: run the"):
        txn.commit()
    with etl.transaction() as again:
        again.append("stock", [{"sku": "gin", "qty": 4}])
    assert stock(etl) == {"tea": 5, "jam": 1, "ale": 2, "gin": 4}


def test_objects_of_a_branch_can_be_used_after_rebases(lake: lv.Lake) -> None:
    etl, other = lake.on("etl"), lake.on("etl")
    table = etl["stock"]
    there = pickle.dumps(etl)
    with etl.snapshot() as snapshot:
        for number in range(3):
            put_in(lake, f"ale{number}", 2)
            lake.rebase("etl")
        assert stock(snapshot) == {"tea": 5, "jam": 1}
    for one in (etl, other, pickle.loads(there)):
        put_in(one, "rum", 3)
        assert len(stock(one)) == len(stock(etl))
    assert table.read().num_rows == etl.read("stock").num_rows == 8
    assert f"version {lake.refs()[0].version}," in repr(etl)
    assert [one.name for one in other.tables()] == ["orders", "stock"]
    assert len(other.history()) == len(etl.history()) == 3
    assert other.transactions() == []


def test_a_branch_that_was_rebased_and_deleted_is_not_found(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(lake, "ale", 2)
    lake.rebase("etl")
    lake.delete_ref("etl")
    with pytest.raises(lv.RefNotFound):
        stock(etl)
    lake.branch("etl")
    with pytest.raises(lv.RefNotFound, match="'etl' was deleted"):
        put_in(etl, "rum", 3)


def test_deleting_a_rebased_branch_frees_its_space(lake: lv.Lake) -> None:
    before = files(lake)
    etl = lake.on("etl")
    for number in range(2):
        put_in(etl, "rum", number)
        lake.run(lambda txn: txn.append("orders", [{"id": 2}]))
        lake.rebase("etl")
    lake.delete_ref("etl")
    clean_up(lake)
    clean_up(lake)
    assert not [path for path in Path(lake.root).rglob("*") if "/b/" in str(path)]
    assert len(files(lake)) == len(before) + 2
    assert not list(Path(lake.root).glob("_lakevilla/branches/*/*.json"))


def test_invalid_arguments_of_a_rebase_are_refused(lake: lv.Lake) -> None:
    lake.tag("closing")
    lake.branch("kept", protected=True)
    put_in(lake, "ale", 2)
    before = set(Path(lake.root).rglob("*"))
    with pytest.raises(lv.InvalidOperation, match="branch 'kept' is protected, so it can't be re"):
        lake.rebase("kept")
    with pytest.raises(lv.InvalidOperation, match="tag 'closing' can't be rebased"):
        lake.rebase("closing")
    with pytest.raises(lv.InvalidOperation, match="'main' is the lake itself"):
        lake.rebase("main")
    with pytest.raises(lv.RefNotFound, match="this lake has no ref 'elt'"):
        lake.rebase("elt")
    with pytest.raises(lv.InvalidOperation, match="rebase takes the name of a branch"):
        lake.rebase(3)  # type: ignore[arg-type]
    with pytest.raises(lv.InvalidOperation, match="rebase: this is branch 'etl'"):
        lake.on("etl").rebase("etl")
    with pytest.raises(lv.InvalidOperation, match="has no column 'kus'"):
        put_in(lake.on("etl"), "rum", 3)
        lake.rebase("etl", keys={"stock": "kus"})
    assert {path for path in before if not path.exists()} == set()


def test_a_branch_of_a_copied_lake_can_be_written_after_a_rebase(
    local_place: Place, tmp_path: Path
) -> None:
    with local_place.connect() as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.branch("etl")
        put_in(lake.on("etl"), "rum", 3)
    copied = str(tmp_path / "copied")
    shutil.copytree(lake.root, copied)
    with lv.connect(copied) as other:
        with pytest.raises(lv.InvalidOperation, match="copied or moved and is read-only here"):
            other.rebase("etl")
        other.doctor(adopt=True)
        etl = other.on("etl")
        with pytest.raises(lv.InvalidOperation, match=r"`rebase\('etl'\)` on the lake moves it"):
            put_in(etl, "ale", 2)
        other.rebase("etl")
        put_in(etl, "ale", 2)
        other.merge("etl", delete=True)
        clean_up(other)
        assert stock(other) == {"tea": 5, "rum": 3, "ale": 2}
    assert stock(local_place.connect().on("etl")) == {"tea": 5, "rum": 3}


def test_the_error_for_a_missing_table_says_how_it_gets_onto_the_branch(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    lake.create_table("visits", [{"a": 1}], format=kind)
    with pytest.raises(lv.TableNotFound, match=r"`rebase\('etl'\)` on the lake adds tables"):
        etl.read("visits")


def test_outcomes_of_transactions_from_before_a_rebase_are_reported(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    with etl.transaction() as done:
        done.append("stock", [{"sku": "gin", "qty": 4}])
    left = etl.transaction()
    left.append("stock", [{"sku": "rum", "qty": 4}])
    put_in(lake, "ale", 2)
    lake.rebase("etl")
    for one in (etl, lake.on("etl")):
        assert one.outcome(done.id).state == "committed"
        assert one.outcome(left.id).state == "aborted"
        with pytest.raises(lv.InvalidOperation, match="committed before its branch"):
            one.abort(done.id)
    with pytest.raises((lv.ConflictError, lv.TransactionAborted)):
        left.commit()


def test_a_transaction_saved_before_a_rebase_is_not_resumed(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    left, done = etl.transaction(), etl.transaction()
    for txn in (left, done):
        txn.append("stock", [{"sku": "gin", "qty": 4}])
        txn.save()
    done.commit()
    put_in(lake, "ale", 2)
    lake.rebase("etl")
    with pytest.raises(lv.TransactionAborted, match="is based on the branch before that: run it"):
        etl.resume(left.id)
    with pytest.raises(lv.AlreadyCommitted, match="before that was rebased"):
        etl.resume(done.id)
    left.abort()


def test_a_rebased_branch_is_found_again_after_head_was_lost(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, "rum", 3)
    put_in(lake, "ale", 2)
    lake.rebase("etl")
    put_in(etl, "gin", 4)
    lake.merge("etl", tables=["orders"])
    lake.close()
    (Path(lake.root) / "_lakevilla/HEAD.json").unlink()
    with lv.connect(lake.root) as again:
        again.recover(rebuild_head=True)
        again.recover(confirm_head=True)
        clean_up(again)
        assert stock(again.on("etl")) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3, "gin": 4}
        put_in(again, "mead", 1)
        again.rebase("etl")
        again.merge("etl")
        assert stock(again) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3, "gin": 4, "mead": 1}


def test_a_branch_can_be_rebased_and_merged_while_main_is_protected(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    put_in(lake, "ale", 2)
    lake.protect_main()
    lake.rebase("etl")
    put_in(lake.on("etl"), "gin", 4)
    lake.merge("etl")
    assert stock(lake) == {"tea": 5, "jam": 1, "ale": 2, "rum": 3, "gin": 4}


@pytest.fixture
def cut_off(lake: lv.Lake, monkeypatch: pytest.MonkeyPatch) -> lv.Lake:
    """Return a lake whose branch was closed by a rebase that then was interrupted."""

    def dies(*_: object) -> Program[bool]:
        raise KeyboardInterrupt

    put_in(lake.on("etl"), "rum", 3)
    put_in(lake, "ale", 2)
    with monkeypatch.context() as patched:
        patched.setattr(next_epoch, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            lake.rebase("etl")
    return lake


def test_an_interrupted_rebase_is_reported_and_finished(cut_off: lv.Lake) -> None:
    lake = cut_off
    (ref,) = lake.refs()
    assert "ref_moved" in [found.kind for found in lake.doctor().findings]
    assert "ref_moved" in [found.kind for found in lake.recover().findings]
    assert "ref_moved" not in [found.kind for found in lake.doctor().findings]
    assert lake.refs() == [ref]
    assert stock(lake.on("etl")) == {"tea": 5, "jam": 1, "rum": 3}


@pytest.mark.parametrize("way", ["opened", "rebased", "merged", "deleted", "branched", "protected"])
def test_operations_on_a_branch_continue_after_an_interrupted_rebase(
    cut_off: lv.Lake, way: str
) -> None:
    lake = cut_off
    here = {"tea": 5, "jam": 1, "rum": 3}
    match way:
        case "opened":
            put_in(lake.on("etl"), "gin", 4)
            assert stock(lake.on("etl")) == {**here, "gin": 4}
        case "rebased":
            lake.rebase("etl")
            assert stock(lake.on("etl")) == {**here, "ale": 2}
        case "merged":
            lake.merge("etl", delete=True)
            assert lake.refs() == []
            assert stock(lake) == {**here, "ale": 2}
        case "deleted":
            lake.delete_ref("etl")
            assert lake.refs() == []
        case "branched":
            lake.branch("other", at="etl")
            assert stock(lake.on("other")) == here
        case "protected":
            lake.protect("etl")
            with pytest.raises(lv.InvalidOperation, match="is protected"):
                lake.rebase("etl")
            put_in(lake.on("etl"), "gin", 4)
    clean_up(lake)
    for ref in lake.refs():
        assert stock(lake.on(ref.name)).items() >= here.items()


def test_a_client_can_use_a_branch_through_many_rebases(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    first = inside(etl).client
    for number in range(5):
        put_in(lake, f"ale{number}", 1)
        lake.rebase("etl")
        assert len(stock(etl)) == 3 + number
    assert first.newest() is first.next_epoch
    assert first.newest().context.epoch != first.context.epoch


def test_a_branch_of_a_lake_with_leaves_can_be_rebased(local_place: Place) -> None:
    with small_limits(True), local_place.connect() as lake:
        for number in range(12):
            lake.create_table(f"t{number:02}", [{"a": number}])
        lake.branch("etl")
        etl = lake.on("etl")
        etl.run(lambda txn: txn.append("t03", [{"a": 33}]))
        etl.create_table("u", [{"a": 1}])
        lake.run(lambda txn: txn.append("t07", [{"a": 77}]))
        lake.rebase("etl")
        clean_up(lake)
        etl = local_place.connect().on("etl")
        assert etl.read("t03").num_rows == etl.read("t07").num_rows == 2
        assert len(etl) == 13


def test_a_rebase_costs_five_writes(lake: lv.Lake) -> None:
    etl = lake.on("etl")

    def both(txn: lv.Transaction[Any]) -> None:
        txn.append("stock", [{"sku": "rum", "qty": 1}])
        txn.append("orders", [{"id": 2}])

    etl.run(both)
    put_in(lake, "ale", 2)
    # HEAD twice, the branch's HEAD, the base, and the log of each table.
    cold = cost(lake, lambda: lake.rebase("etl"))
    assert cold.put == 5
    assert cost(lake, lambda: lake.rebase("etl")).put == 0
    put_in(lake, "mead", 2)
    assert cost(lake, lambda: lake.rebase("etl")).put == 5
    lake.branch("idle")
    put_in(lake, "gin", 2)
    assert cost(lake, lambda: lake.rebase("idle")).put == 4


def test_rebase_copies_no_data(lake: lv.Lake) -> None:
    put_in(lake.on("etl"), "rum", 3)
    set_to(lake, "tea", 7)
    before = files(lake)
    lake.rebase("etl")
    assert files(lake) == before
    assert stock(lake.on("etl")) == {"tea": 7, "jam": 1, "rum": 3}


def test_a_rebase_costs_the_same_however_many_tables_there_are(tmp_path: Path) -> None:
    with lake_of(20_000, str(tmp_path / "many"), commits=1) as many:
        many.branch("etl")
        name = next(iter(many))
        rows = many.read(name).slice(0, 1)
        many.on("etl").run(lambda txn: txn.append(name, rows))
        many.run(lambda txn: txn.append(name, rows))
        found = cost(many, lambda: many.rebase("etl"))
        assert (found.put, found.list) == (5 + 1, 0)  # a leaf of the branch
        assert found.get <= 16


def test_rebase_under_concurrent_writers_keeps_each_row_once(local_place: Place) -> None:
    """Each committed row is on the branch once, in whichever epoch it was written."""
    with local_place.connect() as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 0}])
        lake.branch("etl")
        etl = lake.on("etl")

        def writes(first: int) -> None:
            for number in range(first, first + 12):
                etl.run(
                    lambda txn, n=number: txn.append("stock", [{"sku": "ale", "qty": n}]),
                    attempts=50,
                )

        with ThreadPoolExecutor(3) as threads:
            writers = [threads.submit(writes, 100 * (one + 1)) for one in range(3)]
            for number in range(6):
                put_in(lake, "main", 1000 + number)
                lake.rebase("etl")
            for writer in writers:
                writer.result()
        expected = [0, *(100 * (one + 1) + n for one in range(3) for n in range(12))]
        expected += [1000 + number for number in range(6)]
        lake.rebase("etl")
        assert sorted(etl.read("stock")["qty"].to_pylist()) == sorted(expected)
        lake.merge("etl", delete=True)
        clean_up(lake)
        assert sorted(lake.read("stock")["qty"].to_pylist()) == sorted(expected)
