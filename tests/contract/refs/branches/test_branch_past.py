"""Older states of a branch, and its changes, beginning with the state from which it was made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.transaction.commit import squash
from tests.contract.foreign_readers import Format
from tests.support.places import Place


@pytest.fixture
def lake(local_place: Place, kind: Format) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        lake.create_table("stock", [{"id": 1}], format=kind)
        lake.create_table("orders", [{"id": 1}], format=kind)
        lake.branch("etl")  # of version 2
        yield lake


def put_in(lake: lv.Lake, number: int, table: str = "stock") -> None:
    lake.run(lambda txn: txn.append(table, [{"id": number}]))


def ids(lake: Any, table: str = "stock", **state: Any) -> list[int]:
    return sorted(lake.read(table, **state)["id"].to_pylist())


def with_a_life(etl: lv.Lake, kind: Format) -> None:
    """Commit versions 3 to 9 of the branch."""
    put_in(etl, 2)
    etl.create_table("report", [{"id": 7}], format=kind)
    etl.run(lambda txn: txn.delete("stock", where="id = 1"))
    etl.drop_table("orders")
    put_in(etl, 8, "report")
    etl.drop_table("report")
    etl.create_table("report", [{"id": 9}], format="iceberg")  # another table under the same name


def test_each_version_of_a_branch_can_be_read(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    put_in(lake, 50)  # later commits of the lake are not on the branch
    stock = {2: [1], 3: [1, 2], 4: [1, 2], 5: [2], 6: [2], 7: [2], 9: [2]}
    assert {v: ids(etl, version=v) for v in stock} == stock
    report = {v: ids(etl, "report", version=v) for v in (4, 6, 7, 9)}
    assert report == {4: [7], 6: [7], 7: [7, 8], 9: [9]}
    assert ids(etl, "orders", version=5) == [1]
    with etl.snapshot(version=3) as then:
        assert (then.version, sorted(then.versions)) == (3, ["orders", "stock"])
    instant = next(entry for entry in etl.history() if entry.version == 5).timestamp
    with etl.snapshot(timestamp=instant) as then:
        assert ids(then) == [2]


def test_missing_versions_of_a_branch_are_reported_with_the_existing_ones(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    with pytest.raises(lv.VersionNotFound, match=r"branch 'etl' has no .* 10; its newest is 9"):
        etl.read("stock", version=10)
    with pytest.raises(lv.VersionNotFound, match="branch 'etl' begins with version 2"):
        etl.read("stock", version=1)
    with pytest.raises(lv.TableNotFound, match=r"report was not in the lake at .*version 3"):
        etl.read("report", version=3)
    with pytest.raises(lv.TableNotFound, match="orders was not"):
        etl.read("orders", version=6)
    with pytest.raises(lv.VersionNotFound, match="branch 'etl' begins with version 2"):
        list(etl.changes(0))
    with pytest.raises(lv.InvalidOperation, match="only clients of this lake commit"):
        etl.follow(2, absorb_seconds=1.0)


def test_a_table_on_a_branch_has_the_log_versions_from_before_the_branch(lake: lv.Lake) -> None:
    put_in(lake, 2)
    lake.branch("later")
    put_in(lake, 3)
    later = lake.on("later")
    put_in(later, 4)
    own = [entry.version for entry in later.table("stock").versions()]
    assert [ids_of(later.table("stock").read(version=v)) for v in own] == [[1, 2], [1]]
    with pytest.raises(lv.VersionNotFound, match="has no version"):
        later.table("stock").read(version=own[0] + 1)


def ids_of(rows: Any) -> list[int]:
    return sorted(rows["id"].to_pylist())


def test_each_version_can_be_read_though_many_commits_are_stored_as_one_object(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(squash, "MOST_APART", 2)
    etl = lake.on("etl")
    for number in range(2, 11):
        put_in(etl, number)
    with lv.connect(lake.root) as other:
        seen = other.on("etl")
        for version in range(2, 12):
            assert ids(seen, version=version) == list(range(1, version))
        assert [row["id"] for row in rows_since(seen, 5)] == [5, 6, 7, 8, 9, 10]


def rows_since(lake: lv.Lake, since: int, table: str = "stock") -> list[dict[str, Any]]:
    with lake.snapshot() as now:
        return now.changes(table, since=since).sort_by("_commit_version").to_pylist()


def test_changes_of_a_table_on_a_branch_begin_with_the_base(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    found = [(r["_commit_version"], r["_change_type"], r["id"]) for r in rows_since(etl, 2)]
    assert found == [(3, "insert", 2), (5, "delete", 1)]
    with etl.snapshot(version=3) as then:
        assert then.changes("stock", since=2)["id"].to_pylist() == [2]
    with pytest.raises(lv.VersionNotFound, match="begins with version 2"):
        rows_since(etl, 1)


def test_the_change_feed_of_a_branch_has_all_tables_of_each_version(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    put_in(lake, 50)
    feed = list(etl.changes(2))
    assert [one.version for one in feed] == [3, 4, 5, 6, 7, 8, 9]
    touched = [["stock"], ["report"], ["stock"], [], ["report"], [], ["report"]]
    assert [sorted(one.tables) for one in feed] == touched
    assert [one.entered for one in feed if one.entered] == [("report",), ("report",)]
    assert [one.left for one in feed if one.left] == [("orders",), ("report",)]
    net = next(iter(etl.changes(2, net=True)))
    rows = {name: sorted(rows["id"].to_pylist()) for name, rows in net.tables.items()}
    assert (rows, net.left) == ({"stock": [1, 2], "report": [9]}, ("orders",))


def test_follow_returns_new_commits_of_a_branch(lake: lv.Lake) -> None:
    etl, stop, seen = lake.on("etl"), threading.Event(), []
    put_in(etl, 2)
    for version in etl.follow(2, poll_seconds=0.01, stop=stop):
        seen.append((version.version, ids_of(version.tables["stock"])))
        if version.version == 3:
            put_in(lake.on("etl"), 3)
        else:
            stop.set()
    assert seen == [(3, [2]), (4, [3])]


def test_a_follower_of_a_branch_gets_an_error_when_it_is_rebased(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, 2)
    seen = []
    with pytest.raises(lv.VersionNotFound, match="'etl' was rebased after version 3"):
        for version in etl.follow(2, poll_seconds=0.01):
            seen.append(version.version)
            put_in(lake, 50)
            lake.rebase("etl")
    assert seen == [3]


def test_a_version_of_a_branch_can_be_named_in_all_verbs_that_take_a_ref(
    lake: lv.Lake, kind: Format
) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    then = lake.on("etl@5")
    assert (ids(then), sorted(then)) == ([2], ["orders", "report", "stock"])
    with pytest.raises(lv.InvalidOperation, match="branch 'etl@5' only reads"):
        put_in(then, 3)
    tag = lake.tag("kept", at="etl@3")
    assert (tag.version, ids(lake.on("kept"))) == (3, [1, 2])
    lake.branch("again", at="etl@7")
    assert sorted(lake.on("again")) == ["report", "stock"]
    put_in(lake.on("again"), 70)
    assert lake.diff("etl@3", "etl@5").rows("stock", keys="id").to_pylist() == [
        {"id": 1, "_change_type": "delete"}
    ]
    assert [row["table"] for row in lake.diff("etl@2").tables.to_pylist()] == []
    lake.run(lambda txn: txn.apply("etl@2", "etl@3"))
    assert ids(lake) == [1, 2]
    assert lake.cherry_pick("etl@5").tables == {"stock": "physical"}
    assert ids(lake) == [2]
    lake.rollback("etl@4", tables=["stock"])
    assert ids(lake) == [1, 2]


def test_a_tag_of_a_branch_stays_when_the_branch_is_deleted(lake: lv.Lake, kind: Format) -> None:
    etl = lake.on("etl")
    with_a_life(etl, kind)
    lake.tag("kept", at="etl@5")
    lake.delete_ref("etl")
    lake.gc()
    for name in lake:
        lake[name].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    kept = lake.on("kept")
    assert (ids(kept), ids(kept, "report"), ids(kept, "orders")) == ([2], [7], [1])
    with pytest.raises(lv.RefNotFound, match="no ref 'etl'"):
        lake.on("etl@5")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("etl@99", lv.VersionNotFound, "branch 'etl' has no global version 99; its newest is 9"),
        ("etl@1", lv.VersionNotFound, "branch 'etl' begins with version 2"),
        ("etl@x", lv.InvalidOperation, "names no state: a version of a branch is written etl@57"),
        ("etl@", lv.InvalidOperation, "names no state"),
        ("e@tl@3", lv.InvalidOperation, "names no state"),
        ("other@3", lv.RefNotFound, "no ref 'other'"),
        ("closing@3", lv.VersionNotFound, "tag 'closing' is global version 2 alone: leave out @3"),
        ("main@3", lv.InvalidOperation, "'main' is the lake itself: give its version as a number"),
    ],
)
def test_a_branch_version_that_does_not_exist_is_refused(
    lake: lv.Lake, kind: Format, name: str, error: type[Exception], message: str
) -> None:
    lake.tag("closing")
    with_a_life(lake.on("etl"), kind)
    for asks in (lake.on, lake.diff, lambda at: lake.tag("new", at=at)):
        with pytest.raises(error, match=message):
            asks(name)
    assert [ref.name for ref in lake.refs("tag")] == ["closing"]


def test_a_past_state_of_a_branch_refuses_changes_since_a_version(
    lake: lv.Lake, kind: Format
) -> None:
    """The state's version number is the branch's: the lake's version of that number differs."""
    with_a_life(lake.on("etl"), kind)
    for number in range(10, 18):
        put_in(lake, number)
    lake.tag("kept", at="etl@5")
    for name in ("kept", "etl@5"):
        with lake.on(name).snapshot() as then, pytest.raises(lv.InvalidOperation, match="branch"):
            then.changes("stock", since=2)
        with pytest.raises(lv.InvalidOperation, match="the branch that it belongs to has"):
            lake.on(name).changes(2)


def test_the_versions_of_a_rebased_branch_begin_with_the_lakes_newest_state(lake: lv.Lake) -> None:
    etl = lake.on("etl")
    put_in(etl, 2)
    put_in(lake, 50)
    lake.rebase("etl")  # version 4 is the lake's, 5 has the branch's changes
    assert (ids(etl, version=4), ids(etl, version=5)) == ([1, 50], [1, 2, 50])
    put_in(etl, 3)
    assert [one.version for one in etl.changes(4)] == [5, 6]
    assert ids(lake.on("etl@5")) == [1, 2, 50]
    for version in (2, 3):
        with pytest.raises(lv.VersionNotFound, match="branch 'etl' begins with version 4"):
            etl.read("stock", version=version)
        with pytest.raises(lv.VersionNotFound, match="branch 'etl' begins with version 4"):
            etl.changes(version)
    with pytest.raises(lv.InvalidOperation, match="it was rebased"):
        lake.merge("etl", isolation="serializable")
    lake.merge("etl")
    lake.rebase("etl")  # no change of its own is left, but the version is new
    assert ids(etl, version=7) == [1, 2, 3, 50]
    with pytest.raises(lv.VersionNotFound, match="begins with version 7"):
        etl.changes(6)
