"""Another client appends before a decided commit that redefines the table is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Closed

OTHER = pa.table({"id": ["x"], "w": ["text"]})
PARTED = pa.table({"id": pa.array([1], pa.int64()), "n": pa.array([1], pa.int64())})

CHANGES: dict[str, tuple[Callable[[lv.Lake, str], object], list[dict[str, Any]]]] = {
    "taken up": (
        lambda lake, kind: (
            lake.drop_table("t"),
            lake.create_table("t", OTHER, format=kind, or_replace=True),  # type: ignore[call-overload]
        ),
        OTHER.to_pylist(),
    ),
    "replaced": (
        lambda lake, kind: lake.create_table("t", PARTED, partition_by=["n"], or_replace=True),
        PARTED.to_pylist(),
    ),
    "overwritten": (
        lambda lake, kind: lake.run(lambda txn: txn.overwrite("t", OTHER, schema_mode="overwrite")),
        OTHER.to_pylist(),
    ),
}


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array(ids, pa.int64())})


def is_version(key: str) -> bool:
    return "_delta_log/" in key or key.endswith(".metadata.json")


def decided(place: Place, change: Callable[[lv.Lake], object]) -> None:
    """Decide a change as a client that goes away before it publishes."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_version)
        change(lake)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("how", CHANGES)
def test_foreign_rows_of_a_redefined_table_are_not_read_under_its_new_definition(
    place: Place, how: str, format: str
) -> None:
    change, after = CHANGES[how]
    with place.connect() as lake, place.connect() as foreign:
        lake.create_table("t", rows(1, 2), format=format)  # type: ignore[call-overload]
        foreign.run(lambda txn: txn.append("t", rows(3)), features=lv.Feature.NONE)
        decided(place, lambda lake: change(lake, format))
        foreign.run(lambda txn: txn.append("t", rows(77)), features=lv.Feature.NONE)
        assert lake.recover().ok
        assert lake.read("t").to_pylist() == after
        assert {finding.kind for finding in lake.doctor().findings} == {"reconciled"}


def test_a_foreign_row_that_breaks_a_decided_constraint_voids_the_constraint(place: Place) -> None:
    with place.connect() as lake, place.connect() as foreign:
        lake.create_table("t", rows(1, 2))
        foreign.run(lambda txn: txn.append("t", rows(3)), features=lv.Feature.NONE)
        decided(
            place,
            lambda lake: lake.run(lambda txn: txn.alter("t", add_constraints={"few": "id < 50"})),
        )
        foreign.run(lambda txn: txn.append("t", rows(77)), features=lv.Feature.NONE)
        assert lake.recover().ok is False
        assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2, 3, 77]
        lake.run(lambda txn: txn.append("t", rows(78)))


def test_decided_column_additions_and_renames_keep_foreign_rows(place: Place) -> None:
    with place.connect() as lake, place.connect() as foreign:
        lake.create_table("t", rows(1), properties={"delta.columnMapping.mode": "name"})
        foreign.run(lambda txn: txn.append("t", rows(3)), features=lv.Feature.NONE)
        decided(
            place,
            lambda lake: lake.run(
                lambda txn: txn.alter("t", rename_columns={"n": "m"}, add_columns={"x": "string"})
            ),
        )
        foreign.run(lambda txn: txn.append("t", rows(77)), features=lv.Feature.NONE)
        assert lake.recover().ok
        found = sorted(lake.read("t").to_pylist(), key=lambda row: row["id"])
        assert found == [{"id": n, "m": n, "x": None} for n in (1, 3, 77)]


