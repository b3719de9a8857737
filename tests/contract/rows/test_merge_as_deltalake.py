"""A merge has the same result as deltalake's merge with the same clauses on an equal table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.support.places import Place, make_place
from tests.support.tables import in_order

TARGET = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, None], pa.int64()),
        "a": ["one", "two", "three", None, "none"],
        "n": pa.array([10, 20, 30, 40, 50], pa.int64()),
    }
)
SOURCE = pa.table(
    {
        "id": pa.array([2, 3, 4, 5, None], pa.int64()),
        "a": ["TWO", "THREE", "FOUR", "FIVE", "NONE"],
        "n": pa.array([200, 300, None, 500, 600], pa.int64()),
    }
)

MERGES: dict[str, Callable[[Any], Any]] = {
    "update": lambda m: m.when_matched_update({"a": "source.a", "n": "target.n + source.n"}),
    "update-where": lambda m: m.when_matched_update({"n": "source.n"}, "source.n > 250"),
    "update-all": lambda m: m.when_matched_update_all(),
    "update-all-but": lambda m: m.when_matched_update_all(except_cols=["a"]),
    "update-all-where": lambda m: m.when_matched_update_all(predicate="target.n < 40"),
    "delete": lambda m: m.when_matched_delete(),
    "delete-where": lambda m: m.when_matched_delete("target.n = 30"),
    "insert": lambda m: m.when_not_matched_insert({"id": "source.id", "a": "'new'"}),
    "insert-where": lambda m: m.when_not_matched_insert({"id": "source.id"}, "source.n > 550"),
    "insert-all": lambda m: m.when_not_matched_insert_all(),
    "insert-all-but": lambda m: m.when_not_matched_insert_all(except_cols=["n"]),
    "insert-all-where": lambda m: m.when_not_matched_insert_all(predicate="source.id = 5"),
    "by-source-update": lambda m: m.when_not_matched_by_source_update({"a": "'gone'"}),
    "by-source-update-where": lambda m: m.when_not_matched_by_source_update(
        {"n": "target.n * 2"}, "target.id = 1"
    ),
    "by-source-delete": lambda m: m.when_not_matched_by_source_delete(),
    "by-source-delete-where": lambda m: m.when_not_matched_by_source_delete("target.n = 10"),
    "first-of-its-kind-wins": lambda m: (
        m.when_matched_update({"a": "'low'"}, "target.n < 30")
        .when_matched_delete("target.n = 30")
        .when_matched_update({"a": "'high'"})
        .when_not_matched_insert({"id": "source.id", "a": "'five'"}, "source.id = 5")
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"a": "'first'"}, "target.id = 1")
        .when_not_matched_by_source_delete()
    ),
    "sync": lambda m: (
        m.when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_delete()
    ),
}


@pytest.mark.parametrize("describe", MERGES.values(), ids=MERGES.keys())
@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_a_merge_has_the_result_of_deltalakes_merge(
    request: pytest.FixtureRequest, describe: Callable[[Any], Any], partitioned: bool
) -> None:
    place: Place = make_place("local", request)
    by = ["a"] if partitioned else None
    for name in ("ours", "theirs"):
        place.write(name, TARGET, partition_by=by)
    theirs = describe(
        place.delta("theirs").merge(
            SOURCE, "target.id = source.id", source_alias="source", target_alias="target"
        )
    ).execute()
    with place.connect() as lake, lake.transaction() as txn:
        ours = describe(txn.merge("ours", SOURCE, "target.id = source.id")).execute()
    assert in_order(place.delta("ours").to_pyarrow_table()) == in_order(
        place.delta("theirs").to_pyarrow_table()
    )
    assert ours.rows_inserted == theirs["num_target_rows_inserted"]
    assert ours.rows_updated == theirs["num_target_rows_updated"]
    assert ours.rows_deleted == theirs["num_target_rows_deleted"]


def test_a_merge_uses_the_callers_aliases_and_parameters(request: pytest.FixtureRequest) -> None:
    place = make_place("local", request)
    place.write("t", TARGET)
    with place.connect() as lake, lake.transaction() as txn:
        done = (
            txn.merge(
                "t", SOURCE, "t.id = s.id and s.n > :n", source_alias="s", target_alias="t",
                params={"n": 250, "text": "it's"},
            )
            .when_matched_update({"a": ":text", "n": None})
            .execute()
        )  # fmt: skip
        assert done.rows_updated == 1
        assert txn.read("t", where="id = 3").to_pylist() == [{"id": 3, "a": "it's", "n": None}]
