"""``changes``: the rows that changed between two global versions."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.foreign_changes import delete_by_vector, make_bank
from tests.support.places import Place, make_place
from tests.support.search import how_many
from tests.support.stores import interrupted, is_entry
from tests.support.tables import in_order

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


@pytest.fixture(params=["local", "memory", "remote"])
def anywhere(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "tag": [f"t{i}" for i in ids]})


def told(changed: pa.Table) -> list[tuple[Any, ...]]:
    """Return the changed rows without the commit time, sorted."""
    return sorted(
        (row["_commit_version"], row["_change_type"], *row.values())
        for row in changed.drop_columns("_commit_timestamp").to_pylist()
    )


def brief(changed: pa.Table) -> list[tuple[int, str, int]]:
    found = changed.select(["_commit_version", "_change_type", "id"]).to_pylist()
    return sorted((r["_commit_version"], r["_change_type"], r["id"]) for r in found)


def applied(before: pa.Table, changed: pa.Table) -> Counter[tuple[Any, ...]]:
    """Return the rows of a state after the changes were applied to it."""
    state = Counter(tuple(row.values()) for row in before.to_pylist())
    plain = changed.select(before.schema.names).to_pylist()
    for row, kind in zip(plain, changed["_change_type"].to_pylist(), strict=True):
        added = kind in ("insert", "update_postimage")
        state[tuple(row.values())] += 1 if added else -1
    return +state if min(state.values(), default=0) >= 0 else state


def test_changes_are_reported_commit_by_commit(anywhere: Place) -> None:
    with anywhere.connect() as lake:
        lake.create_table("a", rows(1, 2))
        with lake.transaction() as txn:
            txn.append("a", rows(3, 4))
        with lake.transaction() as txn:
            txn.update("a", {"tag": "'x'"}, where="id = 3")
            txn.delete("a", where="id = 4")
        with lake.transaction() as txn:
            changed = txn.changes("a", 1)
            some = txn.changes("a", 0, columns=["id"], where="id > :n", params={"n": 2})
        made = {entry.version: entry.timestamp for entry in lake.history()}
    beside = ["_change_type", "_commit_version", "_commit_timestamp"]
    assert changed.schema.names == ["id", "tag", *beside]
    assert told(changed) == [
        (2, "insert", 3, "t3", "insert", 2),
        (2, "insert", 4, "t4", "insert", 2),
        (3, "delete", 3, "t3", "delete", 3),
        (3, "delete", 4, "t4", "delete", 3),
        (3, "insert", 3, "x", "insert", 3),
    ]
    for row in changed.to_pylist():
        assert row["_commit_timestamp"] == made[row["_commit_version"]]
    assert some.schema.names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    assert brief(some) == [
        (2, "insert", 3),
        (2, "insert", 4),
        (3, "delete", 3),
        (3, "delete", 4),
        (3, "insert", 3),
    ]


def test_a_change_data_feed_has_the_rows_that_deltalake_reports(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1, 2, 3), properties=FEED, partition_by="tag")
        with lake.transaction() as txn:
            txn.update("a", {"tag": "'x'"}, where="id < 3")
        with lake.transaction() as txn:
            txn.delete("a", where="id = 2")
            txn.append("a", rows(9))
        mine = lake.snapshot().changes("a", 0)
    theirs = pa.table(place.delta("a").load_cdf(starting_version=0).read_all())
    kinds = Counter(mine["_change_type"].to_pylist())
    assert kinds["update_preimage"] == kinds["update_postimage"] == 2
    # The table's first version is the lake's first one, too.
    found = sorted(
        (r["_commit_version"] - 1, r["_change_type"], r["id"], r["tag"]) for r in mine.to_pylist()
    )
    expected = sorted(
        (r["_commit_version"], r["_change_type"], r["id"], r["tag"]) for r in theirs.to_pylist()
    )
    assert found == expected


def test_changes_of_another_client_appear_in_the_version_that_absorbed_them(place: Place) -> None:
    place.write("a", rows(1, 2, 3))
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("a", rows(4))
        start = lake.snapshot().version
        place.delta("a").update({"tag": "'theirs'"}, predicate="id = 1")
        place.delta("a").delete("id = 2")
        place.delta("a").optimize.compact()
        # The foreign commit has no global version yet.
        assert lake.snapshot().changes("a", start).num_rows == 0
        with lake.transaction() as txn:
            txn.append("a", rows(5))
        changed = lake.snapshot().changes("a", start)
    assert brief(changed) == [
        (start + 1, "delete", 1),
        (start + 1, "delete", 2),
        (start + 1, "insert", 1),
        (start + 2, "insert", 5),
    ]


def test_all_rows_of_a_table_are_changes_of_the_commit_by_which_it_entered_the_lake(
    place: Place,
) -> None:
    place.write("a", rows(1, 2))
    place.write("b", rows(7))
    with place.connect() as lake:
        lake.register("a")
        with lake.transaction() as txn:
            txn.append("b", rows(8))
        now = lake.snapshot()
        assert brief(now.changes("a", 0)) == [(1, "insert", 1), (1, "insert", 2)]
        assert brief(now.changes("b", 0)) == [(2, "insert", 7), (2, "insert", 8)]
        assert now.changes("a", 1).num_rows == 0
        with pytest.raises(lv.TableNotFound, match="global version 1"):
            lake.snapshot(version=1).changes("b", 0)


def test_changes_up_to_a_past_version_end_there(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        for number in (2, 3, 4):
            with lake.transaction() as txn:
                txn.append("a", rows(number))
        assert brief(lake.snapshot(version=3).changes("a", 1)) == [
            (2, "insert", 2),
            (3, "insert", 3),
        ]
        assert lake.snapshot(version=3).changes("a", 3).num_rows == 0
        with pytest.raises(lv.VersionNotFound, match="version 3"):
            lake.snapshot(version=3).changes("a", 4)


def test_reading_changes_never_conflicts_with_later_commits(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("a", rows(1))
        lake.create_table("copy", rows(1).slice(0, 0))
        with lake.transaction() as txn:
            since = txn.changes("a", 0).select(["id", "tag"])
            with other.transaction() as theirs:
                theirs.update("a", {"tag": "'x'"}, where="id = 1")
            txn.append("copy", since)
        assert in_order(lake.snapshot().read("copy")) == in_order(rows(1))
        # A read of the table instead of its changes does conflict.
        txn = lake.transaction()
        txn.append("copy", txn.read("a"))
        with other.transaction() as theirs:
            theirs.update("a", {"tag": "'y'"}, where="id = 1")
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_changes_within_a_transaction_leave_out_its_own_writes(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with lake.transaction() as txn:
            txn.append("a", rows(2))
            assert brief(txn.changes("a", 0)) == [(1, "insert", 1)]


def test_changes_have_the_columns_of_the_version_to_which_the_snapshot_is_bound(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1), properties={"delta.columnMapping.mode": "name"})
        with lake.transaction() as txn:
            txn.alter("a", rename_columns={"tag": "label"}, add_columns=pa.schema([("n", "int64")]))
        with lake.transaction() as txn:
            txn.append("a", {"id": [2], "label": ["l"], "n": [5]})
        changed = lake.snapshot().changes("a", 0)
        assert changed.select(["id", "label", "n"]).to_pylist() == [
            {"id": 1, "label": "t1", "n": None},
            {"id": 2, "label": "l", "n": 5},
        ]
        assert lake.snapshot(version=1).changes("a", 0).schema.names[:2] == ["id", "tag"]


@pytest.mark.parametrize("feed", [False, True])
def test_changes_applied_to_any_version_give_any_later_version(place: Place, feed: bool) -> None:
    """Commits of any kind, by any client, lie between both versions."""
    source = random.Random(7)
    pairs = random.Random(8)
    properties = FEED if feed else {}
    with place.connect() as lake:
        lake.create_table("a", rows(*range(8)), properties=properties, partition_by="tag")
        for number in range(how_many(9, whole=14)):
            theirs = source.random() < 0.3
            first, kind = source.randrange(30), source.choice(["append", "update", "delete", "all"])
            if theirs and kind == "append":
                place.write("a", rows(first))
            elif theirs and kind == "update":
                place.delta("a").update({"tag": f"'o{number}'"}, predicate=f"id % 3 = {first % 3}")
            elif theirs:
                place.delta("a").delete(f"id = {first}")
            else:
                with lake.transaction() as txn:
                    if kind == "append":
                        txn.append("a", rows(first, first))
                    elif kind == "update":
                        txn.update("a", {"tag": f"'m{number}'"}, where=f"id % 4 = {first % 4}")
                    elif kind == "delete":
                        txn.delete("a", where=f"id = {first}")
                    else:
                        txn.overwrite("a", rows(*range(first, first + 6)))
        with lake.transaction() as txn:
            txn.append("a", rows(99))
        last = lake.snapshot().version
        states = {v: lake.snapshot(version=v).read("a") for v in range(1, last + 1)}
        assert len({frozenset(map(str, s.to_pylist())) for s in states.values()}) > 5
        ranges = [(since, last) for since in range(1, last + 1)]
        ranges += [sorted(pairs.choices(range(1, last + 1), k=2)) for _ in range(10)]
        for since, bound in ranges:
            changed = lake.snapshot(version=bound).changes("a", since)
            expected = Counter(tuple(row.values()) for row in states[bound].to_pylist())
            assert applied(states[since], changed) == expected, (since, bound)


def test_changes_undo_a_replaced_commit_for_a_reader_that_has_seen_it(place: Place) -> None:
    """The reader takes the changes up to a decided commit, later those from there on: the second
    set undoes the decided commit, which no table log holds.
    """
    place.write("bank", [{"id": i, "balance": 100} for i in range(3)])

    def foreign() -> None:
        with place.connect() as other:
            now = other.snapshot()
            seen.append((now.version, now.read("bank"), now.changes("bank", 0)))
        place.delta("bank").update({"balance": "balance + 1"}, predicate="id = 0")

    seen: list[tuple[int, pa.Table, pa.Table]] = []
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
        with interrupted(lake, is_entry("bank"), foreign), pytest.raises(lv.ForeignConflict):
            txn.commit()
        ((decided, state, first),) = seen
        assert 200 in state["balance"].to_pylist()
        now = lake.snapshot()
        final = Counter(tuple(row.values()) for row in now.read("bank").to_pylist())
        assert final[(0, 202)] == 1
        empty = state.slice(0, 0)
        assert applied(empty, first) == Counter(tuple(r.values()) for r in state.to_pylist())
        assert applied(state, now.changes("bank", decided)) == final
        assert applied(empty, now.changes("bank", 0)) == final
        for since in range(1, now.version):
            before = lake.snapshot(version=since).read("bank")
            assert applied(before, now.changes("bank", since)) == final


def test_removals_without_file_sizes_are_reported_as_changes(place: Place) -> None:
    """Delta's protocol lets a writer give only the path in a remove action."""
    with place.connect() as lake:
        lake.create_table("a", rows(1, 2), partition_by="tag")
        with lake.transaction() as txn:
            txn.append("a", rows(3))
        start = lake.snapshot().version
    place.delta("a").delete("id = 2")
    entry = Path(place.root) / f"a/_delta_log/{2:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "remove" in line:
            for name in ("size", "partitionValues", "extendedFileMetadata"):
                line["remove"].pop(name, None)
    entry.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("a", rows(4))
        changed = lake.snapshot().changes("a", start)
    assert told(changed)[0] == (start + 1, "delete", 2, "t2", "delete", start + 1)


