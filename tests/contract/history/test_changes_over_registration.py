"""``changes`` of a table that left the lake and came back: applied, they give its rows."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.search import how_many
from tests.support.stores import Closed, interrupted, is_entry
from tests.support.tables import bag


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def rows(*ids: int) -> list[dict[str, int]]:
    return [{"id": number, "n": 0} for number in ids]


def replayed(lake: lv.Lake, since: int, until: int) -> dict[tuple[Any, ...], int]:
    state = bag(lake.snapshot(version=since).read("t"))
    changed = lake.snapshot(version=until).changes("t", since)
    plain = changed.select(["id", "n"]).to_pylist()
    for row, kind in zip(plain, changed["_change_type"].to_pylist(), strict=True):
        state[tuple(row.values())] += 1 if kind in ("insert", "update_postimage") else -1
    assert all(count >= 0 for count in state.values()), "it has deleted what was not there"
    return {row: count for row, count in state.items() if count}


def newest(lake: lv.Lake) -> int:
    return lake.history(limit=1)[0].version


def let_go(lake: lv.Lake, how: str) -> None:
    if how == "unregister":
        lake.unregister("t")
    else:
        lake.drop_table("t")


def made(place: Place) -> lv.Lake:
    place.write("t", rows(1, 2, 3))
    lake = place.connect()
    lake.register("t")
    lake.run(lambda txn: txn.append("t", pa.Table.from_pylist(rows(4))))
    return lake


@pytest.mark.parametrize("how", ["drop", "unregister"])
def test_a_table_that_left_and_came_back_unchanged_has_no_changes(place: Place, how: str) -> None:
    with made(place) as lake:
        since = newest(lake)
        let_go(lake, how)
        lake.register("t")
        changed = lake.snapshot().changes("t", since)
        assert changed.num_rows == 0


@pytest.mark.parametrize("how", ["drop", "unregister"])
def test_changes_by_other_clients_meanwhile_appear_where_the_table_is_registered_again(
    place: Place, how: str
) -> None:
    with made(place) as lake:
        since = newest(lake)
        lake.run(lambda txn: txn.delete("t", "id = 1"))
        place.write("t", rows(20))  # before the table leaves; not absorbed yet
        let_go(lake, how)
        place.write("t", rows(21))
        place.delta("t").delete("id = 2")
        lake.register("t")
        back = newest(lake)
        lake.run(lambda txn: txn.update("t", {"n": "7"}, "id = 3"))
        changed = lake.snapshot().changes("t", since)
        told = {
            (row["id"], row["_change_type"], row["_commit_version"] == back)
            for row in changed.to_pylist()
            if row["id"] != 3
        }
        assert told == {
            (1, "delete", False),
            (20, "insert", how == "unregister"),  # the drop has absorbed the foreign commit
            (21, "insert", True),
            (2, "delete", True),
        }
        assert replayed(lake, since, newest(lake)) == bag(lake.snapshot().read("t"))


def test_changes_include_the_writes_of_the_transaction_that_drops_the_table(place: Place) -> None:
    with made(place) as lake:
        since = newest(lake)
        with lake.transaction() as txn:
            txn.delete("t", "id = 1")
            txn.drop_table("t")
        lake.register("t")
        assert replayed(lake, since, newest(lake)) == bag(lake.snapshot().read("t"))
        assert lake.snapshot().read("t").num_rows == 3


def test_a_table_that_was_not_in_the_lake_at_since_has_all_its_rows_as_changes(
    place: Place,
) -> None:
    with made(place) as lake:
        lake.drop_table("t")
        since = newest(lake)
        lake.register("t")
        changed = lake.snapshot().changes("t", since)
        assert changed["_change_type"].to_pylist() == ["insert"] * 4


@pytest.mark.parametrize("seed", range(6))
def test_changes_between_any_two_versions_with_the_table_are_right(place: Place, seed: int) -> None:
    source = random.Random(seed)
    with made(place) as lake:
        there = [newest(lake)]
        for _ in range(how_many(8, whole=14)):
            number = source.randrange(100)
            match source.choice(["append", "update", "delete", "away", "foreign", "decided"]):
                case "append":
                    lake.run(lambda txn, n=number: txn.append("t", rows(n, n + 1)))
                case "update":
                    lake.run(lambda txn: txn.update("t", {"n": "n + 1"}, "true"))
                case "delete":
                    lake.run(lambda txn, n=number: txn.delete("t", f"id % 5 = {n % 5}"))
                case "foreign":
                    place.write("t", rows(number))
                case "decided":  # the decided commit no longer fits when it is to be published
                    lake.run(lambda txn, n=number: txn.append("t", rows(n)))
                    others = place.delta("t")

                    def meanwhile(others: DeltaTable = others) -> None:
                        others.update({"n": "n - 10"})

                    met = interrupted(lake, is_entry("t"), meanwhile)
                    with met, suppress(lv.ForeignConflict), lake.transaction() as txn:
                        txn.update("t", {"n": "n + 1"}, "true")
                case _:
                    if source.random() < 0.5:  # decided now, published after the table has left
                        inner, inside(lake).store = (
                            inside(lake).store,
                            Closed(inside(lake).store, is_entry("t")),
                        )
                        with lake.transaction() as txn:
                            txn.update("t", {"n": "n + 5"}, "true")
                            txn.append("t", rows(number))
                        inside(lake).store = inner
                    if source.random() < 0.5:
                        place.delta("t").update({"n": "n - 3"})
                    let_go(lake, source.choice(["drop", "unregister"]))
                    if source.random() < 0.5:
                        place.write("t", rows(number))
                    if source.random() < 0.5:
                        place.delta("t").delete(f"id % 4 = {number % 4}")
                    lake.register("t")
            there.append(newest(lake))
        for _ in range(how_many(6, whole=12)):
            since, until = sorted(source.sample(there, 2))
            expected = bag(lake.snapshot(version=until).read("t"))
            assert replayed(lake, since, until) == expected, (since, until)
