"""``changes`` where other clients commit between a decision and its publishing, in any order.

Their commits make the decided commit unfit, so it is replayed. The changes of a reconcile commit
are the difference of two states: each file counts, also one marked ``dataChange: false``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place, make_place
from tests.support.stores import interrupted, is_entry
from tests.support.tables import bag

#: What other clients do; each action has the dataChange that deltalake writes.
FOREIGN = ("optimize", "update", "append", "delete")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def rows(*ids: int) -> list[dict[str, int]]:
    return [{"id": number, "n": 0} for number in ids]


def applied(before: pa.Table, changed: pa.Table) -> dict[tuple[Any, ...], int]:
    state = bag(before)
    plain = changed.select(before.schema.names).to_pylist()
    for row, kind in zip(plain, changed["_change_type"].to_pylist(), strict=True):
        state[tuple(row.values())] += 1 if kind in ("insert", "update_postimage") else -1
    return {row: count for row, count in state.items() if count}


def do(place: Place, kinds: Sequence[str], source: random.Random) -> None:
    for kind in kinds:
        number = source.randrange(6)
        if kind == "append":
            place.write("t", rows(number, number))
        elif kind == "update":
            place.delta("t").update({"n": "n + 100"}, predicate=f"id % 3 = {number % 3}")
        elif kind == "delete":
            place.delta("t").delete(f"id = {number}")
        else:
            place.delta("t").optimize.compact()


def decide(place: Place, kinds: Sequence[str], source: random.Random) -> None:
    """Decide a transaction; other clients do these actions; then it is published or replayed."""
    with place.connect() as lake:
        txn = lake.transaction()
        number = source.randrange(6)
        verb = source.choice(["update", "delete", "append"])
        if verb == "update":
            txn.update("t", {"n": "n + 1"}, where=f"id % 2 = {number % 2}")
        elif verb == "delete":
            txn.delete("t", where=f"id = {number}")
        txn.append("t", rows(number))
        with interrupted(lake, is_entry("t"), lambda: do(place, kinds, source)):
            # The transaction is committed; the error says that it was replayed.
            with suppress(lv.ForeignConflict):
                txn.commit()


def check(place: Place, source: random.Random) -> set[str]:
    """Assert that changes lead from any version to any later one; return the kinds of commits."""
    with place.connect() as lake:
        history = lake.history()
        last = history[0].version
        versions = range(1, last + 1)
        states = {v: lake.snapshot(version=v) for v in versions}
        found = {v: state.read("t") for v, state in states.items()}
        # Over one version at a time, and over several at once.
        pairs = [(v - 1, v) for v in versions[1:]]
        pairs += [(source.choice(versions), source.choice(versions)) for _ in range(8)]
        for since, bound in map(sorted, pairs):
            changed = states[bound].changes("t", since)
            expected = dict(bag(found[bound]))
            assert applied(found[since], changed) == expected, (since, bound)
        return {entry.kind for entry in history}


def start(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", rows(0, 1, 2))
        for number in (3, 4):
            with lake.transaction() as txn:
                txn.append("t", rows(number))


@pytest.mark.parametrize("seed", range(4))
def test_changes_over_reconcile_commits_lead_from_any_version_to_any_later_one(
    place: Place, seed: int
) -> None:
    source = random.Random(seed)
    start(place)
    for _ in range(3):
        decide(place, source.choices(FOREIGN, k=source.randint(1, 3)), source)
    assert "reconcile" in check(place, source)


def test_changes_over_a_commit_reconciled_with_a_foreign_optimize_are_its_own_rows_only(
    place: Place,
) -> None:
    start(place)
    with place.connect() as lake:
        before = lake.snapshot().version
        txn = lake.transaction()
        txn.update("t", {"n": "7"}, where="id = 1")
        with interrupted(lake, is_entry("t"), lambda: place.delta("t").optimize.compact()):
            txn.commit()
        changed = lake.snapshot().changes("t", before).select(["_change_type", "id", "n"])
        assert lake.history()[0].kind == "reconcile"
    assert sorted(tuple(row.values()) for row in changed.to_pylist()) == [
        ("delete", 1, 0),
        ("insert", 1, 7),
    ]


def test_changes_can_be_read_over_a_reconcile_where_another_client_only_added_columns(
    place: Place,
) -> None:
    """The other client also deleted the row that the decided commit deletes: no change is left."""
    start(place)
    with place.connect() as lake:
        txn = lake.transaction()
        txn.delete("t", where="id = 1")

        def foreign() -> None:
            place.delta("t").delete("id = 1")
            wider = pa.table({"id": [9], "n": [0], "w": ["x"]})
            place.write("t", wider, schema_mode="merge")

        with interrupted(lake, is_entry("t"), foreign):
            with suppress(lv.ForeignConflict):
                txn.commit()
        now = lake.snapshot()
        assert {row["id"] for row in now.changes("t", now.version - 2).to_pylist()} == {9}
