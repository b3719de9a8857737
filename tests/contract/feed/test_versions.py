"""``lake.changes``: each version once and in order, with all of its tables together."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.feed.mirror import Mirror, check, state_at
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def lake(shared_place: Place) -> Iterator[lv.Lake]:
    with shared_place.connect(settings=lv.Settings(reuse_after_seconds=0)) as lake:
        yield lake


def newest(lake: lv.Lake) -> int:
    return lake.history(1)[0].version


def rows_in(version: lv.Version) -> dict[str, list[tuple[Any, ...]]]:
    return {
        name: sorted(
            (row["_change_type"], row["id"])
            for row in rows.select(["_change_type", "id"]).to_pylist()
        )
        for name, rows in version.tables.items()
    }


def shop(lake: lv.Lake) -> None:
    lake.create_table("a", [{"id": 1, "n": 0}])
    lake.create_table("s/b", [{"id": 1, "n": 0}])


def both(txn: lv.Transaction) -> None:
    txn.append("a", [{"id": 2, "n": 0}])
    txn.update("s/b", {"n": "n + 1"}, where="id = 1")


def test_a_version_of_the_feed_has_all_tables_and_the_metadata_of_its_transaction(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.run(both, metadata={"job": "nightly"})
    first, second, third = lake.changes(0)
    assert [(v.version, v.since) for v in (first, second, third)] == [(1, 0), (2, 1), (3, 2)]
    assert (first.entered, second.entered, third.entered) == (("a",), ("s/b",), ())
    assert rows_in(third) == {"a": [("insert", 2)], "s/b": [("delete", 1), ("insert", 1)]}
    entry = lake.history(1)[0]
    assert (third.version, third.timestamp, third.txn_id, third.kind, third.metadata) == (
        entry.version,
        entry.timestamp,
        entry.txn_id,
        entry.kind,
        {"job": "nightly"},
    )
    assert third.uris == {"a": lake.table("a").uri, "s/b": lake.table("s/b").uri}
    rows = third.tables["a"]
    assert rows.schema.names == ["id", "n", "_change_type", "_commit_version", "_commit_timestamp"]
    assert rows["_commit_timestamp"].to_pylist() == [third.timestamp]
    assert rows is third.tables["a"]
    assert (third.merged, repr(third.tables)) == (None, "<changes of a, s/b>")


def test_a_version_is_displayed_without_reading_rows_and_pickled_with_all_rows(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.run(both)
    *_, last = lake.changes(0)
    with inside(lake).requests.counting() as requests:
        assert "&lt;changes of a, s/b&gt;" in last._repr_html_()
        assert "s/b" in repr(last)
        assert last == last
    assert requests.total == 0
    again = pickle.loads(pickle.dumps(last))
    assert (again, dict(again.tables)) == (last, dict(last.tables))


def test_changes_without_an_end_stop_at_the_version_of_the_request(lake: lv.Lake) -> None:
    shop(lake)
    versions = lake.changes(0)
    lake.run(both)
    assert [version.version for version in versions] == [1, 2]
    assert [version.version for version in lake.changes(0, 1)] == [1]
    assert [version.version for version in lake.changes(1, 2)] == [2]
    assert list(lake.changes(3)) == list(lake.changes(0, 0)) == []


def test_a_time_in_a_range_stands_for_the_newest_version_that_is_not_later(lake: lv.Lake) -> None:
    shop(lake)
    lake.run(both)
    made = {entry.version: entry.timestamp for entry in lake.history()}
    assert [v.version for v in lake.changes(made[1], made[2])] == [2]
    just_before = made[3] - timedelta(milliseconds=1)
    assert [v.version for v in lake.changes(just_before)] == [3]
    assert list(lake.changes(datetime.now(UTC) - timedelta(milliseconds=1))) == []


def test_the_feed_can_be_limited_to_some_tables_and_columns(lake: lv.Lake) -> None:
    shop(lake)
    lake.create_table("s/c", [{"id": 9, "n": 9}])
    lake.run(both)
    assert [v.version for v in lake.changes(0, tables=["a"])] == [1, 4]
    assert [list(v.tables) for v in lake.changes(0, tables=["s/*"])] == [["s/b"], ["s/c"], ["s/b"]]
    *_, last = lake.changes(0, tables=["a", "s/[b]"], columns=["n"])
    assert {name: rows.schema.names[0] for name, rows in last.tables.items()} == {
        "a": "n",
        "s/b": "n",
    }
    *_, last = lake.changes(0, columns={"a": ["n"]})
    assert [rows.schema.names[0] for rows in last.tables.values()] == ["n", "id"]


def test_the_columns_of_each_version_in_the_feed_are_those_at_that_version(lake: lv.Lake) -> None:
    shop(lake)
    lake.run(lambda txn: txn.alter("a", add_columns={"w": "string"}))
    lake.run(lambda txn: txn.append("a", [{"id": 2, "n": 0, "w": "x"}]))
    created, _, altered, appended = lake.changes(0)
    assert created.tables["a"].schema.names[:2] == ["id", "n"]
    assert (altered.tables["a"].num_rows, altered.tables["a"].schema.names[:3]) == (
        0,
        ["id", "n", "w"],
    )
    assert appended.tables["a"]["w"].to_pylist() == ["x"]
    # The columns don't depend on the order in which the versions are read.
    versions = list(lake.changes(0))
    assert versions[3].tables["a"].schema.names[:3] == ["id", "n", "w"]
    assert versions[0].tables["a"].schema.names[:3] == ["id", "n", "_change_type"]


def test_the_feed_reports_tables_that_enter_leave_and_return(
    lake: lv.Lake, shared_place: Place
) -> None:
    shop(lake)
    uri = lake.table("a").uri
    lake.unregister("a")
    shared_place.write("a", [{"id": 7, "n": 7}])
    lake.register("a")
    lake.drop_table("s/b")
    versions = list(lake.changes(2))
    assert [(v.entered, v.left, list(v.tables)) for v in versions] == [
        ((), ("a",), []),
        (("a",), (), ["a"]),
        ((), ("s/b",), []),
    ]
    assert versions[0].uris == {"a": uri}
    assert rows_in(versions[1]) == {"a": [("insert", 1), ("insert", 7)]}
    mirror = Mirror().apply_all(lake.changes(0))
    check(lake, mirror)


def test_a_table_dropped_and_recreated_is_a_new_table_in_the_feed(lake: lv.Lake) -> None:
    shop(lake)
    lake.drop_table("a", delete_data=True)
    lake.create_table("a", [{"id": 5, "other": "x"}])
    versions = list(lake.changes(2))
    assert [(v.entered, v.left) for v in versions] == [((), ("a",)), (("a",), ())]
    assert rows_in(versions[1]) == {"a": [("insert", 5)]}
    [whole] = lake.changes(2, net=True)
    assert (whole.entered, whole.left) == (("a",), ("a",))
    assert rows_in(whole) == {"a": [("insert", 5)]}
    check(lake, Mirror(2, state_of_shop(lake)).apply_all(lake.changes(2, net=True)))


def state_of_shop(lake: lv.Lake) -> Any:
    """Return the state of the tables of ``shop``, one of which has been deleted since."""
    rows = frozenset({("id", "1"), ("n", "0")})
    return {f"{lake.root}/{name}": Counter([rows]) for name in ("a", "s/b")}


def test_a_renamed_table_has_its_new_name_and_old_location_in_the_feed(lake: lv.Lake) -> None:
    shop(lake)
    uri = lake.table("a").uri
    lake.rename_table("a", "orders")
    lake.run(lambda txn: txn.append("orders", [{"id": 2, "n": 0}]))
    versions = list(lake.changes(0))
    assert [(list(v.tables), v.uris.get("orders")) for v in versions] == [
        (["orders"], uri),
        (["s/b"], None),
        (["orders"], uri),
        (["orders"], uri),
    ]
    assert versions[2].tables["orders"].num_rows == 0
    assert [v.version for v in lake.changes(0, tables=["orders"])] == [1, 3, 4]
    check(lake, Mirror().apply_all(versions))


def test_a_registered_table_enters_the_feed_with_all_its_rows(
    lake: lv.Lake, shared_place: Place
) -> None:
    shared_place.write("old", [{"id": 1}, {"id": 2}])
    shop(lake)
    lake.register("old")
    shared_place.write("implicit", [{"id": 3}])
    lake.run(lambda txn: txn.append("implicit", [{"id": 4}]))
    *_, registered, implicit = lake.changes(0)
    assert (registered.kind, registered.entered, registered.metadata) == (
        "register",
        ("old",),
        {},
    )
    assert rows_in(registered) == {"old": [("insert", 1), ("insert", 2)]}
    assert (implicit.entered, rows_in(implicit)) == (
        ("implicit",),
        {"implicit": [("insert", 3), ("insert", 4)]},
    )


def test_commits_of_other_clients_appear_in_the_version_that_absorbed_them(
    lake: lv.Lake, shared_place: Place
) -> None:
    shop(lake)
    shared_place.write("a", [{"id": 7, "n": 7}])
    assert list(lake.changes(2)) == []
    lake.run(both)
    foreign, own = lake.changes(2)
    assert (foreign.kind, foreign.txn_id, rows_in(foreign)) == (
        "foreign",
        None,
        {"a": [("insert", 7)]},
    )
    assert rows_in(own)["a"] == [("insert", 2)]


def test_net_changes_are_one_difference_between_two_states(lake: lv.Lake) -> None:
    shop(lake)
    for number in range(2, 6):
        lake.run(lambda txn, n: txn.append("a", [{"id": n, "n": 0}]), number)
    lake.run(lambda txn: txn.delete("a", where="id < 4"))
    lake.run(lambda txn: txn.update("a", {"n": "n + 1"}, where="id = 4"))
    [whole] = lake.changes(2, net=True)
    assert (whole.kind, whole.version, whole.since, whole.txn_id) == ("net", newest(lake), 2, None)
    assert rows_in(whole) == {"a": [("delete", 1), ("insert", 4), ("insert", 5)]}
    assert list(lake.changes(newest(lake), net=True)) == []
    check(lake, Mirror(2, state_at(lake, 2)).apply_all([whole]))


def test_updates_are_in_a_tables_change_data_feed_but_not_in_net_changes(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        lake.create_table("a", [{"id": 1, "n": 0}, {"id": 2, "n": 0}], properties=FEED)
        lake.run(lambda txn: txn.update("a", {"n": "1"}, where="id = 1"))
        [version] = lake.changes(1)
        assert rows_in(version)["a"] == [("update_postimage", 1), ("update_preimage", 1)]
        [whole] = lake.changes(1, net=True)
        assert rows_in(whole)["a"] == [("delete", 1), ("insert", 1)]


@pytest.mark.parametrize("seed", range(3))
def test_the_feed_applied_to_any_version_gives_any_later_version(
    lake: lv.Lake, shared_place: Place, seed: int
) -> None:
    """Commits of any kind and client lie between; the feed is read commit by commit and as net."""
    source = random.Random(seed)
    shop(lake)
    for number in range(how_many(7, whole=12)):
        kind = source.choice(["both", "append", "delete", "theirs", "columns", "again", "optimize"])
        table = source.choice(["a", "s/b"])
        if kind == "both":
            lake.run(both)
        elif kind == "append":
            lake.run(lambda txn, t, n: txn.append(t, [{"id": n, "n": n}]), table, number)
        elif kind == "delete":
            lake.run(lambda txn, t, n: txn.delete(t, where=f"id = {n}"), table, number % 3)
        elif kind == "theirs":
            columns = lake.table(table).schema
            shared_place.write(
                table, pa.Table.from_pylist([{"id": number, "n": 1}], schema=columns)
            )
        elif kind == "columns":
            lake.run(lambda txn, t, n: txn.alter(t, add_columns={f"w{n}": "int"}), table, number)
        elif kind == "again":
            lake.unregister(table)
            lake.register(table)
        else:
            lake.table(table).optimize()
    last = newest(lake)
    states = {version: state_at(lake, version) for version in range(1, last + 1)}
    check(lake, Mirror().apply_all(lake.changes(0)))
    for _ in range(6):
        since, until = sorted(source.choices(range(1, last + 1), k=2))
        for net in (False, True):
            mirror = Mirror(since, dict(states[since]))
            mirror.apply_all(lake.changes(since, until, net=net))
            assert mirror.tables == states[until], (since, until, net)


def test_a_lake_that_does_not_exist_yet_has_no_versions_in_its_feed(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        assert list(lake.changes(0)) == []
        with pytest.raises(lv.VersionNotFound, match="newest is 0"):
            lake.changes(1)
        assert not lake.exists()


def test_a_copied_lake_reports_changes_since_its_adoption(
    local_place: Place, tmp_path: Path
) -> None:
    with local_place.connect() as lake:
        shop(lake)
    shutil.copytree(local_place.root, tmp_path / "copy")
    with lv.connect(tmp_path / "copy") as copy:
        copy.doctor(adopt=True)
        copy.run(both)
        with pytest.raises(lv.VersionNotFound, match="since version 2"):
            copy.changes(0)
        [version] = copy.changes(2)
        assert rows_in(version)["a"] == [("insert", 2)]


def test_a_feed_of_many_versions_reads_them_from_pages(lake: lv.Lake, page_length: int) -> None:
    """HEAD keeps only the newest versions, less than two pages; pages hold the older ones."""
    count = 2 * page_length + 12
    lake.create_table("a", [{"id": 0}])
    for number in range(1, count):
        lake.run(lambda txn, n: txn.append("a", [{"id": n}]), number, wait="decided")
    versions = list(lake.changes(0))
    assert [v.version for v in versions] == list(range(1, count + 1))
    middle = count // 2
    assert versions[middle].tables["a"]["id"].to_pylist() == [middle]
    assert json.dumps(versions[middle].metadata) == "{}"


def test_a_merge_a_revert_and_a_rollback_are_one_version_of_the_feed_each(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    lake.on("etl").run(both)
    lake.on("etl").run(lambda txn: txn.delete("a", where="id = 1"))
    lake.run(lambda txn: txn.append("s/b", [{"id": 9, "n": 9}]))
    done = lake.merge("etl")
    [merged] = lake.changes(3)
    assert merged.merged == done.merged
    assert rows_in(merged) == {
        "a": [("delete", 1), ("insert", 2)],
        "s/b": [("delete", 1), ("insert", 1)],
    }
    lake.revert(4)
    lake.rollback(3)
    lake.cherry_pick(4)
    check(lake, Mirror().apply_all(lake.changes(0)))
    own = list(lake.on("etl").changes(2))
    assert [(one.version, list(one.tables)) for one in own] == [(3, ["a", "s/b"]), (4, ["a"])]