def test_a_transaction_without_a_global_version_has_no_changes(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        txn = lake.transaction(lv.Feature.R)
        with pytest.raises(lv.InvalidOperation, match=r"Feature\.I"):
            txn.changes("a", 0)


@pytest.mark.parametrize("since", [-1, True, "1", None])
def test_a_since_that_is_no_whole_number_is_refused_by_changes(place: Place, since: Any) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        with pytest.raises(lv.InvalidOperation, match="since"):
            lake.snapshot().changes("a", since)


def test_changes_refuses_invalid_arguments(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("a", rows(1))
        lake.create_table("odd", {"_commit_version": [1]})
        now = lake.snapshot()
        with pytest.raises(lv.InvalidOperation, match="nothing"):
            now.changes("a", 0, columns=["nothing"])
        with pytest.raises(lv.InvalidOperation, match="list of names"):
            now.changes("a", 0, columns="id")
        with pytest.raises(lv.InvalidOperation, match="nothing"):
            now.changes("a", 0, where="nothing = 1")
        with pytest.raises(lv.InvalidOperation, match="_commit_version"):
            now.changes("odd", 0)
        with pytest.raises(lv.TableNotFound):
            now.changes("other", 0)
        with pytest.raises(lv.VersionNotFound):
            now.changes("a", 9)


def test_changes_compare_rows_whatever_the_types_of_their_columns(place: Place) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("l", pa.list_(pa.float64())),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("d", pa.decimal128(20, 3)),
            ("t", pa.timestamp("us", "UTC")),
            ("b", pa.binary()),
            ("n", pa.float64()),
        ]
    )
    full = {
        "s": {"x": 1, "y": "y"},
        "l": [1.5, None],
        "m": [("k", 1)],
        "d": Decimal("1.250"),
        "t": datetime(2026, 1, 2, tzinfo=UTC),
        "b": b"\x00\xff",
        "n": float("nan"),
    }
    empty = dict.fromkeys(full)
    data = pa.Table.from_pylist(
        [{"id": 1, **full}, {"id": 1, **full}, {"id": 2, **full}, {"id": 3, **empty}], schema
    )
    with place.connect() as lake:
        lake.create_table("a", data)
        with lake.transaction() as txn:
            # The update rewrites the one file: unchanged rows are in both the old and the new file.
            txn.delete("a", where="id = 2")
        assert brief(lake.snapshot().changes("a", 1)) == [(2, "delete", 2)]
        gone = lake.snapshot().changes("a", 1).drop_columns(["n"]).to_pylist()[0]
        assert {name: gone[name] for name in full if name != "n"} == {
            name: value for name, value in full.items() if name != "n"
        }


def test_changes_by_a_deletion_vector_are_the_deleted_rows(place: Place) -> None:
    make_bank(place)
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 8, "balance": 8}])
        start = lake.snapshot().version
        delete_by_vector(place, row=2)
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
        changed = lake.snapshot().changes("bank", start)
    assert brief(changed) == [(start + 1, "delete", 2), (start + 2, "insert", 9)]
