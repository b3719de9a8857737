"""Spark's data source on a branch: its tasks read rows, changes and versions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.spark.source import changes, versions
from lakevilla.api.spark.source.options import ReadOptions
from lakevilla.api.spark.source.tables import bound_to
from lakevilla.engines.spark.rows import spark_schema

LAKES = pickle.dumps({})


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake with a branch made at version 1; versions 2 and 3 are commits on the branch."""
    with lv.connect(tmp_path) as lake:
        lake.create_table("stock", [{"id": 1}])
        lake.branch("etl")
        lake.tag("closing")
        etl = lake.on("etl")
        etl.run(lambda txn: txn.append("stock", [{"id": 2}]))
        etl.run(lambda txn: txn.delete("stock", where="id = 1"))
        lake.run(lambda txn: txn.append("stock", [{"id": 50}]))
    return str(tmp_path)


def options(root: str, **given: Any) -> dict[str, str]:
    return {"lake": root, "ref": "etl", **{name: str(value) for name, value in given.items()}}


def changed(state: bytes, parts: list[bytes]) -> list[tuple[int, str, int]]:
    rows = [
        row for part in parts for batch in changes.rows(state, part) for row in batch.to_pylist()
    ]
    return sorted((row["_commit_version"], row["_change_type"], row["id"]) for row in rows)


def test_changes_of_a_branch_are_read_and_streamed(root: str) -> None:
    asked = options(root, table="stock", startingVersion=2)
    held = bound_to(LAKES, ReadOptions.of(asked))
    schema = spark_schema(changes.columns_of(held))
    batch = changes.scan(pickle.dumps(held), schema)
    expected = [(2, "insert", 2), (3, "delete", 1)]
    assert changed(batch, changes.ranges(batch)) == expected
    state = changes.stream(LAKES, asked, schema)
    assert changes.newest_version(state) == 3
    assert changed(state, changes.ranges(state, {"version": 1}, {"version": 3})) == expected
    assert changed(state, changes.ranges(state, {"version": 2}, {"version": 3})) == expected[1:]
    with pytest.raises(lv.InvalidOperation, match="or a branch, and 'closing' is a state"):
        changes.stream(LAKES, {**asked, "ref": "closing"}, schema)
    with pytest.raises(lv.VersionNotFound, match="branch 'etl' begins with version 1"):
        changes.ranges(state, {"version": 0}, {"version": 3})


def test_a_query_for_the_versions_of_a_branch_lists_its_commits(root: str) -> None:
    held = versions.bound(LAKES, options(root, startingVersion=2))
    [part] = versions.ranges(held)
    rows = [row for batch in versions.rows(held, part) for row in batch.to_pylist()]
    assert [(row["version"], row["tables"]) for row in rows] == [(2, ["stock"]), (3, ["stock"])]
    for ref in ("closing", "etl@2"):
        with pytest.raises(lv.InvalidOperation, match=f"{ref!r} is a state"):
            versions.bound(LAKES, {**options(root, startingVersion=1), "ref": ref})


def test_a_version_of_a_branch_is_selected_by_a_ref_with_at(root: str) -> None:
    held = bound_to(LAKES, ReadOptions.of({**options(root, table="stock"), "ref": "etl@2"}))
    assert held.version == 2
    with pytest.raises(lv.InvalidOperation, match="a branch is option ref as 'etl@57'"):
        ReadOptions.of(options(root, table="stock", version=2))
