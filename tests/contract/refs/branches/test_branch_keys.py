"""Idempotency keys on branches: a key commits once on a branch and once on the lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.branches import branches
from lakevilla.branches.branches import find_ref
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.frozen.branch_head import load_branch
from lakevilla.transaction.verbs.applying import merge_branch
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.refs.shop import shop, stock


@pytest.fixture
def shopped(lake: lv.Lake) -> lv.Lake:
    shop(lake)
    return lake


def load(lake: lv.Lake, key: Any, sku: str = "jam") -> None:
    """Append a row under an idempotency key, as a job does that may run twice."""
    lake.run(lambda txn: txn.append("stock", [{"sku": sku, "qty": 1}]), idempotency_key=key)


def rows(lake: lv.Lake) -> list[str]:
    return sorted(lake.read("stock")["sku"].to_pylist())


def test_a_key_commits_once_on_a_branch_and_counts_on_the_lake_after_the_merge(
    shopped: lv.Lake,
) -> None:
    shopped.branch("etl")
    etl = shopped.on("etl")
    for _ in range(2):
        load(etl, "monday")
    assert rows(etl) == ["jam", "tea"]
    assert etl.outcome(idempotency_key="monday").state == "committed"
    assert shopped.outcome(idempotency_key="monday").state == "expired"
    version = shopped.merge("etl").version
    load(shopped, "monday")
    load(etl, "monday")
    assert rows(shopped) == ["jam", "tea"]
    done = shopped.outcome(idempotency_key="monday")
    assert done.result is not None
    assert (done.state, done.result.global_version) == ("committed", version)
    load(etl, "tuesday", "oil")
    shopped.merge("etl", delete=True)  # the key that was merged before is no conflict
    load(shopped, "tuesday", "oil")
    with shopped.transaction(idempotency_key="other") as txn:
        txn.append("stock", [{"sku": "zen", "qty": 1}])
    assert rows(shopped) == ["jam", "oil", "tea", "zen"]


def _picked(lake: lv.Lake) -> None:
    """Apply the commit that has the key to the lake by a cherry-pick, not by a merge."""
    load(lake.on("etl"), "monday")
    lake.cherry_pick(f"etl@{lake.on('etl').history(1)[0].version}")


def _undone(lake: lv.Lake) -> None:
    load(lake.on("etl"), "monday")
    lake.on("etl").run(lambda txn: txn.delete("stock", where="sku = 'jam'"))


def _settled(lake: lv.Lake) -> None:
    lake.on("etl").run(
        lambda txn: txn.update("stock", {"qty": "6"}, where="sku = 'tea'"),
        idempotency_key="monday",
    )
    lake.run(lambda txn: txn.update("stock", {"qty": "7"}, where="sku = 'tea'"))


@pytest.mark.parametrize(
    ("change", "tables", "expected"),
    [
        (_picked, {"stock": "kept"}, ["jam", "tea"]),
        (_undone, {}, ["tea"]),
        (_settled, {"stock": "kept"}, ["tea"]),
    ],
)
def test_a_merge_that_changes_no_table_still_takes_over_the_keys(
    shopped: lv.Lake,
    change: Callable[[lv.Lake], None],
    tables: dict[str, str],
    expected: list[str],
) -> None:
    shopped.branch("etl")
    change(shopped)
    before = shopped.history(1)[0].version
    merged = shopped.merge("etl", on_conflict="ours")
    assert (merged.version, merged.tables) == (before + 1, tables)
    load(shopped, "monday")
    assert rows(shopped) == expected
    done = shopped.outcome(idempotency_key="monday")
    assert done.result is not None
    assert (done.state, done.result.global_version) == ("committed", merged.version)
    assert shopped.history(1)[0].tables == ()
    again = shopped.merge("etl", delete=True)
    assert (again.version, again.tables) == (None, {})
    assert shopped.doctor().ok
    assert sorted(shopped.snapshot(merged.version).read("stock")["sku"].to_pylist()) == expected
    assert [list(version.tables) for version in shopped.changes(before)] in ([], [[]])


def test_an_idempotency_key_counts_as_committed_on_branches_made_after_it(shopped: lv.Lake) -> None:
    load(shopped, "monday")
    shopped.branch("etl")
    load(shopped, "tuesday", "oil")
    etl = shopped.on("etl")
    load(etl, "monday")
    assert rows(etl) == ["jam", "tea"]
    with (
        pytest.raises(lv.AlreadyCommitted, match="before branch 'etl' was made") as error,
        etl.transaction(idempotency_key="monday"),
    ):
        pass
    assert error.value.result is not None
    assert error.value.result.global_version == 3
    assert etl.outcome(idempotency_key="monday").state == "committed"
    assert etl.outcome(idempotency_key="tuesday").state == "expired"
    shopped.branch("older", at=2)
    load(shopped.on("older"), "monday")
    assert rows(shopped.on("older")) == ["jam", "tea"]


def test_a_merge_conflicts_if_branch_and_lake_have_committed_the_same_key(shopped: lv.Lake) -> None:
    shopped.branch("etl")
    load(shopped.on("etl"), "monday")
    load(shopped, "monday")
    with pytest.raises(lv.MergeConflict, match="key 'monday' was committed on branch 'etl' and"):
        shopped.merge("etl")
    assert rows(shopped) == ["jam", "tea"]
    shopped.branch("other")
    load(shopped.on("other"), "tuesday", "oil")
    shopped.merge("other")
    assert rows(shopped) == ["jam", "oil", "tea"]


def test_a_merge_conflicts_if_another_merged_branch_has_the_same_key(shopped: lv.Lake) -> None:
    for name in ("a", "b"):
        shopped.branch(name)
        load(shopped.on(name), "monday")
    shopped.merge("a")
    with pytest.raises(lv.MergeConflict, match="monday"):
        shopped.merge("b")
    assert rows(shopped) == ["jam", "tea"]


def test_a_merge_changes_nothing_if_another_client_merges_the_branch_first(
    shopped: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    shopped.branch("etl")
    load(shopped.on("etl"), "monday")
    open_branch: Any = merge_branch.open_branch
    with local_place.connect() as other:

        def late(name: str, entry: RefEntry) -> Any:
            found = yield from open_branch(name, entry)
            monkeypatch.setattr(merge_branch, "open_branch", open_branch)
            other.merge("etl")
            return found

        monkeypatch.setattr(merge_branch, "open_branch", late)
        assert shopped.merge("etl").tables == {}
    assert rows(shopped) == ["jam", "tea"]


def test_a_merge_of_some_tables_is_refused_while_a_key_of_the_branch_is_unmerged(
    shopped: lv.Lake,
) -> None:
    shopped.branch("etl")
    etl = shopped.on("etl")
    load(etl, "monday")
    with pytest.raises(lv.InvalidOperation, match="key 'monday': merge all of its tables"):
        shopped.merge("etl", tables=["stock"])
    shopped.merge("etl")
    etl.run(lambda txn: txn.append("sales/orders", [{"id": 2}]))
    shopped.merge("etl", tables=["sales/*"])  # the key is merged by now
    assert stock(shopped) == {"tea": 5, "jam": 1}


def test_the_key_of_an_aborted_transaction_can_be_used_again(shopped: lv.Lake) -> None:
    shopped.branch("etl")
    etl = shopped.on("etl")
    with pytest.raises(ZeroDivisionError), etl.transaction(idempotency_key="monday") as txn:
        txn.append("stock", [{"sku": "jam", "qty": 1 // 0}])
    load(etl, "monday")
    assert rows(etl) == ["jam", "tea"]
    shopped.merge("etl")
    load(shopped, "monday")
    assert rows(shopped) == ["jam", "tea"]


@pytest.mark.parametrize("at", ["etl", "kept", "etl@3"])
def test_a_branch_of_another_branch_refuses_idempotency_keys(shopped: lv.Lake, at: str) -> None:
    shopped.branch("etl")
    load(shopped.on("etl"), "monday")
    shopped.tag("kept", at="etl")
    shopped.branch("again", at=at)
    with pytest.raises(
        lv.InvalidOperation, match="'again' was created from a state of another branch"
    ):
        load(shopped.on("again"), "monday")
    with pytest.raises(lv.InvalidOperation, match=r"takes no .application, version."):
        load(shopped.on("etl"), ("stream", 1))
    shopped.on("again").run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    assert rows(shopped.on("again")) == ["jam", "oil", "tea"]


def test_a_branch_with_keys_is_rebased_only_after_they_are_merged(shopped: lv.Lake) -> None:
    shopped.branch("etl")
    etl = shopped.on("etl")
    load(etl, "monday")
    with pytest.raises(lv.InvalidOperation, match="key 'monday', which is not merged yet: merge"):
        shopped.rebase("etl")
    shopped.merge("etl")
    load(shopped, "tuesday", "oil")
    shopped.rebase("etl")
    for key, sku in (("monday", "jam"), ("tuesday", "oil"), ("wednesday", "zen")):
        load(etl, key, sku)
        load(shopped.on("etl"), key, sku)
    assert rows(etl) == ["jam", "oil", "tea", "zen"]
    shopped.merge("etl")
    load(shopped, "wednesday", "zen")
    assert rows(shopped) == ["jam", "oil", "tea", "zen"]


def test_a_key_of_the_earlier_epoch_counts_as_committed_after_an_interrupted_rebase(
    shopped: lv.Lake,
) -> None:
    shopped.branch("etl")
    load(shopped.on("etl"), "monday")
    shopped.merge("etl")
    client = inside(shopped).client
    _, entry = client.run(find_ref(client.context, "etl"))
    held = client.run(load_branch("etl", entry))
    assert client.run(branches.close_as(client.context, entry, held, "moved"))
    etl = shopped.on("etl")  # the branch goes on with its old state
    load(etl, "monday")
    assert rows(etl) == ["jam", "tea"]
    load(etl, "tuesday", "oil")
    with pytest.raises(
        lv.VersionNotFound, match="is not known, as a rebase of the branch was interrupted"
    ):
        etl.read("stock", version=3)