def clustered_by(root: str, *columns: str) -> None:
    """Write the log entry of Spark's ALTER TABLE ... CLUSTER BY; without columns, of BY NONE."""
    fields = json.loads(DeltaTable(f"{root}/t").schema().to_json())["fields"]
    stored = [
        [field["metadata"]["delta.columnMapping.physicalName"]]
        for field in fields
        if field["name"] in columns
    ]
    domain = {
        "domain": "delta.clustering",
        "configuration": json.dumps({"clusteringColumns": stored}),
        "removed": False,
    }
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "CLUSTER BY"}},
        {"domainMetadata": domain},
    ]
    log = Path(root) / "t" / "_delta_log"
    version = len(list(log.glob("*.json")))
    (log / f"{version:020}.json").write_text("".join(f"{json.dumps(a)}\n" for a in actions))


CLUSTERS = {"delta.columnMapping.mode": "name", "delta.feature.clustering": "supported"}


def test_a_column_by_which_another_client_clusters_the_table_is_not_dropped(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", rows(1), properties=CLUSTERS)
        with pytest.raises(lv.ConflictError, match="clustered by 'n'"), lake.transaction() as txn:
            txn.alter("t", drop_columns=["n"])
            clustered_by(place.root, "n")
        assert lake.read("t").to_pylist() == rows(1).to_pylist()


def test_a_decided_drop_of_a_column_is_void_if_another_client_clusters_the_table_by_it(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.create_table("t", rows(1), properties=CLUSTERS)
        decided(place, lambda lake: lake.run(lambda txn: txn.alter("t", drop_columns=["n"])))
        clustered_by(place.root, "n")
        lake.recover()
        assert lake.read("t").to_pylist() == rows(1).to_pylist()
        assert DeltaTable(f"{place.root}/t").schema().to_arrow().names == ["id", "n"]


NEGATIVE = [{"id": -1, "n": -1}]
REFUSED_BEFORE: dict[str, Callable[[lv.Transaction], object]] = {
    "append": lambda txn: txn.append("t", NEGATIVE),
    "overwrite": lambda txn: txn.overwrite("t", NEGATIVE),
    "alter": lambda txn: txn.alter("t", drop_columns=["n"]),
}


def ruled(lake: lv.Lake, root: str, verb: str) -> None:
    """Make a table with a rule that refuses a verb, and have another client remove the rule."""
    if verb == "alter":
        lake.create_table("t", rows(1), properties=CLUSTERS)
        clustered_by(root, "n")
        lake.read("t")
        clustered_by(root)
    else:
        lake.create_table("t", rows(1))
        DeltaTable(f"{root}/t").alter.add_constraint({"natural": "n > 0"})
        lake.read("t")
        DeltaTable(f"{root}/t").alter.drop_constraint("natural")


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I])
@pytest.mark.parametrize("verb", REFUSED_BEFORE)
def test_a_verb_is_not_refused_by_a_rule_that_another_client_has_removed(
    place: Place, verb: str, features: lv.Feature
) -> None:
    with place.connect() as lake:
        ruled(lake, place.root, verb)
        lake.run(REFUSED_BEFORE[verb], features=features)
        now = lake.read("t")
        assert now.column_names == (["id"] if verb == "alter" else ["id", "n"])
        assert (-1 in now["id"].to_pylist()) == (verb != "alter")


def test_a_verb_outside_run_that_a_removed_rule_refuses_conflicts(
    place: Place,
) -> None:
    with place.connect() as lake:
        ruled(lake, place.root, "append")
        with pytest.raises(lv.ConflictError, match="table t were changed by another client"):
            lake.transaction().append("t", NEGATIVE)
        lake.transaction().append("t", NEGATIVE)


def test_a_verb_that_the_newest_rules_refuse_leaves_the_transaction_open(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", rows(1))
        DeltaTable(f"{place.root}/t").alter.add_constraint({"natural": "n > 0"})
        lake.read("t")
        txn = lake.transaction()
        for _ in range(2):
            with pytest.raises(lv.InvalidOperation, match="natural"):
                txn.append("t", NEGATIVE)
        txn.append("t", rows(2))
        txn.commit()
        assert sorted(lake.read("t")["id"].to_pylist()) == [1, 2]
